//! Map of a pool's addresses, their numbers, and the ports of each.

use super::Layout;
use crate::base::build_error::BuildError;
use crate::base::plan::{Blocks, Net6, PoolRange, Transport};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::ops::Range;
use gatun_mem::OutOfMemory;
use gatun_wire::text::{counted, group};

/// Reason why a pool cannot be created.
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
    /// The size of a block is not a power of two, or is out of bounds.
    BlockSize(u16),
    /// A network is smaller than a subscriber, or has too many.
    Inside(Net6),
    /// Deterministic allocation needs a block for each subscriber.
    TooFewBlocks {
        /// Subscribers that the configuration names.
        subscribers: u64,
        /// Number of blocks without overflow blocks.
        blocks: u64,
    },
    /// A running pool has room for this many addresses only, which is not enough for the added ones.
    Room(u32),
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
                write!(f, "two ranges hold {} port {port} of {address}", transport.name())
            }
            PoolError::BlockSize(size) => {
                let (min, max) = (Blocks::SIZE_MIN, Blocks::SIZE_MAX);
                write!(
                    f,
                    "blocks of {}: the size is a power of two from {min} to {}",
                    counted((*size).into(), "port"),
                    group(max.into())
                )
            }
            PoolError::Inside(net) => {
                write!(
                    f,
                    "{}/{} is smaller than a subscriber, or has too many subscribers",
                    net.addr, net.len
                )
            }
            PoolError::TooFewBlocks { subscribers, blocks } => {
                write!(
                    f,
                    "{}, but only {} for them",
                    counted(*subscribers, "subscriber"),
                    counted(*blocks, "block")
                )
            }
            PoolError::Room(room) => {
                write!(
                    f,
                    "the running pool has room for {}: restart to get more",
                    counted((*room).into(), "address")
                )
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

/// Consecutive addresses, numbered from `ix` on.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: u32,
    last: u32,
    ix: u32,
}

/// Owners of the addresses of all pools: the pool of an address, and its number there. No address is in two
/// pools.
pub(crate) struct AddressOwners {
    /// First address of all, and the distance of the last from it: one comparison excludes most addresses.
    first: u32,
    width: u32,
    /// Spans in the order of their addresses, with the numbers of their pools.
    spans: Vec<(Span, usize)>,
}

impl AddressOwners {
    /// # Errors
    /// Returns an error if an address is in two pools.
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

    /// Returns the number of an address's pool, and the address's number there.
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

/// Consecutive addresses, with consecutive numbers, and the same rule: `layouts` by transport.
#[derive(Clone, Copy, Debug)]
struct Section {
    ix: u32,
    len: u32,
    layouts: [usize; 3],
}

/// Addresses of a pool, their numbers and their ports.
///
/// In a new pool, numbers run without gaps in the order of addresses. A pool that changes while it runs keeps
/// the numbers of the addresses that stay; new addresses get free numbers.
#[derive(Debug)]
pub(crate) struct AddressMap {
    /// Spans in the order of their addresses.
    spans: Vec<Span>,
    /// The same spans, in order of number.
    numbers: Vec<Span>,
    /// Sections in the order of their addresses.
    sections: Vec<Section>,
    /// The same sections, in order of number.
    section_numbers: Vec<Section>,
    layouts: Vec<Layout>,
    addresses: u32,
}

impl AddressMap {
    /// Number of addresses.
    pub(crate) fn addresses(&self) -> u32 {
        self.addresses
    }

    /// Returns the number of an address.
    #[inline]
    pub(crate) fn address_ix(&self, address: Ipv4Addr) -> Option<u32> {
        let a = u32::from(address);
        let span = match self.spans.as_slice() {
            [one] => one,
            spans => spans.get(spans.partition_point(|s| s.last < a))?,
        };
        (span.first <= a && a <= span.last).then(|| span.ix + (a - span.first))
    }

    /// Returns the address of a number; the unspecified one if no address has the number.
    #[inline]
    pub(crate) fn address(&self, ix: u32) -> Ipv4Addr {
        let found =
            of_number(&self.numbers, ix, |s| s.ix).filter(|s| ix.wrapping_sub(s.ix) <= s.last - s.first);
        found.map_or(Ipv4Addr::UNSPECIFIED, |s| Ipv4Addr::from(s.first + (ix - s.ix)))
    }

