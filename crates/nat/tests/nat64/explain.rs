//! Forecasts equal outcomes: an engine is asked before every packet of random histories, over plans that make
//! it reach every limit.

use super::common::*;
use gatun_nat::explain::{Explanation, Fate, Opening, PortSource, Rule};
use gatun_nat::inspect::{PortCursor, Selection, SessionCursor};
use gatun_nat::plan::*;
use gatun_nat::{Nat, Plan, Reply, Verdict};
use gatun_wire::{DropReason, HEADROOM, Packet};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeSet;

fn net4(addr: &str, len: u8) -> Net4 {
    Net4::new(v4(addr), len).unwrap()
}

/// Two NAT64 instances and a NAT44 instance that share a pool, and a stateless one. All tables are small.
fn small(pool: Pool4, filtering: Filtering, limits: Limits) -> Plan {
    let eam = Eam { v4: net4("203.0.113.0", 28), v6: Net6::new(v6("2001:db8:2::"), 124).unwrap() };
    Plan {
        own4: Some(v4(OWN4)),
        own6: Some(v6(OWN6)),
        pools: vec![pool],
        nat64: vec![
            Nat64 {
                filtering,
                sources: vec![Net6::new(v6("2001:db8:1::"), 48).unwrap()],
                static_bindings: vec![static_binding(
                    Transport::Tcp,
                    ("2001:db8:1::1", 80),
                    ("192.0.2.1", 1024),
                )],
                ..nat64("2001:db8:64::/96")
            },
            Nat64 { name: "wkp".into(), external_tcp: false, icmp_queries: false, ..nat64("64:ff9b::/96") },
        ],
        nat44: vec![Nat44 {
            name: "cgn".into(),
            inside: vec![net4("100.64.0.0", 24)],
            exempt: vec![Exemption {
                net: net4("198.51.100.128", 25),
                transport: Some(Transport::Udp),
                ports: Some((53, 53)),
            }],
            filtering,
            mtu: 1400,
            ..Nat44::default()
        }],
        siit: vec![Siit {
            name: "servers".into(),
            pool6: vec![prefix("2001:db8:46::/96")],
            eamt: vec![eam],
            denylist4: vec![net4("203.0.113.8", 32)],
            ..Siit::default()
        }],
        icmp: IcmpPolicy { rate: 1_000_000, burst: 1_000_000, ..IcmpPolicy::default() },
        limits,
        ..Plan::default()
    }
}

fn few() -> Limits {
    Limits {
        sessions_max: 40,
        subscribers_max: 6,
        sessions_per_subscriber: 16,
        ports_per_subscriber: 12,
        ports_per_subscriber_by: [10, 8, 4],
        syn_store_max: 3,
        ..Limits::default()
    }
}

fn addresses(ports: (u16, u16)) -> Pool4 {
    pool("192.0.2.1", "192.0.2.3", ports)
}

fn blocks(protocols: BlockProtocols) -> Blocks {
    Blocks {
        size: 32,
        per_subscriber: 1,
        linger_ms: 2_000,
        hold: HoldDown { ms: 4_000, ports_max: 1_000 },
        protocols,
    }
}

fn plans() -> Vec<Plan> {
    let hold = HoldDown { ms: 3_000, ports_max: 8 };
    let deterministic = Deterministic {
        inside: vec![
            Net6::new(v6("2001:db8:1::"), 126).unwrap(),
            Net6::new(v6("::ffff:100.64.0.0"), 127).unwrap(),
        ],
        subscriber_len: 128,
        overflow_per_address: 1,
        blocks: Blocks { per_subscriber: 1, ..blocks(BlockProtocols::Shared) },
    };
    let rate = Limits { session_rate_per_subscriber: 1, session_burst_per_subscriber: 1, ..few() };
    let many = Limits {
        sessions_max: 400,
        sessions_per_subscriber: 200,
        ports_per_subscriber: 200,
        ports_per_subscriber_by: [200; 3],
        ..few()
    };
    let with = |allocation| Pool4 { allocation, ..addresses((1024, 1151)) };
    let shared = vec![(Transport::Udp, 443), (Transport::Tcp, 443)];
    use Filtering::*;
    let mut only_mapped = small(addresses((1024, 1030)), EndpointIndependent, few());
    only_mapped.siit[0].pool6.clear();
    vec![
        only_mapped,
        small(Pool4 { pairing: Pairing::Hard, ..addresses((1024, 1029)) }, AddressDependent, few()),
        small(
            Pool4 { allocation: Allocation::Random(hold), ..addresses((1024, 1027)) },
            EndpointIndependent,
            many,
        ),
        small(Pool4 { overload: shared, ..addresses((1024, 1040)) }, AddressAndPortDependent, rate),
        small(with(Allocation::Blocks(blocks(BlockProtocols::Shared))), EndpointIndependent, many),
        small(
            Pool4 { pairing: Pairing::Hard, ..with(Allocation::Blocks(blocks(BlockProtocols::Split))) },
            AddressDependent,
            many,
        ),
        small(with(Allocation::Deterministic(deterministic)), EndpointIndependent, many),
    ]
}

