//! Port blocks: a subscriber has some, and each of its bindings gets a random port of one of them.
//!
//! ```text
//! block = (group, address, slot)       slot: the block's first port / its size
//! headers[block]                       owner, list of the owner's blocks, queue of those that wait
//! chunks[transport][address][slot]     which ports are used, 256 to a line
//! free[group][address]                 a bit for each block that may be given out
//! ```
//! There is one group of blocks for all transports, or one for each. A new port costs its subscriber's record
//! and one chunk. The header is touched only if a chunk gets its first port or loses its last.
//!
//! States of a block: free; owned; lingering, which is owned without a port in use; held down (RFC 6888
//! REQ-8: given to nobody); free again. Lingering and hold-down each last equally long for all blocks, so
//! queues in order of arrival are also in order of expiry.

mod preview;
mod rights;
mod rules;
mod table;
#[cfg(test)]
mod tests;

use super::Parity;
use super::chunk::{self, Chunk, random_free};
use crate::base::bit_tree::BitTree;
use crate::base::plan::{Blocks, Pairing, Transport};
use crate::base::rng::Rng;
use crate::base::time::Instant;
use crate::base::time::Tick;
use crate::tables::ports::address_map::{AddressMap, PoolError};
use crate::tables::ports::holdings::{BlockUsage, Holdings, NO_BLOCK, PortBlock, PortRequest, Usage};
use crate::tables::ports::reserved::ReservedPorts;
use crate::tables::ports::rights::Rights;
use alloc::vec::Vec;
use gatun_mem::{Footprint, HugeVec, OutOfMemory};
use gatun_wire::DropReason;

use rules::BlockRules;
pub(crate) use rules::BlockTerms;
use table::{BlockId, BlockState, Header, Queue, Sizes};

/// Maximum number of blocks drawn if free ones may be reserved or excluded by new rules.
const TRIES_MAX: usize = 64;

/// The blocks of a pool.
pub(crate) struct BlockPorts {
    plan: Blocks,
    pairing: Pairing,
    port_parity: bool,
    shift: u32,
    /// Number of blocks of an address, including those that do not exist.
    slots: u32,
    /// Chunks of a block.
    chunks_each: usize,
    /// Upper bound of the numbers of addresses, with room for more.
    room: u32,
    headers: HugeVec<Header>,
    /// Placeholder for a missing header.
    no_header: Header,
    chunks: [HugeVec<Chunk>; 3],
    /// Free blocks by group and address; `words_each` words each.
    free: HugeVec<u64>,
    words_each: usize,
    /// Number of free blocks by group and address.
    free_count: HugeVec<u32>,
    /// Addresses with a free block, by group.
    open: Vec<BitTree>,
    /// Number of used ports by transport and address.
    used: [HugeVec<u32>; 3],
    /// Number of blocks by group and address.
    total: HugeVec<u32>,
    pub(crate) usage: [Usage; 3],
    blocks: BlockUsage,
    lingering: Queue,
    held: Queue,
    held_max: u32,
    rules: BlockRules,
    /// True if some addresses do not follow the new rules yet.
    changing: bool,
    /// Addresses whose blocks give no ports, and their number.
    drained: BitTree,
    drained_len: u32,
    /// Ports that this member of a pair may assign; `None` for all.
    pub(crate) rights: Option<Rights>,
    /// True while a subscriber gets a port that it had before, whatever its quota.
    is_again: bool,
}

impl BlockPorts {
    /// Creates a pool with all blocks free and room for more addresses. `hold` enables the hold-down.
    ///
    /// # Errors
    ///
    /// Returns an error if the plan asks for impossible blocks, or if memory is short.
    pub(crate) fn new(map: &AddressMap, terms: BlockTerms, room: u32) -> Result<Self, PoolError> {
        let BlockTerms { plan, pairing, port_parity, hold, rules } = terms;
        let (used, sizes) = (Sizes::new(map.addresses(), &plan)?, Sizes::new(room, &plan)?);
        let (n, all) = (map.addresses() as usize, room as usize);
        let groups = sizes.groups;
        let chunks = || HugeVec::with_room(used.chunks, sizes.chunks);
        let each = || HugeVec::with_room(n, all);
        let mut ports = BlockPorts {
            plan,
            pairing,
            port_parity,
            shift: u32::from(plan.size).ilog2(),
            slots: sizes.slots as u32,
            chunks_each: sizes.chunks_each,
            room,
            headers: HugeVec::with_room(used.headers + 1, sizes.headers + 1)?,
            no_header: Header::NONE,
            chunks: [chunks()?, chunks()?, chunks()?],
            free: HugeVec::with_room(groups * n * used.words_each, groups * all * sizes.words_each)?,
            words_each: sizes.words_each,
            free_count: HugeVec::with_room(groups * n, groups * all)?,
            open: (0..groups).map(|_| BitTree::new(all)).collect(),
            used: [each()?, each()?, each()?],
            total: HugeVec::with_room(groups * n, groups * all)?,
            usage: [Usage::default(); 3],
            blocks: BlockUsage::default(),
            lingering: Queue::new(plan.linger_ms),
            held: Queue::new(if hold { plan.hold.ms } else { 0 }),
            held_max: plan.hold.ports_max / u32::from(plan.size),
            rules,
            changing: false,
            drained: BitTree::new(all),
            drained_len: 0,
            rights: None,
            is_again: false,
        };
        ports.set_totals();
        for (addresses, _) in map.sections() {
            addresses.for_each(|ix| ports.open_address(ix));
        }
        Ok(ports)
    }

