//! Links that are set down and up again by hand: the kernel takes a device's routes and IPv6 addresses away
//! with the link, and does not bring them back.

use crate::netlink::{Existing, Netlink, parse};
use crate::{Prefix, TunConfig, TunError};
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkFlags;
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use rustix::io::Errno;
use std::io;

/// Where the kernel tells of links (RTNLGRP_LINK of `linux/rtnetlink.h`).
const GROUP_LINK: u32 = 1;

/// What happened to a device's link.
#[derive(Debug)]
pub enum LinkEvent {
    /// It was set down: its routes are gone, and no packet comes.
    Down {
        /// The device.
        device: String,
    },
    /// It is up again.
    Up {
        /// The device.
        device: String,
        /// What was set up again, or why it could not be.
        restored: Result<Restored, TunError>,
    },
}

/// What a link got back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Routes that were added.
    pub routes: usize,
    /// Routes that somebody else had set meanwhile, to whatever device; left as they are.
    pub routes_existing: usize,
    /// Addresses, with those that the link had kept.
    pub addresses: usize,
}

/// Waits for changes of links, and sets up again what they take away.
pub struct LinkWatch {
    socket: Socket,
    devices: Vec<Watched>,
}

impl LinkWatch {
    /// Watches open devices, each by its name and with what it was opened with.
    ///
    /// # Errors
    /// Where the kernel does not tell.
    pub fn new(devices: impl IntoIterator<Item = (String, TunConfig)>) -> Result<Self, TunError> {
        let open = || -> io::Result<Socket> {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.add_membership(GROUP_LINK)?;
            Ok(socket)
        };
        let socket = open().map_err(|e| TunError::Ioctl("watching links", "netlink".into(), e))?;
        // Asked for once the socket listens, so that no change falls between.
        let devices = devices.into_iter().map(|(device, config)| Watched::new(device, config));
        Ok(LinkWatch { socket, devices: devices.collect::<Result<_, _>>()? })
    }

    /// Whether any device has something to be set up again: the thread that waits needs CAP_NET_ADMIN then.
    pub fn restores(&self) -> bool {
        self.devices.iter().any(|d| !d.routes.is_empty() || !d.addresses.is_empty())
    }

    /// Blocks until the link of a device has changed; `None` once no device is left.
    ///
    /// # Errors
    /// Where the kernel tells no more.
    pub fn wait(&mut self) -> io::Result<Option<LinkEvent>> {
        loop {
            while let Some(device) = self.devices.iter_mut().find(|d| d.missed) {
                if let Some(event) = device.ask()? {
                    return Ok(Some(event));
                }
            }
            self.devices.retain(|d| !d.gone);
            if self.devices.is_empty() {
                return Ok(None);
            }
            match self.socket.recv_from_full() {
                Ok((bytes, _)) => {
                    if let Some(event) = self.take(&bytes) {
                        return Ok(Some(event));
                    }
                }
                // What there was to tell did not fit into the socket's buffer.
                Err(e) if Errno::from_io_error(&e) == Some(Errno::NOBUFS) => self.ask_all(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Option<LinkEvent> {
        let (link, exists) = match parse(bytes).map(|message| message.payload) {
            Ok(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link))) => (link, true),
            Ok(NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link))) => (link, false),
            Ok(_) => return None,
            // It may be about anybody.
            Err(_) => {
                self.ask_all();
                return None;
            }
        };
        let device = self.devices.iter_mut().find(|d| d.index == link.header.index)?;
        device.gone |= !exists;
        if exists { device.is_now(link.header.flags.contains(LinkFlags::Up)) } else { None }
    }

    fn ask_all(&mut self) {
        self.devices.iter_mut().for_each(|d| d.missed = true);
    }
}

struct Watched {
    netlink: Netlink,
    device: String,
    index: u32,
    addresses: Vec<Prefix>,
    routes: Vec<Prefix>,
    up: bool,
    /// Whether something was told that did not arrive.
    missed: bool,
    gone: bool,
}

impl Watched {
    fn new(device: String, config: TunConfig) -> Result<Self, TunError> {
        let mut netlink = Netlink::new(&device)?;
        let state = netlink.index().and_then(|index| Ok((index, netlink.is_up(index)?)));
        let (index, up) = state.map_err(|e| TunError::Ioctl("watching the link", device.clone(), e))?;
        let TunConfig { addresses, routes, .. } = config;
        Ok(Watched { netlink, device, index, addresses, routes, up, missed: false, gone: false })
    }

    fn is_now(&mut self, up: bool) -> Option<LinkEvent> {
        if std::mem::replace(&mut self.up, up) == up {
            return None;
        }
        let device = self.device.clone();
        Some(if up { LinkEvent::Up { device, restored: self.restore() } } else { LinkEvent::Down { device } })
    }

    /// What was missed may be that the link was down and is up again.
    fn ask(&mut self) -> io::Result<Option<LinkEvent>> {
        self.missed = false;
        let up = match self.netlink.is_up(self.index) {
            Err(e) if Errno::from_io_error(&e) == Some(Errno::NODEV) => {
                self.gone = true;
                return Ok(None);
            }
            other => other?,
        };
        if !(self.up && up) {
            return Ok(self.is_now(up));
        }
        let restored = self.restore();
        let unharmed = matches!(restored, Ok(Restored { routes: 0, .. }));
        Ok((!unharmed).then(|| LinkEvent::Up { device: self.device.clone(), restored }))
    }

    fn restore(&mut self) -> Result<Restored, TunError> {
        self.netlink.add_addresses(self.index, &self.addresses)?;
        // A route that somebody has set meanwhile may lead elsewhere on purpose.
        let existing = self.netlink.add_routes(self.index, &self.routes, Existing::Keep)?;
        let routes = self.routes.len() - existing;
        Ok(Restored { routes, routes_existing: existing, addresses: self.addresses.len() })
    }
}
