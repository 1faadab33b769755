//! What of a configuration says who has a port: kept in the log, so that an answer about a past time is by the
//! configuration of that time. Deterministic pools (RFC 7422) are answered by arithmetic alone.

use gatun_nat::plan::{
    Allocation, Blocks, Deterministic, Net6, Plan, Pool4, PoolRange, Siit, StaticBinding, Transport,
};
use gatun_nat::pool4::DeterministicMap;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The part of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanInForce {
    /// Stateful instances, in the order of their numbers.
    pub instances: Vec<InstanceInForce>,
    /// Pools, in the order of their numbers.
    pub pools: Vec<PoolInForce>,
    /// Stateless instances.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub siit: Vec<SiitInForce>,
}

/// A stateless instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiitInForce {
    /// Its name.
    pub name: String,
    /// First address and length of its translation prefixes.
    pub pool6: Vec<(Ipv6Addr, u8)>,
    /// Its address mappings: first address and prefix length of each side.
    pub eamt: Vec<((Ipv4Addr, u8), (Ipv6Addr, u8))>,
}

/// An IPv4 address by an address mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The instance.
    pub instance: String,
    /// The inside address, or the first one of its prefix.
    pub inside: Ipv6Addr,
    /// The length of that prefix; 128 for a host.
    pub len: u8,
}

/// An instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceInForce {
    /// Its name.
    pub name: String,
    /// The number of its pool.
    pub pool: usize,
    /// The prefix length of its subscribers.
    pub subscriber_len: u8,
    /// Ports that always belong to somebody.
    pub static_bindings: Vec<StaticInForce>,
}

/// A port that always belongs to somebody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticInForce {
    /// tcp, udp or icmp, as a number.
    pub transport: u8,
    /// Inside.
    pub inside: (Ipv6Addr, u16),
    /// Outside.
    pub outside: (Ipv4Addr, u16),
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolInForce {
    /// Its name.
    pub name: String,
    /// How its ports are given out.
    pub allocation: AllocationInForce,
    /// Its addresses.
    pub ranges: Vec<RangeInForce>,
}

/// How the ports of a pool are given out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum AllocationInForce {
    /// One by one.
    Random,
    /// By blocks.
    Blocks {
        /// Ports of a block.
        size: u16,
    },
    /// By a formula.
    Deterministic {
        /// First address and prefix length of the networks of subscribers, in their order.
        inside: Vec<(Ipv6Addr, u8)>,
        /// The prefix length of an IPv6 subscriber.
        subscriber_len: u8,
        /// Blocks of each address that are nobody's own.
        overflow_per_address: u16,
        /// Ports of a block.
        size: u16,
    },
}

/// Some addresses and some of their ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeInForce {
    /// First address.
    pub first: Ipv4Addr,
    /// Last address.
    pub last: Ipv4Addr,
    /// First and last port.
    pub ports: (u16, u16),
    /// Whether for TCP, UDP and ICMP.
    pub transports: [bool; 3],
}

/// Whose a port is by the configuration alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByConfiguration {
    /// For which transports, a bit each.
    pub transports: u8,
    /// Number of the instance.
    pub instance: u8,
    /// Number of the pool.
    pub pool: u8,
    /// First and last port that its owner has so.
    pub ports: (u16, u16),
    /// The inside address, or the first one of the subscriber.
    pub inside: Ipv6Addr,
    /// The inside port of a static binding.
    pub inside_port: Option<u16>,
}

impl PlanInForce {
    /// The part of a plan.
    pub fn of(plan: &Plan) -> PlanInForce {
        let of64 = plan.nat64.iter().map(|n| instance(&n.name, n.pool, n.subscriber_len, &n.static_bindings));
        let of44 = plan.nat44.iter().map(|n| instance(&n.name, n.pool, n.subscriber_len, &n.static_bindings));
        PlanInForce {
            instances: of64.chain(of44).collect(),
            pools: plan.pools.iter().map(pool).collect(),
            siit: plan.siit.iter().map(siit).collect(),
        }
    }

    /// The host of a public address by address mappings (RFC 7757 3.3): the longest one of each instance.
    pub fn mapped(&self, address: Ipv4Addr) -> impl Iterator<Item = Mapped> {
        self.siit.iter().filter_map(move |siit| {
            let covers = |(first, len): (Ipv4Addr, u8)| {
                let host_bits = 32 - u32::from(len.min(32));
                (u32::from(first) ^ u32::from(address)).checked_shr(host_bits).unwrap_or(0) == 0
            };
            let ((_, len4), (v6, len6)) =
                siit.eamt.iter().filter(|(v4, _)| covers(*v4)).max_by_key(|(v4, _)| v4.1)?;
            let suffix_len = 32 - u32::from(*len4).min(32);
            let suffix = u32::from(address) & 1u32.checked_shl(suffix_len).map_or(u32::MAX, |bit| bit - 1);
            let shift = 128u32.checked_sub(u32::from(*len6) + suffix_len)?;
            let inside = u128::from(*v6) | u128::from(suffix).checked_shl(shift).unwrap_or(0);
            Some(Mapped {
                instance: siit.name.clone(),
                inside: inside.into(),
                len: (u32::from(*len6) + suffix_len) as u8,
            })
        })
    }

