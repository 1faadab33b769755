//! Client of the kernel's links, addresses and routes (rtnetlink(7)).
//!
//! ```text
//!   prefix    an address with a prefix length
//!   query     reads: links, addresses, the route to an address
//!   routes    the main table, compared with the routes that a device is to have
//!   device    sets the MTU, state, addresses and routes of one interface
//!   netfilter rules that forwarded packets meet
//!   monitor   notices of changes, for a thread that waits for them
//!   client    the socket below all of them: requests, batches, answers
//! ```
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod client;
pub mod device;
pub mod monitor;
pub mod netfilter;
pub mod prefix;
pub mod query;
pub mod routes;

pub use device::{Device, DeviceError, Existing, has_ipv6};
pub use monitor::{Group, Monitor, Notice};
pub use prefix::Prefix;
pub use query::{Link, RouteResult};
pub use routes::{Compared, Route, compare};
