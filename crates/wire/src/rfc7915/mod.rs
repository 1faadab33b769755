//! RFC 7915: header translation. The caller decides on addresses and ports. This module decides on everything
//! else in the packet.

pub mod four_to_six;
pub mod fragment;
pub mod icmp_4to6;
pub mod icmp_6to4;
pub mod mtu;
mod quote;
pub mod six_to_four;
pub(crate) mod transport;

use crate::checksum::{self, Delta};
use crate::{mss, proto};
use core::net::{Ipv4Addr, Ipv6Addr};

/// Translation settings of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Constant TOS byte (v6>v4), or `None` to copy the traffic class (RFC 7915 5.1).
    pub tos_6to4: Option<u8>,
    /// Constant traffic class (v4>v6), or `None` to copy the TOS byte (RFC 7915 4.1).
    pub traffic_class_4to6: Option<u8>,
    /// MTU of the next hop on the IPv4 side, bytes.
    pub mtu4: u32,
    /// MTU of the next hop on the IPv6 side, bytes; at least 1280.
    pub mtu6: u32,
    /// Largest IPv6 packet made from an IPv4 packet without DF, bytes (RFC 7915 4); 1280 or more.
    pub lowest_ipv6_mtu: u32,
    /// Handling of IPv4 UDP packets whose checksum is zero.
    pub udp_zero_checksum: ZeroChecksum,
    /// Largest segment size that a SYN may announce, in either direction, bytes. Larger values are lowered
    /// to it. [`mss::ANY`] means no limit.
    pub mss_max: u16,
    /// Longest ICMPv4 error made by translation, bytes (RFC 1812 4.3.2.3: 576).
    pub icmp4_error_max: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            tos_6to4: None,
            traffic_class_4to6: None,
            mtu4: 1500,
            mtu6: 1500,
            lowest_ipv6_mtu: 1280,
            udp_zero_checksum: ZeroChecksum::Compute,
            mss_max: mss::ANY,
            icmp4_error_max: 576,
        }
    }
}

/// Handling of an IPv4 UDP packet without checksum (RFC 7915 4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroChecksum {
    /// Drop and count it.
    Drop,
    /// Compute the checksum over the payload.
    #[default]
    Compute,
    /// Send it without checksum (RFC 6935: only between tunnel ends that agreed on it).
    Forward,
}

/// New ports (or echo identifier) of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// Unchanged: stateless translation, later fragments, other protocols.
    Keep,
    /// TCP or UDP ports.
    Set {
        /// Source port.
        src: u16,
        /// Destination port.
        dst: u16,
    },
    /// Identifier of an echo message.
    EchoId(u16),
    /// Identifier of a fragment of an echo message, the first or a later one. ICMPv6's checksum covers the
    /// length of the whole message, so the length has to be known.
    EchoPiece {
        /// Identifier.
        id: u16,
        /// Length in bytes of the whole message in all its fragments, from its type on.
        len: u16,
    },
}

impl Ports {
    /// Length in bytes of the ICMP message, for a packet that holds `here` bytes of it.
    fn message_len(self, here: usize) -> u32 {
        match self {
            Ports::EchoPiece { len, .. } => len.into(),
            _ => here as u32,
        }
    }
}

/// Addresses and ports of the resulting IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct To4 {
    /// Source.
    pub src: Ipv4Addr,
    /// Destination.
    pub dst: Ipv4Addr,
    /// Ports.
    pub ports: Ports,
    /// Change of a transport checksum by the two addresses alone: see [`To4::new`]. A session stores it, so
    /// that it is computed once.
    pub addresses: Delta,
}

/// Addresses and ports of the resulting IPv6 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct To6 {
    /// Source.
    pub src: Ipv6Addr,
    /// Destination.
    pub dst: Ipv6Addr,
    /// Ports.
    pub ports: Ports,
    /// Like [`To4::addresses`].
    pub addresses: Delta,
}

/// Delta of replacing one pair of addresses (source, destination) by another.
#[inline(always)]
pub fn address_delta_6to4(from: (Ipv6Addr, Ipv6Addr), to: (Ipv4Addr, Ipv4Addr)) -> Delta {
    use crate::checksum::fold;
    // Whole words: one's complement sums do not depend on the word size (RFC 1071 2).
    let halves = |a: Ipv6Addr| {
        let bits = u128::from(a);
        (bits >> 64) + (bits & u128::from(u64::MAX))
    };
    let sum = halves(from.0) + halves(from.1);
    let (low, carry) = (sum as u64).overflowing_add((sum >> 64) as u64);
    let four = |a: Ipv4Addr| u64::from(u32::from(a));
    Delta::of(fold(low + u64::from(carry)), fold(four(to.0) + four(to.1)))
}

impl To4 {
    /// Result for a packet from `from.0` to `from.1`.
    #[inline]
    pub fn new(from: (Ipv6Addr, Ipv6Addr), to: (Ipv4Addr, Ipv4Addr), ports: Ports) -> Self {
        To4 { src: to.0, dst: to.1, ports, addresses: address_delta_6to4(from, to) }
    }
}

impl To6 {
    /// Result for a packet from `from.0` to `from.1`.
    #[inline]
    pub fn new(from: (Ipv4Addr, Ipv4Addr), to: (Ipv6Addr, Ipv6Addr), ports: Ports) -> Self {
        To6 { src: to.0, dst: to.1, ports, addresses: address_delta_6to4(to, from).inverse() }
    }
}

fn addresses_sum(pair: (Ipv6Addr, Ipv6Addr)) -> u16 {
    checksum::add(checksum::sum(&pair.0.octets()), checksum::sum(&pair.1.octets()))
}

/// Sum that the pseudo-header of ICMPv6 adds to a checksum (RFC 4443 2.3). ICMPv4 has none.
fn icmpv6_pseudo(pair: (Ipv6Addr, Ipv6Addr), l4_len: u32) -> Delta {
    Delta(checksum::add(addresses_sum(pair), checksum::pseudo(&[], l4_len, proto::ICMPV6)))
}

/// Fragmentation of a translated packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Whole {
    /// The packet is sent whole.
    Yes,
    /// The packet has to be cut into fragments of at most this many bytes each, headers included, by
    /// [`fragment::split4`] or [`fragment::split6`]. Its checksum is complete already, and an IPv6 packet
    /// already has a Fragment header.
    Split(u32),
}
