//! Host functions on Ethernet for backends: ARP and neighbour discovery in both directions, ping, VLAN tags,
//! next hops.
//!
//! The packets of `gatun_io::Backend` begin with their IP header. A backend of Ethernet devices (AF_XDP,
//! DPDK) puts an [`Ether`] between these packets and the device's frames. An `Ether` knows no device, no
//! clock and no thread, and it allocates nothing after its construction:
//!
//! ```text
//!    device                          Ether                                    engine
//!
//!    frame ---> receive(now, device, frame)
//!                 |- Packet  ------------- begins with its IP header now ---> process
//!    frame <------|- Reply                 ARP, neighbour discovery, ping
//!                 |- Consumed                 an answer to our solicitation
//!    kernel <-----|- Foreign               not for us: pass it on, or not
//!                 '- Drop
//!
//!    frame <--------- Frame { device } -|  transmit(now, packet) <----------- forward, reply
//!                     Held -------------|      route, next hop, MAC
//!                     Drop -------------'
//!
//!    frames <-------- poll(now, emit)   when now >= due_ms(): solicitations, announcements, packets whose
//!                                       next hop answered
//! ```
//!
//! # For backends
//!
//! - A frame is a [`gatun_wire::Packet`] that begins with the Ethernet header. After [`Received::Packet`] it
//!   begins with the IP header, as [`gatun_wire::HEADROOM`] requires; padding may follow. After
//!   [`Sent::Frame`] it begins with the Ethernet header again. The device pads frames shorter than 60 bytes.
//! - Leave [`ANSWER_ROOM`] bytes after a received frame: an advertisement may be longer than its
//!   solicitation.
//! - Tags are part of the frame: the device must not strip or insert them.
//! - Solicitations are sent to groups, so the device has to receive all multicast frames, or all frames.
//! - After each burst, and before sleeping, compare [`Ether::due_ms`] with the clock, and call
//!   [`Ether::poll`]. The clock counts milliseconds and never goes back.
//! - To change settings, construct another [`Ether`] elsewhere and call [`Ether::take_over`].
//! - Several workers at the same ports have one `Ether` each, with the same settings, except that only one of
//!   them `announces`. Each worker passes neighbour updates to the others: [`Ether::next_update`],
//!   [`Ether::apply_update`] (docs/decisions/0062). While packets wait, `due_ms` is only a few milliseconds
//!   ahead, so that a sleeping worker checks for such updates.
//!
//! # Limits
//!
//! Router advertisements and redirects are not obeyed: addresses and routes come from the configuration, and
//! a host that can send such a message must not be able to move traffic. None are sent. Multicast is not
//! forwarded; groups are reported so that snooping switches let solicitations through. A packet whose next
//! hop does not answer is dropped and counted; its sender gets no ICMP error (decision 0062).
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod address;
mod announcements;
mod arp;
mod bytes;
mod check;
mod echo;
mod ether;
mod frame;
mod mld;
mod ndp;
mod neighbour;
mod outcome;
mod pending;
mod port;
mod receive;
mod routes;
mod settings;
mod stats;
mod take_over;

pub use address::{InvalidMac, Mac, Prefix};
pub use ether::{Ether, route_reports};
pub use neighbour::{NeighbourState, NeighbourUpdate};
pub use outcome::{Conflict, FrameOrigin, NeighbourReport, Received, RouteReport, Sent, Way};
pub use settings::{Limits, PortSettings, Problem, Route, Settings, StaticNeighbour, Tag};
pub use stats::{Answer, Consumed, Count, Dropped, EtherEvent, Foreign, Stats, Unsent};

/// Largest difference in bytes between a reply and the frame that it answers: an advertisement's option.
pub const ANSWER_ROOM: usize = 8;
/// Longest Ethernet header: with two tags.
pub const HEADER_MAX: usize = frame::LEN_MAX;

const _: () = assert!(HEADER_MAX <= gatun_wire::DEVICE_ROOM);
