//! What the kernel knows of links and routes, asked by netlink; nothing is changed.

use crate::netlink::parse;
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
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
}

/// Where the kernel would send a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By the interface of this number.
    By(u32),
    /// To a socket of this host: the address is its own.
    Host,
    /// Nowhere: no route, or one that refuses.
    Nowhere,
}

/// The interfaces of this network namespace.
///
/// # Errors
/// Where the kernel does not answer.
pub fn links() -> io::Result<Vec<Link>> {
    let mut found = Vec::new();
    exchange(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP, |message| {
        if let RouteNetlinkMessage::NewLink(link) = message {
            let mut one = Link {
                index: link.header.index,
                name: String::new(),
                mtu: 0,
                is_up: link.header.flags.contains(LinkFlags::Up),
            };
            for attribute in link.attributes {
                match attribute {
                    LinkAttribute::IfName(name) => one.name = name,
                    LinkAttribute::Mtu(mtu) => one.mtu = mtu,
                    _ => {}
                }
            }
            found.push(one);
        }
    })?;
    Ok(found)
}

/// The way that a packet from this host to an address would take, by all of the kernel's rules.
///
/// # Errors
/// Where the kernel does not answer.
pub fn way_to(address: IpAddr) -> io::Result<Way> {
    let mut route = RouteMessage::default();
    let (family, len, destination) = match address {
        IpAddr::V4(a) => (AddressFamily::Inet, 32, RouteAddress::Inet(a)),
        IpAddr::V6(a) => (AddressFamily::Inet6, 128, RouteAddress::Inet6(a)),
    };
    route.header.address_family = family;
    route.header.destination_prefix_length = len;
    route.attributes.push(RouteAttribute::Destination(destination));
    let mut way = Way::Nowhere;
    let asked = exchange(RouteNetlinkMessage::GetRoute(route), 0, |message| {
        if let RouteNetlinkMessage::NewRoute(route) = message {
            let by = route.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::Oif(index) => Some(*index),
                _ => None,
            });
            way = match (route.header.kind, by) {
                (RouteType::Local | RouteType::Anycast, _) => Way::Host,
                (RouteType::Unicast, Some(index)) => Way::By(index),
                _ => Way::Nowhere,
            };
        }
    });
    match asked {
        Err(e)
            if matches!(
                Errno::from_io_error(&e),
                Some(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS | Errno::INVAL)
            ) =>
        {
            Ok(Way::Nowhere)
        }
        other => other.map(|()| way),
    }
}

/// Sends one question, and gives all answers.
fn exchange(
    message: RouteNetlinkMessage,
    flags: u16,
    mut each: impl FnMut(RouteNetlinkMessage),
) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut message = NetlinkMessage::from(message);
    (message.header.sequence_number, message.header.flags) = (1, NLM_F_REQUEST | flags);
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    loop {
        let (answer, _) = socket.recv_from_full()?;
        let mut rest = &answer[..];
        while !rest.is_empty() {
            let one = parse(rest)?;
            let len = (one.header.length as usize).next_multiple_of(4).clamp(16, rest.len().max(16));
            rest = rest.get(len..).unwrap_or_default();
            match one.payload {
                NetlinkPayload::InnerMessage(message) => {
                    each(message);
                    if flags & NLM_F_DUMP == 0 {
                        return Ok(());
                    }
                }
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(e) => return if e.code.is_some() { Err(e.to_io()) } else { Ok(()) },
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_there_and_its_address_is_the_hosts_own() {
        let links = links().unwrap();
        let lo = links.iter().find(|link| link.name == "lo").unwrap();
        assert!(lo.mtu > 0 && lo.index == 1, "{lo:?}");
        assert_eq!(way_to("127.0.0.1".parse().unwrap()).unwrap(), Way::Host);
    }
}
