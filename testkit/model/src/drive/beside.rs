//! A translator beside the engine in a history.

use crate::model::{Observed, RealmPacket};
use gatun_nat::{Instant, Nat, Plan};

/// A fast path that has the engine's sessions, and gets the packets of a history, too.
pub trait Beside {
    /// Gets a packet before the engine does, at the time `now`. `plan` is the current one.
    fn before(&mut self, engine: &Nat, plan: &Plan, now: Instant, packet: &RealmPacket);

    /// Compares its result on the packet with the engine's.
    ///
    /// # Errors
    /// Returns the difference.
    fn after(&mut self, packet: &RealmPacket, engine: &Observed) -> Result<(), String>;
}
