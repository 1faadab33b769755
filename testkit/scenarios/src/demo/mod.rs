//! `lab/run demo`: Gatun between network namespaces of this machine, with the kernel's own stacks and real
//! programs at both ends.
//!
//! The demo runs in a sandbox of [`gatun_testkit`]. The kernel removes the whole sandbox when the demo ends
//! for any reason.

mod capture;
mod checks;
pub(crate) mod command;
mod network;
mod report;
mod screen;
mod throughput;

use anyhow::Context as _;
use report::{Check, Outcome, Report};
use screen::Screen;
use std::path::PathBuf;

/// Settings of the demo.
pub(crate) struct Demo {
    /// Folder for the report, the captures and the configuration.
    pub(crate) output: PathBuf,
    /// The daemon's program.
    pub(crate) gatun: PathBuf,
    /// Seconds of one throughput measurement; 0 skips them.
    pub(crate) seconds: u32,
}

impl Demo {
    fn file(&self) -> PathBuf {
        self.output.join("report.json")
    }
}

/// Runs the demo inside the sandbox. Returns true if no check failed.
///
/// # Errors
/// Returns an error if the report cannot be written. A part that fails is a failed check, and the results of
/// the others are kept.
pub(crate) fn run(demo: &Demo) -> anyhow::Result<bool> {
    let screen = Screen::new();
    std::fs::create_dir_all(&demo.output).with_context(|| demo.output.display().to_string())?;
    let mut report = Report::default();
    screen.title("An IPv6-only client, Gatun, and an IPv4-only server");
    match network::Lab::new(&demo.gatun, &demo.output) {
        Ok(lab) => parts(demo, &lab, &screen, &mut report)?,
        Err(e) => screen.record(Check::from_result("network and programs", Err(e)), &mut report),
    }
    report.write(&demo.file())?;
    screen.title(&report.verdict());
    screen.line(&format!("report, captures and configuration: {}", demo.output.display()));
    Ok(report.count(Outcome::Failed) == 0)
}

fn parts(demo: &Demo, lab: &network::Lab, screen: &Screen, report: &mut Report) -> anyhow::Result<()> {
    let captures = capture::Captures::start(lab, &demo.output);
    checks::run_all(lab, screen, report);
    for check in captures.finish() {
        screen.record(check, report);
    }
    checks::run_with_offloads(lab, screen, report);
    // Keeps the results so far if the longest part fails.
    report.write(&demo.file())?;
    if demo.seconds > 0 {
        throughput::measure(lab, screen, demo.seconds, report);
        screen.table(&throughput::table(report, screen.colours));
    }
    Ok(())
}
