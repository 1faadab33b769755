//! Tests of `nat` about NAT44, with the programs beside the engine (`beside_nat.rs`).

use super::beside_nat as common;
use common::{OWN4, OWN6, nat64, pool, v4, v6};
use gatun_nat::Plan;
use gatun_nat::plan::{Filtering, Nat44, Net4};

#[path = "../../../nat/tests/nat44/accounts.rs"]
mod accounts;
#[path = "../../../nat/tests/nat44/changes.rs"]
mod changes;
#[path = "../../../nat/tests/nat44/filtering.rs"]
mod filtering;
#[path = "../../../nat/tests/nat44/fragments.rs"]
mod fragments;
#[path = "../../../nat/tests/nat44/hairpin.rs"]
mod hairpin;
#[path = "../../../nat/tests/nat44/icmp.rs"]
mod icmp;
#[path = "../../../nat/tests/nat44/instances.rs"]
mod instances;
#[path = "../../../nat/tests/nat44/lifetimes.rs"]
mod lifetimes;
#[path = "../../../nat/tests/nat44/mapping.rs"]
mod mapping;
#[path = "../../../nat/tests/nat44/overload.rs"]
mod overload;
#[path = "../../../nat/tests/nat44/realms.rs"]
mod realms;

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

#[test]
fn a_session_of_these_tests_is_translated_by_both_programs() {
    use common::*;
    let mut bed = Bed::new(&plan44());
    let port = bed.through(&udp4(A, 5000, super::nat44::SERVER, 53, b"x")).sport;
    if super::refusal().is_none() {
        let before = hits();
        bed.through(&udp4(A, 5000, super::nat44::SERVER, 53, b"y"));
        bed.through(&udp4(super::nat44::SERVER, 53, T, port, b"z"));
        assert_eq!(hits() - before, 4);
    }
}
