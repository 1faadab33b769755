//! Packets to the translator's own addresses: answered or dropped, never translated, and without state in the
//! tables (RFC 1122 3.2.1.3, RFC 1812 5.2.3). Every packet is explained first, and the outcome has to equal
//! the forecast.

mod common;

use common::*;
use gatun_nat::explain::Fate;
use gatun_nat::plan::{Eam, Exemption, IcmpPolicy, Nat44, Net4, Net6, Plan, Siit, StaticBinding, Transport};
use gatun_nat::{Reply, Verdict};
use gatun_wire::{DropReason, HEADROOM, Packet};
use std::net::IpAddr;

const POOL6: &str = "2001:db8:64::/96";
const STATELESS6: &str = "2001:db8:46::/96";
/// The pool's address.
const T: &str = "192.0.2.1";
/// Address that is mapped to an IPv6 host.
const MAPPED: &str = "192.0.2.99";
const MAPPED6: &str = "2001:db8:5::1";
const PRIVATE: &str = "100.64.0.5";

fn net4(addr: &str, len: u8) -> Net4 {
    Net4::new(v4(addr), len).unwrap()
}

fn siit() -> Siit {
    let eam = Eam { v4: net4(MAPPED, 32), v6: Net6::new(v6(MAPPED6), 128).unwrap() };
    Siit { name: "mapped".into(), pool6: vec![prefix(STATELESS6)], eamt: vec![eam], ..Siit::default() }
}

fn nat44() -> Nat44 {
    // An operator's exemption does not change the meaning of an own address.
    let exempt = vec![Exemption { net: net4("192.0.2.128", 25), transport: None, ports: None }];
    Nat44 { name: "private".into(), inside: vec![net4("100.64.0.0", 10)], exempt, ..Nat44::default() }
}

/// Policy without rate limits, because other tests check those.
fn unlimited() -> IcmpPolicy {
    IcmpPolicy { burst: 100_000, rate_per_source: 0, ..IcmpPolicy::default() }
}

/// Plan with instances of all kinds. The own addresses are in no pool and no prefix.
fn plan() -> Plan {
    Plan { nat44: vec![nat44()], siit: vec![siit()], icmp: unlimited(), ..plan_with(POOL6) }
}

/// Plan with stateless instances only.
fn stateless() -> Plan {
    let (own4, own6) = (Some(v4(OWN4)), Some(v6(OWN6)));
    Plan { own4, own6, siit: vec![siit()], icmp: unlimited(), ..Plan::default() }
}

/// Verdict for a packet to an own address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Ping,
    Answer(DropReason, (u8, u8)),
    Silence,
}

fn fragment6(packet: &[u8], offset: u16, more: bool) -> Vec<u8> {
    let mut out = packet[..40].to_vec();
    out.extend([out[6], 0]);
    out.extend((offset | u16::from(more)).to_be_bytes());
    out.extend([0, 0, 0, 7]);
    out[6] = 44;
    out.extend(&packet[40..]);
    let len = (out.len() - 40) as u16;
    out[4..6].copy_from_slice(&len.to_be_bytes());
    out
}

/// Makes a packet of each kind from one IPv6 address to another.
fn each6(from: &str, to: &str) -> Vec<(Vec<u8>, Wanted)> {
    let udp = udp6(from, 5000, to, 53, &[7; 16]);
    vec![
        (echo6(from, to, true, 7, b"ping"), Wanted::Ping),
        (udp.clone(), Wanted::Answer(DropReason::OwnUdp, (1, 4))),
        (other6(from, to, 47), Wanted::Answer(DropReason::OwnProtocol, (4, 1))),
        (other6(from, to, 59), Wanted::Silence),
        (tcp6(from, 5000, to, 80, "S", b""), Wanted::Silence),
        (echo6(from, to, false, 7, b"pong"), Wanted::Silence),
        (error6(from, to, (1, 4, 0), &udp6(to, 53, from, 5000, b"x")), Wanted::Silence),
        (error6(from, to, (144, 0, 0), b""), Wanted::Silence),
        (fragment6(&udp, 0, true), Wanted::Silence),
        (fragment6(&udp, 24, false), Wanted::Silence),
    ]
}

