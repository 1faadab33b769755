//! The long comparison: `cargo run --release -p gatun-model -- --packets 100000000 --seed 1`.

#![forbid(unsafe_code)]

use gatun_model::coverage::Coverage;
use gatun_model::drive::{Op, history, run, shrink, workers};
use gatun_nat::counters::Counters;
use gatun_wire::DropReason;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

const STEPS: usize = 4_000;

fn main() -> ExitCode {
    let mut packets = 1_000_000u64;
    let mut seed = 1u64;
    let mut only = None;
    let mut workers = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|n| n.replace('_', "").parse().ok());
        match arg.as_str() {
            "--packets" => packets = number().unwrap_or(packets),
            "--history" => only = number(),
            "--workers" => workers = true,
            "--seed" => seed = number().unwrap_or(seed),
            _ => {
                eprintln!(
                    "gatun-model [--packets N] [--seed N] [--history N] [--workers]\n\nCompares the engine with the model: in seeded \
                     histories of N packets in total,\nor in one history that an earlier run printed. With --workers, only in universes that workers share."
                );
                return ExitCode::FAILURE;
            }
        }
    }
    match only {
        Some(world) => compare(1, world, workers, |n, _| n),
        None => {
            compare(packets, seed, workers, |n, histories| n.wrapping_mul(1_000_003).wrapping_add(histories))
        }
    }
}

fn compare(packets: u64, seed: u64, workers: bool, world_of: impl Fn(u64, u64) -> u64) -> ExitCode {
    let start = Instant::now();
    let (mut done, mut histories) = (0u64, 0u64);
    let (mut coverage, mut drops) = (Coverage::default(), vec![0u64; DropReason::COUNT]);
    while done < packets {
        let world = world_of(seed, histories);
        let ops = history(world, STEPS);
        // Every fourth universe is also shared among workers.
        let ways: &[bool] = match world % 4 {
            _ if workers => &[true],
            1 => &[false, true],
            _ => &[false],
        };
        for &by_workers in ways {
            let way = |ops: &[Op]| match by_workers {
                false => run(world, world, ops).map(Some),
                true => workers::run(world, world, ops),
            };
            match way(&ops) {
                Ok(None) => {}
                Ok(Some(outcome)) => {
                    done += outcome.counters.rx.packets;
                    add(&mut drops, &outcome.counters);
                    coverage.add(&outcome.coverage);
                }
                Err(_) => {
                    let (short, failure) = shrink::shrink_with(&ops, |ops| way(ops).map(drop));
                    eprintln!("\nhistory {world}: {} of {} steps", short.len(), ops.len());
                    println!("{}", shrink::as_test(world, world, &short, &failure));
                    return ExitCode::FAILURE;
                }
            }
        }
        histories += 1;
        if histories % 64 == 0 {
            let rate = done as f64 / start.elapsed().as_secs_f64();
            eprint!("\r{done} packets, {histories} histories, {rate:.0} packets/s   ");
            let _ = std::io::stderr().flush();
        }
    }
    eprintln!(
        "\r{done} packets in {histories} histories, {:.1} s: no difference",
        start.elapsed().as_secs_f64()
    );
    println!("Reached:\n{coverage}Dropped:");
    for (reason, n) in DropReason::ALL.iter().zip(&drops) {
        println!("  {n:>10}  {}", reason.name());
    }
    ExitCode::SUCCESS
}

fn add(drops: &mut [u64], counters: &Counters) {
    for way in &counters.drops {
        for (sum, count) in drops.iter_mut().zip(way) {
            *sum += count.packets;
        }
    }
}
