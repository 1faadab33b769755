//! Processor time by function, sampled by `perf record` on all processors while iperf3 runs.

use super::measure::{Cell, Measured};
use crate::report::{Table, median};
use gatun_testkit::{Error, Process, has_program, run};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Samples of a processor per second. It is no divisor of the kernel's ticks.
const RATE: u32 = 997;
/// Functions in a table; the others are added up.
const FUNCTIONS: usize = 15;
/// Time limit for `perf` to write its file.
const WRITTEN_MAX: Duration = Duration::from_secs(20);
const OTHERS: &str = "other functions";

/// Samples of each function; the idle loop has none.
pub(super) type Samples = BTreeMap<String, u64>;
/// ms of processor time of each function for a received Gbit.
type Times = BTreeMap<String, f64>;

/// Recording that goes on.
pub(super) struct Recording {
    process: Process,
    file: PathBuf,
}

impl Recording {
    /// Starts `perf`, which writes to this folder.
    ///
    /// # Errors
    /// Returns an error if `perf` is missing or does not start.
    pub(super) fn start(output: &Path) -> Result<Recording, Error> {
        if !has_program("perf") {
            return Err(Error("perf is not installed (Debian: linux-perf)".into()));
        }
        let file = output.join("perf.data");
        let mut command = Command::new("perf");
        command.args(["record", "--quiet", "--all-cpus", "--event", "cpu-clock"]);
        command.arg("--freq").arg(RATE.to_string()).arg("--output").arg(&file);
        Ok(Recording { process: Process::start(&mut command)?, file })
    }

    /// Ends it. Returns its samples.
    ///
    /// # Errors
    /// Returns an error if `perf` fails.
    pub(super) fn finish(mut self) -> Result<Samples, Error> {
        self.process.signal(Signal::INT)?;
        self.process.wait(WRITTEN_MAX)?;
        let mut report = Command::new("perf");
        report.args(["report", "--stdio", "--quiet", "--no-children", "--fields", "sample,symbol"]);
        let text = run(report.args(["--field-separator", ";", "--input"]).arg(&self.file))?;
        Ok(read(&text))
    }
}

/// Reads lines of `samples;[k] function`.
fn read(report: &str) -> Samples {
    let mut samples = Samples::new();
    for (count, symbol) in report.lines().filter_map(|line| line.split_once(';')) {
        let Ok(count) = count.trim().parse::<u64>() else { continue };
        let name = symbol.trim().trim_start_matches("[k] ").trim_start_matches("[.] ");
        if !["idle", "halt", "mwait"].iter().any(|text| name.contains(text)) {
            *samples.entry(name.to_owned()).or_default() += count;
        }
    }
    samples
}

/// Samples of all runs, as ms of processor time for a received Gbit.
#[derive(Default)]
pub(super) struct Profiles {
    runs: Vec<(String, Cell, Times)>,
}

impl Profiles {
    /// Adds the samples of a measurement of this length.
    pub(super) fn add(&mut self, row: &str, cell: Cell, (measured, seconds): (&Measured, u32), all: Samples) {
        let gbit = measured.gbit_s * f64::from(seconds);
        if gbit > 0.0 {
            let ms = |count: u64| 1e3 * count as f64 / f64::from(RATE) / gbit;
            let times = all.into_iter().map(|(name, count)| (name, ms(count))).collect();
            self.runs.push((row.to_owned(), cell, times));
        }
    }

    /// A table for each cell: functions by rows, medians over the runs.
    pub(super) fn tables(&self, rows: &[String], cells: &[Cell]) -> Vec<Table> {
        cells.iter().filter_map(|cell| self.table(rows, *cell)).collect()
    }

    fn table(&self, rows: &[String], cell: Cell) -> Option<Table> {
        let of = |row: &str| -> Vec<&Times> {
            self.runs.iter().filter(|(name, at, _)| name == row && *at == cell).map(|run| &run.2).collect()
        };
        let columns: Vec<(&String, Vec<_>)> =
            rows.iter().map(|row| (row, of(row))).filter(|(_, runs)| !runs.is_empty()).collect();
        let time = |runs: &[&Times], name: &str| {
            median(runs.iter().map(|run| run.get(name).copied().unwrap_or(0.0)).collect()).unwrap_or(0.0)
        };
        let most = |name: &str| columns.iter().map(|(_, runs)| time(runs, name)).fold(0.0, f64::max);
        let known: BTreeSet<&String> =
            columns.iter().flat_map(|(_, runs)| runs.iter().flat_map(|run| run.keys())).collect();
        let mut names: Vec<&String> = known.into_iter().collect();
        names.sort_by(|a, b| most(b).total_cmp(&most(a)));
        let rest = names.split_off(names.len().min(FUNCTIONS));
        let line = |name: &str, value: &dyn Fn(&[&Times]) -> f64| {
            let values = columns.iter().map(|(_, runs)| format!("{:.1}", value(runs)));
            std::iter::once(name.to_owned()).chain(values).collect::<Vec<String>>()
        };
        let mut lines: Vec<_> = names.iter().map(|name| line(name, &|runs| time(runs, name))).collect();
        lines.push(line(OTHERS, &|runs| rest.iter().fold(0.0, |sum, name| sum + time(runs, name))));
        let Cell { part, streams, direction } = cell;
        let title =
            format!("{}, {streams}, {direction}: ms of processor time for a Gbit, by function", part.name());
        let header = std::iter::once(String::new()).chain(columns.iter().map(|(row, _)| (*row).clone()));
        (!columns.is_empty()).then(|| Table { title, header: header.collect(), rows: lines })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::iperf::Part;

    const CELL: Cell = Cell { part: Part::Tcp, streams: 10, direction: "upload" };

    #[test]
    fn samples_become_ms_for_a_gbit_without_the_idle_loop() {
        let report =
            " 997    ;[k] copy\n\n1994 ;[.] main\n5 ;[k] default_idle\nnonsense\n3;[k] pv_native_safe_halt\n";
        let mut profiles = Profiles::default();
        profiles.add("plain", CELL, (&Measured::of_rate(5.0), 2), read(report));
        profiles.add("plain", CELL, (&Measured::of_rate(0.0), 2), read(report));
        let tables = profiles.tables(&["fast".into(), "plain".into()], &[CELL]);
        assert_eq!(tables.len(), 1);
        assert_eq!(tables[0].header, ["", "plain"]);
        assert_eq!(tables[0].rows, [["main", "200.0"], ["copy", "100.0"], [OTHERS, "0.0"]]);
    }

    #[test]
    fn functions_are_ordered_by_their_most_and_the_rest_is_added_up() {
        let mut profiles = Profiles::default();
        let many = |first: u64| (0..20).map(|n| (format!("f{n:02}"), 997 * (first + n))).collect::<Samples>();
        profiles.add("a", CELL, (&Measured::of_rate(1.0), 1), many(0));
        profiles.add("b", CELL, (&Measured::of_rate(1.0), 1), many(100));
        let table = profiles.tables(&["a".into(), "b".into()], &[CELL]).remove(0);
        assert_eq!(table.rows.len(), FUNCTIONS + 1);
        assert_eq!(table.rows[0], ["f19", "19000.0", "119000.0"]);
        assert_eq!(table.rows[FUNCTIONS], [OTHERS, "10000.0", "510000.0"]);
    }
}
