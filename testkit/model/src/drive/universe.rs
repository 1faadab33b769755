//! Small universes: few hosts, few ports, tiny tables, so that collisions, exhaustion and reuse happen.

use super::realms;
use super::rng::Rng;
use gatun_nat::event::EventKinds;
use gatun_nat::plan::*;
use gatun_nat::{EventKind, Plan};
use gatun_wire::rfc7915::ZeroChecksum;
use gatun_wire::{Prefix64, Settings, mss};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The translator's own IPv4 address, unless it is a pool's.
const OWN4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
/// The translator's own IPv6 address.
pub const OWN6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);
/// First addresses of the pools.
pub const POOLS: [Ipv4Addr; 3] =
    [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 65), Ipv4Addr::new(192, 0, 2, 129)];
/// Translation prefixes; an instance takes consecutive ones.
const PREFIXES: [(&str, u8); 6] = [
    ("2001:db8:64::", 96),
    ("2001:db8:100::", 40),
    ("2001:db8:65:0:0::", 64),
    ("64:ff9b::", 96),
    ("2001:db8:2000::", 48),
    ("2001:db8:7777:7700::", 56),
];

const ALL_FILTERINGS: &[Filtering] =
    &[Filtering::EndpointIndependent, Filtering::AddressDependent, Filtering::AddressAndPortDependent];
const WITHOUT_PEERS: &[Filtering] = &[Filtering::EndpointIndependent, Filtering::AddressAndPortDependent];

/// The filterings that a change of the plan may use.
pub(super) fn filterings_of(plan: &Plan) -> &'static [Filtering] {
    let mut all = plan.nat64.iter().map(|n| n.filtering).chain(plan.nat44.iter().map(|n| n.filtering));
    if all.any(|f| f == Filtering::AddressDependent) { ALL_FILTERINGS } else { WITHOUT_PEERS }
}

/// An inside host: for a subscriber length of /64, three subscribers with four hosts each, and more from
/// twelve on.
pub fn host(n: u8) -> Ipv6Addr {
    Ipv6Addr::new(
        0x2001,
        0xbeef,
        0,
        u16::from(n / 4 % 3),
        0,
        0,
        0,
        u16::from(n % 4) + 1 + 16 * u16::from(n / 12),
    )
}

/// An inside host of a NAT44 instance.
pub(super) fn host4(instance: &Nat44, n: u8) -> Ipv4Addr {
    let first = instance.inside.first().map_or(Ipv4Addr::UNSPECIFIED, |net| net.addr);
    Ipv4Addr::from(u32::from(first) + u32::from(n % 250) + 1)
}

/// A remote host. Some are private, which 64:ff9b::/96 may not represent.
pub fn remote(n: u8) -> Ipv4Addr {
    match n % 6 {
        4 => Ipv4Addr::new(10, 0, 0, 1),
        5 => Ipv4Addr::new(9, 9, 9, 9),
        n => Ipv4Addr::new(8, 8, 8, n + 1),
    }
}

/// Ports of inside hosts: two classes, two parities.
pub const HOST_PORTS: [u16; 12] = [80, 5000, 5001, 1023, 5002, 5003, 5004, 5005, 5006, 5007, 5008, 5009];
/// Ports of remote hosts.
pub const REMOTE_PORTS: [u16; 3] = [53, 443, 4444];

fn prefix(n: usize) -> Prefix64 {
    let (addr, len) = PREFIXES[n % PREFIXES.len()];
    let addr = addr.parse().unwrap_or(Ipv6Addr::UNSPECIFIED);
    Prefix64::new(addr, len).unwrap_or(Prefix64::WELL_KNOWN)
}

