//! IPv4 identifications for packets that leave without DF (RFC 7915 5.1, RFC 6864).
//!
//! A few thousand counters, each starting at a random value. The flow's keyed hash chooses one. Within a flow
//! no identification repeats before 65,536 packets, and no outsider can guess another flow's.
//!
//! Two workers may have packets between the same two addresses, and the receiver identifies datagrams by
//! address and identification alone. So each worker uses only identifications with its own number in the
//! lowest bits:
//!
//! ```text
//!   | counter .................. | worker |     3 or 4 workers: two bits; one worker: none
//! ```

use crate::base::rng::Rng;
use alloc::boxed::Box;
use core::net::Ipv6Addr;
use gatun_wire::segment;
use gatun_wire::{Packet, Segmentation};

const COUNTERS: usize = 2048;

/// Number of workers with 256 identifications each. Further workers share identifications with others.
const WORKERS_MAX: usize = 256;

pub(crate) struct Idents {
    next: Box<[u16; COUNTERS]>,
    /// Step from one identification of this worker to the next: a power of two, so that it divides 65,536.
    step: u16,
    /// Keys of the hash for [`next_between`](Self::next_between).
    keys: [u64; 4],
}

impl Idents {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let mut next = Box::new([0u16; COUNTERS]);
        for n in next.iter_mut() {
            *n = rng.next_u32() as u16;
        }
        let keys = core::array::from_fn(|_| u64::from(rng.next_u32()) << 32 | u64::from(rng.next_u32()));
        Idents { next, step: 1, keys }
    }

    /// Restricts this worker to identifications that none of the other `workers - 1` workers uses.
    pub(crate) fn share(&mut self, worker: usize, workers: usize) {
        let step = workers.clamp(1, WORKERS_MAX).next_power_of_two();
        for n in self.next.iter_mut() {
            *n = *n & !(step - 1) as u16 | (worker % step) as u16;
        }
        self.step = step as u16;
    }

    /// Returns the next identification of the flow with this hash.
    #[inline]
    pub(crate) fn next(&mut self, hash: u64) -> u16 {
        // It uses the upper bits, because tables use the lower ones.
        let Some(n) = self.next.get_mut((hash >> 48) as usize % COUNTERS) else { return 0 };
        *n = n.wrapping_add(self.step);
        *n
    }

    /// Same as [`next`](Self::next), for a packet that may be a super-packet.
    #[inline]
    pub(crate) fn next_of(&mut self, hash: u64, packet: &Packet<'_>) -> u16 {
        let first = self.next(hash);
        self.count_on(hash, packet);
        first
    }

    /// Skips the identifications that a super-packet will use. The device that cuts it counts up by ones,
    /// through other workers' numbers too, so the flow's next identification comes after all of those.
    #[inline]
    pub(crate) fn count_on(&mut self, hash: u64, packet: &Packet<'_>) {
        if packet.offload.segmentation != Segmentation::None {
            let more = segment::count(packet).saturating_sub(1).next_multiple_of(self.step.into());
            if let Some(n) = self.next.get_mut((hash >> 48) as usize % COUNTERS) {
                *n = n.wrapping_add(more as u16);
            }
        }
    }

    /// Returns the next identification between two addresses, for packets without a session's hash.
    #[inline(always)]
    pub(crate) fn next_between(&mut self, src: Ipv6Addr, dst: Ipv6Addr) -> u16 {
        self.next(self.hash_between(src, dst))
    }

    /// Hash that chooses the counter of two addresses.
    ///
    /// It uses two products of sums with secret words. An observer who does not see hashes cannot tell which
    /// addresses share a counter. It costs a third of the tables' hash, whose collisions would do harm.
    #[inline(always)]
    pub(crate) fn hash_between(&self, src: Ipv6Addr, dst: Ipv6Addr) -> u64 {
        let [a, b, c, d] = self.keys;
        let half = |address: Ipv6Addr, high: u64, low: u64| {
            let bits = u128::from_ne_bytes(address.octets());
            let product = u128::from((bits >> 64) as u64 ^ high) * u128::from(bits as u64 ^ low);
            (product >> 64) as u64 ^ product as u64
        };
        half(src, a, b) ^ half(dst, c, d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    // proves: A79-53
    #[test]
    fn a_flow_uses_every_identification_before_one_returns() {
        let mut idents = Idents::new(&mut Rng::new([7; 4]));
        let seen: BTreeSet<u16> = (0..65_536).map(|_| idents.next(0xdead_beef_0000_0000)).collect();
        assert_eq!(seen.len(), 65_536);
    }

    #[test]
    fn addresses_that_differ_in_one_bit_seldom_share_a_counter() {
        let mut idents = Idents::new(&mut Rng::new([7; 4]));
        idents.next.fill(0);
        let counters = |idents: &mut Idents, bits: u128, dst: u128| {
            idents.next_between(bits.into(), dst.into());
            let used = idents.next.iter().position(|n| *n != 0);
            idents.next.fill(0);
            used
        };
        let (src, dst) = (0x2001_0db8 << 96, 0x0064_ff9b << 96);
        let mut of: std::vec::Vec<_> =
            (0..128).map(|bit| counters(&mut idents, src ^ 1 << bit, dst)).collect();
        of.extend((0..128).map(|bit| counters(&mut idents, src, dst ^ 1 << bit)));
        of.push(counters(&mut idents, src, dst));
        of.sort_unstable();
        of.dedup();
        // 257 at random into 2,048 fill 241 on average; 4 standard deviations below is 226.
        assert!(of.len() > 226, "{} of 257", of.len());
    }

    // proves: A79-53
    #[test]
    fn identifications_after_a_super_packet_follow_those_of_its_segments() {
        // 40 bytes of headers before 2,500 bytes of payload: five packets.
        let mut bytes = [0; 48 + 2500];
        bytes[..8].copy_from_slice(&[0x60, 0, 0, 0, (2508u16 >> 8) as u8, 2508u16 as u8, 17, 64]);
        let len = bytes.len();
        let mut packet = Packet::new(&mut bytes, 0, len).unwrap();
        let hash = 0xdead_beef_0000_0000;
        for (workers, behind) in [(1, 5), (2, 6), (4, 8), (256, 512)] {
            let mut idents = Idents::new(&mut Rng::new([7; 4]));
            idents.share(0, workers);
            packet.offload.segmentation = Segmentation::Udp { size: 500 };
            let first = idents.next_of(hash, &packet);
            let next = idents.next(hash);
            assert_eq!(next.wrapping_sub(first), behind, "{workers} workers");
            packet.offload.segmentation = Segmentation::None;
            assert_eq!(idents.next_of(hash, &packet).wrapping_sub(next), workers as u16);
            assert_eq!(idents.next(hash).wrapping_sub(next), 2 * workers as u16);
        }
    }

    // proves: A79-53
    #[test]
    fn no_two_workers_have_an_identification_in_common() {
        for workers in [1_usize, 2, 3, 4, 5, 16, 64, 255, 256] {
            let each = 65_536 / workers.next_power_of_two();
            let mut all = BTreeSet::new();
            for worker in 0..workers {
                let mut idents = Idents::new(&mut Rng::new([worker as u64; 4]));
                idents.share(worker, workers);
                let before = all.len();
                all.extend((0..each).map(|_| idents.next(0xdead_beef_0000_0000)));
                assert_eq!(all.len() - before, each, "worker {worker} of {workers}");
            }
        }
    }
}
