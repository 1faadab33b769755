//! Pools, pairing, quotas and full tables (RFC 6146 3.5.1.1, RFC 4787 REQ-2 to 4, RFC 6888).

use super::common::*;
use super::{OTHER6, POOL6, SERVER6, T};
use gatun_nat::plan::{self, Pairing, PoolRange};
use gatun_nat::{BURST, Plan, Reply, Verdict};
use gatun_wire::{DropReason, HEADROOM, Packet};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

fn client(n: u32) -> String {
    format!("2001:db8:1:{:x}::{:x}", n >> 16, (n & 0xffff) + 1)
}

fn refused(reason: DropReason) -> Verdict {
    Verdict::Reply(Reply::Error(reason))
}

fn small_pool(ports: (u16, u16)) -> Plan {
    let mut plan = plan_with(POOL6);
    plan.pools = vec![pool(T, T, ports)];
    plan
}

// proves: A61-25, R47-2, R68-2
#[test]
fn a_host_keeps_its_address_over_ports_and_protocols() {
    let mut plan = plan_with(POOL6);
    plan.pools = vec![pool("192.0.2.0", "192.0.2.63", (1024, 65535))];
    let mut bed = Bed::new(&plan);
    let mut used = BTreeSet::new();
    for n in 0..100 {
        let host = client(n);
        let mut addresses: BTreeSet<IpAddr> = BTreeSet::new();
        for port in 3000..3010 {
            addresses.insert(bed.through(&udp6(&host, port, SERVER6, 53, b"x")).src);
            addresses.insert(bed.through(&tcp6(&host, port, OTHER6, 80, "S", b"")).src);
            addresses.insert(bed.through(&echo6(&host, SERVER6, true, port, b"x")).src);
        }
        assert_eq!(addresses.len(), 1, "{host}");
        used.extend(addresses);
    }
    assert!(used.len() > 32, "hosts spread over the pool: {}", used.len());
}

// proves: R47-2, R68-2
#[test]
fn hosts_of_one_subscriber_prefix_share_an_address() {
    let mut plan = plan_with(POOL6);
    plan.pools = vec![pool("192.0.2.0", "192.0.2.63", (1024, 65535))];
    plan.nat64[0].subscriber_len = 64;
    let mut bed = Bed::new(&plan);
    let addresses: BTreeSet<IpAddr> =
        (0..50).map(|n| bed.through(&udp6(&client(n), 3000, SERVER6, 53, b"x")).src).collect();
    assert_eq!(addresses.len(), 1);
    assert_eq!(bed.nat.occupancy().subscribers, 1);
}

// proves: A61-25, R47-3, R53-7, R78-3
#[test]
fn ports_keep_their_class_and_nobody_shares_one() {
    let mut bed = Bed::nat64(POOL6);
    let mut seen = BTreeSet::new();
    for n in 0..50 {
        for port in [1, 500, 1023, 1024, 5000, 65535] {
            let udp = bed.through(&udp6(&client(n), port, SERVER6, 53, b"x")).sport;
            let tcp = bed.through(&tcp6(&client(n), port, SERVER6, 80, "S", b"")).sport;
            for (transport, got) in [(0, udp), (1, tcp)] {
                assert_eq!(got < 1024, port < 1024, "{port} became {got}");
                assert!(seen.insert((transport, got)), "{got} is given twice");
            }
        }
    }
}

// proves: A61-25, R47-4
#[test]
fn parity_is_kept_if_configured() {
    let mut plan = plan_with(POOL6);
    plan.pools[0].port_parity = true;
    let mut bed = Bed::new(&plan);
    for port in 2000..2100 {
        let got = bed.through(&udp6(CLIENT, port, SERVER6, 53, b"x")).sport;
        assert_eq!(got % 2, port % 2, "{port} became {got}");
    }
}

// proves: A61-25
#[test]
fn any_free_port_is_better_than_a_drop() {
    let mut plan = small_pool((1022, 1025));
    plan.pools[0].port_parity = true;
    let mut bed = Bed::new(&plan);
    let ports: BTreeSet<u16> =
        (0..4).map(|n| bed.through(&udp6(CLIENT, 5000 + 2 * n, SERVER6, 53, b"x")).sport).collect();
    assert_eq!(ports, (1022..=1025).collect());
}

