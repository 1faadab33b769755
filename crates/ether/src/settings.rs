//! What an [`Ether`](crate::Ether) is built from.

use crate::{Mac, Prefix};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

/// The ports, and what is the engine's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The ports; one alone is one-armed operation.
    pub ports: Vec<Port>,
    /// Addresses that the engine answers for itself: its own ones, pools, prefixes. What is sent to them goes to the
    /// engine, pings included, even where a port has the same address.
    pub engine: Vec<Prefix>,
    /// Whether this one announces the ports' addresses, defends them and reports multicast groups. Of several
    /// workers at the same ports, one does.
    pub speaks: bool,
    /// Whether news of neighbours is kept for other workers ([`Ether::heard`](crate::Ether::heard)).
    pub shares: bool,
}

/// A device, or what goes by some VLAN tags on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// For operators.
    pub name: String,
    /// The backend's number of the device. Several ports on one device differ by their tags.
    pub device: u8,
    /// The device's address.
    pub mac: Mac,
    /// Tags of its frames, outermost first; at most two.
    pub tags: Vec<Tag>,
    /// The largest IP packet of the link, bytes: at least 68 (RFC 791), with IPv6 1280.
    pub mtu: u32,
    /// This host's addresses on the link, with the length of the link's prefix. A link-local IPv6 address is made
    /// from the MAC where none is given.
    pub addresses: Vec<Prefix>,
    /// What else ARP and neighbour discovery answer for: pool addresses, prefixes. Not for neighbours.
    pub answers: Vec<Prefix>,
    /// Where to send what is not on the link.
    pub routes: Vec<Route>,
    /// Neighbours whose MAC is known beforehand, and is neither asked for nor changed by what anybody says.
    pub neighbours: Vec<Neighbour>,
    /// The realms of its IPv4 and its IPv6 packets ([`gatun_wire::Packet::realm`]): its addresses and routes are for
    /// these alone. Ports of different realms may have the same ones.
    pub realms: [u8; 2],
}

impl Port {
    /// The realm of packets to or from an address.
    pub(crate) fn realm_of(&self, address: IpAddr) -> u8 {
        let [four, six] = self.realms;
        if address.is_ipv4() { four } else { six }
    }
}

/// A VLAN tag (IEEE 802.1Q 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Ethernet type that says that this is a tag: [`Tag::CUSTOMER`] or [`Tag::SERVICE`].
    pub kind: u16,
    /// VLAN, 1 to 4094.
    pub vlan: u16,
}

impl Tag {
    /// 802.1Q.
    pub const CUSTOMER: u16 = 0x8100;
    /// 802.1ad, the outer tag of QinQ.
    pub const SERVICE: u16 = 0x88a8;

    /// An 802.1Q tag.
    pub const fn customer(vlan: u16) -> Tag {
        Tag { kind: Tag::CUSTOMER, vlan }
    }

    /// An 802.1ad tag.
    pub const fn service(vlan: u16) -> Tag {
        Tag { kind: Tag::SERVICE, vlan }
    }
}

/// A static route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destinations.
    pub to: Prefix,
    /// The router, on the port's link; `None`: the destinations are on the link themselves.
    pub via: Option<IpAddr>,
}

/// A neighbour that is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its address.
    pub addr: IpAddr,
    /// Where frames for it go.
    pub mac: Mac,
}

/// How much may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Neighbours, next hops included.
    pub neighbours_max: u32,
    /// Neighbours that are being asked for, and have not answered.
    pub unresolved_max: u32,
    /// Packets that wait for neighbours, in all.
    pub waiting_max: u16,
    /// Packets that wait for one neighbour.
    pub waiting_per_neighbour_max: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { neighbours_max: 4096, unresolved_max: 256, waiting_max: 256, waiting_per_neighbour_max: 16 }
    }
}

/// Something in the settings that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The port's name; empty where it concerns all.
    pub port: String,
    /// What it is.
    pub what: String,
    /// What to write instead.
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
