//! Datagrams in pieces (RFC 6146 3.4).

use super::four_to_six::From4;
use super::{From6, Nat64};
use crate::engine::BuildError;
use crate::plan::Plan;
use crate::shared::Shared;
use crate::step::Step;
use crate::time::Instant;
use gatun_wire::{DropReason, Packet};

/// Fragmented datagrams on their way.
pub(crate) struct Fragments;

impl Fragments {
    pub(crate) fn new(_plan: &Plan, _seed: [u64; 4]) -> Result<Self, BuildError> {
        Ok(Fragments)
    }
}

impl Shared {
    pub(crate) fn expire_fragments(&mut self, _now: Instant, _budget: usize) {}
}

pub(crate) fn six_to_four(
    _nats: &[Nat64],
    _sh: &mut Shared,
    _now: Instant,
    _packet: &mut Packet<'_>,
    _from: &From6,
) -> Result<Step, DropReason> {
    Err(DropReason::FragmentMemory)
}

pub(crate) fn four_to_six(
    _nats: &[Nat64],
    _sh: &mut Shared,
    _now: Instant,
    _packet: &mut Packet<'_>,
    _from: &From4,
) -> Result<Step, DropReason> {
    Err(DropReason::FragmentMemory)
}
