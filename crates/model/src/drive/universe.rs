//! Small worlds: few hosts, few ports, tiny tables, so that collisions, exhaustion and re-use really happen.

use super::rng::Rng;
use gatun_nat::Plan;
use gatun_nat::plan::*;
use gatun_wire::rfc7915::ZeroChecksum;
use gatun_wire::{Prefix64, Settings};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The translator's own addresses.
pub const OWN4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
/// See [`OWN4`].
pub const OWN6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);
/// The pools' first addresses.
pub const POOLS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 65)];
/// Translation prefixes; those of an instance follow each other.
const PREFIXES: [(&str, u8); 6] = [
    ("2001:db8:64::", 96),
    ("2001:db8:100::", 40),
    ("2001:db8:65:0:0::", 64),
    ("64:ff9b::", 96),
    ("2001:db8:2000::", 48),
    ("2001:db8:7777:7700::", 56),
];

/// An inside host: three subscribers of four hosts each where a subscriber is a /64.
pub fn host(n: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xbeef, 0, u16::from(n / 4 % 3), 0, 0, 0, u16::from(n % 4) + 1)
}

/// A remote host. Some are private, which 64:ff9b::/96 may not stand for.
pub fn remote(n: u8) -> Ipv4Addr {
    match n % 6 {
        4 => Ipv4Addr::new(10, 0, 0, 1),
        5 => Ipv4Addr::new(9, 9, 9, 9),
        n => Ipv4Addr::new(8, 8, 8, n + 1),
    }
}

/// The ports that inside hosts use: two classes, two parities.
pub const HOST_PORTS: [u16; 4] = [80, 5000, 5001, 1023];
/// The ports of remote hosts.
pub const REMOTE_PORTS: [u16; 3] = [53, 443, 4444];

fn prefix(n: usize) -> Prefix64 {
    let (addr, len) = PREFIXES[n % PREFIXES.len()];
    let addr = addr.parse().unwrap_or(Ipv6Addr::UNSPECIFIED);
    Prefix64::new(addr, len).unwrap_or(Prefix64::WELL_KNOWN)
}

/// The plan of a universe.
pub fn universe(number: u64) -> Plan {
    let mut r = Rng::new(number ^ 0x0067_6174_756e);
    let instances = 1 + usize::from(r.one_in(3));
    let pools = (0..instances).map(|n| pool(&mut r, n)).collect();
    let mut first_prefix = r.small(6) as usize;
    let nat64 = (0..instances)
        .map(|n| {
            let prefixes = 1 + usize::from(r.one_in(3));
            let instance = nat64(&mut r, n, first_prefix, prefixes);
            first_prefix += prefixes;
            instance
        })
        .collect();
    Plan {
        own4: Some(OWN4),
        own6: Some(OWN6),
        pools,
        nat64,
        limits: limits(&mut r),
        icmp: icmp(&mut r),
        ..Plan::default()
    }
}

fn pool(r: &mut Rng, n: usize) -> Pool4 {
    let first = POOLS[n];
    let last = Ipv4Addr::from(u32::from(first) + r.below(3) as u32);
    let all = [true; 3];
    let ranges = match r.below(4) {
        0 => vec![PoolRange { first, last, ports: (1016, 1031), transports: all }],
        1 => vec![
            PoolRange { first, last, ports: (1020, 1027), transports: [true, true, false] },
            PoolRange { first, last, ports: (0, 7), transports: [false, false, true] },
        ],
        2 => vec![
            PoolRange { first, last: first, ports: (2000, 2003), transports: all },
            PoolRange { first, last, ports: (1000, 1005), transports: all },
        ],
        _ => vec![PoolRange { first, last, ports: (1000, 1100), transports: all }],
    };
    Pool4 {
        name: format!("pool{n}"),
        ranges,
        pairing: r.of(&[Pairing::Soft, Pairing::Hard]),
        port_parity: r.one_in(2),
        port_class: !r.one_in(4),
        ..Pool4::default()
    }
}

