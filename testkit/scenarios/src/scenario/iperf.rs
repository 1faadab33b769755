//! `iperf`: iperf3 between two of the kernel's stacks: through Gatun on a TUN device, with its kernel fast
//! path and on AF_XDP; through tayga, the kernel's masquerading, forwarding without translation, and programs
//! that the user names. Runs alternate between them.

pub(super) mod measure;
mod results;
pub(super) mod translator;

use super::RunOptions;
use crate::report::Report;
use gatun_testkit::{Error, Topology, has_program};
use indicatif::{ProgressBar, ProgressStyle};
pub(crate) use measure::Part;
use measure::{Cell, Client, Measured};
use results::Results;
use translator::Row;
pub(crate) use translator::has_fast_path;

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
    let steps: u64 = cells.iter().map(|cell| rows.iter().filter(|row| has(row, *cell)).count() as u64).sum();
    let style = ProgressStyle::with_template("{msg:60} {wide_bar} {pos}/{len}")?;
    let bar = ProgressBar::new(u64::from(runs) * steps).with_style(style);
    let lab = Lab { options, net: network()?, seconds, bar };

    let names = rows.iter().map(|row| row.name.clone()).collect();
    let mut results = Results::new(names, cells.clone());
    let mut failures = Vec::new();
    for run in 1..=runs {
        for cell in &cells {
            let mut turns: Vec<&Row> = rows.iter().filter(|row| has(row, *cell)).collect();
            if run % 2 == 0 {
                turns.reverse();
            }
            for row in turns {
                match lab.measure(row, *cell, run) {
                    Ok(measured) => results.add(&row.name, *cell, run, measured),
                    Err(why) => failures.push(format!("run {run}, {}: {why}", title(row, *cell))),
                }
            }
        }
    }
    lab.bar.finish_and_clear();

    report.tables = results.tables();
    report.throughput = results.throughput();
    report.check(failures.is_empty(), "every run of iperf3 transferred data".into());
    report.not_run.append(&mut failures);
    report.notes.extend(notes(runs, seconds));
    Ok(report)
}

fn notes(runs: u32, seconds: u32) -> [String; 4] {
    [
        format!("{runs} runs of {seconds} s for each cell."),
        "UDP has 1400 bytes of payload.".into(),
        "Processor time is that of both ends, the translator and the kernel, and of all other programs."
            .into(),
        "tayga is stateless, with one fixed address for the client: less work than NAT64.".into(),
    ]
}

struct Lab<'a> {
    options: &'a RunOptions,
    net: Topology,
    seconds: u32,
    bar: ProgressBar,
}

impl Lab<'_> {
    /// Sets up a translator, measures through it, and removes it.
    fn measure(&self, row: &Row, cell: Cell, run: u32) -> Result<Measured, Error> {
        self.bar.set_message(format!("run {run}, {}", title(row, cell)));
        let trials = if self.options.brief { TRIALS_BRIEF } else { TRIALS };
        let (running, target) = row.start(&self.net, &self.options.programs)?;
        let client = Client {
            client: &self.net.client,
            server: &self.net.server,
            target: &target,
            seconds: self.seconds,
            warm_up: 0,
            trials,
        };
        let measured = client.measure(cell);
        let used = running.has_used_fast_path(row);
        let stopped = running.stop(&self.net);
        self.bar.inc(1);
        let measured = measured?;
        used?;
        stopped?;
        // A search may find no rate without loss.
        match measured.gbit_s > 0.0 || cell.part == Part::Offered {
            true => Ok(measured),
            false => Err(Error("nothing arrived".into())),
        }
    }
}

fn title(row: &Row, cell: Cell) -> String {
    format!("{}, {}, {}, {}", row.name, cell.part.name(), cell.streams, cell.direction)
}

pub(super) fn network() -> Result<Topology, Error> {
    let net = Topology::new()?;
    net.client.address("eth0", "100.64.0.2/24")?;
    net.translator.address("inside", "100.64.0.1/24")?;
    Ok(net)
}

/// Returns true if a row's name has one of the texts; a brief run has Gatun's rows alone.
fn is_wanted(options: &RunOptions, row: &Row) -> bool {
    match options.rows.is_empty() {
        true => !options.brief || row.name.contains("Gatun") && !row.is_for_udp_only(),
        false => options.rows.iter().any(|text| row.name.contains(text)),
    }
}

fn has(row: &Row, cell: Cell) -> bool {
    cell.part != Part::Tcp || !row.is_for_udp_only()
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
        let streams = if part == Part::Offered { vec![first] } else { streams.clone() };
        for streams in streams {
            cells.extend(["upload", "download"].map(|direction| Cell { part, streams, direction }));
        }
    }
    cells
}
