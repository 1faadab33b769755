//! Preview of the block for a new port, without any change.

use super::table::{BlockId, BlockState};
use super::{BlockPorts, NO_BLOCK};
use crate::base::plan::{Pairing, Transport};
use crate::tables::ports::holdings::PortSource;
use crate::tables::ports::holdings::{Holdings, PortRequest};
use gatun_wire::DropReason;

/// Number of the address, source of the port, ports of the block, and number of free ones.
type BlockPreview = (u32, PortSource, Option<(u16, u16)>, u32);

impl BlockPorts {
    /// Previews [`allocate`](Self::allocate).
    pub(crate) fn preview(
        &self,
        wanted: &PortRequest,
        holdings: &Holdings,
    ) -> Result<BlockPreview, DropReason> {
        let t = wanted.transport;
        if t.of(&self.usage).total == 0 {
            return Err(DropReason::PoolEmpty);
        }
        let group = self.group_number(t as usize);
        if let Some(own) = self.own_block(wanted.prefix)
            && !self.is_drained(self.address_of(own))
            && let Some(found) = self.with_free_port(own, t, PortSource::OwnBlock)
        {
            return Ok(found);
        }
        let mut block = holdings.first_block(group);
        // The plan bounds the number of the subscriber's blocks.
        while block != NO_BLOCK {
            if !self.gives_none(block)
                && let Some(found) = self.with_free_port(block, t, PortSource::Block)
            {
                return Ok(found);
            }
            block = self.header(block).next;
        }
        if let Some(rights) = &self.rights {
            self.may_have_block(group, holdings)?;
            let (ix, free) = self.preview_within(rights, wanted, group, holdings)?;
            return Ok((ix, PortSource::NewBlock, None, free));
        }
        let ix = self.address_for_block(wanted, group, holdings)?;
        Ok((ix, PortSource::NewBlock, None, self.free_at(group, ix)))
    }

    /// Checks if a subscriber may have another block.
    pub(super) fn may_have_block(&self, group: usize, holdings: &Holdings) -> Result<(), DropReason> {
        match holdings.block_count(group) >= self.plan.per_subscriber {
            true => Err(DropReason::SubscriberBlockQuota),
            false => Ok(()),
        }
    }

    /// Returns the address of a new block.
    pub(super) fn address_for_block(
        &self,
        wanted: &PortRequest,
        group: usize,
        holdings: &Holdings,
    ) -> Result<u32, DropReason> {
        self.may_have_block(group, holdings)?;
        let none = if self.held.len > 0 { DropReason::HoldDownAll } else { DropReason::BlockNone };
        let own = self.own_block(wanted.prefix).map(|block| self.address_of(block));
        let paired = holdings.paired().or(own);
        let wish = paired.unwrap_or_else(|| self.first_address(group, wanted.spread));
        if self.free_at(group, wish) > 0 {
            return Ok(wish);
        }
        if paired.is_some() && self.pairing == Pairing::Hard {
            return Err(none);
        }
        let open = self.open.get(group).and_then(|open| open.next_cyclic(wish as usize));
        open.map(|ix| ix as u32).ok_or(none)
    }

    /// Returns whether [`claim_for`](Self::claim_for) would give a port.
    pub(crate) fn could_claim_for(
        &self,
        ix: u32,
        port: u16,
        wanted: &PortRequest,
        holdings: &Holdings,
    ) -> bool {
        let group = self.group_number(wanted.transport as usize);
        let block = self.block_of(group, ix, port);
        if self.is_owned_by(block, wanted) {
            let chunk = wanted.transport.of(&self.chunks).get(self.chunk_ix(block, self.offset(port)));
            return chunk.is_some_and(|chunk| chunk.is_free(self.offset(port) % super::chunk::PORTS));
        }
        self.could_give(group, ix, port, holdings)
    }

    /// Returns whether a block is the subscriber's: by the formula, or assigned.
    pub(super) fn is_owned_by(&self, block: BlockId, wanted: &PortRequest) -> bool {
        let header = self.header(block);
        self.own_block(wanted.prefix) == Some(block)
            || (header.is(BlockState::Owned) && header.owner == wanted.subscriber)
    }

    /// Returns whether the subscriber with these holdings may get the free block of a port.
    pub(super) fn could_give(&self, group: usize, ix: u32, port: u16, holdings: &Holdings) -> bool {
        let strange = holdings.paired().is_some_and(|paired| paired != ix) && self.pairing == Pairing::Hard;
        let may_have = !strange && holdings.block_count(group) < self.plan.per_subscriber;
        !self.gives_none(self.block_of(group, ix, port))
            && (may_have || self.is_again)
            && self.is_free(group, ix, port)
    }

    /// Returns the maximum number of blocks of a subscriber, and whether all protocols share them.
    pub(crate) fn each(&self) -> (u32, bool) {
        (self.plan.per_subscriber.into(), self.open.len() == 1)
    }

    /// Returns a block if it has a free port.
    fn with_free_port(&self, block: BlockId, t: Transport, source: PortSource) -> Option<BlockPreview> {
        let first = self.chunk_ix(block, 0);
        let chunks = t.of(&self.chunks).get(first..first + self.chunks_each)?;
        let used: u32 = chunks.iter().map(|chunk| chunk.used).sum();
        let free = (1u32 << self.shift).saturating_sub(used);
        let from = self.slot_of(block) << self.shift;
        let ports = (from, from | ((1u16 << self.shift) - 1));
        (free > 0).then(|| (self.address_of(block), source, Some(ports), free))
    }
}
