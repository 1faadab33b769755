//! Link state, addresses and routes of one interface.
//!
//! Requests come at start and when a link comes back. Each waits for its answer, except routes: there may be
//! a million of them, so they go in batches. The kernel answers the last request of a batch and any that
//! fails.

use crate::client::Client;
use crate::prefix::{Prefix, route_family};
use crate::query::{Link, address_of, link_of};
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::OnceLock;

/// Routes of one datagram to the kernel, some 15 KB.
const ROUTES_PER_BATCH: usize = 256;

/// Metric of IPv6 routes that precede those of others; the kernel gives 256 to routes of its interfaces'
/// addresses.
const FIRST6: u32 = 1;

/// Treatment of existing routes to the same network. No such route is ever removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Precede it: packets take the new route, and the other one again once the new one is gone.
    Precede,
    /// Keep it: somebody set it on purpose.
    Keep,
}

/// A request about a device, refused by the kernel.
#[derive(Debug)]
pub struct DeviceError {
    /// Name of the device.
    pub device: String,
    /// The request, as an argument of ip(8).
    pub action: String,
    /// The kernel's answer.
    pub error: io::Error,
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeviceError { device, action, error } = self;
        write!(f, "device '{device}': `ip {action}` failed: {error}")?;
        // The standard library maps both to `PermissionDenied`.
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::PERM) => write!(
                f,
                "; it needs CAP_NET_ADMIN: let root run `ip {action}` before gatun starts, or start gatun with that right"
            ),
            Some(Errno::ACCESS) => write!(
                f,
                "; IPv6 may be switched off: sysctl -w net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0"
            ),
            Some(Errno::OPNOTSUPP | Errno::AFNOSUPPORT) if !has_ipv6() => write!(
                f,
                "; IPv6 is disabled in this kernel: remove ipv6.disable=1 from its command line (/proc/cmdline) and restart the host"
            ),
            _ => Ok(()),
        }
    }
}

/// Returns true if the kernel has IPv6, even if no interface uses it. Only the first call checks.
pub fn has_ipv6() -> bool {
    static HAS_IPV6: OnceLock<bool> = OnceLock::new();
    *HAS_IPV6.get_or_init(|| Path::new("/proc/sys/net/ipv6").exists())
}

/// `source` is not implemented: the text contains the system's error already.
impl std::error::Error for DeviceError {}

/// Interface, identified by its name.
pub struct Device {
    client: Client,
    name: String,
    /// Table of its routes.
    table: u32,
}

impl Device {
    /// Opens a socket for the device, which need not exist yet.
    ///
    /// # Errors
    /// Returns an error if the kernel gives no socket.
    pub fn open(name: &str) -> io::Result<Device> {
        let table = RouteHeader::RT_TABLE_MAIN.into();
        Ok(Device { client: Client::open()?, name: name.to_owned(), table })
    }

    /// Uses another table than the main one for its routes from now on.
    pub fn use_table(&mut self, table: u32) {
        self.table = table;
    }

