//! Classes of addresses: RFC 6052 prefixes, RFC 6146 3.4, and addresses that nobody may use.

use super::Model;
use gatun_wire::Prefix64;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Embeds an IPv4 address in a prefix (RFC 6052 2.2), octet by octet.
pub(super) fn embed(prefix: &Prefix64, v4: Ipv4Addr) -> Ipv6Addr {
    let mut octets = prefix.address().octets();
    let mut at = usize::from(prefix.len()) / 8;
    for octet in v4.octets() {
        if at == 8 {
            at += 1; // bits 64 to 71 are zero
        }
        octets[at] = octet;
        at += 1;
    }
    Ipv6Addr::from(octets)
}

/// The IPv4 address embedded in an IPv6 one; the suffix is ignored.
pub(super) fn extract(prefix: &Prefix64, v6: Ipv6Addr) -> Option<Ipv4Addr> {
    if !lies_in(prefix, v6) {
        return None;
    }
    let mut v4 = [0; 4];
    let mut at = usize::from(prefix.len()) / 8;
    for octet in &mut v4 {
        if at == 8 {
            at += 1;
        }
        *octet = v6.octets()[at];
        at += 1;
    }
    Some(Ipv4Addr::from(v4))
}

/// Returns true if an address lies in a translation prefix.
pub(super) fn lies_in(prefix: &Prefix64, v6: Ipv6Addr) -> bool {
    let bytes = usize::from(prefix.len()) / 8;
    prefix.address().octets()[..bytes] == v6.octets()[..bytes]
}

/// RFC 1812 5.3.7, RFC 3927 2.7: addresses that packets neither come from nor go to.
pub(super) fn illegal4(a: Ipv4Addr) -> bool {
    a.octets()[0] == 0 || a.is_loopback() || a.is_link_local() || a.is_multicast() || a.is_broadcast()
}

/// RFC 4291 2.5.2, 2.5.3, 2.5.6, 2.7.
pub(super) fn illegal6(a: Ipv6Addr) -> bool {
    a.is_unspecified() || a.is_loopback() || a.is_unicast_link_local() || a.is_multicast()
}

/// Addresses that the IANA special-purpose registry lists as not globally reachable (RFC 6890), and
/// multicast.
fn non_global(a: Ipv4Addr) -> bool {
    let [first, second, third, last] = a.octets();
    let shared = first == 100 && second & 0xc0 == 64;
    let assignments = (first, second, third) == (192, 0, 0) && !matches!(last, 9 | 10);
    let benchmarks = first == 198 && second & 0xfe == 18;
    a.is_private()
        || illegal4(a)
        || shared
        || assignments
        || benchmarks
        || a.is_documentation()
        || first >= 240
}

/// The IPv4 address of a header.
pub(super) fn v4(a: IpAddr) -> Ipv4Addr {
    match a {
        IpAddr::V4(a) => a,
        IpAddr::V6(_) => unreachable!("an IPv4 header"),
    }
}

/// The IPv6 address of a header.
pub(super) fn v6(a: IpAddr) -> Ipv6Addr {
    match a {
        IpAddr::V6(a) => a,
        IpAddr::V4(_) => unreachable!("an IPv6 header"),
    }
}

impl Model {
    /// Pool of an address, regardless of the port.
    pub(super) fn pool_of(&self, a: Ipv4Addr) -> Option<usize> {
        self.plan.pools.iter().position(|p| p.ranges.iter().any(|r| r.first <= a && a <= r.last))
    }

    /// A52-5: 64:ff9b::/96 does not represent private addresses.
    pub(super) fn is_barred(&self, instance: usize, prefix: usize, a: Ipv4Addr) -> bool {
        !self.wkp_non_global(instance) && self.is_non_global(instance, prefix, a)
    }

    /// Returns true if an instance has 64:ff9b::/96 represent private addresses too.
    pub(super) fn wkp_non_global(&self, instance: usize) -> bool {
        self.plan.nat64.get(instance).is_some_and(|n| n.wkp_non_global)
    }

    /// Returns true if a prefix is 64:ff9b::/96 and an address is private.
    pub(super) fn is_non_global(&self, instance: usize, prefix: usize, a: Ipv4Addr) -> bool {
        let n = self.plan.nat64.get(instance);
        n.is_some_and(|n| n.pool6[prefix] == Prefix64::WELL_KNOWN) && non_global(a)
    }
}
