//! The engine: bursts in, verdicts out.

use crate::{Counters, Instant, Plan, Verdict};
use alloc::string::String;
use gatun_wire::Packet;

/// Packets that [`Nat::process`] takes at a time.
pub const BURST: usize = 64;

/// Why an engine cannot be built from a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError(pub String);

/// One translator: state and counters. One per core, nothing shared.
pub struct Nat {
    counters: Counters,
}

/// A packet that the engine made: a further fragment, a released one, a probe, a late ICMP error.
#[derive(Debug)]
pub struct Emitted<'a> {
    /// Index in the burst of the packet after which it is to be sent, so that a flow keeps its order;
    /// packets from [`Nat::expire`] have 0.
    pub after: usize,
    /// The packet, with [`gatun_wire::HEADROOM`] in front.
    pub packet: Packet<'a>,
}

impl Nat {
    /// An engine for `plan`; all memory is allocated here. `seed` keys the hashes and the choice of
    /// ports: it must not be guessable.
    ///
    /// # Errors
    /// Where the plan contradicts itself, or memory is short.
    pub fn new(_plan: &Plan, _seed: [u64; 4]) -> Result<Self, BuildError> {
        Ok(Nat { counters: Counters::default() })
    }

    /// Translates up to [`BURST`] packets in place and says what became of each. Returns how many of
    /// them it processed: fewer than given only where the buffers for emitted packets are used up;
    /// send the emitted ones and call again with the rest.
    pub fn process(&mut self, _now: Instant, burst: &mut [Packet<'_>], verdicts: &mut [Verdict]) -> usize {
        for (p, v) in burst.iter().zip(verdicts.iter_mut()) {
            self.counters.rx.add(p.len());
            self.counters.passed.add(p.len());
            *v = Verdict::Pass;
        }
        burst.len().min(verdicts.len())
    }

    /// Ends what is due, looking at no more than `budget` records. Call it again and again, bursts or not.
    /// Returns how many milliseconds it may be left alone at most.
    pub fn expire(&mut self, _now: Instant, _budget: usize) -> u32 {
        1000
    }

    /// Gives every packet emitted since the last call to `send`, in order of `after`.
    pub fn drain_emitted(&mut self, _send: impl FnMut(Emitted<'_>)) {}

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
