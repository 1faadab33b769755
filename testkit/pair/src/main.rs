//! All states of a pair or a cluster: `cargo run --release -p gatun-pair-model`.

#![forbid(unsafe_code)]

use gatun_pair_model::{Bounds, Scenario, check, explain, walk};
use gatun_peer::ownership::Rules;
use std::process::ExitCode;

const HELP: &str = "\
gatun-pair-model [--scenario NAME] [--states N | --walks N] [--without RULE] [--KIND N]...

Visits the states of members that own public ports, and checks that no port has two users, that no
acknowledged mapping is lost, and that a member gets the right to assign ports when the faults have ended.
--scenario: pair, cluster; both by default. two-shards, three-nodes: shards together, which shows no more
--walks:    takes this number of random walks instead: long histories with all faults
--states:   number of states, beyond which the search ends (10 million by default; they take a few GB)
--without:  leaves out a rule, to show that it matters; --without list prints their names
--log:      records that a member keeps for a member that it cannot reach (2 by default)
--ranges:   number of ports, one of each range: 1 to 3 (default)
--KIND:     greatest number of events: ports, changes, grants, crashes, cuts, breaks, connects, losses,
            promises, drift
The exit status is 1 if a promise was broken.";

fn main() -> ExitCode {
    let mut bounds = Bounds::LARGE;
    let (mut name, mut states, mut rules) = (None, 10_000_000, Rules::default());
    let (mut log, mut ranges, mut walks) = (2, 3, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().unwrap_or_default();
        let number: Option<usize> = value.replace('_', "").parse().ok();
        match (arg.as_str(), number) {
            ("--scenario", None) => name = Some(value),
            ("--states", Some(n)) => states = n,
            ("--walks", Some(n)) => walks = Some(n as u64),
            ("--ranges", Some(n)) => ranges = n.clamp(1, 3) as u8,
            ("--log", Some(n)) => log = n.try_into().unwrap_or(u8::MAX),
            ("--without", None) if value == "list" => {
                println!("{}", Rules::NAMES.join("\n"));
                return ExitCode::SUCCESS;
            }
            ("--without", None) if Rules::without(&value).is_some() => {
                rules = Rules::without(&value).unwrap_or_default();
            }
            (kind, Some(n)) if set(&mut bounds, kind, n) => {}
            _ => {
                eprintln!("{HELP}");
                return ExitCode::FAILURE;
            }
        }
    }
    let scenarios = [
        ("pair", Scenario::pair(bounds)),
        ("two-shards", Scenario::two_shards(bounds)),
        ("cluster", Scenario::cluster(bounds)),
        ("three-nodes", Scenario::three_nodes(bounds)),
    ];
    // Shards together have many more states, and no shard among them is in another state than alone.
    let wanted = |one: &str| name.as_deref().map_or(one == "pair" || one == "cluster", |name| name == one);
    let mut is_good = false;
    for (one, scenario) in scenarios.into_iter().filter(|(one, _)| wanted(one)) {
        is_good = true;
        let scenario = Scenario { log, ..scenario.with(rules).with_ports(ranges) };
        let (figures, broken) = match walks {
            None => {
                let checked = check(&scenario, states);
                (checked.figures(), checked.broken)
            }
            Some(walks) => {
                let walked = walk(&scenario, 0, walks);
                (walked.figures(), walked.broken)
            }
        };
        println!("{one}: {figures}");
        if let Some((promise, actions)) = broken {
            println!("{one}: broken: {promise}");
            explain(&scenario, &actions).iter().for_each(|line| println!("    {line}"));
            return ExitCode::FAILURE;
        }
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn set(bounds: &mut Bounds, kind: &str, n: usize) -> bool {
    let bound = match kind {
        "--ports" => &mut bounds.ports,
        "--changes" => &mut bounds.changes,
        "--grants" => &mut bounds.grants,
        "--crashes" => &mut bounds.crashes,
        "--cuts" => &mut bounds.cuts,
        "--breaks" => &mut bounds.breaks,
        "--connects" => &mut bounds.connects,
        "--losses" => &mut bounds.losses,
        "--promises" => &mut bounds.promises,
        "--drift" => &mut bounds.drift,
        _ => return false,
    };
    *bound = n.try_into().unwrap_or(u8::MAX);
    true
}
