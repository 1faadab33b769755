//! Mapping, filtering and lifetimes (RFC 6146 3.5.1 and 3.5.3, RFC 4787, RFC 5382, RFC 5508).

use super::common::*;
use super::{OTHER, OTHER6, POOL6, SERVER6, T};
use gatun_nat::plan::{Filtering, Transport};
use gatun_nat::{Plan, Verdict};
use gatun_wire::DropReason;

fn address_dependent() -> Plan {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].filtering = Filtering::AddressDependent;
    plan
}

const FILTERED: Verdict = Verdict::Drop(DropReason::AddressDependentFilter);

// proves: R47-1, R53-1, R55-1, R55-10, R78-5, A61-20, A61-50
#[test]
fn one_inside_endpoint_has_one_outside_endpoint_for_every_destination() {
    let mut bed = Bed::nat64(POOL6);
    let servers: Vec<String> = (1..=20).map(|n| behind(POOL6, &format!("203.0.113.{n}"))).collect();
    let udp: Vec<Ends> = servers.iter().map(|s| bed.through(&udp6(CLIENT, 5000, s, 53, b"x"))).collect();
    let tcp: Vec<Ends> = servers.iter().map(|s| bed.through(&tcp6(CLIENT, 5000, s, 80, "S", b""))).collect();
    let echo: Vec<Ends> = servers.iter().map(|s| bed.through(&echo6(CLIENT, s, true, 5000, b"x"))).collect();
    for all in [&udp, &tcp, &echo] {
        assert!(all.iter().all(|e| (e.src, e.sport) == (all[0].src, all[0].sport)));
    }
    assert_eq!((bed.nat.occupancy().bindings, bed.nat.occupancy().sessions), (3, 60));
    // Another port of the same server needs another session of the same binding.
    let again = bed.through(&udp6(CLIENT, 5000, &servers[0], 54, b"x"));
    assert_eq!(again.sport, udp[0].sport);
    // Answers from all servers arrive.
    for n in 1..=20 {
        let server = format!("203.0.113.{n}");
        assert_eq!(bed.through(&udp4(&server, 53, T, udp[0].sport, b"x")).dport, 5000);
        assert_eq!(bed.through(&tcp4(&server, 80, T, tcp[0].sport, "SA", b"")).dport, 5000);
        assert_eq!(bed.through(&echo4(&server, T, false, echo[0].sport, b"x")).dport, 5000);
    }
}

// proves: A61-22, R47-8, R68-7
#[test]
fn endpoint_independent_filtering_is_the_default_and_admits_all_remote_hosts() {
    assert_eq!(Filtering::default(), Filtering::EndpointIndependent);
    let mut bed = Bed::nat64(POOL6);
    let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
    let e = bed.through(&udp4(OTHER, 999, T, port, b"x"));
    assert_eq!((e.src, e.sport, e.dst, e.dport), (v6(OTHER6).into(), 999, v6(CLIENT).into(), 5000));
    assert_eq!(bed.nat.occupancy().sessions, 2);
    // The remote host has a session now, with its own lifetime.
    bed.pass_ms(200_000);
    bed.through(&udp4(OTHER, 999, T, port, b"x"));
    bed.pass_ms(200_000);
    assert_eq!(bed.nat.occupancy().sessions, 1);
    bed.through(&udp6(CLIENT, 5000, OTHER6, 999, b"x"));
}

// proves: A61-22, R47-8
#[test]
fn address_dependent_filtering_of_udp_asks_for_the_address_and_no_port() {
    let mut bed = Bed::new(&address_dependent());
    let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
    bed.through(&udp4(SERVER, 53, T, port, b"x"));
    bed.through(&udp4(SERVER, 9999, T, port, b"x"));
    assert_eq!(bed.send(&udp4(OTHER, 53, T, port, b"x")).verdict, FILTERED);
    assert_eq!(bed.nat.occupancy().sessions, 2);
    // The neighbour's binding does not know the server.
    let neighbour = bed.through(&udp6(CLIENT, 5001, OTHER6, 53, b"x")).sport;
    assert_eq!(bed.send(&udp4(SERVER, 53, T, neighbour, b"x")).verdict, FILTERED);
    // A packet to the address permits packets from it.
    bed.through(&udp6(CLIENT, 5000, OTHER6, 1, b"x"));
    bed.through(&udp4(OTHER, 53, T, port, b"x"));
}

