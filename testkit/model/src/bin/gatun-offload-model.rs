//! Long histories of a fast path: `cargo run --release -p gatun-model --bin gatun-offload-model`.

use gatun_model::offload::{Setup, history, run, shrink, switch_history};
use gatun_offload::Rules;
use gatun_p4_controller::SwitchRules;
use std::process::ExitCode;

const HELP: &str = "\
gatun-offload-model [--histories N] [--steps N] [--seed N] [--switches N] [--without RULE]

Plays seeded histories of the offload manager, engines and a table, and checks its promises after each step.
--switches plays one or two P4 switches instead of a table.
--without leaves out a rule of the manager, to show that it matters: confirm_mark, remove_first, ask_target,
credit_removed, report_last, resync, reconcile. The exit status is 1 if a promise was broken.";

fn main() -> ExitCode {
    let (mut histories, mut steps, mut seed) = (10_000, 400, 0);
    let (mut rules, mut switches) = (Rules::default(), 0);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().unwrap_or_default();
        let number: Option<u64> = value.replace('_', "").parse().ok();
        match (arg.as_str(), number) {
            ("--histories", Some(n)) => histories = n,
            ("--steps", Some(n)) => steps = n as usize,
            ("--seed", Some(n)) => seed = n,
            ("--switches", Some(n @ 1..=2)) => switches = n as u8,
            ("--without", None) if leave_out(&mut rules, &value) => {}
            _ => {
                eprintln!("{HELP}");
                return ExitCode::FAILURE;
            }
        }
    }
    let (mut installed, mut lost, mut seen, mut moved) = (0, 0, 0, 0);
    for seed in seed..seed.saturating_add(histories) {
        let ops = match switches {
            0 => history(seed, steps),
            _ => switch_history(seed, steps, switches),
        };
        let of_switches = (switches > 0).then(|| (switches, SwitchRules::default()));
        let setup = Setup { rules, switches: of_switches };
        match run(seed, &ops, setup) {
            Ok(world) => {
                installed += world.installed;
                lost += world.lost_records;
                seen += world.seen;
                moved += world.moves().0;
            }
            Err(failure) => {
                let (ops, failure) = shrink(seed, &ops, setup).unwrap_or((ops, failure));
                println!("history {seed}, shortened to {} steps: {}", ops.len(), failure.what);
                ops.iter().for_each(|op| println!("    {op:?}"));
                return ExitCode::FAILURE;
            }
        }
    }
    println!(
        "{histories} histories: {installed} entries, {seen} questions answered, {lost} records lost, {moved} packets \
         of moving flows translated"
    );
    ExitCode::SUCCESS
}

fn leave_out(rules: &mut Rules, name: &str) -> bool {
    let rule = match name {
        "confirm_mark" => &mut rules.confirm_mark,
        "remove_first" => &mut rules.remove_first,
        "ask_target" => &mut rules.ask_target,
        "credit_removed" => &mut rules.credit_removed,
        "report_last" => &mut rules.report_last,
        "resync" => &mut rules.resync,
        "reconcile" => &mut rules.reconcile,
        _ => return false,
    };
    *rule = false;
    true
}
