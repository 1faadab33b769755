//! `gatun-bench demo`: Gatun at work between network namespaces of this machine, with the kernel's own stacks and
//! real programs at both ends.
//!
//! All of it happens in one sandbox of [`gatun_lab`], which the kernel takes away as a whole when the demo
//! ends, however it ends.

mod capture;
mod checks;
pub(crate) mod command;
mod network;
mod report;
mod screen;
mod throughput;

use anyhow::Context as _;
use report::Report;
use screen::Screen;
use std::path::{Path, PathBuf};

/// What the demo is to do.
pub(crate) struct Demo {
    /// Where the report, the captures and the configuration go.
    pub(crate) output: PathBuf,
    /// The daemon's program.
    pub(crate) gatun: PathBuf,
    /// How long one measurement of throughput takes, seconds; 0 leaves them out.
    pub(crate) seconds: u32,
}

/// Runs inside the sandbox. Says whether every check passed.
///
/// # Errors
/// What kept it from running; a check that fails is no error.
pub(crate) fn run(demo: &Demo) -> anyhow::Result<bool> {
    let screen = Screen::new();
    std::fs::create_dir_all(&demo.output).with_context(|| demo.output.display().to_string())?;
    let mut report = Report::default();
    screen.title("An IPv6-only client, Gatun, and an IPv4-only server");
    let lab = network::Lab::new(&demo.gatun, &demo.output)?;
    let captures = capture::Captures::start(&lab, &demo.output)?;
    checks::run_all(&lab, &screen, &mut report);
    for check in captures.finish() {
        screen.check(&check);
        report.checks.push(check);
    }
    checks::run_with_offloads(&lab, &screen, &mut report);
    if demo.seconds > 0 {
        throughput::measure(&lab, &screen, demo.seconds, &mut report)?;
        screen.table(&throughput::table(&report, screen.colours));
    }
    report.write(&demo.output.join("report.json"))?;
    finish(&screen, &report, &demo.output);
    Ok(report.all_ok())
}

fn finish(screen: &Screen, report: &Report, output: &Path) {
    let failed = report.checks.iter().filter(|c| !c.ok).count();
    let verdict = match failed {
        0 => format!("all {} checks passed", report.checks.len()),
        n => format!("{n} of {} checks FAILED", report.checks.len()),
    };
    screen.title(&verdict);
    screen.line(&format!("report, captures and configuration: {}", output.display()));
}