// proves: R53-3
#[test]
fn address_dependent_filtering_of_tcp_lets_no_stranger_pass_and_a_known_address_open() {
    let mut bed = Bed::new(&address_dependent());
    let port = bed.through(&tcp6(CLIENT, 5000, SERVER6, 80, "S", b"")).sport;
    for flags in ["A", "R", "FA", "PA"] {
        assert_eq!(bed.send(&tcp4(OTHER, 80, T, port, flags, b"")).verdict, FILTERED, "{flags}");
    }
    bed.through(&tcp4(SERVER, 8080, T, port, "A", b""));
    assert_eq!(bed.nat.occupancy().sessions, 1);
    bed.through(&tcp4(SERVER, 8080, T, port, "S", b""));
    assert_eq!(bed.nat.occupancy().sessions, 2);
}

// proves: A61-50, A61-22
#[test]
fn echo_from_outside_obeys_the_filter() {
    let mut bed = Bed::new(&address_dependent());
    let id = bed.through(&echo6(CLIENT, SERVER6, true, 77, b"x")).sport;
    assert_eq!(bed.through(&echo4(SERVER, T, true, id, b"x")).dport, 77);
    assert_eq!(bed.send(&echo4(OTHER, T, true, id, b"x")).verdict, FILTERED);
    assert_eq!(bed.send(&echo4(SERVER, T, true, id ^ 1, b"x")).verdict, Verdict::Drop(DropReason::NoBib));

    let mut bed = Bed::nat64(POOL6);
    let id = bed.through(&echo6(CLIENT, SERVER6, true, 77, b"x")).sport;
    let e = bed.through(&echo4(OTHER, T, true, id, b"x"));
    assert_eq!((e.src, e.dport), (v6(OTHER6).into(), 77));
    assert_eq!(bed.through(&echo6(CLIENT, OTHER6, false, 77, b"x")).sport, id);
}

// proves: R78-6
#[test]
fn a_contact_by_one_protocol_does_not_admit_another() {
    let mut bed = Bed::new(&address_dependent());
    let udp = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
    let tcp = bed.through(&tcp6(CLIENT, 5000, OTHER6, 53, "S", b"")).sport;
    let id = bed.through(&echo6(CLIENT, OTHER6, true, 5000, b"x")).sport;
    bed.through(&udp4(SERVER, 1, T, udp, b"x"));
    assert_eq!(bed.send(&tcp4(SERVER, 53, T, tcp, "A", b"")).verdict, FILTERED);
    assert_eq!(bed.send(&echo4(SERVER, T, true, id, b"x")).verdict, FILTERED);
    assert_eq!(bed.send(&udp4(OTHER, 53, T, udp, b"x")).verdict, FILTERED);
}

// proves: R78-11
#[test]
fn identifications_of_a_session_do_not_repeat_soon() {
    let mut bed = Bed::nat64(POOL6);
    let packet = udp6(CLIENT, 5000, SERVER6, 53, b"x");
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20_000 {
        let out = bed.send(&packet);
        let sent = out.forwarded();
        assert_eq!(sent[6] & 0x40, 0, "small enough to be cut on the way, so it has an identification");
        assert!(seen.insert([sent[4], sent[5]]));
    }
}

// proves: A61-50
#[test]
fn an_echo_reply_opens_nothing() {
    let mut bed = Bed::nat64(POOL6);
    let out = bed.send(&echo6(CLIENT, SERVER6, false, 77, b"x"));
    assert_eq!(out.verdict, Verdict::Drop(DropReason::NoSession));
    assert_eq!(bed.nat.occupancy(), Default::default());
    let id = bed.through(&echo6(CLIENT, SERVER6, true, 77, b"x")).sport;
    let out = bed.send(&echo4(OTHER, T, false, id, b"x"));
    assert_eq!(out.verdict, Verdict::Drop(DropReason::NoSession));
    assert_eq!(bed.nat.occupancy().sessions, 1);
}

