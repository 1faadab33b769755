//! Numbered traffic through a translator, and an account of every packet.
//!
//! ```text
//!   subscribers ---- device 0 ===> inside  [ NAT64 translator ]  outside ===> device 1 ---- servers
//!    (new packets, returned ones)                                              (turned round at once)
//! ```
//! A [`Generator`] has both ends of a translator: it sends UDP over IPv6 of many subscribers' flows, turns round what comes out
//! as IPv4, and looks at what comes back. Every packet has its flow, a number, a time and a filling whose checksum is looked at, so that
//! loss, reordering, duplication, damage, wrong delivery and latency are known to the packet ([`Report`]). It runs over
//! any [`gatun_io_ether::Frames`]: AF_XDP, or DPDK with memif.
//!
//! Where `gatun-traffic` has packets of every kind and judges them in every respect, these are made for speed: a template that
//! is changed in place, so that one processor can keep a translator on another one busy.
//!
//! What returns is sent again as another flow's packet, in the same buffer; a [window](Settings::window) says how many are
//! on their way. With a forwarder in the translator's place everything works the same, as the other end turns IPv6
//! packets round as well.

mod generator;
mod packet;
mod score;

pub use generator::{Error, Generator, Order, Progress, Settings};
pub use packet::Flows;
pub use score::{Latency, Report};