struct Dice(ChaCha8Rng);

impl Dice {
    fn below(&mut self, n: u32) -> u32 {
        self.0.next_u32() % n
    }

    fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len() as u32) as usize]
    }
}

/// Returns a bound public end, or an unbound one.
fn public_end(dice: &mut Dice, nat: &Nat) -> (String, u16) {
    let mut found = Vec::with_capacity(64);
    nat.read_bindings(&mut PortCursor::default(), &Selection::default(), usize::MAX, &mut found);
    if found.is_empty() || dice.below(4) == 0 {
        return (format!("192.0.2.{}", 1 + dice.below(4)), 1020 + dice.below(20) as u16);
    }
    let one = found[dice.below(found.len() as u32) as usize];
    (one.outside.0.to_string(), one.outside.1)
}

/// Makes a packet of any kind. Most packets belong to flows that repeat.
fn packet(dice: &mut Dice, nat: &Nat) -> Vec<u8> {
    let (public, public_port) = public_end(dice, nat);
    let has_blocks = nat.pools()[0].block_usage().is_some();
    let payload = vec![7; if dice.below(6) == 0 { 1_100 + dice.below(400) as usize } else { 8 }];
    let remote = dice.one_of(&[
        "198.51.100.7",
        "198.51.100.8",
        "198.51.100.200",
        "8.8.8.8",
        "127.0.0.1",
        "203.0.113.5",
        "203.0.113.8",
        OWN4,
    ]);
    let remote = if dice.below(5) == 0 { public.as_str() } else { remote };
    let port = *dice.one_of(&[&53u16, &443, &public_port, &80]);
    let inside_port = 80 + dice.below(if has_blocks { 80 } else { 12 }) as u16;
    let flags = dice.one_of(&["S", "S", "S", "A", "SA", "F", "R", "SF", ""]);
    let hops = *dice.one_of(&[&64u8, &64, &64, &64, &2, &1]);
    // One host takes all that it can get.
    let greedy = has_blocks && dice.below(2) == 0;
    let kind = if greedy { 0 } else { dice.below(3) };
    let from6 = format!("2001:db8:{}::{:x}", dice.one_of(&["1", "1", "1", "2", "3"]), 1 + dice.below(8));
    let from6 = if greedy { "2001:db8:1::3".to_owned() } else { from6 };
    let from4 = format!("100.64.0.{}", 1 + dice.below(4));
    let bytes = match dice.below(6) {
        0..3 => {
            let via =
                dice.one_of(&["2001:db8:64::/96", "2001:db8:64::/96", "64:ff9b::/96", "2001:db8:46::/96"]);
            let to = behind(via, remote);
            let from = if dice.below(20) == 0 { "fe80::1".to_owned() } else { from6 };
            match kind {
                0 => udp6(&from, inside_port, &to, port, &payload),
                1 => tcp6(&from, inside_port, &to, port, flags, &payload),
                _ => echo6(&from, &to, dice.below(8) > 0, inside_port, &payload),
            }
        }
        3 => match kind {
            0 => udp4(&from4, inside_port, remote, port, &payload),
            1 => tcp4(&from4, inside_port, remote, port, flags, &payload),
            _ => echo4(&from4, remote, dice.below(8) > 0, inside_port, &payload),
        },
        _ => match kind {
            0 => udp4(remote, port, &public, public_port, &payload),
            1 => tcp4(remote, port, &public, public_port, flags, &payload),
            _ => echo4(remote, &public, dice.below(2) > 0, public_port, &payload),
        },
    };
    with_hops(bytes, hops)
}

