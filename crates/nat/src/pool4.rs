//! Public IPv4 addresses: their numbers, their ports, and who has which.
//!
//! The addresses of a pool are numbered from 0 without gaps, in ascending order. The pool is dense, so an
//! outside transport address needs no hash: `(number, port)` indexes an array of record numbers, one array a
//! transport, whose untouched pages cost nothing:
//!
//! ```text
//! bindings[transport][number << 16 | port] = record number, or 0
//! sets[transport][number]                  = which ports are used
//! ```
//! Invariants: a port is given to at most one binding (RFC 4787 REQ-1, RFC 6888 REQ-8: no overloading), and
//! what was given comes back by [`Pool4State::release`] alone.

use crate::bit_tree::BitTree;
use crate::plan::{Pairing, Pool4, PoolRange, Transport};
use crate::ports::{Layout, PortSet, Wanted};
use crate::rng::Rng;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use gatun_mem::{HugeVec, OutOfMemory, prefetch_read};
use gatun_wire::DropReason;

const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::Udp, Transport::Icmp];

/// Why a pool cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// The first address or port of a range lies above its last.
    Backwards(PoolRange),
    /// Two ranges hold the same port of the same address.
    Overlap {
        /// The lowest such address.
        address: Ipv4Addr,
        /// The transport.
        transport: Transport,
        /// The lowest such port.
        port: u16,
    },
    /// Memory is short.
    OutOfMemory(OutOfMemory),
}

impl core::fmt::Display for PoolError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            PoolError::Backwards(r) => {
                let (low, high) = r.ports;
                write!(f, "range {}-{} ports {low}-{high} ends before it begins", r.first, r.last)
            }
            PoolError::Overlap { address, transport, port } => {
                write!(f, "two ranges hold {transport:?} port {port} of {address}")
            }
            PoolError::OutOfMemory(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for PoolError {}

impl From<OutOfMemory> for PoolError {
    fn from(e: OutOfMemory) -> Self {
        PoolError::OutOfMemory(e)
    }
}

/// Ports of an address, or of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Given to bindings, static ones too.
    pub used: u64,
    /// All there are.
    pub total: u64,
}

/// Addresses in a row, numbered from `ix` on.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: u32,
    last: u32,
    ix: u32,
}

/// Addresses in a row with the same rule: `layouts` by transport. Ends where the next one begins.
#[derive(Clone, Copy, Debug)]
struct Section {
    ix: u32,
    layouts: [usize; 3],
}

/// A pool and the state of its ports.
pub struct Pool4State {
    spans: Vec<Span>,
    sections: Vec<Section>,
    layouts: Vec<Layout>,
    addresses: u32,
    sets: [HugeVec<PortSet>; 3],
    bindings: [HugeVec<u32>; 3],
    /// Addresses with a free port.
    open: [BitTree; 3],
    usage: [Usage; 3],
    pairing: Pairing,
    port_parity: bool,
    pairing_broken: u64,
}

impl Pool4State {
    /// A pool, all free.
    ///
    /// # Errors
    /// Where ranges contradict each other, or memory is short.
    pub fn new(plan: &Pool4) -> Result<Self, PoolError> {
        let map = AddressMap::new(&plan.ranges)?;
        let n = map.addresses as usize;
        let ports = n.checked_mul(1 << 16).ok_or(OutOfMemory { bytes: usize::MAX })?;
        let mut pool = Pool4State {
            spans: map.spans,
            sections: map.sections,
            layouts: map.layouts,
            addresses: map.addresses,
            sets: [HugeVec::new(n)?, HugeVec::new(n)?, HugeVec::new(n)?],
            bindings: [HugeVec::new(ports)?, HugeVec::new(ports)?, HugeVec::new(ports)?],
            open: [BitTree::new(n), BitTree::new(n), BitTree::new(n)],
            usage: [Usage::default(); 3],
            pairing: plan.pairing,
            port_parity: plan.port_parity,
            pairing_broken: 0,
        };
        for (transport, ix) in TRANSPORTS.into_iter().flat_map(|t| (0..pool.addresses).map(move |ix| (t, ix)))
        {
            let total = pool.layout(transport, ix).map_or(0, Layout::total);
            pool.usage[transport as usize].total += u64::from(total);
            if total > 0 {
                pool.open[transport as usize].insert(ix as usize);
            }
        }
        Ok(pool)
    }

