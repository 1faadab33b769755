//! Packets that wait for address resolution: a few per neighbour, and a fixed number in total.
//!
//! A new packet replaces the oldest one: of its neighbour, if that neighbour has its share, otherwise of all.
//! A flood to neighbours that do not exist can fill the store, but a neighbour that answers within a
//! millisecond still gets its packets.

use crate::Limits;
use crate::frame::LEN_MAX;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

pub(crate) struct PendingPackets {
    /// One buffer per packet: room for a header, then the packet.
    buffers: Vec<u8>,
    place_len: usize,
    free: Vec<u16>,
    /// Oldest first.
    order: VecDeque<PendingPacket>,
    per_neighbour_max: u16,
}

#[derive(Clone, Copy, Debug)]
struct PendingPacket {
    neighbour: u32,
    place: u16,
    len: u16,
}

/// Result of queueing a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queued {
    /// The packet was queued.
    Added,
    /// The packet was queued, and the oldest packet of this neighbour was dropped.
    Replaced(u32),
    /// The packet is too large, or the store has size zero.
    Refused,
}

impl PendingPackets {
    /// Creates a store for packets of up to `packet_max` bytes.
    pub(crate) fn new(limits: &Limits, packet_max: usize) -> PendingPackets {
        let places = limits.waiting_max;
        let place_len = LEN_MAX + packet_max;
        PendingPackets {
            buffers: alloc::vec![0; place_len * usize::from(places)],
            place_len,
            free: (0..places).rev().collect(),
            order: VecDeque::with_capacity(places.into()),
            per_neighbour_max: limits.waiting_per_neighbour_max,
        }
    }

    /// Queues a copy of a packet for a neighbour that has `waiting` other packets.
    pub(crate) fn keep(&mut self, neighbour: u32, waiting: u16, packet: &[u8]) -> Queued {
        let Ok(len) = u16::try_from(packet.len()) else { return Queued::Refused };
        if packet.len() > self.place_len.saturating_sub(LEN_MAX) || self.per_neighbour_max == 0 {
            return Queued::Refused;
        }
        let gives_way = if waiting >= self.per_neighbour_max {
            self.take(|e| e.neighbour == neighbour)
        } else if self.free.is_empty() {
            self.take(|_| true)
        } else {
            None
        };
        let Some(place) = self.free.pop() else { return Queued::Refused };
        if let Some(to) = self.buffer(place).and_then(|b| b.get_mut(LEN_MAX..LEN_MAX + packet.len())) {
            to.copy_from_slice(packet);
        }
        self.order.push_back(PendingPacket { neighbour, place, len });
        gives_way.map_or(Queued::Added, |e| Queued::Replaced(e.neighbour))
    }

    /// Removes all packets of a neighbour, oldest first. Each buffer has `LEN_MAX` bytes for a header before
    /// the packet.
    pub(crate) fn release(&mut self, neighbour: u32, mut give: impl FnMut(&mut [u8])) {
        while let Some(entry) = self.take(|e| e.neighbour == neighbour) {
            let len = LEN_MAX + usize::from(entry.len);
            if let Some(bytes) = self.buffer(entry.place).and_then(|b| b.get_mut(..len)) {
                give(bytes);
            }
        }
    }

    /// Removes all packets, oldest first, each with its neighbour. The buffers are as above.
    pub(crate) fn release_all(&mut self, mut give: impl FnMut(u32, &mut [u8])) {
        while let Some(entry) = self.take(|_| true) {
            let len = LEN_MAX + usize::from(entry.len);
            if let Some(bytes) = self.buffer(entry.place).and_then(|b| b.get_mut(..len)) {
                give(entry.neighbour, bytes);
            }
        }
    }

    /// Drops all packets of a neighbour and returns their number.
    pub(crate) fn forget(&mut self, neighbour: u32) -> u64 {
        let mut count = 0;
        self.release(neighbour, |_| count += 1);
        count
    }

    fn take(&mut self, which: impl Fn(&PendingPacket) -> bool) -> Option<PendingPacket> {
        let at = self.order.iter().position(which)?;
        let entry = self.order.remove(at)?;
        self.free.push(entry.place);
        Some(entry)
    }

    fn buffer(&mut self, place: u16) -> Option<&mut [u8]> {
        self.buffers.get_mut(usize::from(place) * self.place_len..)?.get_mut(..self.place_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn store(all: u16, each: u16) -> PendingPackets {
        let limits = Limits { waiting_max: all, waiting_per_neighbour_max: each, ..Limits::default() };
        PendingPackets::new(&limits, 100)
    }

    fn released(store: &mut PendingPackets, neighbour: u32) -> Vec<u8> {
        let mut first = vec![];
        store.release(neighbour, |bytes| {
            assert_eq!(bytes.len(), LEN_MAX + 10);
            assert!(bytes[LEN_MAX..].iter().all(|b| *b == bytes[LEN_MAX]));
            first.push(bytes[LEN_MAX]);
        });
        first
    }

    #[test]
    fn the_newest_packet_of_a_neighbour_replaces_its_oldest() {
        let mut store = store(8, 3);
        let kept: Vec<_> = (0..5).map(|i: u16| store.keep(7, i.min(3), &[i as u8; 10])).collect();
        assert_eq!(
            kept,
            [Queued::Added, Queued::Added, Queued::Added, Queued::Replaced(7), Queued::Replaced(7)]
        );
        assert_eq!(released(&mut store, 7), [2, 3, 4]);
        assert_eq!(released(&mut store, 7), []);
    }

    #[test]
    fn the_oldest_packet_is_replaced_if_the_store_is_full() {
        let mut store = store(4, 4);
        for n in 0..4 {
            assert_eq!(store.keep(n, 0, &[n as u8; 10]), Queued::Added);
        }
        assert_eq!(store.keep(9, 0, &[9; 10]), Queued::Replaced(0));
        assert_eq!(store.keep(1, 1, &[10; 10]), Queued::Replaced(1));
        assert_eq!(released(&mut store, 1), [10]);
        assert_eq!(store.forget(2), 1);
        assert_eq!((released(&mut store, 0), released(&mut store, 9)), (vec![], vec![9]));
    }

    #[test]
    fn packets_that_are_too_large_or_have_no_place_are_refused() {
        assert_eq!(store(1, 1).keep(0, 0, &[0; 101]), Queued::Refused);
        assert_eq!(store(1, 1).keep(0, 0, &[0; 100]), Queued::Added);
        assert_eq!(store(0, 0).keep(0, 0, &[0; 10]), Queued::Refused);
    }
}
