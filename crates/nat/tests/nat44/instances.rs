//! Counters by owner: instances, pools, addresses, subscribers.

use super::common::*;
use super::{A, B, SERVER, T, both_kinds, plan44};
use gatun_nat::Plan;
use gatun_nat::plan::{Allocation, Blocks, Eam, Net4, Net6, Siit, Transport};
use gatun_nat::report::{InstanceKind, InstanceStats, Refusals};
use gatun_wire::DropReason;

const POOL6: &str = super::POOL6;
/// The prefix, the pool address and a host of the second NAT64 instance, which has its own pool.
const OTHER6: &str = "2001:db8:65::/96";
const T2: &str = "192.0.2.9";
/// A mapped host, and its IPv4 address.
const MAPPED6: &str = "2001:db8:46::5";
const MAPPED4: &str = "203.0.113.50";
const STATELESS6: &str = "2001:db8:66::/96";

/// Plan with two NAT64 instances, one of which shares its pool with a NAT44 instance, and a stateless one.
fn plan() -> Plan {
    let mut plan = both_kinds();
    plan.pools.push(pool(T2, T2, (1, 65535)));
    plan.nat64.push(gatun_nat::plan::Nat64 { name: "second".into(), pool: 1, ..nat64(OTHER6) });
    plan.siit = vec![Siit {
        name: "servers".into(),
        pool6: vec![prefix(STATELESS6)],
        eamt: vec![Eam { v4: Net4::new(v4(MAPPED4), 32).unwrap(), v6: Net6::new(v6(MAPPED6), 128).unwrap() }],
        hairpin: gatun_nat::plan::Hairpin::Off,
        ..Siit::default()
    }];
    plan
}

fn of(bed: &Bed, name: &str) -> InstanceStats {
    let mut found = bed.nat.instance_stats().filter(|stats| &*stats.name == name);
    let stats = found.next().unwrap();
    assert!(found.next().is_none());
    stats
}

/// Returns the packets out, the packets in, and the current sessions of an instance.
fn traffic(bed: &Bed, name: &str) -> (u64, u64, u64) {
    let stats = of(bed, name);
    let sessions = stats.entries.sessions.iter().map(|count| count.now()).sum();
    (stats.counters.outbound.packets, stats.counters.inbound.packets, sessions)
}

fn drops(bed: &Bed, name: &str, reason: DropReason) -> u64 {
    of(bed, name).counters.drops[reason as usize].packets
}

#[test]
fn each_instance_has_its_own_packets_bytes_and_sessions_in_each_direction() {
    let mut bed = Bed::new(&plan());
    let kinds: Vec<_> = bed.nat.instance_stats().map(|s| (s.kind, s.name.to_string())).collect();
    let expected = [
        (InstanceKind::Nat64, "default"),
        (InstanceKind::Nat64, "second"),
        (InstanceKind::Nat44, "cgn"),
        (InstanceKind::Siit, "servers"),
    ];
    assert_eq!(kinds, expected.map(|(kind, name)| (kind, name.to_owned())));

    let out6 = udp6(CLIENT, 1000, &behind(POOL6, SERVER), 9, b"12345");
    for _ in 0..3 {
        bed.through(&out6);
    }
    let port = bed.through(&out6).sport;
    let back = udp4(SERVER, 9, T, port, b"12345678");
    bed.through(&back);
    assert_eq!(traffic(&bed, "default"), (4, 1, 1));
    let bytes = of(&bed, "default").counters;
    assert_eq!((bytes.outbound.bytes, bytes.inbound.bytes), (4 * out6.len() as u64, back.len() as u64));

    let port = bed.through(&tcp6(CLIENT, 1000, &behind(OTHER6, SERVER), 80, "S", b"")).sport;
    bed.through(&tcp4(SERVER, 80, T2, port, "SA", b""));
    bed.through(&echo6(CLIENT, &behind(OTHER6, SERVER), true, 7, b""));
    assert_eq!(traffic(&bed, "second"), (2, 1, 2));
    assert_eq!(of(&bed, "second").entries.sessions.map(|count| count.now()), [1, 0, 1]);

    let port = bed.through(&udp4(A, 1000, SERVER, 9, b"x")).sport;
    bed.through(&udp4(SERVER, 9, T, port, b"x"));
    bed.through(&udp4(SERVER, 9, T, port, b"x"));
    assert_eq!(traffic(&bed, "cgn"), (1, 2, 1));

    bed.through(&udp6(MAPPED6, 1, &behind(STATELESS6, SERVER), 2, b"x"));
    bed.through(&udp4(SERVER, 2, MAPPED4, 1, b"x"));
    bed.through(&udp4(SERVER, 2, MAPPED4, 1, b"x"));
    assert_eq!(traffic(&bed, "servers"), (1, 2, 0));

    assert_eq!(traffic(&bed, "default"), (4, 1, 1), "packets of other instances do not count");
    bed.pass_ms(400_000);
    assert_eq!(of(&bed, "default").entries.sessions[1].created, 1, "ended sessions stay counted");
    assert_eq!(traffic(&bed, "default"), (4, 1, 0));
    assert_eq!(of(&bed, "default").entries.bindings[1].ended, 1);
}

