//! Blocks of a member of a pair: only some ports may be assigned, and the other member's subscribers have
//! blocks, too.

use super::{BlockId, BlockPorts, BlockState, Holdings, PortBlock, PortRequest};
use crate::base::plan::{Pairing, Transport};
use crate::base::rng::Rng;
use crate::base::time::Instant;
use crate::tables::ports::reserved::ReservedPorts;
use crate::tables::ports::rights::Rights;
use core::ops::RangeInclusive;
use gatun_wire::DropReason;

impl BlockPorts {
    /// Sets whether quotas do not apply, because the other member has admitted the subscriber.
    pub(crate) fn set_again(&mut self, is_again: bool) {
        self.is_again = is_again;
    }

    fn ports_of_slot(&self, slot: u16) -> RangeInclusive<u16> {
        let first = slot << self.shift;
        first..=first | ((1u16 << self.shift) - 1)
    }

    /// Returns whether only the other member may assign ports of a block. Blocks of a formula are the same at
    /// both members.
    #[inline]
    pub(super) fn is_of_other(&self, block: BlockId) -> bool {
        let is_other = |rights: &Rights| {
            !rights.allows(self.address_of(block), &self.ports_of_slot(self.slot_of(block)))
        };
        self.rights.as_ref().is_some_and(is_other)
    }

    /// Same as `new_block`, with the rights of this member.
    #[cold]
    pub(super) fn new_block_within(
        &mut self,
        reserved: ReservedPorts<'_>,
        rng: &mut Rng,
        wanted: &PortRequest,
        group: usize,
        holdings: &mut Holdings,
    ) -> Result<BlockId, DropReason> {
        self.may_have_block(group, holdings)?;
        let Some(rights) = self.rights.take() else { return Err(DropReason::BlockNone) };
        let found = self.candidates(&rights, wanted, group, holdings).find_map(|ix| {
            let slot = self.random_slot_within(reserved, rng, group, ix, &rights)?;
            Some((ix, slot))
        });
        let none = if self.held.len > 0 { DropReason::HoldDownAll } else { DropReason::BlockNone };
        let found = found.ok_or_else(|| rights.refusal(wanted.shard, none));
        self.rights = Some(rights);
        let (ix, slot) = found?;
        Ok(self.give(group, ix, slot, wanted.subscriber, holdings))
    }

    /// Iterates over the addresses that may have a block for a subscriber.
    fn candidates<'r>(
        &self,
        rights: &'r Rights,
        wanted: &PortRequest,
        group: usize,
        holdings: &Holdings,
    ) -> impl Iterator<Item = u32> + use<'r> {
        let own = self.own_block(wanted.prefix).map(|block| self.address_of(block));
        let paired = holdings.paired().or(own);
        let wish = paired.unwrap_or_else(|| self.first_address(group, wanted.spread));
        let is_bound = paired.is_some() && self.pairing == Pairing::Hard;
        rights.candidates(wanted.shard, wish, paired.is_some(), is_bound)
    }

    /// Returns a free block that this member may assign, each with the same probability.
    fn random_slot_within(
        &self,
        reserved: ReservedPorts<'_>,
        rng: &mut Rng,
        group: usize,
        ix: u32,
        rights: &Rights,
    ) -> Option<u16> {
        let transports = core::array::from_fn(|t| self.group_number(t) == group);
        let is_free = |slot: &u16| !reserved.any(ix, self.ports_of_slot(*slot), transports);
        let n = self.free_slots_within(group, ix, rights).filter(is_free).count();
        let rank = if n == 0 { return None } else { rng.below(n as u32) };
        self.free_slots_within(group, ix, rights).filter(is_free).nth(rank as usize)
    }

    /// Iterates over the free blocks of an address that this member may assign.
    fn free_slots_within(&self, group: usize, ix: u32, rights: &Rights) -> impl Iterator<Item = u16> {
        let slots = u16::try_from(self.slots.min(u32::from(u16::MAX))).unwrap_or(u16::MAX);
        let slots = if self.is_drained(ix) { 0 } else { slots };
        (0..slots).filter(move |slot| {
            let ports = self.ports_of_slot(*slot);
            self.is_free(group, ix, *ports.start())
                && rights.allows(ix, &ports)
                && (!self.changing || self.rules.is_ordinary(group, ix, *slot))
        })
    }

    /// Returns the address of a new block within the rights of this member, and the number of its free ones.
    pub(super) fn preview_within(
        &self,
        rights: &Rights,
        wanted: &PortRequest,
        group: usize,
        holdings: &Holdings,
    ) -> Result<(u32, u32), DropReason> {
        let free = |ix| (ix, self.free_slots_within(group, ix, rights).count() as u32);
        let mut tried = self.candidates(rights, wanted, group, holdings).map(free);
        let none = if self.held.len > 0 { DropReason::HoldDownAll } else { DropReason::BlockNone };
        tried.find(|(_, free)| *free > 0).ok_or_else(|| rights.refusal(wanted.shard, none))
    }

    /// Returns the subscriber that has the block of a port without using a port of it.
    pub(crate) fn idle_owner(&self, transport: Transport, ix: u32, port: u16) -> Option<u32> {
        let block = self.block_of(self.group_number(transport as usize), ix, port);
        let header = self.header(block);
        (ix < self.room && header.is(BlockState::Owned) && header.busy == 0).then_some(header.owner)
    }

    /// Takes the unused block of a port from its owner, or ends its hold-down: the other member has given it
    /// to another subscriber.
    pub(crate) fn end_idle(
        &mut self,
        now: Instant,
        transport: Transport,
        ix: u32,
        port: u16,
        holdings: Option<&mut Holdings>,
    ) -> Option<PortBlock> {
        let block = self.block_of(self.group_number(transport as usize), ix, port);
        if ix >= self.room {
            return None;
        }
        let header = self.header(block);
        if header.is(BlockState::Held) {
            self.unqueue(block, |ports| &mut ports.held);
            self.free_block(block);
            return None;
        }
        let holdings = holdings.filter(|_| header.is(BlockState::Owned) && header.busy == 0)?;
        if self.is_lingering(block) {
            self.unqueue(block, |ports| &mut ports.lingering);
        }
        let ended = self.disown(now, block, holdings);
        self.free_block(block);
        Some(ended)
    }
}
