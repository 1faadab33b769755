//! Special addresses: illegal ones (martians), and those that the well-known prefix must not represent.

use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::Prefix64;

/// Returns whether an IPv4 address is illegal as a source: 0/8, 127/8, 169.254/16, 224/4 and the limited
/// broadcast (RFC 1812 5.3.7, RFC 3927 2.7). RFC 7915 4.1 requires that such packets are dropped silently,
/// but not ICMP errors with such an outer source.
///
/// The rest of 240/4 is reserved, not illegal: hosts in the field use it as unicast.
#[inline(always)]
pub fn illegal_source4(a: Ipv4Addr) -> bool {
    FirstOctets::ILLEGAL.contain(a) && illegal_among_suspect4(a)
}

/// Set of the first octets of IPv4 addresses, one bit each. One look-up excludes most addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstOctets([u64; 4]);

impl FirstOctets {
    /// First octets of illegal addresses.
    pub(crate) const ILLEGAL: FirstOctets =
        FirstOctets([1, 1 << (127 - 64), 1 << (169 - 128), 0xffff << (224 - 192) | 1 << (255 - 192)]);

    /// Adds the first octet of an address.
    pub(crate) fn add(&mut self, a: Ipv4Addr) {
        let first = a.octets()[0];
        if let Some(bits) = self.0.get_mut(usize::from(first / 64)) {
            *bits |= 1 << (first % 64);
        }
    }

    #[inline(always)]
    pub(crate) fn contain(&self, a: Ipv4Addr) -> bool {
        let first = u32::from(a) >> 24;
        self.0.get(first as usize / 64).is_some_and(|bits| bits >> (first % 64) & 1 == 1)
    }
}

#[cold]
fn illegal_among_suspect4(a: Ipv4Addr) -> bool {
    let [first, second, ..] = a.octets();
    matches!(first, 0 | 127 | 224..=239) || (first == 169 && second == 254) || a == Ipv4Addr::BROADCAST
}

/// Returns whether an IPv4 address is illegal as a destination. The set is the same, because translation is
/// for unicast (RFC 7915 1.2).
#[inline(always)]
pub fn illegal_destination4(a: Ipv4Addr) -> bool {
    illegal_source4(a)
}

/// Returns whether an IPv6 address is illegal as a source: `::`, `::1`, fe80::/10, ff00::/8 (RFC 4291 2.5.2,
/// 2.5.3, 2.5.6, 2.7).
#[inline(always)]
pub fn illegal_source6(a: Ipv6Addr) -> bool {
    let bits = u128::from(a);
    // The cases are fe80::/10, everything after fec0::/10, and ::/127.
    match (bits >> 118) as u32 {
        0 => bits <= 1,
        first => first == 0x3fa || first >= 0x3fc,
    }
}

/// Returns whether an IPv6 address is illegal as a destination. The set is the same.
#[inline(always)]
pub fn illegal_destination6(a: Ipv6Addr) -> bool {
    illegal_source6(a)
}

/// Networks that the IANA IPv4 Special-Purpose Address Registry (RFC 6890 and its updates) lists as not
/// globally reachable, and multicast. Each entry has the first address and the prefix length.
pub const NON_GLOBAL: [([u8; 4], u8); 14] = [
    ([0, 0, 0, 0], 8),       // "this network"
    ([10, 0, 0, 0], 8),      // private use, RFC 1918
    ([100, 64, 0, 0], 10),   // shared address space, RFC 6598
    ([127, 0, 0, 0], 8),     // loopback
    ([169, 254, 0, 0], 16),  // link local, RFC 3927
    ([172, 16, 0, 0], 12),   // private use, RFC 1918
    ([192, 0, 0, 0], 24),    // IETF protocol assignments, but for GLOBAL_WITHIN
    ([192, 0, 2, 0], 24),    // documentation, RFC 5737
    ([192, 168, 0, 0], 16),  // private use, RFC 1918
    ([198, 18, 0, 0], 15),   // benchmarking, RFC 2544
    ([198, 51, 100, 0], 24), // documentation
    ([203, 0, 113, 0], 24),  // documentation
    ([224, 0, 0, 0], 4),     // multicast
    ([240, 0, 0, 0], 4),     // reserved, and the limited broadcast
];

/// Globally reachable addresses within 192.0.0.0/24: port control and TURN anycast (RFC 7723, RFC 8155).
const GLOBAL_WITHIN: [[u8; 4]; 2] = [[192, 0, 0, 9], [192, 0, 0, 10]];

