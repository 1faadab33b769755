//! What a host on an Ethernet owes its neighbours: ARP and neighbour discovery both ways, ping, VLAN tags, next hops.
//!
//! The packets of `gatun_io::Backend` begin with their IP header. A backend of Ethernet devices (AF_XDP, DPDK) puts an
//! [`Ether`] between these and the device's frames. It knows no device, no clock and no thread, and allocates nothing
//! after it was made:
//!
//! ```text
//!    device                          Ether                                    engine
//!
//!    frame ---> receive(now, device, frame)
//!                 |- Packet  ------------- begins with its IP header now ---> process
//!    frame <------|- Reply                 ARP, neighbour discovery, ping
//!                 |- Taken                 an answer to a question of ours
//!    kernel <-----|- Foreign               none of ours: pass it on, or not
//!                 '- Drop
//!
//!    frame <--------- Frame { device } -|  transmit(now, packet) <----------- forward, reply
//!                     Held -------------|      route, next hop, MAC
//!                     Drop -------------'
//!
//!    frames <-------- poll(now, emit)   when now >= due_ms(): questions, packets whose next hop has answered,
//!                                       announcements
//! ```
//!
//! # For backends
//!
//! - A frame is a [`gatun_wire::Packet`] that begins with the Ethernet header. After [`Received::Packet`] it begins with
//!   the IP header, as [`gatun_wire::HEADROOM`] asks for; padding may follow. After [`Sent::Frame`] it begins with the
//!   Ethernet header again. Frames that are shorter than 60 bytes are padded by the device.
//! - Leave [`ANSWER_ROOM`] bytes behind a received frame: an advertisement may be longer than its solicitation.
//! - Tags stand in the frame: a device that takes them out, or puts them in, must not.
//! - Solicitations come to groups, so the device has to receive all multicast frames, or all frames.
//! - After each burst, and before sleeping, compare [`Ether::due_ms`] with the clock, and call [`Ether::poll`]. The
//!   clock counts milliseconds and does not go back.
//! - Other settings come as another [`Ether`], made elsewhere: [`Ether::take_over`].
//! - Several workers at the same ports have an `Ether` each, with the same settings but `speaks` for one of them. What
//!   one hears, the others have to be told: [`Ether::heard`], [`Ether::hear`] (docs/decisions/0062). While packets wait,
//!   `due_ms` comes every few milliseconds, so that a worker that sleeps looks for such news.
//!
//! # What is not done
//!
//! Router advertisements and redirects are not obeyed: addresses and routes are the configuration's, and who can send
//! such a message must not move traffic. None are sent. Multicast is not forwarded; groups are reported so that switches
//! that snoop let solicitations through. A packet whose next hop does not answer is dropped and counted; its sender gets no
//! ICMP error (decision 0062).
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
mod arp;
mod bytes;
mod check;
mod echo;
mod ether;
mod frame;
mod mld;
mod ndp;
mod neighbour;
mod port;
mod receive;
mod routes;
mod settings;
mod speech;
mod stats;
mod succession;
mod waiting;

pub use address::{Mac, NotAMac, Prefix};
pub use ether::{Conflict, Ether, NeighbourReport, Received, Sent, Whose};
pub use neighbour::State;
pub use receive::Heard;
pub use settings::{Limits, Neighbour, Port, Problem, Route, Settings, Tag};
pub use stats::{Answer, Count, Dropped, Foreign, Note, Stats, Taken, Unsent};

/// Bytes that an answer may be longer than the frame that it answers: an advertisement's option.
pub const ANSWER_ROOM: usize = 8;
/// The longest Ethernet header: with two tags.
pub const HEADER_MAX: usize = frame::LEN_MAX;

const _: () = assert!(HEADER_MAX <= gatun_wire::DEVICE_ROOM);
