use super::Difference;
use crate::base::plan::*;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

fn range(first: &str, last: &str, ports: (u16, u16)) -> PoolRange {
    PoolRange { first: first.parse().unwrap(), last: last.parse().unwrap(), ports, transports: [true; 3] }
}

fn pool(name: &str, ranges: &[PoolRange]) -> Pool4 {
    Pool4 { name: name.to_string(), ranges: ranges.to_vec(), ..Pool4::default() }
}

fn siit(name: &str, mappings: &[(&str, &str)]) -> Siit {
    let host = |(v4, v6): &(&str, &str)| Eam {
        v4: Net4::new(v4.parse().unwrap(), 32).unwrap(),
        v6: Net6::new(v6.parse().unwrap(), 128).unwrap(),
    };
    Siit {
        name: name.to_string(),
        eamt: mappings.iter().map(host).collect(),
        hairpin: Hairpin::Intrinsic,
        ..Siit::default()
    }
}

fn changes(old: &Plan, new: &Plan) -> Vec<String> {
    let d = Difference::between(old, new);
    assert!(d.restarts.is_empty(), "{d:?}");
    d.changes
}

#[test]
fn equal_plans_have_no_difference() {
    let plan = Plan {
        pools: vec![pool("a", &[range("192.0.2.0", "192.0.2.9", (1024, 65_535))])],
        siit: vec![siit("s", &[("192.0.2.77", "2001:db8::1")])],
        ..Plan::default()
    };
    let d = Difference::between(&plan, &plan.clone());
    assert!(d.is_empty() && d.ends.is_empty(), "{d:?}");
}

#[test]
fn changed_addresses_and_ports_of_a_pool_are_listed_by_range() {
    let of = |ranges: &[PoolRange]| Plan { pools: vec![pool("a", ranges)], ..Plan::default() };
    let old = of(&[range("192.0.2.0", "192.0.2.9", (1024, 65_535))]);
    let same = of(&[
        range("192.0.2.4", "192.0.2.9", (1024, 65_535)),
        range("192.0.2.0", "192.0.2.3", (1024, 65_535)),
    ]);
    assert!(Difference::between(&old, &same).is_empty());
    let new = of(&[
        range("192.0.2.2", "192.0.2.8", (1024, 65_535)),
        range("192.0.2.9", "192.0.2.9", (1, 9)),
        range("203.0.113.1", "203.0.113.1", (1, 9)),
    ]);
    let d = Difference::between(&old, &new);
    assert_eq!(
        d.changes,
        [
            "pool \"a\": added 203.0.113.1 (1 address)",
            "pool \"a\": removed 192.0.2.0-192.0.2.1 (2 addresses)",
            "pool \"a\": changed ports of 192.0.2.9 (1 address)",
        ]
    );
    assert_eq!(
        d.ends,
        [
            "pool \"a\": all sessions and bindings of 192.0.2.0-192.0.2.1 (2 addresses)",
            "pool \"a\": sessions and bindings at removed ports of 192.0.2.9 (1 address)",
        ]
    );
}

#[test]
fn subscribers_that_get_another_block_by_the_formula_are_counted() {
    let of = |inside: &[(&str, u8)]| {
        let inside = inside.iter().map(|(a, len)| Net6::new(a.parse().unwrap(), *len).unwrap()).collect();
        let blocks = Blocks { size: 1024, ..Blocks::default() };
        let terms = Deterministic { inside, subscriber_len: 64, overflow_per_address: 0, blocks };
        let pool = pool("a", &[range("192.0.2.0", "192.0.2.9", (1024, 65_535))]);
        Plan {
            pools: vec![Pool4 { allocation: Allocation::Deterministic(terms), ..pool }],
            ..Plan::default()
        }
    };
    let old = of(&[("2001:db8::", 60)]);
    let grown = Difference::between(&old, &of(&[("2001:db8::", 59)]));
    assert_eq!((grown.changes.len(), grown.ends.len()), (1, 0), "{grown:?}");
    let moved = Difference::between(&old, &of(&[("2001:db8:1::", 64), ("2001:db8::", 60)]));
    assert_eq!(
        moved.ends,
        ["pool \"a\": the sessions of 16 of 16 subscribers, with another block by the formula"]
    );
}

#[test]
fn lists_are_described_by_counts_and_values_by_old_and_new() {
    let old = Plan {
        siit: vec![siit("s", &[("192.0.2.1", "2001:db8::1"), ("192.0.2.2", "2001:db8::2")])],
        ..Plan::default()
    };
    let mut new = old.clone();
    new.siit[0].eamt.remove(0);
    new.siit.push(siit("t", &[]));
    new.limits.sessions_per_subscriber = 7;
    assert_eq!(
        changes(&old, &new),
        [
            "siit \"s\": mappings: 0 added, 1 removed",
            "siit \"t\": added",
            "sessions_per_subscriber: 16384 -> 7",
        ]
    );
}
