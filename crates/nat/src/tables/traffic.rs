//! Packets and bytes of public addresses. One table contains the addresses of all pools.
//!
//! ```text
//!   traffic[first[pool] + number of the address]
//! ```
//! Each pool has as many places as it has room for addresses, so that the numbers stay valid if the pool
//! changes. The session's instance and address number are enough to find the place.

use crate::base::attribution::Party;
use crate::base::counters::{Traffic, TrafficTotals};
use crate::tables::feed::CountedSessions;
use crate::tables::session::RecordId;
use crate::tables::subscriber::Subscribers;
use alloc::vec::Vec;
use gatun_mem::{Footprint, OutOfMemory, WrappingTable};

/// Counters of all public addresses.
pub(crate) struct AddressTraffic {
    traffic: WrappingTable<TrafficTotals>,
    places: Places,
}

/// Place of each address's counters.
struct Places {
    /// Indexed by pool: the place of its first address, and its room.
    pools: Vec<(u32, u32)>,
    /// Indexed by instance: the place of the first address of its pool.
    of_instance: [u32; 256],
}

impl Places {
    fn new(rooms: &[u32], pool_of_instance: &[usize]) -> Self {
        let begin =
            |next: &mut u32, &room: &u32| Some((core::mem::replace(next, next.saturating_add(room)), room));
        let pools: Vec<(u32, u32)> = rooms.iter().scan(0, begin).collect();
        let mut of_instance = [0; 256];
        for (place, &pool) in of_instance.iter_mut().zip(pool_of_instance) {
            *place = pools.get(pool).map_or(0, |&(first, _)| first);
        }
        Places { pools, of_instance }
    }

    fn of(&self, pool: usize, address_ix: u32) -> Option<usize> {
        let &(first, room) = self.pools.get(pool)?;
        (address_ix < room).then_some((first + address_ix) as usize)
    }
}

fn table(rooms: &[u32]) -> Result<WrappingTable<TrafficTotals>, OutOfMemory> {
    WrappingTable::new(rooms.iter().map(|&room| room as usize).sum())
}

impl AddressTraffic {
    /// Creates counters of zero for pools with room for so many addresses each, and for the instances that
    /// use them.
    ///
    /// # Errors
    /// Returns an error if memory is short.
    pub(crate) fn new(rooms: &[u32], pool_of_instance: &[usize]) -> Result<Self, OutOfMemory> {
        Ok(AddressTraffic { traffic: table(rooms)?, places: Places::new(rooms, pool_of_instance) })
    }

    /// Memory use of [`AddressTraffic::new`].
    pub(crate) fn footprint(rooms: &[u32]) -> Footprint {
        WrappingTable::<TrafficTotals>::footprint(rooms.iter().map(|&room| room as usize).sum())
    }

    /// Returns the counters of a packet's public address.
    #[inline(always)]
    pub(crate) fn of(&mut self, party: Party) -> &mut TrafficTotals {
        let first = self.places.of_instance.get(usize::from(party.instance)).copied().unwrap_or(0);
        self.traffic.at_mut(first.wrapping_add(party.address_ix) as usize)
    }

    /// Returns the counters of an address by its pool and number.
    pub(crate) fn at(&self, pool: usize, address_ix: u32) -> Traffic {
        self.places.of(pool, address_ix).map_or(Traffic::default(), |place| self.traffic.at(place).traffic())
    }

    /// Resets the counters of an address that is added to a pool. Another address may have had its number
    /// before.
    pub(crate) fn reset(&mut self, pool: usize, address_ix: u32) {
        if let Some(place) = self.places.of(pool, address_ix) {
            *self.traffic.at_mut(place) = TrafficTotals::default();
        }
    }
}

/// Counters of a session's packets, for the fast path.
pub(crate) struct Accounts<'a> {
    pub(super) id: RecordId,
    pub(super) subscribers: &'a mut Subscribers,
    pub(super) addresses: &'a mut AddressTraffic,
    pub(super) counted: &'a mut CountedSessions,
}

