//! Events of the translator, for collectors: IPFIX (RFC 7011, 8158), syslog (RFC 5424), JSON lines.
//!
//! ```text
//!   told       an event, its time of day and the names of its numbers
//!   json, syslog, ipfix    an event as a unit of bytes; ipfix also wraps units in messages
//!   sink       a thread: bounded queue -> units -> transport, or spool, or counted as lost
//!   ended      that a sink's thread is at its end
//!   transport  UDP, TCP, a Unix socket; never waits
//!   spool      units on disk while the collector is away
//! ```
//! Whatever a collector does, nobody waits for it: what it does not take is spooled where there is a spool, else lost,
//! counted, and told in the stream itself once that goes on.
#![forbid(unsafe_code)]

mod ended;
mod format;
mod ipfix;
pub mod json;
mod sink;
mod spool;
mod syslog;
mod told;
mod transport;

pub use ended::Ended;
pub use format::{Format, Unit};
pub use sink::{Prepared, Settings, Sink, SinkCounters, SpoolSettings};
pub use told::{Batch, Names, Told};
pub use transport::{Connect, Target, Transport, directly};
