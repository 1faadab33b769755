//! Tests of `nat` about NAT64, with the programs beside the engine (`beside_nat.rs`).

use super::beside_nat as common;

#[path = "../../../nat/tests/nat64/addresses.rs"]
mod addresses;
#[path = "../../../nat/tests/nat64/blocks.rs"]
mod blocks;
#[path = "../../../nat/tests/nat64/change_histories.rs"]
mod change_histories;
#[path = "../../../nat/tests/nat64/changes.rs"]
mod changes;
#[path = "../../../nat/tests/nat64/clear.rs"]
mod clear;
#[path = "../../../nat/tests/nat64/hairpin.rs"]
mod hairpin;
#[path = "../../../nat/tests/nat64/histories.rs"]
mod histories;
#[path = "../../../nat/tests/nat64/icmp_errors.rs"]
mod icmp_errors;
#[path = "../../../nat/tests/nat64/mapping.rs"]
mod mapping;
#[path = "../../../nat/tests/nat64/pools.rs"]
mod pools;
#[path = "../../../nat/tests/nat64/syns.rs"]
mod syns;
#[path = "../../../nat/tests/nat64/tcp_states.rs"]
mod tcp_states;
#[path = "../../../nat/tests/nat64/time.rs"]
mod time;

const POOL6: &str = "2001:db8:64::/96";
const SERVER6: &str = "2001:db8:64::c633:6407";
const OTHER: &str = "198.51.100.9";
const OTHER6: &str = "2001:db8:64::c633:6409";
const T: &str = "192.0.2.1";
const PREFIXES: [&str; 6] = [
    "2001:db8::/32",
    "2001:db8:100::/40",
    "2001:db8:122::/48",
    "2001:db8:122:300::/56",
    "2001:db8:122:344::/64",
    "2001:db8:122:344::/96",
];

#[test]
fn a_session_of_these_tests_is_translated_by_both_programs() {
    use common::*;
    let mut bed = Bed::nat64(POOL6);
    let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
    if super::refusal().is_none() {
        let before = hits();
        bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"y"));
        bed.through(&udp4(SERVER, 53, T, port, b"z"));
        assert_eq!(hits() - before, 4);
    }
}
