//! Packets and bytes of public addresses, of all pools in one table.
//!
//! ```text
//!   traffic[first[pool] + number of the address]
//! ```
//! Each pool has as many places as it has room for addresses, so that its numbers stay good when it changes. A packet
//! finds the place by its session's instance and address number alone.

use crate::base::account::Account;
use crate::base::counters::Traffic;
use alloc::vec::Vec;
use gatun_mem::{Footprint, HugeVec, OutOfMemory};

/// The counters of all public addresses.
pub(crate) struct AddressTraffic {
    traffic: HugeVec<Traffic>,
    /// By pool: the place of its first address.
    first: Vec<u32>,
    /// By instance: the place of its pool's first address.
    of_instance: [u32; 256],
}

impl AddressTraffic {
    /// All zero, for pools with room for so many addresses each, and instances that use them.
    ///
    /// # Errors
    /// Where memory is short.
    pub(crate) fn new(rooms: &[u32], pool_of_instance: &[usize]) -> Result<Self, OutOfMemory> {
        let traffic = HugeVec::new(rooms.iter().map(|&room| room as usize).sum())?;
        Ok(AddressTraffic { traffic, ..Self::empty(rooms, pool_of_instance) })
    }

    /// Where everything is, without room for it.
    fn empty(rooms: &[u32], pool_of_instance: &[usize]) -> Self {
        let begin = |next: &mut u32, &room: &u32| Some(core::mem::replace(next, next.saturating_add(room)));
        let first: Vec<u32> = rooms.iter().scan(0, begin).collect();
        let mut of_instance = [0; 256];
        for (place, &pool) in of_instance.iter_mut().zip(pool_of_instance) {
            *place = first.get(pool).copied().unwrap_or(0);
        }
        AddressTraffic { traffic: HugeVec::default(), first, of_instance }
    }

    /// Memory that [`AddressTraffic::new`] takes.
    pub(crate) fn footprint(rooms: &[u32]) -> Footprint {
        HugeVec::<Traffic>::footprint(rooms.iter().map(|&room| room as usize).sum())
    }

    /// The counters of a packet's public address.
    #[inline(always)]
    pub(crate) fn of(&mut self, account: Account) -> Option<&mut Traffic> {
        let first = self.of_instance.get(usize::from(account.instance)).copied().unwrap_or(0);
        self.traffic.get_mut(first.wrapping_add(account.address_ix) as usize)
    }

    /// The counters of an address by its pool and number.
    pub(crate) fn at(&self, pool: usize, address_ix: u32) -> Traffic {
        let place = self.first.get(pool).and_then(|first| first.checked_add(address_ix));
        place.and_then(|place| self.traffic.get(place as usize)).copied().unwrap_or_default()
    }

    /// An address that comes to a pool begins at zero, whoever had its number before.
    pub(crate) fn reset(&mut self, pool: usize, address_ix: u32) {
        let place = self.first.get(pool).and_then(|first| first.checked_add(address_ix));
        if let Some(traffic) = place.and_then(|place| self.traffic.get_mut(place as usize)) {
            *traffic = Traffic::default();
        }
    }
}

/// What the table becomes with other pools; afterwards, what it was.
pub(crate) struct TrafficChange {
    new: AddressTraffic,
    /// By pool: its number before, where it was there, and its room.
    pools: Vec<(Option<usize>, u32)>,
    /// Whether all pools are where they were: then the counters stay in place.
    in_place: bool,
}

impl TrafficChange {
    /// `before` is how many pools there were; `pools` has, for each there will be, its number before and its room.
    ///
    /// # Errors
    /// Where memory is short.
    pub(crate) fn prepare(
        before: usize,
        pools: Vec<(Option<usize>, u32)>,
        pool_of_instance: &[usize],
    ) -> Result<Self, OutOfMemory> {
        let in_place = pools.len() == before && pools.iter().enumerate().all(|(at, of)| of.0 == Some(at));
        let rooms: Vec<u32> = pools.iter().map(|&(_, room)| room).collect();
        let new = match in_place {
            true => AddressTraffic::empty(&rooms, pool_of_instance),
            false => AddressTraffic::new(&rooms, pool_of_instance)?,
        };
        Ok(TrafficChange { new, pools, in_place })
    }

    /// Puts the change in place. The counters of a pool that stays go with it.
    pub(crate) fn apply(&mut self, running: &mut AddressTraffic) {
        if self.in_place {
            core::mem::swap(&mut running.traffic, &mut self.new.traffic);
        } else {
            for (&(before, room), &to) in self.pools.iter().zip(&self.new.first) {
                let from = before.and_then(|before| running.first.get(before)).copied();
                let Some(from) = from.map(|from| from as usize) else { continue };
                let (room, to) = (room as usize, to as usize);
                let old = running.traffic.get(from..from + room);
                if let (Some(old), Some(new)) = (old, self.new.traffic.get_mut(to..to + room)) {
                    new.copy_from_slice(old);
                }
            }
        }
        core::mem::swap(running, &mut self.new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(instance: u8, address_ix: u32) -> Account {
        Account { subscriber: 0, address_ix, instance }
    }

    #[test]
    fn counters_go_with_their_pool_wherever_it_comes_to_stand() {
        let mut all = AddressTraffic::new(&[3, 5], &[1, 0]).unwrap();
        all.of(account(0, 4)).unwrap().outbound.add(70);
        all.of(account(1, 2)).unwrap().inbound.add(90);
        assert_eq!((all.at(1, 4).outbound.bytes, all.at(0, 2).inbound.bytes), (70, 90));
        assert!(all.of(account(0, 5)).is_none() && all.of(account(1, u32::MAX)).is_none());

        // The instances change places, and the pools stay.
        let mut change = TrafficChange::prepare(2, [(Some(0), 3), (Some(1), 5)].to_vec(), &[0, 1]).unwrap();
        change.apply(&mut all);
        assert_eq!(all.of(account(0, 2)).unwrap().inbound.bytes, 90);

        // One pool goes, one comes, the other one stays.
        let mut change = TrafficChange::prepare(2, [(None, 2), (Some(1), 5)].to_vec(), &[0, 1]).unwrap();
        change.apply(&mut all);
        assert_eq!((all.at(1, 4).outbound.bytes, all.at(0, 0)), (70, Traffic::default()));
        assert_eq!(all.of(account(1, 4)).unwrap().outbound.packets, 1);
        all.reset(1, 4);
        assert_eq!((all.at(1, 4), all.at(7, 0)), (Traffic::default(), Traffic::default()));
    }
}
