//! Stateful NAT64 (RFC 6146) as seen from outside: packets and time in, packets and counters out.

#[path = "../common/mod.rs"]
mod common;

mod addresses;
mod blocks;
mod change_histories;
mod changes;
mod clear;
mod events;
mod explain;
mod hairpin;
mod histories;
mod icmp_errors;
mod inspect;
mod mapping;
mod pools;
mod syns;
mod tcp_states;
mod time;

/// The prefix of most tests.
const POOL6: &str = "2001:db8:64::/96";
/// The server and another one, behind the prefix.
const SERVER6: &str = "2001:db8:64::c633:6407";
const OTHER: &str = "198.51.100.9";
const OTHER6: &str = "2001:db8:64::c633:6409";
/// The pool's address.
const T: &str = "192.0.2.1";
/// A prefix of each length. None contains 2001:beef::/32.
const PREFIXES: [&str; 6] = [
    "2001:db8::/32",
    "2001:db8:100::/40",
    "2001:db8:122::/48",
    "2001:db8:122:300::/56",
    "2001:db8:122:344::/64",
    "2001:db8:122:344::/96",
];