    /// Why a translation prefix leaves open who has an address that is of no pool.
    pub(crate) fn by_prefix(&self, address: Ipv4Addr) -> Option<String> {
        let of_pool = |pool: &PoolInForce| pool.ranges.iter().any(|r| (r.first..=r.last).contains(&address));
        let siit = self.siit.iter().find(|siit| !siit.pool6.is_empty())?;
        (!self.pools.iter().any(of_pool)).then(|| {
            format!(
                "{address} has no mapping; siit `{}` translates it by its prefix, and keeps no record of which hosts have such addresses",
                siit.name
            )
        })
    }

    /// The pool that has an address and port, of any transport.
    pub fn pool_of(&self, address: Ipv4Addr, port: u16) -> Option<(usize, &PoolInForce)> {
        let covers = |r: &RangeInForce| {
            (r.first..=r.last).contains(&address) && (r.ports.0..=r.ports.1).contains(&port)
        };
        self.pools.iter().enumerate().find(|(_, pool)| pool.ranges.iter().any(covers))
    }

    /// Whose a port is by the configuration: static bindings, and blocks of deterministic pools.
    pub fn owners(&self, address: Ipv4Addr, port: u16) -> Vec<ByConfiguration> {
        let mut owners = Vec::new();
        for (number, instance) in self.instances.iter().enumerate() {
            let here = instance.static_bindings.iter().filter(|s| s.outside == (address, port));
            owners.extend(here.map(|s| ByConfiguration {
                transports: 1u8.checked_shl(s.transport.into()).unwrap_or(0),
                instance: number as u8,
                pool: instance.pool as u8,
                ports: (port, port),
                inside: s.inside.0,
                inside_port: Some(s.inside.1),
            }));
        }
        for (number, pool) in self.pools.iter().enumerate() {
            owners.extend(self.owner_by_formula(number, pool, address, port));
        }
        owners
    }

    fn owner_by_formula(
        &self,
        number: usize,
        pool: &PoolInForce,
        address: Ipv4Addr,
        port: u16,
    ) -> Option<ByConfiguration> {
        let pool4 = pool.as_pool4()?;
        let map = DeterministicMap::new(&pool4).ok().flatten()?;
        let inside = map.reverse(address, port)?;
        let (_, ports) = map.forward(inside)?;
        let has = |t: &Transport| map.covers(*t, address, port);
        let transports = Transport::bits(Transport::ALL.into_iter().filter(has));
        let is_v4 = inside.to_ipv4_mapped().is_some();
        // Private IPv4 hosts are NAT44's, others NAT64's; a deterministic pool of several instances has one of each.
        let fits = |i: &InstanceInForce| i.pool == number && (i.subscriber_len <= 32) == is_v4;
        let instance = self.instances.iter().position(fits).unwrap_or(0) as u8;
        Some(ByConfiguration { transports, instance, pool: number as u8, ports, inside, inside_port: None })
    }
}

fn instance(name: &str, pool: usize, subscriber_len: u8, bindings: &[StaticBinding]) -> InstanceInForce {
    let binding = |b: &StaticBinding| StaticInForce {
        transport: b.transport as u8,
        inside: b.inside,
        outside: b.outside,
    };
    let static_bindings = bindings.iter().map(binding).collect();
    InstanceInForce { name: name.to_owned(), pool, subscriber_len, static_bindings }
}

fn siit(siit: &Siit) -> SiitInForce {
    SiitInForce {
        name: siit.name.clone(),
        pool6: siit.pool6.iter().map(|prefix| (prefix.address(), prefix.len())).collect(),
        eamt: siit.eamt.iter().map(|eam| ((eam.v4.addr, eam.v4.len), (eam.v6.addr, eam.v6.len))).collect(),
    }
}

fn pool(pool: &Pool4) -> PoolInForce {
    let allocation = match &pool.allocation {
        Allocation::Random(_) => AllocationInForce::Random,
        Allocation::Blocks(blocks) => AllocationInForce::Blocks { size: blocks.size },
        Allocation::Deterministic(d) => AllocationInForce::Deterministic {
            inside: d.inside.iter().map(|net| (net.addr, net.len)).collect(),
            subscriber_len: d.subscriber_len,
            overflow_per_address: d.overflow_per_address,
            size: d.blocks.size,
        },
    };
    let range = |r: &PoolRange| RangeInForce {
        first: r.first,
        last: r.last,
        ports: r.ports,
        transports: r.transports,
    };
    PoolInForce { name: pool.name.clone(), allocation, ranges: pool.ranges.iter().map(range).collect() }
}

impl PoolInForce {
    /// The pool as an engine has it, as far as its formula needs; `None` where it has none.
    fn as_pool4(&self) -> Option<Pool4> {
        let AllocationInForce::Deterministic { inside, subscriber_len, overflow_per_address, size } =
            &self.allocation
        else {
            return None;
        };
        let is_size = size.is_power_of_two() && (Blocks::SIZE_MIN..=Blocks::SIZE_MAX).contains(size);
        let inside = inside.iter().map(|&(addr, len)| Net6::new(addr, len)).collect::<Option<Vec<_>>>()?;
        let range = |r: &RangeInForce| PoolRange {
            first: r.first,
            last: r.last,
            ports: r.ports,
            transports: r.transports,
        };
        is_size.then(|| Pool4 {
            name: self.name.clone(),
            ranges: self.ranges.iter().map(range).collect(),
            allocation: Allocation::Deterministic(Deterministic {
                inside,
                subscriber_len: *subscriber_len,
                overflow_per_address: *overflow_per_address,
                blocks: Blocks { size: *size, ..Blocks::default() },
            }),
            ..Pool4::default()
        })
    }
}
