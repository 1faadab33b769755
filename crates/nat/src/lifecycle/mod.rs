//! Life of an engine between packets: expiry, reconfiguration, restart, inspection and reports.

pub(crate) mod clear;
pub mod inspect;
pub mod memory;
pub(crate) mod offload;
pub(crate) mod probe;
pub mod reconfigure;
pub mod report;
pub mod session_file;
pub(crate) mod standby;
pub(crate) mod sweep;
pub(crate) mod take_over;
