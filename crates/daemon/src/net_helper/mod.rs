//! The network helper: a process of its own that keeps the capabilities which the daemon gives up after start-up.
//!
//! ```text
//!   gatun run                                     gatun network-helper
//!   workers, API, log: no capability              CAP_NET_ADMIN; no file, no packet
//!     client    --- Request: new routes, ... -->  process
//!               <-- Report: lines, sockets -----
//!               socketpair (SOCK_SEQPACKET)
//! ```
//! The daemon starts it while it opens its ports and tells it which devices it has. After `Request::Start` the helper
//! takes no other device, no other user and no other mode: docs/decisions/0011 lists what a worker that was taken over
//! can ask it for. Modules: `channel` carries messages, `protocol` defines them, `process` is the helper, `client` the
//! daemon's end, `interfaces` both ends of what AF_XDP needs; `messages` has the texts.

mod channel;
mod client;
#[cfg(feature = "xdp")]
mod interfaces;
mod messages;
mod process;
mod protocol;

pub(crate) use client::{HelperState, Routes, for_devices};
#[cfg(feature = "xdp")]
pub(crate) use interfaces::for_interfaces;
pub use process::{is_network_helper, serve_as_network_helper};
