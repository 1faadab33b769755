//! Ports that many flows share (decision 0041), for inside hosts of both families.

use super::common::*;
use super::{A, B, OTHER, POOL6, ROUTER, SERVER, T, both_kinds, plan44};
use gatun_nat::event::EventKinds;
use gatun_nat::plan::{Allocation, Blocks, Deterministic, EventPlan, Transport};
use gatun_nat::{EventKind, Plan, Verdict};
use gatun_wire::DropReason;
use proptest::prelude::*;
use std::collections::HashMap;

/// Plan in which A and B are one subscriber, and flows to 443 share ports.
fn plan() -> Plan {
    let mut plan = both_kinds();
    plan.nat44[0].subscriber_len = 24;
    plan.nat64[0].subscriber_len = 64;
    plan.pools[0].overload = vec![(Transport::Udp, 443), (Transport::Tcp, 443)];
    plan
}

fn server(n: u32) -> String {
    format!("198.51.{}.{}", 100 + n / 250, n % 250 + 1)
}

fn udp_ports(bed: &Bed) -> u64 {
    bed.nat.pools()[0].usage(Transport::Udp).used
}

// proves: R47-3, R78-3
#[test]
fn flows_to_different_servers_share_a_port_and_answers_find_their_host() {
    let mut bed = Bed::new(&plan());
    let mut flows = Vec::new();
    for n in 0..200 {
        let (host, port) = (if n % 2 == 0 { A } else { B }, 5000 + n as u16);
        let at = bed.through(&udp4(host, port, &server(n), 443, b"hello"));
        assert_eq!((at.src, at.dport), (v4(T).into(), 443));
        flows.push((host, port, n, at.sport));
    }
    assert!(flows.iter().all(|flow| flow.3 == flows[0].3), "one port is enough");
    assert_eq!((udp_ports(&bed), bed.nat.occupancy().sessions, bed.nat.occupancy().bindings), (1, 200, 0));
    for (host, port, n, outside) in flows {
        let back = bed.send(&udp4(&server(n), 443, T, outside, b"answer"));
        let mut wanted = with_hops(udp4(&server(n), 443, host, port, b"answer"), 63);
        wanted[4..6].copy_from_slice(&back.forwarded()[4..6]);
        let sum = &back.forwarded()[10..12];
        wanted[10..12].copy_from_slice(sum);
        assert_eq!(back.forwarded(), wanted);
    }
    // All other flows have bindings, whatever their destination.
    let one = bed.through(&udp4(A, 6000, SERVER, 80, b"x"));
    let other = bed.through(&udp4(A, 6000, OTHER, 8080, b"x"));
    assert_eq!(one.sport, other.sport);
    assert_eq!((udp_ports(&bed), bed.nat.occupancy().bindings), (2, 1));
    // All ports return.
    bed.pass_ms(600_000);
    assert_eq!((udp_ports(&bed), bed.nat.occupancy()), (0, Default::default()));
}

#[test]
fn two_flows_to_one_server_have_two_ports() {
    let mut bed = Bed::new(&plan());
    let ports: Vec<u16> = (0..20).map(|n| bed.through(&udp4(A, 5000 + n, SERVER, 443, b"x")).sport).collect();
    let mut different = ports.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 20);
    // Flows to the next server use those ports again, as far as the search goes: eight.
    let again: Vec<u16> = (0..8).map(|n| bed.through(&udp4(B, 5000 + n, OTHER, 443, b"x")).sport).collect();
    assert!(again.iter().all(|port| ports.contains(port)), "{again:?} of {ports:?}");
    assert_eq!(udp_ports(&bed), 20);
    for (n, port) in (0..).zip(ports) {
        assert_eq!(bed.through(&udp4(SERVER, 443, T, port, b"x")).dport, 5000 + n);
    }
}

#[test]
fn another_subscriber_another_protocol_and_another_instance_share_nothing() {
    let mut bed = Bed::new(&plan());
    let a = bed.through(&udp4(A, 5000, &server(1), 443, b"x")).sport;
    let stranger = bed.through(&udp4("100.64.7.2", 5000, &server(2), 443, b"x")).sport;
    let six = bed.through(&udp6(CLIENT, 5000, &behind(POOL6, &server(3)), 443, b"x")).sport;
    assert!(a != stranger && a != six && stranger != six);
    assert_eq!(udp_ports(&bed), 3);
    bed.through(&tcp4(A, 5000, &server(1), 443, "S", b""));
    assert_eq!((udp_ports(&bed), bed.nat.pools()[0].usage(Transport::Tcp).used), (3, 1));
}