/// The plan of a universe.
pub fn universe(number: u64) -> Plan {
    let mut r = Rng::new(number ^ 0x0067_6174_756e);
    let (six, four) = r.of(&[(1, 0), (1, 0), (2, 0), (0, 1), (1, 1), (1, 1), (2, 1), (1, 2), (0, 2)]);
    let realms = &mut Rng::new(number ^ 0x7265_616c_6d73);
    let ruled = realms.one_in(3);
    let (six, four) = if ruled { realms::instances(realms) } else { (six, four) };
    let pools = POOLS.len().min(1 + r.below(six + four) as usize);
    // With address-dependent filtering the engine keeps peers; the model does not cover which session then
    // bounds the lifetime of inbound ones.
    let filterings = if r.one_in(2) { ALL_FILTERINGS } else { WITHOUT_PEERS };
    let mut first_prefix = r.small(6) as usize;
    let nat64: Vec<Nat64> = (0..six as usize)
        .map(|n| {
            let prefixes = 1 + usize::from(r.one_in(3));
            let instance = nat64(&mut r, n, n % pools, first_prefix, prefixes, filterings);
            first_prefix += prefixes;
            instance
        })
        .collect();
    let nat44 =
        (0..four as usize).map(|n| nat44(&mut r, n, (six as usize + n) % pools, filterings)).collect();
    let mut plan = Plan {
        own4: Some(OWN4),
        own6: Some(OWN6),
        pools: (0..pools).map(|n| pool(&mut r, n)).collect(),
        nat64,
        nat44,
        limits: limits(&mut r),
        icmp: icmp(&mut r),
        events: EventPlan {
            kinds: EventKind::ALL.iter().fold(EventKinds::NONE, |all, &kind| all.with(kind)),
            destinations: true,
            threshold: r.of(&[10, 50, 80, 90, 100]),
            ..EventPlan::default()
        },
        ..Plan::default()
    };
    if ruled {
        realms::add(realms, &mut plan);
    }
    // The first pool's first address, which has ports of subscribers and static bindings.
    if Rng::new(number ^ 0x6f77_6e34).one_in(3) {
        plan.own4 = Some(POOLS[0]);
    }
    add_static_bindings(&mut r, &mut plan);
    plan
}

fn pool(r: &mut Rng, n: usize) -> Pool4 {
    let allocation = allocation(r);
    let ranges = ranges(r, n, &allocation);
    Pool4 {
        name: format!("pool{n}"),
        ranges,
        pairing: r.of(&[Pairing::Soft, Pairing::Hard]),
        port_parity: r.one_in(2),
        port_class: !r.one_in(4),
        allocation,
        overload: overload(r),
    }
}

/// Remote ports whose flows share outside ports.
pub(super) fn overload(r: &mut Rng) -> Vec<(Transport, u16)> {
    let of_both = |ports: &[u16]| {
        let each = |&port: &u16| [(Transport::Tcp, port), (Transport::Udp, port)];
        ports.iter().flat_map(each).collect()
    };
    match r.below(6) {
        0 => of_both(&[443]),
        1 => of_both(&[53, 443, 4444, 1001, 1021]),
        2 => vec![(Transport::Udp, 53), (Transport::Tcp, 443)],
        _ => Vec::new(),
    }
}

fn allocation(r: &mut Rng) -> Allocation {
    let ms = r.of(&[0, 1_000, 30_000, 120_000]);
    let blocks = Blocks {
        size: 32,
        per_subscriber: r.of(&[1, 1, 2, 4]),
        linger_ms: r.of(&[0, 500, 10_000, 120_000]),
        hold: HoldDown { ms, ports_max: r.of(&[0, 32, 64, 1_000]) },
        protocols: r.of(&[BlockProtocols::Shared, BlockProtocols::Split]),
    };
    match r.below(6) {
        0..2 => Allocation::default(),
        2 => Allocation::Random(HoldDown { ms, ports_max: r.of(&[1, 4, 40]) }),
        3..5 => Allocation::Blocks(blocks),
        _ => Allocation::Deterministic(Deterministic {
            inside: [("::ffff:100.64.0.0", 125), ("2001:beef::", 62)]
                .into_iter()
                .filter_map(|(addr, len)| Net6::new(addr.parse().ok()?, len))
                .collect(),
            subscriber_len: 64,
            overflow_per_address: r.of(&[0, 1, 4]),
            blocks,
        }),
    }
}