// proves: A61-50, R55-9
#[test]
fn echo_can_be_switched_off() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].icmp_queries = false;
    plan.nat64[0].static_bindings = vec![static_binding(Transport::Icmp, (CLIENT, 77), (T, 77))];
    let mut bed = Bed::new(&plan);
    for packet in [echo6(CLIENT, SERVER6, true, 77, b"x"), echo4(SERVER, T, true, 77, b"x")] {
        assert_eq!(bed.send(&packet).verdict, Verdict::Drop(DropReason::IcmpUnknownType));
    }
    assert_eq!(bed.nat.occupancy().sessions, 0);
}

// proves: A61-51, R55-11
#[test]
fn other_icmp_queries_are_dropped_silently() {
    let mut bed = Bed::nat64(POOL6);
    let id = bed.through(&echo6(CLIENT, SERVER6, true, 77, b"x")).sport;
    let before = bed.nat.occupancy();
    // ICMPv4: information, timestamp, address mask, router discovery; ICMPv6: MLD, ND, node information.
    for kind in [13u8, 14, 15, 16, 17, 18, 9, 10, 40] {
        let out = bed.send(&error4(SERVER, T, (kind, 0, u32::from(id) << 16), &[0; 12]));
        assert!(matches!(out.verdict, Verdict::Drop(_)), "{kind}: {out:?}");
    }
    for kind in [130u8, 131, 132, 133, 135, 137, 139, 140, 143, 200] {
        let out = bed.send(&error6(CLIENT, SERVER6, (kind, 0, 77 << 16), &[0; 12]));
        assert!(matches!(out.verdict, Verdict::Drop(_)), "{kind}: {out:?}");
    }
    assert_eq!(bed.nat.occupancy(), before);
}

// proves: A61-23
#[test]
fn without_a_binding_udp_from_outside_is_dropped_and_answered_only_if_configured() {
    let packet = udp4(SERVER, 53, T, 5000, b"x");
    let mut bed = Bed::nat64(POOL6);
    assert_eq!(bed.send(&packet).verdict, Verdict::Drop(DropReason::NoBib));
    assert_eq!(bed.nat.occupancy(), Default::default());

    let mut plan = plan_with(POOL6);
    plan.icmp.suppressed.clear();
    let out = Bed::new(&plan).send(&packet);
    assert!(matches!(out.verdict, Verdict::Reply(_)));
    assert_eq!((icmp_type(&out.bytes), quote(&out.bytes)), ((3, 3), &packet[..]));
    assert_eq!((&out.bytes[12..16], &out.bytes[16..20]), (&v4(OWN4).octets()[..], &v4(SERVER).octets()[..]));
}

// proves: A61-21, R47-5, R47-6
#[test]
fn a_udp_session_lives_five_minutes_from_its_last_packet_in_either_direction() {
    for inbound in [false, true] {
        let mut bed = Bed::nat64(POOL6);
        let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
        for _ in 0..3 {
            bed.pass_ms(299_000);
            match inbound {
                true => bed.through(&udp4(SERVER, 53, T, port, b"x")),
                false => bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")),
            };
        }
        bed.now = bed.now.plus_ms(300_200);
        let late = bed.send(&udp4(SERVER, 53, T, port, b"x"));
        assert_eq!(late.verdict, Verdict::Drop(DropReason::NoBib), "inbound: {inbound}");
    }
}