// proves: R47-8
#[test]
fn a_shared_port_admits_only_the_servers_of_its_flows() {
    let mut bed = Bed::new(&plan());
    let port = bed.through(&udp4(A, 5000, SERVER, 443, b"x")).sport;
    let refused = Verdict::Drop(DropReason::AddressPortDependentFilter);
    for (from, from_port) in [(OTHER, 443), (SERVER, 444), (SERVER, 80)] {
        assert_eq!(bed.send(&udp4(from, from_port, T, port, b"x")).verdict, refused);
    }
    let port = bed.through(&tcp4(A, 5000, SERVER, 443, "S", b"")).sport;
    for flags in ["A", "FA", "R"] {
        assert_eq!(bed.send(&tcp4(OTHER, 443, T, port, flags, b"")).verdict, refused, "{flags}");
    }
    // No SYN is answered before six seconds (RFC 5382 REQ-4), whatever its port.
    let syn = tcp4(OTHER, 443, T, port, "S", b"");
    assert_eq!(bed.send(&syn).verdict, Verdict::Held);
    assert!(bed.pass_ms(5_999).is_empty());
    let sent = bed.pass_ms(1);
    assert_eq!((icmp_type(&sent[0]), quote(&sent[0])), ((3, 3), &syn[..]));
    assert_eq!(bed.through(&tcp4(SERVER, 443, T, port, "SA", b"")).dport, 5000);
}

#[test]
fn an_inside_end_with_a_binding_uses_it() {
    let mut plan = plan();
    plan.nat44[0].static_bindings = vec![gatun_nat::plan::StaticBinding {
        transport: Transport::Udp,
        inside: (v4(B).to_ipv6_mapped(), 5000),
        outside: (v4(T), 5000),
    }];
    let mut bed = Bed::new(&plan);
    assert_eq!(bed.through(&udp4(B, 5000, SERVER, 443, b"x")).sport, 5000);
    let bound = bed.through(&udp4(A, 7000, SERVER, 9, b"x")).sport;
    assert_eq!(bed.through(&udp4(A, 7000, SERVER, 443, b"x")).sport, bound);
    // The reverse order: a flow is not a binding.
    let shared = bed.through(&udp4(A, 7001, SERVER, 443, b"x")).sport;
    let bound = bed.through(&udp4(A, 7001, SERVER, 9, b"x")).sport;
    assert_ne!(shared, bound);
    assert_eq!(bed.through(&udp4(OTHER, 1, T, bound, b"x")).dport, 7001);
}

// proves: R47-8
#[test]
fn an_inside_end_with_a_flow_and_a_binding_has_one_session_with_a_server() {
    for further in [0, 1] {
        let mut bed = Bed::new(&plan());
        let flow = bed.through(&udp4(A, 5000, SERVER, 443, b"x")).sport;
        let bound = bed.through(&udp4(A, 5000, SERVER, 9, b"x")).sport;
        // Sessions of the binding, one or two.
        for n in 0..further {
            bed.through(&udp4(A, 5000, &server(n), 9, b"x"));
        }
        let sessions = bed.nat.occupancy().sessions;
        assert_eq!(bed.through(&udp4(SERVER, 443, T, bound, b"x")).dport, 5000);
        assert_eq!(bed.nat.occupancy().sessions, sessions, "no second session of the same two ends");
        assert_eq!(bed.through(&udp4(A, 5000, SERVER, 443, b"x")).sport, flow, "the flow keeps its port");
        assert_eq!(bed.through(&udp4(SERVER, 443, T, flow, b"x")).dport, 5000);
        bed.pass_ms(600_000);
        assert_eq!((udp_ports(&bed), bed.nat.occupancy()), (0, Default::default()));
    }
}

