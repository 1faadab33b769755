//! Host functions: ARP, neighbour discovery, ping, VLAN tags, meter, frames from the controller.

use crate::packets::*;
use crate::pair::*;
use gatun_ether::Mac;
use gatun_p4_switch::MeterRates;
use gatun_wire::hdr::{icmpv4, icmpv6};
use gatun_wire::{Settings, checksum};
use std::net::{Ipv4Addr, Ipv6Addr};

const BROADCAST: Mac = Mac([0xff; 6]);
const HOST4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 77);

fn pair() -> Pair {
    Pair::new(well_known(), Settings::default())
}

fn arp(operation: u8, sender: (Mac, Ipv4Addr), target: Ipv4Addr) -> Vec<u8> {
    [
        &[0, 1, 8, 0, 6, 4, 0, operation][..],
        &sender.0.0,
        &sender.1.octets(),
        &[0x55; 6],
        &target.octets(),
        &[0; 18],
    ]
    .concat()
}

fn solicitation(src: Ipv6Addr, target: Ipv6Addr, option: &[u8]) -> Vec<u8> {
    let group = u128::from(target) & 0xff_ffff | 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    let len = 24 + option.len() as u8;
    let mut p = vec![0x60, 0, 0, 0, 0, len, 58, 255];
    p.extend(src.octets());
    p.extend(group.to_be_bytes());
    p.extend([135, 0, 0, 0, 0, 0, 0, 0]);
    p.extend(target.octets());
    p.extend(option);
    icmpv6::set_checksum(&mut p, 40);
    p
}

fn group_mac(target: Ipv6Addr) -> Mac {
    let [.., a, b, c] = target.octets();
    Mac([0x33, 0x33, 0xff, a, b, c])
}

fn is_answer(fate: &Fate, port: usize) -> bool {
    matches!(fate, Fate::Sent(to, _) if *to == port)
}

#[test]
fn arp_requests_for_own_addresses_are_answered_and_others_go_to_the_controller() {
    let mut pair = pair();
    let client = (CLIENT_MAC, HOST4);
    for dst in [BROADCAST, INSIDE_MAC] {
        let frame = untagged(dst, CLIENT_MAC, [8, 6], &arp(1, client, INSIDE_OWN4));
        assert!(is_answer(&pair.compare(INSIDE, &frame).0, INSIDE));
    }
    let router = (OUTSIDE_ROUTER, Ipv4Addr::new(192, 0, 2, 253));
    let frame = tagged(BROADCAST, OUTSIDE_ROUTER, [8, 6], &arp(1, router, OUTSIDE_OWN4));
    assert!(is_answer(&pair.compare(OUTSIDE, &frame).0, OUTSIDE));
    // The address of the other port, another host's, a reply, a probe, impossible senders, an announcement.
    let zero = Ipv4Addr::UNSPECIFIED;
    for message in [
        arp(1, client, OUTSIDE_OWN4),
        arp(1, client, HOST4),
        arp(2, client, INSIDE_OWN4),
        arp(1, (CLIENT_MAC, zero), INSIDE_OWN4),
        arp(1, (INSIDE_MAC, HOST4), INSIDE_OWN4),
        arp(1, (Mac([3, 0, 0, 0, 0, 1]), HOST4), INSIDE_OWN4),
        arp(1, (Mac([0; 6]), HOST4), INSIDE_OWN4),
        arp(1, (CLIENT_MAC, Ipv4Addr::new(127, 0, 0, 1)), INSIDE_OWN4),
        arp(1, (CLIENT_MAC, Ipv4Addr::new(224, 0, 0, 1)), INSIDE_OWN4),
        arp(1, (CLIENT_MAC, INSIDE_OWN4), INSIDE_OWN4),
    ] {
        let frame = untagged(BROADCAST, CLIENT_MAC, [8, 6], &message);
        assert_eq!(pair.compare(INSIDE, &frame).0, Fate::Controller(12), "{message:02x?}");
    }
}