    /// How many addresses there are: numbers run from 0 to one less.
    pub fn addresses(&self) -> u32 {
        self.addresses
    }

    /// The number of an address.
    #[inline]
    pub fn address_ix(&self, address: Ipv4Addr) -> Option<u32> {
        let a = u32::from(address);
        let span = match self.spans.as_slice() {
            [one] => one,
            spans => spans.get(spans.partition_point(|s| s.last < a))?,
        };
        (span.first <= a && a <= span.last).then(|| span.ix + (a - span.first))
    }

    /// The address of a number; the unspecified one where there is none such.
    #[inline]
    pub fn address(&self, ix: u32) -> Ipv4Addr {
        let at = self.spans.partition_point(|s| s.ix <= ix).wrapping_sub(1);
        let found = self.spans.get(at).filter(|_| ix < self.addresses);
        found.map_or(Ipv4Addr::UNSPECIFIED, |s| Ipv4Addr::from(s.first + (ix - s.ix)))
    }

    /// Whether a port lies in the pool's ranges. Others of the same address belong to somebody else, the
    /// host perhaps; static bindings may have them.
    pub fn covers(&self, transport: Transport, ix: u32, port: u16) -> bool {
        self.layout(transport, ix).is_some_and(|l| l.has(port))
    }

    /// Finds a port and marks it as used. Returns the address's number and the port.
    ///
    /// The address is `preferred`, the one that the subscriber is paired with (RFC 4787 REQ-2, RFC 6888
    /// REQ-2); without one, `spread` (a hash of the subscriber) decides, so that a subscriber that comes back
    /// finds its address again. Where the paired address has no port left, soft pairing goes on to the next
    /// one that has, and counts it.
    ///
    /// The port is a random one of the same class, below 1024 or not, as `inside_port`, and of the same
    /// parity where that is asked for; failing that, of the same class; failing that, any (RFC 6146
    /// 3.5.1.1, RFC 4787 REQ-3, REQ-4). Identifiers of ICMP have neither class nor parity.
    ///
    /// # Errors
    /// [`DropReason::PoolEmpty`] where the pool has no port for this transport at all,
    /// [`DropReason::PortsExhausted`] where none is left that this subscriber may have.
    pub fn allocate(
        &mut self,
        rng: &mut Rng,
        transport: Transport,
        preferred: Option<u32>,
        spread: u64,
        inside_port: u16,
    ) -> Result<(u32, u16), DropReason> {
        if self.usage[transport as usize].total == 0 {
            return Err(DropReason::PoolEmpty);
        }
        let wish = preferred.unwrap_or_else(|| self.first_address(transport, spread));
        if let Some(port) = self.take_random(rng, transport, wish, inside_port) {
            return Ok((wish, port));
        }
        if preferred.is_some() && self.pairing == Pairing::Hard {
            return Err(DropReason::PortsExhausted);
        }
        let next = self.open[transport as usize].next_cyclic(wish as usize);
        let ix = next.map(|ix| ix as u32).ok_or(DropReason::PortsExhausted)?;
        let port = self.take_random(rng, transport, ix, inside_port).ok_or(DropReason::PortsExhausted)?;
        self.pairing_broken += u64::from(preferred.is_some());
        Ok((ix, port))
    }

    /// Marks a certain port as used, in the pool's ranges or not; `false` where it is already, or the
    /// address is not the pool's.
    pub fn claim(&mut self, transport: Transport, ix: u32, port: u16) -> bool {
        self.change(transport, ix, |set, layout| set.take(layout, port))
    }

    /// Marks the port of a static binding as used.
    ///
    /// # Errors
    /// [`DropReason::NotInPool`] for an address that is not the pool's, [`DropReason::StaticConflict`] for
    /// a port that is used.
    pub fn reserve(&mut self, transport: Transport, address: Ipv4Addr, port: u16) -> Result<(), DropReason> {
        let ix = self.address_ix(address).ok_or(DropReason::NotInPool)?;
        if self.claim(transport, ix, port) { Ok(()) } else { Err(DropReason::StaticConflict) }
    }

    /// Marks a port as free; `false` where it was free already. Its binding is forgotten.
    pub fn release(&mut self, transport: Transport, ix: u32, port: u16) -> bool {
        self.set_binding(transport, ix, port, 0);
        self.change(transport, ix, |set, layout| set.give_back(layout, port))
    }

