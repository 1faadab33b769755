//! IP headers.

use super::Message;
use etherparse::{IpFragOffset, IpNumber, Ipv4Header, Ipv6FragmentHeader, Ipv6Header};
use std::net::{Ipv4Addr, Ipv6Addr};

/// An IPv4 header.
#[derive(Clone, Debug)]
pub struct V4 {
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Identification.
    pub id: u16,
    /// Don't Fragment.
    pub df: bool,
    /// More Fragments.
    pub mf: bool,
    /// Fragment offset, bytes.
    pub offset: u16,
    /// Time to live.
    pub ttl: u8,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Options, a multiple of four bytes.
    pub options: Vec<u8>,
}

impl V4 {
    /// A header as hosts send it: DF set, TTL 64, all other fields zero.
    pub fn new(src: Ipv4Addr, dst: Ipv4Addr) -> V4 {
        V4 { tos: 0, id: 0, df: true, mf: false, offset: 0, ttl: 64, src, dst, options: Vec::new() }
    }

    /// The packet with these bytes after its header.
    ///
    /// # Panics
    /// Panics if a field does not fit the header.
    pub fn raw(&self, proto: u8, bytes: &[u8]) -> Vec<u8> {
        let (src, dst) = (self.src.octets(), self.dst.octets());
        let mut header = Ipv4Header::new(bytes.len() as u16, self.ttl, IpNumber(proto), src, dst).unwrap();
        header.dscp = (self.tos >> 2).try_into().unwrap();
        header.ecn = (self.tos & 3).try_into().unwrap();
        header.identification = self.id;
        header.dont_fragment = self.df;
        header.more_fragments = self.mf;
        header.fragment_offset = IpFragOffset::try_new(self.offset / 8).unwrap();
        header.options = self.options[..].try_into().unwrap();
        header.total_len = (header.header_len() + bytes.len()) as u16;
        header.header_checksum = header.calc_header_checksum();
        [&header.to_bytes()[..], bytes].concat()
    }

    /// The packet with a message.
    ///
    /// # Panics
    /// Like [`raw`](Self::raw).
    pub fn packet(&self, message: &Message) -> Vec<u8> {
        self.raw(message.proto4(), &message.to_bytes4(self.src, self.dst))
    }
}

/// An IPv6 header, with extension headers.
#[derive(Clone, Debug)]
pub struct V6 {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// Fragment header: offset in bytes, M, identification.
    pub fragment: Option<(u16, bool, u32)>,
    /// Extension headers before the Fragment header: number and bytes; the first byte is overwritten.
    pub extensions: Vec<(u8, Vec<u8>)>,
}

impl V6 {
    /// A header as hosts send it: hop limit 64, all other fields zero.
    pub fn new(src: Ipv6Addr, dst: Ipv6Addr) -> V6 {
        V6 {
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            src,
            dst,
            fragment: None,
            extensions: Vec::new(),
        }
    }

    /// The packet with these bytes after its headers.
    ///
    /// # Panics
    /// Panics if a field does not fit the header.
    pub fn raw(&self, proto: u8, bytes: &[u8]) -> Vec<u8> {
        let mut chain: Vec<(u8, Vec<u8>)> = self.extensions.clone();
        if let Some((offset, more, id)) = self.fragment {
            let offset = IpFragOffset::try_new(offset / 8).unwrap();
            chain.push((44, Ipv6FragmentHeader::new(IpNumber(0), offset, more, id).to_bytes().to_vec()));
        }
        let mut next = proto;
        let mut body = bytes.to_vec();
        for (number, mut header) in chain.into_iter().rev() {
            header[0] = next;
            next = number;
            body = [header, body].concat();
        }
        let header = Ipv6Header {
            traffic_class: self.traffic_class,
            flow_label: self.flow_label.try_into().unwrap(),
            payload_length: body.len() as u16,
            next_header: IpNumber(next),
            hop_limit: self.hop_limit,
            source: self.src.octets(),
            destination: self.dst.octets(),
        };
        [&header.to_bytes()[..], &body].concat()
    }

    /// The packet with a message.
    ///
    /// # Panics
    /// Like [`raw`](Self::raw).
    pub fn packet(&self, message: &Message) -> Vec<u8> {
        self.raw(message.proto6(), &message.to_bytes6(self.src, self.dst))
    }
}
