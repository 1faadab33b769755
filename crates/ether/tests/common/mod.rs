//! A host under test, frames to it, and an independent parser of its frames.
#![allow(dead_code)]

use etherparse::{
    ArpEthIpv4Packet, ArpHardwareId, ArpOperation, ArpPacket, EtherType, NetSlice, SlicedPacket,
    TransportSlice,
};
use gatun_ether::{
    Ether, FrameOrigin, Limits, Mac, PortSettings, Prefix, Received, Route, Sent, Settings, Tag,
};
use gatun_testkit::packet::{Message, V4, V6};
use gatun_wire::{HEADROOM, Packet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const DEVICE: u8 = 3;
pub(crate) const OUR_MAC: Mac = Mac([0x02, 0, 0, 0, 0, 0x01]);
pub(crate) const PEER_MAC: Mac = Mac([0x02, 0, 0, 0, 0, 0x99]);
pub(crate) const OTHER_MAC: Mac = Mac([0x02, 0, 0, 0, 0, 0x77]);
pub(crate) const OUR4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
pub(crate) const PEER4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);
pub(crate) const GATEWAY4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 254);
pub(crate) const POOL4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 5);
pub(crate) const FAR4: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);
pub(crate) const OUR6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
pub(crate) const PEER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 9);
pub(crate) const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xfe);
pub(crate) const POOL6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0xc000, 0x221);
pub(crate) const FAR6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 8);
/// The translator's own address. The engine answers its pings.
pub(crate) const ENGINE4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

pub(crate) fn prefix(text: &str) -> Prefix {
    let (addr, len) = text.split_once('/').unwrap();
    Prefix { addr: addr.parse().unwrap(), len: len.parse().unwrap() }
}

pub(crate) fn route(to: &str, via: &str) -> Route {
    Route { to: prefix(to), via: (!via.is_empty()).then(|| via.parse().unwrap()) }
}

pub(crate) fn settings() -> Settings {
    let port = PortSettings {
        name: "lan".into(),
        device: DEVICE,
        mac: OUR_MAC,
        tags: vec![],
        mtu: 1500,
        addresses: vec![prefix("198.51.100.1/24"), prefix("2001:db8:1::1/64"), prefix("198.51.100.2/32")],
        answers: vec![prefix("203.0.113.0/28"), prefix("2001:db8:64::/96")],
        routes: vec![route("0.0.0.0/0", "198.51.100.254"), route("::/0", "fe80::fe")],
        neighbours: vec![],
        realms: [0; 2],
    };
    let engine = vec![prefix("198.51.100.2/32"), prefix("203.0.113.0/28"), prefix("2001:db8:64::/96")];
    Settings { ports: vec![port], engine, announces: false, shares: false }
}

pub(crate) fn with_tags(tags: &[Tag]) -> Settings {
    let mut settings = settings();
    settings.ports[0].tags = tags.to_vec();
    settings
}

/// A host and its clock.
pub(crate) struct Host {
    pub(crate) ether: Ether,
    pub(crate) now_ms: u64,
}

impl Host {
    pub(crate) fn new(settings: &Settings) -> Host {
        Host::with_limits(settings, &Limits::default())
    }

    pub(crate) fn with_limits(settings: &Settings, limits: &Limits) -> Host {
        let ether = Ether::new(settings, limits, [1, 2, 3, 4]).unwrap_or_else(|p| panic!("{p:?}"));
        Host { ether, now_ms: 1_000_000 }
    }

    /// Receives a frame. Returns its fate and the bytes of the packet.
    pub(crate) fn receive(&mut self, frame: &[u8]) -> (Received, Vec<u8>) {
        self.receive_with_room(frame, gatun_ether::ANSWER_ROOM)
    }

    pub(crate) fn receive_with_room(&mut self, frame: &[u8], room: usize) -> (Received, Vec<u8>) {
        let mut buffer = vec![0xa5; HEADROOM + frame.len() + room];
        buffer[HEADROOM..HEADROOM + frame.len()].copy_from_slice(frame);
        let mut packet = Packet::new(&mut buffer, HEADROOM, frame.len()).unwrap();
        let fate = self.ether.receive(self.now_ms, DEVICE, &mut packet);
        assert!(self.ether.stats().add_up(), "{:?}", self.ether.stats());
        (fate, packet.bytes().to_vec())
    }

