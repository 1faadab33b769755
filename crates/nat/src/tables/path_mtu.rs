//! Paths to IPv4 hosts with an MTU below the minimum that IPv6 hosts accept.
//!
//! No IPv6 host sends packets of less than 1280 bytes because of a Packet Too Big (RFC 8200 5). Such packets
//! have 1260 bytes as IPv4. If a router on the IPv4 side reports a smaller path MTU, Gatun remembers the
//! remote host for some time. It fragments packets to that host that leave without DF to the path MTU. It
//! also lowers the segment size that a SYN announces, in either direction, so that later connections need no
//! fragmentation.
//!
//! ```text
//!   Fragmentation Needed, MTU 905  ->  learn(remote, 905) after its translation: the message is about a
//!                                      packet of a session, or of a mapped host
//!   1280 bytes to that remote      ->  1260 bytes as IPv4, no DF  ->  fragments of at most 905 bytes
//! ```
//! The table is a cache: if it is full, a new host replaces another one, which is learnt again from the next
//! message about it. A host that is not in the table still gets packets, because a router on the path may
//! fragment them.

use crate::base::time::Instant;
use core::net::Ipv4Addr;
use gatun_mem::hash::Hasher64;
use gatun_mem::{Footprint, HugeVec, OutOfMemory};

/// Lifetime of a known path MTU (RFC 1191 6.3).
pub(crate) const LIFETIME_MS: u32 = 10 * 60 * 1000;
/// Lower bound of a learnt path MTU, so that forged messages cannot cause tiny fragments. If a real path is
/// smaller, its routers cut further.
const MTU_MIN: u16 = 552;
/// Places that a host may have.
const WAYS: usize = 4;

#[derive(Clone, Copy, Debug, zerocopy::FromZeros)]
#[repr(C)]
struct Path {
    remote: u32,
    mtu: u16,
    _unused: u16,
    /// Time after which the place counts as empty.
    until_ms: u64,
}

/// Paths of small MTU.
pub(crate) struct Paths {
    /// Sets of [`WAYS`] places, a power of two of them; empty if learning is off.
    places: HugeVec<Path>,
    hasher: Hasher64,
    /// Lower bound of all known path MTUs; `u32::MAX` if none is known.
    smallest: u32,
    /// Time at which the last path is forgotten.
    until: Instant,
}

impl Paths {
    /// Creates a table with room for `max` hosts, and for at most four times as many.
    ///
    /// # Errors
    /// Returns an error if memory is short.
    pub(crate) fn new(max: u32, hasher: Hasher64) -> Result<Self, OutOfMemory> {
        let places = HugeVec::new(Self::places(max))?;
        Ok(Paths { places, hasher, smallest: u32::MAX, until: Instant(0) })
    }

    /// Memory use of [`Paths::new`].
    pub(crate) fn footprint(max: u32) -> Footprint {
        HugeVec::<Path>::footprint(Self::places(max))
    }

    fn places(max: u32) -> usize {
        if max == 0 { 0 } else { (max as usize).div_ceil(WAYS).next_power_of_two() * WAYS }
    }

