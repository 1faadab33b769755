//! A log of who had which public port when: append-only, compressed, chained by hashes, and searched in milliseconds.
//!
//! ```text
//!   Store   writes: journal (a frame a commit, on disk before it is acknowledged) -> sealed, sorted segments
//!   Reader  reads, with or without a writer: who(address, port, time), show, verify
//! ```
//! What happens is a [`Record`]; when a daemon ran, by which configuration, and what is missing, is a [`Mark`].
//! docs/how-to/logging.md describes the files, decision 0071 why they are so.
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

/// Reads bytes as each of the parts that files consist of, whose hashes would keep all but the right ones out: for hostile
/// input. None of it may panic, or take memory without bound.
#[doc(hidden)]
pub fn read_as_anything(bytes: &[u8]) -> usize {
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
pub use who::{Answer, By, Holder, InForce, Outcome};
