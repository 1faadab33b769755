//! The demo's results as JSON: `report.json`.

use anyhow::Context as _;
use serde::Serialize;
use std::path::Path;

/// The whole report.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    pub(super) checks: Vec<Check>,
    pub(super) iperf: Vec<Throughput>,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Ok,
    Failed,
    /// Not run: a program that it needs is missing.
    NotRun,
}

/// A check and its result.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) outcome: Outcome,
    pub(super) detail: String,
}

/// One measurement of iperf3.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Throughput {
    /// gatun, tayga or kernel.
    pub(super) path: &'static str,
    pub(super) streams: u32,
    /// upload (from the IPv6 client) or download.
    pub(super) direction: &'static str,
    pub(super) gbit_s: f64,
}

impl Check {
    pub(super) fn from_result(name: &str, result: Result<String, gatun_testkit::Error>) -> Self {
        let (outcome, detail) = match result {
            Ok(detail) => (Outcome::Ok, detail),
            Err(e) => (Outcome::Failed, e.0),
        };
        Check { name: name.to_owned(), outcome, detail }
    }

    /// A check that was not run, with the reason.
    pub(super) fn not_run(name: &str, why: &str) -> Self {
        Check { name: name.to_owned(), outcome: Outcome::NotRun, detail: why.to_owned() }
    }
}

impl Report {
    pub(super) fn count(&self, outcome: Outcome) -> usize {
        self.checks.iter().filter(|check| check.outcome == outcome).count()
    }

    /// Formats the result in one line.
    pub(super) fn verdict(&self) -> String {
        let [passed, failed, not_run] =
            [Outcome::Ok, Outcome::Failed, Outcome::NotRun].map(|outcome| self.count(outcome));
        let rest = if not_run > 0 { format!(", {not_run} not run") } else { String::new() };
        match failed {
            0 => format!("{passed} of {} checks passed{rest}", self.checks.len()),
            failed => format!("{failed} of {} checks FAILED{rest}", self.checks.len()),
        }
    }

    pub(super) fn write(&self, file: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(file, text).with_context(|| file.display().to_string())
    }
}
