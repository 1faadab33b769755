//! Use of each block of a pool, and the change of a running pool to other rules.
//!
//! A block is *ordinary* (given on demand), a subscriber's *own* by formula, or not in the pool. When the
//! rules change, an address adopts the new ones some blocks at a time. Bindings that may not stay are ended
//! ([`BlockPorts::may_keep`]). Blocks are taken from owners who may not keep them
//! ([`BlockPorts::next_eviction`]). Then the ordinary unused blocks can be given
//! ([`BlockPorts::open_address`]). Until then no port comes from a block that is not ordinary under the new
//! rules.

use super::table::{BlockId, BlockState};
use super::{BlockPorts, chunk};
use crate::base::plan::{BlockProtocols, Blocks, Pairing, Transport};
use crate::base::time::Instant;
use crate::tables::ports::address_map::AddressMap;
use crate::tables::ports::deterministic::{Formula, whole_blocks};
use crate::tables::ports::holdings::{Holdings, PortBlock};
use alloc::vec::Vec;
use core::ops::Range;

/// Consecutive addresses with the same blocks.
struct Area {
    addresses: Range<u32>,
    /// Ordinary blocks by group, ascending.
    ordinary: Vec<Vec<u16>>,
    /// Blocks that are subscribers' own, ascending.
    own: Vec<u16>,
    /// Transports with ports.
    transports: [bool; 3],
}

/// Use of each block.
pub(super) struct BlockRules {
    /// Areas in the order of the addresses' numbers.
    areas: Vec<Area>,
    addresses: u32,
    pub(super) formula: Option<Formula>,
}

impl BlockRules {
    pub(super) fn new(map: &AddressMap, plan: &Blocks, formula: Option<Formula>) -> Self {
        let shift = u32::from(plan.size).ilog2();
        let mut areas = Vec::new();
        for (addresses, layouts) in map.sections() {
            let own = formula.as_ref().map_or(&[][..], |f| f.slots(addresses.start)).to_vec();
            let ordinary = |of_group: &[_]| whole_blocks(of_group, shift).split_off(own.len());
            let ordinary = match plan.protocols {
                BlockProtocols::Shared => [ordinary(&layouts)].into(),
                BlockProtocols::Split => layouts.map(|layout| ordinary(&[layout])).into(),
            };
            let transports = layouts.map(|layout| layout.total() > 0);
            areas.push(Area { addresses, ordinary, own, transports });
        }
        areas.sort_by_key(|area| area.addresses.start);
        BlockRules { areas, addresses: map.addresses(), formula }
    }

    fn area(&self, ix: u32) -> Option<&Area> {
        let after = self.areas.partition_point(|area| area.addresses.start <= ix);
        self.areas.get(after.checked_sub(1)?).filter(|area| area.addresses.contains(&ix))
    }

    pub(super) fn is_ordinary(&self, group: usize, ix: u32, slot: u16) -> bool {
        let slots = self.area(ix).and_then(|area| area.ordinary.get(group));
        slots.is_some_and(|slots| slots.binary_search(&slot).is_ok())
    }

    /// Returns whether a block is a subscriber's own by the formula.
    pub(super) fn is_own(&self, ix: u32, slot: u16) -> bool {
        self.owner(ix, slot).is_some()
    }

    fn owner(&self, ix: u32, slot: u16) -> Option<u128> {
        self.formula.as_ref()?.subscriber_of(ix, slot)
    }

    /// Returns one of the addresses, by half of a hash.
    pub(super) fn spread(&self, half: u64) -> u32 {
        let mut n = (((half & 0xffff_ffff) * u64::from(self.addresses)) >> 32) as u32;
        for area in &self.areas {
            let len = area.addresses.len() as u32;
            if n < len {
                return area.addresses.start + n;
            }
            n -= len;
        }
        0
    }
}

/// Terms for giving out a pool's blocks.
pub(crate) struct BlockTerms {
    pub(super) plan: Blocks,
    pub(super) pairing: Pairing,
    pub(super) port_parity: bool,
    pub(super) hold: bool,
    pub(super) rules: BlockRules,
}