/// Same as [`each6`], for IPv4.
fn each4(from: &str, to: &str) -> Vec<(Vec<u8>, Wanted)> {
    let udp = udp4(from, 5000, to, 53, &[7; 16]);
    vec![
        (echo4(from, to, true, 7, b"ping"), Wanted::Ping),
        (udp.clone(), Wanted::Answer(DropReason::OwnUdp, (3, 3))),
        (other4(from, to, 47), Wanted::Answer(DropReason::OwnProtocol, (3, 2))),
        (other4(from, to, 2), Wanted::Silence),
        (tcp4(from, 5000, to, 80, "S", b""), Wanted::Silence),
        (echo4(from, to, false, 7, b"pong"), Wanted::Silence),
        (error4(from, to, (3, 3, 0), &udp4(to, 53, from, 5000, b"x")), Wanted::Silence),
        (error4(from, to, (13, 0, 0), b""), Wanted::Silence),
        (with_flags4(udp.clone(), 0x2000), Wanted::Silence),
        (with_flags4(udp, 3), Wanted::Silence),
    ]
}

fn addresses(packet: &[u8]) -> (IpAddr, IpAddr) {
    let at = |at: usize| -> IpAddr {
        match packet[0] >> 4 {
            6 => <[u8; 16]>::try_from(&packet[at..at + 16]).unwrap().into(),
            _ => <[u8; 4]>::try_from(&packet[at..at + 4]).unwrap().into(),
        }
    };
    if packet[0] >> 4 == 6 { (at(8), at(24)) } else { (at(12), at(16)) }
}

/// Sends a packet, and checks the forecast of its outcome first.
fn send(bed: &mut Bed, packet: &[u8]) -> Outcome {
    let mut buf = vec![0; HEADROOM];
    buf.extend(packet);
    let told = bed.nat.explain(&mut Packet::new(&mut buf, HEADROOM, packet.len()).unwrap()).fate;
    let out = bed.send(packet);
    match (told, out.verdict) {
        (Fate::Drop(told, None), Verdict::Drop(done)) => assert_eq!(told, done),
        (Fate::Drop(told, Some(_)), Verdict::Reply(Reply::Error(done))) => assert_eq!(told, done),
        (Fate::Echo, Verdict::Reply(Reply::Echo)) | (Fate::Forward { .. }, Verdict::Forward) => {}
        (told, done) => panic!("{told:?} is told, {done:?} done"),
    }
    out
}

/// Sends each packet ten times. Each must get its verdict, and must leave no state.
fn ends_here(bed: &mut Bed, packets: &[(Vec<u8>, Wanted)]) {
    let before = bed.nat.occupancy();
    for (packet, wanted) in packets {
        for _ in 0..10 {
            let out = send(bed, packet);
            let ((from, to), (answers_from, answers_to)) = (addresses(packet), addresses(&out.bytes));
            match wanted {
                Wanted::Silence => {
                    assert_eq!(out.verdict, Verdict::Drop(DropReason::OwnOther), "{packet:02x?}")
                }
                Wanted::Ping => assert_eq!(out.verdict, Verdict::Reply(Reply::Echo), "{packet:02x?}"),
                Wanted::Answer(reason, kind) => {
                    assert_eq!(out.verdict, Verdict::Reply(Reply::Error(*reason)), "{packet:02x?}");
                    assert_eq!((icmp_type(&out.bytes), quote(&out.bytes)), (*kind, &packet[..]));
                }
            }
            if *wanted != Wanted::Silence {
                // RFC 4443 2.2 a: the answer comes from the destination of the packet.
                assert_eq!((answers_from, answers_to), (to, from));
            }
            assert_eq!(out.emitted.len(), 0);
        }
    }
    assert_eq!(bed.nat.occupancy(), before);
    assert_eq!(bed.nat.counters().forwarded.packets, 0);
}

