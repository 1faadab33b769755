//! Tables of the translator: bindings, sessions, pools, ports, subscribers, fragments and limits.

pub(crate) mod bib;
pub mod eamt;
pub mod fragment;
pub mod icmp_limit;
pub(crate) mod ident;
pub(crate) mod path_mtu;
pub mod pool4;
pub(crate) mod pool6;
pub(crate) mod ports;
pub(crate) mod session;
pub mod subscriber;
pub mod syn_store;
