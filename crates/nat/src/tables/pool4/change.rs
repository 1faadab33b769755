//! Changes of a running pool: other ranges, other terms. Gatun prepares the data of a change beforehand
//! ([`PoolChange`]) and applies it at once ([`Pool4State::change`]). Then each changed address adopts the new
//! rules (`bib/settle.rs`), some bindings at a time.

use super::{AddressMap, Holdings, Pool4State, PoolError, PortBlock, Ports, block_terms, bound, hold_down};
use crate::base::plan::{Allocation, BlockProtocols, Pool4, Transport};
use crate::base::time::Instant;
use crate::tables::ports::blocks::BlockTerms;
use crate::tables::ports::single::SingleTerms;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Terms of a pool: single ports or blocks.
enum Terms {
    Single(SingleTerms),
    Blocks(BlockTerms),
}

/// Change of a running pool; after it is applied, the pool's previous state.
pub(crate) struct PoolChange {
    map: Arc<AddressMap>,
    overload: Vec<(Transport, u16)>,
    terms: Terms,
    /// Numbers of added addresses.
    pub(crate) added: Vec<u32>,
    /// Numbers of removed addresses.
    pub(crate) removed: Vec<u32>,
    /// Numbers of addresses whose ports or blocks have another use.
    pub(crate) changed: Vec<u32>,
}

/// Outline of a running pool, to prepare a change.
#[derive(Clone)]
pub(crate) struct PoolOutline {
    pub(crate) map: Arc<AddressMap>,
    pub(crate) room: u32,
}

/// Returns whether a running pool can change from one allocation to another.
pub(crate) fn same_kind(old: &Allocation, new: &Allocation) -> bool {
    match (old, new) {
        (Allocation::Random(_), Allocation::Random(_)) => true,
        (Allocation::Blocks(a), Allocation::Blocks(b)) => {
            a.size == b.size
                && (a.protocols == BlockProtocols::Split) == (b.protocols == BlockProtocols::Split)
        }
        (Allocation::Deterministic(a), Allocation::Deterministic(b)) => a.blocks.size == b.blocks.size,
        _ => false,
    }
}

/// Returns whether two formulas derive blocks from the same networks.
fn same_formula(old: &Allocation, new: &Allocation) -> bool {
    match (old, new) {
        (Allocation::Deterministic(a), Allocation::Deterministic(b)) => {
            a.inside == b.inside
                && a.subscriber_len == b.subscriber_len
                && a.overflow_per_address == b.overflow_per_address
        }
        _ => true,
    }
}

impl PoolChange {
    /// Prepares the change of the pool of `outline`, which was made from `old`, to `new`. The allocation must
    /// be of the same kind.
    ///
    /// # Errors
    ///
    /// Returns an error if `new` contradicts itself, there is no room for its addresses, or memory is short.
    pub(crate) fn prepare(
        outline: &PoolOutline,
        (old, old_hold): (&Pool4, bool),
        (new, hold): (&Pool4, bool),
    ) -> Result<Self, PoolError> {
        let before = &outline.map;
        let map = before.after(&new.ranges, outline.room)?;
        let (now, then) = (hold_down(new, hold), hold_down(old, old_hold));
        let terms = match block_terms(new, &map, hold)? {
            Some(terms) => Terms::Blocks(terms),
            None => Terms::Single(SingleTerms::new(&map, new, now, then)?),
        };
        let moves = matches!(new.allocation, Allocation::Deterministic(_))
            && (old.ranges != new.ranges || !same_formula(&old.allocation, &new.allocation));
        let (mut added, mut changed) = (Vec::new(), Vec::new());
        let mut known = BTreeMap::new();
        for ix in map.sections().flat_map(|(addresses, _)| addresses) {
            if !before.has(ix) {
                added.push(ix);
                continue;
            }
            let rules = (before.rule(ix), map.rule(ix));
            let same = *known.entry(rules).or_insert_with(|| before.same_ports(&map, ix));
            if moves || !same {
                changed.push(ix);
            }
        }
        let all = before.sections().flat_map(|(addresses, _)| addresses);
        let removed = all.filter(|&ix| !map.has(ix)).collect();
        let overload = new.overload.clone();
        Ok(PoolChange { map: Arc::new(map), overload, terms, added, removed, changed })
    }

    pub(crate) fn map(&self) -> &Arc<AddressMap> {
        &self.map
    }
}

impl Pool4State {
    pub(crate) fn outline(&self) -> PoolOutline {
        PoolOutline { map: Arc::clone(&self.map), room: self.room }
    }

    /// Applies the new rules. From now on no port is given against them. [`Pool4State::next_used`] and the
    /// methods below end existing bindings and blocks that break them.
    pub(crate) fn change(&mut self, change: &mut PoolChange) {
        // Other addresses may get their numbers next.
        for &ix in &change.removed {
            self.set_drained(ix, false);
        }
        core::mem::swap(&mut self.map, &mut change.map);
        core::mem::swap(&mut self.map_before, &mut change.map);
        core::mem::swap(&mut self.overload, &mut change.overload);
        self.had_more |= !change.removed.is_empty();
        match (&mut self.ports, &mut change.terms) {
            (Ports::Single(single), Terms::Single(terms)) => {
                single.set_terms(&self.map, terms, bound(&self.bindings));
                let all = change.removed.iter().chain(&change.changed).chain(&change.added);
                all.for_each(|&ix| single.change_address(&self.map, ix));
            }
            (Ports::Blocks(blocks), Terms::Blocks(terms)) => {
                blocks.set_terms(terms);
                change.removed.iter().for_each(|&ix| blocks.close_address(ix));
            }
            // The kind of a pool does not change.
            _ => {}
        }
    }

