//! `iperf`: iperf3 between two of the kernel's stacks: through Gatun on a TUN device, with its kernel fast
//! path and on AF_XDP; through tayga, the kernel's masquerading, forwarding without translation, and programs
//! that the user names. Runs alternate between them.

mod goals;
pub(super) mod measure;
mod profile;
mod results;
pub(super) mod switch;
pub(super) mod translator;

use super::RunOptions;
use super::turns;
use crate::report::Report;
use gatun_testkit::{Error, has_program};
pub(crate) use measure::Part;
use measure::{Cell, Measured};
use profile::{Profiles, Recording};
use results::Results;
pub(crate) use translator::has_fast_path;
use translator::{Lab, Row};

const ABOUT: &str = "iperf3 between a client and a server, each a network namespace with the kernel's own stack, through different \
translators. All share the processors of this machine. Upload is from the client, which is inside. The translators alternate within each \
column and each run; figures are medians over the runs, ratios are medians of the ratios of each run.";

/// Runs without `--runs`.
const RUNS: u32 = 5;
/// Seconds of a measurement without `--seconds`.
const SECONDS: f64 = 5.0;
/// Trials of the search for the highest rate.
const TRIALS: u32 = 6;
const TRIALS_BRIEF: u32 = 2;
/// Parallel streams without `--streams`.
const STREAMS: [u32; 4] = [1, 10, 20, 50];

pub(crate) fn run(options: &RunOptions) -> anyhow::Result<Report> {
    anyhow::ensure!(has_program("iperf3"), "iperf3 is not installed (Debian: iperf3)");
    let mut report = Report::new("iperf", ABOUT);
    let (rows, missing) = Row::all(&options.programs, &options.beside);
    report.not_run.extend(missing);
    let rows: Vec<Row> = rows.into_iter().filter(|row| is_wanted(options, row)).collect();
    anyhow::ensure!(
        !rows.is_empty(),
        "no row has one of these texts in its name: {}",
        options.rows.join(", ")
    );
    if options.brief {
        report.not_run.push("other translators, more streams, downloads: brief run".into());
    }
    let runs = options.runs.unwrap_or(if options.brief { 1 } else { RUNS }).max(1);
    let seconds = options.length(SECONDS).as_secs().max(1) as u32;
    let cells = cells(options);
    let turns = || turns(runs, &cells, &rows).filter(|(_, cell, row)| has(row, *cell));
    let trials = if options.brief { TRIALS_BRIEF } else { TRIALS };
    let lab = Lab::new(&options.programs, [seconds, 0, trials], turns().count())?;

    let names: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
    let mut results = Results::new(names.clone(), cells.clone());
    let (mut profiles, mut failures) = (Profiles::default(), Vec::new());
    for (run, cell, row) in turns() {
        lab.show(format!("run {run}, {}", title(row, cell)));
        let measured = match options.profile {
            true => profiled(&lab, (row, cell, seconds), options, &mut profiles),
            false => row.measure(&lab, cell, None),
        };
        match measured {
            Ok(measured) => results.add(&row.name, cell, run, measured),
            Err(why) => failures.push(format!("run {run}, {}: {why}", title(row, cell))),
        }
    }
    drop(lab);

    report.tables = results.tables();
    report.tables.extend(profiles.tables(&names, &cells));
    report.throughput = results.throughput();
    report.check(failures.is_empty(), "every run of iperf3 transferred data".into());
    report.not_run.append(&mut failures);
    if !options.brief {
        goals::check(&results, &mut report);
    }
    report.notes.extend(notes(runs, seconds));
    Ok(report)
}

/// Measures while all processors are sampled.
fn profiled(
    lab: &Lab,
    (row, cell, seconds): (&Row, Cell, u32),
    options: &RunOptions,
    profiles: &mut Profiles,
) -> Result<Measured, Error> {
    let recording = Recording::start(&options.programs.output)?;
    let measured = row.measure(lab, cell, None);
    let samples = recording.finish()?;
    let measured = measured?;
    profiles.add(&row.name, cell, (&measured, seconds), samples);
    Ok(measured)
}

fn notes(runs: u32, seconds: u32) -> [String; 5] {
    [
        format!("{runs} runs of {seconds} s for each cell."),
        format!("Congestion control of TCP: {}.", measure::CONGESTION_CONTROL),
        "UDP has 1400 bytes of payload.".into(),
        "Processor time is that of both ends, the translator and the kernel, and of all other programs."
            .into(),
        "tayga is stateless, with one fixed address for the client: less work than NAT64.".into(),
    ]
}

fn title(row: &Row, cell: Cell) -> String {
    format!("{}, {}, {}, {}", row.name, cell.part.name(), cell.streams, cell.direction)
}

/// Returns true if a row's name has one of the texts; a brief run has Gatun's rows alone.
fn is_wanted(options: &RunOptions, row: &Row) -> bool {
    match options.rows.is_empty() {
        true => !options.brief || row.name.contains("Gatun") && !row.is_for_udp_only(),
        false => options.rows.iter().any(|text| row.name.contains(text)),
    }
}

fn has(row: &Row, cell: Cell) -> bool {
    !cell.part.is_tcp() || !row.is_for_udp_only()
}

/// Columns: each number of streams, in each direction. The search takes one stream.
fn cells(options: &RunOptions) -> Vec<Cell> {
    if options.brief {
        let cell = |part| Cell { part, streams: 1, direction: "upload" };
        return options.parts.clone().unwrap_or(vec![Part::Tcp]).into_iter().map(cell).collect();
    }
    let streams = options.streams.clone().unwrap_or(STREAMS.into());
    let first = streams.first().copied().unwrap_or(1);
    let mut cells = Vec::new();
    for part in options.parts.clone().unwrap_or(Part::ALL.into()) {
        let streams = if part.is_search() { vec![first] } else { streams.clone() };
        for streams in streams {
            cells.extend(["upload", "download"].map(|direction| Cell { part, streams, direction }));
        }
    }
    cells
}