/// Asks an engine about a packet. Returns the explanation and the translated packet.
fn ask(nat: &Nat, packet: &[u8]) -> (Explanation, Vec<u8>) {
    let mut buf = vec![0xa5; HEADROOM + packet.len() + 64];
    buf[HEADROOM..HEADROOM + packet.len()].copy_from_slice(packet);
    let mut copy = Packet::new(&mut buf, HEADROOM, packet.len()).unwrap();
    let explanation = nat.explain(&mut copy);
    (explanation, copy.bytes().to_vec())
}

/// Returns whether there are sessions that the sweep has not ended yet.
fn has_dead_sessions(nat: &Nat) -> bool {
    let mut found = Vec::with_capacity(512);
    nat.read_sessions(&mut SessionCursor::default(), &Selection::default(), usize::MAX, &mut found);
    found.iter().any(|session| session.expires_ms == 0)
}

/// Packet count of each instance.
fn counted(nat: &Nat) -> Vec<u64> {
    let all = |c: &gatun_nat::report::InstanceCounters| {
        let sent = c.outbound.packets + c.inbound.packets + c.passed.packets + c.echoes.packets;
        sent + c.dropped().packets
    };
    nat.instance_stats().map(|stats| all(&stats.counters)).collect()
}

#[test]
fn forecasts_agree_with_outcomes() {
    let mut reasons = BTreeSet::new();
    let mut fates = BTreeSet::new();
    let mut sources = BTreeSet::new();
    for (number, plan) in plans().iter().enumerate() {
        let mut bed = Bed::new(plan);
        let mut dice = Dice(ChaCha8Rng::seed_from_u64(number as u64));
        for step in 0..3_000 {
            bed.now = bed.now.plus_ms(u64::from(dice.below(200)));
            if dice.below(200) == 0 {
                bed.now = bed.now.plus_ms(u64::from(dice.below(400_000)));
            }
            if dice.below(60) == 0 {
                bed.nat.set_drained(0, dice.below(3), None, dice.below(3) > 0);
            }
            bed.nat.expire(bed.now, usize::MAX);
            while has_dead_sessions(&bed.nat) {
                bed.now = bed.now.plus_ms(4_000);
                bed.nat.expire(bed.now, usize::MAX);
            }
            bed.emitted();
            let packet = packet(&mut dice, &bed.nat);
            let at = format!("plan {number}, step {step}");
            let (told, after) = ask(&bed.nat, &packet);
            let before = counted(&bed.nat);
            let given_before = bed.nat.pools()[0].counters().ports_allocated;
            let happened = bed.send_any(&packet);
            let was = counted(&bed.nat);
            let whose = before.iter().zip(&was).position(|(a, b)| b > a);
            match (told.fate, happened.verdict) {
                (Fate::Forward { cut_to }, Verdict::Forward) => {
                    assert_eq!(cut_to.is_some(), !happened.emitted.is_empty(), "{at}: {told:?}");
                    if cut_to.is_none() {
                        same_but_for_a_new_port(&told, &after, &happened.bytes, &at);
                    }
                    let given = bed.nat.pools()[0].counters().ports_allocated - given_before;
                    let new = matches!(told.opening, Some(Opening::Port(_)));
                    assert_eq!(given, u64::from(new), "{at}: {told:?}");
                }
                (Fate::Untold, _) => assert!(told.hairpinned, "{at}: {told:?}"),
                (Fate::Pass, Verdict::Pass)
                | (Fate::Echo, Verdict::Reply(Reply::Echo))
                | (Fate::Held, Verdict::Held) => {}
                (Fate::Drop(a, None), Verdict::Drop(b)) => assert_eq!(a, b, "{at}: {told:?}"),
                (Fate::Drop(a, Some(message)), Verdict::Reply(Reply::Error(b))) => {
                    assert_eq!(a, b, "{at}: {told:?}");
                    let l4 = if happened.bytes[0] >> 4 == 6 { 40 } else { 20 };
                    assert_eq!([message.kind, message.code], happened.bytes[l4..l4 + 2], "{at}: {told:?}");
                }
                // The random port is the same as the destination port.
                (Fate::Drop(DropReason::NoBib, _), Verdict::Forward)
                    if told.hairpinned && ends(&happened.bytes).sport == ends(&packet).dport => {}
                (fate, verdict) => panic!("{at}: {fate:?} was foretold, it was {verdict:?}: {told:?}"),
            }
            if whose.is_some() {
                assert_eq!(told.instance, whose, "{at}: {told:?}");
            }
            if let Fate::Drop(reason, _) = told.fate {
                reasons.insert(reason.name());
            }
            if let Some(Opening::Port(port)) = told.opening {
                let pool = &bed.nat.pools()[0];
                assert!(!pool.is_drained(pool.address_ix(port.address).unwrap()), "{at}: {told:?}");
                sources.insert(format!("{:?}", port.source));
            }
            fates.insert(format!("{:?}", told.fate).chars().take(4).collect::<String>());
        }
    }
    assert_eq!(fates, ["Drop", "Echo", "Forw", "Held", "Pass", "Unto"].map(String::from).into());
    assert_eq!(sources, ["Address", "Block", "HeldSyn", "NewBlock", "OwnBlock"].map(String::from).into());
    for reason in [
        DropReason::SubscriberPortQuota,
        DropReason::SubscriberBlockQuota,
        DropReason::SubscriberRate,
        DropReason::SubscriberTableFull,
        DropReason::SessionTableFull,
        DropReason::PortsExhausted,
        DropReason::HoldDownAll,
        DropReason::BlockNone,
        DropReason::TooBig6,
        DropReason::TooBig4,
        DropReason::TtlExceeded,
        DropReason::NoBib,
        DropReason::NonSynClosed,
        DropReason::TcpInvalidFlags,
        DropReason::SynStoreFull,
        DropReason::AddressDependentFilter,
        DropReason::AddressPortDependentFilter,
        DropReason::WellKnownNonGlobal,
        DropReason::SourceNotAllowed,
        DropReason::SourceMartian,
        DropReason::DestinationMartian,
        DropReason::Denylist,
        DropReason::IcmpUnknownType,
        DropReason::NotInPool,
    ] {
        assert!(reasons.contains(reason.name()), "{} was never met: {reasons:?}", reason.name());
    }
}