#[test]
fn neighbours_are_answered_and_doubtful_ones_go_to_the_controller() {
    let mut pair = pair();
    let option = [&[1, 1][..], &CLIENT_MAC.0].concat();
    let local = INSIDE_MAC.link_local();
    for target in [INSIDE_OWN6, local] {
        for dst in [group_mac(target), INSIDE_MAC] {
            let frame = untagged(dst, CLIENT_MAC, [0x86, 0xdd], &solicitation(CLIENT, target, &option));
            assert!(is_answer(&pair.compare(INSIDE, &frame).0, INSIDE), "{target}");
        }
    }
    let other: Ipv6Addr = "2001:db8:1::99".parse().unwrap();
    let good = solicitation(CLIENT, INSIDE_OWN6, &option);
    let mut doubtful = vec![
        solicitation(CLIENT, other, &option),
        solicitation(CLIENT, INSIDE_OWN6, &[2, 1, 2, 0, 0, 0, 0, 9]),
        solicitation(CLIENT, INSIDE_OWN6, &[1, 1, 3, 0, 0, 0, 0, 9]),
        solicitation(CLIENT, INSIDE_OWN6, &[1, 1, 0, 0, 0, 0, 0, 0]),
        solicitation(Ipv6Addr::UNSPECIFIED, INSIDE_OWN6, &option),
        solicitation(Ipv6Addr::LOCALHOST, INSIDE_OWN6, &option),
        solicitation("ff02::1".parse().unwrap(), INSIDE_OWN6, &option),
        solicitation(INSIDE_OWN6, INSIDE_OWN6, &option),
    ];
    // Hop limit, code, checksum.
    for (at, value) in [(7, 254), (41, 1), (43, good[43] ^ 1)] {
        let mut packet = good.clone();
        packet[at] = value;
        doubtful.push(packet);
    }
    for packet in doubtful {
        let frame = untagged(group_mac(INSIDE_OWN6), CLIENT_MAC, [0x86, 0xdd], &packet);
        assert_eq!(pair.compare(INSIDE, &frame).0, Fate::Controller(13), "{packet:02x?}");
    }
    // Without options, or with two, it is a message that the program does not read.
    for option in [&[][..], &[&option[..], &option].concat()] {
        let packet = solicitation(CLIENT, INSIDE_OWN6, option);
        let frame = untagged(group_mac(INSIDE_OWN6), CLIENT_MAC, [0x86, 0xdd], &packet);
        assert_eq!(pair.compare(INSIDE, &frame).0, Fate::Controller(14));
        let frame = untagged(INSIDE_MAC, CLIENT_MAC, [0x86, 0xdd], &packet);
        assert_eq!(pair.compare(INSIDE, &frame).0, Fate::Controller(6));
    }
}

fn ping4(src: Ipv4Addr, dst: Ipv4Addr, payload: usize) -> Vec<u8> {
    let made = Made { protocol: Protocol::Echo, payload, tos: 0x1c, ttl: 1, ..PLAIN };
    let mut packet = made.four((src, 9), (dst, 9));
    packet[20] = icmpv4::ECHO_REQUEST;
    icmpv4::set_checksum(&mut packet, 20);
    packet
}

fn ping6(src: Ipv6Addr, dst: Ipv6Addr, payload: usize) -> Vec<u8> {
    Made { protocol: Protocol::Echo, payload, tos: 0x1c, ttl: 1, ..PLAIN }.six_between((src, 9), (dst, 9))
}

#[test]
fn pings_of_own_addresses_are_answered() {
    let mut pair = pair();
    for payload in [0, 1, 56, 57, 1400] {
        let frame = untagged(INSIDE_MAC, CLIENT_MAC, [8, 0], &ping4(HOST4, INSIDE_OWN4, payload));
        assert!(is_answer(&pair.compare(INSIDE, &frame).0, INSIDE));
        let frame = tagged(OUTSIDE_MAC, OUTSIDE_ROUTER, [8, 0], &ping4(SERVER, OUTSIDE_OWN4, payload));
        assert!(is_answer(&pair.compare(OUTSIDE, &frame).0, OUTSIDE));
        // From a host with the same last half, too.
        for src in [CLIENT, "2001:db8:77::1".parse().unwrap()] {
            let frame = untagged(INSIDE_MAC, CLIENT_MAC, [0x86, 0xdd], &ping6(src, INSIDE_OWN6, payload));
            assert!(is_answer(&pair.compare(INSIDE, &frame).0, INSIDE));
        }
    }
    // Nobody answers these, or the engine does.
    let zero = Ipv4Addr::UNSPECIFIED;
    for (src, dst) in [
        (zero, INSIDE_OWN4),
        (Ipv4Addr::new(224, 0, 0, 1), INSIDE_OWN4),
        (INSIDE_OWN4, INSIDE_OWN4),
        (HOST4, OWN4),
    ] {
        let frame = untagged(INSIDE_MAC, CLIENT_MAC, [8, 0], &ping4(src, dst, 8));
        assert!(matches!(pair.compare(INSIDE, &frame).0, Fate::Controller(1 | 10)), "{src} {dst}");
    }
    for src in [Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST, INSIDE_OWN6] {
        let frame = untagged(INSIDE_MAC, CLIENT_MAC, [0x86, 0xdd], &ping6(src, INSIDE_OWN6, 8));
        assert!(matches!(pair.compare(INSIDE, &frame).0, Fate::Controller(1 | 10)), "{src}");
    }
    // Padding and priority tags.
    let padded = [&ping4(HOST4, INSIDE_OWN4, 0)[..], &[0; 18]].concat();
    let frame = untagged(INSIDE_MAC, CLIENT_MAC, [8, 0], &padded);
    assert!(is_answer(&pair.compare(INSIDE, &frame).0, INSIDE));
    let tagged = [&frame[..12], &[0x81, 0, 0xe0, 0], &frame[12..]].concat();
    assert!(is_answer(&pair.compare(INSIDE, &tagged).0, INSIDE));
}

