//! States of members that own ports together, within small bounds. `make pair-model` has larger ones.
#![allow(missing_docs)]

use gatun_pair_model::{Bounds, Scenario, check, explain};
use gatun_peer::ownership::Rules;

const NONE: Bounds = Bounds {
    ports: 0,
    changes: 0,
    grants: 1,
    crashes: 0,
    cuts: 0,
    breaks: 0,
    connects: 4,
    losses: 0,
    promises: 0,
    drift: 0,
};
const STATES: usize = 20_000_000;

fn pair(bounds: Bounds) -> Scenario {
    Scenario::pair(bounds)
}

/// A cluster whose members assign shared ports only: their own ranges need no coordinator.
fn cluster(bounds: Bounds) -> Scenario {
    Scenario::cluster(bounds).with_ports(1)
}

#[test]
fn no_port_has_two_users_and_nothing_acknowledged_is_lost() {
    let scenarios = [
        ("pair: overflow", pair(Bounds { ports: 5, ..NONE })),
        ("pair: breaks", pair(Bounds { ports: 3, breaks: 2, ..NONE }).with_log(1)),
        ("pair: losses", pair(Bounds { ports: 3, losses: 1, ..NONE })),
        ("pair: one crash", pair(Bounds { ports: 2, crashes: 1, ..NONE })),
        ("pair: two crashes", pair(Bounds { ports: 1, crashes: 2, ..NONE }).with_ports(1)),
        ("pair: releases", pair(Bounds { ports: 2, changes: 1, breaks: 1, cuts: 1, ..NONE })),
        ("pair: revisions", pair(Bounds { changes: 4, breaks: 1, ..NONE })),
        ("cluster: leases", cluster(Bounds { ports: 2, ..NONE })),
        ("cluster: clocks", cluster(Bounds { ports: 1, drift: 1, ..NONE })),
        ("two shards", Scenario::two_shards(Bounds { ports: 2, breaks: 1, ..NONE })),
        ("three nodes", Scenario::three_nodes(Bounds { ports: 1, grants: 0, ..NONE }).with_ports(1)),
    ];
    let mut states = 0;
    for (name, scenario) in scenarios {
        let checked = check(scenario.clone(), STATES);
        println!("{name}: {} states, {:.1} s", checked.states, checked.took.as_secs_f64());
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
fn each_rule_of_ownership_matters() {
    let ports = |ports| Bounds { ports, ..NONE };
    let needed = [
        ("owner_assigns", pair(ports(2))),
        ("own_range", pair(ports(2))),
        ("wait_for_state", pair(Bounds { crashes: 1, ..ports(1) })),
        ("wait_for_release", pair(ports(3))),
        ("end_wins", pair(ports(5)).with_log(1).with_ports(2)),
        ("end_again", pair(ports(5)).with_log(1)),
        ("answer_first", pair(Bounds { connects: 1, ..ports(5) }).with_log(1).with_ports(2)),
        ("one_connection", pair(Bounds { crashes: 1, ..ports(2) }).with_ports(1)),
        ("in_order", pair(Bounds { losses: 1, ..ports(3) })),
        ("newer_epoch_wins", cluster(ports(2))),
        ("wait_for_kernel", pair(Bounds { crashes: 1, ..ports(2) })),
        ("close_with_word", pair(Bounds { crashes: 2, ..ports(1) }).with_ports(1)),
        ("lease", cluster(ports(2))),
        ("revoke", cluster(ports(2))),
        ("margin", cluster(Bounds { drift: 1, ..ports(2) })),
        ("keep_promise", cluster(Bounds { promises: 1, ..ports(2) })),
        ("agree", pair(Bounds { changes: 2, ..NONE })),
        ("agree_in_turn", pair(Bounds { changes: 4, ..NONE })),
    ];
    assert_eq!(needed.each_ref().map(|(name, _)| *name), Rules::NAMES);
    for (name, scenario) in needed {
        let rules = Rules::without(name).unwrap();
        let checked = check(scenario.with(rules), STATES);
        let (states, seconds) = (checked.states, checked.took.as_secs_f64());
        let Some((promise, actions)) = checked.broken else {
            panic!("without {name}, no promise is broken in {states} states");
        };
        println!(
            "without {name}: {promise}, after {} events; {states} states, {seconds:.1} s",
            actions.len()
        );
    }
}