impl Accounts<'_> {
    /// Notes that the packet has established its session by the number of packets.
    #[inline(always)]
    pub(crate) fn established(&mut self) {
        self.counted.add(self.id);
    }

    /// Counts a packet from inside for its subscriber and its public address.
    #[inline(always)]
    pub(crate) fn count_outbound(self, of: Party, bytes: usize) {
        self.subscribers.traffic_mut(of.subscriber).add_outbound(bytes);
        self.addresses.of(of).add_outbound(bytes);
    }

    /// Same as [`count_outbound`](Self::count_outbound), for a packet to the inside.
    #[inline(always)]
    pub(crate) fn count_inbound(self, of: Party, bytes: usize) {
        self.subscribers.traffic_mut(of.subscriber).add_inbound(bytes);
        self.addresses.of(of).add_inbound(bytes);
    }
}

/// Prepared change to other pools. After it is applied, the previous state.
pub(crate) struct TrafficChange {
    places: Places,
    /// `None` if all pools keep their places. The counters then stay in place.
    traffic: Option<WrappingTable<TrafficTotals>>,
    /// Indexed by pool: its previous number, if it existed.
    before: Vec<Option<usize>>,
}

impl TrafficChange {
    /// Prepares a change. `count` is the previous number of pools. `pools` has the previous number, if any,
    /// and the room of each new pool.
    ///
    /// # Errors
    /// Returns an error if memory is short.
    pub(crate) fn prepare(
        count: usize,
        pools: &[(Option<usize>, u32)],
        pool_of_instance: &[usize],
    ) -> Result<Self, OutOfMemory> {
        let in_place = pools.len() == count && pools.iter().enumerate().all(|(at, of)| of.0 == Some(at));
        let rooms: Vec<u32> = pools.iter().map(|&(_, room)| room).collect();
        Ok(TrafficChange {
            places: Places::new(&rooms, pool_of_instance),
            traffic: if in_place { None } else { Some(table(&rooms)?) },
            before: pools.iter().map(|&(before, _)| before).collect(),
        })
    }

    /// Applies the change. A pool that stays keeps its counters.
    pub(crate) fn apply(&mut self, running: &mut AddressTraffic) {
        if let Some(new) = &mut self.traffic {
            for (before, &(to, room)) in self.before.iter().zip(&self.places.pools) {
                let from = before.and_then(|before| running.places.pools.get(before));
                let Some(&(from, _)) = from else { continue };
                for n in 0..room {
                    *new.at_mut((to + n) as usize) = *running.traffic.at((from + n) as usize);
                }
            }
            core::mem::swap(&mut running.traffic, new);
        }
        core::mem::swap(&mut running.places, &mut self.places);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(instance: u8, address_ix: u32) -> Party {
        Party { subscriber: 0, address_ix, instance }
    }

    #[test]
    fn counters_follow_their_pool_to_its_new_number() {
        let mut all = AddressTraffic::new(&[3, 5], &[1, 0]).unwrap();
        all.of(party(0, 4)).add_outbound(70);
        all.of(party(1, 2)).add_inbound(90);
        assert_eq!((all.at(1, 4).outbound.bytes, all.at(0, 2).inbound.bytes), (70, 90));
        assert_eq!((all.at(1, 5), all.at(0, 3)), (Traffic::default(), Traffic::default()));

        // The instances change places, and the pools stay.
        let mut change = TrafficChange::prepare(2, &[(Some(0), 3), (Some(1), 5)], &[0, 1]).unwrap();
        change.apply(&mut all);
        assert_eq!(all.of(party(0, 2)).traffic().inbound.bytes, 90);

        // One pool goes, one comes, the other one stays.
        let mut change = TrafficChange::prepare(2, &[(None, 2), (Some(1), 5)], &[0, 1]).unwrap();
        change.apply(&mut all);
        assert_eq!((all.at(1, 4).outbound.bytes, all.at(0, 0)), (70, Traffic::default()));
        assert_eq!(all.of(party(1, 4)).traffic().outbound.packets, 1);
        all.reset(1, 4);
        assert_eq!((all.at(1, 4), all.at(7, 0)), (Traffic::default(), Traffic::default()));
    }
}
