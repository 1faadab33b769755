//! The tunnel between two nodes: bytes that tshark and etherparse read, and bytes that nobody should send.

use gatun_testkit::packet::text;
use gatun_wire::vxlan::{self, Inner, Outer};
use gatun_wire::{Checksum, DropReason, HEADROOM, Ipv4View, Ipv6View, Offload, Packet};
use proptest::prelude::*;
use std::net::IpAddr;

const A: &str = "192.0.2.1";
const B: &str = "192.0.2.2";
const A6: &str = "2001:db8::1";
const B6: &str = "2001:db8::2";

fn outer(from: &str, to: &str) -> Outer {
    Outer { ends: (from.parse().unwrap(), to.parse().unwrap()), port: vxlan::PORT, vni: 0x1234 }
}

fn inner(bytes: &[u8]) -> Inner {
    match bytes[0] >> 4 {
        4 => Inner::of4(bytes, &Ipv4View::parse(bytes).unwrap()),
        _ => Inner::of6(bytes, &Ipv6View::parse(bytes).unwrap()),
    }
}

fn with_packet<T>(bytes: &[u8], run: impl FnOnce(&mut Packet<'_>) -> T) -> (T, Vec<u8>) {
    let mut buffer = vec![0xa5; HEADROOM];
    buffer.extend_from_slice(bytes);
    let mut packet = Packet::new(&mut buffer, HEADROOM, bytes.len()).unwrap();
    let result = run(&mut packet);
    (result, packet.bytes().to_vec())
}

fn encapsulated(bytes: &[u8], outer: &Outer) -> Vec<u8> {
    let (result, out) = with_packet(bytes, |packet| outer.encapsulate(packet, &inner(bytes)));
    result.unwrap();
    out
}

fn decapsulated(bytes: &[u8]) -> (Result<u32, DropReason>, Vec<u8>) {
    with_packet(bytes, vxlan::decapsulate)
}

/// Inner packets: IPv4 and IPv6, short and with ports.
fn inners() -> Vec<Vec<u8>> {
    vec![
        text::udp4("10.0.0.1", 4000, "198.51.100.7", 53, b"hello"),
        text::tcp4("10.0.0.1", 4000, "198.51.100.7", 80, "S", b""),
        text::udp6("2001:db8:1::2", 4000, "64:ff9b::c633:6407", 53, b"hello"),
        text::tcp6("2001:db8:1::2", 4000, "64:ff9b::c633:6407", 80, "A", &[7; 1200]),
    ]
}

#[test]
fn what_goes_into_the_tunnel_comes_out_of_it() {
    for bytes in inners() {
        for outer in [outer(A, B), outer(A6, B6)] {
            let packet = encapsulated(&bytes, &outer);
            assert_eq!(packet.len(), bytes.len() + outer.headers_len());
            assert!(vxlan::is_to(&packet, outer.ends.1, vxlan::PORT));
            assert!(!vxlan::is_to(&packet, outer.ends.0, vxlan::PORT));
            assert!(!vxlan::is_to(&packet, outer.ends.1, vxlan::PORT + 1));
            assert_eq!(vxlan::sender(&packet), Some(outer.ends.0));
            assert_eq!(decapsulated(&packet), (Ok(0x1234), bytes.clone()));
        }
    }
}

#[test]
fn another_parser_finds_the_inner_packet() {
    for bytes in inners() {
        for outer in [outer(A, B), outer(A6, B6)] {
            let packet = encapsulated(&bytes, &outer);
            let parsed = etherparse::SlicedPacket::from_ip(&packet).unwrap();
            let Some(etherparse::TransportSlice::Udp(udp)) = parsed.transport else { panic!("no UDP") };
            assert_eq!((udp.destination_port(), udp.checksum()), (vxlan::PORT, 0));
            assert!(udp.source_port() >= 49_152);
            assert_eq!(udp.payload()[..8], [8, 0, 0, 0, 0, 0x12, 0x34, 0]);
            let frame = etherparse::SlicedPacket::from_ethernet(&udp.payload()[8..]).unwrap();
            let Some(etherparse::LinkSlice::Ethernet2(ethernet)) = frame.link else { panic!("no Ethernet") };
            assert_eq!((ethernet.destination(), ethernet.source()), (vxlan::TO_MAC, vxlan::FROM_MAC));
            assert_eq!(udp.payload()[8 + 14..], bytes);
            if let Some(etherparse::NetSlice::Ipv4(ip)) = parsed.net {
                assert!(ip.header().dont_fragment());
                assert_eq!(ip.header().header_checksum(), ip.header().to_header().calc_header_checksum());
            }
        }
    }
}

#[test]
fn tshark_reads_every_field() {
    if let Some(why) = gatun_testkit::missing(&[("tshark", "tshark")]) {
        return gatun_testkit::skip(&why);
    }
    // A capture of raw IP packets.
    let mut capture =
        vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0, 0];
    let (four, six) = (&inners()[0], &inners()[2]);
    for packet in [encapsulated(four, &outer(A, B)), encapsulated(six, &outer(A6, B6))] {
        let len = (packet.len() as u32).to_le_bytes();
        capture.extend([0; 8].iter().chain(&len).chain(&len).chain(&packet));
    }
    let file = std::env::temp_dir().join(format!("gatun-vxlan-{}.pcap", std::process::id()));
    std::fs::write(&file, capture).unwrap();
    let mut command = std::process::Command::new("tshark");
    command.arg("-r").arg(&file).args(["-o", "ip.check_checksum:TRUE", "-T", "fields", "-E", "separator=|"]);
    let fields =
        ["vxlan.vni", "eth.dst", "eth.src", "ip.src", "ipv6.src", "ip.checksum.status", "udp.dstport"];
    for field in fields {
        command.args(["-e", field]);
    }
    let output = gatun_testkit::output(&mut command).unwrap();
    std::fs::remove_file(&file).unwrap();
    let expected = "4660|02:67:61:74:75:6e|06:67:61:74:75:6e|192.0.2.1,10.0.0.1||1,1|4789,53\n\
                    4660|02:67:61:74:75:6e|06:67:61:74:75:6e||2001:db8::1,2001:db8:1::2||4789,53\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn flows_have_ports_of_their_own_and_a_flow_has_one() {
    let mut ports = std::collections::BTreeSet::new();
    for port in 0..256 {
        for host in ["10.0.0.1", "10.0.0.2"] {
            let packet = |payload: &[u8]| inner(&text::udp4(host, 4000 + port, "198.51.100.7", 53, payload));
            assert_eq!(packet(b"a").flow_port, packet(b"another").flow_port);
            ports.insert(packet(b"a").flow_port);
        }
    }
    assert!(ports.len() > 480 && ports.iter().all(|port| *port >= 49_152), "{}", ports.len());
}

