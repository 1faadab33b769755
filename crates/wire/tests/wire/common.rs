//! Shared headers and messages of the tests, and a buffer for the translation of packets.
#![allow(dead_code, unreachable_pub)]

#[path = "results.rs"]
#[allow(clippy::duplicate_mod, reason = "it calls the functions of its parent, which differ")]
mod results;

pub use gatun_testkit::packet::{Message, V4, V6};
use gatun_wire::rfc3022::{self, Rewrite, icmp_error};
use gatun_wire::rfc7915::icmp_6to4::{self, OuterHeader};
use gatun_wire::rfc7915::{four_to_six, icmp_4to6, six_to_four};
use gatun_wire::{
    DEVICE_ROOM, DropReason, GROWTH_MAX, HEADROOM, Ipv4View, Ipv6View, L4, Offload, Packet, Ports, Settings,
    TAILROOM, To4, To6, Whole,
};
use proptest::prelude::*;
#[allow(unused_imports, reason = "beside.rs has its own")]
pub use results::{err_4to6, err_6to4, ok_4to6, ok_6to4};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Initial value of buffers, which makes unwritten bytes visible.
pub const MARK: u8 = 0xa5;

/// An IPv6 client, the address of its server in pool6, and the IPv4 addresses of both.
pub const CLIENT6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x1ca7, 0x2, 0, 0, 0, 0x9);
pub const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0xc000, 0x221);
pub const CLIENT4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
pub const SERVER4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 33);

pub fn udp(payload: &[u8]) -> Message {
    Message::Udp { src: 40_001, dst: 53, payload: payload.to_vec() }
}

pub fn tcp(payload: &[u8]) -> Message {
    Message::Tcp { src: 40_001, dst: 443, flags: 0x18, options: vec![], payload: payload.to_vec() }
}

pub fn echo(request: bool, payload: &[u8]) -> Message {
    Message::Echo { request, id: 0x1234, payload: payload.to_vec() }
}

/// Bytes without a pattern that a checksum would not detect.
pub fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Random bytes, many of which have values that a one's complement sum hides.
pub fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![2 => Just(0u8), 2 => Just(0xff), 3 => any::<u8>()];
    prop::collection::vec(byte, 0..max)
}

/// Any message; `options` are TCP options.
pub fn message(options: Vec<u8>) -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<u16>(), any::<u16>(), any::<u8>(), bytes(1300)).prop_map(move |(src, dst, flags, payload)| {
            Message::Tcp { src, dst, flags, options: options.clone(), payload }
        }),
        (any::<u16>(), any::<u16>(), bytes(1300)).prop_map(|(src, dst, payload)| Message::Udp {
            src,
            dst,
            payload
        }),
        (any::<bool>(), any::<u16>(), bytes(1300)).prop_map(|(request, id, payload)| Message::Echo {
            request,
            id,
            payload
        }),
        bytes(1300).prop_map(|bytes| Message::Raw { proto: 132, bytes }),
    ]
}

/// The same message with other ports, or with another identifier in place of the first port.
pub fn with_ports(message: &Message, ports: Ports) -> Message {
    let mut m = message.clone();
    match (&mut m, ports) {
        (Message::Tcp { src, dst, .. } | Message::Udp { src, dst, .. }, Ports::Set { src: s, dst: d }) => {
            (*src, *dst) = (s, d);
        }
        (Message::Echo { id, .. }, Ports::EchoId(new)) => *id = new,
        _ => {}
    }
    m
}

/// IPv4 header from the server to the client in which all fields have different values.
pub fn header4() -> V4 {
    V4 { tos: 0xb9, id: 0xbeef, df: false, ..V4::new(SERVER4, CLIENT4) }
}

/// Same as [`header4`], from the client to the server.
pub fn outbound4() -> V4 {
    V4 { src: CLIENT4, dst: SERVER4, ..header4() }
}

/// IPv6 header with a traffic class, from the client to the server.
pub fn header6() -> V6 {
    V6 { traffic_class: 0xb9, ..V6::new(CLIENT6, SERVER6) }
}

