//! Transport and ICMP messages.

use etherparse::{
    IcmpEchoHeader, Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpNumber, Ipv4Header, Ipv6Header,
    TcpHeader, UdpHeader,
};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Sequence number of every TCP segment.
const SEQUENCE: u32 = 1000;
/// Acknowledgement number of segments with ACK.
const ACKNOWLEDGEMENT: u32 = 2000;
const WINDOW: u16 = 4096;
const ACK: u8 = 0x10;
/// Sequence number of every echo message.
const ECHO_SEQUENCE: u16 = 1;

/// A message of either family, with the checksum of that family.
#[derive(Clone, Debug)]
pub enum Message {
    /// A TCP segment; `flags` is the flags byte of its header.
    #[expect(missing_docs, reason = "fields of the header")]
    Tcp { src: u16, dst: u16, flags: u8, options: Vec<u8>, payload: Vec<u8> },
    /// A UDP datagram.
    #[expect(missing_docs, reason = "fields of the header")]
    Udp { src: u16, dst: u16, payload: Vec<u8> },
    /// An echo request, or its reply.
    #[expect(missing_docs, reason = "fields of the header")]
    Echo { request: bool, id: u16, payload: Vec<u8> },
    /// Another ICMP message: type, code and second word in each family.
    #[expect(missing_docs, reason = "fields of the header")]
    Icmp { v4: (u8, u8, u32), v6: (u8, u8, u32), body: Vec<u8> },
    /// Bytes of any protocol, as they are.
    #[expect(missing_docs, reason = "fields of the header")]
    Raw { proto: u8, bytes: Vec<u8> },
}

impl Message {
    /// A UDP datagram.
    pub fn udp(src: u16, dst: u16, payload: &[u8]) -> Message {
        Message::Udp { src, dst, payload: payload.to_vec() }
    }

    /// A TCP segment without options; `flags` are letters of `S`, `A`, `F`, `R`, `P` and `U`.
    ///
    /// # Panics
    /// Panics on another letter.
    pub fn tcp(src: u16, dst: u16, flags: &str, payload: &[u8]) -> Message {
        let bit = |letter| match "FSRPAU".find(letter) {
            Some(place) => 1u8 << place,
            None => panic!("no flag {letter}"),
        };
        let flags = flags.chars().map(bit).fold(0, |all, bit| all | bit);
        Message::Tcp { src, dst, flags, options: Vec::new(), payload: payload.to_vec() }
    }

    /// An echo request, or its reply.
    pub fn echo(request: bool, id: u16, payload: &[u8]) -> Message {
        Message::Echo { request, id, payload: payload.to_vec() }
    }

    /// An ICMP message of one family: type, code and second word, then the body.
    pub fn icmp(head: (u8, u8, u32), body: &[u8]) -> Message {
        Message::Icmp { v4: head, v6: head, body: body.to_vec() }
    }

    /// Protocol number in an IPv4 header.
    pub fn proto4(&self) -> u8 {
        match self {
            Message::Tcp { .. } => 6,
            Message::Udp { .. } => 17,
            Message::Echo { .. } | Message::Icmp { .. } => 1,
            Message::Raw { proto, .. } => *proto,
        }
    }

    /// Next Header value in an IPv6 header.
    pub fn proto6(&self) -> u8 {
        match self.proto4() {
            1 if !matches!(self, Message::Raw { .. }) => 58,
            proto => proto,
        }
    }

    /// Bytes of the message in an IPv4 packet.
    ///
    /// # Panics
    /// Panics if it is too long for its own length field.
    pub fn to_bytes4(&self, src: Ipv4Addr, dst: Ipv4Addr) -> Vec<u8> {
        let (s, d) = (src.octets(), dst.octets());
        match self {
            Message::Tcp { src, dst, flags, options, payload } => {
                let mut header = tcp_header(*src, *dst, *flags, options);
                header.checksum = header.calc_checksum_ipv4_raw(s, d, payload).unwrap();
                [&header.to_bytes()[..], payload].concat()
            }
            Message::Udp { src, dst, payload } => {
                let ip = Ipv4Header::new(0, 1, IpNumber::UDP, s, d).unwrap();
                let header = UdpHeader::with_ipv4_checksum(*src, *dst, &ip, payload).unwrap();
                [&header.to_bytes()[..], payload].concat()
            }
            Message::Echo { request, id, payload } => {
                let echo = IcmpEchoHeader { id: *id, seq: ECHO_SEQUENCE };
                let kind = if *request { Icmpv4Type::EchoRequest(echo) } else { Icmpv4Type::EchoReply(echo) };
                [&Icmpv4Header::with_checksum(kind, payload).to_bytes()[..], payload].concat()
            }
            Message::Icmp { v4: (type_u8, code_u8, word), body, .. } => {
                let (type_u8, code_u8, bytes5to8) = (*type_u8, *code_u8, word.to_be_bytes());
                let kind = Icmpv4Type::Unknown { type_u8, code_u8, bytes5to8 };
                [&Icmpv4Header::with_checksum(kind, body).to_bytes()[..8], body].concat()
            }
            Message::Raw { bytes, .. } => bytes.clone(),
        }
    }

    /// Bytes of the message in an IPv6 packet.
    ///
    /// # Panics
    /// Panics if it is too long for its own length field.
    pub fn to_bytes6(&self, src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
        let (s, d) = (src.octets(), dst.octets());
        match self {
            Message::Tcp { src, dst, flags, options, payload } => {
                let mut header = tcp_header(*src, *dst, *flags, options);
                header.checksum = header.calc_checksum_ipv6_raw(s, d, payload).unwrap();
                [&header.to_bytes()[..], payload].concat()
            }
            Message::Udp { src, dst, payload } => {
                let ip = Ipv6Header { source: s, destination: d, ..Default::default() };
                let header = UdpHeader::with_ipv6_checksum(*src, *dst, &ip, payload).unwrap();
                [&header.to_bytes()[..], payload].concat()
            }
            Message::Echo { request, id, payload } => {
                let echo = IcmpEchoHeader { id: *id, seq: ECHO_SEQUENCE };
                let kind = if *request { Icmpv6Type::EchoRequest(echo) } else { Icmpv6Type::EchoReply(echo) };
                let header = Icmpv6Header::with_checksum(kind, s, d, payload).unwrap();
                [&header.to_bytes()[..], payload].concat()
            }
            Message::Icmp { v6: (type_u8, code_u8, word), body, .. } => {
                let (type_u8, code_u8, bytes5to8) = (*type_u8, *code_u8, word.to_be_bytes());
                let kind = Icmpv6Type::Unknown { type_u8, code_u8, bytes5to8 };
                let header = Icmpv6Header::with_checksum(kind, s, d, body).unwrap();
                [&header.to_bytes()[..8], body].concat()
            }
            Message::Raw { bytes, .. } => bytes.clone(),
        }
    }
}

fn tcp_header(src: u16, dst: u16, flags: u8, options: &[u8]) -> TcpHeader {
    let mut header = TcpHeader::new(src, dst, SEQUENCE, WINDOW);
    header.acknowledgment_number = if flags & ACK != 0 { ACKNOWLEDGEMENT } else { 0 };
    [header.fin, header.syn, header.rst, header.psh] = [1, 2, 4, 8].map(|bit| flags & bit != 0);
    [header.ack, header.urg, header.ece, header.cwr] = [16, 32, 64, 128].map(|bit| flags & bit != 0);
    header.set_options_raw(options).unwrap();
    header
}
