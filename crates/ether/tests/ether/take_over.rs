//! Change of settings without interruption.

use crate::common::*;
use gatun_ether::{
    Consumed, Ether, EtherEvent, Limits, Mac, Received, Sent, Settings, StaticNeighbour, Unsent,
};
use std::net::Ipv4Addr;

const NEXT4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 253);

/// Replaces a host's settings.
fn take_over(host: &mut Host, settings: &Settings) {
    let mut next = Ether::new(settings, &Limits::default(), [5, 6, 7, 8]).unwrap();
    next.take_over(host.now_ms, &mut host.ether);
    host.ether = next;
    assert!(host.ether.stats().add_up(), "{:?}", host.ether.stats());
}

fn sent(host: &mut Host, packet: &[u8]) -> Option<Mac> {
    let (fate, frame) = host.send(packet);
    (fate == Sent::Frame { device: DEVICE }).then(|| macs(&frame).0)
}

#[test]
fn known_neighbours_get_their_packets_at_once() {
    let mut host = Host::new(&settings());
    for (peer, mac) in [(PEER4, PEER_MAC), (GATEWAY4, OTHER_MAC)] {
        let packet = udp4(POOL4, if peer == PEER4 { PEER4 } else { FAR4 }, b"x");
        assert_eq!(host.send(&packet).0, Sent::Held);
        host.poll();
        assert_eq!(host.receive(&arp_reply(mac, peer)).0, Received::Consumed(Consumed::ArpReply));
        assert_eq!(host.poll().len(), 1);
    }
    let before = host.ether.stats();

    // Another pool, and one more route.
    let mut other = settings();
    other.engine.push(prefix("192.0.2.0/28"));
    other.ports[0].routes.insert(0, route("203.0.113.128/25", "198.51.100.253"));
    take_over(&mut host, &other);
    assert_eq!(host.ether.stats(), before, "the counters stay");
    assert_eq!(sent(&mut host, &udp4(POOL4, PEER4, b"x")), Some(PEER_MAC));
    assert_eq!(sent(&mut host, &udp4(POOL4, FAR4, b"x")), Some(OTHER_MAC));
    assert!(host.poll().is_empty(), "nobody is solicited");
    // The new next hop is solicited when it is needed.
    assert_eq!(host.send(&udp4(POOL4, Ipv4Addr::new(203, 0, 113, 200), b"x")).0, Sent::Held);
    assert_eq!(parse_arp(&host.poll()[0]).target_ipv4, NEXT4.octets());

    // The neighbours are still solicited once their entries are stale.
    let said = host.run(60_000);
    let asked = said.iter().filter(|(_, frame)| frame[12..14] == [8, 6]).map(|(_, frame)| parse_arp(frame));
    let asked: Vec<_> = asked.map(|arp| Ipv4Addr::from(arp.target_ipv4)).collect();
    assert!(!asked.contains(&PEER4), "nothing was sent to it since: {asked:?}");
    assert_eq!(sent(&mut host, &udp4(POOL4, PEER4, b"x")), Some(PEER_MAC), "packets are sent during PROBE");
    let said = host.run(10_000);
    assert!(
        said.iter()
            .any(|(_, frame)| frame[12..14] == [8, 6] && parse_arp(frame).target_ipv4 == PEER4.octets())
    );
}

