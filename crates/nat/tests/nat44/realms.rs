//! Choice of instances by the origin of a packet: customers on separate interfaces with the same addresses
//! (RFC 2663 2.1), and IPv6 sources.

use super::common::*;
use super::{OTHER, ROUTER, SERVER, T, instance, net, plan44};
use gatun_nat::explain::Fate;
use gatun_nat::plan::{Exemption, Nat44, Nat64, Net6};
use gatun_nat::report::InstanceStats;
use gatun_nat::{Plan, Reply, Verdict};
use gatun_wire::{DropReason, HEADROOM, Packet};

/// A host of both customers, and the public address of the second customer.
const HOST: &str = "10.0.0.5";
const T2: &str = "192.0.2.9";
const POOL6: &str = super::POOL6;
/// Realms of the inside hosts.
const HOME: u8 = 0;
const FIRST: u8 = 1;
const SECOND: u8 = 2;

/// Plan with two customers that each have all of 10.0.0.0/8 and a pool, and an instance for all other hosts.
fn plan() -> Plan {
    let customer = |name: &str, realm, pool| Nat44 {
        name: name.into(),
        inside: vec![net("10.0.0.0", 8)],
        realm,
        pool,
        ..instance()
    };
    let mut plan = plan44();
    plan.pools.push(pool(T2, T2, (1, 65535)));
    plan.nat44 = vec![instance(), customer("first", FIRST, 0), customer("second", SECOND, 1)];
    plan
}

/// The endpoints of a packet, with addresses as text.
struct Seen {
    src: String,
    dst: String,
    sport: u16,
    dport: u16,
}

fn seen(packet: &[u8]) -> Seen {
    let Ends { src, dst, sport, dport, .. } = ends(packet);
    Seen { src: src.to_string(), dst: dst.to_string(), sport, dport }
}

impl Bed {
    /// Sends a packet from a realm. Returns the realm that it leaves for, and its endpoints.
    fn from(&mut self, realm: u8, packet: &[u8]) -> (u8, Seen) {
        self.realm = realm;
        let sent = self.send(packet);
        self.realm = 0;
        (sent.realm, seen(sent.forwarded()))
    }

    fn drop_from(&mut self, realm: u8, packet: &[u8]) -> Verdict {
        self.realm = realm;
        let verdict = self.send(packet).verdict;
        self.realm = 0;
        verdict
    }

    fn counted(&self, name: &str) -> InstanceStats {
        self.nat.instance_stats().find(|stats| &*stats.name == name).unwrap()
    }
}

#[test]
fn two_customers_with_the_same_addresses_have_sessions_and_pools_of_their_own() {
    let mut bed = Bed::new(&plan());
    let packets = [
        udp4(HOST, 5000, SERVER, 53, b"x"),
        tcp4(HOST, 5000, SERVER, 80, "S", b""),
        echo4(HOST, SERVER, true, 77, b"x"),
    ];
    // Twice: with a new session, and with an existing one.
    for _ in 0..2 {
        for packet in &packets {
            for (realm, public) in [(FIRST, T), (SECOND, T2)] {
                let (to, out) = bed.from(realm, packet);
                assert_eq!((to, out.src.as_str()), (HOME, public));
                let back = match packet[9] {
                    6 => tcp4(SERVER, 80, public, out.sport, "SA", b""),
                    17 => udp4(SERVER, 53, public, out.sport, b"y"),
                    _ => echo4(SERVER, public, false, out.sport, b"y"),
                };
                let (to, back) = bed.from(HOME, &back);
                assert_eq!((to, back.dst.as_str()), (realm, HOST));
            }
        }
    }
    for name in ["first", "second"] {
        let stats = bed.counted(name);
        assert_eq!((stats.counters.outbound.packets, stats.counters.inbound.packets), (6, 6), "{name}");
        assert_eq!(stats.counters.all().packets, 12);
        assert_eq!((stats.entries.sessions.map(|count| count.now()), stats.subscribers), ([1, 1, 1], 1));
    }
    assert_eq!(bed.counted("cgn").counters, Default::default());
}

// proves: R47-7
#[test]
fn an_inside_address_is_never_a_remote_host() {
    let mut bed = Bed::new(&plan());
    for (realm, from, to) in [
        // Another inside address, the host's own address, and a host without a realm.
        (FIRST, HOST, "10.9.9.9"),
        (SECOND, HOST, "10.9.9.9"),
        (FIRST, "10.0.0.6", HOST),
        (HOME, super::A, "100.64.9.9"),
    ] {
        for packet in [udp4(from, 5000, to, 53, b"x"), tcp4(from, 5000, to, 80, "S", b"")] {
            assert_eq!(bed.drop_from(realm, &packet), Verdict::Pass, "{from} to {to}");
        }
    }
    assert_eq!(bed.nat.occupancy(), Default::default());
    // A remote host has the same address as the inside host. Its packet goes to the binding's host, not to
    // that inside host.
    let (_, out) = bed.from(FIRST, &udp4("10.0.0.6", 5000, SERVER, 53, b"x"));
    let (to, stranger) = bed.from(HOME, &udp4(HOST, 53, T, out.sport, b"y"));
    assert_eq!((to, stranger.src.as_str(), stranger.dst.as_str()), (FIRST, HOST, "10.0.0.6"));
}