/// The two ports are at two addresses: the connection from 9 got its address by a held SYN.
#[test]
fn a_packet_to_the_binding_beside_a_flow_has_the_checksum_of_the_address_that_it_was_sent_to() {
    for further in [false, true] {
        let mut plan = plan();
        plan.pools[0] = pool(T, "192.0.2.2", (1024, 65_535));
        plan.pools[0].overload = vec![(Transport::Tcp, 443)];
        let mut bed = Bed::new(&plan);
        let flow = bed.through(&tcp4(A, 5000, SERVER, 443, "S", b""));
        let elsewhere = if flow.src == v4(T) { "192.0.2.2" } else { T };
        assert_eq!(bed.send(&tcp4(SERVER, 9, elsewhere, 2000, "S", b"")).verdict, Verdict::Held);
        let bound = bed.through(&tcp4(A, 5000, SERVER, 9, "S", b""));
        assert_eq!((bound.src, bound.sport), (v4(elsewhere).into(), 2000));
        if further {
            bed.through(&tcp4(A, 5000, OTHER, 9, "S", b""));
        }
        // The test bed checks every checksum.
        assert_eq!(bed.through(&tcp4(SERVER, 443, elsewhere, 2000, "A", b"x")).dport, 5000);
    }
}

// proves: R55-4, R55-5
#[test]
fn errors_about_a_flow_reach_its_own_host_in_both_directions() {
    let mut bed = Bed::new(&plan());
    let mut outs = Vec::new();
    for (host, n) in [(A, 1), (B, 2)] {
        let sent = udp4(host, 5000, &server(n), 443, b"hello");
        outs.push((host, n, bed.send(&sent).forwarded().to_vec()));
    }
    assert_eq!(ends(&outs[0].2).sport, ends(&outs[1].2).sport);
    for (host, n, out) in &outs {
        let error = bed.send(&error4(ROUTER, T, (3, 1, 0), out)).forwarded().to_vec();
        assert_eq!(etherparse::Ipv4Header::from_slice(&error).unwrap().0.destination, v4(host).octets());
        let inner = ends(quote(&error));
        assert_eq!((inner.src, inner.sport), (v4(host).into(), 5000));
        // An error of the host about an answer leaves from the shared port.
        let answer = bed.send(&udp4(&server(*n), 443, T, ends(out).sport, b"x")).forwarded().to_vec();
        let error = bed.send(&error4(host, &server(*n), (3, 3, 0), &answer)).forwarded().to_vec();
        let inner = ends(quote(&error));
        assert_eq!((inner.dst, inner.dport), (v4(T).into(), ends(out).sport));
    }
    // The error quotes a packet that no host sent.
    let strange = udp4(T, ends(&outs[0].2).sport, &server(3), 443, b"hello");
    let verdict = bed.send(&error4(ROUTER, T, (3, 1, 0), &strange)).verdict;
    assert_eq!(verdict, Verdict::Drop(DropReason::IcmpErrorNoState));
    // The same for IPv6 hosts.
    let clients = ["2001:db8:1::2", "2001:db8:1::3"];
    let out: Vec<Vec<u8>> = (4..6)
        .zip(clients)
        .map(|(n, c)| {
            bed.send(&udp6(c, 5000, &behind(POOL6, &server(n)), 443, b"hello")).forwarded().to_vec()
        })
        .collect();
    assert_eq!(ends(&out[0]).sport, ends(&out[1]).sport);
    for (client, out) in clients.iter().zip(&out) {
        let error = bed.send(&error4(ROUTER, T, (3, 1, 0), out)).forwarded().to_vec();
        assert_eq!((ends(quote(&error)).src, ends(quote(&error)).sport), (v6(client).into(), 5000));
    }
}

// proves: R47-9
#[test]
fn hairpins_to_a_listed_port_share_ports_too() {
    let mut plan = plan();
    plan.nat44[0].static_bindings = vec![gatun_nat::plan::StaticBinding {
        transport: Transport::Udp,
        inside: (v4("100.64.9.9").to_ipv6_mapped(), 443),
        outside: (v4(T), 443),
    }];
    let mut bed = Bed::new(&plan);
    let shared = bed.through(&udp4(A, 5000, &server(1), 443, b"x")).sport;
    let seen = bed.through(&udp4(B, 5001, T, 443, b"x"));
    assert_eq!((seen.src, seen.sport, seen.dst), (v4(T).into(), shared, v4("100.64.9.9").into()));
    let back = bed.through(&udp4("100.64.9.9", 443, T, shared, b"x"));
    assert_eq!((back.dst, back.dport, back.sport), (v4(B).into(), 5001, 443));
}

