//! Queries of the kernel's links, addresses and routes. Nothing is changed.

use crate::client::Client;
use crate::prefix::{Prefix, route_family};
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use rustix::io::Errno;
use std::io;
use std::net::IpAddr;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Number.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// True if it is set up.
    pub is_up: bool,
    /// True if it is up and has a carrier: the cable is plugged in, or the other end is up.
    pub is_running: bool,
    /// True if it is an Ethernet interface.
    pub is_ethernet: bool,
    /// Ethernet address; `None` if it has none of six bytes.
    pub mac: Option<[u8; 6]>,
    /// True if it is not hardware but software of the kernel: a veth, a bridge, a VLAN.
    pub is_software: bool,
    /// True if it is a TUN device, or a TAP one, which is of the same kind.
    pub is_tun: bool,
    /// Alias.
    pub alias: Option<String>,
}

/// Result of a route lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteResult {
    /// Through the interface with this number.
    By(u32),
    /// The address is local: packets go to a socket of this host.
    Host,
    /// No route, or one that refuses.
    Nowhere,
}

impl From<LinkMessage> for Link {
    fn from(message: LinkMessage) -> Link {
        let mut link = Link {
            index: message.header.index,
            name: String::new(),
            mtu: 0,
            is_up: message.header.flags.contains(LinkFlags::Up),
            is_running: message.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
            is_ethernet: message.header.link_layer_type == LinkLayerType::Ether,
            mac: None,
            is_software: false,
            is_tun: false,
            alias: None,
        };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                LinkAttribute::IfAlias(alias) => link.alias = Some(alias),
                LinkAttribute::Address(bytes) => link.mac = bytes.try_into().ok(),
                LinkAttribute::LinkInfo(infos) => {
                    link.is_software = infos.iter().any(|info| matches!(info, LinkInfo::Kind(_)));
                    link.is_tun = infos.iter().any(|info| matches!(info, LinkInfo::Kind(InfoKind::Tun)));
                }
                _ => {}
            }
        }
        link
    }
}

/// Returns the interfaces of this network namespace.
///
/// # Errors
/// Returns an error if the kernel does not answer.
pub fn links() -> io::Result<Vec<Link>> {
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let answers = Client::open()?.ask(request, NLM_F_DUMP)?;
    Ok(answers.into_iter().filter_map(link_of).collect())
}

/// Returns the interface with this name, if it exists.
///
/// # Errors
/// Returns an error if the kernel does not answer.
pub fn link(name: &str) -> io::Result<Option<Link>> {
    let mut request = LinkMessage::default();
    request.attributes.push(LinkAttribute::IfName(name.to_owned()));
    match Client::open()?.ask(RouteNetlinkMessage::GetLink(request), 0) {
        Err(e) if Errno::from_io_error(&e) == Some(Errno::NODEV) => Ok(None),
        answers => Ok(answers?.into_iter().find_map(link_of)),
    }
}

pub(crate) fn link_of(answer: RouteNetlinkMessage) -> Option<Link> {
    match answer {
        RouteNetlinkMessage::NewLink(link) => Some(Link::from(link)),
        _ => None,
    }
}

/// Looks up the route of a packet from this host to an address, by all of the kernel's rules.
///
/// # Errors
/// Returns an error if the kernel does not answer.
pub fn way_to(address: IpAddr) -> io::Result<RouteResult> {
    way(address, Vec::new())
}

/// Looks up the route of a packet that another host sends through an interface.
///
/// # Errors
/// Returns an error if the kernel does not answer, or would not accept such a packet.
pub fn way_of_forwarded(from: IpAddr, by: u32, to: IpAddr) -> io::Result<RouteResult> {
    way(to, vec![RouteAttribute::Source(from.into()), RouteAttribute::Iif(by)])
}

fn way(to: IpAddr, conditions: Vec<RouteAttribute>) -> io::Result<RouteResult> {
    let mut route = RouteMessage::default();
    let len = if to.is_ipv4() { 32 } else { 128 };
    route.header.address_family = route_family(to);
    route.header.destination_prefix_length = len;
    if !conditions.is_empty() {
        route.header.source_prefix_length = len;
    }
    route.attributes.push(RouteAttribute::Destination(to.into()));
    route.attributes.extend(conditions);
    match Client::open()?.ask(RouteNetlinkMessage::GetRoute(route), 0) {
        Err(e)
            if matches!(
                Errno::from_io_error(&e),
                Some(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS | Errno::INVAL)
            ) =>
        {
            Ok(RouteResult::Nowhere)
        }
        answers => Ok(answers?.into_iter().find_map(way_of).unwrap_or(RouteResult::Nowhere)),
    }
}

fn way_of(answer: RouteNetlinkMessage) -> Option<RouteResult> {
    let RouteNetlinkMessage::NewRoute(route) = answer else { return None };
    let by = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    });
    Some(match (route.header.kind, by) {
        (RouteType::Local | RouteType::Anycast, _) => RouteResult::Host,
        (RouteType::Unicast, Some(index)) => RouteResult::By(index),
        _ => RouteResult::Nowhere,
    })
}

/// Returns the addresses of all interfaces in this network namespace.
///
/// # Errors
/// Returns an error if the kernel does not answer.
pub fn addresses() -> io::Result<Vec<IpAddr>> {
    Ok(interface_addresses()?.into_iter().map(|(_, prefix)| prefix.addr).collect())
}

/// Returns the same addresses with their prefix lengths, each after the number of its interface.
///
/// # Errors
/// Returns an error if the kernel does not answer.
pub fn interface_addresses() -> io::Result<Vec<(u32, Prefix)>> {
    let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let answers = Client::open()?.ask(request, NLM_F_DUMP)?;
    Ok(answers.into_iter().filter_map(address_of).collect())
}

/// Returns an address and the number of its interface.
pub(crate) fn address_of(answer: RouteNetlinkMessage) -> Option<(u32, Prefix)> {
    let RouteNetlinkMessage::NewAddress(message) = answer else { return None };
    // On a point-to-point link, `Address` is the other end's.
    let found = message.attributes.iter().fold([None; 2], |[local, other], a| match a {
        AddressAttribute::Local(addr) => [Some(*addr), other],
        AddressAttribute::Address(addr) => [local, Some(*addr)],
        _ => [local, other],
    });
    let addr = found[0].or(found[1])?;
    Some((message.header.index, Prefix { addr, len: message.header.prefix_len }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_exists_and_its_address_is_local() {
        let links = links().unwrap();
        let lo = links.iter().find(|link| link.name == "lo").unwrap();
        assert!(lo.mtu > 0 && lo.index == 1, "{lo:?}");
        assert_eq!(link("lo").unwrap().as_ref(), Some(lo));
        assert_eq!(link("no-such-link").unwrap(), None);
        assert!(addresses().unwrap().contains(&"127.0.0.1".parse().unwrap()));
        let loopback = Prefix { addr: "127.0.0.1".parse().unwrap(), len: 8 };
        assert!(interface_addresses().unwrap().contains(&(1, loopback)));
        assert_eq!(way_to("127.0.0.1".parse().unwrap()).unwrap(), RouteResult::Host);
    }
}
