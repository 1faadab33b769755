//! One-line forms of packets, with addresses as text.

use super::{Message, V4, V6};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Parses an IPv4 address.
///
/// # Panics
/// Panics if it is none; so do all functions of this module.
pub fn v4(address: &str) -> Ipv4Addr {
    address.parse().unwrap()
}

/// Parses an IPv6 address.
pub fn v6(address: &str) -> Ipv6Addr {
    address.parse().unwrap()
}

/// An IPv4 packet with a message.
pub fn packet4(src: &str, dst: &str, message: &Message) -> Vec<u8> {
    V4::new(v4(src), v4(dst)).packet(message)
}

/// An IPv6 packet with a message.
pub fn packet6(src: &str, dst: &str, message: &Message) -> Vec<u8> {
    V6::new(v6(src), v6(dst)).packet(message)
}

/// A UDP datagram over IPv6.
pub fn udp6(src: &str, sport: u16, dst: &str, dport: u16, payload: &[u8]) -> Vec<u8> {
    packet6(src, dst, &Message::udp(sport, dport, payload))
}

/// A UDP datagram over IPv4.
pub fn udp4(src: &str, sport: u16, dst: &str, dport: u16, payload: &[u8]) -> Vec<u8> {
    packet4(src, dst, &Message::udp(sport, dport, payload))
}

/// A TCP segment over IPv6; see [`Message::tcp`] for the flags.
pub fn tcp6(src: &str, sport: u16, dst: &str, dport: u16, flags: &str, payload: &[u8]) -> Vec<u8> {
    packet6(src, dst, &Message::tcp(sport, dport, flags, payload))
}

/// A TCP segment over IPv4; see [`Message::tcp`] for the flags.
pub fn tcp4(src: &str, sport: u16, dst: &str, dport: u16, flags: &str, payload: &[u8]) -> Vec<u8> {
    packet4(src, dst, &Message::tcp(sport, dport, flags, payload))
}

/// An ICMPv6 echo request, or its reply.
pub fn echo6(src: &str, dst: &str, request: bool, id: u16, payload: &[u8]) -> Vec<u8> {
    packet6(src, dst, &Message::echo(request, id, payload))
}

/// An ICMPv4 echo request, or its reply.
pub fn echo4(src: &str, dst: &str, request: bool, id: u16, payload: &[u8]) -> Vec<u8> {
    packet4(src, dst, &Message::echo(request, id, payload))
}

/// An ICMPv4 error about `quote`: type, code, second word.
pub fn error4(src: &str, dst: &str, head: (u8, u8, u32), quote: &[u8]) -> Vec<u8> {
    packet4(src, dst, &Message::icmp(head, quote))
}

/// An ICMPv6 error about `quote`: type, code, second word.
pub fn error6(src: &str, dst: &str, head: (u8, u8, u32), quote: &[u8]) -> Vec<u8> {
    packet6(src, dst, &Message::icmp(head, quote))
}

/// An IPv6 packet of a protocol without ports.
pub fn other6(src: &str, dst: &str, proto: u8) -> Vec<u8> {
    packet6(src, dst, &Message::Raw { proto, bytes: vec![7; 16] })
}

/// An IPv4 packet of a protocol without ports.
pub fn other4(src: &str, dst: &str, proto: u8) -> Vec<u8> {
    packet4(src, dst, &Message::Raw { proto, bytes: vec![7; 16] })
}
