//! Offload manager: keeps the table of a fast path equal to what the engines have decided.
//!
//! ```text
//!   engine --(state feed)--------------> Manager --(install, remove)--> Target: kernel, switch, card
//!   engine <--(mark, seen, credit, release)-- Manager <--(use of entries)-- Target
//! ```
//! The engines keep the authority over every session. The manager marks a session, waits until the engine has
//! confirmed the mark, and only then installs an entry. It removes the entry before it releases the session.
//! So no entry outlives its binding, and no port is given to another host while an entry for it may exist.
//! This holds whatever is delayed, lost or killed: marks and entries survive the manager, and its successor
//! compares the two.
//!
//! The manager knows no kernel, no thread and no clock: [`Manager::turn`] does a bounded amount of work and
//! returns the time until the next turn.
//!
//! Memory: about 96 bytes for each entry (record, index, list of free places), up to
//! [`Settings::entries_max`]. The queues of commands are bounded too: the manager stops reading a feed while
//! commands wait. While a worker does not answer, each removed entry waits as an order of 112 bytes.
#![forbid(unsafe_code)]

mod engine;
mod entries;
mod manager;
mod orders;
mod paths;
mod refusals;
mod settings;
mod status;
mod target;

pub use engine::{Engine, Page, RecordStream, WorkerEngine};
pub use manager::{FlowFilter, Manager};
pub use settings::{InstanceSettings, Rules, Settings, feed_policy};
pub use status::{LATENCY_BOUNDS, Latency, Status};
pub use target::{EntryUse, OffloadedFlow, Placement, Refusal, Removal, Target};
