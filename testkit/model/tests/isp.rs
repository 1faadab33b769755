//! A small simulation of a provider: some minutes, some hundred subscribers. Long runs are a command: `cargo
//! run --release -p gatun-model --bin gatun-isp`.
#![allow(missing_docs)]

use gatun_model::isp::{Options, Report, World};

fn run(options: Options) -> Report {
    World::new(options).expect("the plan is sound").run(|_, _, _| ())
}

fn small() -> Options {
    Options {
        subscribers: 400,
        attackers: 4,
        simulated_ms: 6 * 60_000,
        page_every_s: 30.0,
        seed: 7,
        ..Options::default()
    }
}

// proves: R68-2, R68-4, R68-8, R68-14, PBA-1
#[test]
fn all_promises_are_kept_through_an_evenings_minutes_with_attackers() {
    let report = run(small());
    assert!(report.is_good(), "{report}");
    assert!(report.packets > 100_000 && report.flows > 5_000, "{report}");
    // The attackers reached their limits, and nobody else did.
    let of = |whose: &str| report.refused.iter().filter(|r| r.0 == whose).map(|r| r.2).sum::<u64>();
    assert!(of("attackers") > 1_000, "{report}");
    assert_eq!(of("subscribers"), 0, "{report}");
    assert!(report.json().ends_with("\"ok\":true}"));
}

#[test]
fn a_run_depends_only_on_its_options_and_seed() {
    let few = Options { subscribers: 100, simulated_ms: 60_000, ..small() };
    let figures = |r: &Report| (r.packets, r.flows, r.events);
    let (first, again) = (run(few.clone()), run(few.clone()));
    assert_eq!(figures(&first), figures(&again));
    let other = run(Options { seed: 8, ..few });
    assert_ne!(figures(&first), figures(&other));
}

#[test]
fn too_few_blocks_break_the_promise_to_other_subscribers() {
    // The two addresses have 504 blocks for 2000 subscribers.
    let crowded = Options { subscribers: 2_000, per_address: 2_000, simulated_ms: 5 * 60_000, ..small() };
    let report = run(crowded);
    let broken: Vec<_> =
        report.invariants.iter().filter(|(_, p)| p.broken > 0).map(|(what, _)| *what).collect();
    assert_eq!(broken, ["attackers cost other subscribers no packet"], "{report}");
    assert!(report.refused.iter().any(|r| (r.0, r.1) == ("subscribers", "block_none")), "{report}");
}
