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
mod realms;
mod session_file;

use common::{OWN4, OWN6, nat64, pool, v4, v6};
use gatun_nat::Plan;
use gatun_nat::plan::{Filtering, Nat44, Net4};

/// Inside hosts, the public address, and outside hosts.
const A: &str = "100.64.0.2";
const B: &str = "100.64.0.3";
const T: &str = "192.0.2.1";
const SERVER: &str = "198.51.100.7";
const OTHER: &str = "198.51.100.8";
const ROUTER: &str = "203.0.113.9";
const POOL6: &str = "2001:db8:64::/96";

fn net(addr: &str, len: u8) -> Net4 {
    Net4::new(v4(addr), len).unwrap()
}

fn instance() -> Nat44 {
    Nat44 { name: "cgn".into(), inside: vec![net("100.64.0.0", 10)], ..Nat44::default() }
}

/// Plan with one instance with one public address.
fn plan44() -> Plan {
    Plan {
        own4: Some(v4(OWN4)),
        own6: Some(v6(OWN6)),
        pools: vec![pool(T, T, (1, 65535))],
        nat44: vec![instance()],
        ..Plan::default()
    }
}

fn filtered(filtering: Filtering) -> Plan {
    let mut plan = plan44();
    plan.nat44[0].filtering = filtering;
    plan
}

/// Plan with a NAT64 and a NAT44 instance that share the pool.
fn both_kinds() -> Plan {
    Plan { nat64: vec![nat64(POOL6)], ..plan44() }
}