#[test]
fn pending_packets_survive_a_take_over() {
    let mut host = Host::new(&settings());
    let packets: Vec<_> = (0..3u8).map(|i| udp4(POOL4, PEER4, &[i; 20])).collect();
    packets.iter().for_each(|packet| assert_eq!(host.send(packet).0, Sent::Held));
    assert_eq!(host.poll().len(), 1);
    take_over(&mut host, &settings());
    assert_eq!(host.ether.stats().waiting, 3);
    assert_eq!(host.poll().len(), 1, "solicited again");
    assert_eq!(host.receive(&arp_reply(PEER_MAC, PEER4)).0, Received::Consumed(Consumed::ArpReply));
    let expected: Vec<_> = packets.iter().map(|p| frame(PEER_MAC, OUR_MAC, &[], 0x0800, p)).collect();
    assert_eq!(host.poll(), expected, "in order");

    // A neighbour with a newly configured MAC gets its packets at once. One that never answers loses them,
    // and that is counted.
    let silent = Ipv4Addr::new(198, 51, 100, 77);
    packets.iter().for_each(|_| assert_eq!(host.send(&udp4(POOL4, silent, b"x")).0, Sent::Held));
    let mut other = settings();
    other.ports[0].neighbours.push(StaticNeighbour { addr: silent.into(), mac: OTHER_MAC });
    let mut lost = Host::new(&settings());
    assert_eq!(lost.send(&udp4(POOL4, silent, b"x")).0, Sent::Held);
    take_over(&mut lost, &settings());
    lost.run(10_000);
    assert_eq!(
        (lost.ether.stats().waiting, lost.ether.stats().unsent[Unsent::WaitingFailed as usize]),
        (0, 1)
    );
    take_over(&mut host, &other);
    let released = host.poll();
    assert_eq!(released.iter().map(|frame| macs(frame).0).collect::<Vec<_>>(), [OTHER_MAC; 3]);
}

#[test]
fn removed_static_neighbours_are_forgotten() {
    let mut written = settings();
    written.ports[0].neighbours.push(StaticNeighbour { addr: PEER4.into(), mac: OTHER_MAC });
    let mut host = Host::new(&written);
    assert_eq!(sent(&mut host, &udp4(POOL4, PEER4, b"x")), Some(OTHER_MAC));
    take_over(&mut host, &settings());
    assert_eq!(host.send(&udp4(POOL4, PEER4, b"x")).0, Sent::Held, "it must be resolved again");
    host.poll();
    assert_eq!(host.receive(&arp_reply(PEER_MAC, PEER4)).0, Received::Consumed(Consumed::ArpReply));
    host.poll();
    // A configured MAC overrides a learned one.
    take_over(&mut host, &written);
    assert_eq!(sent(&mut host, &udp4(POOL4, PEER4, b"x")), Some(OTHER_MAC));
}

// proves: HM-14
#[test]
fn only_new_addresses_are_announced_after_a_take_over() {
    let speaking = Settings { announces: true, ..settings() };
    let mut host = Host::new(&speaking);
    host.run(10_000);
    let events = |host: &Host| {
        let events = host.ether.stats().events;
        [EtherEvent::Probe, EtherEvent::Announcement].map(|note| events[note as usize])
    };
    assert_eq!(events(&host), [20, 40]);
    take_over(&mut host, &speaking);
    assert!(host.run(10_000).is_empty() && events(&host) == [20, 40]);

    let mut more = speaking.clone();
    more.ports[0].answers.push(prefix("203.0.113.32/31"));
    take_over(&mut host, &more);
    host.run(10_000);
    assert_eq!(events(&host), [20 + 22, 40 + 44]);
    // The port answers for a new address and no longer for a removed one.
    let asked = arp_request(PEER_MAC, PEER4, Ipv4Addr::new(203, 0, 113, 33));
    assert!(matches!(host.receive(&asked).0, Received::Reply(_)));
    take_over(&mut host, &speaking);
    assert!(!matches!(host.receive(&asked).0, Received::Reply(_)));
}

#[test]
fn a_device_keeps_a_mac_that_changed_meanwhile() {
    let mut host = Host::new(&settings());
    let mac = Mac([2, 0, 0, 0, 0xbe, 0xef]);
    host.ether.set_mac(DEVICE, mac);
    take_over(&mut host, &settings());
    assert_eq!(host.send(&udp4(POOL4, PEER4, b"x")).0, Sent::Held);
    assert_eq!(macs(&host.poll()[0]).1, mac);
}