#[test]
fn a_stateless_instance_translates_nothing_to_an_own_address_in_either_direction() {
    let bed = &mut Bed::new(&stateless());
    ends_here(bed, &each4(SERVER, OWN4));
    ends_here(bed, &each4(MAPPED, OWN4));
    for from in [MAPPED6, &behind(STATELESS6, SERVER), CLIENT] {
        ends_here(bed, &each6(from, OWN6));
        ends_here(bed, &each6(from, &behind(STATELESS6, OWN4)));
    }
    // The pointer is the offset of the field with the protocol.
    let out = bed.send(&other6(CLIENT, OWN6, 47));
    assert_eq!(out.bytes[44..48], [0, 0, 0, 6]);
}

/// `own6` has an IPv4 address, and `own4` an IPv6 address: by a prefix, by a mapping, or by both.
#[test]
fn an_address_that_represents_an_own_address_is_an_own_address() {
    let within = behind(STATELESS6, "192.0.2.77");
    let bed = &mut Bed::new(&Plan { own6: Some(v6(&within)), ..stateless() });
    for own in [OWN4, "192.0.2.77"] {
        ends_here(bed, &each4(SERVER, own));
        ends_here(bed, &each6(MAPPED6, &behind(STATELESS6, own)));
    }
    // Addresses that are similar to both are no own addresses.
    for other in ["192.0.2.76", "192.0.2.78", "192.0.2.255", "192.0.2.253"] {
        assert_eq!(bed.send(&udp4(SERVER, 1, other, 2, b"x")).verdict, Verdict::Forward);
        assert_eq!(
            bed.send(&udp6(MAPPED6, 1, &behind(STATELESS6, other), 2, b"x")).verdict,
            Verdict::Forward
        );
    }
    let bed = &mut Bed::new(&Plan { own4: Some(v4(MAPPED)), ..stateless() });
    ends_here(bed, &each4(SERVER, MAPPED));
    ends_here(bed, &each6(CLIENT, MAPPED6));
    ends_here(bed, &each6(CLIENT, &behind(STATELESS6, MAPPED)));
    let bed = &mut Bed::new(&Plan { own6: Some(v6(MAPPED6)), ..stateless() });
    ends_here(bed, &each4(SERVER, MAPPED));
    ends_here(bed, &each6(CLIENT, MAPPED6));
}

#[test]
fn an_inside_host_of_a_stateful_instance_opens_nothing_to_an_own_address() {
    let bed = &mut Bed::new(&plan());
    ends_here(bed, &each6(CLIENT, OWN6));
    ends_here(bed, &each6(CLIENT, &behind(POOL6, OWN4)));
    ends_here(bed, &each4(PRIVATE, OWN4));
    // Packets from outside are for the own address too.
    ends_here(bed, &each4(T, OWN4));
    ends_here(bed, &each4(SERVER, OWN4));
    // `own6` inside the prefix, at an address that does not embed `own4`.
    let within = behind(POOL6, "192.0.2.77");
    let bed = &mut Bed::new(&Plan { own6: Some(v6(&within)), ..plan() });
    ends_here(bed, &each6(CLIENT, &within));
}

/// Plan with `own4` in the pool, whose ports begin at 1024.
fn own_in_pool(bindings: [StaticBinding; 3]) -> Plan {
    let [tcp, udp, icmp] = bindings;
    let mut plan = plan();
    plan.own4 = Some(v4(T));
    plan.pools = vec![pool(T, T, (1024, 65535))];
    plan.nat64[0].static_bindings = vec![tcp, udp, icmp];
    plan
}

fn bindings(inside: &str) -> [StaticBinding; 3] {
    [
        static_binding(Transport::Tcp, (inside, 80), (T, 80)),
        static_binding(Transport::Udp, (inside, 53), (T, 53)),
        static_binding(Transport::Icmp, (inside, 9), (T, 9)),
    ]
}