#[test]
fn a_wrong_checksum_of_a_ping_stays_wrong() {
    let mut pair = pair();
    let mut packet = ping4(HOST4, INSIDE_OWN4, 20);
    packet[23] ^= 1;
    let frame = untagged(INSIDE_MAC, CLIENT_MAC, [8, 0], &packet);
    let Fate::Sent(INSIDE, answer) = pair.compare(INSIDE, &frame).0 else { panic!("no answer") };
    assert_ne!(checksum::sum(&answer[34..]), 0xffff);
}

#[test]
fn frames_to_others_are_dropped_and_counted() {
    let mut pair = pair();
    let other = Mac([2, 0, 0, 0, 0, 0x99]);
    let packet = ping4(HOST4, INSIDE_OWN4, 8);
    let frames = [
        (INSIDE, untagged(other, CLIENT_MAC, [8, 0], &packet)),
        (OUTSIDE, untagged(OUTSIDE_MAC, OUTSIDE_ROUTER, [8, 0], &packet)),
        (INSIDE, tagged(INSIDE_MAC, CLIENT_MAC, [8, 0], &packet)),
    ];
    for (port, frame) in &frames {
        assert_eq!(pair.compare(*port, frame).0, Fate::Dropped);
    }
    assert_eq!(pair.switch.register("gatun_dropped", 0).unwrap(), frames.len() as u64);
    // From impossible senders, to groups, and of other types.
    for (src, dst, kind, reason) in [
        (INSIDE_MAC, INSIDE_MAC, [8, 0], 10),
        (Mac([0; 6]), INSIDE_MAC, [8, 0], 10),
        (Mac([3, 0, 0, 0, 0, 1]), INSIDE_MAC, [8, 0], 10),
        (CLIENT_MAC, BROADCAST, [8, 0], 14),
        (CLIENT_MAC, INSIDE_MAC, [0x88, 0x47], 15),
    ] {
        let frame = untagged(dst, src, kind, &packet);
        assert_eq!(pair.compare(INSIDE, &frame).0, Fate::Controller(reason));
    }
}

#[test]
fn a_frame_from_the_controller_leaves_as_it_is() {
    let mut pair = pair();
    let frame: Vec<u8> = (0..200).collect();
    let out = |pair: &mut Pair, port: [u8; 2]| {
        let given = [&[0, 0][..], &port, &frame].concat();
        pair.switch.put(0, &given).unwrap();
        pair.switch.turn();
        (0..4).filter_map(|number| Some((number, pair.switch.take(number)?))).collect::<Vec<_>>()
    };
    for port in [1, 2, 3] {
        assert_eq!(out(&mut pair, [0, port as u8]), [(port, frame.clone())]);
    }
    // Ports without a device, and such that do not exist.
    for port in [[0, 77], [0, 255], [1, 0], [1, 1], [0xff, 0xff]] {
        assert_eq!(out(&mut pair, port), []);
    }
    assert_eq!(pair.switch.register("gatun_dropped", 1).unwrap(), 3);
}

#[test]
fn a_meter_protects_the_controller_for_each_reason() {
    let mut pair = pair();
    let arp = untagged(BROADCAST, CLIENT_MAC, [8, 6], &arp(1, (CLIENT_MAC, HOST4), HOST4));
    let no_entry = from_inside(&PLAIN.six_between((CLIENT, 1), (CLIENT, 2)));
    // Ten packets at once, and then one in ten seconds.
    let rates = MeterRates { cir: 1, cbs: 10, pir: 1, pbs: 10 };
    pair.switch.set_meter("gatun_controller_limit", 12, &rates).unwrap();
    let mut given = [0; 2];
    for _ in 0..50 {
        for (given, frame) in given.iter_mut().zip([&arp, &no_entry]) {
            pair.switch.put(INSIDE, frame).unwrap();
            pair.switch.turn();
            *given += pair.switch.take(0).map_or(0, |_| 1);
        }
    }
    assert_eq!(given[1], 50);
    assert!((9..=15).contains(&given[0]), "{given:?}");
    let counted = |name, index| pair.switch.register(&format!("gatun_{name}"), index).unwrap();
    assert_eq!([counted("to_controller", 12), counted("over_limit", 12)], [given[0], 50 - given[0]]);
    assert_eq!([counted("to_controller", 1), counted("over_limit", 1)], [50, 0]);
}
