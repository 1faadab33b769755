//! Context of one packet on the slow path: the rules, the state, the time, and the packet's attribution.

use super::rules::Rules;
use super::rules::nat44::Nat44;
use super::state::EngineState;
use crate::base::attribution::Attribution;
use crate::base::outcome::Outcome;
use crate::base::outcome::Refusal;
use crate::base::step::Step;
use crate::base::time::Instant;
use crate::tables::bib::PoolAddress;
use gatun_wire::{Ipv4View, Ipv6View, L4};

/// Rules, state and time for the translation of one packet.
pub(crate) struct PacketContext<'c> {
    pub(crate) rules: &'c Rules,
    pub(crate) state: &'c mut EngineState,
    pub(crate) now: Instant,
    /// Attribution by the packet's class. The packet's outcome may have a more exact one.
    pub(crate) attribution: Attribution,
}

impl PacketContext<'_> {
    /// Creates the outcome of a packet that is attributed by its class.
    pub(crate) fn outcome<E: Into<Refusal>>(&self, result: Result<Step, E>) -> Outcome {
        Outcome::new(self.attribution, result)
    }
}

/// A packet from an IPv6 host inside. It is passed by value to functions that are not inlined: a reference
/// would put it into memory for every packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outbound6 {
    pub(crate) view: Ipv6View,
    pub(crate) l4: L4,
    /// Number of the instance.
    pub(crate) instance: u8,
    /// Number of the instance's prefix that contains the destination.
    pub(crate) pool6: u8,
}

/// A packet from an IPv4 host inside.
#[derive(Clone, Copy)]
pub(crate) struct Outbound4<'r> {
    pub(crate) nat: &'r Nat44,
    pub(crate) view: Ipv4View,
    pub(crate) l4: L4,
}

/// A packet from outside, to a pool's address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inbound {
    pub(crate) view: Ipv4View,
    pub(crate) l4: L4,
    pub(crate) at: PoolAddress,
}
