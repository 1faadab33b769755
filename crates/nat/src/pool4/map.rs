//! Which addresses a pool has, their numbers, and which ports each of them has.

use super::TRANSPORTS;
use crate::build_error::BuildError;
use crate::plan::{Blocks, Net6, PoolRange, Transport};
use crate::ports::Layout;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::ops::Range;
use gatun_mem::OutOfMemory;

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
    /// The size of a block is no power of two, or out of bounds.
    BlockSize(u16),
    /// A network is smaller than a subscriber, or has too many.
    Inside(Net6),
    /// Deterministic allocation needs a block for each subscriber.
    TooFewBlocks {
        /// Subscribers that the configuration names.
        subscribers: u64,
        /// Blocks without those of the overflow.
        blocks: u64,
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
            PoolError::BlockSize(size) => {
                let (min, max) = (Blocks::SIZE_MIN, Blocks::SIZE_MAX);
                write!(f, "blocks of {size} ports: the size is a power of two from {min} to {max}")
            }
            PoolError::Inside(net) => {
                write!(f, "{}/{} is not made of whole subscribers, or of too many", net.addr, net.len)
            }
            PoolError::TooFewBlocks { subscribers, blocks } => {
                write!(f, "{subscribers} subscribers, but only {blocks} blocks for them")
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

/// Addresses in a row, numbered from `ix` on.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: u32,
    last: u32,
    ix: u32,
}

/// The addresses of all pools: which pool's one is, and its number there. No address is in two pools.
pub(crate) struct AddressOwners {
    /// The first address of all, and how far the last is from it: most addresses are outside, at one look.
    first: u32,
    width: u32,
    /// In order of address, with the number of the pool.
    spans: Vec<(Span, usize)>,
}

impl AddressOwners {
    /// # Errors
    /// Where an address is in two pools.
    pub(crate) fn new<'p>(pools: impl Iterator<Item = &'p AddressMap>) -> Result<Self, BuildError> {
        let of_pool = |(number, map): (usize, &'p AddressMap)| map.spans.iter().map(move |s| (*s, number));
        let mut spans: Vec<(Span, usize)> = pools.enumerate().flat_map(of_pool).collect();
        spans.sort_by_key(|(span, _)| span.first);
        if let Some(shared) = spans.iter().zip(spans.iter().skip(1)).find(|(a, b)| a.0.last >= b.0.first) {
            let address = Ipv4Addr::from(shared.1.0.first);
            return Err(BuildError(format!("the address {address} is in two pools")));
        }
        let first = spans.first().map_or(0, |(span, _)| span.first);
        let width = spans.last().map_or(0, |(span, _)| span.last - first);
        Ok(AddressOwners { first, width, spans })
    }

    /// The number of the pool that an address is in, and its number there.
    #[inline(always)]
    pub(crate) fn find(&self, address: Ipv4Addr) -> Option<(usize, u32)> {
        let a = u32::from(address);
        if a.wrapping_sub(self.first) > self.width {
            return None;
        }
        let (span, pool) = match self.spans.as_slice() {
            [one] => one,
            spans => spans.get(spans.partition_point(|(span, _)| span.last < a))?,
        };
        (span.first <= a && a <= span.last).then(|| (*pool, span.ix + (a - span.first)))
    }
}

/// Addresses in a row with the same rule: `layouts` by transport. Ends where the next one begins.
#[derive(Clone, Copy, Debug)]
struct Section {
    ix: u32,
    layouts: [usize; 3],
}

/// What the ranges of a pool come to.
pub(crate) struct AddressMap {
    spans: Vec<Span>,
    sections: Vec<Section>,
    layouts: Vec<Layout>,
    addresses: u32,
}

impl AddressMap {
    /// How many addresses there are: numbers run from 0 to one less.
    pub(crate) fn addresses(&self) -> u32 {
        self.addresses
    }

    /// The number of an address.
    #[inline]
    pub(crate) fn address_ix(&self, address: Ipv4Addr) -> Option<u32> {
        let a = u32::from(address);
        let span = match self.spans.as_slice() {
            [one] => one,
            spans => spans.get(spans.partition_point(|s| s.last < a))?,
        };
        (span.first <= a && a <= span.last).then(|| span.ix + (a - span.first))
    }

    /// The address of a number; the unspecified one where there is none such.
    #[inline]
    pub(crate) fn address(&self, ix: u32) -> Ipv4Addr {
        let at = self.spans.partition_point(|s| s.ix <= ix).wrapping_sub(1);
        let found = self.spans.get(at).filter(|_| ix < self.addresses);
        found.map_or(Ipv4Addr::UNSPECIFIED, |s| Ipv4Addr::from(s.first + (ix - s.ix)))
    }

    /// Which ports of an address are the pool's.
    #[inline]
    pub(crate) fn layout(&self, transport: Transport, ix: u32) -> Option<&Layout> {
        let sections = &self.sections;
        let section = sections.get(sections.partition_point(|s| s.ix <= ix).wrapping_sub(1));
        let section = section.filter(|_| ix < self.addresses)?;
        self.layouts.get(section.layouts[transport as usize])
    }

    /// Addresses in a row that have the same ports, and those ports by transport.
    pub(crate) fn sections(&self) -> impl Iterator<Item = (Range<u32>, [&Layout; 3])> {
        let ends = self.sections.iter().skip(1).map(|s| s.ix).chain([self.addresses]);
        self.sections.iter().zip(ends).filter_map(|(s, end)| {
            let [tcp, udp, icmp] = s.layouts.map(|number| self.layouts.get(number));
            Some((s.ix..end, [tcp?, udp?, icmp?]))
        })
    }

    /// Cuts the address space wherever a range begins or ends: between two cuts all addresses have the
    /// same rule.
    pub(crate) fn new(ranges: &[PoolRange]) -> Result<Self, PoolError> {
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
            layouts[transport as usize] = self.layout_of(usable(ports, transport), known);
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
    fn layout_of(&mut self, ports: Vec<(u16, u16)>, known: &mut BTreeMap<Vec<(u16, u16)>, usize>) -> usize {
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
