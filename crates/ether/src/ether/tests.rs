//! The fast paths agree with the general ones.

use super::*;
use crate::{Route, Tag};
use proptest::prelude::*;
use std::vec;

const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 9]);
const GROUP: Mac = Mac([0x33, 0x33, 0, 0, 0, 1]);
const DEVICES: [u8; 2] = [0, 1];

fn prefix(addr: &str, len: u8) -> Prefix {
    Prefix { addr: addr.parse().unwrap(), len }
}

/// Two ports on one device, one of them with tags, and one port on another device.
fn ether() -> Ether {
    let port = |name: &str, device, tags: Vec<Tag>, net: u8| settings::PortSettings {
        name: name.into(),
        device,
        mac: OURS,
        tags,
        mtu: 1500,
        addresses: vec![
            Prefix { addr: IpAddr::V4(Ipv4Addr::new(10, net, 0, 1)), len: 24 },
            Prefix { addr: IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, net.into(), 0, 0, 0, 0, 1)), len: 64 },
        ],
        answers: vec![],
        routes: vec![],
        neighbours: vec![],
        realms: [0; 2],
    };
    let mut ports = vec![
        port("plain", 0, vec![], 0),
        port("tagged", 0, vec![Tag::service(7), Tag::customer(0x123)], 1),
        port("other", 1, vec![Tag::customer(8)], 2),
    ];
    ports[0].routes.push(Route { to: prefix("0.0.0.0", 0), via: Some("10.0.0.2".parse().unwrap()) });
    let settings = Settings { ports, engine: vec![prefix("10.1.0.1", 32)], announces: false, shares: false };
    Ether::new(&settings, &Limits::default(), [1, 2, 3, 4]).unwrap()
}

fn macs() -> impl Strategy<Value = Mac> {
    prop_oneof![6 => Just(OURS), 6 => Just(PEER), 1 => Just(GROUP), 1 => Just(Mac([0; 6])), 1 => any::<[u8; 6]>().prop_map(Mac)]
}

fn tags() -> impl Strategy<Value = Vec<u8>> {
    let some = vec![
        vec![],
        vec![0x88, 0xa8, 0, 7, 0x81, 0, 1, 0x23],
        vec![0x88, 0xa8, 0xe0, 7, 0x81, 0, 0x61, 0x23],
        vec![0x81, 0, 0, 8],
        vec![0x81, 0, 0, 0],
        vec![0x81, 0, 0, 8, 0x81, 0, 0, 9],
    ];
    prop_oneof![8 => prop::sample::select(some), 1 => proptest::collection::vec(any::<u8>(), 0..12)]
}

/// First bytes of an IP packet, with values that the code distinguishes.
fn packets() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let four = (any::<[u8; 20]>(), 0..4u8, prop_oneof![Just(1u8), any::<u8>()]).prop_map(
        |(mut bytes, net, proto)| {
            (bytes[0], bytes[9]) = (0x45, proto);
            bytes[16..20].copy_from_slice(&[10, net, 0, 1]);
            (kind::IPV4, bytes.to_vec())
        },
    );
    let six = (any::<[u8; 20]>(), 0..4u8, prop_oneof![Just(58u8), any::<u8>()], 126..140u8).prop_map(
        |(bytes, net, next, message)| {
            let mut packet = vec![0x60, 0, 0, 0, 0, 20, next, 255];
            packet.extend(&bytes[..16]);
            packet.extend(Ipv6Addr::new(0x2001, 0xdb8, net.into(), 0, 0, 0, 0, 1).octets());
            packet.push(message);
            packet.extend(bytes);
            (kind::IPV6, packet)
        },
    );
    let any = (any::<u16>(), proptest::collection::vec(any::<u8>(), 0..60));
    prop_oneof![4 => four, 4 => six, 1 => any]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn the_fast_receive_path_agrees_with_the_general_one(
        dst in macs(), src in macs(), tags in tags(), (kind, packet) in packets(), cut in 0..120usize,
    ) {
        let mut bytes = [&dst.0[..], &src.0, &tags, &kind.to_be_bytes(), &packet].concat();
        bytes.truncate(cut.max(bytes.len().saturating_sub(cut)));
        for device in DEVICES {
            let mut ether = ether();
            let short = ether.ports.iter().find_map(|port| port.engines_packet(device, &bytes));
            let mut copy = [&bytes[..], &[0; 64]].concat();
            let mut frame = Packet::new(&mut copy, 0, bytes.len()).unwrap();
            let fate = ether.look(0, device, &mut frame);
            match short {
                Some(at) => prop_assert_eq!((fate, frame.start()), (Ok(Received::Packet), at)),
                // The fast path may know less: truncated frames, and frames with a priority tag.
                None if fate == Ok(Received::Packet) => {
                    let priority = bytes.len() > 15 && bytes[12..14] == [0x81, 0] && bytes[14..16] == [0, 0];
                    prop_assert!(priority || frame.len() < 41, "{:02x?}", bytes);
                }
                None => {}
            }
        }
    }

    #[test]
    fn the_fast_send_path_agrees_with_the_general_one(
        (_, packet) in packets(), room in 0..30usize, last in any::<u8>(), len in 0..2000usize, known in any::<bool>(),
    ) {
        let mut bytes = packet;
        if let (Some(0x45), true) = (bytes.first(), bytes.len() >= 20) {
            bytes[19] = last;
        }
        bytes.resize(bytes.len().max(len), 0);
        let mut both = [ether(), ether()];
        let fates: Vec<_> = both.iter_mut().enumerate().map(|(i, ether)| {
            if known {
                for (port, key) in (0..3u8).flat_map(|p| [(p, Ipv4Addr::new(10, p, 0, last)), (0, Ipv4Addr::new(10, 0, 0, 2))]) {
                    ether.neighbours.glean(0, port, Key::v4(key), PEER);
                    let neighbour = ether.neighbours.find(port, Key::v4(key)).unwrap();
                    let _ = ether.neighbours.way(0, neighbour);
                }
            }
            let mut buffer = [&vec![0xa5; room][..], &bytes].concat();
            let mut packet = Packet::new(&mut buffer, room, bytes.len()).unwrap();
            let fate = if i == 0 { ether.transmit(1, &mut packet) } else { ether.transmit_other(1, &mut packet) };
            (fate, packet.bytes().to_vec(), ether.stats.sent, ether.stats.unsent)
        }).collect();
        prop_assert_eq!(&fates[0], &fates[1]);
    }
}
