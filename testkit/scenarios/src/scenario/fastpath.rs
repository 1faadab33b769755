//! `fastpath`: cost of new connections with the kernel fast path, and faults while numbered packets pass.

mod connections;
mod faults;
pub(super) mod tun;

use super::RunOptions;
use super::iperf::has_fast_path;
use crate::bed::Bed;
use crate::report::Report;

const ABOUT: &str = "Numbered packets of many flows pass Gatun on a TUN device, whose kernel fast path translates established sessions. A reflector \
sends every packet back. The scenario measures what new connections cost, and causes faults under load.";

pub(crate) fn run(options: &RunOptions) -> anyhow::Result<Report> {
    let mut report = Report::new("fastpath", ABOUT);
    let bed = Bed::new(1500)?;
    let fast_path = has_fast_path(&options.programs);
    let (on, off) = match &fast_path {
        Ok(()) => (Some("auto"), Some("off")),
        Err(why) => {
            report.not_run.push(format!("the kernel fast path: {why}; everything without it"));
            (None, None)
        }
    };
    let size = match options.brief {
        true => faults::Size { flows: 256, cleared: 2048, switches: 2 },
        false => faults::Size { flows: 1024, cleared: 1 << 20, switches: 25 },
    };
    let seconds = options.length(10.0).as_secs_f64();
    let runs = options.runs.unwrap_or(if options.brief { 1 } else { 5 }).max(1);
    connections::measure(&bed, &options.programs, (runs, seconds), off, options.brief, &mut report)?;
    faults::run(&bed, &options.programs, size, on, &mut report)?;
    report.notes.push(
        "Processor time includes the generator, which sleeps between its packets, and all other programs."
            .into(),
    );
    Ok(report)
}
