//! Simulates hours of a provider in minutes: `cargo run --release -p gatun-model --bin gatun-isp`.

use gatun_model::isp::{Options, World};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Instant;

const HELP: &str = "\
Simulates a provider: subscribers, attackers and strangers, through one engine with NAT44 and NAT64.

  --subscribers N   subscribers, half of them IPv6-only (10000)
  --hours N         simulated hours; may be a fraction (2)
  --start N         hour of day at the start (20)
  --attackers N     subscribers that flood and scan (8)
  --per-address N   subscribers on one public address (64)
  --page-every N    seconds between two pages of a subscriber at the busiest hour (90)
  --seed N          seed of the random numbers (1)
  --json            print the report as one JSON object

The exit status is 1 if an invariant was broken.";

fn main() -> ExitCode {
    let mut options = Options::default();
    let mut json = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--json" {
            json = true;
            continue;
        }
        let number: Option<f64> = args.next().and_then(|n| n.replace('_', "").parse().ok());
        let Some(number) = number.filter(|n| *n >= 0.0) else { return usage() };
        match arg.as_str() {
            "--subscribers" => options.subscribers = (number as u32).clamp(1, 2_000_000),
            "--hours" => options.simulated_ms = (number * 3_600_000.0) as u64,
            "--start" => options.start_hour = number as u32 % 24,
            "--attackers" => options.attackers = number as u32,
            "--per-address" => options.per_address = (number as u32).max(1),
            "--page-every" => options.page_every_s = number.max(1.0),
            "--seed" => options.seed = number as u64,
            _ => return usage(),
        }
    }
    let start = Instant::now();
    let world = match World::new(options) {
        Ok(world) => world,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let bar = std::io::stderr().is_terminal();
    let mut report = world.run(|done, packets, sessions| {
        if bar {
            draw(done, packets, sessions, start.elapsed().as_secs_f64());
        }
    });
    if bar {
        eprintln!();
    }
    report.real_s = start.elapsed().as_secs_f64();
    if json {
        println!("{}", report.json());
    } else {
        print!("{report}");
    }
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn draw(done: f64, packets: u64, sessions: usize, real_s: f64) {
    const WIDTH: usize = 30;
    let full = (done * WIDTH as f64) as usize;
    let (full_part, rest) = ("#".repeat(full), ".".repeat(WIDTH - full.min(WIDTH)));
    let left = if done > 0.0 { real_s / done - real_s } else { 0.0 };
    eprint!(
        "\r[{full_part}{rest}] {:>3.0} %  {packets} packets, {sessions} sessions, {left:.0} s left   ",
        done * 100.0
    );
    let _ = std::io::stderr().flush();
}

fn usage() -> ExitCode {
    eprintln!("{HELP}");
    ExitCode::FAILURE
}
