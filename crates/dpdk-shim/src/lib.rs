//! Shims of DPDK: functions in C that use DPDK's headers, and are called from Rust.
//!
//! A crate with a shim has it in `shim/shim.c`. Its build script compiles it into a shared object
//! (`compile`), which is embedded in the program and loaded when DPDK is needed (`functions!`). So
//! programs start on machines without DPDK.

#[cfg(feature = "compile")]
mod compile;
#[cfg(feature = "load")]
mod load;
#[cfg(feature = "load")]
mod memif;

#[cfg(feature = "compile")]
pub use compile::compile;
#[cfg(feature = "load")]
pub use load::{LoadError, Shim, arguments, supported};
#[cfg(feature = "load")]
pub use memif::{argument, free_socket, is_client};
