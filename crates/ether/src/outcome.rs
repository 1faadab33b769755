//! Results of the calls of an [`Ether`](crate::Ether), and its reports to operators.

use crate::address::{Mac, Prefix};
use crate::neighbour::NeighbourState;
use crate::stats::{Answer, Consumed, Dropped, Foreign, Unsent};
use core::net::IpAddr;

/// Result of receiving a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Received {
    /// An IP packet for the engine. The buffer now begins with its IP header. Padding may follow it.
    Packet,
    /// The frame is now a reply: send it on the device that it came from.
    Reply(Answer),
    /// The frame was consumed. Check [`Ether::due_ms`](crate::Ether::due_ms): waiting packets may be ready.
    Consumed(Consumed),
    /// The frame is not for us, and unchanged. The backend may pass it to the kernel.
    Foreign(Foreign),
    /// Dropped, with the reason.
    Drop(Dropped),
}

/// Result of sending a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// The packet is now a frame: send it on this device.
    Frame {
        /// Number of the device in the backend.
        device: u8,
    },
    /// A copy waits for the next hop. The buffer is free.
    Held,
    /// Dropped, with the reason.
    Drop(Unsent),
}

/// Another host that claims one of our addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Number of the port in the settings.
    pub port: usize,
    /// The address.
    pub address: IpAddr,
    /// MAC of the other host.
    pub mac: Mac,
}

/// Route over all ports, for a switch that is to send packets as an [`Ether`](crate::Ether) would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteReport {
    /// Destination prefix. Of several prefixes that contain an address, the longest counts.
    pub to: Prefix,
    /// Way of its packets.
    pub way: Way,
}

/// Way of packets to a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// They are not sent: own addresses, broadcast, groups.
    Nowhere,
    /// To the destination itself, on the link of a port.
    OnLink {
        /// Number of the port in the settings.
        port: usize,
    },
    /// To a router.
    Via {
        /// Number of the port in the settings.
        port: usize,
        /// The router.
        gateway: IpAddr,
    },
}

/// Neighbour entry for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourReport {
    /// Number of the port in the settings.
    pub port: usize,
    /// IP address.
    pub address: IpAddr,
    /// MAC, if known.
    pub mac: Option<Mac>,
    /// Reachability state.
    pub state: NeighbourState,
}

/// Origin of a frame that [`Ether::poll`](crate::Ether::poll) emits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameOrigin {
    /// The host itself: a solicitation, an announcement, a report.
    Own,
    /// A packet that waited for a neighbour.
    Packet,
}