    /// The number of the record that has this port, 0 where none has.
    #[inline(always)]
    pub fn binding(&self, transport: Transport, ix: u32, port: u16) -> u32 {
        self.bindings[transport as usize].get(slot(ix, port)).copied().unwrap_or(0)
    }

    /// Notes the record that has this port; 0 for none.
    #[inline]
    pub fn set_binding(&mut self, transport: Transport, ix: u32, port: u16, record: u32) {
        if let Some(b) = self.bindings[transport as usize].get_mut(slot(ix, port)) {
            *b = record;
        }
    }

    /// Asks for the line that [`Pool4State::binding`] will read.
    #[inline(always)]
    pub fn prefetch_binding(&self, transport: Transport, ix: u32, port: u16) {
        prefetch_read(&self.bindings[transport as usize], slot(ix, port));
    }

    /// Ports of the pool.
    pub fn usage(&self, transport: Transport) -> Usage {
        self.usage[transport as usize]
    }

    /// Ports of one address.
    pub fn address_usage(&self, transport: Transport, ix: u32) -> Usage {
        let used = self.sets[transport as usize].get(ix as usize).map_or(0, PortSet::used);
        let total = self.layout(transport, ix).map_or(0, Layout::total);
        Usage { used: used.into(), total: total.into() }
    }

    /// How often a subscriber got a port of another address than its own.
    pub fn pairing_broken(&self) -> u64 {
        self.pairing_broken
    }

    /// Where a new subscriber starts: the address that `spread` names, unless that is three quarters full
    /// and the one that its other half names is emptier.
    fn first_address(&self, transport: Transport, spread: u64) -> u32 {
        let scale = |half: u64| (((half & 0xffff_ffff) * u64::from(self.addresses)) >> 32) as u32;
        let (first, second) = (scale(spread >> 32), scale(spread));
        let free = |u: Usage| u.total.saturating_sub(u.used);
        let usage = self.address_usage(transport, first);
        if free(usage) * 4 > usage.total || free(self.address_usage(transport, second)) <= free(usage) {
            first
        } else {
            second
        }
    }

    /// Marks a random port of an address, as like the inside one as can be.
    fn take_random(&mut self, rng: &mut Rng, transport: Transport, ix: u32, inside_port: u16) -> Option<u16> {
        let like = |parity| Wanted::like(inside_port, parity);
        let wishes = match transport {
            Transport::Icmp => [Wanted::ANY; 3],
            Transport::Tcp | Transport::Udp => [like(self.port_parity), like(false), Wanted::ANY],
        };
        let set = self.sets[transport as usize].get(ix as usize)?;
        let layout = self.layout(transport, ix)?;
        let port = wishes.into_iter().find_map(|wanted| set.random_free(layout, wanted, rng))?;
        self.claim(transport, ix, port).then_some(port)
    }

    /// Changes a set and what is counted of it.
    fn change(
        &mut self,
        transport: Transport,
        ix: u32,
        f: impl FnOnce(&mut PortSet, &Layout) -> bool,
    ) -> bool {
        let t = transport as usize;
        let layout = section(&self.sections, ix).and_then(|s| self.layouts.get(s.layouts[t]));
        let (Some(set), Some(layout)) = (self.sets[t].get_mut(ix as usize), layout) else { return false };
        let before = set.used();
        let done = f(set, layout);
        let (after, total) = (set.used(), layout.total());
        let usage = &mut self.usage[t];
        usage.used = (usage.used + u64::from(after)).saturating_sub(u64::from(before));
        if after < total {
            self.open[t].insert(ix as usize);
        } else {
            self.open[t].remove(ix as usize);
        }
        done
    }

    fn layout(&self, transport: Transport, ix: u32) -> Option<&Layout> {
        let section = section(&self.sections, ix).filter(|_| ix < self.addresses)?;
        self.layouts.get(section.layouts[transport as usize])
    }
}

#[inline(always)]
fn slot(ix: u32, port: u16) -> usize {
    (ix as usize) << 16 | usize::from(port)
}

/// The section that an address's number lies in.
fn section(sections: &[Section], ix: u32) -> Option<&Section> {
    sections.get(sections.partition_point(|s| s.ix <= ix).wrapping_sub(1))
}