    /// Iterates over the addresses from the first to the last one that are in the pool, with their numbers.
    pub(crate) fn between(&self, first: Ipv4Addr, last: Ipv4Addr) -> impl Iterator<Item = (u32, Ipv4Addr)> {
        let (first, last) = (u32::from(first), u32::from(last));
        let from = self.spans.partition_point(|span| span.last < first);
        let spans = self.spans.get(from..).unwrap_or_default().iter().take_while(move |s| s.first <= last);
        spans.flat_map(move |span| {
            let address = move |a: u32| (span.ix + (a - span.first), Ipv4Addr::from(a));
            (span.first.max(first)..=span.last.min(last)).map(address)
        })
    }

    /// Returns the number of the `n`th address, in any order.
    pub(crate) fn nth(&self, mut n: u32) -> u32 {
        for span in &self.numbers {
            let len = span.last - span.first + 1;
            if n < len {
                return span.ix + n;
            }
            n -= len;
        }
        0
    }

    /// Returns the pool's ports of an address.
    #[inline]
    pub(crate) fn layout(&self, transport: Transport, ix: u32) -> Option<&Layout> {
        let section = self.section_of(ix)?;
        self.layouts.get(*transport.of(&section.layouts))
    }

    #[inline]
    fn section_of(&self, ix: u32) -> Option<&Section> {
        of_number(&self.section_numbers, ix, |s| s.ix).filter(|s| ix.wrapping_sub(s.ix) < s.len)
    }

    /// Returns the rule of an address, as a number.
    pub(crate) fn rule(&self, ix: u32) -> Option<[usize; 3]> {
        self.section_of(ix).map(|section| section.layouts)
    }

    /// Returns whether an address has this number.
    pub(crate) fn has(&self, ix: u32) -> bool {
        self.section_of(ix).is_some()
    }

    /// Returns whether an address has the same ports in both maps.
    pub(crate) fn same_ports(&self, other: &AddressMap, ix: u32) -> bool {
        Transport::ALL.iter().all(|&t| match (self.layout(t, ix), other.layout(t, ix)) {
            (Some(a), Some(b)) => a.same(b),
            (a, b) => a.is_none() && b.is_none(),
        })
    }

    /// Iterates over sections of consecutive addresses with the same ports, in the order of addresses: their
    /// numbers, and their ports by transport.
    pub(crate) fn sections(&self) -> impl Iterator<Item = (Range<u32>, [&Layout; 3])> {
        self.sections.iter().filter_map(|s| {
            let [tcp, udp, icmp] = s.layouts.map(|number| self.layouts.get(number));
            Some((s.ix..s.ix + s.len, [tcp?, udp?, icmp?]))
        })
    }

    /// Numbers the addresses of some ranges in order.
    pub(crate) fn new(ranges: &[PoolRange]) -> Result<Self, PoolError> {
        Self::numbered(ranges, None)
    }

    /// Numbers the addresses of other ranges for a running pool with limited room. Addresses that stay keep
    /// their numbers.
    pub(crate) fn after(&self, ranges: &[PoolRange], room: u32) -> Result<Self, PoolError> {
        Self::numbered(ranges, Some((self, room)))
    }

    /// Cuts the address space at both ends of every range. Between two cuts all addresses have the same rule.
    fn numbered(ranges: &[PoolRange], before: Option<(&AddressMap, u32)>) -> Result<Self, PoolError> {
        if let Some(&r) = ranges.iter().find(|r| r.first > r.last || r.ports.0 > r.ports.1) {
            return Err(PoolError::Backwards(r));
        }
        let mut cuts: BTreeSet<u64> = BTreeSet::new();
        let both = |(first, last): (u32, u32)| [u64::from(first), u64::from(last) + 1];
        cuts.extend(ranges.iter().flat_map(|r| both((r.first.into(), r.last.into()))));
        let known = before.map_or(&[][..], |(map, _)| &map.spans);
        cuts.extend(known.iter().flat_map(|s| both((s.first, s.last))));
        let cuts: Vec<u64> = cuts.into_iter().collect();
        let mut map = AddressMap {
            spans: Vec::new(),
            numbers: Vec::new(),
            sections: Vec::new(),
            section_numbers: Vec::new(),
            layouts: Vec::new(),
            addresses: 0,
        };
        let mut layouts = BTreeMap::new();
        let mut free = FreeNumbers::beside(before);
        for (&first, &end) in cuts.iter().zip(cuts.iter().skip(1)) {
            // Both fit: `end` is at most 2^32.
            map.add((first as u32, (end - 1) as u32), ranges, before.map(|b| b.0), &mut free, &mut layouts)?;
        }
        map.numbers = map.spans.clone();
        map.numbers.sort_by_key(|s| s.ix);
        map.section_numbers = map.sections.clone();
        map.section_numbers.sort_by_key(|s| s.ix);
        Ok(map)
    }