#[test]
fn packets_from_another_realm_are_dropped() {
    let mut bed = Bed::new(&plan());
    let packet = udp4(HOST, 5000, SERVER, 53, b"x");
    for realm in [HOME, 3, 255] {
        assert_eq!(bed.drop_from(realm, &packet), Verdict::Drop(DropReason::NotInPool));
    }
    // The instance without a realm serves only hosts without a realm.
    let other = udp4(super::A, 5000, SERVER, 53, b"x");
    assert_eq!(bed.drop_from(FIRST, &other), Verdict::Drop(DropReason::NotInPool));
    assert_eq!(bed.from(HOME, &other).1.src, T);
}

#[test]
fn a_customer_reaches_another_one_by_its_public_address() {
    let mut bed = Bed::new(&plan());
    let (_, second) = bed.from(SECOND, &udp4(HOST, 6000, SERVER, 53, b"x"));
    let (to, seen) = bed.from(FIRST, &udp4(HOST, 5000, T2, second.sport, b"x"));
    assert_eq!((to, seen.src.as_str(), seen.dst.as_str(), seen.dport), (SECOND, T, HOST, 6000));
    let (to, back) = bed.from(SECOND, &udp4(HOST, 6000, T, seen.sport, b"y"));
    assert_eq!((to, back.src.as_str(), back.dst.as_str(), back.dport), (FIRST, T2, HOST, 5000));
    // An error of the second customer's host, about the first customer's packet.
    let about = udp4(T, seen.sport, HOST, 6000, b"x");
    let (to, error) = bed.from(SECOND, &error4(HOST, T, (3, 3, 0), &about));
    assert_eq!((to, error.dst.as_str()), (FIRST, HOST));
}

#[test]
fn answers_and_errors_return_to_the_realm_of_their_cause() {
    let mut bed = Bed::new(&plan());
    for (realm, public) in [(FIRST, T), (SECOND, T2)] {
        let packet = udp4(HOST, 5000, SERVER, 53, b"x");
        let (_, out) = bed.from(realm, &packet);
        bed.realm = realm;
        let refused = bed.send(&with_hops(packet, 1));
        assert_eq!(refused.verdict, Verdict::Reply(Reply::Error(DropReason::TtlExceeded)));
        assert_eq!((refused.realm, seen(&refused.bytes).dst.as_str()), (realm, HOST));
        let pinged = bed.send(&echo4(HOST, OWN4, true, 7, b"x"));
        assert_eq!((pinged.verdict, pinged.realm), (Verdict::Reply(Reply::Echo), realm));
        // An error of an outside router about a packet that has left.
        let about = udp4(public, out.sport, SERVER, 53, b"x");
        let (to, error) = bed.from(HOME, &error4(ROUTER, public, (11, 0, 0), &about));
        assert_eq!((to, error.dst.as_str()), (realm, HOST));
        // An error of the customer's router about a packet that has left.
        let (to, error) = bed.from(realm, &error4("10.0.0.1", public, (11, 0, 0), &about));
        assert_eq!((to, error.dst.as_str()), (realm, HOST));
        // An error of the customer's host about a packet from outside.
        let inside = udp4(SERVER, 53, HOST, 5000, b"x");
        let (to, error) = bed.from(realm, &error4(HOST, SERVER, (3, 3, 0), &inside));
        assert_eq!((to, error.src.as_str()), (HOME, public));
    }
}

#[test]
fn held_fragments_and_probes_go_to_their_realm() {
    let mut bed = Bed::new(&plan());
    let (_, out) = bed.from(SECOND, &udp4(HOST, 5000, SERVER, 53, b"x"));
    let whole = udp4(SERVER, 53, T2, out.sport, &[7; 64]);
    let piece = |from: usize, to: usize, more: u16| {
        let mut piece = [&whole[..20], &whole[20 + from..20 + to]].concat();
        let len = (piece.len() as u16).to_be_bytes();
        piece[2..4].copy_from_slice(&len);
        piece[5] = 9;
        with_flags4(piece, more | (from / 8) as u16)
    };
    assert_eq!(bed.send(&piece(32, 72, 0)).verdict, Verdict::Held);
    let first = bed.send(&piece(0, 32, 0x2000));
    assert_eq!((first.verdict, first.realm, first.emitted_realms), (Verdict::Forward, SECOND, vec![SECOND]));

    let (_, out) = bed.from(SECOND, &tcp4(HOST, 5001, SERVER, 80, "S", b""));
    bed.from(HOME, &tcp4(SERVER, 80, T2, out.sport, "SA", b""));
    let mut probed = Vec::new();
    while probed.is_empty() {
        bed.pass_ms(500);
        probed = bed.emitted_realms.clone();
    }
    assert_eq!(probed, [SECOND]);
}

