//! Link, addresses and routes of a device, by netlink.
//!
//! Requests are few and come at start only, so they are sent one by one and each waits for its answer.

use crate::{TunConfig, TunError};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;
use std::net::IpAddr;

/// An address with a prefix length: an interface's address, or a network where its host bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The address.
    pub addr: IpAddr,
    /// The prefix length in bits.
    pub len: u8,
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

/// A netlink socket that speaks about one device.
pub(crate) struct Netlink {
    socket: Socket,
    device: String,
    sequence: u32,
}

impl Netlink {
    pub(crate) fn new(device: &str) -> Result<Self, TunError> {
        let open = || -> io::Result<Socket> {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            Ok(socket)
        };
        let socket = open().map_err(|e| TunError::Ioctl("netlink", device.to_owned(), e))?;
        Ok(Netlink { socket, device: device.to_owned(), sequence: 0 })
    }

    pub(crate) fn rename(&mut self, device: &str) {
        device.clone_into(&mut self.device);
    }

    /// Whether the device exists in this network namespace.
    pub(crate) fn exists(&self) -> bool {
        self.index().is_ok()
    }

    fn index(&self) -> io::Result<u32> {
        Ok(rustix::net::netdevice::name_to_index(&self.socket, &self.device)?)
    }

    /// Sets up what `config` asks for, in an order in which each step can succeed.
    pub(crate) fn configure(&mut self, config: &TunConfig) -> Result<(), TunError> {
        let index = self.index().map_err(|e| self.error("link show".into(), e))?;
        if let Some(mtu) = config.mtu {
            let mut link = link(index);
            link.attributes.push(LinkAttribute::Mtu(mtu));
            self.request(
                RouteNetlinkMessage::SetLink(link),
                format!("link set dev {} mtu {mtu}", self.device),
            )?;
        }
        for &address in &config.addresses {
            let action = format!("address replace {address} dev {}", self.device);
            self.request(RouteNetlinkMessage::NewAddress(address_message(index, address)), action)?;
        }
        if config.up {
            let mut link = link(index);
            link.header.flags = LinkFlags::Up;
            link.header.change_mask = LinkFlags::Up;
            self.request(RouteNetlinkMessage::SetLink(link), format!("link set dev {} up", self.device))?;
        }
        for &route in &config.routes {
            let action = format!("route replace {route} dev {}", self.device);
            self.request(RouteNetlinkMessage::NewRoute(route_message(index, route)), action)?;
        }
        Ok(())
    }

    /// Sends one request and waits for the kernel's answer to it.
    fn request(&mut self, message: RouteNetlinkMessage, action: String) -> Result<(), TunError> {
        self.exchange(message).map_err(|e| self.error(action, e))
    }

    fn exchange(&mut self, message: RouteNetlinkMessage) -> io::Result<()> {
        let set_link = matches!(message, RouteNetlinkMessage::SetLink(_));
        let mut message = NetlinkMessage::from(message);
        self.sequence += 1;
        message.header.sequence_number = self.sequence;
        message.header.flags = NLM_F_REQUEST | NLM_F_ACK;
        if !set_link {
            message.header.flags |= NLM_F_CREATE | NLM_F_REPLACE;
        }
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        loop {
            let (answer, _) = self.socket.recv_from_full()?;
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
            if answer.header.sequence_number != self.sequence {
                continue;
            }
            if let NetlinkPayload::Error(e) = answer.payload {
                return if e.code.is_none() { Ok(()) } else { Err(e.to_io()) };
            }
        }
    }

    fn error(&self, action: String, error: io::Error) -> TunError {
        TunError::Netlink { device: self.device.clone(), action, error }
    }
}

fn family(addr: IpAddr) -> AddressFamily {
    match addr {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn link(index: u32) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link
}

fn address_message(index: u32, address: Prefix) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address.addr);
    message.header.prefix_len = address.len;
    message.header.index = index;
    message.attributes.push(AddressAttribute::Address(address.addr));
    message.attributes.push(AddressAttribute::Local(address.addr));
    if address.addr.is_ipv6() {
        // Nobody else is on a TUN link; without it the address would be tentative for a second.
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    message
}

fn route_message(index: u32, route: Prefix) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(route.addr);
    message.header.destination_prefix_length = route.len;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.kind = RouteType::Unicast;
    message.header.scope = if route.addr.is_ipv4() { RouteScope::Link } else { RouteScope::Universe };
    if route.len > 0 {
        let destination = match route.addr {
            IpAddr::V4(a) => RouteAddress::Inet(a),
            IpAddr::V6(a) => RouteAddress::Inet6(a),
        };
        message.attributes.push(RouteAttribute::Destination(destination));
    }
    message.attributes.push(RouteAttribute::Oif(index));
    message
}
