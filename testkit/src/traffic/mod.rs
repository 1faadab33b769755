//! Traffic of many subscribers. Every packet carries its flow, its number and its send time, so that loss,
//! duplicates, reordering, corruption and delay are known exactly.
//!
//! Nothing here uses a device, a clock or a thread. A driver asks [`Traffic::write`] for packets, sends
//! them, and hands what arrives to a [`Judge`]. Both deal in IP packets; Ethernet headers are the driver's.
//! [`reflect`] turns a packet back to its sender.
//!
//! ```
//! use gatun_testkit::traffic::{Family, Judge, Protocols, Sizes, Spec, Traffic, View, reflect};
//! let spec = Spec {
//!     family: Family::V6,
//!     subscribers: 100,
//!     flows_per_subscriber: 16,
//!     protocols: Protocols::Mixed,
//!     sizes: Sizes::Imix,
//!     seed: 1,
//! };
//! let traffic = Traffic::new(spec);
//! let mut judge = Judge::new(&traffic, View::Returned);
//! let mut buffer = [0; 2048];
//! for number in 0..10_000 {
//!     let len = traffic.write(number, 1_000 * number, &mut buffer);
//!     reflect(&mut buffer[..len]);
//!     judge.packet(1_000 * number + 50, &buffer[..len]);
//! }
//! assert_eq!((judge.tally().received, judge.tally().damaged()), (10_000, 0));
//! ```

mod flows;
#[cfg(feature = "frames")]
pub mod frames;
mod generator;
mod judge;
mod pace;
mod packet;
mod shuffle;
mod sizes;
mod stamp;
mod window;

pub use flows::{Family, Flow, POOL6, Protocol, Protocols, SERVERS, SERVERS_LEN, embed, mix};
pub use generator::{Devices, Generator, Load, Received, Stage, Until};
pub use judge::{Judge, Tally, View, latencies};
pub use pace::Pace;
pub use packet::{Spec, Traffic, reflect};
pub use sizes::{LAYER_2, Sizes};

/// Bytes of the largest IP packet: a frame of 9000 without its Ethernet header and check sequence.
pub const PACKET_MAX: usize = 9000 - LAYER_2;
