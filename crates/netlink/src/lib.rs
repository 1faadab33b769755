//! Client of the kernel's links, addresses and routes (rtnetlink(7)).
//!
//! ```text
//!   prefix    an address with a prefix length
//!   query     reads: links, addresses, the route to an address
//!   dropped   counter of packets that an interface has dropped
//!   routes    comparison of the main table with the wanted routes of a device
//!   device    sets the MTU, state, addresses and routes of one interface
//!   filter    eBPF programs at the egress of an interface
//!   netfilter firewall rules for forwarded packets
//!   xdp       XDP abilities of drivers
//!   monitor   notifications of changes, for a thread that waits
//!   tracked   routes that a box depends on, and that the main table lacks
//!   client    the socket below most of them: requests, batches, answers
//!   raw       messages of other families, below netfilter and xdp
//! ```
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod client;
pub mod device;
mod dropped;
pub mod filter;
pub mod monitor;
pub mod netfilter;
pub mod prefix;
pub mod query;
mod raw;
pub mod routes;
pub mod tracked;
pub mod xdp;

pub use device::{Device, DeviceError, Existing, has_ipv6};
pub use dropped::DroppedByDevice;
pub use filter::EgressFilter;
pub use monitor::{Group, Monitor, Notice};
pub use prefix::Prefix;
pub use query::{Link, RouteResult};
pub use routes::{Compared, Route, compare};
pub use tracked::TrackedRoutes;
pub use xdp::{XdpAbilities, xdp_abilities};