#[test]
fn headers_that_no_node_sends_are_refused_and_change_nothing() {
    let good = encapsulated(&inners()[0], &outer(A, B));
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bad = good.clone();
        change(&mut bad);
        assert_eq!(decapsulated(&bad), (Err(DropReason::TunnelHeader), bad.clone()));
    };
    refused(&|bytes| bytes[28] = 0); // no network identifier
    refused(&|bytes| bytes[36] ^= 1); // another Ethernet receiver
    refused(&|bytes| bytes[48] = 0x81); // a VLAN tag
    refused(&|bytes| bytes[49] ^= 1);
    refused(&|bytes| bytes[25] -= 1); // UDP length
    refused(&|bytes| bytes[27] = 1); // UDP checksum
    refused(&|bytes| bytes[8] -= 1); // IP checksum
    for len in 20..50 {
        refused(&|bytes| bytes.truncate(len));
    }
    // The inner packet may be cut: its own parser finds out.
    let short = text::udp4(A, 50_000, B, vxlan::PORT, &good[28..51]);
    assert!(decapsulated(&short).0.is_ok());
    let empty = text::udp4(A, 50_000, B, vxlan::PORT, &good[28..50]);
    assert_eq!(decapsulated(&empty).0, Err(DropReason::TunnelHeader));
    // A checksum that is right is no fault.
    let summed = text::udp4(A, 50_000, B, vxlan::PORT, &good[28..]);
    assert_eq!(decapsulated(&summed).1, inners()[0]);
    let summed = text::udp6(A6, 50_000, B6, vxlan::PORT, &good[28..]);
    assert_eq!(decapsulated(&summed).1, inners()[0]);
}

