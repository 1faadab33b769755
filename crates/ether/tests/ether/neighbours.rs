//! Neighbour cache: RFC 4861 7.2.5 and 7.3, RFC 826, and its limits.

use crate::common::*;
use gatun_ether::{
    Answer, Consumed, Count as _, EtherEvent, Foreign, Limits, Mac, NeighbourState, Received, Sent, Unsent,
};
use std::net::{IpAddr, Ipv4Addr};

const FRAME: Sent = Sent::Frame { device: DEVICE };

fn state_of(host: &Host, address: impl Into<IpAddr>) -> Option<NeighbourState> {
    let address = address.into();
    host.ether.neighbours().find(|n| n.address == address).map(|n| n.state)
}

fn mac_of(host: &Host, address: impl Into<IpAddr>) -> Option<Mac> {
    let address = address.into();
    host.ether.neighbours().find(|n| n.address == address).and_then(|n| n.mac)
}

/// A host that has just resolved PEER6 and PEER4.
fn acquainted() -> Host {
    let mut host = Host::new(&settings());
    assert_eq!(host.send(&udp6(POOL6, PEER6, b"x")).0, Sent::Held);
    assert_eq!(host.send(&udp4(POOL4, PEER4, b"x")).0, Sent::Held);
    assert_eq!(host.poll().len(), 2);
    let _ = host.receive(&advertisement(PEER_MAC, PEER6, SOLICITED | OVERRIDE));
    let _ = host.receive(&arp_reply(PEER_MAC, PEER4));
    assert_eq!(host.poll().len(), 2);
    assert_eq!(state_of(&host, PEER6), Some(NeighbourState::Reachable));
    assert_eq!(state_of(&host, PEER4), Some(NeighbourState::Reachable));
    host
}

// proves: HM-7
#[test]
fn a_neighbour_is_solicited_three_times_and_then_fails() {
    for packet in [udp4(POOL4, PEER4, b"x"), udp6(POOL6, PEER6, b"x")] {
        let mut host = Host::new(&settings());
        let began = host.now_ms;
        for _ in 0..5 {
            assert_eq!(host.send(&packet).0, Sent::Held);
        }
        let asked: Vec<u64> = host.run(10_000).into_iter().map(|(at, _)| at - began).collect();
        assert_eq!(asked, [0, 1000, 2000]);
        let stats = host.ether.stats();
        assert_eq!((stats.unsent.of(Unsent::WaitingFailed), stats.waiting), (5, 0));
        assert_eq!(stats.events.of(EtherEvent::NeighbourFailed), 1);
    }
}

// proves: HM-7
#[test]
fn a_failed_neighbour_is_solicited_again_after_a_doubling_pause() {
    let mut host = Host::new(&settings());
    let packet = udp4(POOL4, PEER4, b"x");
    let mut pauses = Vec::new();
    assert_eq!(host.send(&packet).0, Sent::Held);
    for _ in 0..7 {
        assert_eq!(host.run(3050).len(), 3);
        let failed_ms = host.now_ms;
        // The pending packet starts the next round.
        while host.send(&packet).0 == Sent::Drop(Unsent::NeighbourFailed) {
            assert!(host.run(10).is_empty(), "nothing is solicited meanwhile");
        }
        pauses.push((host.now_ms - failed_ms).div_ceil(1000));
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 16, 16]);
}

// proves: HM-12
#[test]
fn a_stale_neighbour_is_solicited_only_while_in_use() {
    let mut host = acquainted();
    let began = host.now_ms;
    while state_of(&host, PEER6) == Some(NeighbourState::Reachable) {
        assert!(host.run(50).is_empty());
    }
    let reachable_ms = host.now_ms - began;
    assert!((15_000..=45_100).contains(&reachable_ms), "{reachable_ms}: half to one and a half times 30 s");
    assert!(host.run(60_000).is_empty(), "an unused neighbour is not solicited");

    // RFC 4861 7.3.3: the packet is sent at once. Five seconds later the neighbour is solicited at its MAC.
    let packet = udp6(POOL6, PEER6, b"x");
    assert_eq!(host.send(&packet).0, FRAME);
    assert_eq!(state_of(&host, PEER6), Some(NeighbourState::Delay));
    let sent_at = host.now_ms;
    let asked = host.run(5100);
    assert_eq!(asked.len(), 1);
    assert!((5000..=5050).contains(&(asked[0].0 - sent_at)));
    assert_eq!(macs(&asked[0].1), (PEER_MAC, OUR_MAC));
    let question = parse_discovery(&asked[0].1);
    assert_eq!((question.kind, question.dst, question.target), (135, PEER6, PEER6));
    assert_eq!(host.send(&packet).0, FRAME, "packets are sent meanwhile");

    let _ = host.receive(&advertisement(PEER_MAC, PEER6, SOLICITED | OVERRIDE));
    assert_eq!(state_of(&host, PEER6), Some(NeighbourState::Reachable));
}