    /// Receives a frame with a packet for the engine. Returns its realm and its bytes.
    pub(crate) fn receive_from(&mut self, frame: &[u8]) -> (u8, Vec<u8>) {
        let mut buffer = vec![0xa5; HEADROOM + frame.len()];
        buffer[HEADROOM..].copy_from_slice(frame);
        let mut packet = Packet::new(&mut buffer, HEADROOM, frame.len()).unwrap();
        assert_eq!(self.ether.receive(self.now_ms, DEVICE, &mut packet), Received::Packet);
        (packet.realm, packet.bytes().to_vec())
    }

    /// Sends a packet. Returns its fate and the frame.
    pub(crate) fn send(&mut self, packet: &[u8]) -> (Sent, Vec<u8>) {
        self.send_to(0, packet)
    }

    /// Sends a packet to a realm.
    pub(crate) fn send_to(&mut self, realm: u8, packet: &[u8]) -> (Sent, Vec<u8>) {
        let mut buffer = vec![0xa5; HEADROOM + packet.len()];
        buffer[HEADROOM..].copy_from_slice(packet);
        let mut packet = Packet::new(&mut buffer, HEADROOM, packet.len()).unwrap();
        packet.realm = realm;
        let fate = self.ether.transmit(self.now_ms, &mut packet);
        assert!(self.ether.stats().add_up(), "{:?}", self.ether.stats());
        (fate, packet.bytes().to_vec())
    }

    /// Frames that are due now.
    pub(crate) fn poll(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        self.ether.poll(self.now_ms, &mut |device, frame, whose| {
            assert_eq!(device, DEVICE);
            let transport = SlicedPacket::from_ethernet(frame).unwrap().transport;
            let is_packet = matches!(transport, Some(TransportSlice::Udp(_)));
            assert_eq!(whose == FrameOrigin::Packet, is_packet, "{frame:02x?}");
            frames.push(frame.to_vec());
        });
        assert!(self.ether.due_ms() > self.now_ms, "all due work is done at once");
        assert!(self.ether.stats().add_up(), "{:?}", self.ether.stats());
        frames
    }

    /// Frames of the next `ms` milliseconds with their times. Polls like a worker that sleeps in between.
    pub(crate) fn run(&mut self, ms: u64) -> Vec<(u64, Vec<u8>)> {
        let end = self.now_ms + ms;
        let mut frames = Vec::new();
        loop {
            let now = self.now_ms;
            frames.extend(self.poll().into_iter().map(|f| (now, f)));
            self.now_ms = self.ether.due_ms().min(end).max(now + 1);
            if self.now_ms >= end {
                return frames;
            }
        }
    }
}

/// Ethernet header and payload, possibly with tags.
pub(crate) fn frame(dst: Mac, src: Mac, tags: &[Tag], kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = [dst.0, src.0].concat();
    for tag in tags {
        bytes.extend(tag.kind.to_be_bytes());
        bytes.extend(tag.vlan.to_be_bytes());
    }
    bytes.extend(kind.to_be_bytes());
    bytes.extend(body);
    bytes
}

pub(crate) fn arp_body(
    operation: u16,
    sender_mac: Mac,
    sender: Ipv4Addr,
    target_mac: Mac,
    target: Ipv4Addr,
) -> Vec<u8> {
    let arp = ArpPacket::new(
        ArpHardwareId::ETHERNET,
        EtherType::IPV4,
        ArpOperation(operation),
        &sender_mac.0,
        &sender.octets(),
        &target_mac.0,
        &target.octets(),
    );
    arp.unwrap().to_bytes().to_vec()
}

pub(crate) fn arp_request(sender_mac: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    frame(Mac::BROADCAST, sender_mac, &[], 0x0806, &arp_body(1, sender_mac, sender, Mac([0; 6]), target))
}

pub(crate) fn arp_reply(sender_mac: Mac, sender: Ipv4Addr) -> Vec<u8> {
    frame(OUR_MAC, sender_mac, &[], 0x0806, &arp_body(2, sender_mac, sender, OUR_MAC, OUR4))
}

/// Neighbour discovery packet: type, flags, target, options.
pub(crate) fn discovery(
    kind: u8,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    flags: u8,
    target: Ipv6Addr,
    options: &[u8],
) -> Vec<u8> {
    discovery_with(255, kind, 0, src, dst, &[&[flags, 0, 0, 0][..], &target.octets(), options].concat())
}

/// Neighbour discovery packet with every field that is checked.
pub(crate) fn discovery_with(
    hops: u8,
    kind: u8,
    code: u8,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    body: &[u8],
) -> Vec<u8> {
    let word = u32::from_be_bytes(body[..4].try_into().unwrap());
    V6 { hop_limit: hops, ..V6::new(src, dst) }.packet(&Message::icmp((kind, code, word), &body[4..]))
}