// proves: R47-6, R78-7
#[test]
fn inbound_packets_need_not_extend_a_session() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].inbound_refresh = false;
    let mut bed = Bed::new(&plan);
    let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
    let id = bed.through(&echo6(CLIENT, SERVER6, true, 5000, b"x")).sport;
    bed.pass_ms(50_000);
    bed.through(&echo4(SERVER, T, false, id, b"x"));
    bed.pass_ms(20_000);
    let late = bed.send(&echo4(SERVER, T, false, id, b"x"));
    assert_eq!(late.verdict, Verdict::Drop(DropReason::NoBib));
    bed.pass_ms(220_000);
    bed.through(&udp4(SERVER, 53, T, port, b"x"));
    bed.now = bed.now.plus_ms(10_200);
    let late = bed.send(&udp4(SERVER, 53, T, port, b"x"));
    assert_eq!(late.verdict, Verdict::Drop(DropReason::NoBib));
}

// proves: A61-50, R55-2
#[test]
fn an_echo_session_lives_a_minute() {
    let mut bed = Bed::nat64(POOL6);
    let id = bed.through(&echo6(CLIENT, SERVER6, true, 77, b"x")).sport;
    bed.pass_ms(59_900);
    bed.through(&echo4(SERVER, T, false, id, b"x"));
    bed.pass_ms(59_900);
    bed.through(&echo6(CLIENT, SERVER6, true, 77, b"x"));
    bed.now = bed.now.plus_ms(60_200);
    let late = bed.send(&echo4(SERVER, T, false, id, b"x"));
    assert_eq!(late.verdict, Verdict::Drop(DropReason::NoBib));
}

// proves: A61-24, R78-12
#[test]
fn a_binding_ends_with_its_last_session_and_not_before() {
    let mut bed = Bed::nat64(POOL6);
    let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
    for _ in 0..4 {
        bed.pass_ms(200_000);
        assert_eq!(bed.through(&udp6(CLIENT, 5000, OTHER6, 53, b"x")).sport, port);
    }
    assert_eq!((bed.nat.occupancy().sessions, bed.nat.occupancy().bindings), (1, 1));
    bed.pass_ms(310_000);
    assert_eq!(bed.nat.occupancy(), Default::default());
}

// proves: A61-24
#[test]
fn a_static_binding_never_ends_and_its_port_is_nobody_elses() {
    let mut plan = plan_with(POOL6);
    plan.pools[0].ranges[0].ports = (8000, 8003);
    plan.nat64[0].static_bindings = vec![
        static_binding(Transport::Udp, (CLIENT, 53), (T, 8001)),
        static_binding(Transport::Tcp, (CLIENT, 80), (T, 80)),
    ];
    let mut bed = Bed::new(&plan);
    assert_eq!(bed.nat.occupancy().bindings, 2);
    for _ in 0..3 {
        assert_eq!(bed.through(&udp4(SERVER, 5, T, 8001, b"x")).dport, 53);
        assert_eq!(bed.through(&udp6(CLIENT, 53, OTHER6, 5, b"x")).sport, 8001);
        assert_eq!(bed.through(&tcp4(SERVER, 5, T, 80, "S", b"")).dport, 80, "outside the pool's ports");
        assert_eq!(bed.nat.occupancy().sessions, 3);
        bed.pass_ms(400_000);
        assert_eq!((bed.nat.occupancy().sessions, bed.nat.occupancy().bindings), (0, 2));
        assert_eq!(bed.nat.occupancy().subscribers, 0);
    }
    // The three other ports are available, and no more.
    let mut ports: Vec<u16> =
        (0..3).map(|n| bed.through(&udp6(CLIENT, 6000 + n, SERVER6, 53, b"x")).sport).collect();
    ports.sort();
    assert_eq!(ports, [8000, 8002, 8003]);
    let fourth = bed.send(&udp6(CLIENT, 7000, SERVER6, 53, b"x"));
    assert_eq!(fourth.verdict, Verdict::Reply(gatun_nat::Reply::Error(DropReason::PortsExhausted)));
}

#[test]
fn a_plan_with_two_static_bindings_of_one_port_is_refused() {
    let mut plan = plan_with(POOL6);
    let other = static_binding(Transport::Udp, ("2001:db8:1::3", 53), (T, 53));
    plan.nat64[0].static_bindings = vec![static_binding(Transport::Udp, (CLIENT, 53), (T, 53)), other];
    assert!(gatun_nat::Nat::new(&plan, [1; 4]).is_err());
}

