//! Tables of [`BlockPorts`]: numbers of blocks and their data, bits of free ones, queues.

use super::BlockPorts;
use crate::base::plan::{BlockProtocols, Blocks};
use crate::base::time::Instant;
use crate::base::time::Tick;
use crate::tables::ports::chunk;
use crate::tables::ports::holdings::NO_BLOCK;
use gatun_mem::OutOfMemory;

/// The number of a block.
pub(super) type BlockId = u32;

/// Current state of a block. Free blocks, blocks that do not exist, and subscribers' own blocks by formula
/// are all idle: the free bits and the formula distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum BlockState {
    Idle = 0,
    Owned = 1,
    Held = 2,
    /// A static binding uses a port of it, so no subscriber gets it.
    Barred = 3,
}

#[derive(Clone, Copy, zerocopy::FromZeros)]
pub(super) struct Header {
    pub(super) owner: u32,
    /// Next block of the same owner.
    pub(super) next: BlockId,
    /// Neighbours in its queue.
    pub(super) older: BlockId,
    pub(super) newer: BlockId,
    /// End of its lingering or hold-down.
    pub(super) until: u32,
    /// Chunks with a port in use.
    pub(super) busy: u16,
    pub(super) state: u16,
}

impl Header {
    /// Header without a block.
    pub(super) const NONE: Header = Header {
        owner: NO_BLOCK,
        next: NO_BLOCK,
        older: NO_BLOCK,
        newer: NO_BLOCK,
        until: 0,
        busy: 0,
        state: BlockState::Barred as u16,
    };

    pub(super) fn is(&self, state: BlockState) -> bool {
        self.state == state as u16
    }
}

/// Queue of blocks in the order in which their lingering or hold-down ends.
pub(super) struct Queue {
    pub(super) oldest: BlockId,
    pub(super) newest: BlockId,
    pub(super) len: u32,
    pub(super) ms: u32,
}

impl Queue {
    pub(super) fn new(ms: u32) -> Self {
        Queue { oldest: NO_BLOCK, newest: NO_BLOCK, len: 0, ms }
    }
}

/// Numbers of blocks and their data.
impl BlockPorts {
    #[inline(always)]
    pub(super) fn group_number(&self, transport: usize) -> usize {
        if self.open.len() == 1 { 0 } else { transport }
    }

    #[inline(always)]
    pub(super) fn place(&self, group: usize, ix: u32) -> usize {
        group * self.room as usize + ix as usize
    }

    #[inline(always)]
    pub(super) fn block_of(&self, group: usize, ix: u32, port: u16) -> BlockId {
        let slot = u32::from(port) >> self.shift;
        (group as u32 * self.room).wrapping_add(ix).wrapping_mul(self.slots).wrapping_add(slot)
    }

    #[inline(always)]
    pub(super) fn slot_of(&self, block: BlockId) -> u16 {
        // `slots` is a power of two.
        (block & (self.slots - 1)) as u16
    }

    #[inline(always)]
    pub(super) fn address_of(&self, block: BlockId) -> u32 {
        let place = block >> self.slots.trailing_zeros();
        if self.open.len() == 1 { place } else { place.checked_rem(self.room).unwrap_or(0) }
    }

    pub(super) fn group_of(&self, block: BlockId) -> usize {
        if self.open.len() == 1 {
            return 0;
        }
        (block >> self.slots.trailing_zeros()).checked_div(self.room).unwrap_or(0) as usize
    }

    /// Returns the chunk of port number `at` of a block. Chunks are by transport, so the group does not
    /// matter.
    #[inline(always)]
    pub(super) fn chunk_ix(&self, block: BlockId, at: usize) -> usize {
        let place = ((self.address_of(block) * self.slots) | u32::from(self.slot_of(block))) as usize;
        place * self.chunks_each + at / chunk::PORTS
    }

    #[inline(always)]
    pub(super) fn offset(&self, port: u16) -> usize {
        usize::from(port) & ((1 << self.shift) - 1)
    }

    pub(super) fn own_block(&self, prefix: u128) -> Option<BlockId> {
        let (ix, slot) = self.rules.formula.as_ref()?.block_of(prefix)?;
        Some(self.block_of(0, ix, slot << self.shift))
    }

    pub(super) fn header(&self, block: BlockId) -> Header {
        self.headers.get(block as usize).copied().unwrap_or(Header::NONE)
    }

