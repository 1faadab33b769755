//! Histories: made from a seed, run through engine and model, compared, and shrunk if they differ.

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

pub use compare::{Failure, Outcome, run};
pub use history::{Cut, Form, FragmentDefect, Op, PacketDefect, Proto, Target, history};
pub use universe::universe;