// proves: HM-12
#[test]
fn a_neighbour_silent_at_its_mac_is_solicited_by_multicast_and_then_fails() {
    let mut host = acquainted();
    let _ = host.run(50_000);
    assert_eq!(host.send(&udp4(POOL4, PEER4, b"x")).0, FRAME);
    let asked: Vec<_> = host.run(20_000).iter().map(|(_, f)| macs(f).0).collect();
    assert_eq!(asked, [PEER_MAC, PEER_MAC, PEER_MAC, Mac::BROADCAST, Mac::BROADCAST, Mac::BROADCAST]);
    assert_eq!(
        host.send(&udp4(POOL4, PEER4, b"x")).0,
        Sent::Held,
        "it is solicited again after a pause of one second"
    );
}

// proves: HM-11
#[test]
fn advertisements_change_entries_as_rfc_4861_7_2_5_requires() {
    let stale = |host: &mut Host| {
        let _ = host.run(50_000);
        assert_eq!(state_of(host, PEER6), Some(NeighbourState::Stale));
    };
    let probe = |host: &mut Host| {
        let _ = host.run(50_000);
        let _ = host.send(&udp6(POOL6, PEER6, b"x"));
        let _ = host.run(5100);
        assert_eq!(state_of(host, PEER6), Some(NeighbourState::Probe));
    };
    let leave = |_: &mut Host| {};
    type Before<'a> = &'a dyn Fn(&mut Host);
    let cases: [(&str, Before<'_>, u8, Mac, NeighbourState, Mac); 12] = [
        // I: O clear and another MAC: STALE, or no change.
        ("reachable, other", &leave, 0, OTHER_MAC, NeighbourState::Stale, PEER_MAC),
        ("reachable, other, S", &leave, SOLICITED, OTHER_MAC, NeighbourState::Stale, PEER_MAC),
        ("stale, other, S", &stale, SOLICITED, OTHER_MAC, NeighbourState::Stale, PEER_MAC),
        ("probe, other, S", &probe, SOLICITED, OTHER_MAC, NeighbourState::Probe, PEER_MAC),
        // II: O set, or the same MAC.
        ("reachable, other, O", &leave, OVERRIDE, OTHER_MAC, NeighbourState::Stale, OTHER_MAC),
        ("probe, other, S O", &probe, SOLICITED | OVERRIDE, OTHER_MAC, NeighbourState::Reachable, OTHER_MAC),
        ("probe, same, S", &probe, SOLICITED, PEER_MAC, NeighbourState::Reachable, PEER_MAC),
        ("probe, same, O", &probe, OVERRIDE, PEER_MAC, NeighbourState::Probe, PEER_MAC),
        ("reachable, same", &leave, 0, PEER_MAC, NeighbourState::Reachable, PEER_MAC),
        ("stale, same, O", &stale, OVERRIDE, PEER_MAC, NeighbourState::Stale, PEER_MAC),
        // Unsolicited answers do not confirm reachability, regardless of their S flag.
        ("stale, same, S O", &stale, SOLICITED | OVERRIDE, PEER_MAC, NeighbourState::Stale, PEER_MAC),
        ("reachable, other, S O", &leave, SOLICITED | OVERRIDE, OTHER_MAC, NeighbourState::Stale, OTHER_MAC),
    ];
    for (name, before, flags, mac, state, known) in cases {
        let mut host = acquainted();
        before(&mut host);
        assert_eq!(
            host.receive(&advertisement(mac, PEER6, flags)).0,
            Received::Consumed(Consumed::Advertisement)
        );
        assert_eq!((state_of(&host, PEER6), mac_of(&host, PEER6)), (Some(state), Some(known)), "{name}");
        let moved = u64::from(known != PEER_MAC);
        assert_eq!(host.ether.stats().events.of(EtherEvent::NeighbourMoved), moved, "{name}");
    }
}

// proves: HM-11
#[test]
fn an_advertisement_for_an_incomplete_entry_needs_a_mac() {
    let asking = || {
        let mut host = Host::new(&settings());
        assert_eq!(host.send(&udp6(POOL6, PEER6, b"x")).0, Sent::Held);
        let _ = host.poll();
        host
    };
    let mut host = asking();
    let empty = discovery(136, PEER6, OUR6, SOLICITED | OVERRIDE, PEER6, &[]);
    assert_eq!(
        host.receive(&frame(OUR_MAC, PEER_MAC, &[], 0x86dd, &empty)).0,
        Received::Consumed(Consumed::Advertisement)
    );
    assert_eq!(
        state_of(&host, PEER6),
        Some(NeighbourState::Incomplete),
        "an advertisement without option changes nothing"
    );
    for (flags, state) in [
        (0, NeighbourState::Stale),
        (OVERRIDE, NeighbourState::Stale),
        (SOLICITED, NeighbourState::Reachable),
    ] {
        let mut host = asking();
        let _ = host.receive(&advertisement(PEER_MAC, PEER6, flags));
        assert_eq!(state_of(&host, PEER6), Some(state));
        assert_eq!(host.poll().len(), 1, "the packet is sent in both cases");
    }
    // In PROBE, an advertisement without option confirms the known MAC (7.2.5 II).
    let mut host = acquainted();
    let _ = host.run(50_000);
    let _ = host.send(&udp6(POOL6, PEER6, b"x"));
    let _ = host.run(5100);
    let _ = host.receive(&frame(OUR_MAC, PEER_MAC, &[], 0x86dd, &empty));
    assert_eq!(
        (state_of(&host, PEER6), mac_of(&host, PEER6)),
        (Some(NeighbourState::Reachable), Some(PEER_MAC))
    );
}

// proves: HM-2
#[test]
fn unsolicited_arp_changes_entries_and_creates_none() {
    let mut host = acquainted();
    // RFC 826: a request to another host, and an announcement, contain their sender's MAC.
    let to_another = arp_request(OTHER_MAC, PEER4, GATEWAY4);
    assert_eq!(host.receive(&to_another).0, Received::Foreign(Foreign::ArpOther));
    assert_eq!(
        (state_of(&host, PEER4), mac_of(&host, PEER4)),
        (Some(NeighbourState::Stale), Some(OTHER_MAC))
    );
    assert_eq!(host.receive(&arp_request(PEER_MAC, PEER4, PEER4)).0, Received::Foreign(Foreign::ArpOther));
    assert_eq!(mac_of(&host, PEER4), Some(PEER_MAC));
    assert_eq!(host.ether.stats().events.of(EtherEvent::NeighbourMoved), 2);

    let known = host.ether.neighbours().count();
    for last in 20..40 {
        let stranger = Ipv4Addr::new(198, 51, 100, last);
        assert_eq!(host.receive(&arp_reply(OTHER_MAC, stranger)).0, Received::Consumed(Consumed::ArpReply));
        let _ = host.receive(&arp_request(OTHER_MAC, stranger, stranger));
        let mut six = PEER6.segments();
        six[7] = last.into();
        let _ = host.receive(&advertisement(OTHER_MAC, six.into(), SOLICITED | OVERRIDE));
    }
    assert_eq!(host.ether.neighbours().count(), known);
}

// proves: HM-2
#[test]
fn a_host_that_solicits_us_becomes_known() {
    let mut host = Host::new(&settings());
    let _ = host.receive(&arp_request(PEER_MAC, PEER4, OUR4));
    let _ = host.receive(&solicitation(PEER_MAC, PEER6, OUR6));
    for packet in [udp4(POOL4, PEER4, b"x"), udp6(POOL6, PEER6, b"x")] {
        let (fate, sent) = host.send(&packet);
        assert_eq!((fate, macs(&sent).0), (FRAME, PEER_MAC));
    }
    // A host that is not on the link is answered but not added: packets to it go through the next hop.
    let _ = host.receive(&arp_request(OTHER_MAC, FAR4, OUR4));
    assert_eq!(state_of(&host, FAR4), None);
    assert_eq!(host.send(&udp4(POOL4, FAR4, b"x")).0, Sent::Held);
}

/// The n-th unused host on the link.
fn host6(n: u32) -> std::net::Ipv6Addr {
    let mut segments = PEER6.segments();
    (segments[6], segments[7]) = ((n >> 16) as u16 + 1, n as u16);
    segments.into()
}

// proves: HM-18
#[test]
fn a_scan_is_bounded_and_neighbours_in_use_stay() {
    let limits = Limits { neighbours_max: 64, unresolved_max: 16, ..Limits::default() };
    let mut host = Host::with_limits(&settings(), &limits);
    let _ = host.receive(&solicitation(PEER_MAC, PEER6, OUR6));
    let packet = udp6(POOL6, PEER6, b"x");
    assert_eq!(host.send(&packet).0, FRAME);
    let mut questions = 0;
    for n in 0..20_000 {
        let _ = host.send(&udp6(POOL6, host6(n), b"scan"));
        if n % 100 == 0 {
            questions += host.run(10).iter().filter(|(_, f)| parse_discovery(f).target != PEER6).count();
            assert_eq!(host.send(&packet).0, FRAME);
            if state_of(&host, PEER6) == Some(NeighbourState::Probe) {
                let _ = host.receive(&advertisement(PEER_MAC, PEER6, SOLICITED | OVERRIDE));
            }
        }
    }
    assert!(host.ether.neighbours().count() <= 64);
    // Two seconds: at most the share, three times, and its successors.
    assert!(questions <= 3 * 16 * 2, "{questions} questions");
    assert!(host.ether.stats().unsent.of(Unsent::UnresolvedFull) > 15_000);
    assert_eq!(mac_of(&host, PEER6), Some(PEER_MAC));
}

// proves: HM-18
#[test]
fn a_flood_of_solicitations_evicts_no_entry_in_use() {
    let limits = Limits { neighbours_max: 64, unresolved_max: 16, ..Limits::default() };
    let mut host = Host::with_limits(&settings(), &limits);
    let used: Vec<_> = (0..40).map(|n| host6(1_000_000 + n)).collect();
    for address in &used {
        let _ = host.receive(&solicitation(PEER_MAC, *address, OUR6));
        assert_eq!(host.send(&udp6(POOL6, *address, b"x")).0, FRAME);
    }
    for n in 0..10_000 {
        let fate = host.receive(&solicitation(OTHER_MAC, host6(n), OUR6)).0;
        assert_eq!(fate, Received::Reply(Answer::Advertisement), "every solicitation is answered");
    }
    assert!(used.iter().all(|a| mac_of(&host, *a) == Some(PEER_MAC)));
    assert!(host.ether.stats().events.of(EtherEvent::NeighbourEvicted) > 1000);
    // If all entries are in use, no host is added and new neighbours cannot be reached. Both are counted.
    let rest: Vec<_> = (0..22).map(|n| host6(2_000_000 + n)).collect();
    for address in &rest {
        // Each search examines a few slots and continues there the next time.
        let found = (0..4).any(|_| {
            let _ = host.receive(&solicitation(PEER_MAC, *address, OUR6));
            host.send(&udp6(POOL6, *address, b"x")).0 == FRAME
        });
        assert!(found);
    }
    let not_noted = host.ether.stats().events.of(EtherEvent::NotLearnt);
    assert_eq!(host.send(&udp6(POOL6, host6(9_999_999), b"x")).0, Sent::Drop(Unsent::NeighboursFull));
    let _ = host.receive(&solicitation(OTHER_MAC, host6(9_999_998), OUR6));
    assert_eq!(host.ether.stats().events.of(EtherEvent::NotLearnt), not_noted + 1);
    // A minute later, unused entries can be evicted.
    let _ = host.run(61_000);
    assert_eq!(host.send(&udp6(POOL6, host6(9_999_999), b"x")).0, Sent::Held);
}

// proves: HM-6
#[test]
fn pending_packets_are_bounded_and_the_oldest_are_replaced() {
    let limits = Limits { waiting_max: 8, waiting_per_neighbour_max: 3, ..Limits::default() };
    let mut host = Host::with_limits(&settings(), &limits);
    for i in 0..10u8 {
        assert_eq!(host.send(&udp4(POOL4, PEER4, &[i])).0, Sent::Held);
    }
    assert_eq!((host.ether.stats().waiting, host.ether.stats().unsent.of(Unsent::WaitingOverflow)), (3, 7));
    for last in 20..30 {
        assert_eq!(host.send(&udp4(POOL4, Ipv4Addr::new(198, 51, 100, last), b"x")).0, Sent::Held);
    }
    assert_eq!((host.ether.stats().waiting, host.ether.stats().unsent.of(Unsent::WaitingOverflow)), (8, 12));
    assert_eq!(host.send(&udp4(POOL4, PEER4, b"last")).0, Sent::Held);
    let _ = host.poll();
    let _ = host.receive(&arp_reply(PEER_MAC, PEER4));
    assert_eq!(host.poll(), [frame(PEER_MAC, OUR_MAC, &[], 0x0800, &udp4(POOL4, PEER4, b"last"))]);
}

#[test]
fn an_unused_neighbour_is_removed_after_ten_minutes_but_a_next_hop_stays() {
    let mut host = acquainted();
    let _ = host.send(&udp4(POOL4, FAR4, b"x"));
    let _ = host.poll();
    let _ = host.receive(&arp_reply(OTHER_MAC, GATEWAY4));
    let _ = host.run(590_000);
    assert_eq!(host.ether.neighbours().count(), 4, "two neighbours, two next hops");
    let _ = host.run(60_000);
    assert_eq!((state_of(&host, PEER4), state_of(&host, PEER6)), (None, None));
    assert_eq!(mac_of(&host, GATEWAY4), Some(OTHER_MAC));
    assert_eq!(host.ether.due_ms(), u64::MAX, "no task is left");
}

#[test]
fn an_update_from_one_worker_releases_packets_of_another() {
    let mut both = settings();
    both.shares = true;
    let mut workers = [Host::new(&both), Host::new(&both)];
    for worker in &mut workers {
        assert_eq!(worker.send(&udp4(POOL4, PEER4, b"x")).0, Sent::Held);
        assert_eq!(worker.poll().len(), 1);
    }
    // Both solicitations are answered, and the device gives both answers to the first worker. The second one
    // soon checks for updates.
    let [first, second] = &mut workers;
    assert_eq!(second.ether.due_ms(), second.now_ms + 5);
    let _ = first.receive(&arp_reply(PEER_MAC, PEER4));
    let _ = first.receive(&arp_reply(PEER_MAC, PEER4));
    while let Some(update) = first.ether.next_update() {
        second.ether.apply_update(second.now_ms, update);
    }
    assert_eq!((first.poll().len(), second.poll().len()), (1, 1));
    assert_eq!(state_of(second, PEER4), Some(NeighbourState::Reachable));
    assert!(second.ether.due_ms() > second.now_ms + 100, "no packet waits");
    // The number of unfetched updates is limited.
    for _ in 0..100 {
        let _ = first.receive(&arp_reply(PEER_MAC, PEER4));
    }
    assert_eq!(first.ether.stats().events.of(EtherEvent::UpdateLost), 36);
    assert_eq!(std::iter::from_fn(|| first.ether.next_update()).count(), 64);
}

#[test]
fn a_static_neighbour_is_neither_solicited_nor_changed() {
    let mut written = settings();
    let fixed = |addr: &str| gatun_ether::StaticNeighbour { addr: addr.parse().unwrap(), mac: PEER_MAC };
    written.ports[0].neighbours = vec![fixed("198.51.100.254"), fixed("2001:db8:1::9")];
    let mut host = Host::new(&written);
    for _ in 0..3 {
        for packet in [udp4(POOL4, FAR4, b"x"), udp6(POOL6, PEER6, b"x")] {
            let (sent, frame) = host.send(&packet);
            assert_eq!((sent, &frame[..6]), (FRAME, &PEER_MAC.0[..]));
        }
        // Claims to its address are ignored, and no solicitation is sent for an hour.
        let _ = host.receive(&arp_reply(OTHER_MAC, GATEWAY4));
        let _ = host.receive(&advertisement(OTHER_MAC, PEER6, SOLICITED | OVERRIDE));
        assert!(host.run(3_600_000).is_empty());
    }
    assert_eq!(mac_of(&host, GATEWAY4), Some(PEER_MAC));
    assert_eq!(state_of(&host, PEER6), Some(NeighbourState::Reachable));
    // An invalid neighbour is refused.
    for (addr, mac) in [("192.0.2.9", PEER_MAC), ("198.51.100.9", Mac::BROADCAST), ("198.51.100.1", PEER_MAC)]
    {
        let mut wrong = settings();
        wrong.ports[0].neighbours = vec![gatun_ether::StaticNeighbour { addr: addr.parse().unwrap(), mac }];
        let problems = gatun_ether::Ether::new(&wrong, &Limits::default(), [1, 2, 3, 4]).err().unwrap();
        assert_eq!(problems.len(), 1, "{problems:?}");
    }
}
