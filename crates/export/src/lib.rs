//! Event export to collectors: IPFIX (RFC 7011, 8158), syslog (RFC 5424), JSON lines.
//!
//! ```text
//!   event      an event with its time of day, and names for the numbers in it
//!   json, syslog, ipfix    encode an event as a record; ipfix also packs records into messages
//!   sink       a thread: bounded queue -> records -> transport, or spool, or counted as lost
//!   thread_end lets others wait for the end of a sink's thread
//!   transport  UDP, TCP, a Unix socket; never blocks
//!   spool      records on disk while the collector is away
//! ```
//! No collector can block the translator: data that a collector does not accept is spooled, if there is a
//! spool. Otherwise it is lost and counted, and the stream reports the loss when it continues.
#![forbid(unsafe_code)]

mod event;
mod format;
mod ipfix;
pub mod json;
mod sink;
mod spool;
mod syslog;
mod thread_end;
mod transport;

pub use event::{Batch, PlanNames, Record, TimedEvent};
pub use format::Format;
pub use sink::{PreparedSink, Sink, SinkCounters, SinkSettings, SpoolSettings};
pub use thread_end::ThreadEnd;
pub use transport::{CollectorAddress, Connect, Transport, connect_directly};