fn nat64(r: &mut Rng, n: usize, first_prefix: usize, prefixes: usize) -> Nat64 {
    let sources = match r.below(3) {
        0 => Net6::new(Ipv6Addr::new(0x2001, 0xbeef, 0, 0, 0, 0, 0, 0), 63).into_iter().collect(),
        _ => Vec::new(),
    };
    Nat64 {
        name: format!("nat64-{n}"),
        pool6: (0..prefixes).map(|p| prefix(first_prefix + p)).collect(),
        pool: n,
        sources,
        filtering: r.of(&[Filtering::EndpointIndependent, Filtering::AddressDependent]),
        external_tcp: !r.one_in(4),
        wkp_non_global: r.one_in(3),
        icmp_error_source: r.of(&[IcmpErrorSource::Router, IcmpErrorSource::InnerDestination]),
        inbound_refresh: true,
        rst_during_fin: r.one_in(2),
        icmp_queries: !r.one_in(6),
        subscriber_len: r.of(&[128, 64, 64, 56, 48]),
        static_bindings: static_bindings(r, n),
        timeouts: timeouts(r),
        settings: settings(r),
    }
}

fn static_bindings(r: &mut Rng, n: usize) -> Vec<StaticBinding> {
    let mut all = Vec::new();
    for (at, transport) in [Transport::Tcp, Transport::Udp, Transport::Icmp].into_iter().enumerate() {
        if r.one_in(3) {
            // One of the pool's ports, or one beside them.
            let port = r.of(&[1001, 1021, 7, 22]);
            let inside = (host(at as u8), HOST_PORTS[at]);
            all.push(StaticBinding { transport, inside, outside: (POOLS[n], port) });
        }
    }
    all
}

fn timeouts(r: &mut Rng) -> Timeouts {
    if r.one_in(2) {
        return Timeouts::default();
    }
    Timeouts {
        udp_ms: 1 + r.below(20_000) as u32,
        tcp_established_ms: 1 + r.below(100_000) as u32,
        tcp_transitory_ms: 1 + r.below(40_000) as u32,
        tcp_partial_open_ms: 1 + r.below(40_000) as u32,
        tcp_closing_ms: 1 + r.below(40_000) as u32,
        tcp_incoming_syn_ms: 1 + r.below(12_000) as u32,
        icmp_ms: 1 + r.below(10_000) as u32,
        fragment_ms: 1 + r.below(4_000) as u32,
    }
}

fn settings(r: &mut Rng) -> Settings {
    Settings {
        tos_6to4: r.one_in(4).then(|| r.any() as u8),
        traffic_class_4to6: r.one_in(4).then(|| r.any() as u8),
        mtu4: r.of(&[1500, 1500, 1400, 1280, 1260, 576]),
        mtu6: r.of(&[1500, 1500, 1400, 1280]),
        lowest_ipv6_mtu: r.of(&[1280, 1280, 1400]),
        udp_zero_checksum: r.of(&[
            ZeroChecksum::Compute,
            ZeroChecksum::Compute,
            ZeroChecksum::Drop,
            ZeroChecksum::Forward,
        ]),
        icmp4_error_max: r.of(&[576, 576, 1500, 100]),
    }
}

fn limits(r: &mut Rng) -> Limits {
    Limits {
        sessions_max: r.of(&[8, 24, 64, 200]),
        subscribers_max: r.of(&[2, 3, 8, 64]),
        sessions_per_subscriber: r.of(&[4, 12, 40, 1000]),
        ports_per_subscriber: r.of(&[2, 6, 20, 1000]),
        syn_store_max: r.of(&[1, 4, 32, 64]),
        fragment_entries_max: r.of(&[1, 4, 8, 32]),
        fragment_bytes_max: r.of(&[2048, 8192, 65_536]),
        fragments_per_source: r.of(&[2, 6, 16, 100]),
        ..Limits::default()
    }
}

fn icmp(r: &mut Rng) -> IcmpPolicy {
    let mut policy =
        IcmpPolicy { rate: r.of(&[0, 1, 100, 100_000]), burst: r.of(&[1, 5, 1000]), ..Default::default() };
    if r.one_in(2) {
        policy.suppressed.clear();
    }
    policy
}