/// What the ranges of a plan come to.
struct AddressMap {
    spans: Vec<Span>,
    sections: Vec<Section>,
    layouts: Vec<Layout>,
    addresses: u32,
}

impl AddressMap {
    /// Cuts the address space wherever a range begins or ends: between two cuts all addresses have the
    /// same rule.
    fn new(ranges: &[PoolRange]) -> Result<Self, PoolError> {
        if let Some(&r) = ranges.iter().find(|r| r.first > r.last || r.ports.0 > r.ports.1) {
            return Err(PoolError::Backwards(r));
        }
        let mut cuts: BTreeSet<u64> = BTreeSet::new();
        for r in ranges {
            cuts.insert(u64::from(u32::from(r.first)));
            cuts.insert(u64::from(u32::from(r.last)) + 1);
        }
        let cuts: Vec<u64> = cuts.into_iter().collect();
        let mut map =
            AddressMap { spans: Vec::new(), sections: Vec::new(), layouts: Vec::new(), addresses: 0 };
        let mut known = BTreeMap::new();
        for (&first, &end) in cuts.iter().zip(cuts.iter().skip(1)) {
            // Both fit: `end` is at most 2^32.
            map.add(first as u32, (end - 1) as u32, ranges, &mut known)?;
        }
        Ok(map)
    }

    /// Adds the addresses from `first` to `last`, if any range has them.
    fn add(
        &mut self,
        first: u32,
        last: u32,
        ranges: &[PoolRange],
        known: &mut BTreeMap<Vec<(u16, u16)>, usize>,
    ) -> Result<(), PoolError> {
        let here = |r: &&PoolRange| u32::from(r.first) <= first && last <= u32::from(r.last);
        if !ranges.iter().any(|r| here(&r)) {
            return Ok(());
        }
        let mut layouts = [0; 3];
        for transport in TRANSPORTS {
            let with = ranges.iter().filter(here).filter(|r| r.transports[transport as usize]);
            let mut ports: Vec<(u16, u16)> = with.map(|r| r.ports).collect();
            ports.sort_unstable();
            if let Some((_, b)) = ports.iter().zip(ports.iter().skip(1)).find(|(a, b)| a.1 >= b.0) {
                return Err(PoolError::Overlap { address: first.into(), transport, port: b.0 });
            }
            layouts[transport as usize] = self.layout(usable(ports, transport), known);
        }
        match self.spans.last_mut() {
            Some(span) if span.last.checked_add(1) == Some(first) => span.last = last,
            _ => self.spans.push(Span { first, last, ix: self.addresses }),
        }
        self.sections.push(Section { ix: self.addresses, layouts });
        // A pool of all 2^32 addresses does not fit the memory in any case.
        self.addresses = self.addresses.saturating_add(last - first).saturating_add(1);
        Ok(())
    }

    /// The number of the layout of some ports, made at most once.
    fn layout(&mut self, ports: Vec<(u16, u16)>, known: &mut BTreeMap<Vec<(u16, u16)>, usize>) -> usize {
        if let Some(&number) = known.get(&ports) {
            return number;
        }
        self.layouts.push(Layout::new(&ports));
        known.insert(ports, self.layouts.len() - 1);
        self.layouts.len() - 1
    }
}