pub(super) fn ranges(r: &mut Rng, n: usize, allocation: &Allocation) -> Vec<PoolRange> {
    let first = POOLS[n];
    let last = Ipv4Addr::from(u32::from(first) + r.below(3) as u32);
    let all = [true; 3];
    match allocation {
        Allocation::Deterministic(_) => {
            vec![PoolRange { first, last, ports: (1000, 1000 + 24 + 16 * 32), transports: all }]
        }
        // Whole blocks, and ports on both sides of them.
        Allocation::Blocks(_) => match r.below(3) {
            0 => vec![PoolRange { first, last, ports: (1020, 1090), transports: all }],
            1 => vec![PoolRange { first, last, ports: (1024, 1183), transports: [true, true, false] }],
            _ => vec![
                PoolRange { first, last, ports: (992, 1087), transports: [true, true, false] },
                PoolRange { first, last, ports: (1024, 1119), transports: [false, false, true] },
            ],
        },
        Allocation::Random(_) => match r.below(4) {
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
        },
    }
}

/// Without address-dependent filtering, inbound packets may leave lifetimes alone.
pub(super) fn inbound_refresh(r: &mut Rng, filterings: &[Filtering]) -> bool {
    filterings.contains(&Filtering::AddressDependent) || !r.one_in(3)
}