    /// Returns whether no path is known.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.smallest == u32::MAX
    }

    /// Returns whether a packet that has `len` bytes as IPv4 is too large for the path to `remote`.
    #[inline(always)]
    pub(crate) fn is_too_large(&mut self, now: Instant, remote: Ipv4Addr, len: u32) -> bool {
        len > self.smallest && self.of(now, remote).is_some_and(|mtu| len > u32::from(mtu))
    }

    /// Returns the MTU of the path to `remote`, bytes, if a small one is known.
    #[inline(never)]
    pub(crate) fn of(&mut self, now: Instant, remote: Ipv4Addr) -> Option<u16> {
        if now >= self.until {
            self.smallest = u32::MAX;
            return None;
        }
        let known = self.set(remote)?.iter().find(|p| p.until_ms > now.0 && p.remote == u32::from(remote))?;
        Some(known.mtu)
    }

    /// Same as [`of`](Self::of), without any change.
    pub(crate) fn known(&self, now: Instant, remote: Ipv4Addr) -> Option<u16> {
        let first = self.first(remote)?;
        let set = self.places.get(first..first + WAYS)?;
        set.iter().find(|p| p.until_ms > now.0 && p.remote == u32::from(remote)).map(|path| path.mtu)
    }

    /// Learns the MTU of the path to `remote`. Returns `true` if this evicted another host.
    pub(crate) fn learn(&mut self, now: Instant, remote: Ipv4Addr, mtu: u16) -> bool {
        let (remote, mtu) = (u32::from(remote), mtu.max(MTU_MIN));
        let Some(set) = self.set(remote.into()) else { return false };
        let known = set.iter().position(|path| path.remote == remote);
        let soonest = || set.iter().enumerate().min_by_key(|(_, path)| path.until_ms).map(|(at, _)| at);
        let Some(place) = known.or_else(soonest).and_then(|at| set.get_mut(at)) else { return false };
        let evicted = place.remote != remote && place.until_ms > now.0;
        let until = now.plus_ms(LIFETIME_MS.into());
        *place = Path { remote, mtu, _unused: 0, until_ms: until.0 };
        self.smallest = self.smallest.min(mtu.into());
        self.until = self.until.max(until);
        evicted
    }

    fn set(&mut self, remote: Ipv4Addr) -> Option<&mut [Path]> {
        let first = self.first(remote)?;
        self.places.get_mut(first..first + WAYS)
    }

    /// Returns the first of the places that a host may have.
    fn first(&self, remote: Ipv4Addr) -> Option<usize> {
        let sets = self.places.len() / WAYS;
        let hash = self.hasher.hash4([u32::from(remote).into(), 0, 0, 0]) as usize;
        Some((hash & sets.checked_sub(1)?) * WAYS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(n: u32) -> Ipv4Addr {
        Ipv4Addr::from(0xcb00_7100 + n)
    }

    fn paths(max: u32) -> Paths {
        Paths::new(max, Hasher64::new([7; 4])).unwrap()
    }

    #[test]
    fn a_path_is_known_for_ten_minutes_from_the_last_message_on() {
        let mut paths = paths(16);
        let at = |ms: u32| Instant(5_000 + u64::from(ms));
        assert!(paths.is_empty() && !paths.learn(at(0), host(1), 905) && !paths.is_empty());
        assert!(!paths.learn(at(1_000), host(1), 900));
        assert_eq!(paths.of(at(1_000 + LIFETIME_MS - 1), host(1)), Some(900));
        assert_eq!(paths.of(at(1_000), host(2)), None);
        assert!(paths.is_too_large(at(1_000), host(1), 901) && !paths.is_too_large(at(1_000), host(1), 900));
        assert_eq!(paths.of(at(1_000 + LIFETIME_MS), host(1)), None);
        assert!(paths.is_empty(), "no path is known, so no look-up is made");
    }

    #[test]
    fn no_message_makes_packets_smaller_than_552_bytes() {
        let mut paths = paths(16);
        paths.learn(Instant(0), host(1), 68);
        assert_eq!(paths.of(Instant(0), host(1)), Some(MTU_MIN));
    }

    #[test]
    fn a_full_table_evicts_the_host_with_the_oldest_message_and_counts_it() {
        let mut paths = paths(4);
        for n in 0..4 {
            assert!(!paths.learn(Instant(n.into()), host(n), 1000));
        }
        assert!(paths.learn(Instant(10), host(9), 1000));
        assert_eq!(paths.of(Instant(10), host(0)), None);
        assert!([1, 2, 3, 9].iter().all(|&n| paths.of(Instant(10), host(n)) == Some(1000)));
    }

    #[test]
    fn a_table_without_room_learns_nothing() {
        let mut paths = paths(0);
        assert!(!paths.learn(Instant(0), host(1), 1000));
        assert_eq!(paths.of(Instant(0), host(1)), None);
        assert_eq!(Paths::footprint(0), Footprint::default());
    }
}