#[test]
fn exempt_packets_leave_untranslated_and_answers_return_to_their_realm() {
    let mut plan = plan();
    plan.nat44[2].inside = vec![net("172.16.0.0", 12)];
    plan.nat44[2].exempt = vec![Exemption { net: net(OTHER, 32), transport: None, ports: None }];
    let mut bed = Bed::new(&plan);
    bed.realm = SECOND;
    let passed = bed.send(&udp4("172.16.0.5", 1, OTHER, 2, b"x"));
    assert_eq!((passed.verdict, passed.realm), (Verdict::Pass, HOME));
    let among_them = bed.send(&udp4("172.16.0.5", 1, "172.16.0.6", 2, b"x"));
    assert_eq!((among_them.verdict, among_them.realm), (Verdict::Pass, SECOND));
    bed.realm = HOME;
    let back = bed.send(&udp4(OTHER, 2, "172.16.0.5", 1, b"x"));
    assert_eq!((back.verdict, back.realm), (Verdict::Pass, SECOND));
}

#[test]
fn other_realms_do_not_reach_a_customers_hosts_untranslated() {
    let mut plan = plan();
    plan.nat44[2].inside = vec![net("172.16.0.0", 12)];
    plan.nat44[2].exempt = vec![Exemption { net: net(OTHER, 32), transport: None, ports: None }];
    let mut bed = Bed::new(&plan);
    // From another realm, with the address of one of its hosts or of an exempt destination.
    for (realm, source) in [(HOME, "172.16.0.6"), (FIRST, "172.16.0.6"), (FIRST, OTHER), (3, OTHER)] {
        let packet = udp4(source, 2, "172.16.0.5", 1, b"x");
        assert_eq!(
            bed.drop_from(realm, &packet),
            Verdict::Drop(DropReason::NotInPool),
            "{source} from {realm}"
        );
        let mut buf = [vec![0; HEADROOM], packet].concat();
        let len = buf.len() - HEADROOM;
        let mut copy = Packet::new(&mut buf, HEADROOM, len).unwrap();
        copy.realm = realm;
        let foretold = bed.nat.explain(&mut copy).fate;
        assert!(matches!(foretold, Fate::Drop(DropReason::NotInPool, _)), "{foretold:?}");
    }
}

/// Plan with the same prefix in three instances: for one network, for another, and for all hosts of a
/// customer.
fn plan6() -> Plan {
    let of = |name: &str, pool, sources: &[&str], realm| Nat64 {
        name: name.into(),
        pool,
        sources: sources.iter().map(|s| Net6::new(v6(s), 48).unwrap()).collect(),
        realm,
        ..nat64(POOL6)
    };
    let mut plan = plan();
    plan.nat44.clear();
    plan.nat64 = vec![
        of("north", 0, &["2001:db8:a::"], HOME),
        of("south", 1, &["2001:db8:b::"], HOME),
        of("customer", 1, &[], FIRST),
    ];
    plan
}

#[test]
fn ipv6_sources_and_ports_choose_among_instances_of_one_prefix() {
    let mut bed = Bed::new(&plan6());
    let to = behind(POOL6, SERVER);
    for _ in 0..2 {
        for (realm, host, public) in [
            (HOME, "2001:db8:a::1", T),
            (HOME, "2001:db8:b::1", T2),
            (FIRST, "2001:db8:a::1", T2),
            (FIRST, "2001:db8:c::1", T2),
        ] {
            let (out_to, out) = bed.from(realm, &udp6(host, 1000, &to, 53, b"x"));
            assert_eq!((out_to, out.src.as_str()), (HOME, public), "{host}");
            let (back_to, back) = bed.from(HOME, &udp4(SERVER, 53, public, out.sport, b"y"));
            assert_eq!((back_to, back.dst.as_str()), (realm, host));
            // The error of a router whose own address is in no list.
            let inside = udp6(&to, 53, host, 1000, b"y");
            let error = error6("2001:db8:ffff::1", &to, (3, 0, 0), &inside);
            let (error_to, error) = bed.from(realm, &error);
            assert_eq!((error_to, error.src.as_str()), (HOME, public), "{host}");
        }
    }
    let stranger = udp6("2001:db8:c::1", 1000, &to, 53, b"x");
    let refused = bed.drop_from(HOME, &stranger);
    assert!(matches!(refused, Verdict::Reply(Reply::Error(DropReason::SourceNotAllowed))), "{refused:?}");
    let refused = bed.drop_from(SECOND, &stranger);
    assert!(matches!(refused, Verdict::Reply(Reply::Error(DropReason::DestinationNotPool6))), "{refused:?}");
    let sessions = |name| bed.counted(name).entries.sessions[1].now();
    assert_eq!([sessions("north"), sessions("south"), sessions("customer")], [1, 1, 2]);
}
