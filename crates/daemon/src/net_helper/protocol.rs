//! Messages between the daemon and its helper.
//!
//! ```text
//!   Begin, Device and Prefixes ..., Start          once, in this order; the helper replies with Ready
//!   Prefixes ..., Apply                            later: new addresses and routes of a device
//!
//!   Begin, Announce, Start                         the same for announced routes
//!   Prefixes ..., SetRoutes                        later: the routes of all tables; the reply is RoutesSet
//!   Alive                                          later: the daemon runs
//!
//!   Begin, Programs, Start                         the same for the kernel fast path
//!   AttachPrograms, DetachPrograms                 later: somebody has detached a program; the daemon ends
//!
//!   Begin, Interfaces, Start                       the same for AF_XDP
//!   Attach, OpenSocket                             later: an interface has come back; the reply has files
//! ```

use gatun_io_tun::Prefix;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::PathBuf;

/// Argument that makes the program the helper. It is not a command for users.
pub(super) const ARGUMENT: &str = "network-helper";
/// Prefixes per message: each needs some 50 bytes of JSON.
pub(super) const PREFIXES_PER_MESSAGE: usize = 1024;
/// Largest number of addresses and routes of a device, which limits the helper's memory.
pub(super) const PREFIXES_MAX: usize = 1 << 21;
/// Largest number of devices.
pub(super) const DEVICES_MAX: usize = 256;
/// Largest number of tables of announced routes.
pub(super) const TABLES_MAX: usize = 4;
/// Longest log line in bytes.
pub(super) const LINE_MAX: usize = 16 << 10;

/// Message to the helper.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// First message.
    Begin {
        /// User and group to switch to.
        user: Option<(u32, u32)>,
        /// True to enter a sandbox.
        sandboxed: bool,
    },
    /// Adds a device. Devices are numbered in order.
    Device {
        /// Device name.
        name: String,
        /// True if its routes precede the host's routes to the same networks.
        precede_routes: bool,
    },
    /// Some of a device's addresses or routes.
    Prefixes {
        /// Number of the device.
        device: usize,
        /// True for routes, false for addresses.
        routes: bool,
        /// Addresses or networks, each with its prefix length.
        prefixes: Vec<(IpAddr, u8)>,
    },
    /// Replaces devices by network interfaces, used through AF_XDP. Carries the three tables of their
    /// program.
    Interfaces {
        /// Name and mode of each interface.
        ports: Vec<(String, XdpMode)>,
        /// Number of queues served on each interface.
        queues: u32,
    },
    /// Replaces devices by tables of routes to a marker device.
    Announce {
        /// Name of the marker device.
        device: String,
        /// Numbers of the tables.
        tables: Vec<u32>,
        /// Time in ms without a message after which the routes are withdrawn.
        lease_ms: u32,
    },
    /// Replaces devices by the programs of the kernel fast path. Carries the files of their maps, of the
    /// programs, and of their links.
    Programs {
        /// Device.
        device: String,
        /// Folder of the pins.
        pins: Option<PathBuf>,
        /// The only hook of the device to try, if there is one: true for clsact, false for tcx.
        is_clsact: Option<bool>,
        /// Network interfaces.
        interfaces: Vec<String>,
        /// Reason why there is no program for network interfaces.
        refusal: String,
        /// Places of the programs.
        places: PlacesMessage,
    },
    /// Ends the list of devices and starts the watch.
    Start,
    /// Sets the routes of all tables to those of the preceding messages, and removes all others. `device` of
    /// these messages is the number of the table in the list.
    SetRoutes,
    /// The daemon runs.
    Alive,
    /// Sets a device's addresses and routes to those of the preceding messages, and removes its previous
    /// ones.
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
    /// Attaches the programs where they are not any more.
    AttachPrograms {
        /// True if other programs of the device keep packets from ours.
        is_bypassed: bool,
    },
    /// Detaches the programs and removes their pins.
    DetachPrograms,
}

/// Network interface of the kernel fast path.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct InterfaceMessage {
    /// Name.
    pub(super) name: String,
    /// Reason why the program is not there.
    pub(super) refusal: Option<String>,
    /// Reason why no frames can be sent there.
    pub(super) limit: Option<String>,
}

/// Places of the programs of the kernel fast path.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PlacesMessage {
    /// True if the device's program is a filter of clsact, false if it is attached by tcx.
    pub(super) is_clsact: bool,
    /// True if it has a link. Its file precedes those of the network interfaces.
    pub(super) has_link: bool,
    /// Network interfaces. For each with the program, the message carries the link's file.
    pub(super) interfaces: Vec<InterfaceMessage>,
}

/// Mode of an XDP program, see `gatun_io_xdp::Mode`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum XdpMode {
    /// XDP in the driver if possible, otherwise before the kernel's stack.
    Auto,
    /// XDP in the driver.
    Native,
    /// XDP before the kernel's stack.
    Skb,
}

/// Message from the helper.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// The helper has dropped the rights that it does not need.
    Ready {
        /// Parts that its sandbox lacks.
        missing: Vec<String>,
    },
    /// Line for the log.
    Line(String),
    /// Reason why the helper ends.
    Failed(String),
    /// Reply to `Attach`, with program, map of sockets, link and membership of groups.
    Attached {
        /// Number of the interface.
        index: u32,
        /// True if the program runs in the driver.
        native: bool,
    },
    /// Reply to `SetRoutes`.
    RoutesSet {
        /// Number of routes in each table.
        routes: Vec<usize>,
        /// First error.
        error: Option<String>,
    },
    /// All announced routes are withdrawn, because the daemon was silent.
    Lapsed,
    /// Reply to `OpenSocket`, with the socket.
    Socket,
    /// Reply to `AttachPrograms`, with the files of the links.
    ProgramsAttached {
        /// Reason why the device's program is not attached.
        refusal: Option<String>,
        /// Places of the programs.
        places: PlacesMessage,
    },
    /// Reply to `DetachPrograms`.
    ProgramsDetached,
    /// Reason why a request failed.
    Refused(String),
}

/// Encodes prefixes for a message.
pub(super) fn encode(prefixes: &[Prefix]) -> Vec<(IpAddr, u8)> {
    prefixes.iter().map(|prefix| (prefix.addr, prefix.len)).collect()
}

/// Decodes prefixes of a message. `None` if a prefix length is too large.
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
    fn the_longest_prefixes_fit_a_message() {
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
