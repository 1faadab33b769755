//! Short histories of a fast path. Long ones are a command: `make offload HISTORIES=100000`.
#![allow(missing_docs)]

use gatun_model::offload::{Setup, history, run, shrink, switch_history};
use gatun_offload::Rules;
use gatun_p4_controller::SwitchRules;

const STEPS: usize = 250;
const SEEDS: u64 = 600;

#[test]
fn no_entry_outlives_its_binding_and_every_packet_has_one_fate() {
    let (mut installed, mut lost_records, mut seen, mut evicted, mut adopted) = (0, 0, 0, 0, 0);
    for seed in 0..SEEDS {
        let ops = history(seed, STEPS);
        let world = match run(seed, &ops, Rules::default()) {
            Ok(world) => world,
            Err(_) => {
                let (ops, failure) = shrink(seed, &ops, Rules::default()).unwrap();
                panic!("seed {seed}: {} after {ops:?}", failure.what);
            }
        };
        installed += world.installed;
        lost_records += world.lost_records;
        seen += world.seen;
        evicted += world.evicted;
        adopted += world.adopted;
    }
    // The histories reach what they are for.
    let reached = (installed, lost_records, seen, evicted, adopted);
    assert!(installed > 1000 && lost_records > 100 && seen > 50 && adopted > 50, "{reached:?}");
}

/// Leaves out one rule at a time. Each must have a history that breaks a promise.
#[test]
fn each_rule_of_the_manager_matters() {
    let all = Rules::default();
    let without = [
        ("confirm_mark", Rules { confirm_mark: false, ..all }, "outlived"),
        ("remove_first", Rules { remove_first: false, ..all }, "outlived"),
        ("ask_target", Rules { ask_target: false, ..all }, "are left"),
        ("credit_removed", Rules { credit_removed: false, ..all }, "not credited"),
        ("report_last", Rules { report_last: false, ..all }, "is released with"),
        ("resync", Rules { resync: false, ..all }, "has not been released"),
        ("reconcile", Rules { reconcile: false, ..all }, "without a session"),
    ];
    for (name, rules, promise) in without {
        let breaks = |seed| run(seed, &history(seed, STEPS), rules).err();
        let is_broken = (0..SEEDS).filter_map(breaks).any(|failure| failure.what.contains(promise));
        assert!(is_broken, "without {name}, nothing breaks: {promise:?}");
    }
}

/// A session that ends while it is marked again, for another epoch, is released nevertheless.
#[test]
fn a_history_that_once_failed_does_not_fail_again() {
    assert!(run(101_635, &history(101_635, 400), Rules::default()).is_ok());
}

fn with_switches(switches: u8, rules: SwitchRules) -> Setup {
    Setup { rules: Rules::default(), switches: Some((switches, rules)) }
}

#[test]
fn no_entry_of_a_switch_outlives_its_binding_whatever_happens_to_the_switch() {
    let (mut installed, mut adopted, mut moved, mut ended) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let switches = 1 + (seed % 2) as u8;
        let setup = with_switches(switches, SwitchRules::default());
        let ops = switch_history(seed, STEPS, switches);
        let world = match run(seed, &ops, setup) {
            Ok(world) => world,
            Err(_) => {
                let (ops, failure) = shrink(seed, &ops, setup).unwrap();
                panic!("seed {seed}: {} after {ops:?}", failure.what);
            }
        };
        installed += world.installed;
        adopted += world.adopted;
        moved += world.moves().0;
        ended += world.moves().1;
    }
    let reached = (installed, adopted, moved, ended);
    assert!(installed > 500 && adopted > 50 && moved > 500 && ended > 500, "{reached:?}");
}

/// Seeds of histories that have found a fault of the manager, the account or the model, by number of switches.
const FOUND_FAULTS: [(u8, &[u64]); 2] = [
    (1, &[3399, 3709, 5331, 6646, 7554, 8146, 10_050]),
    (2, &[619, 1574, 2126, 3065, 3741, 5068, 6987, 7371, 8114]),
];

#[test]
fn histories_with_switches_that_once_failed_do_not_fail_again() {
    for (switches, seeds) in FOUND_FAULTS {
        for &seed in seeds {
            let ops = switch_history(seed, STEPS, switches);
            let result = run(seed, &ops, with_switches(switches, SwitchRules::default()));
            assert!(result.is_ok(), "seed {seed}, {switches} switches: {:?}", result.err());
        }
    }
}

#[test]
fn each_rule_of_the_account_of_switches_matters() {
    let all = SwitchRules::default();
    let without = [
        ("await_delete", SwitchRules { await_delete: false, ..all }, "outlived"),
        ("keep_unknown", SwitchRules { keep_unknown: false, ..all }, "outlived"),
        ("count_removed", SwitchRules { count_removed: false, ..all }, "never taken"),
        ("delete_strays", SwitchRules { delete_strays: false, ..all }, "without a session"),
        ("write_missing", SwitchRules { write_missing: false, ..all }, "entries"),
        ("end_pending", SwitchRules { end_pending: false, ..all }, "stays pending"),
    ];
    for (name, rules, promise) in without {
        let breaks = |seed| run(seed, &switch_history(seed, STEPS, 1), with_switches(1, rules)).err();
        let is_broken = (0..SEEDS).filter_map(breaks).any(|failure| failure.what.contains(promise));
        assert!(is_broken, "without {name}, nothing breaks: {promise:?}");
    }
}
