//! What the demo found, for programs: `report.json`.

use anyhow::Context as _;
use serde::Serialize;
use std::path::Path;

/// The whole report.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    pub(super) checks: Vec<Check>,
    pub(super) iperf: Vec<Throughput>,
}

/// Something that has to work.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) ok: bool,
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
    pub(super) fn from_result(name: &str, result: Result<String, gatun_lab::Error>) -> Self {
        let (ok, detail) = match result {
            Ok(detail) => (true, detail),
            Err(e) => (false, e.0),
        };
        Check { name: name.to_owned(), ok, detail }
    }
}

impl Report {
    pub(super) fn all_ok(&self) -> bool {
        self.checks.iter().all(|c| c.ok)
    }

    pub(super) fn write(&self, file: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(file, text).with_context(|| file.display().to_string())
    }
}
