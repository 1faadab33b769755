//! Reads of the kernel's links, addresses and routes; nothing is changed.

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
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Bytes of an IP packet.
    pub mtu: u32,
    /// Whether it is set up.
    pub is_up: bool,
    /// Whether it is an Ethernet.
    pub is_ethernet: bool,
    /// Its Ethernet address; none where it has none of six bytes.
    pub mac: Option<[u8; 6]>,
    /// Whether it is no device but software of the kernel: a veth, a bridge, a VLAN.
    pub is_software: bool,
    /// Whether it is a TUN device (or a TAP one, which is of the same kind).
    pub is_tun: bool,
    /// A text that somebody has given it.
    pub alias: Option<String>,
}

/// Result of a route lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteResult {
    /// By the interface of this number.
    By(u32),
    /// To a socket of this host: the address is its own.
    Host,
    /// Nowhere: no route, or one that refuses.
    Nowhere,
}

impl From<LinkMessage> for Link {
    fn from(message: LinkMessage) -> Link {
        let mut link = Link {
            index: message.header.index,
            name: String::new(),
            mtu: 0,
            is_up: message.header.flags.contains(LinkFlags::Up),
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

/// The interfaces of this network namespace.
///
/// # Errors
/// If the kernel does not answer.
pub fn links() -> io::Result<Vec<Link>> {
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let answers = Client::open()?.ask(request, NLM_F_DUMP)?;
    Ok(answers.into_iter().filter_map(link_of).collect())
}

/// The interface of a name; none where there is none.
///
/// # Errors
/// If the kernel does not answer.
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

/// The way that a packet from this host to an address would take, by all of the kernel's rules.
///
/// # Errors
/// If the kernel does not answer.
pub fn way_to(address: IpAddr) -> io::Result<RouteResult> {
    way(address, Vec::new())
}

/// The way of a packet that comes from another host by an interface.
///
/// # Errors
/// If the kernel does not answer, or would not let such a packet in.
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

/// The addresses that the kernel has in this network namespace, on whatever interface.
///
/// # Errors
/// If the kernel does not answer.
pub fn addresses() -> io::Result<Vec<IpAddr>> {
    Ok(interface_addresses()?.into_iter().map(|(_, prefix)| prefix.addr).collect())
}

/// The same, each with its prefix length, behind the number of its interface.
///
/// # Errors
/// If the kernel does not answer.
pub fn interface_addresses() -> io::Result<Vec<(u32, Prefix)>> {
    let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let answers = Client::open()?.ask(request, NLM_F_DUMP)?;
    Ok(answers.into_iter().filter_map(address_of).collect())
}

/// An address, and the number of its interface.
pub(crate) fn address_of(answer: RouteNetlinkMessage) -> Option<(u32, Prefix)> {
    let RouteNetlinkMessage::NewAddress(message) = answer else { return None };
    // Of a link with two ends, `Address` is the other one's.
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
    fn the_loopback_interface_is_there_and_its_address_is_the_hosts_own() {
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
