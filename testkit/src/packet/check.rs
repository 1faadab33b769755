//! Checks of packets with a parser that is not Gatun's.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use std::net::IpAddr;

/// Parses a packet and compares its lengths and checksums with computed ones.
///
/// # Panics
/// Panics if one of them is wrong.
pub fn check(packet: &[u8]) {
    let sliced = SlicedPacket::from_ip(packet).unwrap_or_else(|e| panic!("{e}: {packet:02x?}"));
    let net = sliced.net.as_ref().unwrap();
    let fragmented = sliced.is_ip_payload_fragmented();
    if let NetSlice::Ipv4(ip) = net {
        let h = ip.header().to_header();
        assert_eq!(h.header_checksum, h.calc_header_checksum(), "IPv4 header checksum");
        assert_eq!(usize::from(h.total_len), packet.len(), "Total Length");
    }
    if fragmented {
        return;
    }
    match (net, &sliced.transport) {
        (NetSlice::Ipv4(ip), Some(TransportSlice::Udp(u))) => {
            let (h, ip) = (u.to_header(), ip.header().to_header());
            assert_eq!(h.checksum, h.calc_checksum_ipv4(&ip, u.payload()).unwrap(), "UDP over IPv4");
        }
        (NetSlice::Ipv6(ip), Some(TransportSlice::Udp(u))) => {
            let (h, ip) = (u.to_header(), ip.header().to_header());
            assert_eq!(h.checksum, h.calc_checksum_ipv6(&ip, u.payload()).unwrap(), "UDP over IPv6");
        }
        (NetSlice::Ipv4(ip), Some(TransportSlice::Tcp(t))) => {
            let (h, ip) = (t.to_header(), ip.header().to_header());
            assert_eq!(h.checksum, h.calc_checksum_ipv4(&ip, t.payload()).unwrap(), "TCP over IPv4");
        }
        (NetSlice::Ipv6(ip), Some(TransportSlice::Tcp(t))) => {
            let (h, ip) = (t.to_header(), ip.header().to_header());
            assert_eq!(h.checksum, h.calc_checksum_ipv6(&ip, t.payload()).unwrap(), "TCP over IPv6");
        }
        (NetSlice::Ipv4(_), Some(TransportSlice::Icmpv4(i))) => {
            assert_eq!(i.checksum(), i.icmp_type().calc_checksum(i.payload()), "ICMPv4");
        }
        (NetSlice::Ipv6(ip), Some(TransportSlice::Icmpv6(i))) => {
            let h = ip.header().to_header();
            assert!(i.is_checksum_valid(h.source, h.destination), "ICMPv6");
        }
        _ => {}
    }
}

/// Addresses and ports of a TCP or UDP packet, or the identifier of an echo message in both ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Source port, or identifier.
    pub sport: u16,
    /// Destination port, or identifier.
    pub dport: u16,
}

/// Reads the endpoints of a packet.
///
/// # Panics
/// Panics if the packet is none of TCP, UDP or ICMP.
pub fn endpoints(packet: &[u8]) -> Endpoints {
    let sliced = SlicedPacket::from_ip(packet).unwrap();
    let (src, dst) = match sliced.net.as_ref().unwrap() {
        NetSlice::Ipv4(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        NetSlice::Ipv6(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        NetSlice::Arp(_) => unreachable!(),
    };
    let echo_id = |b: &[u8]| u16::from_be_bytes([b[4], b[5]]);
    let (sport, dport) = match sliced.transport.as_ref().unwrap() {
        TransportSlice::Udp(u) => (u.source_port(), u.destination_port()),
        TransportSlice::Tcp(t) => (t.source_port(), t.destination_port()),
        TransportSlice::Icmpv4(i) => (echo_id(i.slice()), echo_id(i.slice())),
        TransportSlice::Icmpv6(i) => (echo_id(i.slice()), echo_id(i.slice())),
        TransportSlice::Igmp(_) => (0, 0),
    };
    Endpoints { src, dst, sport, dport }
}
