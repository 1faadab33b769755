//! A fast path in virtual time: real engines, the real manager, and a table that translates.
//!
//! ```text
//!   packets -> Table --hit--> counted in its entry
//!                    --miss-> Nat::process        Manager <-- feeds, commands, walks --> Nat
//! ```
//! Seeded histories delay everything: commands, records, walks, installations. The manager and the engines
//! are killed and restarted; records are lost because the rings are short; queues are full; the table refuses
//! flows; leases expire. [`World`] checks after each step:
//!
//! - No entry outlives its binding: the session of each entry is marked or in quarantine.
//! - No port is given to another inside host while an entry for it may exist.
//! - Each packet has one fate: translated packets of the table are credited exactly once, or lost with a
//!   killed manager.
//! - A session's lifetime includes the last packet that the table has translated, before its release.
//! - No packet of a session that moves into a switch is overtaken, unless it has been pending for
//!   `gatun_p4_controller::PENDING_MAX`: the controller changes entries that are pending for longer.
//! - Whenever everything has come to rest, entries and marks are the same set; at the end nothing is left.

mod check;
mod engine;
mod history;
mod setup;
mod step;
mod switch;
mod switch_link;
mod switch_moves;
mod table;
mod target;
mod world;

pub use history::{Failure, history, run, shrink, switch_history};
pub use setup::Setup;
pub use step::Op;
pub use switch::SwitchFault;
pub use world::World;
