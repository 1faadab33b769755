//! Where packets come from and go to.
//!
//! A [`Backend`] is everything that one worker receives from and sends to: one queue of a TUN device, or
//! queue n of every port of a network card. It lends its own buffers to the engine for the length of one
//! burst, as [`gatun_wire::Packet`]s, and takes back what is to be sent through [`Transmit`]:
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
//! Make a crate `io-<name>`, implement [`Backend`], and keep every `unsafe` of the driver inside it.
//!
//! - Leave [`gatun_wire::HEADROOM`] bytes in front of each received packet and [`gatun_wire::TAILROOM`] behind one that
//!   may grow, check at build time that the device's header fits [`gatun_wire::DEVICE_ROOM`], and say in
//!   [`gatun_wire::Offload`] exactly what the device has left undone. A device without offloads uses the
//!   default: checksums complete, one packet each.
//! - The buffers stay the backend's: DPDK builds the `Packet` over its mbuf and, in
//!   [`Transmit::forward`], moves the mbuf's data offset to [`Packet::start`] and hands the mbuf itself to
//!   the transmit ring; AF_XDP does the same with its frame. What was not forwarded when `handle` returns
//!   is freed. [`Transmit::send`] takes a fresh buffer and copies.
//! - A backend of several ports (inside, outside) chooses the port of a packet that is sent, by its IP
//!   version or by a route: the worker does not know ports.
//! - A backend of Ethernet devices puts a `gatun_ether::Ether` between its frames and these packets: it knows the
//!   ports, their routes and neighbours, and answers what a host on a link has to.
//! - A device that refuses a packet is counted in [`Stats`], never an error. `Err` from `receive` or
//!   `wait` means that the device is gone.
//! - A polled driver returns at once from [`Backend::wait`] while it is busy, and sleeps for a short time
//!   when it has been idle for long.
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

pub use mailbox::{Mailbox, NotPut};
pub use memory::Memory;
pub use processors::{Others, Processor, Processors, Undividable};
pub use stats::{Named, RxError, Stats, TxError};
pub use waker::Waker;

/// Packets that a backend hands over at a time, at most.
pub const BURST_MAX: usize = 64;

/// The largest packet, bytes: a super-packet's IPv4 length field has 16 bits, an IPv6 one is 40 bytes more.
pub const PACKET_MAX: usize = 65_535 + 40;

/// Bytes from one buffer of a burst to the next, where the buffers take the largest packet. The odd 704 keep the
/// buffers' first lines out of one cache set, and leave room behind a packet for a reply that pads.
pub const STRIDE: usize = 65_536 + 704;

const _: () = assert!(STRIDE >= HEADROOM + PACKET_MAX + 256 && 256 >= TAILROOM);

/// What is done with a received burst.
pub type Handler<'a> = dyn FnMut(&mut [Packet<'_>], &mut dyn Transmit) + 'a;

/// A source and sink of packets, owned by one worker.
pub trait Backend: Send {
    /// The device, as an operator knows it.
    fn name(&self) -> &str;

    /// Hands up to [`BURST_MAX`] waiting packets to `handle`, once, and returns how many there were.
    /// Never blocks; with nothing waiting, `handle` is not called and 0 is returned.
    ///
    /// # Errors
    /// Only where the device cannot be used any more.
    fn receive(&mut self, handle: &mut Handler<'_>) -> io::Result<usize>;

    /// The way out, for packets that no burst caused.
    fn transmit(&mut self) -> &mut dyn Transmit;

    /// Blocks until a packet waits, `waker` is woken, or `timeout` is over (`None`: for ever). A wake-up
    /// ends one wait: it is reset here.
    ///
    /// # Errors
    /// Only where the device cannot be used any more.
    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()>;

    /// What was received, sent and refused so far.
    fn stats(&self) -> Stats;
}

/// The sending half of a backend. Every call is counted in [`Stats`], as sent or by its error.
pub trait Transmit {
    /// Sends packet `index` of the burst that is being handled, as it now is: with [`gatun_wire::DEVICE_ROOM`] bytes in
    /// front. At most once per packet.
    fn forward(&mut self, index: usize, packet: &mut Packet<'_>);

    /// Sends a packet in a buffer that is not the backend's, with [`gatun_wire::HEADROOM`] in front.
    fn send(&mut self, packet: &mut Packet<'_>);
}
