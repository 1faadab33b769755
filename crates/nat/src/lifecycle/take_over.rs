//! Restore of another process's sessions, some at a time between bursts.

use crate::base::time::Instant;
use crate::path::restore::{self, GROUP};
use crate::path::state::Core;
use crate::tables::inheritance::Inheritance;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Cost of a restored session, in records that are looked at.
const COST: usize = 8;

/// Finished part of an inheritance. Its drop frees the memory, which takes some time.
pub struct FinishedInheritance(#[allow(dead_code)] pub(crate) Box<Inheritance>);

/// Restores some sessions, and looks at about `budget` records. Returns whether these were the last ones.
pub(crate) fn some(core: &mut Core, inheritance: &mut Inheritance, now: Instant, mut budget: usize) -> bool {
    let mut found = Vec::with_capacity(GROUP);
    while budget > 0 && core.state.tables.events.has_room_for(2 * GROUP) {
        let looked_at = budget.min(GROUP * COST);
        let is_last = inheritance.walk(looked_at, GROUP, &mut found);
        budget -= looked_at;
        restore::these(core, inheritance, now, &mut found);
        if is_last {
            return true;
        }
    }
    false
}
