//! A reference model of the translator, and a driver that compares it with the engine.
//!
//! [`model`] implements the stateful behaviour of `gatun-nat` again from the RFCs, for clarity and never for
//! speed. [`drive`] makes seeded histories of packets and clock steps, gives them to both, and compares
//! verdicts, every byte sent, events, counters and state. It shrinks a history that shows a difference, and
//! prints it as a regression test.
#![forbid(unsafe_code)]

pub mod coverage;
pub mod drive;
pub mod isp;
pub mod model;
pub mod offload;
pub mod tcp;
pub mod wire;