#[test]
fn a_hairpin_between_instances_counts_for_its_sender() {
    let mut bed = Bed::new(&plan());
    let at = bed.through(&udp4(A, 1000, SERVER, 9, b"x")).sport;
    bed.through(&udp6(CLIENT, 1000, &behind(POOL6, T), at, b"x"));
    let stats = of(&bed, "default").counters;
    assert_eq!((stats.outbound.packets, stats.hairpinned.packets), (1, 1));
    let sessions = |name| of(&bed, name).entries.sessions[1].now();
    assert_eq!((traffic(&bed, "cgn").1, sessions("cgn"), sessions("default")), (0, 2, 1));
}

#[test]
fn a_drop_counts_for_its_instance_if_that_is_known() {
    use DropReason::{NoBib, SubscriberSessionQuota, TtlExceeded};
    let mut plan = plan();
    plan.limits.sessions_per_subscriber = 1;
    let mut bed = Bed::new(&plan);
    // Two instances use one pool, and one instance uses the other. Nothing is bound at either address.
    bed.send(&udp4(SERVER, 9, T, 5000, b"x"));
    bed.send(&udp4(SERVER, 9, T2, 5000, b"x"));
    assert_eq!((drops(&bed, "default", NoBib), drops(&bed, "cgn", NoBib)), (0, 0));
    assert_eq!(drops(&bed, "second", NoBib), 1);
    assert_eq!(bed.nat.unattributed().drops[NoBib as usize].packets, 1);
    // A binding determines the instance.
    let port = bed.through(&udp4(A, 1000, SERVER, 9, b"x")).sport;
    bed.send(&with_hops(udp4(SERVER, 9, T, port, b"x"), 1));
    assert_eq!(drops(&bed, "cgn", TtlExceeded), 1);
    // On the fast path and on the slow path; answered or not.
    bed.send(&udp4(A, 1001, SERVER, 9, b"x"));
    bed.send(&echo4(A, SERVER, true, 9, b"x"));
    assert_eq!(drops(&bed, "cgn", SubscriberSessionQuota), 2);
    assert_eq!(of(&bed, "cgn").counters.dropped().packets, 3);
    bed.send(&udp6(CLIENT, 1, "2001:db8:99::1", 2, b"x"));
    assert_eq!(bed.nat.unattributed().drops[DropReason::DestinationNotPool6 as usize].packets, 1);
}

#[test]
fn held_packets_that_are_dropped_count_for_their_instance() {
    let mut bed = Bed::new(&plan());
    bed.send(&tcp4(SERVER, 80, T2, 5000, "S", b""));
    // A fragment from inside without a first fragment: its instance is known.
    let mut later = udp4(A, 1, SERVER, 2, &[7; 64]);
    later[6..8].copy_from_slice(&8u16.to_be_bytes());
    let later = with_flags4(later, 8);
    bed.send(&later);
    assert_eq!(bed.nat.counters().held, 2);
    bed.pass_ms(10_000);
    assert_eq!(bed.nat.counters().held, 0);
    assert_eq!(drops(&bed, "second", DropReason::SynExpired), 1);
    assert_eq!(drops(&bed, "cgn", DropReason::FragmentTimeout), 1);
}

