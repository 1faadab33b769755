//! Histories: made from a seed, run through engine and model, compared, and shrunk if they differ.

pub mod beside;
pub mod change;
pub mod compare;
pub mod forge;
pub mod history;
mod packets;
mod realms;
pub mod rng;
pub mod shrink;
pub mod universe;
pub mod workers;

pub use beside::{Beside, offered_sessions};
pub use compare::{Failure, Outcome, run, run_beside};
pub use history::{Cut, Form, FragmentDefect, Op, PacketDefect, Proto, Target, history, with_flows};
pub use universe::universe;
