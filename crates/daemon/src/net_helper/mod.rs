//! Network helper: a separate process that keeps the capabilities which the daemon drops after start-up.
//!
//! ```text
//!   gatun run                                     gatun network-helper
//!   workers, API, log: no capability              CAP_NET_ADMIN; no file, no packet
//!     client    --- Request: new routes, ... -->  process
//!               <-- Report: lines, sockets -----
//!               socketpair (SOCK_SEQPACKET)
//! ```
//! The daemon starts the helper while it opens its ports and sends it the list of devices. After
//! `Request::Start` the helper accepts no other device, user or mode: docs/decisions/0011 lists what a
//! compromised worker can ask for. Modules: `channel` carries messages, `protocol` defines them, `process` is
//! the helper, `client` the daemon's side, `interfaces` both sides for AF_XDP. `announced`, for announced
//! routes, and `programs`, for the kernel fast path, have helpers of their own; `messages` has the texts.

mod announced;
mod channel;
mod client;
#[cfg(feature = "xdp")]
mod interfaces;
mod messages;
mod process;
mod programs;
mod protocol;

pub(crate) use announced::{AnnouncedRoutes, RoutesReport, for_routes};
pub(crate) use client::{HelperState, Routes, for_devices};
#[cfg(feature = "xdp")]
pub(crate) use interfaces::for_interfaces;
pub use process::{is_network_helper, serve_as_network_helper};
pub(crate) use programs::{ProgramHelper, for_programs};
