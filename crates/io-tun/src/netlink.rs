//! Link, addresses and routes of a device, by netlink.
//!
//! Requests come at start, and when a link comes back. Each waits for its answer, but routes, of which there
//! may be a million, go in batches: the kernel answers the last of a batch, and any that fails.

use crate::{TunConfig, TunError};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::io::Errno;
use std::io;
use std::net::IpAddr;

/// An address with a prefix length: an interface's address, or a network where its host bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// What one datagram to the kernel carries, some 15 KB.
const ROUTES_PER_BATCH: usize = 256;

/// What to do where a route of the same network exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// Take its place.
    Replace,
    /// Leave it: whoever set it meant it.
    Keep,
}

/// Answers to a batch of requests.
#[derive(Debug, Default)]
struct Answers {
    /// The first that failed, and its sequence number.
    failed: Option<(io::Error, u32)>,
    /// Requests whose object existed.
    existed: usize,
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

    pub(crate) fn index(&self) -> io::Result<u32> {
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
        self.add_addresses(index, &config.addresses)?;
        if config.up {
            let mut link = link(index);
            link.header.flags = LinkFlags::Up;
            link.header.change_mask = LinkFlags::Up;
            self.request(RouteNetlinkMessage::SetLink(link), format!("link set dev {} up", self.device))?;
        }
        self.add_routes(index, &config.routes, Existing::Replace).map(drop)
    }

    pub(crate) fn add_addresses(&mut self, index: u32, addresses: &[Prefix]) -> Result<(), TunError> {
        for &address in addresses {
            let action = format!("address replace {address} dev {}", self.device);
            self.request(RouteNetlinkMessage::NewAddress(address_message(index, address)), action)?;
        }
        Ok(())
    }

    /// Takes addresses from the device; those that it has not are no error.
    pub(crate) fn remove_addresses(&mut self, index: u32, addresses: &[Prefix]) -> Result<(), TunError> {
        for &address in addresses {
            let action = format!("address del {address} dev {}", self.device);
            let message = RouteNetlinkMessage::DelAddress(address_message(index, address));
            self.remove(message, action)?;
        }
        Ok(())
    }

    /// Takes the device's routes away; those that are gone already are no error.
    pub(crate) fn remove_routes(&mut self, index: u32, routes: &[Prefix]) -> Result<(), TunError> {
        for &route in routes {
            let action = format!("route del {route} dev {}", self.device);
            self.remove(RouteNetlinkMessage::DelRoute(route_message(index, route)), action)?;
        }
        Ok(())
    }

