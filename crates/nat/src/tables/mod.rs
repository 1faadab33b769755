//! Tables of the translator: bindings, sessions, pools, ports, subscribers, fragments and limits.

pub(crate) mod bib;
pub mod eamt;
pub(crate) mod entry_counts;
pub mod event;
pub mod feed;
pub mod fragment;
pub mod icmp_limit;
pub(crate) mod ident;
pub(crate) mod inheritance;
pub(crate) mod path_mtu;
pub mod pool4;
pub(crate) mod ports;
pub(crate) mod prefixes;
pub(crate) mod reader_wait;
pub(crate) mod restore_error;
pub(crate) mod session;
pub(crate) mod session_file;
pub(crate) mod sizes;
pub mod standby;
pub mod subscriber;
pub mod syn_store;
pub(crate) mod traffic;