// proves: R47-14
#[test]
fn a_datagram_in_pieces_stays_together() {
    let mut bed = Bed::new(&plan());
    bed.through(&udp4(B, 5000, &server(1), 443, b"x"));
    let whole = udp4(A, 5000, SERVER, 443, &[7; 64]);
    let mut first = whole[..20 + 40].to_vec();
    first[2..4].copy_from_slice(&60u16.to_be_bytes());
    let mut later = [&whole[..20], &whole[60..]].concat();
    let len = later.len() as u16;
    later[2..4].copy_from_slice(&len.to_be_bytes());
    let later = bed.send(&with_flags4(later, 5));
    assert_eq!(later.verdict, Verdict::Held);
    let first = bed.send(&with_flags4(first, 0x2000));
    assert_eq!((first.verdict, first.emitted.len()), (Verdict::Forward, 1));
    assert_eq!(first.emitted[0][12..16], v4(T).octets());
    assert_eq!(udp_ports(&bed), 1);
}

// proves: R68-4
#[test]
fn a_shared_port_lies_in_the_subscribers_blocks_and_counts_once() {
    let blocks = Blocks { size: 32, per_subscriber: 1, ..Blocks::default() };
    let deterministic = Deterministic {
        inside: vec![gatun_nat::plan::Net6::new(v4("100.64.0.0").to_ipv6_mapped(), 119).unwrap()],
        subscriber_len: 120,
        overflow_per_address: 0,
        blocks,
    };
    for allocation in [Allocation::Blocks(blocks), Allocation::Deterministic(deterministic)] {
        let mut plan = plan();
        plan.pools[0].allocation = allocation;
        plan.pools[0].ranges[0].ports = (1024, 65_535);
        plan.limits.ports_per_subscriber = 3;
        let mut bed = Bed::new(&plan);
        let ports: Vec<u16> =
            (0..500).map(|n| bed.through(&udp4(A, 5000 + n, &server(n.into()), 443, b"x")).sport).collect();
        assert!(ports.iter().all(|port| port / 32 == ports[0] / 32));
        let subscriber = bed.nat.subscriber_stats(0..1).next().unwrap();
        assert_eq!((subscriber.ports, subscriber.sessions), ([0, 1, 0], 500));
        // All to one server, so that the limit of ports applies.
        let refused = (0..5)
            .map(|n| bed.send(&udp4(B, 5000 + n, ROUTER, 443, b"x")).verdict)
            .filter(|v| *v != Verdict::Forward);
        assert_eq!(refused.count(), 2);
    }
}

#[test]
fn events_name_the_subscriber_of_a_shared_port_and_each_flow() {
    let mut plan = plan();
    use EventKind::{BindingCreated, BindingDeleted, SessionCreated};
    let kinds = EventKinds::NONE.with(BindingCreated).with(BindingDeleted).with(SessionCreated);
    plan.events = EventPlan { kinds, ..EventPlan::default() };
    let mut bed = Bed::new(&plan);
    let mut events = bed.nat.take_events().unwrap();
    let port = bed.through(&udp4(A, 5000, &server(1), 443, b"x")).sport;
    bed.through(&udp4(B, 5001, &server(2), 443, b"x"));
    bed.pass_ms(600_000);
    let told: Vec<_> = std::iter::from_fn(|| events.next())
        .map(|e| (e.kind, e.inside().to_ipv4_mapped().unwrap(), e.inside_port, e.outside(), e.outside_port))
        .collect();
    let expected = [
        (BindingCreated, v4("100.64.0.0"), 0, v4(T), port),
        (SessionCreated, v4(A), 5000, v4(T), port),
        (SessionCreated, v4(B), 5001, v4(T), port),
        (BindingDeleted, v4("100.64.0.0"), 0, v4(T), port),
    ];
    assert_eq!(told, expected);
}

#[test]
fn without_the_option_every_inside_end_has_its_port() {
    let mut bed = Bed::new(&plan44());
    let ports: Vec<u16> =
        (0..5).map(|n| bed.through(&udp4(A, 5000 + n, &server(n.into()), 443, b"x")).sport).collect();
    assert_eq!(udp_ports(&bed), 5, "{ports:?}");
}

