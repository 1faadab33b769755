//! Notifications of changes of links, addresses and routes.

use crate::client::messages;
use crate::prefix::Prefix;
use crate::query::Link;
use crate::routes::{Route, route_of};
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::route::RouteMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::time::Duration;

/// Group of notifications (RTNLGRP_ of `linux/rtnetlink.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Links.
    Link = 1,
    /// IPv4 addresses of interfaces.
    Ipv4Address = 5,
    /// IPv4 routes. The kernel does not announce those that disappear with their link.
    Ipv4Route = 7,
    /// IPv6 routes.
    Ipv6Route = 11,
}

/// A change announced by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A link was added or changed.
    Link(Link),
    /// The link with this number was removed.
    LinkRemoved(u32),
    /// An address was added to an interface or removed from it.
    Addresses,
    /// A route was added to the main table, or changed.
    RouteAdded {
        /// Destination.
        to: Prefix,
    },
    /// A route of the main table was removed.
    RouteRemoved {
        /// Destination.
        to: Prefix,
        /// Number of its link, if it had exactly one.
        device: Option<u32>,
    },
    /// Notifications were lost or could not be read: anything may have changed.
    Lost,
}

/// Subscription to notifications.
pub struct Monitor {
    socket: Socket,
    notices: VecDeque<Notice>,
}

impl Monitor {
    /// Subscribes to groups.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn open(groups: &[Group]) -> io::Result<Monitor> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        for group in groups {
            socket.add_membership(*group as u32)?;
        }
        Ok(Monitor { socket, notices: VecDeque::new() })
    }

    /// Returns the next notification that [`wait`](Self::wait) has read.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Blocks until there are notifications, `waker` is readable, or the time is over. Returns true if
    /// `waker` is readable.
    ///
    /// # Errors
    /// Returns an error if the kernel gives no more notifications.
    pub fn wait(&mut self, waker: impl AsFd, timeout: Option<Duration>) -> io::Result<bool> {
        let waker = waker.as_fd();
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&waker, PollFlags::IN)];
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let [announced, woken] = fds.map(|fd| !fd.revents().is_empty());
        if announced {
            self.read()?;
        }
        Ok(woken)
    }

    fn read(&mut self) -> io::Result<()> {
        match self.socket.recv_from_full() {
            Ok((datagram, _)) => self.notices.extend(messages(&datagram).filter_map(notice)),
            // The socket's buffer was too small for all notifications.
            Err(e) if Errno::from_io_error(&e) == Some(Errno::NOBUFS) => {
                self.notices.push_back(Notice::Lost);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }
}

fn notice(message: io::Result<NetlinkMessage<RouteNetlinkMessage>>) -> Option<Notice> {
    match message.map(|message| message.payload) {
        Ok(NetlinkPayload::InnerMessage(message)) => match message {
            RouteNetlinkMessage::NewLink(link) => Some(Notice::Link(Link::from(link))),
            RouteNetlinkMessage::DelLink(link) => Some(Notice::LinkRemoved(link.header.index)),
            RouteNetlinkMessage::NewAddress(_) | RouteNetlinkMessage::DelAddress(_) => {
                Some(Notice::Addresses)
            }
            RouteNetlinkMessage::NewRoute(route) => {
                of_main(&route).map(|route| Notice::RouteAdded { to: route.to })
            }
            RouteNetlinkMessage::DelRoute(route) => {
                of_main(&route).map(|route| Notice::RouteRemoved { to: route.to, device: route.device })
            }
            _ => None,
        },
        Ok(_) => None,
        // The message may be about any link.
        Err(_) => Some(Notice::Lost),
    }
}

/// Parses a route of the main table.
fn of_main(message: &RouteMessage) -> Option<Route> {
    let any = match message.header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    route_of(message, any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_message_counts_as_lost_notifications() {
        let error = io::Error::from(io::ErrorKind::InvalidData);
        assert_eq!(notice(Err(error)), Some(Notice::Lost));
    }
}
