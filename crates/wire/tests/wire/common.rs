//! Packets built by etherparse, and a buffer in which they are translated.
#![allow(dead_code, unreachable_pub)]

use etherparse::{
    IcmpEchoHeader, Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpFragOffset, IpNumber, Ipv4Header,
    Ipv6FragmentHeader, Ipv6Header, TcpHeader, UdpHeader,
};
use gatun_wire::rfc7915::{four_to_six, icmp_4to6, icmp_6to4, six_to_four};
use gatun_wire::{
    DEVICE_ROOM, DropReason, GROWTH_MAX, HEADROOM, Ipv4View, Ipv6View, L4, Offload, Packet, Ports, Settings,
    TAILROOM, To4, To6, Whole,
};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Initial value of buffers, which makes unwritten bytes visible.
pub const MARK: u8 = 0xa5;

/// An IPv6 client, the address of its server in pool6, and the IPv4 addresses of both.
pub const CLIENT6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x1ca7, 0x2, 0, 0, 0, 0x9);
pub const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0xc000, 0x221);
pub const CLIENT4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
pub const SERVER4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 33);

/// Transport message, built with the checksum of either family.
#[derive(Clone, Debug)]
pub enum Message {
    Tcp { src: u16, dst: u16, flags: u8, options: Vec<u8>, payload: Vec<u8> },
    Udp { src: u16, dst: u16, payload: Vec<u8> },
    Echo { request: bool, id: u16, payload: Vec<u8> },
    Raw { proto: u8, bytes: Vec<u8> },
}

pub fn udp(payload: &[u8]) -> Message {
    Message::Udp { src: 40_001, dst: 53, payload: payload.to_vec() }
}

pub fn tcp(payload: &[u8]) -> Message {
    Message::Tcp { src: 40_001, dst: 443, flags: 0x18, options: vec![], payload: payload.to_vec() }
}

pub fn echo(request: bool, payload: &[u8]) -> Message {
    Message::Echo { request, id: 0x1234, payload: payload.to_vec() }
}

/// Bytes without a pattern that a checksum would miss.
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

impl Message {
    pub fn proto4(&self) -> u8 {
        match self {
            Message::Tcp { .. } => 6,
            Message::Udp { .. } => 17,
            Message::Echo { .. } => 1,
            Message::Raw { proto, .. } => *proto,
        }
    }

    pub fn proto6(&self) -> u8 {
        if let Message::Echo { .. } = self { 58 } else { self.proto4() }
    }

    /// The same message with other ports, or with another identifier if it is an echo message.
    pub fn with_ports(&self, ports: Ports) -> Message {
        let mut m = self.clone();
        match (&mut m, ports) {
            (
                Message::Tcp { src, dst, .. } | Message::Udp { src, dst, .. },
                Ports::Set { src: s, dst: d },
            ) => {
                (*src, *dst) = (s, d);
            }
            (Message::Echo { id, .. }, Ports::EchoId(new)) => *id = new,
            _ => {}
        }
        m
    }

    fn tcp_header(src: u16, dst: u16, flags: u8, options: &[u8]) -> TcpHeader {
        let mut h = TcpHeader::new(src, dst, 0xdead_beef, 0x2345);
        h.acknowledgment_number = 0x0102_0304;
        [h.fin, h.syn, h.rst, h.psh] = [1, 2, 4, 8].map(|b| flags & b != 0);
        [h.ack, h.urg, h.ece, h.cwr] = [16, 32, 64, 128].map(|b| flags & b != 0);
        h.set_options_raw(options).unwrap();
        h
    }

    pub fn to_bytes4(&self, src: Ipv4Addr, dst: Ipv4Addr) -> Vec<u8> {
        let (s, d) = (src.octets(), dst.octets());
        match self {
            Message::Tcp { src, dst, flags, options, payload } => {
                let mut h = Self::tcp_header(*src, *dst, *flags, options);
                h.checksum = h.calc_checksum_ipv4_raw(s, d, payload).unwrap();
                [&h.to_bytes()[..], payload].concat()
            }
            Message::Udp { src, dst, payload } => {
                let ip = Ipv4Header::new(0, 1, IpNumber::UDP, s, d).unwrap();
                let h = UdpHeader::with_ipv4_checksum(*src, *dst, &ip, payload).unwrap();
                [&h.to_bytes()[..], payload].concat()
            }
            Message::Echo { request, id, payload } => {
                let echo = IcmpEchoHeader { id: *id, seq: 0x77 };
                let kind = if *request { Icmpv4Type::EchoRequest(echo) } else { Icmpv4Type::EchoReply(echo) };
                [&Icmpv4Header::with_checksum(kind, payload).to_bytes()[..], payload].concat()
            }
            Message::Raw { bytes, .. } => bytes.clone(),
        }
    }

