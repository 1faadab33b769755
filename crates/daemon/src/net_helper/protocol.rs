//! Messages of the daemon and its helper.
//!
//! ```text
//!   Begin, Device and Prefixes ..., Start          once, in this order; the helper answers Ready
//!   Prefixes ..., Apply                            later: new addresses and routes of a device
//!
//!   Begin, Interfaces, Start                       the same for AF_XDP
//!   Attach, OpenSocket                             later: an interface has come back; answered with files
//! ```

use gatun_io_tun::Prefix;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Argument with which the program becomes the helper. It is not a command: it is of no use by hand.
pub(super) const ARGUMENT: &str = "network-helper";
/// Prefixes of one message: some 50 bytes each in JSON.
pub(super) const PREFIXES_PER_MESSAGE: usize = 1024;
/// Addresses and routes of one device at most, so that the helper's memory is bounded.
pub(super) const PREFIXES_MAX: usize = 1 << 21;
/// Devices at most.
pub(super) const DEVICES_MAX: usize = 256;
/// Bytes of a line for the log at most.
pub(super) const LINE_MAX: usize = 16 << 10;

/// A message to the helper.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// The first message.
    Begin {
        /// User and group to become.
        user: Option<(u32, u32)>,
        /// Whether to enter a sandbox.
        sandboxed: bool,
    },
    /// One more device; its number is the count of those before.
    Device {
        /// Its name.
        name: String,
        /// Whether its routes precede the host's routes to the same networks.
        precede_routes: bool,
    },
    /// Some of the addresses or routes that a device is to have.
    Prefixes {
        /// Number of the device.
        device: usize,
        /// Whether these are routes, not addresses.
        routes: bool,
        /// Addresses, each with its prefix length.
        prefixes: Vec<(IpAddr, u8)>,
    },
    /// Instead of devices: network interfaces, used through AF_XDP. The three tables of their program come along.
    Interfaces {
        /// Name and mode of each.
        ports: Vec<(String, XdpMode)>,
        /// Queues of each that are served.
        queues: u32,
    },
    /// No further device follows: watch them.
    Start,
    /// Gives a device the addresses and routes of the messages before, and removes its earlier ones.
    Apply {
        /// Number of the device.
        device: usize,
    },
    /// Attaches the program to the interface of a port.
    Attach {
        /// Number of the port.
        port: usize,
    },
    /// Opens an AF_XDP socket for the interface of a port.
    OpenSocket {
        /// Number of the port.
        port: usize,
    },
}

/// Mode of an XDP program, as `gatun_io_xdp::Mode`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum XdpMode {
    /// In the driver where it can, else before the kernel's stack.
    Auto,
    /// In the driver.
    Native,
    /// Before the kernel's stack.
    Skb,
}

/// A message from the helper.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// The helper has given up what it does not need.
    Ready {
        /// Parts that its sandbox lacks.
        missing: Vec<String>,
    },
    /// A line for the log.
    Line(String),
    /// Why the helper ends.
    Failed(String),
    /// Answer to `Attach`, with program, map of sockets, link and membership of groups.
    Attached {
        /// Number of the interface.
        index: u32,
        /// Whether the program runs in the driver.
        native: bool,
    },
    /// Answer to `OpenSocket`, with the socket.
    Socket,
    /// Why there is neither.
    Refused(String),
}

/// For a message.
pub(super) fn encode(prefixes: &[Prefix]) -> Vec<(IpAddr, u8)> {
    prefixes.iter().map(|prefix| (prefix.addr, prefix.len)).collect()
}

/// From a message; `None` where a prefix length is too large.
pub(super) fn decode(prefixes: &[(IpAddr, u8)]) -> Option<Vec<Prefix>> {
    let one = |&(addr, len): &(IpAddr, u8)| {
        let bits = if addr.is_ipv4() { 32 } else { 128 };
        (len <= bits).then_some(Prefix { addr, len })
    };
    prefixes.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net_helper::channel::MESSAGE_MAX;

    #[test]
    fn the_longest_prefixes_fit_into_a_message() {
        let longest = ("2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap(), 128);
        let prefixes = vec![longest; PREFIXES_PER_MESSAGE];
        let message = Request::Prefixes { device: DEVICES_MAX, routes: false, prefixes };
        assert!(serde_json::to_vec(&message).unwrap().len() <= MESSAGE_MAX);
    }

    #[test]
    fn a_prefix_length_is_checked() {
        assert!(decode(&[("192.0.2.0".parse().unwrap(), 33)]).is_none());
        assert_eq!(decode(&[("2001:db8::".parse().unwrap(), 33)]).unwrap().len(), 1);
    }
}