impl BlockTerms {
    pub(crate) fn new(
        map: &AddressMap,
        plan: &Blocks,
        (pairing, port_parity): (Pairing, bool),
        hold: bool,
        formula: Option<Formula>,
    ) -> Self {
        BlockTerms { plan: *plan, pairing, port_parity, hold, rules: BlockRules::new(map, plan, formula) }
    }
}

impl BlockPorts {
    /// Opens the ordinary blocks of an address. Blocks with another use, and used blocks, are left out.
    pub(crate) fn open_address(&mut self, ix: u32) {
        if self.is_drained(ix) {
            return;
        }
        let before = core::mem::take(&mut self.rules.areas);
        let after = before.partition_point(|area| area.addresses.start <= ix);
        let area = after.checked_sub(1).and_then(|at| before.get(at)).filter(|a| a.addresses.contains(&ix));
        for group in 0..self.open.len() {
            let slots = area.and_then(|area| area.ordinary.get(group)).map_or(&[][..], Vec::as_slice);
            let own = area.map_or(0, |area| area.own.len());
            let mut barred = 0;
            for &slot in slots {
                let header = self.header(self.block_of(group, ix, slot << self.shift));
                if header.is(BlockState::Idle) && header.busy == 0 {
                    self.mark_free(group, ix, slot);
                }
                barred += u32::from(header.is(BlockState::Barred));
            }
            let at = self.place(group, ix);
            if let Some(total) = self.total.get_mut(at) {
                *total = (slots.len() + own) as u32 - barred;
            }
        }
        self.rules.areas = before;
    }

    /// Stops giving out blocks of an address.
    pub(crate) fn close_address(&mut self, ix: u32) {
        for group in 0..self.open.len() {
            let at = self.place(group, ix);
            let words = at * self.words_each..(at + 1) * self.words_each;
            self.free.get_mut(words).into_iter().for_each(|words| words.fill(0));
            if let (Some(free), Some(total)) = (self.free_count.get_mut(at), self.total.get_mut(at)) {
                (*free, *total) = (0, 0);
            }
            if let Some(open) = self.open.get_mut(group) {
                open.remove(ix as usize);
            }
        }
    }

    /// Sets new terms and returns the previous ones. Size and protocols of blocks stay the same.
    pub(crate) fn set_terms(&mut self, terms: &mut BlockTerms) {
        core::mem::swap(&mut self.plan, &mut terms.plan);
        core::mem::swap(&mut self.pairing, &mut terms.pairing);
        core::mem::swap(&mut self.port_parity, &mut terms.port_parity);
        core::mem::swap(&mut self.rules, &mut terms.rules);
        self.lingering.ms = self.plan.linger_ms;
        self.held.ms = if terms.hold { self.plan.hold.ms } else { 0 };
        self.held_max = self.plan.hold.ports_max / u32::from(self.plan.size);
        self.changing = true;
    }

    /// Notes that all addresses follow the new rules.
    pub(crate) fn settled(&mut self) {
        self.changing = false;
        // This leaves out the blocks of static bindings, which each address has excluded.
        for t in Transport::ALL {
            let group = self.group_number(t as usize);
            let areas = self.rules.areas.iter().filter(|area| *t.of(&area.transports));
            let blocks: u64 = areas.map(|area| self.blocks_of(group, area)).sum();
            t.of_mut(&mut self.usage).total = blocks << self.shift;
        }
        let groups = 0..self.open.len();
        self.blocks.total =
            groups.map(|g| self.rules.areas.iter().map(|area| self.blocks_of(g, area)).sum::<u64>()).sum();
    }

    fn blocks_of(&self, group: usize, area: &Area) -> u64 {
        let totals = area.addresses.clone().filter_map(|ix| self.total.get(self.place(group, ix)));
        totals.map(|&n| u64::from(n)).sum()
    }

    /// Counts all blocks under the rules, without regard to static bindings.
    pub(super) fn set_totals(&mut self) {
        self.blocks.total = 0;
        self.usage.iter_mut().for_each(|usage| usage.total = 0);
        for area in &self.rules.areas {
            for (group, slots) in area.ordinary.iter().enumerate() {
                let blocks = (slots.len() + area.own.len()) as u64 * area.addresses.len() as u64;
                self.blocks.total += blocks;
                let shared = area.ordinary.len() == 1;
                let has = |t: &Transport| *t.of(&area.transports) && (shared || *t as usize == group);
                for t in Transport::ALL.into_iter().filter(has) {
                    t.of_mut(&mut self.usage).total += blocks << self.shift;
                }
            }
        }
    }

