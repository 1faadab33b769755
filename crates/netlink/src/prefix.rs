//! Addresses with a prefix length.

use netlink_packet_route::AddressFamily;
use std::fmt;
use std::net::IpAddr;

/// An address with a prefix length: an interface's address, or a network if its host bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    /// The address.
    pub addr: IpAddr,
    /// The prefix length in bits.
    pub len: u8,
}

impl Prefix {
    /// Returns true if this network contains the other one.
    pub fn contains(self, other: Prefix) -> bool {
        let differ = match (self.addr, other.addr) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                (u32::from(a) ^ u32::from(b)).checked_shr(u32::from(32 - self.len)).unwrap_or(0) != 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                (u128::from(a) ^ u128::from(b)).checked_shr(u32::from(128 - self.len)).unwrap_or(0) != 0
            }
            _ => true,
        };
        self.len <= other.len && !differ
    }

    /// Returns both halves of a network, or `None` for a single address.
    pub fn halves(self) -> Option<[Prefix; 2]> {
        let (len, at) = (self.len + 1, self.len.into());
        let upper = match self.addr {
            IpAddr::V4(addr) => IpAddr::V4((u32::from(addr) | (1_u32 << 31).checked_shr(at)?).into()),
            IpAddr::V6(addr) => IpAddr::V6((u128::from(addr) | (1_u128 << 127).checked_shr(at)?).into()),
        };
        Some([Prefix { len, ..self }, Prefix { addr: upper, len }])
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

/// Address family of an address.
pub(crate) fn route_family(addr: IpAddr) -> AddressFamily {
    match addr {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        let (addr, len) = text.split_once('/').unwrap();
        Prefix { addr: addr.parse().unwrap(), len: len.parse().unwrap() }
    }

    #[test]
    fn a_network_contains_its_halves() {
        for text in ["0.0.0.0/0", "192.0.2.0/31", "::/0", "2001:db8::/127"] {
            let whole = prefix(text);
            let halves = whole.halves().unwrap();
            assert!(halves.iter().all(|half| whole.contains(*half) && !half.contains(whole)), "{halves:?}");
            assert!(!halves[0].contains(halves[1]) && !halves[1].contains(halves[0]), "{halves:?}");
        }
        assert_eq!(prefix("192.0.2.0/24").halves(), Some([prefix("192.0.2.0/25"), prefix("192.0.2.128/25")]));
        assert_eq!(prefix("192.0.2.1/32").halves(), None);
        assert!(!prefix("0.0.0.0/0").contains(prefix("::/0")));
    }
}
