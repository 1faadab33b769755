//! Addresses and plans of the tests.

use super::common::{OWN4, OWN6, nat64, pool, v4, v6};
use gatun_nat::Plan;
use gatun_nat::plan::{Filtering, Nat44, Net4};

/// Inside hosts, the public address, and outside hosts.
pub(super) const A: &str = "100.64.0.2";
pub(super) const B: &str = "100.64.0.3";
pub(super) const T: &str = "192.0.2.1";
pub(super) const SERVER: &str = "198.51.100.7";
pub(super) const OTHER: &str = "198.51.100.8";
pub(super) const ROUTER: &str = "203.0.113.9";
pub(super) const POOL6: &str = "2001:db8:64::/96";

pub(super) fn net(addr: &str, len: u8) -> Net4 {
    Net4::new(v4(addr), len).unwrap()
}

pub(super) fn instance() -> Nat44 {
    Nat44 { name: "cgn".into(), inside: vec![net("100.64.0.0", 10)], ..Nat44::default() }
}

/// Plan with one instance with one public address.
pub(super) fn plan44() -> Plan {
    Plan {
        own4: Some(v4(OWN4)),
        own6: Some(v6(OWN6)),
        pools: vec![pool(T, T, (1, 65535))],
        nat44: vec![instance()],
        ..Plan::default()
    }
}

pub(super) fn filtered(filtering: Filtering) -> Plan {
    let mut plan = plan44();
    plan.nat44[0].filtering = filtering;
    plan
}

/// Plan with a NAT64 and a NAT44 instance that share the pool.
pub(super) fn both_kinds() -> Plan {
    Plan { nat64: vec![nat64(POOL6)], ..plan44() }
}
