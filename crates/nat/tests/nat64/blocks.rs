//! Pools that allocate ports by blocks or by a formula, as seen from outside (RFC 6888 REQ-8, RFC 7422).

use super::common::*;
use super::{OTHER6, POOL6, SERVER6, T};
use gatun_nat::plan::{Allocation, Blocks, Deterministic, HoldDown, Net6};
use gatun_nat::pool4::DeterministicMap;
use gatun_nat::{Plan, Reply, Verdict};
use gatun_wire::DropReason;
use std::collections::BTreeSet;
use std::net::IpAddr;

fn client(n: u32) -> String {
    format!("2001:db8:1:{n:x}::1")
}

fn refused(reason: DropReason) -> Verdict {
    Verdict::Reply(Reply::Error(reason))
}

fn terms() -> Blocks {
    Blocks { size: 64, per_subscriber: 2, linger_ms: 60_000, ..Blocks::default() }
}

/// Plan with one address with four blocks of 64 ports. A subscriber is a /64.
fn plan(blocks: Blocks) -> Plan {
    let mut plan = plan_with(POOL6);
    plan.pools = vec![pool(T, T, (1024, 1279))];
    plan.pools[0].allocation = Allocation::Blocks(blocks);
    plan.nat64[0].subscriber_len = 64;
    plan
}

// proves: PBA-1, PBA-2, R47-1
#[test]
fn a_subscriber_gets_its_ports_from_its_own_blocks_whatever_the_protocol() {
    let mut bed = Bed::new(&plan(terms()));
    let mut blocks = Vec::new();
    for n in 0..2 {
        let udp: Vec<u16> =
            (0..64).map(|p| bed.through(&udp6(&client(n), 3000 + p, SERVER6, 53, b"x")).sport).collect();
        let again: Vec<u16> =
            (0..64).map(|p| bed.through(&udp6(&client(n), 3000 + p, OTHER6, 53, b"x")).sport).collect();
        assert_eq!(udp, again, "a binding keeps its port whatever the destination");
        let tcp = bed.through(&tcp6(&client(n), 3000, SERVER6, 80, "S", b"")).sport;
        let echo = bed.through(&echo6(&client(n), SERVER6, true, 3000, b"x")).sport;
        let of: BTreeSet<u16> = udp.iter().chain([&tcp, &echo]).map(|p| p / 64).collect();
        assert_eq!(of.len(), 1, "{of:?}");
        assert_eq!(udp.iter().collect::<BTreeSet<_>>().len(), 64);
        blocks.extend(of);
    }
    assert_ne!(blocks[0], blocks[1]);
    // The first block is full for UDP: the second one comes, and there is no third one.
    (0..64).for_each(|p| {
        let port = bed.through(&udp6(&client(0), 4000 + p, SERVER6, 53, b"x")).sport;
        assert!(!blocks.contains(&(port / 64)));
    });
    let over = udp6(&client(0), 5000, SERVER6, 53, b"x");
    let out = bed.send(&over);
    assert_eq!(out.verdict, refused(DropReason::SubscriberBlockQuota));
    assert_eq!((icmp_type(&out.bytes), quote(&out.bytes)), ((1, 1), &over[..]));
    // Answers are delivered, and existing mappings are unchanged.
    let port = bed.through(&udp6(&client(1), 3000, SERVER6, 53, b"x")).sport;
    assert_eq!(bed.through(&udp4(SERVER, 53, T, port, b"x")).dport, 3000);
}

// proves: PBA-1, R68-8, R68-11
#[test]
fn a_block_goes_back_after_its_linger_and_its_hold_down_and_with_it_the_subscriber() {
    let mut bed = Bed::new(&plan(terms()));
    for n in 0..4 {
        bed.through(&udp6(&client(n), 3000, SERVER6, 53, b"x"));
    }
    let fifth = udp6(&client(4), 3000, SERVER6, 53, b"x");
    assert_eq!(bed.send(&fifth).verdict, refused(DropReason::BlockNone));
    assert_eq!(bed.nat.occupancy().subscribers, 4);
    bed.pass_ms(304_500);
    assert_eq!((bed.nat.occupancy().sessions, bed.nat.occupancy().subscribers), (0, 4), "they linger");
    assert_eq!(bed.send(&fifth).verdict, refused(DropReason::BlockNone));
    // A subscriber returns in time and gets its own block.
    bed.through(&udp6(&client(2), 3000, SERVER6, 53, b"x"));
    bed.pass_ms(61_000);
    assert_eq!(bed.nat.occupancy().subscribers, 1, "the others' blocks are held down");
    assert_eq!(bed.send(&fifth).verdict, refused(DropReason::HoldDownAll));
    bed.pass_ms(121_000);
    bed.through(&fifth);
    bed.pass_ms(600_000);
    assert_eq!(bed.nat.occupancy(), Default::default());
}

