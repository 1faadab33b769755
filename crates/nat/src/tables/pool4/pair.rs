//! A pool of which another member of a pair assigns ports, too.

use super::{Grant, Holdings, Pool4State, PortBlock, PortRequest, PortRight, Ports, bound};
use crate::base::plan::Transport;
use crate::base::time::Instant;
use crate::tables::ports::rights::Rights;
use core::net::Ipv4Addr;

impl Pool4State {
    /// Ports that this member may assign; `None` for all.
    pub(super) fn rights(&self) -> Option<&Rights> {
        match &self.ports {
            Ports::Single(single) => single.rights.as_ref(),
            Ports::Blocks(blocks) => blocks.rights.as_ref(),
        }
    }

    /// Sets the right to the ports of the addresses from the first to the last one that have a shard. Returns
    /// their number.
    pub(crate) fn set_rights(
        &mut self,
        first: Ipv4Addr,
        last: Ipv4Addr,
        right: PortRight,
        shard: impl Fn(Ipv4Addr) -> Option<usize>,
    ) -> usize {
        let (rights, mut count) = (rights_mut(&mut self.ports), 0);
        for (ix, address) in self.map.between(first, last) {
            if let Some(shard) = shard(address) {
                rights.get_or_insert_default().set(ix, right, shard as u8);
                count += 1;
            }
        }
        count
    }

    /// Returns whether this member may assign a port.
    pub(crate) fn may_assign(&self, ix: u32, port: u16) -> bool {
        self.rights().is_none_or(|rights| rights.allows(ix, &(port..=port)))
    }

    /// Takes all rights away, or ends all restrictions.
    pub(crate) fn set_restricted(&mut self, is_restricted: bool) {
        *rights_mut(&mut self.ports) = is_restricted.then(Rights::default);
    }

    /// Returns whether rights restrict the assignment of ports.
    pub(crate) fn is_restricted(&self) -> bool {
        self.rights().is_some()
    }

    /// Gives a port of the other member to its subscriber. Rights and quotas do not apply, and a hold-down
    /// here is over: the other member knows better.
    pub(crate) fn claim_of_other(
        &mut self,
        now: Instant,
        outside: (Ipv4Addr, u16),
        wanted: &PortRequest,
        holdings: &mut Holdings,
    ) -> Option<Grant> {
        let address_ix = self.address_ix(outside.0)?;
        match &mut self.ports {
            Ports::Single(single) => {
                let covered = self.map.layout(wanted.transport, address_ix).is_some_and(|l| l.has(outside.1));
                let is_used = single.has(wanted.transport, address_ix, outside.1);
                // Only a hold-down marks a port that nothing is bound to.
                if covered && is_used && !bound(&self.bindings)(wanted.transport, address_ix, outside.1) {
                    return Some(self.counted(Grant { address_ix, port: outside.1, new_block: None }));
                }
                self.claim_again(now, outside, wanted, holdings)
            }
            Ports::Blocks(blocks) => {
                blocks.set_again(true);
                let grant = self.claim_again(now, outside, wanted, holdings);
                if let Ports::Blocks(blocks) = &mut self.ports {
                    blocks.set_again(false);
                }
                grant
            }
        }
    }

    /// Returns the subscriber that has the block of a port without using it.
    pub(crate) fn idle_owner(&self, transport: Transport, ix: u32, port: u16) -> Option<u32> {
        match &self.ports {
            Ports::Single(_) => None,
            Ports::Blocks(blocks) => blocks.idle_owner(transport, ix, port),
        }
    }

    /// Takes the unused block of a port from its owner.
    pub(crate) fn end_idle(
        &mut self,
        now: Instant,
        transport: Transport,
        ix: u32,
        port: u16,
        holdings: Option<&mut Holdings>,
    ) -> Option<PortBlock> {
        match &mut self.ports {
            Ports::Single(_) => None,
            Ports::Blocks(blocks) => {
                let ended = blocks.end_idle(now, transport, ix, port, holdings);
                self.counters.blocks_released += u64::from(ended.is_some());
                ended
            }
        }
    }
}

pub(super) fn rights_mut(ports: &mut Ports) -> &mut Option<Rights> {
    match ports {
        Ports::Single(single) => &mut single.rights,
        Ports::Blocks(blocks) => &mut blocks.rights,
    }
}