    /// Memory use of [`BlockPorts::new`].
    pub(crate) fn footprint(addresses: u32, plan: &Blocks) -> Result<Footprint, OutOfMemory> {
        let sizes = Sizes::new(addresses, plan)?;
        let n = addresses as usize;
        let pages = |bytes: usize| Footprint::of_bytes(bytes as u64);
        Ok(pages((sizes.headers + 1) * size_of::<Header>())
            + pages(sizes.chunks * size_of::<Chunk>()) * 3
            + pages(sizes.groups * n * sizes.words_each * size_of::<u64>())
            + pages(sizes.groups * n * size_of::<u32>()) * 2
            + pages(n * size_of::<u32>()) * 3)
    }

    /// Allocates a random port of the subscriber's blocks, or of a new one that is not `reserved`.
    /// `wanted.subscriber` is the owner's number.
    #[inline]
    pub(crate) fn allocate(
        &mut self,
        reserved: ReservedPorts<'_>,
        rng: &mut Rng,
        now: Instant,
        wanted: &PortRequest,
        holdings: &mut Holdings,
    ) -> Result<(u32, u16, Option<PortBlock>), DropReason> {
        if wanted.transport.of(&self.usage).total == 0 {
            return Err(DropReason::PoolEmpty);
        }
        let group = self.group_number(wanted.transport as usize);
        if let Some(own) = self.own_block(wanted.prefix)
            && !self.is_drained(self.address_of(own))
            && self.rights.as_ref().is_none_or(|rights| rights.has_some())
            && let Some((ix, port)) = self.take_random(rng, own, wanted)
        {
            return Ok((ix, port, None));
        }
        let mut before = NO_BLOCK;
        let mut block = holdings.first_block(group);
        // The plan bounds the number of the subscriber's blocks.
        while block != NO_BLOCK {
            if !self.gives_none(block)
                && let Some((ix, port)) = self.take_random(rng, block, wanted)
            {
                if before != NO_BLOCK {
                    self.move_to_front(holdings, group, before, block);
                }
                return Ok((ix, port, None));
            }
            before = block;
            block = self.header(block).next;
        }
        let block = self.new_block(reserved, rng, wanted, group, holdings)?;
        let (ix, port) = self.take_random(rng, block, wanted).ok_or(DropReason::BlockNone)?;
        Ok((ix, port, Some(self.describe(block, now))))
    }

    /// Marks a certain port as used for a subscriber. Returns `false` if that is not possible.
    pub(crate) fn claim_for(
        &mut self,
        now: Instant,
        ix: u32,
        port: u16,
        wanted: &PortRequest,
        holdings: &mut Holdings,
    ) -> Option<Option<PortBlock>> {
        let group = self.group_number(wanted.transport as usize);
        let block = self.block_of(group, ix, port);
        if self.is_owned_by(block, wanted) {
            return self.take(wanted.transport, block, self.offset(port)).then_some(None);
        }
        if !self.could_give(group, ix, port, holdings) {
            return None;
        }
        self.give(group, ix, port >> self.shift, wanted.subscriber, holdings);
        self.take(wanted.transport, block, self.offset(port)).then(|| Some(self.describe(block, now)))
    }