// proves: R68-8
#[test]
fn single_ports_are_held_down_too_but_not_those_of_tcp() {
    let mut plan = plan_with(POOL6);
    plan.pools = vec![pool(T, T, (2000, 2000))];
    plan.pools[0].allocation = Allocation::Random(HoldDown { ms: 120_000, ports_max: 10 });
    plan.nat64[0].timeouts.udp_ms = 120_000;
    let mut bed = Bed::new(&plan);
    bed.through(&udp6(&client(1), 3000, SERVER6, 53, b"x"));
    bed.through(&tcp6(&client(1), 3000, SERVER6, 80, "S", b""));
    bed.pass_ms(126_000);
    let other = udp6(&client(2), 3000, SERVER6, 53, b"x");
    assert_eq!(bed.send(&other).verdict, refused(DropReason::HoldDownAll));
    bed.pass_ms(113_000);
    assert_eq!(bed.send(&other).verdict, refused(DropReason::HoldDownAll));
    bed.pass_ms(7_000);
    bed.through(&other);
    assert_eq!(bed.nat.occupancy().sessions, 1, "TCP's four minutes are over");
    bed.through(&tcp6(&client(2), 3000, SERVER6, 80, "S", b""));
}

// proves: R74-1, R74-2
#[test]
fn the_formula_foretells_which_ports_a_subscriber_uses() {
    let mut plan = plan_with(POOL6);
    plan.pools = vec![pool("192.0.2.0", "192.0.2.3", (1024, 65_535))];
    plan.pools[0].allocation = Allocation::Deterministic(Deterministic {
        inside: vec![Net6::new(v6("2001:db8:1::"), 56).unwrap()],
        subscriber_len: 64,
        overflow_per_address: 4,
        blocks: Blocks { size: 512, ..Blocks::default() },
    });
    plan.nat64[0].subscriber_len = 64;
    let formula = DeterministicMap::new(&plan.pools[0]).unwrap().unwrap();
    let mut bed = Bed::new(&plan);
    for n in 0..256 {
        let (address, (first, last)) = formula.forward(v6(&client(n))).unwrap();
        for port in 0..5 {
            let got = bed.through(&udp6(&client(n), 3000 + port, SERVER6, 53, b"x"));
            assert_eq!(got.src, IpAddr::from(address));
            assert!((first..=last).contains(&got.sport));
            assert_eq!(formula.reverse(address, got.sport), Some(v6(&format!("2001:db8:1:{n:x}::"))));
        }
    }
    // A host outside the formula gets a port of the overflow.
    let got = bed.through(&udp6("2001:db8:2::1", 3000, SERVER6, 53, b"x"));
    let IpAddr::V4(address) = got.src else { panic!("{got:?}") };
    assert_eq!(formula.reverse(address, got.sport), None);
    assert!(got.sport >= 63_488);
}

// proves: PBA-1
#[test]
fn the_port_that_a_held_syn_was_sent_to_brings_its_block_along() {
    let mut bed = Bed::new(&plan(terms()));
    let syn = tcp4(SERVER, 80, T, 1100, "S", b"");
    assert_eq!(bed.send(&syn).verdict, Verdict::Held);
    let opened = bed.through(&tcp6(&client(1), 3000, SERVER6, 80, "S", b""));
    assert_eq!(opened.sport, 1100);
    let next = bed.through(&tcp6(&client(1), 3001, SERVER6, 80, "S", b"")).sport;
    assert_eq!(next / 64, 1100 / 64);
}

// proves: R53-4, A61-40
#[test]
fn a_syn_held_for_somebody_elses_block_is_not_answered_by_a_connection_from_another_port() {
    let mut bed = Bed::new(&plan(terms()));
    let own = bed.through(&udp6(&client(1), 3000, SERVER6, 53, b"x")).sport;
    let syn = tcp4(SERVER, 80, T, own, "S", b"");
    assert_eq!(bed.send(&syn).verdict, Verdict::Held);
    let other = bed.through(&tcp6(&client(2), 3000, SERVER6, 80, "S", b""));
    assert_ne!(other.sport / 64, own / 64);
    assert_eq!(bed.nat.occupancy().held_syns, 1, "it waits for the owner of its port");
    // The held SYN does not establish the other connection.
    bed.pass_ms(250_000);
    assert_eq!(bed.nat.occupancy().sessions, 1, "the session of the datagram");
}
