//! `lab/run demo`: Gatun at work between network namespaces of this machine, with the kernel's own stacks and
//! real programs at both ends.
//!
//! All of it happens in one sandbox of [`gatun_testkit`], which the kernel takes away as a whole when the demo
//! ends, however it ends.

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

/// What the demo is to do.
pub(crate) struct Demo {
    /// Where the report, the captures and the configuration go.
    pub(crate) output: PathBuf,
    /// The daemon's program.
    pub(crate) gatun: PathBuf,
    /// How long one measurement of throughput takes, seconds; 0 leaves them out.
    pub(crate) seconds: u32,
}

impl Demo {
    fn file(&self) -> PathBuf {
        self.output.join("report.json")
    }
}

/// Runs inside the sandbox. Returns whether no check failed.
///
/// # Errors
/// Where the report cannot be written. A part that fails is a check that failed: what the others found is kept.
pub(crate) fn run(demo: &Demo) -> anyhow::Result<bool> {
    let screen = Screen::new();
    std::fs::create_dir_all(&demo.output).with_context(|| demo.output.display().to_string())?;
    let mut report = Report::default();
    screen.title("An IPv6-only client, Gatun, and an IPv4-only server");
    match network::Lab::new(&demo.gatun, &demo.output) {
        Ok(lab) => parts(demo, &lab, &screen, &mut report)?,
        Err(e) => report.add(Check::from_result("network and programs", Err(e)), &screen),
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
        report.add(check, screen);
    }
    checks::run_with_offloads(lab, screen, report);
    // What was found so far is there, whatever becomes of the longest part.
    report.write(&demo.file())?;
    if demo.seconds > 0 {
        throughput::measure(lab, screen, demo.seconds, report);
        screen.table(&throughput::table(report, screen.colours));
    }
    Ok(())
}
