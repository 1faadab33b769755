//! Integration tests in one program. The test that counts allocations is a program of its own.

#[path = "../common/mod.rs"]
mod common;
mod veth;

mod documentation;
mod hostile;
mod kernel;
mod messages;
mod neighbours;
mod ports;
mod resolution;
mod settings;
mod start;
mod take_over;