/// Link-layer option.
pub(crate) fn option(kind: u8, mac: Mac) -> Vec<u8> {
    [&[kind, 1][..], &mac.0].concat()
}

pub(crate) fn group_of(target: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = target.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from(b) << 8 | u16::from(c))
}

pub(crate) fn group_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    Mac([0x33, 0x33, a, b, c, d])
}

pub(crate) fn solicitation(sender_mac: Mac, src: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let group = group_of(target);
    let packet = discovery(135, src, group, 0, target, &option(1, sender_mac));
    frame(group_mac(group), sender_mac, &[], 0x86dd, &packet)
}

pub(crate) const SOLICITED: u8 = 0x40;
pub(crate) const OVERRIDE: u8 = 0x20;

pub(crate) fn advertisement(mac: Mac, target: Ipv6Addr, flags: u8) -> Vec<u8> {
    let packet = discovery(136, target, OUR6, flags, target, &option(2, mac));
    frame(OUR_MAC, mac, &[], 0x86dd, &packet)
}

pub(crate) fn udp4(src: Ipv4Addr, dst: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    V4 { ttl: 60, ..V4::new(src, dst) }.packet(&Message::udp(1000, 2000, payload))
}

pub(crate) fn udp6(src: Ipv6Addr, dst: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
    V6 { hop_limit: 60, ..V6::new(src, dst) }.packet(&Message::udp(1000, 2000, payload))
}

pub(crate) fn ping4(src: Ipv4Addr, dst: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    V4 { ttl: 3, ..V4::new(src, dst) }.packet(&Message::echo(true, 77, payload))
}

pub(crate) fn ping6(src: Ipv6Addr, dst: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
    V6 { hop_limit: 3, ..V6::new(src, dst) }.packet(&Message::echo(true, 77, payload))
}

/// MACs of a frame: destination, source.
pub(crate) fn macs(frame: &[u8]) -> (Mac, Mac) {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let header = sliced.link.unwrap().to_header().unwrap().ethernet2().unwrap();
    (Mac(header.destination), Mac(header.source))
}

/// VLANs of a frame, outermost first.
pub(crate) fn vlans(frame: &[u8]) -> Vec<u16> {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    sliced.vlan_ids().iter().map(|v| v.value()).collect()
}

pub(crate) fn parse_arp(frame: &[u8]) -> ArpEthIpv4Packet {
    match SlicedPacket::from_ethernet(frame).unwrap().net {
        Some(NetSlice::Arp(arp)) => arp.to_packet().try_eth_ipv4().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Neighbour discovery message as etherparse reads it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Discovery {
    pub(crate) kind: u8,
    pub(crate) src: Ipv6Addr,
    pub(crate) dst: Ipv6Addr,
    pub(crate) flags: u8,
    pub(crate) target: Ipv6Addr,
    pub(crate) option: Option<(u8, Mac)>,
}

pub(crate) fn parse_discovery(frame: &[u8]) -> Discovery {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) = (sliced.net, sliced.transport)
    else {
        panic!("no ICMPv6: {frame:02x?}");
    };
    let header = ip.header();
    let (src, dst) = (header.source(), header.destination());
    assert_eq!(header.hop_limit(), 255);
    assert!(icmp.is_checksum_valid(src, dst), "checksum");
    assert_eq!(icmp.code_u8(), 0);
    let message = icmp.slice();
    let option = match message.len() {
        24 => None,
        32 => Some((message[24], Mac(message[26..32].try_into().unwrap()))),
        len => panic!("{len} bytes"),
    };
    assert!(message.len() == 24 || message[25] == 1, "the option's length");
    Discovery {
        kind: icmp.type_u8(),
        src: src.into(),
        dst: dst.into(),
        flags: message[4],
        target: <[u8; 16]>::try_from(&message[8..24]).unwrap().into(),
        option,
    }
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Query of a multicast router (RFC 3810 5.1).
pub(crate) fn query(hops: u8, src: &str, delay_code: u16, len: usize) -> Vec<u8> {
    let src: Ipv6Addr = src.parse().unwrap();
    let dst: Ipv6Addr = "ff02::1".parse().unwrap();
    let body = vec![0; len - 8];
    let query = Message::icmp((130, 0, u32::from(delay_code) << 16), &body);
    let router_alert = vec![0, 0, 5, 2, 0, 0, 1, 0];
    let header = V6 { hop_limit: hops, extensions: vec![(0, router_alert)], ..V6::new(src, dst) };
    let packet = header.packet(&query);
    frame(group_mac(dst), PEER_MAC, &[], 0x86dd, &packet)
}