    /// Returns whether a block is no longer ordinary, by rules that have just changed.
    #[inline]
    pub(super) fn is_leaving(&self, block: BlockId) -> bool {
        self.changing
            && !self.rules.is_ordinary(self.group_of(block), self.address_of(block), self.slot_of(block))
    }

    /// Returns whether a block gives no new ports: by the rules, because its address is drained, or because
    /// the other member assigns them.
    #[inline]
    pub(super) fn gives_none(&self, block: BlockId) -> bool {
        self.is_leaving(block) || self.is_drained(self.address_of(block)) || self.is_of_other(block)
    }

    /// Returns whether an address gives no ports.
    #[inline]
    pub(super) fn is_drained(&self, ix: u32) -> bool {
        self.drained_len > 0 && self.drained.has(ix as usize)
    }

    /// Drains the blocks of an address, for all owners, or ends the drain.
    pub(crate) fn set_drained(&mut self, ix: u32, drained: bool) {
        if drained {
            self.close_address(ix);
            self.drained.insert(ix as usize);
            self.drained_len += 1;
        } else {
            self.drained.remove(ix as usize);
            self.drained_len = self.drained_len.saturating_sub(1);
            self.open_address(ix);
        }
    }

    /// Frees a block; it can be given out if it is ordinary.
    pub(super) fn free_block(&mut self, block: BlockId) {
        self.header_mut(block).state = BlockState::Idle as u16;
        if !self.is_leaving(block) && !self.is_drained(self.address_of(block)) {
            self.mark_free(self.group_of(block), self.address_of(block), self.slot_of(block));
        }
    }

    /// Returns whether a subscriber's binding may keep its port under the rules. Static bindings are not
    /// checked.
    pub(crate) fn may_keep(&self, transport: usize, ix: u32, port: u16, prefix: u128) -> bool {
        self.may_keep_by(&self.rules, (transport, ix, port), prefix)
    }

    /// Same as [`may_keep`](Self::may_keep), under other terms.
    pub(crate) fn would_keep(&self, terms: &BlockTerms, place: (usize, u32, u16), prefix: u128) -> bool {
        self.may_keep_by(&terms.rules, place, prefix)
    }

    fn may_keep_by(
        &self,
        rules: &BlockRules,
        (transport, ix, port): (usize, u32, u16),
        prefix: u128,
    ) -> bool {
        let (group, slot) = (self.group_number(transport), port >> self.shift);
        if rules.is_ordinary(group, ix, slot) {
            return self.header(self.block_of(group, ix, port)).is(BlockState::Owned);
        }
        rules.owner(ix, slot) == Some(prefix)
    }

    /// Returns the first used port of an address from `from` on.
    pub(crate) fn next_used(&self, transport: usize, ix: u32, from: u16) -> Option<u16> {
        let mut port = u32::from(from);
        while port <= u32::from(u16::MAX) {
            let at = port as u16;
            let block = self.block_of(self.group_number(transport), ix, at);
            let offset = self.offset(at);
            let chunk = self.chunks.get(transport)?.get(self.chunk_ix(block, offset))?;
            if let Some(found) = chunk.next_used(offset % chunk::PORTS) {
                return u16::try_from(port as usize - offset % chunk::PORTS + found).ok();
            }
            // The step goes to the next chunk, or to the next block if that is smaller.
            let step = chunk::PORTS.min(1 << self.shift);
            port += (step - offset % step) as u32;
        }
        None
    }

    /// Returns the owner of the next block of an address that its owner may not keep, from number `from` of
    /// all groups' blocks on. It ends the hold-down of held blocks on the way, and closes free ones.
    pub(crate) fn next_eviction(&mut self, ix: u32, from: &mut u32) -> Option<u32> {
        let all = self.slots * self.open.len() as u32;
        while *from < all {
            let (group, slot) = ((*from / self.slots) as usize, (*from % self.slots) as u16);
            let block = self.block_of(group, ix, slot << self.shift);
            let header = self.header(block);
            let ordinary = self.rules.is_ordinary(group, ix, slot);
            if header.is(BlockState::Owned) && !ordinary {
                return Some(header.owner);
            }
            if header.is(BlockState::Held) && !ordinary {
                self.unqueue(block, |ports| &mut ports.held);
                self.free_block(block);
            }
            if !ordinary {
                self.mark_taken(group, ix, slot);
            }
            *from += 1;
        }
        None
    }

