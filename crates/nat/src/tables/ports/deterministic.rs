//! Deterministic port blocks (RFC 7422): the configuration alone maps a subscriber to its block, and a port
//! to its subscriber. Both directions are pure functions, so the owner of a port is known without a log.
//!
//! Subscribers are numbered in the order of their networks, blocks in the order of addresses and ports. The
//! n-th subscriber has the n-th block. The last blocks of each address are left out: they are overflow
//! blocks, which are given out on demand and logged.

use super::Layout;
use crate::base::plan::{Allocation, Deterministic, Net6, Pool4, Transport};
use crate::tables::ports::address_map::{AddressMap, PoolError};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::Range;

/// Returns the numbers of the whole blocks of `1 << shift` ports that all `layouts` have. Layouts without any
/// port are ignored.
pub(crate) fn whole_blocks(layouts: &[&Layout], shift: u32) -> Vec<u16> {
    let with_ports = || layouts.iter().filter(|layout| layout.total() > 0);
    let mut blocks = Vec::new();
    if with_ports().next().is_some() {
        let size = 1u32 << shift;
        blocks.extend((0..1u32 << (16 - shift)).map(|slot| slot as u16).filter(|&slot| {
            let first = u32::from(slot) << shift;
            (first..first + size).all(|port| with_ports().all(|layout| layout.has(port as u16)))
        }));
    }
    blocks
}

/// Consecutive networks of equal subscribers.
#[derive(Clone, Copy, Debug)]
struct Inside {
    /// Number of its first subscriber.
    first: u64,
    net: Net6,
    /// Bits of an address after the subscriber's prefix.
    host_bits: u32,
}

/// Consecutive addresses with the same blocks.
#[derive(Clone, Debug)]
struct Area {
    /// Number of its first block.
    first: u64,
    addresses: Range<u32>,
    /// Numbers of an address's blocks, ascending.
    slots: Vec<u16>,
}

/// Formula of a deterministic pool.
#[derive(Clone, Debug)]
pub(crate) struct Formula {
    inside: Vec<Inside>,
    shift: u32,
    areas: Vec<Area>,
}

impl Formula {
    /// Creates the formula of a pool whose addresses are in `map`.
    ///
    /// # Errors
    /// Returns an error if there are more subscribers than blocks, or if the length of a network is not a
    /// multiple of a subscriber's.
    pub(crate) fn new(plan: &Deterministic, map: &AddressMap) -> Result<Self, PoolError> {
        let mut inside = Vec::new();
        let mut subscribers = 0u64;
        for net in &plan.inside {
            // An IPv4 subscriber is one address.
            let ipv4 = net.len >= 96 && net.addr.to_ipv4_mapped().is_some();
            let subscriber_len = if ipv4 { 128 } else { u32::from(plan.subscriber_len) };
            inside.push(Inside {
                first: subscribers,
                net: *net,
                host_bits: 128u32.saturating_sub(subscriber_len),
            });
            let bits = subscriber_len.checked_sub(net.len.into());
            let here = bits.and_then(|bits| 1u64.checked_shl(bits)).ok_or(PoolError::Inside(*net))?;
            subscribers = subscribers.checked_add(here).ok_or(PoolError::Inside(*net))?;
        }
        let shift = u32::from(plan.blocks.size).ilog2();
        let (mut areas, mut blocks) = (Vec::new(), 0u64);
        for (addresses, layouts) in map.sections() {
            let mut slots = whole_blocks(&layouts, shift);
            slots.truncate(slots.len().saturating_sub(plan.overflow_per_address.into()));
            let here = slots.len() as u64 * addresses.len() as u64;
            areas.push(Area { first: blocks, addresses, slots });
            blocks += here;
        }
        if subscribers > blocks {
            return Err(PoolError::TooFewBlocks { subscribers, blocks });
        }
        Ok(Formula { inside, shift, areas })
    }

    /// Returns the block of a subscriber: the number of its address, and the block's number there.
    pub(crate) fn block_of(&self, prefix: u128) -> Option<(u32, u16)> {
        let inside = self.inside.iter().find(|i| i.net.contains(Ipv6Addr::from(prefix)))?;
        let offset = prefix.wrapping_sub(u128::from(inside.net.addr));
        let number = inside.first + offset.checked_shr(inside.host_bits).unwrap_or(0) as u64;
        let area = self.areas.get(self.areas.partition_point(|a| a.first <= number).checked_sub(1)?)?;
        let within = number - area.first;
        let each = area.slots.len() as u64;
        let ix = area.addresses.start + u32::try_from(within.checked_div(each)?).ok()?;
        let slot = *area.slots.get(usize::try_from(within % each).ok()?)?;
        area.addresses.contains(&ix).then_some((ix, slot))
    }

