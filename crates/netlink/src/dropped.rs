//! Counter of packets that an interface has dropped.

use crate::client::Client;
use crate::query::link;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use std::io;

/// Counter of packets that the kernel was to send through an interface, and dropped because its queue was
/// full. It reads over a socket of its own, so it needs no further right once it is open.
pub struct DroppedByDevice {
    client: Client,
    index: u32,
}

impl DroppedByDevice {
    /// Opens the counter of an interface.
    ///
    /// # Errors
    /// Returns an error if the interface does not exist, or the process has reached its limit of open files.
    pub fn of(name: &str) -> io::Result<DroppedByDevice> {
        let link = link(name)?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(DroppedByDevice { client: Client::open()?, index: link.index })
    }

    /// Reads the counter: packets since the interface exists.
    ///
    /// # Errors
    /// Returns an error if the interface does not exist any more.
    pub fn read(&mut self) -> io::Result<u64> {
        let mut request = LinkMessage::default();
        request.header.index = self.index;
        let answers = self.client.ask(RouteNetlinkMessage::GetLink(request), 0)?;
        let dropped = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => link.attributes.into_iter().find_map(dropped_of),
            _ => None,
        });
        dropped.ok_or_else(|| io::Error::other("the kernel does not tell it"))
    }
}

fn dropped_of(attribute: LinkAttribute) -> Option<u64> {
    match attribute {
        LinkAttribute::Stats64(counters) => Some(counters.tx_dropped),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_without_a_queue_has_dropped_nothing_and_one_that_is_missing_is_an_error() {
        assert_eq!(DroppedByDevice::of("lo").unwrap().read().unwrap(), 0);
        assert!(DroppedByDevice::of("no-such-link").is_err());
    }
}
