//! Announcements and reports at start and on take-over, and replies to multicast queries.

use crate::common::*;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use gatun_ether::{Consumed, Count as _, Dropped, EtherEvent, Mac, Received, Sent, Settings};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

fn speaking() -> Settings {
    Settings { announces: true, ..settings() }
}

fn local() -> Ipv6Addr {
    "fe80::ff:fe00:1".parse().unwrap()
}

/// Description of a frame in words.
fn what(frame: &[u8]) -> (&'static str, Option<IpAddr>) {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    match (&sliced.net, &sliced.transport) {
        (Some(NetSlice::Arp(_)), _) => {
            let arp = parse_arp(frame);
            assert_eq!((macs(frame), arp.operation.0), ((gatun_ether::Mac::BROADCAST, OUR_MAC), 1));
            assert_eq!((arp.sender_mac, arp.target_mac), (OUR_MAC.0, [0; 6]));
            // RFC 5227 2.1.1 and 2.3.
            let target = IpAddr::from(arp.target_ipv4);
            match arp.sender_ipv4 {
                [0, 0, 0, 0] => ("free?", Some(target)),
                sender if sender == arp.target_ipv4 => ("mine", Some(target)),
                other => panic!("from {other:?}"),
            }
        }
        (_, Some(TransportSlice::Icmpv6(icmp))) if icmp.type_u8() == 143 => ("groups", None),
        _ => {
            let said = parse_discovery(frame);
            let target = Some(said.target.into());
            if said.kind == 135 {
                // RFC 4862 5.4.2.
                assert_eq!((said.src, said.dst), (Ipv6Addr::UNSPECIFIED, group_of(said.target)));
                assert_eq!((said.option, macs(frame).0), (None, group_mac(said.dst)));
                return ("free?", target);
            }
            // RFC 4861 7.2.6: router, override; not solicited.
            let all: Ipv6Addr = "ff02::1".parse().unwrap();
            assert_eq!((said.src, said.dst, said.flags), (said.target, all, 0xa0));
            assert_eq!((said.option, macs(frame).0), (Some((2, OUR_MAC)), group_mac(all)));
            ("mine", target)
        }
    }
}

// proves: HM-5, HM-14
#[test]
fn at_start_addresses_are_probed_and_announced_twice() {
    let mut host = Host::new(&speaking());
    let began = host.now_ms;
    let mut said: Vec<_> = host.run(250_000).into_iter().map(|(at, f)| (at - began, what(&f))).collect();
    let pool = (0..16u32).map(|n| IpAddr::from((u32::from_be_bytes([203, 0, 113, 0]) + n).to_be_bytes()));
    // The /96 is too large to be announced address by address.
    let own = [OUR4.into(), ENGINE4.into(), OUR6.into(), local().into()];
    let all: BTreeSet<IpAddr> = pool.chain(own).collect();
    for (at, word) in [(0, "free?"), (1000, "mine"), (3000, "mine")] {
        let now: Vec<_> = said.extract_if(.., |s| s.0 == at).map(|s| s.1).collect();
        assert_eq!(now[0], ("groups", None), "a host listens before it probes (RFC 4862 5.4.2)");
        assert!(now[1..].iter().all(|s| s.0 == word), "{now:?}");
        let addresses: BTreeSet<IpAddr> = now[1..].iter().filter_map(|s| s.1).collect();
        assert_eq!((&addresses, now.len()), (&all, all.len() + 1));
    }
    // A switch may have forgotten the groups if its query went to the kernel.
    let rest: Vec<_> = said.iter().map(|s| (s.0, s.1.0)).collect();
    assert_eq!(rest, [63_000, 123_000, 183_000, 243_000].map(|at| (at, "groups")));
    let events = host.ether.stats().events;
    assert_eq!(
        (
            events.of(EtherEvent::Probe),
            events.of(EtherEvent::Announcement),
            events.of(EtherEvent::GroupReport)
        ),
        (20, 40, 7)
    );
}

// proves: HM-5
#[test]
fn a_take_over_is_announced_twice_without_a_probe() {
    let mut host = Host::new(&settings());
    assert!(host.run(10_000).is_empty(), "a host that does not announce is silent at start");
    host.ether.announce(host.now_ms);
    let began = host.now_ms;
    let said = host.run(10_000);
    let times: BTreeSet<u64> = said.iter().map(|(at, _)| at - began).collect();
    assert_eq!(times, BTreeSet::from([0, 2000]));
    assert!(said.iter().all(|(_, f)| what(f).0 != "free?"));
    assert_eq!(said.len(), 2 * 21);
}

#[test]
fn a_changed_mac_is_announced_and_used() {
    let mut host = Host::new(&settings());
    let new = Mac([2, 0, 0, 0, 0xbe, 0xef]);
    let device = settings().ports[0].device;
    host.ether.set_mac(device, Mac([3, 0, 0, 0, 0, 1]));
    host.ether.announce(host.now_ms);
    let before = host.run(10_000);
    let from = |frame: &[u8]| Mac(frame[6..12].try_into().unwrap());
    assert!(
        before.iter().all(|(_, frame)| from(frame) != Mac([3, 0, 0, 0, 0, 1])),
        "no device has such an address"
    );
    host.ether.set_mac(device, new);
    host.ether.announce(host.now_ms);
    let said = host.run(10_000);
    assert_eq!(said.len(), before.len());
    let of_device = |all: &[(u64, Vec<u8>)], mac| all.iter().filter(|(_, frame)| from(frame) == mac).count();
    let old = settings().ports[0].mac;
    assert!(of_device(&before, old) > 10);
    assert_eq!((of_device(&said, old), of_device(&said, new)), (0, of_device(&before, old)));
}