// proves: A61-22
#[test]
fn a_dead_session_on_the_way_does_not_harm_the_filter() {
    // Sessions with one address, ports 1 to 3; the first has ended when the filter runs.
    let mut bed = Bed::new(&address_dependent());
    let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 1, b"x")).sport;
    bed.now = bed.now.plus_ms(200_000);
    bed.through(&udp6(CLIENT, 5000, SERVER6, 2, b"x"));
    bed.now = bed.now.plus_ms(150_000);
    let e = bed.through(&udp4(SERVER, 3, T, port, b"x"));
    assert_eq!((e.src, e.sport, e.dst, e.dport), (v6(SERVER6).into(), 3, v6(CLIENT).into(), 5000));
    assert_eq!((bed.nat.occupancy().sessions, bed.nat.occupancy().bindings), (2, 1));
    // If all have ended, the binding has ended too.
    bed.now = bed.now.plus_ms(400_000);
    let late = bed.send(&udp4(SERVER, 4, T, port, b"x"));
    assert!(matches!(late.verdict, Verdict::Drop(_)));
    bed.pass_ms(5_000);
    assert_eq!(bed.nat.occupancy(), Default::default());
}

// proves: A61-22
#[test]
fn the_filter_knows_an_address_as_long_as_any_session_with_it_lives() {
    // Sessions with the server and with others, opened alternately. Then those with the server end one by
    // one.
    let others: Vec<String> = (1..=6).map(|n| behind(POOL6, &format!("203.0.113.{n}"))).collect();
    let orders: [[u16; 7]; 4] =
        [[1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1], [4, 1, 7, 2, 6, 3, 5], [2, 1, 4, 3, 6, 5, 7]];
    for order in orders {
        let mut bed = Bed::new(&address_dependent());
        let syn = |server: &str, port| tcp6(CLIENT, 5000, server, port, "S", b"");
        let outside = bed.through(&syn(SERVER6, 1)).sport;
        for (other, port) in others.iter().zip(2..) {
            bed.through(&syn(other, 80));
            bed.through(&syn(SERVER6, port));
        }
        // This is not a SYN: it is filtered and creates no session.
        let question = tcp4(SERVER, 9999, T, outside, "A", b"");
        bed.through(&question);
        for ended in 1..=order.len() {
            for _ in 0..2 {
                bed.pass_ms(150_000);
                for &port in &order[ended..] {
                    bed.through(&syn(SERVER6, port));
                }
                for other in &others {
                    bed.through(&syn(other, 80));
                }
            }
            assert_eq!(bed.nat.occupancy().sessions, 13 - ended);
            let verdict = bed.send(&question).verdict;
            let expected = if ended < order.len() { Verdict::Forward } else { FILTERED };
            assert_eq!(verdict, expected, "{order:?}: {ended} have ended");
            for n in 1..=6 {
                bed.through(&tcp4(&format!("203.0.113.{n}"), 9999, T, outside, "A", b""));
            }
        }
    }
}

// proves: A61-22
#[test]
fn a_static_binding_knows_an_address_when_other_sessions_came_and_went_between() {
    let mut plan = address_dependent();
    plan.nat64[0].static_bindings = vec![static_binding(Transport::Udp, (CLIENT, 9), (T, 9))];
    let mut bed = Bed::new(&plan);
    let contact = |bed: &mut Bed, remote: &str, port| {
        bed.through(&udp6(CLIENT, 9, &behind(POOL6, remote), port, b"x"));
    };
    contact(&mut bed, "203.0.113.1", 1);
    bed.pass_ms(10_000);
    contact(&mut bed, "203.0.113.2", 1);
    // The first session ends, and the binding's own record replaces it until the next one comes.
    bed.pass_ms(295_000);
    contact(&mut bed, "203.0.113.2", 2);
    contact(&mut bed, "203.0.113.3", 1);
    bed.pass_ms(15_000);
    assert_eq!(bed.nat.occupancy().sessions, 2);
    bed.through(&udp4("203.0.113.2", 99, T, 9, b"another port of a known address"));
}