    /// Returns the first used port of an address from `from` on.
    pub(crate) fn next_used(&self, transport: Transport, ix: u32, from: u16) -> Option<u16> {
        match &self.ports {
            Ports::Single(single) => single.next_used(transport, ix, from),
            Ports::Blocks(blocks) => blocks.next_used(transport as usize, ix, from),
        }
    }

    /// Returns whether a binding of a subscriber may keep its port under the rules. `prefix` is the
    /// subscriber's.
    pub(crate) fn may_keep(&self, transport: Transport, ix: u32, port: u16, prefix: u128) -> bool {
        match &self.ports {
            Ports::Single(_) => self.covers(transport, ix, port),
            Ports::Blocks(blocks) => blocks.may_keep(transport as usize, ix, port, prefix),
        }
    }

    /// Same as [`may_keep`](Self::may_keep), under the rules of a change.
    pub(crate) fn would_keep(
        &self,
        change: &PoolChange,
        (transport, ix, port): (Transport, u32, u16),
        prefix: u128,
    ) -> bool {
        match (&self.ports, &change.terms) {
            (Ports::Blocks(blocks), Terms::Blocks(terms)) => {
                blocks.would_keep(terms, (transport as usize, ix, port), prefix)
            }
            _ => change.map.layout(transport, ix).is_some_and(|layout| layout.has(port)),
        }
    }

    /// Returns the owner of the next block of an address, from number `from` on, that is to be taken away.
    pub(crate) fn next_eviction(&mut self, ix: u32, from: &mut u32) -> Option<u32> {
        match &mut self.ports {
            Ports::Single(_) => None,
            Ports::Blocks(blocks) => blocks.next_eviction(ix, from),
        }
    }

    /// Takes that block from its owner.
    pub(crate) fn evict(
        &mut self,
        now: Instant,
        ix: u32,
        from: u32,
        holdings: &mut Holdings,
    ) -> Option<PortBlock> {
        match &mut self.ports {
            Ports::Single(_) => None,
            Ports::Blocks(blocks) => {
                self.counters.blocks_released += 1;
                Some(blocks.evict(now, ix, from, holdings))
            }
        }
    }

    /// Opens an address under the new rules: its free ports and blocks can be given out.
    pub(crate) fn open_address(&mut self, ix: u32) {
        match &mut self.ports {
            Ports::Single(single) => single.count(&self.map, ix),
            Ports::Blocks(blocks) if self.map.has(ix) => blocks.open_address(ix),
            Ports::Blocks(_) => {}
        }
    }

    /// Notes that all addresses follow the new rules.
    pub(crate) fn settled(&mut self) {
        match &mut self.ports {
            Ports::Single(single) => single.settled(&self.map),
            Ports::Blocks(blocks) => blocks.settled(),
        }
    }

    /// Returns the owner of the block that contains the port of a new static binding.
    pub(crate) fn in_the_way(&self, transport: Transport, ix: u32, port: u16) -> Option<u32> {
        match &self.ports {
            Ports::Single(_) => None,
            Ports::Blocks(blocks) => blocks.in_the_way(transport as usize, ix, port),
        }
    }

    /// Returns first and last port of the block of a port, and its transports.
    pub(crate) fn extent(&self, transport: Transport, port: u16) -> (u16, u16, [bool; 3]) {
        match &self.ports {
            Ports::Single(_) => (port, port, core::array::from_fn(|t| t == transport as usize)),
            Ports::Blocks(blocks) => blocks.extent(transport as usize, port),
        }
    }

    /// Takes the block of a port from its owner without a hold-down, and ends the hold-down of a held one.
    pub(crate) fn clear_block(
        &mut self,
        now: Instant,
        (transport, ix, port): (Transport, u32, u16),
        holdings: Option<&mut Holdings>,
    ) -> Option<PortBlock> {
        match &mut self.ports {
            Ports::Single(_) => None,
            Ports::Blocks(blocks) => {
                let ended = blocks.clear_block(now, (transport as usize, ix, port), holdings);
                self.counters.blocks_released += u64::from(ended.is_some());
                ended
            }
        }
    }

    /// Marks the port of a new static binding as used, even if it is held down for its previous user.
    pub(crate) fn claim_static(&mut self, transport: Transport, ix: u32, port: u16) -> bool {
        let held = match &self.ports {
            // No subscriber uses the port. Its later release sees that it is bound.
            Ports::Single(single) => {
                single.has(transport, ix, port) && self.binding(transport, ix, port) == 0
            }
            Ports::Blocks(_) => false,
        };
        held || self.claim(transport, ix, port)
    }

    /// Makes the block of a removed static binding's port available to subscribers again. The port must have
    /// been returned before. Nothing changes if another port of the block is in use, if the block is a
    /// subscriber's own by formula, or if the pool has single ports.
    pub(crate) fn unbar(&mut self, transport: Transport, ix: u32, port: u16) {
        if let Ports::Blocks(blocks) = &mut self.ports {
            blocks.unbar(transport as usize, ix, port);
        }
    }
}