    pub fn to_bytes6(&self, src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
        let (s, d) = (src.octets(), dst.octets());
        match self {
            Message::Tcp { src, dst, flags, options, payload } => {
                let mut h = Self::tcp_header(*src, *dst, *flags, options);
                h.checksum = h.calc_checksum_ipv6_raw(s, d, payload).unwrap();
                [&h.to_bytes()[..], payload].concat()
            }
            Message::Udp { src, dst, payload } => {
                let ip = Ipv6Header { source: s, destination: d, ..Default::default() };
                let h = UdpHeader::with_ipv6_checksum(*src, *dst, &ip, payload).unwrap();
                [&h.to_bytes()[..], payload].concat()
            }
            Message::Echo { request, id, payload } => {
                let echo = IcmpEchoHeader { id: *id, seq: 0x77 };
                let kind = if *request { Icmpv6Type::EchoRequest(echo) } else { Icmpv6Type::EchoReply(echo) };
                let h = Icmpv6Header::with_checksum(kind, s, d, payload).unwrap();
                [&h.to_bytes()[..], payload].concat()
            }
            Message::Raw { bytes, .. } => bytes.clone(),
        }
    }
}

/// Fields of an IPv4 packet that tests vary.
#[derive(Clone, Debug)]
pub struct V4 {
    pub tos: u8,
    pub id: u16,
    pub df: bool,
    pub mf: bool,
    /// In bytes.
    pub offset: u16,
    pub ttl: u8,
    pub src: Ipv4Addr,
    pub dst: Ipv4Addr,
    pub options: Vec<u8>,
}

impl Default for V4 {
    fn default() -> Self {
        V4 {
            tos: 0xb9,
            id: 0xbeef,
            df: false,
            mf: false,
            offset: 0,
            ttl: 64,
            src: SERVER4,
            dst: CLIENT4,
            options: vec![],
        }
    }
}

impl V4 {
    /// From the client to the server.
    pub fn outbound() -> Self {
        V4 { src: CLIENT4, dst: SERVER4, ..V4::default() }
    }

    /// Packet with these bytes after its header.
    pub fn raw(&self, proto: u8, l4: &[u8]) -> Vec<u8> {
        let mut h =
            Ipv4Header::new(l4.len() as u16, self.ttl, IpNumber(proto), self.src.octets(), self.dst.octets())
                .unwrap();
        h.dscp = (self.tos >> 2).try_into().unwrap();
        h.ecn = (self.tos & 3).try_into().unwrap();
        h.identification = self.id;
        h.dont_fragment = self.df;
        h.more_fragments = self.mf;
        h.fragment_offset = IpFragOffset::try_new(self.offset / 8).unwrap();
        h.options = self.options[..].try_into().unwrap();
        h.total_len = (h.header_len() + l4.len()) as u16;
        h.header_checksum = h.calc_header_checksum();
        [&h.to_bytes()[..], l4].concat()
    }

    pub fn packet(&self, message: &Message) -> Vec<u8> {
        self.raw(message.proto4(), &message.to_bytes4(self.src, self.dst))
    }
}

/// Fields of an IPv6 packet that tests vary.
#[derive(Clone, Debug)]
pub struct V6 {
    pub traffic_class: u8,
    pub flow_label: u32,
    pub hop_limit: u8,
    pub src: Ipv6Addr,
    pub dst: Ipv6Addr,
    /// Offset in bytes, M, identification.
    pub fragment: Option<(u16, bool, u32)>,
    /// Extension headers before the Fragment header: number and bytes. The builder fills in the first byte.
    pub extensions: Vec<(u8, Vec<u8>)>,
}

impl Default for V6 {
    fn default() -> Self {
        V6 {
            traffic_class: 0xb9,
            flow_label: 0,
            hop_limit: 64,
            src: CLIENT6,
            dst: SERVER6,
            fragment: None,
            extensions: vec![],
        }
    }
}

impl V6 {
    /// From the server to the client.
    pub fn inbound() -> Self {
        V6 { src: SERVER6, dst: CLIENT6, ..V6::default() }
    }

