//! P4 switch in software: hosts a `.spec` of p4c-dpdk on DPDK's SWX pipeline.
//!
//! [`Object::compile`] makes C of the program and a shared object of that. [`Switch`] loads it, moves
//! frames between devices and the pipeline, and changes the program's tables. A switch belongs to one
//! thread: no packet is looked up while a table changes.
//!
//! The crate is empty without its feature `libdpdk`, which needs Debian's libdpdk-dev 22.11. At run time it
//! needs a C compiler, and two headers of DPDK's source package that the generated code includes:
//! `scripts/dpdk-headers` fetches them.
//!
//! Unsafe code: `environment.rs`, `switch.rs` and `tables.rs` call the shim's functions (`sys.rs`,
//! `shim/`). `sys.rs` loads the shim, and DPDK's libraries with it.
#![cfg(all(target_os = "linux", feature = "libdpdk"))]

mod code;
mod entries;
mod environment;
mod error;
mod layout;
mod metadata;
mod names;
mod object;
mod program;
mod switch;
mod sys;
mod tables;

pub use environment::{Environment, EnvironmentConfig};
pub use error::SwitchError;
pub use layout::{Description, TableInfo};
pub use object::{Object, ObjectConfig};
pub use switch::{MeterRates, PORTS_MAX, PortConfig, PortCounters, Switch, SwitchConfig};
pub use tables::{Entry, Match, Removal, Table};