/// Same as [`header6`], from the server to the client.
pub fn inbound6() -> V6 {
    V6 { src: SERVER6, dst: CLIENT6, ..header6() }
}

/// Runs `f` on `bytes` as a packet in a marked buffer with the least room that a backend may leave. Returns
/// the result of `f`, the packet and its offloads. Whatever `f` does, the device's own header has to fit
/// before the packet.
pub fn in_buffer<R>(
    bytes: &[u8],
    offload: Offload,
    f: impl FnOnce(&mut Packet<'_>) -> R,
) -> (R, Vec<u8>, Offload) {
    let mut buf = vec![MARK; HEADROOM + bytes.len() + TAILROOM];
    buf[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
    let mut packet = Packet::with_offload(&mut buf, HEADROOM, bytes.len(), offload).unwrap();
    let result = f(&mut packet);
    assert!(packet.headroom() >= DEVICE_ROOM, "{} bytes in front of {bytes:02x?}", packet.headroom());
    assert!(packet.len() <= bytes.len() + GROWTH_MAX, "{} bytes of {bytes:02x?}", packet.len());
    (result, packet.bytes().to_vec(), packet.offload)
}

/// Identification of packets translated from IPv6 to IPv4 without Fragment header.
pub const ID: u16 = 0x6a6b;

pub fn to4(view: &Ipv6View, ports: Ports) -> To4 {
    let dst_src = if view.src == SERVER6 { (SERVER4, CLIENT4) } else { (CLIENT4, SERVER4) };
    To4::new((view.src, view.dst), dst_src, ports)
}

pub fn to6(view: &Ipv4View, ports: Ports) -> To6 {
    let src_dst = if view.src == CLIENT4 { (CLIENT6, SERVER6) } else { (SERVER6, CLIENT6) };
    To6::new((view.src, view.dst), src_dst, ports)
}

/// Result of a translation.
pub type Translated = (Result<Whole, DropReason>, Vec<u8>, Offload);

/// Parses and translates. On an error the packet must be unchanged.
pub fn six_to_four(bytes: &[u8], ports: Ports, settings: &Settings, offload: Offload) -> Translated {
    let out = in_buffer(bytes, offload, |packet| {
        let view = Ipv6View::parse(packet.bytes())?;
        let l4 = view.l4(packet.bytes())?;
        six_to_four::translate(packet, &view, l4, &to4(&view, ports), ID, settings)
    });
    unchanged_on_error(bytes, offload, &out);
    out
}

/// Parses and translates. On an error the packet must be unchanged.
pub fn four_to_six(bytes: &[u8], ports: Ports, settings: &Settings, offload: Offload) -> Translated {
    let out = in_buffer(bytes, offload, |packet| {
        let view = Ipv4View::parse(packet.bytes())?;
        let l4 = view.l4(packet.bytes())?;
        four_to_six::translate(packet, &view, l4, &to6(&view, ports), settings)
    });
    unchanged_on_error(bytes, offload, &out);
    out
}

fn unchanged_on_error(bytes: &[u8], offload: Offload, out: &Translated) {
    if out.0.is_err() {
        assert_eq!(out.1, bytes, "a refused packet changed: {:?}", out.0);
        assert_eq!(out.2, offload, "a refused packet's leftovers changed");
    }
}

/// Transport header of a packet of either family.
pub fn l4_of(bytes: &[u8]) -> L4 {
    match bytes[0] >> 4 {
        4 => Ipv4View::parse(bytes).unwrap().l4(bytes).unwrap(),
        _ => Ipv6View::parse(bytes).unwrap().l4(bytes).unwrap(),
    }
}

/// Routers that send errors.
pub const ROUTER4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
pub const ROUTER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0xcb00, 0x7101);

/// An ICMPv4 error from the router to the client.
#[derive(Clone, Debug)]
pub struct Error4 {
    pub kind: u8,
    pub code: u8,
    pub word: u32,
    pub body: Vec<u8>,
}

/// An ICMPv6 error from the router to the client (or, seen from outside, to the server).
#[derive(Clone, Debug)]
pub struct Error6 {
    pub kind: u8,
    pub code: u8,
    pub word: u32,
    pub body: Vec<u8>,
}

impl Error4 {
    pub fn message(&self) -> Vec<u8> {
        Message::icmp((self.kind, self.code, self.word), &self.body).to_bytes4(ROUTER4, CLIENT4)
    }

    pub fn packet(&self) -> Vec<u8> {
        V4 { src: ROUTER4, dst: CLIENT4, ..header4() }.raw(1, &self.message())
    }
}

impl Error6 {
    pub fn message(&self, src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
        Message::icmp((self.kind, self.code, self.word), &self.body).to_bytes6(src, dst)
    }

    pub fn packet(&self) -> Vec<u8> {
        V6 { src: ROUTER6, dst: CLIENT6, ..header6() }.raw(58, &self.message(ROUTER6, CLIENT6))
    }
}

/// Translates an ICMPv4 error from the router to the client.
pub fn error_4to6(bytes: &[u8], ports: Ports, settings: &Settings) -> (Result<(), DropReason>, Vec<u8>) {
    let out = in_buffer(bytes, Offload::default(), |packet| {
        let view = Ipv4View::parse(packet.bytes())?;
        let embedded = icmp_4to6::embedded(packet.bytes(), &view)?;
        let at = usize::from(embedded.at);
        assert_eq!(at, usize::from(view.l4_offset) + 8);
        let inner = to6(&embedded.view, ports);
        icmp_4to6::translate(packet, &view, &embedded, (ROUTER6, CLIENT6), &inner, settings)
    });
    if out.0.is_err() {
        assert_eq!(out.1, bytes, "a refused packet changed: {:?}", out.0);
    }
    (out.0, out.1)
}

/// Translates an IPv4 packet to new addresses, ports and identification.
pub fn four_to_four(
    bytes: &[u8],
    to: (Ipv4Addr, Ipv4Addr),
    ports: Ports,
    id: Option<u16>,
    mtu: u32,
    offload: Offload,
) -> Translated {
    let out = in_buffer(bytes, offload, |p| {
        let view = Ipv4View::parse(p.bytes())?;
        let l4 = view.l4(p.bytes())?;
        let to = Rewrite { id, ..Rewrite::new((view.src, view.dst), to, ports) };
        rfc3022::translate(p, &view, l4, &to, rfc3022::Link { mtu, mss_max: gatun_wire::mss::ANY })
    });
    if out.0.is_err() {
        assert_eq!((&out.1[..], out.2), (bytes, offload), "a refused packet changed: {:?}", out.0);
    }
    out
}

/// Translates an error from the router to a public address about a packet of the inside host.
pub fn error_4to4(bytes: &[u8], inside: Ipv4Addr, ports: Ports) -> (Result<Whole, DropReason>, Vec<u8>) {
    let (result, out, _) = in_buffer(bytes, Offload::default(), |p| {
        let view = Ipv4View::parse(p.bytes())?;
        let embedded = icmp_error::embedded(p.bytes(), &view)?;
        let about = embedded.view;
        let outer = Rewrite::new((view.src, view.dst), (view.src, inside), Ports::Keep);
        let inner = Rewrite::new((about.src, about.dst), (inside, about.dst), ports);
        icmp_error::translate(p, &view, &embedded, &outer, &inner, 1500)
    });
    if result.is_err() {
        assert_eq!(out, bytes, "a refused packet changed: {result:?}");
    }
    (result, out)
}

/// Translates an ICMPv6 error from the router to the client.
pub fn error_6to4(bytes: &[u8], ports: Ports, settings: &Settings) -> (Result<(), DropReason>, Vec<u8>) {
    let out = in_buffer(bytes, Offload::default(), |packet| {
        let view = Ipv6View::parse(packet.bytes())?;
        let embedded = icmp_6to4::embedded(packet.bytes(), &view)?;
        let inner = to4(&embedded.view, ports);
        let outer = OuterHeader { src: ROUTER4, dst: CLIENT4, id: ID };
        icmp_6to4::translate(packet, &view, &embedded, outer, &inner, settings)
    });
    if out.0.is_err() {
        assert_eq!(out.1, bytes, "a refused packet changed: {:?}", out.0);
    }
    (out.0, out.1)
}
