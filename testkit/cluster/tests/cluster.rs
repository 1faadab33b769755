//! States of a cluster's shards within small bounds. `make pair-model` has larger ones.
#![allow(missing_docs)]

#[path = "../../pair/tests/support/futures.rs"]
mod futures;

use futures::check_futures;
use gatun_cluster::ClusterRules;
use gatun_cluster_model::{Bounds, Scenario, explain};
use gatun_pair_model::search::Search;
use gatun_pair_model::{ProcessState, check, walk};

const NONE: Bounds = Bounds::NONE;
const STATES: usize = 20_000_000;

fn two(bounds: Bounds) -> Scenario {
    Scenario::new(2, bounds)
}

fn three(bounds: Bounds) -> Scenario {
    Scenario::new(3, bounds)
}

fn off(scenario: Scenario) -> Scenario {
    scenario.with_lives(&[ProcessState::Off])
}

#[test]
fn no_port_has_two_users_whatever_moves_and_fails() {
    let scenarios = [
        ("two nodes: changes", two(Bounds { ports: 2, writes: 4, ..NONE }).with_ports(2)),
        ("two nodes: late writes", two(Bounds { ports: 2, writes: 2, late: 2, ..NONE })),
        ("two nodes: partitions", two(Bounds { ports: 2, writes: 1, cuts: 1, ..NONE })),
        (
            "two nodes: promises",
            two(Bounds { ports: 1, writes: 1, cuts: 1, promises: 1, connects: 1, ..NONE }),
        ),
        ("two nodes: partition, late write", two(Bounds { ports: 1, writes: 2, late: 1, cuts: 1, ..NONE })),
        ("two nodes: clocks", two(Bounds { ports: 1, writes: 1, cuts: 1, drift: 1, ..NONE })),
        ("two nodes: crashes", two(Bounds { ports: 1, writes: 1, crashes: 1, ..NONE })),
        (
            "two nodes: power, operator",
            off(two(Bounds { ports: 1, writes: 1, crashes: 1, words: 1, ..NONE })),
        ),
        ("two nodes: losses", two(Bounds { ports: 2, writes: 1, losses: 1, ..NONE })),
        ("three nodes: moves", three(Bounds { ports: 2, writes: 3, ..NONE }).with_ports(2)),
        ("three nodes: power", off(three(Bounds { ports: 1, writes: 1, crashes: 1, ..NONE }))),
        // An owner without state yields to a backup that has lost its state, too.
        ("two nodes: power, twice", off(two(Bounds { writes: 1, crashes: 2, connects: 1, ..NONE }))),
        ("two shards", Scenario::two_shards(2, Bounds { ports: 1, writes: 1, cuts: 1, ..NONE })),
    ];
    let mut states = 0;
    for (name, scenario) in scenarios {
        let checked = check(&scenario, STATES);
        println!("{name}: {}", checked.figures());
        if let Some((promise, actions)) = &checked.broken {
            panic!("{name}: {promise}:\n{}", explain(&scenario, actions).join("\n"));
        }
        assert!(checked.is_complete, "{name}: {} states are not all", checked.states);
        states += checked.states;
    }
    println!("{states} states");
}

