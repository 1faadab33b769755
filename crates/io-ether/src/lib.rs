//! What backends of Ethernet devices have in common.
//!
//! ```text
//!   worker  <- gatun_io::Backend -  EtherQueues  - Frames, Outbox ->  AF_XDP, DPDK: a queue of every device
//!                                        |
//!                                     Ether (ARP, neighbour discovery, ping, routes)
//! ```
//! A driver gives [`Frames`]: it receives a burst, and takes back what is to be sent through its [`Outbox`].
//! [`EtherQueues`] puts `gatun_ether::Ether` above it, exchanges news of neighbours between workers, and
//! finishes checksums that nobody has finished ([`partial`]).
#![forbid(unsafe_code)]

mod ahead;
pub mod backend;
mod forward;
mod letterbox;
pub mod partial;
mod succession;

pub use ahead::{ahead, ask_for};
pub use backend::{EtherQueues, backends};
pub use forward::forward;
pub use letterbox::Letterbox;
pub use succession::Succession;

pub use gatun_ether::Mac;
use gatun_io::{Stats, Waker};
use gatun_wire::Packet;
use std::io;
use std::time::Duration;

/// One queue of every Ethernet device of a worker. Devices have numbers, in the order of their configuration.
pub trait Frames: Send {
    /// The sending half.
    type Out: Outbox;

    /// Takes up to a burst ([`gatun_io::BURST_MAX`]) of frames that wait. `admit` is given each, beginning with its
    /// Ethernet header and with the number of its device, and says whether it is for the burst that `handle` is given;
    /// what it does not admit it may have sent by [`Outbox::relay`] or [`Outbox::answer`]. Returns how many frames there were.
    fn receive(
        &mut self,
        admit: impl FnMut(usize, &mut Packet<'_>, &mut Self::Out) -> bool,
        handle: impl FnOnce(&mut [Packet<'_>], &mut Self::Out),
    ) -> usize;

    /// The sending half, for what no burst caused. It is sent with the next [`receive`](Self::receive) or
    /// [`wait`](Self::wait).
    fn outbox(&mut self) -> &mut Self::Out;

    /// Blocks until a frame waits, `waker` is woken, something happens to a device, or `timeout` is over.
    ///
    /// # Errors
    /// Where the system refuses to wait.
    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()>;

    /// What was received, sent and refused so far, of all devices.
    fn stats(&self) -> Stats;
}

/// The sending half of [`Frames`]. A frame begins with its Ethernet header. Of those that a device does not take, the
/// backend's own are counted as [`tx_own_refused`](Stats::tx_own_refused), and not among its errors.
pub trait Outbox {
    /// Sends packet `index` of the burst out of a device, as it now is.
    fn forward(&mut self, index: usize, device: usize, packet: &Packet<'_>);

    /// Sends the frame that is being admitted out of a device, as it now is.
    fn relay(&mut self, device: usize, packet: &Packet<'_>);

    /// The same of a frame that has become an answer of the backend's own.
    fn answer(&mut self, device: usize, packet: &Packet<'_>);

    /// Sends a frame that is in no burst out of a device: it is copied.
    fn send(&mut self, device: usize, frame: &[u8]);

    /// The same of a frame of the backend's own.
    fn say(&mut self, device: usize, frame: &[u8]);

    /// Whether a device has come back, or its link, or has another address, since this was asked last; and those
    /// addresses.
    fn take_returned(&mut self) -> Option<Vec<(usize, Mac)>>;
}
