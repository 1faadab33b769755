//! The part of a configuration that determines holders of ports. The log stores it, so that answers about the
//! past use the configuration of that time. Holders in deterministic pools (RFC 7422) are computed.

use gatun_nat::plan::{
    Allocation, Blocks, Deterministic, Net6, Plan, Pool4, PoolRange, Siit, StaticBinding, Transport,
};
use gatun_nat::pool4::DeterministicMap;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Part of a configuration that determines holders of ports.
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

/// Stateless instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiitInForce {
    /// Name.
    pub name: String,
    /// First address and length of its translation prefixes.
    pub pool6: Vec<(Ipv6Addr, u8)>,
    /// Address mappings: first address and prefix length of each side.
    pub eamt: Vec<((Ipv4Addr, u8), (Ipv6Addr, u8))>,
}

/// Result of an address mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Instance.
    pub instance: String,
    /// Inside address, or first address of the prefix.
    pub inside: Ipv6Addr,
    /// Prefix length; 128 for a host.
    pub len: u8,
}

/// Stateful instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceInForce {
    /// Name.
    pub name: String,
    /// Number of its pool.
    pub pool: usize,
    /// Prefix length of subscribers.
    pub subscriber_len: u8,
    /// Static bindings.
    pub static_bindings: Vec<StaticInForce>,
}

/// Static binding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticInForce {
    /// Transport, as a number.
    pub transport: u8,
    /// Inside.
    pub inside: (Ipv6Addr, u16),
    /// Outside.
    pub outside: (Ipv4Addr, u16),
}

/// Pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolInForce {
    /// Name.
    pub name: String,
    /// Port allocation.
    pub allocation: AllocationInForce,
    /// Addresses and ports.
    pub ranges: Vec<RangeInForce>,
}

/// Port allocation of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum AllocationInForce {
    /// Single ports.
    Random,
    /// Blocks on demand.
    Blocks {
        /// Ports of a block.
        size: u16,
    },
    /// Deterministic blocks.
    Deterministic {
        /// Subscriber networks, in order: first address and prefix length.
        inside: Vec<(Ipv6Addr, u8)>,
        /// Prefix length of an IPv6 subscriber.
        subscriber_len: u8,
        /// Overflow blocks of each address.
        overflow_per_address: u16,
        /// Ports of a block.
        size: u16,
    },
}

/// Range of addresses and ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeInForce {
    /// First address.
    pub first: Ipv4Addr,
    /// Last address.
    pub last: Ipv4Addr,
    /// First and last port.
    pub ports: (u16, u16),
    /// True for each of TCP, UDP and ICMP that the range applies to.
    pub transports: [bool; 3],
}

/// Holder determined by the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByConfiguration {
    /// Transports, a bit each.
    pub transports: u8,
    /// Number of the instance.
    pub instance: u8,
    /// Number of the pool.
    pub pool: u8,
    /// First and last port of the holder.
    pub ports: (u16, u16),
    /// Inside address, or first address of the subscriber.
    pub inside: Ipv6Addr,
    /// Inside port of a static binding.
    pub inside_port: Option<u16>,
}

impl PlanInForce {
    /// Extracts the part of a plan that determines holders.
    pub fn of(plan: &Plan) -> PlanInForce {
        let of64 = plan.nat64.iter().map(|n| instance(&n.name, n.pool, n.subscriber_len, &n.static_bindings));
        let of44 = plan.nat44.iter().map(|n| instance(&n.name, n.pool, n.subscriber_len, &n.static_bindings));
        PlanInForce {
            instances: of64.chain(of44).collect(),
            pools: plan.pools.iter().map(pool).collect(),
            siit: plan.siit.iter().map(siit).collect(),
        }
    }

    /// Looks up a public address in address mappings (RFC 7757 3.3): the longest match of each instance.
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

    /// Reason why the holder of an address outside all pools is unknown: a translation prefix covers it.
    pub(crate) fn by_prefix(&self, address: Ipv4Addr) -> Option<String> {
        let of_pool = |pool: &PoolInForce| pool.ranges.iter().any(|r| (r.first..=r.last).contains(&address));
        let siit = self.siit.iter().find(|siit| !siit.pool6.is_empty())?;
        (!self.pools.iter().any(of_pool)).then(|| {
            format!(
                "{address} has no mapping; siit `{}` translates it by its prefix, without records of the hosts",
                siit.name
            )
        })
    }

    /// Pool with this address and port, for any transport.
    pub fn pool_of(&self, address: Ipv4Addr, port: u16) -> Option<(usize, &PoolInForce)> {
        let covers = |r: &RangeInForce| {
            (r.first..=r.last).contains(&address) && (r.ports.0..=r.ports.1).contains(&port)
        };
        self.pools.iter().enumerate().find(|(_, pool)| pool.ranges.iter().any(covers))
    }

    /// Holders determined by the configuration: static bindings, and blocks of deterministic pools.
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
        // Private IPv4 hosts belong to NAT44, others to NAT64; a deterministic pool has at most one instance
        // of each.
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
    /// Pool as the engine's type, with the fields of its formula; `None` without a formula.
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