    pub fn raw(&self, proto: u8, l4: &[u8]) -> Vec<u8> {
        let mut chain: Vec<(u8, Vec<u8>)> = self.extensions.clone();
        if let Some((offset, more, id)) = self.fragment {
            let h = Ipv6FragmentHeader {
                next_header: IpNumber(0),
                fragment_offset: IpFragOffset::try_new(offset / 8).unwrap(),
                more_fragments: more,
                identification: id,
            };
            chain.push((44, h.to_bytes().to_vec()));
        }
        let mut next = proto;
        let mut body = l4.to_vec();
        for (number, mut bytes) in chain.into_iter().rev() {
            bytes[0] = next;
            next = number;
            body = [bytes, body].concat();
        }
        let h = Ipv6Header {
            traffic_class: self.traffic_class,
            flow_label: self.flow_label.try_into().unwrap(),
            payload_length: body.len() as u16,
            next_header: IpNumber(next),
            hop_limit: self.hop_limit,
            source: self.src.octets(),
            destination: self.dst.octets(),
        };
        [&h.to_bytes()[..], &body].concat()
    }

    pub fn packet(&self, message: &Message) -> Vec<u8> {
        self.raw(message.proto6(), &message.to_bytes6(self.src, self.dst))
    }
}

/// Runs `f` on `bytes` as a packet in a marked buffer with the least room that a backend may leave. Returns the
/// result of `f`, the packet and its offloads. Whatever `f` does, the device's own header has to fit before the
/// packet.
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

/// IPv4 translation of a packet that must be translatable and sent whole.
pub fn ok_6to4(bytes: &[u8]) -> Vec<u8> {
    let (result, out, _) = six_to_four(bytes, Ports::Keep, &Settings::default(), Offload::default());
    assert_eq!(result, Ok(Whole::Yes));
    out
}

/// IPv6 translation of a packet that must be translatable and sent whole.
pub fn ok_4to6(bytes: &[u8]) -> Vec<u8> {
    let (result, out, _) = four_to_six(bytes, Ports::Keep, &Settings::default(), Offload::default());
    assert_eq!(result, Ok(Whole::Yes));
    out
}

pub fn err_6to4(bytes: &[u8]) -> DropReason {
    six_to_four(bytes, Ports::Keep, &Settings::default(), Offload::default()).0.unwrap_err()
}

pub fn err_4to6(bytes: &[u8]) -> DropReason {
    four_to_six(bytes, Ports::Keep, &Settings::default(), Offload::default()).0.unwrap_err()
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
        let kind = Icmpv4Type::Unknown {
            type_u8: self.kind,
            code_u8: self.code,
            bytes5to8: self.word.to_be_bytes(),
        };
        [&Icmpv4Header::with_checksum(kind, &self.body).to_bytes()[..8], &self.body].concat()
    }

    pub fn packet(&self) -> Vec<u8> {
        V4 { src: ROUTER4, dst: CLIENT4, ..V4::default() }.raw(1, &self.message())
    }
}

impl Error6 {
    pub fn message(&self, src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
        let kind = Icmpv6Type::Unknown {
            type_u8: self.kind,
            code_u8: self.code,
            bytes5to8: self.word.to_be_bytes(),
        };
        let h = Icmpv6Header::with_checksum(kind, src.octets(), dst.octets(), &self.body).unwrap();
        [&h.to_bytes()[..8], &self.body].concat()
    }

    pub fn packet(&self) -> Vec<u8> {
        V6 { src: ROUTER6, dst: CLIENT6, ..V6::default() }.raw(58, &self.message(ROUTER6, CLIENT6))
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

/// Translates an ICMPv6 error from the router to the client.
pub fn error_6to4(bytes: &[u8], ports: Ports, settings: &Settings) -> (Result<(), DropReason>, Vec<u8>) {
    let out = in_buffer(bytes, Offload::default(), |packet| {
        let view = Ipv6View::parse(packet.bytes())?;
        let embedded = icmp_6to4::embedded(packet.bytes(), &view)?;
        let inner = to4(&embedded.view, ports);
        icmp_6to4::translate(packet, &view, &embedded, (ROUTER4, CLIENT4), &inner, ID, settings)
    });
    if out.0.is_err() {
        assert_eq!(out.1, bytes, "a refused packet changed: {:?}", out.0);
    }
    (out.0, out.1)
}
