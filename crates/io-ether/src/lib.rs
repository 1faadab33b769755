//! Common code of backends with Ethernet devices.
//!
//! ```text
//!   worker <- gatun_io::Backend - EtherQueues - Frames, FrameSink -> AF_XDP, DPDK: a queue of every device
//!                                      |
//!                                   Ether (ARP, neighbour discovery, ping, routes)
//! ```
//! A driver implements [`Frames`]: it receives a burst and sends frames through its [`FrameSink`].
//! [`EtherQueues`] puts `gatun_ether::Ether` on top, exchanges neighbour updates between workers, and
//! completes checksums that the sender left unfinished ([`partial`]).
#![forbid(unsafe_code)]

pub mod backend;
mod device_events;
mod forward;
mod handover;
mod neighbours;
pub mod partial;
mod prefetch;
mod switch_ports;

pub use backend::{EtherQueues, backends};
pub use device_events::DeviceEvents;
pub use forward::forward;
pub use handover::EthernetHandover;
pub use neighbours::NeighbourExchange;
pub use prefetch::{prefetch_ahead, prefetch_frame};
pub use switch_ports::{SwitchPort, switch_reason};

pub use gatun_ether::Mac;
use gatun_io::{Stats, Waker};
use gatun_wire::Packet;
use std::io;
use std::time::Duration;

/// One queue of every Ethernet device of a worker. Devices are numbered in the order of the configuration.
pub trait Frames: Send {
    /// Sending half.
    type Out: FrameSink;

    /// Receives up to a burst ([`gatun_io::BURST_MAX`]) of waiting frames. `admit` gets each frame, which
    /// begins with its Ethernet header, and the number of its device, and returns whether the frame belongs
    /// to the burst passed to `handle`. `admit` may send other frames by [`FrameSink::relay`] or
    /// [`FrameSink::answer`]. Returns the number of frames.
    fn receive(
        &mut self,
        admit: impl FnMut(usize, &mut Packet<'_>, &mut Self::Out) -> bool,
        handle: impl FnOnce(&mut [Packet<'_>], &mut Self::Out),
    ) -> usize;

    /// Sending half, for frames outside a burst. They are sent with the next [`receive`](Self::receive) or
    /// [`wait`](Self::wait).
    fn outbox(&mut self) -> &mut Self::Out;

    /// Blocks until a frame waits, `waker` is woken, a device changes, or `timeout` expires.
    ///
    /// # Errors
    /// Returns an error if the system call that waits fails.
    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()>;

    /// Counters of received, sent and refused frames of all devices.
    fn stats(&self) -> Stats;
}

/// Sending half of [`Frames`]. A frame begins with its Ethernet header. If a device does not accept one of
/// the backend's own frames, it is counted as [`tx_own_refused`](Stats::tx_own_refused) and not as an error
/// of the device.
pub trait FrameSink {
    /// Sends frame `index` of the burst on a device, in its present form. `is_own`: a frame of the backend
    /// itself.
    fn send_frame(&mut self, index: usize, device: usize, packet: &Packet<'_>, is_own: bool);

    /// Sends a copy of a frame on a device. `is_own`: a frame of the backend itself.
    fn send_copy(&mut self, device: usize, frame: &[u8], is_own: bool);

    /// Number of the frame that is being admitted.
    fn admitted(&self) -> usize;

    /// Returns whether a device, its link or a new MAC has appeared since the last call, with the new MACs.
    fn take_returned(&mut self) -> Option<Vec<(usize, Mac)>>;

    /// Sends packet `index` of the burst on a device, in its present form.
    #[inline]
    fn forward(&mut self, index: usize, device: usize, packet: &Packet<'_>) {
        self.send_frame(index, device, packet, false);
    }

    /// Sends the frame that is being admitted on a device, in its present form.
    fn relay(&mut self, device: usize, packet: &Packet<'_>) {
        self.send_frame(self.admitted(), device, packet, false);
    }

    /// Sends the frame that is being admitted and has become a reply of the backend.
    fn answer(&mut self, device: usize, packet: &Packet<'_>) {
        self.send_frame(self.admitted(), device, packet, true);
    }

    /// Sends a copy of a frame outside a burst on a device.
    fn send(&mut self, device: usize, frame: &[u8]) {
        self.send_copy(device, frame, false);
    }

    /// Sends a copy of a frame of the backend itself.
    fn send_own(&mut self, device: usize, frame: &[u8]) {
        self.send_copy(device, frame, true);
    }
}