/// Leaves out one rule at a time. Each must have a history that breaks a promise.
#[test]
fn each_rule_of_a_cluster_matters() {
    let stopped = |scenario: Scenario| scenario.with_lives(&[ProcessState::Stopped]);
    let cut = |writes| Bounds { ports: 2, writes, cuts: 1, ..NONE };
    let needed = [
        ("compare", two(Bounds { late: 1, ..cut(2) })),
        ("absent", two(Bounds { ports: 2, writes: 1, ..NONE })),
        ("margin", two(Bounds { drift: 1, ..cut(1) })),
        ("ready", two(cut(2))),
        ("synced", off(two(Bounds { ports: 1, writes: 2, crashes: 1, ..NONE }))),
        ("right", two(cut(1))),
        ("revoke", two(cut(1))),
        ("promise", two(Bounds { promises: 1, ..cut(1) })),
        ("promise_to_owner", two(Bounds { promises: 1, ..cut(1) })),
        ("hold", two(Bounds { cuts: 2, ..cut(2) })),
        ("since", two(Bounds { ports: 3, ..cut(2) })),
        ("state_first", off(two(Bounds { ports: 1, writes: 2, crashes: 1, ..NONE }))),
        ("drop_first", two(Bounds { ports: 3, writes: 2, late: 1, ..NONE })),
        ("told_first", two(Bounds { ports: 1, writes: 1, ..NONE })),
        ("lower_first", three(Bounds { ports: 2, writes: 3, ..NONE }).with_ports(3)),
        ("fence", stopped(two(Bounds { ports: 2, writes: 1, crashes: 1, ..NONE }))),
    ];
    assert_eq!(needed.each_ref().map(|(name, _)| *name), ClusterRules::NAMES);
    for (name, scenario) in needed {
        let rules = ClusterRules::without(name).unwrap();
        let checked = check(&scenario.with(rules), STATES);
        let figures = checked.figures();
        let Some((promise, actions)) = checked.broken else {
            panic!("without {name}, no promise is broken: {figures}");
        };
        println!("without {name}: {promise}, after {} events; {figures}", actions.len());
    }
}

#[test]
fn states_with_the_same_canonical_form_have_the_same_future() {
    let small = [
        ("two nodes: changes", two(Bounds { ports: 1, writes: 1, late: 1, ..NONE }).with_ports(2)),
        ("two nodes: a partition", two(Bounds { ports: 1, cuts: 1, drift: 1, connects: 1, ..NONE })),
        ("two nodes: a promise", two(Bounds { ports: 1, promises: 1, losses: 1, connects: 0, ..NONE })),
        ("two nodes: a crash", two(Bounds { crashes: 1, words: 1, connects: 1, ..NONE })),
        ("three nodes: moves", three(Bounds { ports: 1, writes: 2, connects: 1, ..NONE })),
    ];
    for (name, scenario) in small {
        check_futures(name, &scenario, STATES);
    }
}

#[test]
fn each_of_several_shards_is_in_a_state_of_one() {
    let bounds = Bounds { ports: 1, connects: 1, ..NONE };
    let whole = [
        ("two nodes", Scenario::two_shards(2, Bounds { cuts: 1, ..bounds })),
        ("three nodes", Scenario::two_shards(3, Bounds { writes: 1, ..bounds })),
    ];
    for (name, whole) in whole {
        let slices = whole.slices();
        let of_slices: Vec<_> = slices.iter().map(Search::new).collect();
        for of_slice in &of_slices {
            assert!(of_slice.run(STATES, &|_| {}).is_complete, "{name}");
        }
        let checked = Search::new(&whole).run(STATES, &|state| {
            for (of_slice, shard) in of_slices.iter().zip(0..) {
                let one = state.slice(shard);
                assert!(of_slice.covers(&one), "{name}: {one:?}");
            }
        });
        assert!(checked.is_complete, "{name}: {}", checked.figures());
        println!("{name}: {}", checked.figures());
    }
}

/// Long histories with all faults of `make pair-model`, and lost packets among them.
#[test]
fn random_walks_keep_all_promises_and_find_what_rules_prevent() {
    let faults = Bounds { losses: 1, ..Bounds::LARGE };
    for (name, scenario) in [("two nodes", two(faults)), ("three nodes", three(faults))] {
        let walked = walk(&scenario, 0, 2_000);
        if let Some((promise, actions)) = &walked.broken {
            panic!("{name}: {promise}:\n{}", explain(&scenario, actions).join("\n"));
        }
        assert!(walked.walks == 2_000 && walked.longest > 100, "{name}: {}", walked.figures());
        println!("{name}: {}", walked.figures());
    }
    for rule in ["absent", "synced", "right", "revoke", "hold", "told_first", "fence"] {
        let walked = walk(&two(faults).with(ClusterRules::without(rule).unwrap()), 0, 4_000);
        assert!(walked.broken.is_some(), "without {rule}: {}", walked.figures());
    }
}
