//! Frames between two members: their layout, and a connection without sockets.
//!
//! ```text
//!   frame  = length (4 bytes, of what follows), kind (1 byte), body
//!   body   = Hello: versions, process, position in the other stream, hashes of the configuration
//!          | Records: number, seen, records
//!          | Acknowledged: handled, after
//!          | Alive: arrived | Refused: reason | Keys: hashes of the configuration
//!          | Asked: time, shards | Promised: time, promises   (nodes of a cluster)
//!          | TimeAsked: time | TimeTold: time, wall clock
//! ```
//! Integers have their most significant byte first. Every length is checked before it is used, and nothing
//! that a peer sends makes this side allocate more than [`FRAME_LEN_MAX`] bytes for a frame.
//!
//! The layout of Hello never changes, except for fields at its end. Both sides then use the highest layout
//! that both know ([`LAYOUTS`]); without one, each refuses the other with a reason.

mod bytes;
mod clock;
mod error;
mod exchange;
mod frame;
mod keys;
mod record;

pub use error::WireError;
pub(crate) use exchange::DECLARED_GONE;
pub use exchange::{Exchange, Received, Settings};
pub use frame::{Frame, Hello, Records, ShardPromise, decode};
pub use keys::{ConfigKey, KeyDifference, differences, revision};
pub use record::{PeerRecord, SessionEnd, SessionState, ShardRelation, ShardSeats};

use std::ops::RangeInclusive;

/// Layouts of frames that this build reads and writes. Layout 2 has the frame Keys, and the last field of
/// Hello; layout 3 has the frames and records of a cluster's shards, which no pair sends. In layout 4, an
/// acknowledgement is not about shards whose whole state its sender has still to send. Layout 5 has the
/// record of a closed TCP connection, and sessions without their lifetimes, which no receiver has used. In
/// layout 6, members tell each other their wall clocks. No released build has layout 1.
pub const LAYOUTS: RangeInclusive<u16> = 2..=6;
/// Lowest layout with the frames about wall clocks.
pub(crate) const CLOCK_LAYOUT: u16 = 6;
/// Lowest layout with brief sessions, and with the record of a closed TCP connection.
pub(crate) const BRIEF_LAYOUT: u16 = 5;
/// Lowest layout in which an acknowledgement is not about shards whose walk is not complete.
pub(crate) const PARTIAL_LAYOUT: u16 = 4;
/// Lowest layout with the shards of a cluster.
pub const CLUSTER_LAYOUT: u16 = 3;
/// Longest frame, in bytes, without its length.
pub const FRAME_LEN_MAX: usize = 64 * 1024;
/// Bytes before a frame.
pub const LENGTH_LEN: usize = 4;