// proves: R68-11, R68-13
#[test]
fn a_pool_is_used_to_its_last_port_reports_exhaustion_and_recovers() {
    let mut bed = Bed::new(&small_pool((2000, 2099)));
    let mut ports = BTreeSet::new();
    for n in 0..100 {
        ports.insert(bed.through(&udp6(&client(n), 5000, SERVER6, 53, b"x")).sport);
    }
    assert_eq!(ports, (2000..=2099).collect());
    let late = udp6(&client(200), 5000, SERVER6, 53, b"x");
    let out = bed.send(&late);
    assert_eq!(out.verdict, refused(DropReason::PortsExhausted));
    assert_eq!((icmp_type(&out.bytes), quote(&out.bytes)), ((1, 3), &late[..]), "address unreachable");
    assert_eq!(bed.drops(DropReason::PortsExhausted), 1);
    // Other sessions of hosts with a port, and other protocols, are not affected.
    for n in 0..100 {
        bed.through(&udp6(&client(n), 5000, SERVER6, 53, b"x"));
        bed.through(&udp6(&client(n), 5000, OTHER6, 53, b"x"));
    }
    bed.through(&tcp6(&client(200), 5000, SERVER6, 80, "S", b""));
    bed.pass_ms(310_000);
    bed.through(&late);
}

/// Returns the mapping and filtering behaviour for a new host of a new subscriber, which must not change (RFC
/// 4787 REQ-11).
fn behaviour(bed: &mut Bed, n: u32) -> Vec<(bool, bool, bool)> {
    let host = client(n << 16);
    let mapped = |bed: &mut Bed, port: u16, to: &str, remote: u16| {
        let e = bed.through(&udp6(&host, port, to, remote, b"x"));
        (e.src, e.sport)
    };
    let behaves = |port: u16| {
        let first = mapped(bed, port, SERVER6, 53);
        // Endpoint-independent mapping: another host, another port of it, and the first one again.
        let same =
            [(OTHER6, 53), (SERVER6, 54), (SERVER6, 53)].map(|(to, at)| mapped(bed, port, to, at) == first);
        let stranger = udp4("203.0.113.9", 1000 + port, &first.0.to_string(), first.1, b"x");
        // Endpoint-independent filtering: another remote host reaches the inside host, at the port that it
        // sends from.
        let e = ends(bed.send(&stranger).forwarded());
        (same == [true; 3], e.dst == v6(&host), e.dport == port)
    };
    [5000, 5001, 5003].map(behaves).into()
}

// proves: R47-11
#[test]
fn hosts_are_mapped_and_filtered_alike_in_an_empty_and_in_a_nearly_full_pool_of_several_addresses() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].subscriber_len = 64;
    plan.pools = vec![pool("192.0.2.1", "192.0.2.4", (2000, 2099))];
    let mut bed = Bed::new(&plan);
    let empty = behaviour(&mut bed, 0);
    assert_eq!(empty, [(true, true, true); 3]);
    let mut given = BTreeMap::new();
    for n in 1..=390u32 {
        let packet = udp6(&client(n << 16), 5000, SERVER6, 53, b"x");
        let e = bed.through(&packet);
        assert_eq!(given.insert((e.src, e.sport), packet), None, "a port of two");
    }
    assert_eq!(given.keys().map(|(address, _)| address).collect::<BTreeSet<_>>().len(), 4);
    // 393 of 400 ports are in use.
    assert_eq!(behaviour(&mut bed, 1000), empty);
    assert_eq!(behaviour(&mut bed, 0), empty);
    let full = (0..5).map(|n| bed.send(&udp6(&client(2000 << 16), 7000 + n, SERVER6, 53, b"x")).verdict);
    assert_eq!(full.last(), Some(refused(DropReason::PortsExhausted)));
    // Existing translations have not changed.
    for ((address, port), packet) in given {
        let e = bed.through(&packet);
        assert_eq!((e.src, e.sport), (address, port));
    }
}