#[test]
fn a_pool_reports_its_ports_subscribers_failures_and_addresses() {
    let mut plan = plan();
    plan.pools[0] = pool(T, "192.0.2.4", (1024, 1151));
    let mut bed = Bed::new(&plan);
    for host in 2..12 {
        bed.through(&udp4(&format!("100.64.0.{host}"), 1000, SERVER, 9, b"x"));
    }
    bed.through(&udp6(CLIENT, 1000, &behind(POOL6, SERVER), 9, b"x"));
    let pools: Vec<_> = bed.nat.pool_stats().collect();
    assert_eq!((pools[0].addresses, pools[0].subscribers, pools[1].subscribers), (4, 11, 0));
    assert_eq!(pools[0].ports.map(|p| (p.used, p.total)), [(0, 512), (11, 512), (0, 512)]);
    assert_eq!((pools[0].counters.ports_allocated, pools[0].counters.refused), (11, 0));
    let addresses: Vec<_> = bed.nat.address_stats(0, 0..u32::MAX).collect();
    assert_eq!(addresses.len(), 4);
    assert_eq!(addresses[3].address, v4("192.0.2.4"));
    assert_eq!(addresses.iter().map(|a| a.ports[1].used).sum::<u64>(), 11);
    assert!(bed.nat.address_stats(0, 1..3).eq(addresses[1..3].iter().copied()));
    assert_eq!(bed.nat.address_stats(7, 0..9).count(), 0);
    // One address has 128 ports. If a subscriber wants more, the pool refuses them, not the subscriber's
    // limit.
    let mut plan = plan44();
    plan.pools[0] = pool(T, T, (1024, 1151));
    let mut bed = Bed::new(&plan);
    for port in 0..130 {
        bed.send(&udp4(A, 2000 + port, SERVER, 9, b"x"));
    }
    let stats = bed.nat.pool_stats().next().unwrap();
    assert_eq!((stats.ports[1].used, stats.counters.refused), (128, 2));
    assert_eq!(bed.nat.subscriber_stats(0..9).next().unwrap().refusals, Refusals::default());
}

#[test]
fn a_subscriber_reports_its_state_and_its_refusals() {
    let mut plan = plan44();
    let blocks = Blocks { size: 32, per_subscriber: 2, ..Blocks::default() };
    plan.pools[0].allocation = Allocation::Blocks(blocks);
    plan.limits.ports_per_subscriber_by[Transport::Tcp as usize] = 3;
    plan.limits.sessions_per_subscriber = 100;
    let mut bed = Bed::new(&plan);
    bed.through(&udp4(B, 1, SERVER, 9, b"x"));
    for port in 0..5 {
        bed.send(&tcp4(A, 1000 + port, SERVER, 9, "S", b""));
    }
    for port in 0..70 {
        bed.send(&udp4(A, 1000 + port, SERVER, 9, b"x"));
    }
    for port in 0..40 {
        bed.send(&udp4(A, 1000, SERVER, 100 + port, b"x"));
    }
    let of = |bed: &Bed, host: &str| {
        let inside = v4(host).to_ipv6_mapped();
        bed.nat.subscriber_stats(0..u32::MAX).find(|s| s.inside == inside)
    };
    let (a, b) = (of(&bed, A).unwrap(), of(&bed, B).unwrap());
    assert_eq!((a.ports, a.blocks, a.sessions), ([3, 64, 0], [2, 0, 0], 100));
    assert_eq!(a.outside, Some(v4(T)));
    assert_eq!(a.refusals, Refusals { sessions: 7, rate: 0, ports: 2, blocks: 6 });
    assert_eq!((b.ports, b.sessions, b.refusals), ([0, 1, 0], 1, Refusals::default()));
    // The next subscriber with this record begins at zero.
    bed.pass_ms(8_000_000);
    assert!(of(&bed, A).is_none());
    for host in 2..5 {
        bed.through(&udp4(&format!("100.64.9.{host}"), 1, SERVER, 9, b"x"));
    }
    assert!(bed.nat.subscriber_stats(0..9).all(|s| s.refusals == Refusals::default()));
}

#[test]
fn subscribers_are_read_in_slices_each_once() {
    let mut bed = Bed::new(&plan44());
    for n in 0..1000 {
        bed.through(&udp4(&format!("100.64.{}.{}", n / 250, n % 250 + 1), 1, SERVER, 9, b"x"));
    }
    let (mut seen, mut from) = (Vec::new(), 0);
    while from < bed.nat.subscribers().high() {
        seen.extend(bed.nat.subscriber_stats(from..from + 64).map(|s| s.inside));
        from += 64;
        // A subscriber ends and another one begins between two slices.
        bed.through(&udp4(&format!("100.65.0.{}", from / 64), 1, SERVER, 9, b"x"));
    }
    seen.sort();
    let read = seen.len();
    seen.dedup();
    assert_eq!(seen.len(), read);
    assert!(read >= 1000, "{read}");
}
