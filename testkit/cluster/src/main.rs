//! All states of a cluster's shards: `cargo run --release -p gatun-cluster-model`.

#![forbid(unsafe_code)]

use gatun_cluster::ClusterRules;
use gatun_cluster_model::{Action, Bounds, Scenario, explain};
use gatun_pair_model::{ProcessState, check, walk};
use std::process::ExitCode;

const HELP: &str = "\
gatun-cluster-model [--scenario NAME] [--states N | --walks N] [--without RULE] [--life LIFE] [--KIND N]...

Visits the states of nodes that own and back up shards together, and checks that no port has two users, that
no mapping is lost that a ready backup has acknowledged, that no move ends a mapping, and that a node gets the
right to assign ports when the faults have ended.
--scenario: two-nodes, three-nodes, other-shard; all by default. two-shards: both together, which shows no
            more
--walks:    takes this number of random walks instead: long histories with all faults
--states:   number of states, beyond which the search ends (10 million by default)
--without:  leaves out a rule, to show that it matters; --without list prints their names
--life:     the only way in which a process ends: stopped, killed or off
--ranges:   number of ports, one of each range: 1 (default) to 3
--KIND:     greatest number of events: ports, writes, late, crashes, cuts, breaks, connects, losses, promises,
            words, drift
The exit status is 1 if a promise was broken.";

/// Broken promise, and the history that breaks it.
type Broken = Option<(&'static str, Vec<Action>)>;

fn main() -> ExitCode {
    let mut bounds = Bounds::LARGE;
    let (mut name, mut states, mut rules) = (None, 10_000_000, ClusterRules::default());
    let (mut ranges, mut life, mut walks) = (1, None, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().unwrap_or_default();
        let number: Option<usize> = value.replace('_', "").parse().ok();
        match (arg.as_str(), number) {
            ("--scenario", None) => name = Some(value),
            ("--states", Some(n)) => states = n,
            ("--walks", Some(n)) => walks = Some(n as u64),
            ("--ranges", Some(n)) => ranges = n.clamp(1, 3) as u8,
            ("--life", None) if lives(&value).is_some() => life = lives(&value),
            ("--without", None) if value == "list" => {
                println!("{}", ClusterRules::NAMES.join("\n"));
                return ExitCode::SUCCESS;
            }
            ("--without", None) if ClusterRules::without(&value).is_some() => {
                rules = ClusterRules::without(&value).unwrap_or_default();
            }
            (kind, Some(n)) if set(&mut bounds, kind, n) => {}
            _ => {
                eprintln!("{HELP}");
                return ExitCode::FAILURE;
            }
        }
    }
    let scenarios = [
        ("two-nodes", Scenario::new(2, bounds)),
        ("three-nodes", Scenario::new(3, bounds)),
        ("other-shard", Scenario { shards: vec![[1, 2]], ..Scenario::new(3, bounds) }),
        // Shards together have many more states, and no shard among them is in another state than alone.
        ("two-shards", Scenario::two_shards(3, bounds)),
    ];
    let wanted = |one: &str| name.as_deref().map_or(one != "two-shards", |name| name == one);
    let mut is_good = false;
    for (one, scenario) in scenarios.into_iter().filter(|(one, _)| wanted(one)) {
        is_good = true;
        let scenario = scenario.with(rules).with_ports(ranges);
        let lives = life.unwrap_or(scenario.lives);
        let scenario = scenario.with_lives(lives);
        let (figures, broken) = visit(&scenario, states, walks);
        println!("{one}: {figures}");
        if let Some((promise, actions)) = broken {
            println!("{one}: broken: {promise}");
            explain(&scenario, &actions).iter().for_each(|line| println!("    {line}"));
            return ExitCode::FAILURE;
        }
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Visits states by a search, or by random walks. Returns the figures, and the broken promise.
fn visit(scenario: &Scenario, states: usize, walks: Option<u64>) -> (String, Broken) {
    match walks {
        None => {
            let checked = check(scenario, states);
            (checked.figures(), checked.broken)
        }
        Some(walks) => {
            let walked = walk(scenario, 0, walks);
            (walked.figures(), walked.broken)
        }
    }
}

fn lives(name: &str) -> Option<&'static [ProcessState]> {
    match name {
        "stopped" => Some(&[ProcessState::Stopped]),
        "killed" => Some(&[ProcessState::Killed]),
        "off" => Some(&[ProcessState::Off]),
        _ => None,
    }
}

fn set(bounds: &mut Bounds, kind: &str, n: usize) -> bool {
    let bound = match kind {
        "--ports" => &mut bounds.ports,
        "--writes" => &mut bounds.writes,
        "--late" => &mut bounds.late,
        "--crashes" => &mut bounds.crashes,
        "--cuts" => &mut bounds.cuts,
        "--breaks" => &mut bounds.breaks,
        "--connects" => &mut bounds.connects,
        "--losses" => &mut bounds.losses,
        "--promises" => &mut bounds.promises,
        "--words" => &mut bounds.words,
        "--drift" => &mut bounds.drift,
        _ => return false,
    };
    *bound = n.try_into().unwrap_or(u8::MAX);
    true
}
