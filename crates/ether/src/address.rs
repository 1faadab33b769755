//! MAC addresses, IP addresses of either family as one number, and prefixes.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// MAC address (EUI-48).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Broadcast address of the link.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// Returns true for multicast and broadcast addresses (IEEE 802-2014 8.2.2, the I/G bit).
    #[inline]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Returns true for an address that one device may have.
    #[inline]
    pub fn is_unicast(self) -> bool {
        !self.is_group() && self.0 != [0; 6]
    }

    /// Link-local IPv6 address made from the MAC (RFC 4291 2.5.6 and appendix A).
    pub fn link_local(self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0;
        let id = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
        Ipv6Addr::from(0xfe80_u128 << 112 | u128::from(id))
    }

    /// MAC address of an IPv6 multicast group (RFC 2464 7).
    pub fn of_group(group: Ipv6Addr) -> Mac {
        let [.., a, b, c, d] = group.octets();
        Mac([0x33, 0x33, a, b, c, d])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0;
        write!(f, "{first:02x}")?;
        rest.iter().try_for_each(|byte| write!(f, ":{byte:02x}"))
    }
}

/// The text is not six pairs of hexadecimal digits separated by colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidMac;

impl FromStr for Mac {
    type Err = InvalidMac;

    fn from_str(s: &str) -> Result<Self, InvalidMac> {
        let mut mac = [0; 6];
        let mut parts = s.split(':');
        for byte in &mut mac {
            let digits = |p: &&str| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit());
            let part = parts.next().filter(digits).ok_or(InvalidMac)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| InvalidMac)?;
        }
        parts.next().is_none().then_some(Mac(mac)).ok_or(InvalidMac)
    }
}

/// Prefix of either family. Host bits may be set; they are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// Any address in the prefix.
    pub addr: IpAddr,
    /// Prefix length: at most 32 for IPv4, 128 for IPv6.
    pub len: u8,
}

impl Prefix {
    /// Prefix of a single address.
    pub const fn host(addr: IpAddr) -> Prefix {
        Prefix { addr, len: bits(addr) }
    }

    /// Checks that the length is valid for the family.
    pub const fn is_valid(&self) -> bool {
        self.len <= bits(self.addr)
    }

