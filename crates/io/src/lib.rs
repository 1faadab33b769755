//! Packet I/O: the interface between workers and devices.
//!
//! A [`Backend`] is everything that one worker receives from and sends to: one queue of a TUN device, or
//! queue n of every port of a network card. It lends its own buffers to the engine for one burst, as
//! [`gatun_wire::Packet`]s, and accepts packets to send through [`Transmit`]:
//!
//! ```text
//!   worker -> Backend::receive(burst_max, handle)
//!               '-> handle(&mut [Packet], &mut dyn Transmit)     the engine works in the backend's buffers
//!                     |-> Transmit::forward(i, packet)           packet i of the burst: no copy needed
//!                     '-> Transmit::send(packet)                 a packet of the engine's own: copied
//! ```
//!
//! # Adding a backend
//!
//! Create a crate `io-<name>`, implement [`Backend`], and keep all `unsafe` code of the driver inside it.
//!
//! - Leave [`gatun_wire::HEADROOM`] bytes before each received packet, and [`gatun_wire::TAILROOM`] after one
//!   that may grow. Check at compile time that the device's header fits [`gatun_wire::DEVICE_ROOM`]. Describe
//!   in [`gatun_wire::Offload`] the work that is left to the device. A device without offloads uses the
//!   default: complete checksums, one packet each.
//! - The buffers remain the backend's. DPDK builds the `Packet` over its mbuf; [`Transmit::forward`] moves
//!   the mbuf's data offset to [`Packet::start`] and puts the mbuf itself on the transmit ring. AF_XDP does
//!   the same with its frame. Buffers that were not forwarded when `handle` returns are freed.
//!   [`Transmit::send`] takes a new buffer and copies.
//! - A backend with several ports (inside, outside) chooses the port of a packet to send by its IP version or
//!   by a route: the worker does not know ports.
//! - A backend of Ethernet devices puts a `gatun_ether::Ether` between its frames and these packets. The
//!   `Ether` knows the ports, their routes and neighbours, and answers ARP, neighbour discovery and pings.
//! - A packet that the device refuses is counted in [`Stats`] and is never an error. `Err` from `receive` or
//!   `wait` means that the device is gone.
//! - A polled driver returns immediately from [`Backend::wait`] while it is busy, and sleeps briefly after a
//!   long idle time.
#![forbid(unsafe_code)]

pub mod mailbox;
pub mod memory;
pub mod pcap;
pub mod processors;
pub mod stats;
pub mod waker;

use gatun_wire::{HEADROOM, Packet, TAILROOM};
use std::io;
use std::time::Duration;

pub use mailbox::{Mailbox, PutError};
pub use memory::Memory;
pub use processors::{OtherProcessors, Processor, ProcessorError, Processors};
pub use stats::{NamedCounter, RxError, Stats, TxError};
pub use waker::Waker;

/// Largest number of packets in a burst.
pub const BURST_MAX: usize = 64;

/// Largest packet in bytes: a super-packet's IPv4 length field has 16 bits, and an IPv6 packet may be 40
/// bytes longer.
pub const PACKET_MAX: usize = 65_535 + 40;

/// Distance in bytes between the buffers of a burst, if they hold the largest packet. The odd 704 bytes keep
/// the first cache lines of the buffers in different cache sets and leave room after a packet for a reply
/// that pads.
pub const STRIDE: usize = 65_536 + 704;

const _: () = assert!(STRIDE >= HEADROOM + PACKET_MAX + 256 && 256 >= TAILROOM);

/// Callback that handles a received burst.
pub type Handler<'a> = dyn FnMut(&mut [Packet<'_>], &mut dyn Transmit) + 'a;

/// Returns true if no packet waits in a queue. Never blocks.
pub type QueueProbe = Box<dyn Fn() -> bool + Send + Sync>;

/// Source and sink of packets, owned by one worker.
pub trait Backend: Send {
    /// Name of the device for operators.
    fn name(&self) -> &str;

    /// Passes up to [`BURST_MAX`] waiting packets to `handle`, in one call, and returns their number. Never
    /// blocks. If no packet waits, it returns 0 without calling `handle`.
    ///
    /// # Errors
    /// Only if the device cannot be used any more.
    fn receive(&mut self, handle: &mut Handler<'_>) -> io::Result<usize>;

    /// Returns true if the last [`receive`](Backend::receive) found no further packet waiting. False if that
    /// is unknown.
    fn is_emptied(&self) -> bool {
        false
    }

    /// Returns a probe of the queue for other threads. `None` if the device has none.
    fn probe(&self) -> Option<QueueProbe> {
        None
    }

    /// Sending half, for packets outside a burst.
    fn transmit(&mut self) -> &mut dyn Transmit;

    /// Blocks until a packet waits, `waker` is woken, or `timeout` expires (`None`: never). A wake-up ends
    /// one wait and is reset here.
    ///
    /// # Errors
    /// Only if the device cannot be used any more.
    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()>;

    /// Counters of received, sent and refused packets.
    fn stats(&self) -> Stats;
}

/// Sending half of a backend. Every call is counted in [`Stats`], as sent or by its error.
pub trait Transmit {
    /// Sends packet `index` of the present burst in its present form, with [`gatun_wire::DEVICE_ROOM`] bytes
    /// before it. At most once per packet.
    fn forward(&mut self, index: usize, packet: &mut Packet<'_>);

    /// Sends a packet from a buffer that is not the backend's, with [`gatun_wire::HEADROOM`] bytes before it.
    fn send(&mut self, packet: &mut Packet<'_>);
}
