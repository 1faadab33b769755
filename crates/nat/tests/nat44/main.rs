//! NAT44: the requirements of the RFCs, one by one. An independent parser reads the packets.

#[path = "../common/mod.rs"]
mod common;

mod accounts;
mod changes;
mod filtering;
mod fragments;
mod hairpin;
mod icmp;
mod inherit;
mod instances;
mod lifetimes;
mod mapping;
mod overload;
mod plans;
mod realms;
mod session_file;

use plans::{A, B, OTHER, POOL6, ROUTER, SERVER, T, both_kinds, filtered, instance, net, plan44};