#[test]
fn static_bindings_of_an_own_address_get_their_packets() {
    let bed = &mut Bed::new(&own_in_pool(bindings(MAPPED6)));
    for packet in [
        udp4(SERVER, 5000, T, 53, b"x"),
        tcp4(SERVER, 5000, T, 80, "S", b""),
        echo4(SERVER, T, true, 9, b"ping"),
    ] {
        let to = ends(send(bed, &packet).forwarded());
        assert_eq!(to.dst, v6(MAPPED6), "{packet:02x?}");
    }
    assert_eq!(bed.through(&echo6(MAPPED6, &behind(POOL6, SERVER), false, 9, b"pong")).sport, 9);
    // Another inside host reaches it by the own address too.
    let own = behind(POOL6, T);
    for packet in [
        udp6(CLIENT, 5000, &own, 53, b"x"),
        tcp6(CLIENT, 5000, &own, 80, "S", b""),
        udp4(PRIVATE, 5000, T, 53, b"x"),
        tcp4(PRIVATE, 5000, T, 80, "S", b""),
    ] {
        let to = ends(send(bed, &packet).forwarded());
        assert_eq!(to.dst, v6(MAPPED6), "{packet:02x?}");
    }
    // All other pings are for the translator.
    for ping in [
        echo4(SERVER, T, true, 8, b"ping"),
        echo4(PRIVATE, T, true, 9, b"ping"),
        echo6(CLIENT, &own, true, 9, b"ping"),
    ] {
        assert_eq!(send(bed, &ping).verdict, Verdict::Reply(Reply::Echo));
    }
}

#[test]
fn an_own_address_in_a_pool_is_a_public_address_like_others() {
    let bed = &mut Bed::new(&own_in_pool(bindings(MAPPED6)));
    let from = bed.through(&udp6(CLIENT, 5000, &behind(POOL6, SERVER), 53, b"x"));
    assert_eq!(
        (from.src, send(bed, &udp4(SERVER, 53, T, from.sport, b"x")).verdict),
        (v4(T).into(), Verdict::Forward)
    );
    // An unsolicited SYN to a port of the pool has to wait (RFC 5382 REQ-4). A SYN to another port does not.
    assert_eq!(bed.send(&tcp4(SERVER, 5000, T, 4000, "S", b"")).verdict, Verdict::Held);
    let silent = Verdict::Drop(DropReason::OwnOther);
    assert_eq!(send(bed, &tcp4(SERVER, 5000, T, 1023, "S", b"")).verdict, silent);
    let answered = Verdict::Reply(Reply::Error(DropReason::OwnUdp));
    assert_eq!(send(bed, &udp4(SERVER, 5000, T, 1023, b"x")).verdict, answered);
    // From inside, to unbound ports: no session and no port.
    let before = bed.nat.occupancy();
    for port in [1023, 4000] {
        assert_eq!(send(bed, &udp6(CLIENT, 5001, &behind(POOL6, T), port, b"x")).verdict, answered);
        assert_eq!(send(bed, &udp4(PRIVATE, 5001, T, port, b"x")).verdict, answered);
    }
    assert_eq!(send(bed, &tcp6(CLIENT, 5001, &behind(POOL6, T), 1023, "S", b"")).verdict, silent);
    assert_eq!(send(bed, &tcp4(PRIVATE, 5001, T, 1023, "S", b"")).verdict, silent);
    assert_eq!(bed.nat.occupancy(), before);
}

/// Sends a burst that takes the fast path if possible. A session to another address already exists.
#[test]
fn the_fast_path_leaves_own_addresses_to_the_slow_path() {
    let bed = &mut Bed::new(&plan());
    let packets = [
        udp6(CLIENT, 5000, &behind(POOL6, OWN4), 53, b"x"),
        udp4(PRIVATE, 5000, OWN4, 53, b"x"),
        udp6(MAPPED6, 5000, &behind(STATELESS6, OWN4), 53, b"x"),
        udp4(SERVER, 5000, OWN4, 53, b"x"),
    ];
    for (packet, other) in packets.iter().zip([
        udp6(CLIENT, 5000, &behind(POOL6, SERVER), 53, b"x"),
        udp4(PRIVATE, 5000, SERVER, 53, b"x"),
        udp6(MAPPED6, 5000, &behind(STATELESS6, SERVER), 53, b"x"),
        udp4(SERVER, 5000, MAPPED, 53, b"x"),
    ]) {
        bed.send(&other).forwarded();
        assert_eq!(bed.send(packet).verdict, Verdict::Reply(Reply::Error(DropReason::OwnUdp)));
        bed.send(&other).forwarded();
    }
    assert_eq!(bed.nat.occupancy().sessions, 2);
}