// proves: R78-4, R47-2
#[test]
fn pairing_is_soft_or_hard_as_configured() {
    for (pairing, expected) in [(Pairing::Soft, true), (Pairing::Hard, false)] {
        let mut plan = plan_with(POOL6);
        plan.pools = vec![pool("192.0.2.1", "192.0.2.2", (2000, 2003))];
        plan.pools[0].pairing = pairing;
        let mut bed = Bed::new(&plan);
        let first: BTreeSet<IpAddr> =
            (0..4).map(|n| bed.through(&udp6(CLIENT, 5000 + n, SERVER6, 53, b"x")).src).collect();
        assert_eq!(first.len(), 1);
        let fifth = bed.send(&udp6(CLIENT, 6000, SERVER6, 53, b"x"));
        match expected {
            true => assert!(!first.contains(&ends(fifth.forwarded()).src)),
            false => assert_eq!(fifth.verdict, refused(DropReason::PortsExhausted)),
        }
        // Other subscribers are not affected.
        bed.through(&udp6(&client(9), 5000, SERVER6, 53, b"x"));
    }
}

// proves: R68-3
#[test]
fn a_pool_may_be_any_ranges_of_addresses_and_ports_by_protocol() {
    let range = |first: &str, last: &str, ports, transports| PoolRange {
        first: v4(first),
        last: v4(last),
        ports,
        transports,
    };
    let mut plan = plan_with(POOL6);
    plan.pools[0].ranges = vec![
        range("192.0.2.1", "192.0.2.1", (1000, 1009), [true, false, false]),
        range("198.18.0.7", "198.18.0.8", (30000, 30009), [false, true, false]),
        range("203.0.113.200", "203.0.113.200", (5, 14), [false, false, true]),
    ];
    let mut bed = Bed::new(&plan);
    for n in 0..10 {
        let tcp = bed.through(&tcp6(&client(n), 80, SERVER6, 80, "S", b""));
        assert!(tcp.src == v4("192.0.2.1") && (1000..=1009).contains(&tcp.sport), "{tcp:?}");
        let udp = bed.through(&udp6(&client(n), 80, SERVER6, 80, b""));
        assert!(udp.src == v4("198.18.0.7") || udp.src == v4("198.18.0.8"), "{udp:?}");
        assert!((30000..=30009).contains(&udp.sport), "{udp:?}");
        let echo = bed.through(&echo6(&client(n), SERVER6, true, 80, b""));
        assert!(echo.src == v4("203.0.113.200") && (5..=14).contains(&echo.sport), "{echo:?}");
    }
    let out = bed.send(&tcp6(&client(10), 80, SERVER6, 80, "S", b""));
    assert_eq!(out.verdict, refused(DropReason::PortsExhausted));
    // Ports outside the pool's ranges do not belong to the translator.
    let out = bed.send(&tcp4(SERVER, 80, "192.0.2.1", 22, "S", b""));
    assert_eq!(out.verdict, Verdict::Drop(DropReason::NotInPool));
}

#[test]
fn a_protocol_without_ports_in_the_pool_is_answered() {
    let mut plan = plan_with(POOL6);
    plan.pools[0].ranges[0].transports = [true, false, true];
    let mut bed = Bed::new(&plan);
    let out = bed.send(&udp6(CLIENT, 5000, SERVER6, 53, b"x"));
    assert_eq!(out.verdict, refused(DropReason::PoolEmpty));
    bed.through(&tcp6(CLIENT, 5000, SERVER6, 80, "S", b""));
}

// proves: R68-4
#[test]
fn each_subscriber_has_its_own_port_quota() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].subscriber_len = 64;
    plan.limits.ports_per_subscriber = 6;
    let mut bed = Bed::new(&plan);
    // Two hosts of one prefix, three protocols.
    for host in [client(1), client(2)] {
        bed.through(&udp6(&host, 5000, SERVER6, 53, b"x"));
        bed.through(&tcp6(&host, 5000, SERVER6, 80, "S", b""));
        bed.through(&echo6(&host, SERVER6, true, 5000, b"x"));
    }
    let more = udp6(&client(3), 5000, SERVER6, 53, b"x");
    let out = bed.send(&more);
    assert_eq!(out.verdict, refused(DropReason::SubscriberPortQuota));
    assert_eq!((icmp_type(&out.bytes), quote(&out.bytes)), ((1, 1), &more[..]));
    bed.through(&udp6(&client(1), 5000, OTHER6, 53, b"a second destination needs no port"));
    bed.through(&udp6(&client(1 << 16), 5000, SERVER6, 53, b"another prefix"));
    // Its echo binding has ended after a minute.
    bed.pass_ms(66_000);
    bed.through(&more);
}

