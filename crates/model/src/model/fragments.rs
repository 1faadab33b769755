//! Datagrams in pieces (RFC 6146 3.4).

use super::four_to_six::Arrival;
use super::six_to_four::Target;
use super::{Fate, Model, Result, Seen};
use crate::wire::Header;
use gatun_wire::DropReason;

#[derive(Clone, Debug)]
pub(super) struct Datagram {
    pub(super) ends: u64,
}

impl Model {
    pub(super) fn fragment_out(
        &mut self,
        _p: &[u8],
        _h: &Header<'_>,
        _to: Target,
        _s: &Seen,
    ) -> Result<Fate> {
        Err(DropReason::FragmentMemory)
    }

    pub(super) fn fragment_back(&mut self, _p: &[u8], _h: &Header<'_>, _i: usize, _s: &Seen) -> Result<Fate> {
        let _: Option<Arrival> = None;
        Err(DropReason::FragmentMemory)
    }
}