/// Sources of a NAT64 instance: all hosts, or two subscribers.
pub(super) fn sources(r: &mut Rng) -> Vec<Net6> {
    match r.below(3) {
        0 => Net6::new(Ipv6Addr::new(0x2001, 0xbeef, 0, 0, 0, 0, 0, 0), 63).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Destinations that the hosts of a NAT44 instance reach untranslated.
pub(super) fn exemptions(r: &mut Rng) -> Vec<Exemption> {
    let mut exempt = Vec::new();
    if r.one_in(3) {
        exempt.extend(Net4::new(remote(5), 32).map(|net| Exemption { net, transport: None, ports: None }));
        exempt.extend(Net4::new(remote(0), 32).map(|net| Exemption {
            net,
            transport: Some(Transport::Udp),
            ports: Some((50, 60)),
        }));
    }
    exempt
}

fn nat64(
    r: &mut Rng,
    n: usize,
    pool: usize,
    first_prefix: usize,
    prefixes: usize,
    filterings: &[Filtering],
) -> Nat64 {
    Nat64 {
        name: format!("nat64-{n}"),
        pool6: (0..prefixes).map(|p| prefix(first_prefix + p)).collect(),
        pool,
        sources: sources(r),
        realm: 0,
        filtering: r.of(filterings),
        external_tcp: !r.one_in(4),
        wkp_non_global: r.one_in(3),
        icmp_error_source: r.of(&[IcmpErrorSource::Router, IcmpErrorSource::InnerDestination]),
        inbound_refresh: inbound_refresh(r, filterings),
        rst_during_fin: r.one_in(2),
        icmp_queries: !r.one_in(6),
        subscriber_len: r.of(&[128, 64, 64, 56, 48]),
        static_bindings: Vec::new(),
        timeouts: timeouts(r),
        settings: settings(r),
    }
}

fn nat44(r: &mut Rng, n: usize, pool: usize, filterings: &[Filtering]) -> Nat44 {
    Nat44 {
        name: format!("nat44-{n}"),
        inside: Net4::new(Ipv4Addr::new(100, 64, n as u8, 0), 24).into_iter().collect(),
        realm: 0,
        pool,
        exempt: exemptions(r),
        filtering: r.of(filterings),
        external_tcp: !r.one_in(4),
        inbound_refresh: inbound_refresh(r, filterings),
        icmp_queries: !r.one_in(6),
        subscriber_len: r.of(&[32, 32, 30]),
        static_bindings: Vec::new(),
        timeouts: timeouts(r),
        mtu: r.of(&[1500, 1500, 1280, 576]),
        mss_max: mss::ANY,
    }
}

/// The n-th host that a NAT64 instance serves.
fn served(instance: &Nat64, n: usize) -> Ipv6Addr {
    let sources = &instance.sources;
    let all = (0..=u8::MAX).map(host);
    let mut all = all.filter(|&host| sources.is_empty() || sources.iter().any(|net| net.contains(host)));
    all.nth(n).unwrap_or(host(0))
}

/// Adds static bindings of pool ports or of other ports; no port and no inside end occurs twice.
pub(super) fn add_static_bindings(r: &mut Rng, plan: &mut Plan) {
    let mut taken = Vec::new();
    let six = plan.nat64.len();
    for instance in 0..six + plan.nat44.len() {
        for (at, transport) in Transport::ALL.into_iter().enumerate() {
            let port = r.of(&[1001, 1021, 1040, 7, 22]);
            let pool =
                if instance < six { plan.nat64[instance].pool } else { plan.nat44[instance - six].pool };
            let outside = (POOLS[pool], port);
            if !r.one_in(3) || taken.contains(&(transport, outside)) {
                continue;
            }
            taken.push((transport, outside));
            let address = match instance.checked_sub(six) {
                None => served(&plan.nat64[instance], at),
                Some(n) => host4(&plan.nat44[n], at as u8).to_ipv6_mapped(),
            };
            let binding = StaticBinding { transport, inside: (address, HOST_PORTS[at]), outside };
            match instance.checked_sub(six) {
                None => plan.nat64[instance].static_bindings.push(binding),
                Some(n) => plan.nat44[n].static_bindings.push(binding),
            }
        }
    }
}

pub(super) fn timeouts(r: &mut Rng) -> Timeouts {
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

pub(super) fn settings(r: &mut Rng) -> Settings {
    Settings {
        tos_6to4: r.one_in(4).then(|| r.any() as u8),
        traffic_class_4to6: r.one_in(4).then(|| r.any() as u8),
        mtu4: r.of(&[1500, 1500, 1400, 1280, 1260, 576]),
        mtu6: r.of(&[1500, 1500, 1400, 1280]),
        lowest_ipv6_mtu: r.of(&[1280, 1280, 1400]),
        mss_max: mss::ANY,
        udp_zero_checksum: r.of(&[
            ZeroChecksum::Compute,
            ZeroChecksum::Compute,
            ZeroChecksum::Drop,
            ZeroChecksum::Forward,
        ]),
        icmp4_error_max: r.of(&[576, 576, 1500, 100]),
    }
}

pub(super) fn limits(r: &mut Rng) -> Limits {
    let tight = Limits {
        sessions_max: r.of(&[8, 24, 64, 300]),
        sessions_reserved: r.of(&[0, 0, 10, 25, 50]),
        sessions_reserved_below: r.of(&[1, 2, 5, 100]),
        subscribers_max: r.of(&[2, 3, 8, 64]),
        sessions_per_subscriber: r.of(&[4, 12, 40, 1000]),
        ports_per_subscriber: r.of(&[2, 6, 20, 1000]),
        ports_per_subscriber_by: [0; 3].map(|_: u32| r.of(&[1, 5, 1000, 100_000])),
        session_rate_per_subscriber: r.of(&[0, 0, 1, 5, 100]),
        session_burst_per_subscriber: r.of(&[1, 3, 50]),
        syn_store_max: r.of(&[1, 4, 32, 64]),
        // The model has no path MTUs.
        path_mtus_max: 0,
        fragment_entries_max: r.of(&[1, 8, 64, 256]),
        fragment_bytes_max: r.of(&[2048, 16_384, 262_144]),
        fragments_per_source: r.of(&[2, 16, 100, 1000]),
    };
    match r.one_in(3) {
        // Generous tables, so that pools and their blocks run out first.
        true => Limits {
            sessions_max: 300,
            sessions_reserved: 0,
            sessions_per_subscriber: 1000,
            ports_per_subscriber: 1000,
            ports_per_subscriber_by: [1000; 3],
            session_rate_per_subscriber: 0,
            ..tight
        },
        false => tight,
    }
}

pub(super) fn icmp(r: &mut Rng) -> IcmpPolicy {
    let mut policy = IcmpPolicy {
        rate: r.of(&[0, 1, 100, 100_000]),
        burst: r.of(&[1, 5, 1000]),
        rate_per_source: r.of(&[0, 1, 100, 100_000]),
        burst_per_source: r.of(&[1, 4, 1000]),
        quota_code6: r.of(&[1, 3]),
        quota_code4: r.of(&[1, 13]),
        ..IcmpPolicy::default()
    };
    if r.one_in(2) {
        policy.suppressed.clear();
    }
    policy
}