/// Port 0 is reserved in TCP and UDP (RFC 6335 6); the identifier 0 is as good as any other.
fn usable(mut ports: Vec<(u16, u16)>, transport: Transport) -> Vec<(u16, u16)> {
    if transport != Transport::Icmp {
        ports.retain_mut(|p| {
            p.0 = p.0.max(1);
            p.0 <= p.1
        });
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;
    use std::collections::BTreeMap as Model;
    use std::collections::BTreeSet as Set;
    use std::string::ToString;
    use std::vec;

    const ALL: [bool; 3] = [true; 3];

    fn range(first: &str, last: &str, ports: (u16, u16), transports: [bool; 3]) -> PoolRange {
        PoolRange { first: first.parse().unwrap(), last: last.parse().unwrap(), ports, transports }
    }

    fn plan(ranges: &[PoolRange], pairing: Pairing, port_parity: bool) -> Pool4 {
        Pool4 { name: "test".to_string(), ranges: ranges.to_vec(), pairing, port_parity }
    }

    fn pool(ranges: &[PoolRange]) -> Pool4State {
        Pool4State::new(&plan(ranges, Pairing::Soft, false)).unwrap()
    }

    fn rng() -> Rng {
        Rng::new([1, 2, 3, 4])
    }

    #[test]
    fn addresses_are_numbered_in_order_without_gaps() {
        let ranges = [
            range("203.0.113.7", "203.0.113.7", (1, 2), ALL),
            range("192.0.2.0", "192.0.2.9", (1024, 2000), ALL),
            range("192.0.2.5", "192.0.2.14", (2001, 3000), ALL),
            range("255.255.255.255", "255.255.255.255", (1, 1), ALL),
            range("0.0.0.0", "0.0.0.0", (1, 1), ALL),
        ];
        let pool = pool(&ranges);
        assert_eq!(pool.addresses(), 18);
        let mut ix = 0;
        for a in 0..=255 {
            for high in [0, 0xc000_0200, 0xcb00_7100, 0xffff_ff00u32] {
                let a = Ipv4Addr::from(high | a);
                if ranges.iter().any(|r| r.first <= a && a <= r.last) {
                    assert_eq!(pool.address_ix(a).map(|ix| pool.address(ix)), Some(a));
                    ix += 1;
                } else {
                    assert_eq!(pool.address_ix(a), None, "{a}");
                }
            }
        }
        assert_eq!(ix, 18);
        let in_order: Vec<Ipv4Addr> = (0..18).map(|ix| pool.address(ix)).collect();
        assert!(in_order.is_sorted());
        assert_eq!(pool.address(18), Ipv4Addr::UNSPECIFIED);
        assert_eq!(pool.address(u32::MAX), Ipv4Addr::UNSPECIFIED);
    }

    #[test]
    fn ranges_may_share_addresses_but_not_their_ports() {
        let one = range("192.0.2.0", "192.0.2.9", (1024, 2000), ALL);
        let touching = range("192.0.2.5", "192.0.2.20", (2000, 3000), [true, false, false]);
        let error = Pool4State::new(&plan(&[touching, one], Pairing::Soft, false)).err().unwrap();
        let address = "192.0.2.5".parse().unwrap();
        assert_eq!(error, PoolError::Overlap { address, transport: Transport::Tcp, port: 2000 });
        assert_eq!(error.to_string(), "two ranges hold Tcp port 2000 of 192.0.2.5");
        let udp_only = PoolRange { transports: [false, true, false], ..one };
        pool(&[touching, udp_only]);
        let backwards = PoolRange { ports: (5, 4), ..one };
        let error = Pool4State::new(&plan(&[backwards], Pairing::Soft, false)).err().unwrap();
        assert_eq!(error, PoolError::Backwards(backwards));
    }

    #[test]
    fn a_pool_of_all_addresses_is_refused_without_harm() {
        let all = range("0.0.0.0", "255.255.255.255", (1, 65_535), ALL);
        let error = Pool4State::new(&plan(&[all], Pairing::Soft, false)).err().unwrap();
        assert!(matches!(error, PoolError::OutOfMemory(_)));
    }

    // proves: R68-13, R47-3, R53-7
    #[test]
    fn every_port_of_a_pool_is_given_once_before_the_first_failure() {
        let mut pool = pool(&[
            range("192.0.2.0", "192.0.2.1", (1000, 5000), ALL),
            range("192.0.2.1", "192.0.2.2", (0, 500), [false, true, true]),
        ]);
        let mut rng = rng();
        for (transport, total) in [
            (Transport::Tcp, 2 * 4001),
            (Transport::Udp, 2 * 4001 + 2 * 500),
            (Transport::Icmp, 2 * 4001 + 2 * 501),
        ] {
            assert_eq!(pool.usage(transport), Usage { used: 0, total });
            let mut given = Set::new();
            for n in 0..total {
                let outside = pool.allocate(&mut rng, transport, None, n << 40 | n, 40_000).unwrap();
                assert!(given.insert(outside), "{outside:?} twice");
                assert!(pool.covers(transport, outside.0, outside.1));
            }
            assert_eq!(pool.usage(transport), Usage { used: total, total });
            let next = pool.allocate(&mut rng, transport, None, 0, 40_000);
            assert_eq!(next, Err(DropReason::PortsExhausted));
            for &(ix, port) in &given {
                assert!(pool.release(transport, ix, port));
                assert!(!pool.release(transport, ix, port));
            }
            assert_eq!(pool.usage(transport), Usage { used: 0, total });
        }
        assert_eq!(pool.pairing_broken(), 0, "nobody was paired");
    }

    #[test]
    fn a_pool_without_a_transport_says_so() {
        let mut pool = pool(&[range("192.0.2.0", "192.0.2.1", (0, 0), ALL)]);
        assert_eq!(pool.allocate(&mut rng(), Transport::Tcp, None, 0, 5), Err(DropReason::PoolEmpty));
        assert_eq!(pool.allocate(&mut rng(), Transport::Icmp, None, 0, 5), Ok((0, 0)));
    }

    // proves: A61-25, R47-3
    #[test]
    fn the_port_class_is_kept_while_it_lasts_and_then_any_port_does() {
        let mut pool = pool(&[range("192.0.2.0", "192.0.2.0", (1000, 1099), ALL)]);
        let mut rng = rng();
        for n in 0..100 {
            let (_, port) = pool.allocate(&mut rng, Transport::Udp, Some(0), 0, 53).unwrap();
            assert_eq!(port < 1024, n < 24, "the {n}th is {port}");
        }
        assert!(pool.allocate(&mut rng, Transport::Udp, Some(0), 0, 53).is_err());
    }

    // proves: A61-25, R47-4
    #[test]
    fn parity_is_kept_while_it_lasts_then_the_class() {
        let ranges = [range("192.0.2.0", "192.0.2.0", (1020, 1033), ALL)];
        let mut pool = Pool4State::new(&plan(&ranges, Pairing::Soft, true)).unwrap();
        let mut rng = rng();
        let ports: Vec<u16> =
            (0..14).map(|_| pool.allocate(&mut rng, Transport::Tcp, Some(0), 0, 4001).unwrap().1).collect();
        let (odd, rest) = ports.split_at(5);
        assert!(odd.iter().all(|p| p % 2 == 1 && *p >= 1024), "{ports:?}");
        let (even, low) = rest.split_at(5);
        assert!(even.iter().all(|p| p % 2 == 0 && *p >= 1024), "{ports:?}");
        assert!(low.iter().all(|p| *p < 1024), "{ports:?}");
    }

    // proves: A61-25
    #[test]
    fn a_paired_subscriber_keeps_its_address_over_ports_and_transports() {
        let mut pool = pool(&[range("192.0.2.0", "192.0.2.15", (1024, 65_535), ALL)]);
        let mut rng = rng();
        for n in 0..3000u16 {
            let transport = TRANSPORTS[usize::from(n) % 3];
            assert_eq!(pool.allocate(&mut rng, transport, Some(11), 0, n).unwrap().0, 11);
        }
        assert_eq!(pool.pairing_broken(), 0);
    }

    #[test]
    fn soft_pairing_goes_on_to_the_next_address_and_hard_pairing_does_not() {
        let ranges = [range("192.0.2.0", "192.0.2.3", (2000, 2009), ALL)];
        let mut rng = rng();
        let mut hard = Pool4State::new(&plan(&ranges, Pairing::Hard, false)).unwrap();
        let mut soft = Pool4State::new(&plan(&ranges, Pairing::Soft, false)).unwrap();
        let mut used = vec![];
        for n in 0..41 {
            let at = soft.allocate(&mut rng, Transport::Tcp, Some(2), 0, 4000).map(|(ix, _)| ix);
            used.extend(at.ok());
            let at = hard.allocate(&mut rng, Transport::Tcp, Some(2), 0, 4000).map(|(ix, _)| ix);
            assert_eq!(at, if n < 10 { Ok(2) } else { Err(DropReason::PortsExhausted) });
        }
        let expected: Vec<u32> = [2, 3, 0, 1].into_iter().flat_map(|ix| [ix; 10]).collect();
        assert_eq!(used, expected, "after 40 ports nothing is left");
        assert_eq!((soft.pairing_broken(), hard.pairing_broken()), (30, 0));
        let both_2 = 2 << 62 | 2 << 30;
        let first = hard.allocate(&mut rng, Transport::Tcp, None, both_2, 4000).unwrap();
        assert_eq!(first.0, 3, "a new subscriber is not bound to a full address");
    }

    #[test]
    fn first_addresses_spread_evenly_and_come_back() {
        let mut pool = pool(&[range("192.0.2.0", "192.0.2.99", (1024, 65_535), ALL)]);
        let mut rng = rng();
        let mut seen = vec![0u32; 100];
        for _ in 0..10_000 {
            let spread = u64::from(rng.next_u32()) << 32 | u64::from(rng.next_u32());
            let (ix, port) = pool.allocate(&mut rng, Transport::Udp, None, spread, 4000).unwrap();
            seen[ix as usize] += 1;
            let again = pool.allocate(&mut rng, Transport::Udp, None, spread, 4000).unwrap();
            assert_eq!(again.0, ix);
            pool.release(Transport::Udp, ix, port);
        }
        assert!(seen.iter().all(|s| (50..150).contains(s)), "{seen:?}");
    }

    #[test]
    fn a_subscriber_starts_elsewhere_where_its_address_is_nearly_full() {
        let mut pool = pool(&[range("192.0.2.0", "192.0.2.1", (2000, 2099), ALL)]);
        let mut rng = rng();
        let to_0_else_1 = 1 << 31;
        for n in 0..100 {
            let (ix, _) = pool.allocate(&mut rng, Transport::Tcp, None, to_0_else_1, 4000).unwrap();
            assert_eq!(ix, u32::from(n >= 75), "the {n}th");
        }
    }

    #[test]
    fn reserved_ports_are_given_to_nobody_else() {
        let mut pool = pool(&[range("192.0.2.1", "192.0.2.1", (2000, 2003), ALL)]);
        let address = "192.0.2.1".parse().unwrap();
        pool.reserve(Transport::Tcp, address, 2001).unwrap();
        pool.reserve(Transport::Tcp, address, 443).unwrap();
        assert!(!pool.covers(Transport::Tcp, 0, 443));
        assert_eq!(pool.usage(Transport::Tcp), Usage { used: 1, total: 4 });
        assert_eq!(pool.reserve(Transport::Tcp, address, 443), Err(DropReason::StaticConflict));
        let elsewhere = "192.0.2.2".parse().unwrap();
        assert_eq!(pool.reserve(Transport::Tcp, elsewhere, 443), Err(DropReason::NotInPool));
        let mut rng = rng();
        let given: Set<u16> =
            (0..3).map(|_| pool.allocate(&mut rng, Transport::Tcp, None, 0, 443).unwrap().1).collect();
        assert_eq!(given, Set::from([2000, 2002, 2003]));
        assert!(pool.allocate(&mut rng, Transport::Tcp, None, 0, 443).is_err());
        assert!(pool.release(Transport::Tcp, 0, 443));
        assert!(pool.allocate(&mut rng, Transport::Tcp, None, 0, 443).is_err(), "443 is not in the range");
        assert!(pool.claim(Transport::Udp, 0, 2001), "the other transport's is another");
    }

    #[test]
    fn bindings_are_found_by_address_and_port() {
        let mut pool = pool(&[range("192.0.2.0", "192.0.2.9", (0, 65_535), ALL)]);
        for (n, port) in [(1, 0), (2, 1), (3, 65_535)] {
            for ix in [0, 9] {
                for transport in TRANSPORTS {
                    let record = n << 8 | ix << 4 | transport as u32;
                    assert_eq!(pool.binding(transport, ix, port), 0);
                    pool.set_binding(transport, ix, port, record);
                    pool.prefetch_binding(transport, ix, port);
                    assert_eq!(pool.binding(transport, ix, port), record);
                }
            }
        }
        assert!(pool.claim(Transport::Udp, 9, 65_535));
        assert!(pool.release(Transport::Udp, 9, 65_535));
        assert_eq!(pool.binding(Transport::Udp, 9, 65_535), 0, "it goes with its port");
        assert_eq!(pool.binding(Transport::Udp, 10, 5), 0);
        pool.set_binding(Transport::Udp, 10, 5, 1);
        assert!(!pool.release(Transport::Udp, u32::MAX, 5) && !pool.claim(Transport::Udp, 10, 5));
    }

    #[derive(Clone, Debug)]
    enum Op {
        Allocate { transport: Transport, preferred: Option<u32>, spread: u64, inside_port: u16 },
        Release(prop::sample::Index),
        Claim { transport: Transport, ix: u32, port: u16 },
    }

    fn op() -> impl Strategy<Value = Op> {
        let transport = || prop_oneof![Just(Transport::Tcp), Just(Transport::Udp), Just(Transport::Icmp)];
        let allocate = (transport(), prop::option::of(0..6u32), any::<u64>(), any::<u16>()).prop_map(
            |(transport, preferred, spread, inside_port)| Op::Allocate {
                transport,
                preferred,
                spread,
                inside_port,
            },
        );
        let claim = (transport(), 0..7u32, 1010..1040u16).prop_map(|(transport, ix, port)| Op::Claim {
            transport,
            ix,
            port,
        });
        prop_oneof![5 => allocate, 3 => any::<prop::sample::Index>().prop_map(Op::Release), 1 => claim]
    }

    /// Ports that exist, by the plan alone.
    fn exist(ranges: &[PoolRange]) -> Set<(Transport, Ipv4Addr, u16)> {
        let one = |r: &PoolRange| {
            let (first, last) = (u32::from(r.first), u32::from(r.last));
            let (ports, transports) = (r.ports, r.transports);
            TRANSPORTS.into_iter().filter(move |&t| transports[t as usize]).flat_map(move |t| {
                (first..=last).flat_map(move |a| (ports.0..=ports.1).map(move |p| (t, Ipv4Addr::from(a), p)))
            })
        };
        ranges.iter().flat_map(one).collect()
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_set_of_ports(
            ops in prop::collection::vec(op(), 1..400),
            hard in any::<bool>(),
            parity in any::<bool>(),
            seed in any::<u64>(),
        ) {
            let ranges = [
                range("192.0.2.1", "192.0.2.3", (1015, 1030), ALL),
                range("192.0.2.2", "192.0.2.2", (1031, 1033), [true, false, true]),
                range("198.51.100.1", "198.51.100.3", (5000, 5009), [false, true, true]),
            ];
            let pairing = if hard { Pairing::Hard } else { Pairing::Soft };
            let mut pool = Pool4State::new(&plan(&ranges, pairing, parity)).unwrap();
            let mut rng = Rng::new([seed; 4]);
            let exist = exist(&ranges);
            let mut used: Model<(Transport, Ipv4Addr, u16), u32> = Model::new();
            for op in ops {
                match op {
                    Op::Allocate { transport, preferred, spread, inside_port } => {
                        let free = |a: Option<Ipv4Addr>| exist.iter().any(|k| {
                            k.0 == transport && a.is_none_or(|a| a == k.1) && !used.contains_key(k)
                        });
                        let paired = preferred.map(|ix| pool.address(ix));
                        let own_free = paired.is_some_and(|a| free(Some(a)));
                        let may_have = free(paired.filter(|_| hard));
                        match pool.allocate(&mut rng, transport, preferred, spread, inside_port) {
                            Ok((ix, port)) => {
                                let key = (transport, pool.address(ix), port);
                                prop_assert!(exist.contains(&key));
                                prop_assert!(used.insert(key, ix).is_none());
                                if own_free {
                                    prop_assert_eq!(Some(ix), preferred);
                                }
                            }
                            Err(e) => {
                                prop_assert_eq!(e, DropReason::PortsExhausted);
                                prop_assert!(!may_have);
                            }
                        }
                    }
                    Op::Release(which) if !used.is_empty() => {
                        let (&key, &ix) = used.iter().nth(which.index(used.len())).unwrap();
                        used.remove(&key);
                        prop_assert!(pool.release(key.0, ix, key.2));
                    }
                    Op::Release(_) => {}
                    Op::Claim { transport, ix, port } => {
                        let key = (transport, pool.address(ix), port);
                        let expected = ix < 6 && !used.contains_key(&key);
                        prop_assert_eq!(pool.claim(transport, ix, port), expected);
                        if expected {
                            used.insert(key, ix);
                        }
                    }
                }
                for transport in TRANSPORTS {
                    let count = used.keys().filter(|k| k.0 == transport && exist.contains(k)).count();
                    prop_assert_eq!(pool.usage(transport).used, count as u64);
                    let by_address: u64 = (0..6).map(|ix| pool.address_usage(transport, ix).used).sum();
                    prop_assert_eq!(by_address, count as u64);
                }
            }
        }
    }
}
