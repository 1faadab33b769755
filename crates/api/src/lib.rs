//! The API of a running Gatun: HTTP/JSON on a Unix socket.
//!
//! [`types`] are what is answered, and what `gatun show -o json` prints; [`paths`] is the list of what can be asked;
//! [`openapi`] makes one document of both. [`client`] asks. None of it knows the translator.
#![forbid(unsafe_code)]

pub mod client;
pub mod hex;
pub mod openapi;
pub mod paths;
pub mod request;
pub mod schema;
pub mod text;
pub mod types;

/// Where a daemon listens if nothing else is configured.
pub const SOCKET: &str = "/run/gatun/api.sock";