// proves: R68-4
#[test]
fn ports_may_be_limited_by_protocol() {
    let mut plan = plan_with(POOL6);
    plan.limits.ports_per_subscriber_by = [2, 3, u32::MAX];
    let mut bed = Bed::new(&plan);
    for n in 0..5 {
        let udp = bed.send(&udp6(CLIENT, 5000 + n, SERVER6, 53, b"x")).verdict;
        let tcp = bed.send(&tcp6(CLIENT, 5000 + n, SERVER6, 80, "S", b"")).verdict;
        bed.through(&echo6(CLIENT, SERVER6, true, 5000 + n, b"x"));
        for (verdict, max) in [(tcp, 2), (udp, 3)] {
            let expected = if n < max { Verdict::Forward } else { refused(DropReason::SubscriberPortQuota) };
            assert_eq!(verdict, expected);
        }
    }
    let key = gatun_nat::subscriber::SubscriberKey { prefix: v6(CLIENT).into(), instance: 0 };
    let subscribers = bed.nat.subscribers();
    let s = subscribers.get(subscribers.find(key).unwrap()).unwrap();
    assert_eq!((s.ports, s.ports_total(), s.sessions), ([2, 3, 5], 10, 10));
}

// proves: R68-4, R68-5, R68-11
#[test]
fn the_session_rate_is_limited_and_the_error_code_is_configurable() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].subscriber_len = 64;
    plan.limits.session_rate_per_subscriber = 10;
    plan.limits.session_burst_per_subscriber = 20;
    plan.icmp.quota_code6 = 5;
    plan.icmp.rate_per_source = 0;
    let mut bed = Bed::new(&plan);
    let scan = |bed: &mut Bed, from: u16| {
        (from..from + 100)
            .filter(|&port| {
                bed.send(&udp6(&client(u32::from(port)), 5000, SERVER6, port, b"x")).verdict
                    == Verdict::Forward
            })
            .count()
    };
    assert_eq!(scan(&mut bed, 1), 20);
    let out = bed.send(&udp6(&client(1), 9, SERVER6, 9, b"x"));
    assert_eq!(out.verdict, refused(DropReason::SubscriberRate));
    assert_eq!(icmp_type(&out.bytes), (1, 5));
    // Neither neighbours nor existing sessions are affected.
    bed.through(&udp6(&client(1 << 16), 5000, SERVER6, 53, b"x"));
    bed.through(&udp6(&client(1), 5000, SERVER6, 1, b"x"));
    bed.now = bed.now.plus_ms(1_000);
    assert_eq!(scan(&mut bed, 1_000), 10);
}

// proves: R68-5
#[test]
fn the_session_quota_counts_sessions_opened_from_both_sides() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].subscriber_len = 64;
    plan.limits.sessions_per_subscriber = 5;
    let mut bed = Bed::new(&plan);
    let port = bed.through(&udp6(&client(1), 5000, SERVER6, 1, b"x")).sport;
    bed.through(&udp6(&client(2), 5000, SERVER6, 1, b"x"));
    for n in 2..=4 {
        bed.through(&udp4(&format!("203.0.113.{n}"), 53, T, port, b"x"));
    }
    let out = bed.send(&udp6(&client(2), 5000, SERVER6, 2, b"x"));
    assert_eq!(out.verdict, refused(DropReason::SubscriberSessionQuota));
    let out = bed.send(&udp4("203.0.113.9", 53, T, port, b"x"));
    assert_eq!(out.verdict, refused(DropReason::SubscriberSessionQuota));
    assert_eq!(bed.nat.occupancy().sessions, 5);
    // Existing sessions and other subscribers continue.
    bed.through(&udp6(&client(2), 5000, SERVER6, 1, b"x"));
    bed.through(&udp6(&client(1 << 16), 5000, SERVER6, 1, b"x"));
    bed.pass_ms(310_000);
    bed.through(&udp6(&client(2), 5000, SERVER6, 2, b"x"));
}