    /// Returns the subscriber that owns a block.
    pub(crate) fn subscriber_of(&self, ix: u32, slot: u16) -> Option<u128> {
        let area = self.areas.iter().find(|a| a.addresses.contains(&ix))?;
        let at = area.slots.binary_search(&slot).ok()? as u64;
        let number = area.first + u64::from(ix - area.addresses.start) * area.slots.len() as u64 + at;
        let after = self.inside.partition_point(|i| i.first <= number);
        let inside = self.inside.get(after.checked_sub(1)?)?;
        let offset = u128::from(number - inside.first).checked_shl(inside.host_bits)?;
        let prefix = u128::from(inside.net.addr).checked_add(offset)?;
        inside.net.contains(Ipv6Addr::from(prefix)).then_some(prefix)
    }

    /// Returns the numbers of the blocks of an address that are subscribers' own.
    pub(crate) fn slots(&self, ix: u32) -> &[u16] {
        let area = self.areas.iter().find(|a| a.addresses.contains(&ix));
        area.map_or(&[], |a| a.slots.as_slice())
    }
}

/// Map of subscribers and ports in a deterministic pool, without any state.
pub struct DeterministicMap {
    map: AddressMap,
    formula: Formula,
}

impl DeterministicMap {
    /// Creates the map of a pool; `None` if its allocation is not deterministic.
    ///
    /// # Errors
    ///
    /// Returns an error if ranges contradict each other, or if there are more subscribers than blocks, as for
    /// an engine.
    pub fn new(pool: &Pool4) -> Result<Option<Self>, PoolError> {
        let Allocation::Deterministic(plan) = &pool.allocation else { return Ok(None) };
        let map = AddressMap::new(&pool.ranges)?;
        let formula = Formula::new(plan, &map)?;
        Ok(Some(DeterministicMap { map, formula }))
    }

    /// Returns the public address of a subscriber and its first and last port. IPv4 hosts are written as
    /// ::ffff:a.b.c.d. Any address of the subscriber works.
    pub fn forward(&self, inside: Ipv6Addr) -> Option<(Ipv4Addr, (u16, u16))> {
        let (ix, slot) = self.formula.block_of(inside.into())?;
        let first = slot << self.formula.shift;
        let last = first | ((1u16 << self.formula.shift) - 1);
        Some((self.map.address(ix), (first, last)))
    }

    /// Returns the first address of the subscriber that owns a port of a public address. Returns `None` for
    /// overflow ports, which only the log can resolve, and for ports outside the pool.
    pub fn reverse(&self, address: Ipv4Addr, port: u16) -> Option<Ipv6Addr> {
        let ix = self.map.address_ix(address)?;
        self.formula.subscriber_of(ix, port >> self.formula.shift).map(Ipv6Addr::from)
    }