    /// Checks whether the prefix contains an address. Never true for the other family.
    pub fn contains(&self, addr: IpAddr) -> bool {
        self.addr.is_ipv4() == addr.is_ipv4() && Range::of(self).contains(Key::of(addr))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

const fn bits(addr: IpAddr) -> u8 {
    match addr {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Address of either family as one number. IPv4 is ::ffff:a.b.c.d, which no IPv6 packet may carry on a link
/// (RFC 4291 2.5.5.2); [`Key::is_mapped`] tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(pub(crate) u128);

const MAPPED: u128 = 0xffff_0000_0000;

impl Key {
    #[inline]
    pub(crate) fn v4(addr: Ipv4Addr) -> Key {
        Key(MAPPED | u128::from(u32::from(addr)))
    }

    #[inline]
    pub(crate) fn v6(addr: Ipv6Addr) -> Key {
        Key(u128::from(addr))
    }

    pub(crate) fn of(addr: IpAddr) -> Key {
        match addr {
            IpAddr::V4(a) => Key::v4(a),
            IpAddr::V6(a) => Key::v6(a),
        }
    }

    #[inline]
    pub(crate) fn is_mapped(self) -> bool {
        self.0 >> 32 == 0xffff
    }

    pub(crate) fn address(self) -> IpAddr {
        match self.is_mapped() {
            true => IpAddr::V4(Ipv4Addr::from(self.0 as u32)),
            false => IpAddr::V6(Ipv6Addr::from(self.0)),
        }
    }
}

/// First and last address of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: u128,
    pub(crate) last: u128,
}

impl Range {
    pub(crate) fn of(prefix: &Prefix) -> Range {
        let shift = if prefix.addr.is_ipv4() { 96 } else { 0 };
        let mask = mask(prefix.len.saturating_add(shift));
        let first = Key::of(prefix.addr).0 & mask;
        Range { first, last: first | !mask }
    }

    #[inline]
    pub(crate) fn contains(self, key: Key) -> bool {
        self.first <= key.0 && key.0 <= self.last
    }
}

/// Mask of the upper `len` bits.
pub(crate) fn mask(len: u8) -> u128 {
    !u128::MAX.checked_shr(u32::from(len)).unwrap_or(0)
}

/// Checks whether a host may use the address on a link: not unspecified, loopback, multicast, broadcast or
/// 0.0.0.0/8 (RFC 1122 3.2.1.3).
pub(crate) fn is_host4(addr: Ipv4Addr) -> bool {
    !matches!(addr.octets(), [0 | 127 | 224..=239, ..] | [255, 255, 255, 255])
}

/// Checks the same for IPv6. Link-local addresses are allowed (RFC 4291 2.5.2, 2.5.3, 2.7).
pub(crate) fn is_host6(addr: Ipv6Addr) -> bool {
    !(addr.is_unspecified() || addr.is_loopback() || addr.is_multicast() || Key::v6(addr).is_mapped())
}

/// Checks for fe80::/10.
pub(crate) fn is_link_local(addr: Ipv6Addr) -> bool {
    u128::from(addr) >> 118 == 0x3fa
}

/// Solicited-node multicast group of a host with this address (RFC 4291 2.7.1).
pub(crate) fn solicited_node(addr: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from(0xff02_0000_0000_0000_0000_0001_ff00_0000_u128 | (u128::from(addr) & 0xff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString as _;

    #[test]
    fn a_mac_round_trips_and_invalid_ones_are_refused() {
        let mac = Mac([2, 0, 0x5e, 0x10, 0xfe, 0xff]);
        assert_eq!(mac.to_string(), "02:00:5e:10:fe:ff");
        assert_eq!(mac.to_string().parse(), Ok(mac));
        for wrong in [
            "",
            "02:00:5e:10:fe",
            "02:00:5e:10:fe:ff:00",
            "2:0:5e:10:fe:ff",
            "02:00:5e:10:fe:fg",
            "+2:00:5e:10:fe:ff",
        ] {
            assert_eq!(wrong.parse::<Mac>(), Err(InvalidMac), "{wrong}");
        }
    }

    #[test]
    fn addresses_derived_from_a_mac_match_the_rfcs() {
        // RFC 2464 4 and 7, RFC 4291 2.7.1.
        let mac = Mac([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
        assert_eq!(mac.link_local(), "fe80::3656:78ff:fe9a:bcde".parse::<Ipv6Addr>().unwrap());
        let group = solicited_node("4037::01:800:200E:8C6C".parse().unwrap());
        assert_eq!(group, "ff02::1:ff0e:8c6c".parse::<Ipv6Addr>().unwrap());
        assert_eq!(Mac::of_group(group), Mac([0x33, 0x33, 0xff, 0x0e, 0x8c, 0x6c]));
    }

    #[test]
    fn a_prefix_contains_its_edges_and_no_address_of_the_other_family() {
        let prefix = |s: &str, len| Prefix { addr: s.parse().unwrap(), len };
        let net = prefix("192.0.2.5", 29);
        let inside = |a: &str| net.contains(a.parse().unwrap());
        assert!(inside("192.0.2.0") && inside("192.0.2.7"));
        assert!(!inside("192.0.2.8") && !inside("192.0.1.255") && !inside("::ffff:192.0.2.5"));
        assert!(prefix("::", 0).contains("2001:db8::1".parse().unwrap()));
        assert!(!prefix("::", 0).contains("192.0.2.1".parse().unwrap()));
        assert!(prefix("0.0.0.0", 0).contains("255.255.255.255".parse().unwrap()));
        assert!(!prefix("0.0.0.0", 33).is_valid() && prefix("::", 128).is_valid());
    }
}