    /// Returns the header of a block. Only this module assigns numbers to blocks, so the header always
    /// exists.
    pub(super) fn header_mut(&mut self, block: BlockId) -> &mut Header {
        self.headers.get_mut(block as usize).unwrap_or(&mut self.no_header)
    }

    pub(super) fn free_at(&self, group: usize, ix: u32) -> u32 {
        if ix >= self.room {
            return 0;
        }
        self.free_count.get(self.place(group, ix)).copied().unwrap_or(0)
    }

    pub(super) fn is_free(&self, group: usize, ix: u32, port: u16) -> bool {
        let slot = usize::from(port >> self.shift);
        let word = self.free.get(self.place(group, ix) * self.words_each + slot / 64);
        ix < self.room && word.is_some_and(|w| w & (1 << (slot % 64)) != 0)
    }

    pub(super) fn mark_free(&mut self, group: usize, ix: u32, slot: u16) {
        let at = self.place(group, ix);
        let (word, bit) = (at * self.words_each + usize::from(slot) / 64, 1 << (slot % 64));
        let (Some(word), Some(count)) = (self.free.get_mut(word), self.free_count.get_mut(at)) else {
            return;
        };
        if *word & bit == 0 {
            *word |= bit;
            *count += 1;
            if let Some(open) = self.open.get_mut(group) {
                open.insert(ix as usize);
            }
        }
    }

    pub(super) fn mark_taken(&mut self, group: usize, ix: u32, slot: u16) {
        let at = self.place(group, ix);
        let (word, bit) = (at * self.words_each + usize::from(slot) / 64, 1 << (slot % 64));
        let (Some(word), Some(count)) = (self.free.get_mut(word), self.free_count.get_mut(at)) else {
            return;
        };
        if *word & bit != 0 {
            *word &= !bit;
            *count -= 1;
            if let (0, Some(open)) = (*count, self.open.get_mut(group)) {
                open.remove(ix as usize);
            }
        }
    }

    pub(super) fn is_lingering(&self, block: BlockId) -> bool {
        let header = self.header(block);
        self.lingering.len > 0 && (self.lingering.oldest == block || header.older != NO_BLOCK)
    }

    pub(super) fn push(&mut self, now: Instant, block: BlockId, queue: fn(&mut Self) -> &mut Queue) {
        let q = queue(self);
        let (until, newest) = (Tick::after(now, q.ms).0, q.newest);
        q.newest = block;
        q.len += 1;
        if newest == NO_BLOCK {
            q.oldest = block;
        } else {
            self.header_mut(newest).newer = block;
        }
        let header = self.header_mut(block);
        (header.older, header.newer, header.until) = (newest, NO_BLOCK, until);
    }

    pub(super) fn unqueue(&mut self, block: BlockId, queue: fn(&mut Self) -> &mut Queue) {
        let Header { older, newer, .. } = self.header(block);
        match older {
            NO_BLOCK => queue(self).oldest = newer,
            older => self.header_mut(older).newer = newer,
        }
        match newer {
            NO_BLOCK => queue(self).newest = older,
            newer => self.header_mut(newer).older = older,
        }
        queue(self).len -= 1;
        let header = self.header_mut(block);
        (header.older, header.newer) = (NO_BLOCK, NO_BLOCK);
    }
}

/// Sizes of the tables.
pub(super) struct Sizes {
    pub(super) groups: usize,
    pub(super) slots: usize,
    pub(super) words_each: usize,
    pub(super) chunks_each: usize,
    pub(super) headers: usize,
    pub(super) chunks: usize,
}

impl Sizes {
    pub(super) fn new(addresses: u32, plan: &Blocks) -> Result<Self, OutOfMemory> {
        let too_large = OutOfMemory { bytes: usize::MAX };
        let slots = 65_536usize.checked_div(plan.size.into()).ok_or(too_large)?;
        let chunks_each = usize::from(plan.size).div_ceil(chunk::PORTS);
        let groups = if plan.protocols == BlockProtocols::Split { 3 } else { 1 };
        let headers = (addresses as usize).checked_mul(slots * groups).ok_or(too_large)?;
        // Their numbers are below NO_BLOCK.
        if headers >= u32::MAX as usize {
            return Err(too_large);
        }
        let chunks = addresses as usize * slots * chunks_each;
        Ok(Sizes { groups, slots, words_each: slots.div_ceil(64), chunks_each, headers, chunks })
    }
}