    fn remove(&mut self, message: RouteNetlinkMessage, action: String) -> Result<(), TunError> {
        match self.exchange(message) {
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::SRCH | Errno::ADDRNOTAVAIL)) => Ok(()),
            other => other.map_err(|e| self.error(action, e)),
        }
    }

    /// Adds routes to the device; returns how many existed and were left alone.
    pub(crate) fn add_routes(
        &mut self,
        index: u32,
        routes: &[Prefix],
        existing: Existing,
    ) -> Result<usize, TunError> {
        let mut existed = 0;
        for batch in routes.chunks(ROUTES_PER_BATCH) {
            existed += self.add_batch(index, batch, existing)?;
        }
        Ok(existed)
    }

    fn add_batch(&mut self, index: u32, routes: &[Prefix], existing: Existing) -> Result<usize, TunError> {
        let first = self.sequence + 1;
        let how = match existing {
            Existing::Replace => NLM_F_REPLACE,
            Existing::Keep => NLM_F_EXCL,
        };
        let mut batch = Vec::new();
        for (i, &route) in routes.iter().enumerate() {
            let answer = if i + 1 == routes.len() { NLM_F_ACK } else { 0 };
            let flags = NLM_F_REQUEST | NLM_F_CREATE | how | answer;
            self.append(&mut batch, RouteNetlinkMessage::NewRoute(route_message(index, route)), flags);
        }
        let sent = self.socket.send(&batch, 0).map_err(|e| (e, first));
        let answers = sent.and_then(|_| self.answers(first));
        let done = answers.and_then(|answers| answers.failed.map_or(Ok(answers.existed), Err));
        done.map_err(|(e, sequence)| {
            let route = routes.get((sequence - first) as usize).or(routes.last());
            let route = route.map_or(String::new(), Prefix::to_string);
            self.error(format!("route replace {route} dev {}", self.device), e)
        })
    }

    /// Whether the link is set up.
    pub(crate) fn is_up(&mut self, index: u32) -> io::Result<bool> {
        let mut bytes = Vec::new();
        self.append(&mut bytes, RouteNetlinkMessage::GetLink(link(index)), NLM_F_REQUEST);
        self.socket.send(&bytes, 0)?;
        loop {
            let (answer, _) = self.socket.recv_from_full()?;
            let answer = parse(&answer)?;
            if answer.header.sequence_number != self.sequence {
                continue;
            }
            match answer.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                    return Ok(link.header.flags.contains(LinkFlags::Up));
                }
                NetlinkPayload::Error(e) => return Err(e.to_io()),
                _ => {}
            }
        }
    }

    /// Sends one request and waits for the kernel's answer to it.
    fn request(&mut self, message: RouteNetlinkMessage, action: String) -> Result<(), TunError> {
        self.exchange(message).map_err(|e| self.error(action, e))
    }

    fn exchange(&mut self, message: RouteNetlinkMessage) -> io::Result<()> {
        let create = match message {
            RouteNetlinkMessage::SetLink(_)
            | RouteNetlinkMessage::DelAddress(_)
            | RouteNetlinkMessage::DelRoute(_) => 0,
            _ => NLM_F_CREATE | NLM_F_REPLACE,
        };
        let mut bytes = Vec::new();
        self.append(&mut bytes, message, NLM_F_REQUEST | NLM_F_ACK | create);
        self.socket.send(&bytes, 0)?;
        let answers = self.answers(self.sequence).map_err(|(e, _)| e)?;
        answers.failed.map_or(Ok(()), |(e, _)| Err(e))
    }

    /// Writes the next request behind those in `bytes`.
    fn append(&mut self, bytes: &mut Vec<u8>, message: RouteNetlinkMessage, flags: u16) {
        let mut message = NetlinkMessage::from(message);
        self.sequence += 1;
        message.header.sequence_number = self.sequence;
        message.header.flags = flags;
        message.finalize();
        let at = bytes.len();
        // Messages begin at multiples of four bytes.
        bytes.resize(at + message.buffer_len().next_multiple_of(4), 0);
        message.serialize(&mut bytes[at..]);
    }

    /// Waits for the answer to the newest request; requests since `first` may have failed before it.
    fn answers(&mut self, first: u32) -> Result<Answers, (io::Error, u32)> {
        let mut answers = Answers::default();
        loop {
            let (answer, _) = self.socket.recv_from_full().map_err(|e| (e, self.sequence))?;
            let answer = parse(&answer).map_err(|e| (e, self.sequence))?;
            let sequence = answer.header.sequence_number;
            let NetlinkPayload::Error(e) = answer.payload else { continue };
            if sequence < first || sequence > self.sequence {
                continue;
            }
            if e.code.is_some() {
                match e.to_io() {
                    error if error.kind() == io::ErrorKind::AlreadyExists => answers.existed += 1,
                    error => drop(answers.failed.get_or_insert((error, sequence))),
                }
            }
            if sequence == self.sequence {
                return Ok(answers);
            }
        }
    }

    fn error(&self, action: String, error: io::Error) -> TunError {
        TunError::Netlink { device: self.device.clone(), action, error }
    }
}

/// One message of the kernel.
pub(crate) fn parse(bytes: &[u8]) -> io::Result<NetlinkMessage<RouteNetlinkMessage>> {
    NetlinkMessage::deserialize(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))
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
