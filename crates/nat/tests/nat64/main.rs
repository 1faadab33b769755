//! Stateful NAT64 (RFC 6146) as seen from outside: packets and time in, packets and counters out.

#[path = "../common/mod.rs"]
mod common;

mod addresses;
mod addressing;
mod basic;
mod blocks;
mod change_histories;
mod changes;
mod clear;
mod events;
mod explain;
mod fragments;
mod hairpin;
mod histories;
mod icmp_errors;
mod inspect;
mod mapping;
mod pools;
mod syns;
mod tcp_states;
mod time;

use addressing::{OTHER, OTHER6, POOL6, PREFIXES, SERVER6, T};
