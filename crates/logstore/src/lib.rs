//! Log of public port owners: append-only, compressed, chained by hashes, searched in milliseconds.
//!
//! ```text
//!   Store   writes: journal (a frame a commit, on disk before it is acknowledged) -> sealed, sorted segments
//!   Reader  reads, with or without a writer: who(address, port, time), show, verify
//! ```
//! A [`Record`] is an event of a port block or binding. A [`Mark`] records running times of daemons, their
//! configurations and losses. docs/how-to/logging.md describes the files, decision 0071 the reasons.
#![forbid(unsafe_code)]

mod chunk;
pub mod disk;
mod error;
mod hash;
mod history;
mod journal;
mod mark;
mod names;
mod plan;
mod reader;
mod receipt;
mod record;
mod retire;
mod segment;
mod store;
pub mod time;
mod varint;
mod verify;
mod who;

pub use disk::{Directory, Disk};

/// Parses bytes as each part of a file, without the hashes that reject changed ones. For fuzzing: it must not
/// panic or use unbounded memory.
#[doc(hidden)]
pub fn parse_as_each_part(bytes: &[u8]) -> usize {
    let chunk = chunk::decode(bytes).map_or(0, |records| records.len());
    let marks = mark::decode(bytes).map_or(0, |marks| marks.len());
    let journal = journal::scan(bytes, None).records.len();
    chunk + marks + journal
}
pub use error::{LogError, Result};
pub use hash::Hash;
pub use mark::Mark;
pub use plan::{
    AllocationInForce, ByConfiguration, InstanceInForce, Mapped, PlanInForce, PoolInForce, RangeInForce,
    SiitInForce, StaticInForce,
};
pub use reader::{Entry, Reader};
pub use record::{Record, RecordKind};
pub use store::{Options, Status, Store};
pub use verify::Verification;
pub use who::{Answer, Evidence, Holder, InForce, Outcome};