    /// Returns whether a port of a public address is in the pool.
    pub fn covers(&self, transport: Transport, address: Ipv4Addr, port: u16) -> bool {
        debug_assert!(Transport::ALL.contains(&transport));
        let layout = self.map.address_ix(address).and_then(|ix| self.map.layout(transport, ix));
        layout.is_some_and(|layout| layout.has(port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::plan::{Blocks, PoolRange};
    use std::vec;

    fn net(text: &str) -> Net6 {
        let (addr, len) = text.split_once('/').unwrap();
        Net6::new(addr.parse().unwrap(), len.parse().unwrap()).unwrap()
    }

    fn pool(ranges: &[(&str, &str, (u16, u16))], inside: &[&str], subscriber_len: u8, size: u16) -> Pool4 {
        let range = |&(first, last, ports): &(&str, &str, (u16, u16))| PoolRange {
            first: first.parse().unwrap(),
            last: last.parse().unwrap(),
            ports,
            transports: [true; 3],
        };
        let deterministic = Deterministic {
            inside: inside.iter().map(|n| net(n)).collect(),
            subscriber_len,
            overflow_per_address: 2,
            blocks: Blocks { size, ..Blocks::default() },
        };
        Pool4 {
            ranges: ranges.iter().map(range).collect(),
            allocation: Allocation::Deterministic(deterministic),
            ..Pool4::default()
        }
    }

    // proves: R74-1, R74-2
    #[test]
    fn a_whole_16_of_hosts_maps_to_ports_and_every_port_maps_back() {
        // 126 blocks of 512 from 1024 on, two of them overflow: 124 hosts an address, 529 addresses.
        let plan = pool(&[("192.0.0.0", "192.0.2.16", (1024, 65_535))], &["::ffff:10.0.0.0/112"], 128, 512);
        let map = DeterministicMap::new(&plan).unwrap().unwrap();
        let mut ports = 0u32;
        for host in 0..=u16::MAX {
            let inside = Ipv4Addr::from(0x0a00_0000 | u32::from(host)).to_ipv6_mapped();
            let (address, (first, last)) = map.forward(inside).unwrap();
            assert!(first >= 1024 && first % 512 == 0 && last - first == 511, "{first}-{last}");
            for port in first..=last {
                assert_eq!(map.reverse(address, port), Some(inside));
                ports += 1;
            }
        }
        assert_eq!(ports, 65_536 * 512);
        // All other ports belong to no subscriber.
        let mut owned = 0u32;
        for ix in 0..529u32 {
            let address = Ipv4Addr::from(0xc000_0000 + ix);
            owned += (0..=u16::MAX).filter(|&port| map.reverse(address, port).is_some()).count() as u32;
            for port in (0..1024).chain(64_512..=65_535) {
                assert_eq!(map.reverse(address, port), None, "below 1024, or overflow");
            }
        }
        assert_eq!(owned, ports);
        assert_eq!(map.forward("::ffff:10.1.0.0".parse().unwrap()), None);
        assert_eq!(map.reverse("192.0.2.17".parse().unwrap(), 2000), None);
        assert!(map.covers(Transport::Tcp, "192.0.2.0".parse().unwrap(), 65_535));
    }

    // proves: R74-1
    #[test]
    fn several_networks_and_ranges_follow_each_other() {
        let plan = pool(
            &[("198.51.100.0", "198.51.100.1", (1000, 5000)), ("192.0.2.9", "192.0.2.9", (30_000, 65_535))],
            &["2001:db8:5::/62", "2001:db8:1::/60"],
            64,
            1024,
        );
        let map = DeterministicMap::new(&plan).unwrap().unwrap();
        let subnet = |text: &str| map.forward(text.parse().unwrap());
        let at = |address: &str, first| Some((address.parse().unwrap(), (first, first + 1023)));
        // 192.0.2.9 has blocks 30..=63 less two, the other two have 1024.. and 2048.. each.
        assert_eq!(subnet("2001:db8:5::7"), at("192.0.2.9", 30_720));
        assert_eq!(subnet("2001:db8:5:3:ffff::"), at("192.0.2.9", 30_720 + 3 * 1024));
        assert_eq!(subnet("2001:db8:1::"), at("192.0.2.9", 30_720 + 4 * 1024));
        assert_eq!(subnet("2001:db8:5:4::"), None);
        let back = map.reverse("192.0.2.9".parse().unwrap(), 30_720 + 4 * 1024 + 5);
        assert_eq!(back, Some("2001:db8:1::".parse().unwrap()));
    }

    #[test]
    fn more_subscribers_than_blocks_are_refused() {
        let one = [("192.0.2.0", "192.0.2.0", (1024, 65_535))];
        let error = |plan| DeterministicMap::new(&plan).err().unwrap();
        let plan = pool(&one, &["::ffff:10.0.0.0/121"], 128, 512);
        assert_eq!(error(plan), PoolError::TooFewBlocks { subscribers: 128, blocks: 124 });
        let plan = pool(&one, &["2001:db8::/63"], 56, 512);
        assert_eq!(error(plan), PoolError::Inside(net("2001:db8::/63")));
        assert!(DeterministicMap::new(&Pool4::default()).unwrap().is_none());
    }

    #[test]
    fn whole_blocks_lie_in_all_layouts_that_have_ports() {
        let low = Layout::new(&[(1000, 2000)]);
        let high = Layout::new(&[(1500, 3000)]);
        let none = Layout::new(&[]);
        assert_eq!(whole_blocks(&[&low, &low, &none], 8), vec![4, 5, 6]);
        assert_eq!(whole_blocks(&[&low, &high, &none], 8), vec![6]);
        assert_eq!(whole_blocks(&[&none], 8), Vec::<u16>::new());
    }
}