#[derive(Clone, Debug)]
enum Op {
    Out { host: u8, port: u16, server: u32, tcp: bool },
    Back { flow: usize },
    Stranger { flow: usize },
    Wait { ms: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let out = (0..4u8, 0..6u16, 0..6u32, any::<bool>());
    prop_oneof![
        6 => out.prop_map(|(host, port, server, tcp)| Op::Out { host, port, server, tcp }),
        4 => any::<usize>().prop_map(|flow| Op::Back { flow }),
        1 => any::<usize>().prop_map(|flow| Op::Stranger { flow }),
        1 => (0..400_000u64).prop_map(|ms| Op::Wait { ms }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Compares with a list of flows: the receiver of each answer, and that no two flows have the same
    /// outside ends.
    #[test]
    fn each_flow_has_a_unique_outside_end(ops in prop::collection::vec(op(), 1..150)) {
        let mut plan = plan();
        plan.pools[0].ranges[0].ports = (1024, 1087);
        plan.nat44[0].timeouts.udp_ms = 300_000;
        let mut bed = Bed::new(&plan);
        // Inside end, server and protocol; the outside port, and the time of the last use.
        let mut flows: HashMap<(u8, u16, u32, bool), (u16, u64)> = HashMap::new();
        let mut keys: Vec<(u8, u16, u32, bool)> = Vec::new();
        let packet = |host: u8, port: u16, s: u32, tcp: bool| {
            let host = format!("100.64.{}.{}", host / 2, host % 2 + 1);
            match tcp {
                true => tcp4(&host, 5000 + port, &server(s), 443, "S", b""),
                false => udp4(&host, 5000 + port, &server(s), 443, b"x"),
            }
        };
        for op in ops {
            match op {
                Op::Out { host, port, server, tcp } => {
                    let key = (host, port, server, tcp);
                    let sport = bed.through(&packet(host, port, server, tcp)).sport;
                    if let Some((known, _)) = flows.get(&key) {
                        prop_assert_eq!(*known, sport, "a flow keeps its port");
                    }
                    let twins = flows.iter().filter(|(k, v)| **k != key && (k.2, k.3) == (server, tcp) && v.0 == sport);
                    prop_assert_eq!(twins.count(), 0, "two flows have the same outside ends");
                    let others = flows.iter().filter(|(k, v)| k.3 == tcp && v.0 == sport);
                    prop_assert!(others.into_iter().all(|(k, _)| k.0 / 2 == host / 2), "one subscriber");
                    if flows.insert(key, (sport, bed.now.0)).is_none() {
                        keys.push(key);
                    }
                }
                Op::Back { flow } if !keys.is_empty() => {
                    let key = keys[flow % keys.len()];
                    if let Some((sport, _)) = flows.get(&key) {
                        let answer = match key.3 {
                            true => tcp4(&server(key.2), 443, T, *sport, "A", b""),
                            false => udp4(&server(key.2), 443, T, *sport, b"y"),
                        };
                        let to = bed.through(&answer);
                        let host = v4(&format!("100.64.{}.{}", key.0 / 2, key.0 % 2 + 1));
                        prop_assert_eq!((to.dst, to.dport), (host.into(), 5000 + key.1));
                    }
                }
                Op::Stranger { flow } if !keys.is_empty() => {
                    if let Some((sport, _)) = flows.get(&keys[flow % keys.len()]) {
                        let verdict = bed.send(&udp4("198.51.9.9", 443, T, *sport, b"z")).verdict;
                        prop_assert!(matches!(verdict, Verdict::Drop(_)));
                    }
                }
                Op::Wait { ms } => {
                    bed.pass_ms(ms);
                    let now = bed.now.0;
                    // A flow ends neither before its lifetime nor after the next round of the sweep; in
                    // between, it is undetermined.
                    let ends = |tcp: bool| if tcp { 240_000 } else { 300_000 };
                    flows.retain(|key, (_, at)| now - *at < ends(key.3));
                    keys.retain(|key| flows.contains_key(key));
                    bed.pass_ms(5_000);
                    let now = bed.now.0;
                    flows.retain(|key, (_, at)| now - *at < ends(key.3));
                    keys.retain(|key| flows.contains_key(key));
                }
                _ => {}
            }
        }
        bed.pass_ms(700_000);
        prop_assert_eq!(bed.nat.occupancy(), Default::default());
        prop_assert!(bed.nat.pools()[0].usage(Transport::Tcp).used + udp_ports(&bed) == 0);
    }
}