    /// Changes the name that the device is looked up by.
    pub fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.name);
    }

    /// Name that the device is looked up by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if the device exists in this network namespace.
    pub fn exists(&self) -> bool {
        self.index().is_ok()
    }

    /// Returns the number of the device in this network namespace.
    ///
    /// # Errors
    /// Returns an error if the device does not exist.
    pub fn index(&self) -> io::Result<u32> {
        Ok(rustix::net::netdevice::name_to_index(&self.client.socket, &self.name)?)
    }

    /// Sets the MTU.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), DeviceError> {
        let mut link = link(index);
        link.attributes.push(LinkAttribute::Mtu(mtu));
        let action = format!("link set dev {} mtu {mtu}", self.name);
        self.request(RouteNetlinkMessage::SetLink(link), action)
    }

    /// Sets the link up.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn set_up(&mut self, index: u32) -> Result<(), DeviceError> {
        let mut link = link(index);
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        let action = format!("link set dev {} up", self.name);
        self.request(RouteNetlinkMessage::SetLink(link), action)
    }

    /// Sets an alias, by which the device is recognised later.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn set_alias(&mut self, index: u32, alias: &str) -> Result<(), DeviceError> {
        let mut link = link(index);
        link.attributes.push(LinkAttribute::IfAlias(alias.to_owned()));
        let action = format!("link set dev {} alias '{alias}'", self.name);
        self.request(RouteNetlinkMessage::SetLink(link), action)
    }

    /// Adds addresses; existing ones stay. If none is missing, this needs no privilege.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses one; those before it are set.
    pub fn add_addresses(&mut self, index: u32, addresses: &[Prefix]) -> Result<(), DeviceError> {
        if addresses.is_empty() {
            return Ok(());
        }
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.client.ask(request, NLM_F_DUMP);
        let answers = answers.map_err(|e| self.error("address show".into(), e))?;
        let there: Vec<_> = answers.into_iter().filter_map(address_of).collect();
        for &address in addresses.iter().filter(|&&address| !there.contains(&(index, address))) {
            let action = format!("address replace {address} dev {}", self.name);
            self.request(RouteNetlinkMessage::NewAddress(address_message(index, address)), action)?;
        }
        Ok(())
    }

    /// Removes addresses from the device; missing ones are no error.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses one; those before it are removed.
    pub fn remove_addresses(&mut self, index: u32, addresses: &[Prefix]) -> Result<(), DeviceError> {
        for &address in addresses {
            let action = format!("address del {address} dev {}", self.name);
            let message = RouteNetlinkMessage::DelAddress(address_message(index, address));
            self.remove(message, action)?;
        }
        Ok(())
    }

    /// Removes routes of the device; missing ones are no error.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses one; those before it are removed.
    pub fn remove_routes(&mut self, index: u32, routes: &[Prefix]) -> Result<(), DeviceError> {
        for &route in routes {
            let action = format!("route del {}", self.described(&route.to_string()));
            let message = route_message(index, route, self.table);
            self.remove(RouteNetlinkMessage::DelRoute(message), action)?;
        }
        Ok(())
    }

    fn remove(&mut self, message: RouteNetlinkMessage, action: String) -> Result<(), DeviceError> {
        match self.exchange(message) {
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::SRCH | Errno::ADDRNOTAVAIL)) => Ok(()),
            other => other.map_err(|e| self.error(action, e)),
        }
    }

    /// Adds routes to the device. Returns the number of routes not set, because the same or other ones exist.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses one; others may be set.
    pub fn add_routes(
        &mut self,
        index: u32,
        routes: &[Prefix],
        existing: Existing,
    ) -> Result<usize, DeviceError> {
        let mut existed = 0;
        for batch in routes.chunks(ROUTES_PER_BATCH) {
            existed += self.add_batch(index, batch, existing)?;
        }
        Ok(existed)
    }

    fn add_batch(&mut self, index: u32, routes: &[Prefix], existing: Existing) -> Result<usize, DeviceError> {
        let first = self.client.sequence + 1;
        let mut batch = Vec::new();
        for (i, &route) in routes.iter().enumerate() {
            let answer = if i + 1 == routes.len() { NLM_F_ACK } else { 0 };
            let mut message = route_message(index, route, self.table);
            let how = match existing {
                Existing::Keep => NLM_F_EXCL,
                // Of IPv4 routes with one metric, the one set last without NLM_F_APPEND comes first.
                Existing::Precede if route.addr.is_ipv4() => 0,
                Existing::Precede => {
                    message.attributes.push(RouteAttribute::Priority(FIRST6));
                    NLM_F_EXCL
                }
            };
            let flags = NLM_F_REQUEST | NLM_F_CREATE | how | answer;
            self.client.append(&mut batch, RouteNetlinkMessage::NewRoute(message), flags);
        }
        let sent = self.client.socket.send(&batch, 0).map_err(|e| (e, first));
        let answers = sent.and_then(|_| self.client.answers(first));
        let done = answers.and_then(|answers| answers.failed.map_or(Ok(answers.existed), Err));
        done.map_err(|(e, sequence)| {
            let route = routes.get((sequence - first) as usize).or(routes.last());
            let route = route.map_or(String::new(), Prefix::to_string);
            self.error(format!("route add {}", self.described(&route)), e)
        })
    }

    /// Describes a route like ip(8).
    fn described(&self, route: &str) -> String {
        let table = match self.table == u32::from(RouteHeader::RT_TABLE_MAIN) {
            true => String::new(),
            false => format!(" table {}", self.table),
        };
        format!("{route} dev {}{table}", self.name)
    }

    /// Returns the state of the link.
    ///
    /// # Errors
    /// Returns an error if the device no longer exists, or the kernel does not answer.
    pub fn link(&mut self, index: u32) -> io::Result<Link> {
        let answers = self.client.ask(RouteNetlinkMessage::GetLink(link(index)), 0)?;
        let link = answers.into_iter().find_map(link_of);
        link.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Sends one request and waits for the kernel's answer to it.
    fn request(&mut self, message: RouteNetlinkMessage, action: String) -> Result<(), DeviceError> {
        self.exchange(message).map_err(|e| self.error(action, e))
    }

    fn exchange(&mut self, message: RouteNetlinkMessage) -> io::Result<()> {
        let create = match message {
            RouteNetlinkMessage::SetLink(_)
            | RouteNetlinkMessage::DelAddress(_)
            | RouteNetlinkMessage::DelRoute(_) => 0,
            _ => NLM_F_CREATE | NLM_F_REPLACE,
        };
        self.client.request(message, create)
    }

    /// Creates an error of this device, for a request made elsewhere.
    pub fn error(&self, action: String, error: io::Error) -> DeviceError {
        DeviceError { device: self.name.clone(), action, error }
    }
}

fn link(index: u32) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link
}

fn address_message(index: u32, address: Prefix) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = route_family(address.addr);
    message.header.prefix_len = address.len;
    message.header.index = index;
    message.attributes.push(AddressAttribute::Address(address.addr));
    message.attributes.push(AddressAttribute::Local(address.addr));
    if address.addr.is_ipv6() {
        // A TUN link has no other hosts. Without this flag, the address would be tentative for a second.
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    message
}

fn route_message(index: u32, route: Prefix, table: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = route_family(route.addr);
    message.header.destination_prefix_length = route.len;
    match u8::try_from(table) {
        Ok(table) => message.header.table = table,
        Err(_) => message.attributes.push(RouteAttribute::Table(table)),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_privilege_and_disabled_ipv6_have_different_errors() {
        let text = |errno: Errno| {
            let (device, action) = ("gatun0".to_owned(), "route add ...".to_owned());
            DeviceError { device, action, error: errno.into() }.to_string()
        };
        assert!(text(Errno::PERM).contains("CAP_NET_ADMIN: let root run `ip route add ...` before"));
        assert!(text(Errno::ACCESS).contains("disable_ipv6=0") && !text(Errno::ACCESS).contains("CAP_"));
    }
}
