//! The API of a running Gatun: HTTP/JSON on a Unix socket.
//!
//! [`types`] are the answers, also printed by `gatun show -o json`. [`paths`] lists the requests, and
//! [`openapi`] describes both. [`client`] sends requests. This crate does not depend on the translator.
#![forbid(unsafe_code)]

pub mod client;
pub mod hex;
pub mod openapi;
pub mod paths;
pub mod request;
pub mod schema;
pub mod types;

/// Default socket of a daemon.
pub const SOCKET: &str = "/run/gatun/api.sock";
