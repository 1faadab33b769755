//! Settings of an [`Ether`](crate::Ether).

use crate::{Mac, Prefix};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

/// Ports and engine addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Ports. A single port is one-armed operation.
    pub ports: Vec<PortSettings>,
    /// Addresses that the engine answers for itself: its own addresses, pools, prefixes. Packets to them go
    /// to the engine, including pings, even if a port has the same address.
    pub engine: Vec<Prefix>,
    /// Announces the ports' addresses, defends them and reports multicast groups. One of several workers at
    /// the same ports does this.
    pub announces: bool,
    /// Records neighbour updates for other workers ([`Ether::next_update`](crate::Ether::next_update)).
    pub shares: bool,
}

/// Settings of one port: a device, or a VLAN on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSettings {
    /// Name for operators.
    pub name: String,
    /// Number of the device in the backend. Several ports on one device differ by their tags.
    pub device: u8,
    /// MAC address of the device.
    pub mac: Mac,
    /// VLAN tags of its frames, outermost first; at most two.
    pub tags: Vec<Tag>,
    /// Largest IP packet of the link, bytes: at least 68 (RFC 791), with IPv6 1280.
    pub mtu: u32,
    /// Addresses of this host on the link, with the prefix length of the link. If there is no link-local
    /// IPv6 address, one is made from the MAC.
    pub addresses: Vec<Prefix>,
    /// More addresses that ARP and neighbour discovery answer for: pool addresses, prefixes. Must not
    /// contain neighbours.
    pub answers: Vec<Prefix>,
    /// Routes to destinations that are not on the link.
    pub routes: Vec<Route>,
    /// Neighbours with a configured MAC, which is neither resolved nor changed by messages.
    pub neighbours: Vec<StaticNeighbour>,
    /// Realms of its IPv4 and its IPv6 packets ([`gatun_wire::Packet::realm`]). The port's addresses and
    /// routes belong to these realms only. Ports of different realms may have the same addresses.
    pub realms: [u8; 2],
}

impl PortSettings {
    /// Realm of packets to or from an address.
    pub(crate) fn realm_of(&self, address: IpAddr) -> u8 {
        let [four, six] = self.realms;
        if address.is_ipv4() { four } else { six }
    }
}

/// VLAN tag (IEEE 802.1Q 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Ethertype of the tag: [`Tag::CUSTOMER`] or [`Tag::SERVICE`].
    pub kind: u16,
    /// VLAN, 1 to 4094.
    pub vlan: u16,
}

impl Tag {
    /// 802.1Q.
    pub const CUSTOMER: u16 = 0x8100;
    /// 802.1ad, the outer tag of QinQ.
    pub const SERVICE: u16 = 0x88a8;

    /// Creates an 802.1Q tag.
    pub const fn customer(vlan: u16) -> Tag {
        Tag { kind: Tag::CUSTOMER, vlan }
    }

    /// Creates an 802.1ad tag.
    pub const fn service(vlan: u16) -> Tag {
        Tag { kind: Tag::SERVICE, vlan }
    }
}

/// Static route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination prefix.
    pub to: Prefix,
    /// Router on the port's link. `None` if the destinations are on the link themselves.
    pub via: Option<IpAddr>,
}

/// Neighbour with a configured MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticNeighbour {
    /// IP address.
    pub addr: IpAddr,
    /// MAC address for its frames.
    pub mac: Mac,
}

/// Sizes of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Neighbours, including next hops.
    pub neighbours_max: u32,
    /// Neighbours that are being resolved.
    pub unresolved_max: u32,
    /// Packets waiting for neighbours, in total.
    pub waiting_max: u16,
    /// Packets waiting for one neighbour.
    pub waiting_per_neighbour_max: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { neighbours_max: 4096, unresolved_max: 256, waiting_max: 256, waiting_per_neighbour_max: 16 }
    }
}

/// Invalid setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Name of the port; empty if the problem concerns all ports.
    pub port: String,
    /// Description of the problem.
    pub what: String,
    /// Correction: what to write instead.
    pub fix: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.port.is_empty() {
            write!(f, "port \"{}\": ", self.port)?;
        }
        write!(f, "{}: {}", self.what, self.fix)
    }
}

impl core::error::Error for Problem {}