    /// Marks a port as used without a subscriber. Its block is given to no subscriber, unless it is a
    /// subscriber's own.
    pub(crate) fn claim(&mut self, transport: Transport, ix: u32, port: u16) -> bool {
        let group = self.group_number(transport as usize);
        let block = self.block_of(group, ix, port);
        if ix >= self.room
            || !(self.header(block).is(BlockState::Idle) || self.header(block).is(BlockState::Barred))
        {
            return false;
        }
        if self.header(block).is(BlockState::Idle) && self.is_free(group, ix, port) {
            self.mark_taken(group, ix, port >> self.shift);
            self.blocks.total -= 1;
            let shared = self.open.len() == 1;
            let of_group = self.usage.iter_mut().enumerate().filter(|(t, _)| shared || *t == group);
            of_group.for_each(|(_, usage)| usage.total = usage.total.saturating_sub(1 << self.shift));
            let at = self.place(group, ix);
            if let Some(total) = self.total.get_mut(at) {
                *total -= 1;
            }
        }
        if !self.rules.is_own(ix, port >> self.shift) {
            self.header_mut(block).state = BlockState::Barred as u16;
            let chunk = self.chunk_ix(block, self.offset(port));
            // With blocks per protocol, the other protocols' blocks may still be given out.
            let shared = self.open.len() == 1;
            let of_group = self.chunks.iter_mut().enumerate().filter(|(t, _)| shared || *t == group);
            for (_, chunks) in of_group {
                if let Some(chunk) = chunks.get_mut(chunk) {
                    chunk.barred = 1;
                }
            }
        }
        self.take(transport, block, self.offset(port))
    }

    /// Marks a port as free. Returns `None` if it is free already. The result contains a block that its owner
    /// has to return at once.
    pub(crate) fn release(
        &mut self,
        now: Instant,
        transport: Transport,
        ix: u32,
        port: u16,
        holdings: Option<&mut Holdings>,
    ) -> Option<Option<PortBlock>> {
        if ix >= self.room {
            return None;
        }
        let block = self.block_of(self.group_number(transport as usize), ix, port);
        let (at, offset) = (self.chunk_ix(block, self.offset(port)), self.offset(port) % chunk::PORTS);
        let chunk = transport.of_mut(&mut self.chunks).get_mut(at)?;
        if !chunk.give_back(offset) {
            return None;
        }
        let (barred, empty) = (chunk.barred != 0, chunk.used == 0);
        if !barred {
            self.count(transport, ix, |n| n.saturating_sub(1), |n| n.saturating_sub(1));
        }
        if !empty {
            return Some(None);
        }
        let header = self.header_mut(block);
        header.busy = header.busy.saturating_sub(1);
        if header.busy > 0 || !header.is(BlockState::Owned) {
            return Some(None);
        }
        match holdings {
            Some(holdings) if self.lingering.ms == 0 => Some(Some(self.end(now, block, holdings))),
            _ => {
                self.push(now, block, |ports| &mut ports.lingering);
                Some(None)
            }
        }
    }

    /// Returns the owner of a block that has lingered long enough, if there is one. The caller calls
    /// [`BlockPorts::end_lingering`] next.
    pub(crate) fn lingered(&self, now: Instant) -> Option<u32> {
        let block = self.lingering.oldest;
        if block == NO_BLOCK {
            return None;
        }
        let header = self.header(block);
        Tick(header.until).has_come(Tick::at(now)).then_some(header.owner)
    }

    /// Takes the block that has lingered longest from its owner.
    pub(crate) fn end_lingering(&mut self, now: Instant, holdings: &mut Holdings) -> Option<PortBlock> {
        let block = self.lingering.oldest;
        if block == NO_BLOCK {
            return None;
        }
        self.unqueue(block, |ports| &mut ports.lingering);
        Some(self.end(now, block, holdings))
    }

    /// Frees up to `budget` blocks whose hold-down is over. Returns whether any are still waiting.
    pub(crate) fn expire_held(&mut self, now: Instant, budget: usize) -> bool {
        for _ in 0..budget {
            let block = self.held.oldest;
            if block == NO_BLOCK {
                break;
            }
            if !Tick(self.header(block).until).has_come(Tick::at(now)) {
                return true;
            }
            self.free_oldest_held();
        }
        self.held.len > 0 || self.lingering.len > 0
    }

    /// Usage of the ports of an address.
    pub(crate) fn address_usage(&self, transport: Transport, ix: u32) -> Usage {
        let used = transport.of(&self.used).get(ix as usize).copied().unwrap_or(0);
        let blocks = self.total.get(self.place(self.group_number(transport as usize), ix));
        let total = if transport.of(&self.usage).total == 0 || ix >= self.room {
            0
        } else {
            blocks.copied().unwrap_or(0) << self.shift
        };
        Usage { used: used.into(), total: total.into() }
    }

    /// Usage of the blocks of all addresses.
    pub(crate) fn block_usage(&self) -> BlockUsage {
        BlockUsage { lingering: self.lingering.len.into(), held: self.held.len.into(), ..self.blocks }
    }