/// Sends `count` UDP packets of a host to as many remote addresses. Returns the number of forwarded ones.
fn opens(bed: &mut Bed, host: &str, first: u32, count: u32) -> u32 {
    let model = udp6(host, 5000, SERVER6, 53, b"x");
    let packet = |n: u32| {
        let mut bytes = model.clone();
        bytes[36..40].copy_from_slice(&(0x0b00_0000 + n).to_be_bytes());
        bytes
    };
    let mut forwarded = 0;
    for from in (first..first + count).step_by(BURST) {
        let packets: Vec<Vec<u8>> = (from..(first + count).min(from + BURST as u32)).map(packet).collect();
        let mut bufs: Vec<Vec<u8>> =
            packets.iter().map(|p| [&[0; HEADROOM][..], p, &[0; 64]].concat()).collect();
        let len = model.len();
        let mut burst: Vec<Packet<'_>> =
            bufs.iter_mut().map(|buf| Packet::new(buf, HEADROOM, len).unwrap()).collect();
        let mut verdicts = [Verdict::Pass; BURST];
        let now = bed.now;
        assert_eq!(bed.nat.process(now, &mut burst, &mut verdicts), packets.len());
        forwarded += verdicts[..packets.len()].iter().filter(|v| **v == Verdict::Forward).count() as u32;
    }
    forwarded
}

#[test]
fn greedy_subscribers_do_not_lock_out_new_ones() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].subscriber_len = 64;
    let mut bed = Bed::new(&plan);
    let greedy = |n: u32| format!("2001:db8:bad:{n:x}::1");
    let all: u32 = (0..16).map(|n| opens(&mut bed, &greedy(n), 0, 16_384)).sum();
    assert_eq!(all, 12 * 16_384 + 4 * 64, "three quarters of the table are for all");
    assert!(bed.drops(DropReason::SessionTableReserved) > 0);
    // As many more subscribers as `gatun check` reports room for, in addition to the reserve.
    (16..900).for_each(|n| assert_eq!(opens(&mut bed, &greedy(n), 0, 100), 64));
    let newcomers = (0..20).map(|n| udp6(&format!("2001:db8:900d:{n:x}::1"), 5000, SERVER6, 53, b"x"));
    for packet in newcomers {
        bed.through(&packet);
    }
    assert_eq!(opens(&mut bed, "2001:db8:900d:5::1", 0, 40), 40, "each has more than one session");
    bed.now = bed.now.plus_ms(1_000);
    // A refusal is reported in the same way as for a full table, and existing sessions continue.
    let out = bed.send(&udp6(&greedy(20), 5000, SERVER6, 54, b"x"));
    assert_eq!(out.verdict, refused(DropReason::SessionTableReserved));
    assert_eq!(icmp_type(&out.bytes), (1, 3));
    assert_eq!(opens(&mut bed, &greedy(1), 0, 16_384), 16_384);
    // The reserve counts all sessions: those opened from outside count for the inside host.
    let port = bed.through(&udp6("2001:db8:900d:6::1", 5000, SERVER6, 53, b"x")).sport;
    let strangers = (0..80).map(|n| udp4(&format!("203.0.113.{n}"), 53, T, port, b"x"));
    let let_in = strangers.filter(|p| bed.send(p).verdict == Verdict::Forward).count();
    assert_eq!(let_in, 63);
}

// proves: R68-11, R55-8
#[test]
fn a_full_session_table_stops_new_sessions_and_no_old_ones() {
    let mut plan = plan_with(POOL6);
    plan.limits.sessions_max = 20;
    let mut bed = Bed::new(&plan);
    let ports: Vec<u16> =
        (0..20).map(|n| bed.through(&udp6(&client(n), 5000, SERVER6, 1, b"x")).sport).collect();
    let late = udp6(&client(77), 5000, SERVER6, 1, b"x");
    assert_eq!(bed.send(&late).verdict, refused(DropReason::SessionTableFull));
    let stranger = udp4("203.0.113.9", 53, T, ports[0], b"x");
    let out = bed.send(&stranger);
    assert_eq!(out.verdict, refused(DropReason::SessionTableFull));
    assert_eq!(icmp_type(&out.bytes), (3, 1));
    // A query is refused in the same way: the host is unreachable now.
    let out = bed.send(&echo6(&client(77), SERVER6, true, 1, b"x"));
    assert_eq!(out.verdict, refused(DropReason::SessionTableFull));
    assert_eq!(icmp_type(&out.bytes), (1, 3));
    assert_eq!(bed.nat.occupancy().sessions, 20);
    assert_eq!(bed.nat.occupancy().subscribers, 20, "refused subscribers leave no record");
    for (n, &port) in (0..20).zip(&ports) {
        assert_eq!(bed.through(&udp6(&client(n), 5000, SERVER6, 1, b"x")).sport, port);
        bed.through(&udp4(SERVER, 1, T, port, b"x"));
    }
    bed.pass_ms(310_000);
    bed.through(&late);
}