/// Compares the forecast destination with the real one. A new port is random, but must be in the forecast
/// range.
fn same_but_for_a_new_port(told: &Explanation, after: &[u8], really: &[u8], at: &str) {
    assert_eq!(after.len(), really.len(), "{at}: {told:?}");
    let (a, b) = (ends(after), ends(really));
    assert_eq!((a.src, a.dst), (b.src, b.dst), "{at}: {told:?}");
    match told.opening {
        Some(Opening::Port(port)) if !told.hairpinned => {
            assert_eq!(std::net::IpAddr::from(port.address), b.src, "{at}: {told:?}");
            if let Some(known) = port.port {
                assert_eq!(known, b.sport, "{at}: {told:?}");
            }
            if let (Some((first, last)), PortSource::Block | PortSource::OwnBlock) = (port.block, port.source)
            {
                assert!((first..=last).contains(&b.sport), "{at}: {} of {told:?}", b.sport);
            }
        }
        Some(Opening::Port(_)) => {}
        _ => assert_eq!(a, b, "{at}: {told:?}"),
    }
}

#[test]
fn explanations_report_the_rule_and_the_subscriber() {
    let mut bed = Bed::new(&plan_with("64:ff9b::/96"));
    let packet = udp6(CLIENT, 5000, "64:ff9b::808:808", 53, b"x");
    let (told, _) = ask(&bed.nat, &packet);
    assert_eq!(told.rule, Rule::Pool6(prefix("64:ff9b::/96"), v4("8.8.8.8")));
    assert_eq!((told.instance, told.pool, told.session), (Some(0), Some(0), None));
    assert!(!told.subscriber.unwrap().is_known);
    assert_eq!(bed.nat.occupancy().subscribers, 0, "no subscriber was created");
    let sent = ends(bed.send(&packet).forwarded());
    let (told, after) = ask(&bed.nat, &packet);
    assert_eq!(ends(&after), sent);
    let session = told.session.unwrap();
    assert_eq!(session.outside, (v4("192.0.2.1"), sent.sport));
    let usage = told.subscriber.unwrap();
    assert_eq!((usage.sessions, usage.ports, usage.address), (1, [0, 1, 0], Some(v4("192.0.2.1"))));
    let (told, _) = ask(&bed.nat, &udp6(CLIENT, 5000, "64:ff9b::808:404", 53, b"x"));
    assert!(matches!(told.opening, Some(Opening::Binding(b)) if b.outside == session.outside), "{told:?}");
    assert_eq!(told.mtu, Some(1520), "{told:?}");
}