    /// Returns the number of the subscriber that owns the block of a port.
    pub(crate) fn owner(&self, transport: Transport, ix: u32, port: u16) -> Option<u32> {
        let block = self.block_of(self.group_number(transport as usize), ix, port);
        let header = self.header(block);
        (ix < self.room && header.is(BlockState::Owned)).then_some(header.owner)
    }

    /// Prefetches the line that the next port of a subscriber most likely comes from.
    #[inline]
    pub(crate) fn prefetch(&self, transport: Transport, holdings: &Holdings) {
        let block = holdings.first_block(self.group_number(transport as usize));
        if block != NO_BLOCK {
            let chunks = transport.of(&self.chunks);
            gatun_mem::prefetch_read(chunks, self.chunk_ix(block, 0));
        }
    }

    /// Prefetches the lines that the end of a port touches.
    #[inline]
    pub(crate) fn prefetch_release(&self, transport: Transport, ix: u32, port: u16) {
        let block = self.block_of(self.group_number(transport as usize), ix, port);
        let chunk = self.chunk_ix(block, self.offset(port));
        let chunks = transport.of(&self.chunks);
        gatun_mem::prefetch_read(chunks, chunk);
        gatun_mem::prefetch_read(&self.headers, block as usize);
    }

    fn new_block(
        &mut self,
        reserved: ReservedPorts<'_>,
        rng: &mut Rng,
        wanted: &PortRequest,
        group: usize,
        holdings: &mut Holdings,
    ) -> Result<BlockId, DropReason> {
        if self.rights.is_some() {
            return self.new_block_within(reserved, rng, wanted, group, holdings);
        }
        let ix = self.address_for_block(wanted, group, holdings)?;
        let none = if self.held.len > 0 { DropReason::HoldDownAll } else { DropReason::BlockNone };
        for _ in 0..TRIES_MAX {
            let slot = self.random_slot(rng, group, ix).ok_or(none)?;
            if !self.changing || self.rules.is_ordinary(group, ix, slot) {
                let first = slot << self.shift;
                let transports = core::array::from_fn(|t| self.group_number(t) == group);
                if reserved.any(ix, first..=first | ((1u16 << self.shift) - 1), transports) {
                    continue;
                }
                return Ok(self.give(group, ix, slot, wanted.subscriber, holdings));
            }
            // The block was free under the rules before the last change, which this address still follows.
            self.mark_taken(group, ix, slot);
        }
        Err(none)
    }

    /// Returns a free block of an address, each with the same probability.
    fn random_slot(&self, rng: &mut Rng, group: usize, ix: u32) -> Option<u16> {
        let mut rank = rng.below(self.free_at(group, ix));
        let first = self.place(group, ix) * self.words_each;
        for (n, word) in self.free.get(first..first + self.words_each)?.iter().enumerate() {
            if rank >= word.count_ones() {
                rank -= word.count_ones();
                continue;
            }
            let mut bits = *word;
            for _ in 0..rank {
                bits &= bits.wrapping_sub(1);
            }
            return (bits != 0).then(|| (n as u32 * 64 + bits.trailing_zeros()) as u16);
        }
        None
    }

    /// Returns the address that a new subscriber starts with: the one that `spread` selects. If three
    /// quarters of its blocks are taken, and the address that the other half of `spread` selects has more
    /// free ones, it is that one.
    fn first_address(&self, group: usize, spread: u64) -> u32 {
        let (first, second) = (self.rules.spread(spread >> 32), self.rules.spread(spread));
        let total = self.total.get(self.place(group, first)).copied().unwrap_or(0);
        let free = self.free_at(group, first);
        if free * 4 > total || self.free_at(group, second) <= free { first } else { second }
    }

    /// Gives a free block to a subscriber.
    fn give(&mut self, group: usize, ix: u32, slot: u16, owner: u32, holdings: &mut Holdings) -> BlockId {
        self.mark_taken(group, ix, slot);
        self.blocks.owned += 1;
        let block = self.block_of(group, ix, slot << self.shift);
        let next = holdings.first_block(group);
        let header = self.header_mut(block);
        *header = Header {
            owner,
            next,
            older: NO_BLOCK,
            newer: NO_BLOCK,
            until: 0,
            busy: 0,
            state: BlockState::Owned as u16,
        };
        holdings.set_first_block(group, block);
        holdings.set_block_count(group, holdings.block_count(group) + 1);
        block
    }

