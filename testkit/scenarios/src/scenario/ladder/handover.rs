//! The step in which every packet arrives at another worker than its own. Two workers need a processor each,
//! and so would generator and reflector; so this step is `gatun-bench handover`, whose device is memory.

use crate::processors::{all_processors, processors_count};
use crate::report::{Report, group};
use crate::scenario::RunOptions;
use anyhow::Context as _;
use serde::Deserialize;
use std::process::Command;
use std::time::Duration;

/// Time limit; a run that takes longer has failed.
const TIME_MAX: Duration = Duration::from_secs(300);
/// Arguments of a brief run.
const BRIEF: &str = "--sessions 4096 --subscribers 256 --packets 10000 --rounds 3";

/// The part of the bench's JSON that is used here.
#[derive(Deserialize)]
struct HandoverReport {
    sessions: u64,
    ns_own: f64,
    ns_handed_over: f64,
    ns_more: f64,
    handed_over: u64,
}

/// Runs the bench, and returns two rows for the table: packets at their own worker, and at the other one.
pub(super) fn rows(options: &RunOptions, report: &mut Report) -> anyhow::Result<Vec<Vec<String>>> {
    if processors_count() < 2 {
        report.not_run.push("hand-over between workers: they need two processors".into());
        return Ok(Vec::new());
    }
    let told = measure(options)?;
    report.handover_ns = Some(told.ns_more);
    report.notes.push(format!(
        "The steps in RAM are of `gatun-bench handover`, in this run and without generator or cables: {} packets, of which each came in \
         at the wrong one of two workers with a processor each, and none was lost. A rate is of one worker. What hand-over costs is the \
         difference of these two, and is not to be compared with the steps above.",
        group(told.handed_over)
    ));
    let row = |steered: &str, ns: f64| {
        let name = format!("in RAM: NAT64, {} sessions, {steered}", group(told.sessions));
        let rate = group((1e9 / ns).round() as u64);
        vec![name, rate, format!("{ns:.1}"), "-".into(), "-".into(), "0".into()]
    };
    Ok(vec![row("own packets", told.ns_own), row("each handed over", told.ns_handed_over)])
}

fn measure(options: &RunOptions) -> anyhow::Result<HandoverReport> {
    // This thread, and so its children, are pinned to one processor.
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &all_processors()]).arg(options.programs.gatun.with_file_name("gatun-bench"));
    command.args(["handover", "--json"]);
    if options.brief {
        command.args(BRIEF.split(' '));
    }
    let (status, said) = gatun_testkit::run_for(&mut command, TIME_MAX)?;
    anyhow::ensure!(status.success(), "gatun-bench handover ended with {status}: {said}");
    let json = said.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    serde_json::from_str(json).with_context(|| format!("output of gatun-bench handover: {said}"))
}