#[test]
fn packets_that_are_no_queries_have_a_drop_reason_or_no_forecast() {
    let bed = Bed::new(&plan_with("64:ff9b::/96"));
    let fate = |bytes: &[u8]| ask(&bed.nat, bytes).0.fate;
    assert_eq!(fate(&[]), Fate::Drop(DropReason::ShortL3, None));
    assert_eq!(fate(&[0x10; 40]), Fate::Drop(DropReason::BadVersion, None));
    let quote = udp4("192.0.2.1", 5000, SERVER, 53, b"x");
    assert_eq!(fate(&error4("198.51.100.1", "192.0.2.1", (3, 1, 0), &quote)), Fate::Untold);
    let gre = fate(&other6(CLIENT, "64:ff9b::808:808", 47));
    assert!(
        matches!(gre, Fate::Drop(DropReason::UnsupportedProtocol, Some(m)) if (m.kind, m.code) == (1, 4)),
        "{gre:?}"
    );
}

#[test]
fn a_drained_address_gives_no_new_ports_until_it_is_undrained_and_keeps_what_it_gave() {
    let hold = HoldDown { ms: 5_000, ports_max: 100 };
    let two = Blocks { per_subscriber: 2, ..blocks(BlockProtocols::Shared) };
    for allocation in [Allocation::default(), Allocation::Random(hold), Allocation::Blocks(two)] {
        let mut plan = plan_with("64:ff9b::/96");
        plan.pools[0] =
            Pool4 { allocation, pairing: Pairing::Hard, ..pool("192.0.2.1", "192.0.2.2", (1024, 1151)) };
        plan.nat64[0].wkp_non_global = true;
        let mut bed = Bed::new(&plan);
        let send = |bed: &mut Bed, port: u16| {
            let outcome = bed.send(&udp6(CLIENT, port, "64:ff9b::808:808", 53, b"x"));
            (outcome.verdict == Verdict::Forward).then(|| ends(&outcome.bytes))
        };
        let first = send(&mut bed, 5000).unwrap();
        let drained: u32 = if first.src == v4("192.0.2.1") { 0 } else { 1 };
        assert!(bed.nat.set_drained(0, drained, None, true));
        assert!(!bed.nat.set_drained(0, drained, None, true), "the address is already drained");
        assert!(
            !bed.nat.set_drained(0, drained, Some(net4("203.0.113.0", 24)), false),
            "the address is not in the network"
        );
        // The flow continues. The host's next flow leaves from another address, or not at all with hard
        // pairing.
        assert_eq!(send(&mut bed, 5000).unwrap(), first);
        let second = send(&mut bed, 5001).unwrap();
        assert_ne!(second.src, first.src);
        assert!(bed.nat.set_drained(0, 1 - drained, None, true));
        assert_eq!(send(&mut bed, 5002), None);
        // A port that returns meanwhile is not given out, until the drain ends.
        bed.pass_ms(400_000);
        assert_eq!((bed.nat.occupancy().sessions, send(&mut bed, 5003)), (0, None));
        assert!(bed.nat.set_drained(0, drained, None, false));
        for port in 6000..6020 {
            assert_eq!(send(&mut bed, port).unwrap().src, first.src);
        }
        assert!(bed.nat.set_drained(0, 1 - drained, None, false));
    }
}