    /// Takes the block that [`BlockPorts::next_eviction`] has found from its owner.
    pub(crate) fn evict(&mut self, now: Instant, ix: u32, from: u32, holdings: &mut Holdings) -> PortBlock {
        let (group, slot) = ((from / self.slots) as usize, (from % self.slots) as u16);
        self.take_back(now, self.block_of(group, ix, slot << self.shift), holdings)
    }

    fn take_back(&mut self, now: Instant, block: BlockId, holdings: &mut Holdings) -> PortBlock {
        self.end_linger(block);
        self.end(now, block, holdings)
    }

    fn end_linger(&mut self, block: BlockId) {
        if self.is_lingering(block) {
            self.unqueue(block, |ports| &mut ports.lingering);
        }
    }

    /// Returns the owner of the block of a port, if it has one. A new static binding has to wait until the
    /// block is cleared.
    pub(crate) fn in_the_way(&self, transport: usize, ix: u32, port: u16) -> Option<u32> {
        let header = self.header(self.block_of(self.group_number(transport), ix, port));
        header.is(BlockState::Owned).then_some(header.owner)
    }

    /// Returns first and last port of the block of a port, and the transports that share it.
    pub(crate) fn extent(&self, transport: usize, port: u16) -> (u16, u16, [bool; 3]) {
        let first = port >> self.shift << self.shift;
        let transports = Transport::ALL.map(|t| self.open.len() == 1 || t as usize == transport);
        (first, first | ((1u16 << self.shift) - 1), transports)
    }

    /// Takes the block of a port from its owner without a hold-down, and ends the hold-down of a held one.
    pub(crate) fn clear_block(
        &mut self,
        now: Instant,
        (transport, ix, port): (usize, u32, u16),
        holdings: Option<&mut Holdings>,
    ) -> Option<PortBlock> {
        let block = self.block_of(self.group_number(transport), ix, port);
        match holdings {
            Some(holdings) if self.header(block).is(BlockState::Owned) => {
                self.end_linger(block);
                let ended = self.disown(now, block, holdings);
                self.free_block(block);
                Some(ended)
            }
            _ => {
                if self.header(block).is(BlockState::Held) {
                    self.unqueue(block, |ports| &mut ports.held);
                    self.free_block(block);
                }
                None
            }
        }
    }

    /// Makes the block of a returned static port available again, unless another port of the block is in use.
    /// Nothing changes for a block that is a subscriber's own.
    pub(crate) fn unbar(&mut self, transport: usize, ix: u32, port: u16) {
        let group = self.group_number(transport);
        let block = self.block_of(group, ix, port);
        let header = self.header(block);
        if !header.is(BlockState::Barred) || header.busy > 0 {
            return;
        }
        let first = self.chunk_ix(block, 0);
        // With blocks per protocol, the other protocol's block may hold another static binding.
        let shared = self.open.len() == 1;
        let of_group = self.chunks.iter_mut().enumerate().filter(|(t, _)| shared || *t == group);
        for (_, chunks) in of_group {
            let chunks = chunks.get_mut(first..first + self.chunks_each);
            chunks.into_iter().flatten().for_each(|chunk| chunk.barred = 0);
        }
        self.header_mut(block).state = BlockState::Idle as u16;
        let slot = port >> self.shift;
        if self.rules.is_ordinary(group, ix, slot) {
            self.mark_free(group, ix, slot);
            let at = self.place(group, ix);
            if let Some(total) = self.total.get_mut(at) {
                *total += 1;
            }
            self.blocks.total += 1;
            let with_ports = self.rules.area(ix).map_or([false; 3], |area| area.transports);
            let shared = self.open.len() == 1;
            for ((t, usage), with_ports) in self.usage.iter_mut().enumerate().zip(with_ports) {
                usage.total += u64::from(with_ports && (shared || t == group)) << self.shift;
            }
        }
    }
}
