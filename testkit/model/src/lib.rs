//! A second translator, and a driver that compares it with the engine.
//!
//! [`model`] is the stateful behaviour of `gatun-nat` written again from the RFCs, for clarity and never for
//! speed. [`drive`] makes seeded histories of packets and clock steps, gives them to both, and looks for a
//! difference: in verdicts, in every byte sent, in the events, in the counters, in what there is. A history that shows
//! one is made shorter as long as it still does, and printed as a regression test.
#![forbid(unsafe_code)]

pub mod coverage;
pub mod drive;
pub mod isp;
pub mod model;
pub mod tcp;
pub mod wire;