    /// Takes a block without used ports from its owner, and begins its hold-down.
    fn end(&mut self, now: Instant, block: BlockId, holdings: &mut Holdings) -> PortBlock {
        let description = self.disown(now, block, holdings);
        // RFC 6888 REQ-8 A: TCP connections are followed to their end.
        let tcp_alone = self.open.len() > 1 && self.group_of(block) == Transport::Tcp as usize;
        if self.held.ms == 0 || self.held_max == 0 || tcp_alone || self.is_leaving(block) {
            self.free_block(block);
            return description;
        }
        if self.held.len >= self.held_max {
            self.free_oldest_held();
        }
        self.header_mut(block).state = BlockState::Held as u16;
        self.push(now, block, |ports| &mut ports.held);
        description
    }

    /// Takes a block without used ports from its owner and updates the owner's holdings. The caller sets the
    /// block's next state.
    fn disown(&mut self, now: Instant, block: BlockId, holdings: &mut Holdings) -> PortBlock {
        let group = self.group_of(block);
        let description = self.describe(block, now);
        let next = self.header(block).next;
        if holdings.first_block(group) == block {
            holdings.set_first_block(group, next);
        } else {
            let mut at = holdings.first_block(group);
            while at != NO_BLOCK && self.header(at).next != block {
                at = self.header(at).next;
            }
            if at != NO_BLOCK {
                self.header_mut(at).next = next;
            }
        }
        holdings.set_block_count(group, holdings.block_count(group).saturating_sub(1));
        self.blocks.owned = self.blocks.owned.saturating_sub(1);
        description
    }

    fn free_oldest_held(&mut self) {
        let block = self.held.oldest;
        self.unqueue(block, |ports| &mut ports.held);
        self.free_block(block);
    }

    /// Moves the block after `before` to the head of its owner's list.
    #[cold]
    fn move_to_front(&mut self, holdings: &mut Holdings, group: usize, before: BlockId, block: BlockId) {
        self.header_mut(before).next = self.header(block).next;
        self.header_mut(block).next = holdings.first_block(group);
        holdings.set_first_block(group, block);
    }

    #[inline]
    fn take_random(&mut self, rng: &mut Rng, block: BlockId, wanted: &PortRequest) -> Option<(u32, u16)> {
        let t = wanted.transport;
        let first = self.chunk_ix(block, 0);
        let chunks = t.of(&self.chunks).get(first..first + self.chunks_each)?;
        let parity = match (self.port_parity && t != Transport::Icmp, wanted.inside_port % 2) {
            (false, _) => Parity::Any,
            (true, 0) => Parity::Even,
            (true, _) => Parity::Odd,
        };
        let mut at = random_free(chunks, self.shift, parity, rng);
        if at.is_none() && parity != Parity::Any {
            at = random_free(chunks, self.shift, Parity::Any, rng);
        }
        let at = at?;
        self.take(t, block, at).then(|| {
            let port = (u32::from(self.slot_of(block)) << self.shift) as usize + at;
            (self.address_of(block), port as u16)
        })
    }

    /// Marks port number `at` of a block as used.
    #[inline]
    fn take(&mut self, transport: Transport, block: BlockId, at: usize) -> bool {
        let chunk_ix = self.chunk_ix(block, at);
        let Some(chunk) = transport.of_mut(&mut self.chunks).get_mut(chunk_ix) else { return false };
        if !chunk.take(at % chunk::PORTS) {
            return false;
        }
        let (first, barred) = (chunk.used == 1, chunk.barred != 0);
        if first {
            self.chunk_in_use(block);
        }
        if !barred {
            self.count(transport, self.address_of(block), |n| n + 1, |n| n + 1);
        }
        true
    }

    /// Notes that a chunk of a block has its first port in use.
    fn chunk_in_use(&mut self, block: BlockId) {
        let header = self.header_mut(block);
        header.busy += 1;
        if header.busy == 1 && header.is(BlockState::Owned) && self.is_lingering(block) {
            self.unqueue(block, |ports| &mut ports.lingering);
        }
    }

    #[inline]
    fn count(&mut self, transport: Transport, ix: u32, used: impl Fn(u32) -> u32, all: impl Fn(u64) -> u64) {
        if let Some(n) = transport.of_mut(&mut self.used).get_mut(ix as usize) {
            *n = used(*n);
        }
        let usage = &mut transport.of_mut(&mut self.usage).used;
        *usage = all(*usage);
    }

    fn describe(&self, block: BlockId, now: Instant) -> PortBlock {
        let first = self.slot_of(block) << self.shift;
        let group = self.group_of(block);
        PortBlock {
            address_ix: self.address_of(block),
            first,
            last: first | ((1u16 << self.shift) - 1),
            transports: Transport::ALL
                .map(|t| self.group_number(t as usize) == group && t.of(&self.usage).total > 0),
            at: now,
        }
    }
}