#[test]
fn congestion_on_the_way_is_reported_to_the_receiver() {
    for (class, marked) in [(0xb9, 0xbb), (0xba, 0xbb), (0xbb, 0xbb)] {
        for (mut bytes, outer) in [(inners()[0].clone(), outer(A6, B6)), (inners()[2].clone(), outer(A, B))] {
            let set = |bytes: &mut Vec<u8>, class: u8| match bytes[0] >> 4 {
                4 => {
                    bytes[1] = class;
                    gatun_wire::hdr::ipv4::set_checksum(&mut bytes[..20]);
                }
                _ => (bytes[0], bytes[1]) = (0x60 | class >> 4, class << 4),
            };
            set(&mut bytes, class);
            let mut packet = encapsulated(&bytes, &outer);
            assert_eq!(inner(&packet).class, class);
            set(&mut packet, class | 3);
            set(&mut bytes, marked);
            assert_eq!(decapsulated(&packet), (Ok(0x1234), bytes.clone()));
        }
    }
    let mut packet = encapsulated(&inners()[0], &outer(A6, B6));
    packet[1] |= 0x30;
    assert_eq!(decapsulated(&packet).0, Err(DropReason::TunnelHeader), "the flow knows no marks");
}

#[test]
fn a_partial_checksum_stays_that_of_the_inner_packet() {
    let packet = encapsulated(&inners()[1], &outer(A, B));
    let run = |start| {
        let checksum = Checksum::Partial { start, offset: 16 };
        let with = |packet: &mut Packet<'_>| {
            packet.offload = Offload { checksum, ..Offload::default() };
            vxlan::decapsulate(packet).unwrap();
            packet.offload.checksum
        };
        with_packet(&packet, with).0
    };
    assert_eq!(run(70), Checksum::Partial { start: 20, offset: 16 });
    assert_eq!(run(20), Checksum::Complete, "of the outer datagram");
}

#[test]
fn a_hop_is_taken_with_the_right_checksum() {
    for mut bytes in inners() {
        let is_v6 = bytes[0] >> 4 == 6;
        let hops = |bytes: &[u8]| bytes[if is_v6 { 7 } else { 8 }];
        let before = hops(&bytes);
        vxlan::take_hop(&mut bytes, is_v6);
        assert_eq!(hops(&bytes), before - 1);
        assert!(is_v6 || Ipv4View::parse(&bytes).is_ok());
    }
}

proptest! {
    #[test]
    fn any_bytes_are_taken_out_whole_or_left_alone(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200), is_v6: bool, headers in 0usize..70,
        flips in prop::collection::vec((0usize..90, any::<u8>()), 0..3),
    ) {
        let outer = if is_v6 { outer(A6, B6) } else { outer(A, B) };
        let good = encapsulated(&inners()[usize::from(is_v6) * 2], &outer);
        bytes.iter_mut().zip(&good[..headers.min(good.len())]).for_each(|(byte, good)| *byte = *good);
        if bytes.len() >= good.len() {
            bytes.truncate(good.len());
        }
        for (at, to) in flips {
            if let Some(byte) = bytes.get_mut(at) { *byte = to; }
        }
        let own: IpAddr = outer.ends.1;
        if !vxlan::is_to(&bytes, own, vxlan::PORT) {
            return Ok(());
        }
        prop_assert!(vxlan::sender(&bytes).is_some());
        let (vni, out) = decapsulated(&bytes);
        match vni {
            Ok(_) => prop_assert!(bytes.len() > out.len() && !out.is_empty()),
            Err(why) => {
                prop_assert_eq!(why, DropReason::TunnelHeader);
                prop_assert_eq!(out, bytes);
            }
        }
    }
}
