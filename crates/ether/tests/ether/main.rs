//! The crate from outside; what counts allocations is a program of its own.

mod cable;
#[path = "../common/mod.rs"]
mod common;

mod documentation;
mod everyday;
mod hostile;
mod kernel;
mod messages;
mod neighbours;
mod ports;
mod settings;
mod start;
mod succession;