/// Returns whether an IPv4 address is not globally reachable. 64:ff9b::/96 must not represent it (RFC 6052
/// 3.1); any other prefix may.
pub fn non_global4(a: Ipv4Addr) -> bool {
    let listed = NON_GLOBAL.iter().any(|&(net, len)| {
        let diff = u32::from(a) ^ u32::from_be_bytes(net);
        diff >> (32 - u32::from(len)) == 0
    });
    listed && !GLOBAL_WITHIN.contains(&a.octets())
}

/// Returns whether a prefix must not represent an IPv4 address: the rule of the well-known prefix (RFC 6052
/// 3.1).
#[inline]
pub fn well_known_non_global(prefix: &Prefix64, a: Ipv4Addr) -> bool {
    *prefix == Prefix64::WELL_KNOWN && non_global4(a)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(s: &str) -> Ipv4Addr {
        s.parse().unwrap()
    }

    // proves: A79-8
    #[test]
    fn illegal_ipv4_addresses_end_exactly_where_their_networks_do() {
        for a in ["0.0.0.0", "0.255.255.255", "127.0.0.0", "127.255.255.255", "169.254.0.0"] {
            assert!(illegal_source4(v4(a)) && illegal_destination4(v4(a)), "{a}");
        }
        for a in ["169.254.255.255", "224.0.0.0", "239.255.255.255", "255.255.255.255"] {
            assert!(illegal_source4(v4(a)) && illegal_destination4(v4(a)), "{a}");
        }
        for a in ["1.0.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0"] {
            assert!(!illegal_source4(v4(a)), "{a}");
        }
        for a in ["223.255.255.255", "240.0.0.0", "255.255.255.254", "10.0.0.1"] {
            assert!(!illegal_source4(v4(a)), "{a}");
        }
    }

    #[test]
    fn illegal_ipv6_addresses_end_exactly_where_their_networks_do() {
        for a in ["::", "::1", "fe80::", "febf:ffff::1", "ff00::", "ff02::1", "ffff::"] {
            let a: Ipv6Addr = a.parse().unwrap();
            assert!(illegal_source6(a) && illegal_destination6(a), "{a}");
        }
        for a in ["::2", "2001:db8::1", "fe7f:ffff::", "fec0::1", "feff::", "64:ff9b::1"] {
            let a: Ipv6Addr = a.parse().unwrap();
            assert!(!illegal_source6(a) && !illegal_destination6(a), "{a}");
        }
    }

    // proves: A52-5
    #[test]
    fn the_registry_of_non_global_addresses_holds_at_its_edges() {
        let edges = [
            ("0.0.0.0", "0.255.255.255"),
            ("10.0.0.0", "10.255.255.255"),
            ("100.64.0.0", "100.127.255.255"),
            ("127.0.0.0", "127.255.255.255"),
            ("169.254.0.0", "169.254.255.255"),
            ("172.16.0.0", "172.31.255.255"),
            ("192.0.0.0", "192.0.0.8"),
            ("192.0.0.11", "192.0.0.255"),
            ("192.0.2.0", "192.0.2.255"),
            ("192.168.0.0", "192.168.255.255"),
            ("198.18.0.0", "198.19.255.255"),
            ("198.51.100.0", "198.51.100.255"),
            ("203.0.113.0", "203.0.113.255"),
            ("224.0.0.0", "255.255.255.255"),
        ];
        for (first, last) in edges {
            let (first, last) = (u32::from(v4(first)), u32::from(v4(last)));
            assert!(non_global4(first.into()) && non_global4(last.into()));
            let below = first.checked_sub(1).map(Ipv4Addr::from);
            let above = last.checked_add(1).map(Ipv4Addr::from);
            for outside in [below, above].into_iter().flatten() {
                assert!(!non_global4(outside), "{outside}");
            }
        }
        for global in ["192.0.0.9", "192.0.0.10", "8.8.8.8", "192.88.99.1", "192.31.196.1"] {
            assert!(!non_global4(v4(global)), "{global}");
        }
    }

    // proves: A52-5, A52-6
    #[test]
    fn only_the_well_known_prefix_is_barred_from_private_addresses() {
        let local = Prefix64::new("64:ff9b:1::".parse().unwrap(), 48).unwrap();
        let specific = Prefix64::new("2001:db8:1::".parse().unwrap(), 96).unwrap();
        assert!(well_known_non_global(&Prefix64::WELL_KNOWN, v4("192.168.1.1")));
        assert!(!well_known_non_global(&Prefix64::WELL_KNOWN, v4("8.8.8.8")));
        assert!(!well_known_non_global(&local, v4("192.168.1.1")));
        assert!(!well_known_non_global(&specific, v4("192.168.1.1")));
    }
}