// proves: R68-11
#[test]
fn a_full_subscriber_table_stops_new_subscribers_and_no_old_ones() {
    let mut plan = plan_with(POOL6);
    plan.limits.subscribers_max = 3;
    let mut bed = Bed::new(&plan);
    for n in 0..3 {
        bed.through(&udp6(&client(n), 5000, SERVER6, 1, b"x"));
    }
    let late = udp6(&client(77), 5000, SERVER6, 1, b"x");
    assert_eq!(bed.send(&late).verdict, refused(DropReason::SubscriberTableFull));
    for n in 0..3 {
        bed.through(&udp6(&client(n), 5001, SERVER6, 1, b"x"));
    }
    bed.pass_ms(310_000);
    bed.through(&late);
}

#[test]
fn two_instances_with_two_pools_do_not_meet() {
    let mut plan = plan_with(POOL6);
    plan.pools.push(pool("198.18.0.1", "198.18.0.1", (1, 65535)));
    let mut second = nat64("2001:db8:65::/96");
    second.pool = 1;
    plan.nat64.push(second);
    let mut bed = Bed::new(&plan);
    let a = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x"));
    let b = bed.through(&udp6(CLIENT, 5000, &behind("2001:db8:65::/96", SERVER), 53, b"x"));
    assert_eq!((a.src, b.src), (v4(T).into(), v4("198.18.0.1").into()));
    assert_eq!((bed.nat.occupancy().bindings, bed.nat.occupancy().subscribers), (2, 2));
    let back = bed.through(&udp4(SERVER, 53, T, a.sport, b"x"));
    assert_eq!(back.src, v6(SERVER6));
    let back = bed.through(&udp4(SERVER, 53, "198.18.0.1", b.sport, b"x"));
    assert_eq!(back.src, v6(&behind("2001:db8:65::/96", SERVER)));
}

// proves: A52-8
#[test]
fn the_longest_prefix_of_two_instances_decides_on_the_instance() {
    let (short, long) = ("2001:db8:122::/48", "2001:db8:122:344::/96");
    for turned in [false, true] {
        let mut plan = plan_with(if turned { long } else { short });
        plan.pools.push(pool("198.18.0.1", "198.18.0.1", (1, 65535)));
        plan.nat64.push(plan::Nat64 { pool: 1, ..nat64(if turned { short } else { long }) });
        let mut bed = Bed::new(&plan);
        let pools = if turned { [T, "198.18.0.1"] } else { ["198.18.0.1", T] };
        for (pool6, public) in [long, short].into_iter().zip(pools) {
            let e = bed.through(&udp6("2001:beef::2", 5000, &behind(pool6, SERVER), 53, b"x"));
            assert_eq!((e.src, e.dst), (v4(public).into(), v4(SERVER).into()), "{pool6}");
            let back = bed.through(&udp4(SERVER, 53, public, e.sport, b"x"));
            assert_eq!(back.src, v6(&behind(pool6, SERVER)));
        }
    }
}

// proves: R47-3, A52-8
#[test]
fn two_instances_on_one_pool_never_share_a_port() {
    let mut plan = small_pool((2000, 2007));
    plan.nat64.push(nat64("2001:db8:65::/96"));
    let mut bed = Bed::new(&plan);
    let (a, b) = (POOL6, "2001:db8:65::/96");
    let mut ports = BTreeSet::new();
    for (pool6, n) in [(a, 0), (b, 1), (a, 2), (b, 3), (a, 4), (b, 5), (a, 6), (b, 7)] {
        // The same inside endpoint in both instances: two bindings.
        let host = client(n / 2);
        let e = bed.through(&udp6(&host, 5000, &behind(pool6, SERVER), 53, b"x"));
        assert!(ports.insert(e.sport));
        let back = bed.through(&udp4(SERVER, 53, T, e.sport, b"x"));
        assert_eq!((back.src, back.dst), (v6(&behind(pool6, SERVER)).into(), v6(&host).into()));
    }
    let out = bed.send(&udp6(&client(99), 5000, SERVER6, 53, b"x"));
    assert_eq!(out.verdict, refused(DropReason::PortsExhausted));
}