    /// Adds the addresses from `first` to `last`, if any range has them.
    fn add(
        &mut self,
        (first, last): (u32, u32),
        ranges: &[PoolRange],
        before: Option<&AddressMap>,
        free: &mut FreeNumbers,
        known: &mut BTreeMap<Vec<(u16, u16)>, usize>,
    ) -> Result<(), PoolError> {
        let here = |r: &&PoolRange| u32::from(r.first) <= first && last <= u32::from(r.last);
        if !ranges.iter().any(|r| here(&r)) {
            return Ok(());
        }
        let mut layouts = [0; 3];
        for transport in Transport::ALL {
            let with = ranges.iter().filter(here).filter(|r| *transport.of(&r.transports));
            let mut ports: Vec<(u16, u16)> = with.map(|r| r.ports).collect();
            ports.sort_unstable();
            if let Some((_, b)) = ports.iter().zip(ports.iter().skip(1)).find(|(a, b)| a.1 >= b.0) {
                return Err(PoolError::Overlap { address: first.into(), transport, port: b.0 });
            }
            *transport.of_mut(&mut layouts) = self.layout_of(usable(ports, transport), known);
        }
        // A pool of all 2^32 addresses does not fit the memory in any case.
        self.addresses = self.addresses.saturating_add(last - first).saturating_add(1);
        let stays = before.and_then(|map| map.address_ix(first.into()));
        let mut at = first;
        loop {
            let (ix, more) = match stays {
                Some(ix) => (ix, last - at),
                None => free.take(last - at)?,
            };
            self.push(at, more, ix, layouts);
            if at + more == last {
                return Ok(());
            }
            at += more + 1;
        }
    }

    /// Adds an address, and the `more` addresses after it.
    fn push(&mut self, first: u32, more: u32, ix: u32, layouts: [usize; 3]) {
        let last = first + more;
        match self.spans.last_mut() {
            Some(span)
                if span.last.checked_add(1) == Some(first)
                    && span.ix + (span.last - span.first) + 1 == ix =>
            {
                span.last = last
            }
            _ => self.spans.push(Span { first, last, ix }),
        }
        self.sections.push(Section { ix, len: more.saturating_add(1), layouts });
    }

    /// Returns the number of the layout of some ports, and makes it at most once.
    fn layout_of(&mut self, ports: Vec<(u16, u16)>, known: &mut BTreeMap<Vec<(u16, u16)>, usize>) -> usize {
        if let Some(&number) = known.get(&ports) {
            return number;
        }
        self.layouts.push(Layout::new(&ports));
        known.insert(ports, self.layouts.len() - 1);
        self.layouts.len() - 1
    }
}

/// Returns the rows that may contain the number `ix`. Rows are in the order of their first numbers; most
/// pools have one row.
#[inline]
fn of_number<T>(rows: &[T], ix: u32, first: impl Fn(&T) -> u32) -> Option<&T> {
    match rows {
        [one] => Some(one),
        rows => rows.get(rows.partition_point(|row| first(row) <= ix).wrapping_sub(1)),
    }
}

/// Free numbers.
struct FreeNumbers {
    runs: Vec<Range<u32>>,
    /// Number of addresses that a running pool has room for.
    room: Option<u32>,
}

impl FreeNumbers {
    fn beside(before: Option<(&AddressMap, u32)>) -> Self {
        let room = before.map(|(_, room)| room);
        let map = before.map_or(&[][..], |(map, _)| &map.numbers);
        let mut runs = Vec::new();
        let mut from = 0;
        for span in map {
            runs.push(from..span.ix);
            from = span.ix + (span.last - span.first) + 1;
        }
        runs.push(from..room.unwrap_or(u32::MAX));
        FreeNumbers { runs, room }
    }

    /// Takes consecutive numbers: returns the first, and the number of those after it. It looks for `more`
    /// numbers after the first. It uses the first run that is long enough, otherwise all of the first run.
    fn take(&mut self, more: u32) -> Result<(u32, u32), PoolError> {
        let whole = self.runs.iter().position(|run| run.len() as u64 > u64::from(more));
        let run = whole.or_else(|| self.runs.iter().position(|run| !run.is_empty()));
        let none = self.room.map_or(OutOfMemory { bytes: usize::MAX }.into(), PoolError::Room);
        let run = run.and_then(|at| self.runs.get_mut(at)).ok_or(none)?;
        let ix = run.start;
        let more = more.min(run.end - run.start - 1);
        run.start += more + 1;
        Ok((ix, more))
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
