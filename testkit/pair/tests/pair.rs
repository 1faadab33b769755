//! States of members that own ports together, within small bounds. `make pair-model` has larger ones.
#![allow(missing_docs)]

#[path = "support/futures.rs"]
mod futures;

use futures::check_futures;
use gatun_pair_model::search::{Model, Search};
use gatun_pair_model::{Action, Bounds, Scenario, State, check, explain, walk};
use gatun_peer::ownership::Rules;
use stateright::{Checker as _, Model as _, Property};

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
        let checked = check(&scenario, STATES);
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
        let checked = check(&scenario.with(rules), STATES);
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

/// Small scenarios with events of all kinds.
fn small() -> [(&'static str, Scenario); 6] {
    [
        ("pair: breaks", pair(Bounds { ports: 2, breaks: 1, losses: 1, connects: 2, ..NONE }).with_log(1)),
        ("pair: a crash", pair(Bounds { ports: 1, crashes: 1, connects: 2, ..NONE })),
        ("pair: changes", pair(Bounds { ports: 1, changes: 1, cuts: 1, connects: 1, ..NONE })),
        ("cluster: leases", cluster(Bounds { ports: 1, connects: 0, ..NONE })),
        ("cluster: a promise", cluster(Bounds { promises: 1, drift: 1, connects: 1, ..NONE })),
        ("cluster: a crash", cluster(Bounds { crashes: 1, grants: 0, connects: 1, ..NONE })),
    ]
}

/// The model for another program.
struct Foreign(Scenario);

impl stateright::Model for Foreign {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.0.initial()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.0.possible(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        Some(self.0.after(state, action))
    }

    fn properties(&self) -> Vec<Property<Foreign>> {
        vec![Property::always("all", |model: &Foreign, state: &State| model.0.broken(state).is_none())]
    }
}

#[test]
fn stateright_visits_as_many_states() {
    for (name, scenario) in small() {
        let checked = Search::of_all(&scenario).run(STATES, &|_| {});
        let other = Foreign(scenario).checker().spawn_bfs().join();
        assert!(checked.is_complete && other.discoveries().is_empty(), "{name}");
        assert_eq!(checked.states, other.unique_state_count(), "{name}");
    }
}

#[test]
fn states_with_the_same_canonical_form_have_the_same_future() {
    for (name, scenario) in small() {
        check_futures(name, &scenario, STATES);
    }
}

#[test]
fn each_of_several_shards_is_in_a_state_of_one() {
    let bounds = Bounds { ports: 1, connects: 1, ..NONE };
    let whole = [
        ("two shards", Scenario::two_shards(Bounds { crashes: 1, ..bounds })),
        ("three nodes", Scenario::three_nodes(Bounds { grants: 0, cuts: 1, ..bounds }).with_ports(1)),
    ];
    for (name, whole) in whole {
        let slice = whole.slice();
        let of_slice = Search::new(&slice);
        assert!(of_slice.run(STATES, &|_| {}).is_complete, "{name}");
        let checked = Search::new(&whole).run(STATES, &|state| {
            for shard in 0..whole.shards.len() as u8 {
                let one = state.slice(&whole, shard);
                assert!(of_slice.covers(&one), "{name}: {one:?}");
            }
        });
        assert!(checked.is_complete, "{name}: {}", checked.figures());
        println!("{name}: {}", checked.figures());
    }
}

/// Long histories with all faults of `make pair-model`. Walks are no proof: that they find what most rules
/// prevent shows that they reach something.
#[test]
fn random_walks_keep_all_promises_and_find_what_rules_prevent() {
    let faults = Bounds::LARGE;
    for (name, scenario) in [("pair", pair(faults)), ("cluster", Scenario::cluster(faults))] {
        let walked = walk(&scenario, 0, 2_000);
        if let Some((promise, actions)) = &walked.broken {
            panic!("{name}: {promise}:\n{}", explain(&scenario, actions).join("\n"));
        }
        assert!(walked.walks == 2_000 && walked.longest > 30, "{name}: {}", walked.figures());
        println!("{name}: {}", walked.figures());
    }
    let needed =
        ["owner_assigns", "own_range", "wait_for_state", "wait_for_release", "wait_for_kernel", "agree"];
    for rule in needed {
        let walked = walk(&pair(faults).with(Rules::without(rule).unwrap()), 0, 2_000);
        assert!(walked.broken.is_some(), "without {rule}: {}", walked.figures());
    }
}