#[test]
fn a_large_pool_is_announced_in_steps() {
    let mut settings = speaking();
    settings.ports[0].answers = vec![prefix("203.0.113.0/24"), prefix("192.0.2.0/23"), prefix("10.0.0.0/8")];
    let mut host = Host::new(&settings);
    let mut most = 0;
    let mut told = BTreeSet::new();
    for _ in 0..20_000 {
        let frames = host.poll();
        most = most.max(frames.len());
        told.extend(frames.iter().map(|f| what(f)).filter(|s| s.0 == "mine").filter_map(|s| s.1));
        host.now_ms += 1;
    }
    assert_eq!(most, 64);
    assert_eq!(told.len(), 256 + 512 + 4, "the /8 is answered for, but not announced");
}

// proves: HM-16
#[test]
fn a_query_is_answered_with_the_solicited_node_groups() {
    let mut settings = settings();
    settings.ports[0].addresses.push(prefix("2001:db8:1::12:3456/64"));
    let mut host = Host::new(&settings);
    host.ether.announce(host.now_ms);
    let at_start = host.run(10_000);
    check_report(&at_start[0].1, 4);
    for (code, within_ms) in [(1000, 1000), (0, 1), (0x8000, 10_000), (0xffff, 10_000)] {
        let asked = query(1, "fe80::66", code, 28);
        assert_eq!(host.receive(&asked).0, Received::Consumed(Consumed::MulticastQuery));
        assert_eq!(host.receive(&asked).0, Received::Consumed(Consumed::MulticastQuery));
        let began = host.now_ms;
        let reports = host.run(11_000);
        assert_eq!(reports.len(), 1, "two queries, one report");
        assert!(reports[0].0 - began <= within_ms);
        check_report(&reports[0].1, 2);
    }
    // RFC 3810 5.1.14 and 6.2. Version 1 queries have 24 bytes.
    assert_eq!(host.receive(&query(1, "fe80::66", 10, 24)).0, Received::Consumed(Consumed::MulticastQuery));
    for bad in [query(2, "fe80::66", 10, 28), query(1, "2001:db8::66", 10, 28), query(1, "fe80::66", 10, 23)]
    {
        assert_eq!(host.receive(&bad).0, Received::Drop(Dropped::MldMalformed));
    }
    let mut bad = query(1, "fe80::66", 10, 28);
    bad[65] ^= 1;
    assert_eq!(host.receive(&bad).0, Received::Drop(Dropped::NdpChecksum));
}

/// Report of version 2 (RFC 3810 5.2) with router alert, for the groups of all addresses.
fn check_report(frame: &[u8], kind: u8) {
    let routers: Ipv6Addr = "ff02::16".parse().unwrap();
    assert_eq!(macs(frame), (group_mac(routers), OUR_MAC));
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) = (sliced.net, sliced.transport)
    else {
        panic!("no ICMPv6: {frame:02x?}");
    };
    let header = ip.header().to_header();
    assert_eq!((header.source, header.destination), (local().octets(), routers.octets()));
    assert_eq!(header.hop_limit, 1);
    assert_eq!(ip.extensions().slice(), [58, 0, 5, 2, 0, 0, 1, 0]);
    assert!(icmp.is_checksum_valid(header.source, header.destination));
    let message = icmp.slice();
    assert_eq!((message[0], message[1], &message[4..8]), (143, 0, &[0, 0, 0, 2][..]));
    let groups: BTreeSet<Ipv6Addr> = message[8..]
        .chunks(20)
        .map(|record| {
            assert_eq!(
                record[..4],
                [kind, 0, 0, 0],
                "excludes nothing: 2 as it is, 4 newly (RFC 3810 5.2.12)"
            );
            <[u8; 16]>::try_from(&record[4..]).unwrap().into()
        })
        .collect();
    // 2001:db8:1::1 and the link-local address share a group.
    let other = "ff02::1:ff12:3456".parse().unwrap();
    assert_eq!(groups, BTreeSet::from([group_of(OUR6), other]));
}

#[test]
fn a_port_without_ipv6_sends_none_and_answers_none() {
    let mut settings = speaking();
    let port = &mut settings.ports[0];
    port.addresses.retain(|a| a.addr.is_ipv4());
    port.answers.retain(|a| a.addr.is_ipv4());
    port.routes.retain(|r| r.to.addr.is_ipv4());
    let mut host = Host::new(&settings);
    let said = host.run(10_000);
    assert_eq!(said.len(), 3 * 18);
    assert!(said.iter().all(|(_, f)| what(f).1.is_some_and(|a| a.is_ipv4())));
    assert!(host.run(1_000_000).is_empty());
    let fate = host.receive(&solicitation(PEER_MAC, PEER6, local())).0;
    assert_eq!(fate, Received::Foreign(gatun_ether::Foreign::NdpOther));
    assert_eq!(host.send(&udp6(POOL6, PEER6, b"x")).0, Sent::Drop(gatun_ether::Unsent::NoRoute));
}

#[test]
fn packets_are_sent_from_the_start() {
    let mut host = Host::new(&speaking());
    assert_eq!(host.send(&udp4(POOL4, PEER4, b"x")).0, Sent::Held);
    let first = host.poll();
    assert!(first.iter().any(|f| macs(f).0 == gatun_ether::Mac::BROADCAST));
    let _ = host.receive(&arp_reply(PEER_MAC, PEER4));
    assert_eq!(host.poll().len(), 1);
}
