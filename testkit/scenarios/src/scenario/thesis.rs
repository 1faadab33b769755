//! `thesis`: the benchmark of "High speed NAT64 with P4" (2019) with the translators of this machine.
//!
//! iperf3 sends over TCP and UDP, in both directions. The IPv6 or the IPv4 side opens the connections.

mod features;
mod measurements;
mod moves;
mod tables;

use super::iperf::has_fast_path;
use super::iperf::measure::{Cell, Measured, Part};
use super::iperf::switch::SwitchProgram;
use super::iperf::translator::{Kind, Lab, PLAIN, Row};
use super::{RunOptions, turns};
use crate::report::{LOAD_AVERAGE, Report, Table};
use gatun_testkit::topology::{SERVER, SERVER4};
use gatun_testkit::{Error, has_program, tayga};
use gatun_wire::text::counted;
use measurements::{Conditions, Measurements};
use std::time::{Duration, Instant};
use tables::Results;

const ABOUT: &str = "The benchmark of the thesis \"High speed NAT64 with P4\" (2019) between two network namespaces of this machine. \
All programs share its processors. The translators alternate within each column and each run.";

/// Runs without `--runs`, as in the thesis.
const RUNS: u32 = 3;
/// Seconds of a measurement without `--seconds`.
const SECONDS: f64 = 10.0;
/// Seconds of a measurement in the thesis, after [`FULL_WARM_UP`].
const FULL_SECONDS: u32 = 180;
/// Warm-up of the thesis, seconds.
const FULL_WARM_UP: u32 = 10;
/// Parallel streams without `--streams`, as in the thesis.
const STREAMS: [u32; 4] = [1, 10, 20, 50];
/// Time to set up a translator, iperf3's server and its client, seconds.
const SET_UP_S: u32 = 1;

/// Gatun with state: a static binding lets the IPv4 side open connections.
const STATEFUL: &str = r#"[[pool]]
prefixes = "192.0.2.1"
[[nat64]]
pool6 = "2001:db8:64::/96"
static = [
  { protocol = "tcp", inside = "[2001:db8:1::2]:5201", outside = "192.0.2.1:5201" },
  { protocol = "udp", inside = "[2001:db8:1::2]:5201", outside = "192.0.2.1:5201" },
]
"#;

/// Gatun without state: an explicit mapping of the client's address.
const STATELESS: &str = r#"[translator]
own4 = "192.0.2.14"
[[siit]]
pool6 = "2001:db8:64::/96"
eam = [{ v4 = "192.0.2.1", v6 = "2001:db8:1::2" }]
"#;

/// The same in a switch, whose ports have own addresses.
const STATELESS_IN_SWITCH: &str = r#"[[siit]]
pool6 = "2001:db8:64::/96"
eam = [{ v4 = "192.0.2.1", v6 = "2001:db8:1::2" }]
"#;

/// The client's public address through Gatun, and through tayga.
const PUBLIC: &str = gatun_testkit::topology::PUBLIC;
const PUBLIC_OF_TAYGA: &str = "192.0.2.17";
/// The client's own IPv4 address, for forwarding without translation.
const CLIENT4: &str = "100.64.0.2";

/// Side that opens the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpeningSide {
    Ipv6,
    Ipv4,
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Column {
    opening: OpeningSide,
    cell: Cell,
}

impl Column {
    /// Returns true if the IPv6 side sends the data.
    fn is_from_ipv6(self) -> bool {
        (self.opening == OpeningSide::Ipv6) == (self.cell.direction == "upload")
    }
}

/// A translator, and the client's address as the IPv4 side sees it.
struct Translator {
    row: Row,
    outside: &'static str,
}

impl Translator {
    fn measure(&self, lab: &Lab<'_>, column: Column) -> Result<Measured, Error> {
        let outside = (column.opening == OpeningSide::Ipv4).then_some(self.outside);
        self.row.measure(lab, column.cell, outside)
    }
}

pub(crate) fn run(options: &RunOptions) -> anyhow::Result<Report> {
    anyhow::ensure!(has_program("iperf3"), "iperf3 is not installed (Debian: iperf3)");
    let mut report = Report::new("thesis", ABOUT);
    let (translators, missing) = translators(options);
    report.not_run.extend(missing);
    anyhow::ensure!(
        !translators.is_empty(),
        "no row has one of these texts in its name: {}",
        options.rows.join(", ")
    );
    let columns = columns(options);
    let runs = options.runs.unwrap_or(if options.brief { 1 } else { RUNS }).max(1);
    let seconds = options.length(SECONDS).as_secs().max(1) as u32;
    let turns = || turns(runs, &columns, &translators);
    let mut kept = match &options.keep {
        Some(file) => {
            Measurements::open(file, conditions(options, seconds, &report)?, report.load_average())?
        }
        None => Measurements::default(),
    };
    let lab = Lab::new(&options.programs, [seconds, warm_up(seconds), 0], turns().count())?;
    let mut clock = Clock::new(options.time_max);

    let mut results = Results::new(translators.iter().map(|of| of.row.name.clone()).collect());
    let mut failures = Vec::new();
    for (run, column, translator) in turns() {
        let title = title(translator, column);
        if kept.get(run, &title).is_none() {
            if !clock.has_time() {
                report.left += 1;
                continue;
            }
            lab.show(title.clone());
            match clock.time(|| translator.measure(&lab, column)) {
                Ok(measured) => kept.add(run, title.clone(), measured)?,
                Err(why) => failures.push(format!("run {run}, {title}: {why}")),
            }
        }
        if let Some(measured) = kept.get(run, &title) {
            results.add(&translator.row.name, column, measured);
        }
    }
    let switches: Vec<SwitchProgram> =
        SwitchProgram::ALL.into_iter().filter(|of| has_row(&translators, *of)).collect();
    let features = switches_features(&switches, &lab, &mut clock, &mut report)?;
    drop(lab);

    report.tables = results.tables();
    report.tables.extend(features);
    report.throughput = results.throughput();
    report.charts = results.charts();
    report.check(failures.is_empty(), "every run of iperf3 transferred data".into());
    report.not_run.append(&mut failures);
    if report.left > 0 {
        let left = format!("{} measurements, left to the next run with the same --keep", report.left);
        report.not_run.push(left);
    }
    let full_s = u64::from(RUNS) * full_columns(options).len() as u64 * translators.len() as u64 * FULL_S;
    report.notes.extend(notes(runs, seconds, full_s));
    report.notes.extend(note_of_parts(kept.parts()));
    Ok(report)
}

/// The table of features, with the checks of it and of moving sessions, after the last measurement.
fn switches_features(
    switches: &[SwitchProgram],
    lab: &Lab<'_>,
    clock: &mut Clock,
    report: &mut Report,
) -> anyhow::Result<Option<Table>> {
    if switches.is_empty() || report.left > 0 {
        return Ok(None);
    }
    if !clock.has_time() {
        report.left += 1;
        return Ok(None);
    }
    let (features, moved) = features::table(switches, lab, STATEFUL)?;
    for (switch, moved) in switches.iter().zip(moved) {
        report.check(moved.is_good(), moved.check(switch.name()));
    }
    report.check(features::has_all(&features), "each switch has every feature, by itself or by Gatun".into());
    Ok(Some(features))
}

/// Time of a run that may have to end before everything is measured.
struct Clock {
    begin: Instant,
    time_max: Option<Duration>,
    /// The longest measurement so far: the next one may take as long.
    longest: Duration,
}

impl Clock {
    fn new(time_max: Option<Duration>) -> Clock {
        Clock { begin: Instant::now(), time_max, longest: Duration::ZERO }
    }

    fn has_time(&self) -> bool {
        self.time_max.is_none_or(|max| self.begin.elapsed() + self.longest <= max)
    }

    fn time<T>(&mut self, measure: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let measured = measure();
        self.longest = self.longest.max(begin.elapsed());
        measured
    }
}

/// Conditions that all parts of a run with `--keep` share.
fn conditions(options: &RunOptions, seconds: u32, report: &Report) -> anyhow::Result<Conditions> {
    let mut conditions: Conditions = report.machine.iter().cloned().collect();
    conditions.remove(LOAD_AVERAGE);
    conditions.insert("length".into(), format!("{seconds} s after {} s", warm_up(seconds)));
    conditions.insert("program".into(), measurements::digest(&options.programs.gatun)?);
    Ok(conditions)
}

/// Seconds of a cell at full length.
const FULL_S: u64 = (FULL_SECONDS + FULL_WARM_UP + SET_UP_S) as u64;

fn has_row(translators: &[Translator], program: SwitchProgram) -> bool {
    translators.iter().any(|of| matches!(of.row.kind, Kind::Switch { program: own, .. } if own == program))
}

/// Warm-up before a measurement, seconds: the thesis' share.
fn warm_up(seconds: u32) -> u32 {
    (seconds * FULL_WARM_UP).div_ceil(FULL_SECONDS).min(FULL_WARM_UP)
}

/// Length of the measurements, and whether it is that of the thesis.
fn length_note(runs: u32, seconds: u32) -> String {
    let runs_of = counted(runs.into(), "run");
    let length = format!("{runs_of} of {seconds} s for each cell, after {} s of warm-up", warm_up(seconds));
    match runs >= RUNS && seconds >= FULL_SECONDS {
        true => format!("{length}: full length."),
        false => format!(
            "{length}: shorter than full length. It shows the order of the translators, not their limits."
        ),
    }
}

fn notes(runs: u32, seconds: u32, full_s: u64) -> [String; 5] {
    let hours = full_s.div_ceil(3600);
    [
        length_note(runs, seconds),
        format!(
            "Full length, as in the thesis, is {RUNS} runs of {FULL_SECONDS} s after {FULL_WARM_UP} s, with 1, 10, 20 and 50 streams. \
             `lab/run thesis --seconds {FULL_SECONDS} --runs {RUNS}` takes {hours} hours for these rows."
        ),
        "Rows that begin with `2019` are figures of the thesis, from two other machines with cards of 10 Gbit/s."
            .into(),
        "UDP is sent as fast as the sockets can, in datagrams of 1400 bytes.".into(),
        "The load is that of all processors of the machine: both ends, the translator and the kernel.".into(),
    ]
}

/// A run in parts, by `--keep`.
fn note_of_parts(load_averages: &[String]) -> Option<String> {
    let count = load_averages.len();
    (count > 1).then(|| {
        format!("Measured in {count} parts. Load averages at their begin: {}.", load_averages.join(", "))
    })
}

fn title(translator: &Translator, column: Column) -> String {
    let Cell { part, streams, direction } = column.cell;
    let opening = if column.opening == OpeningSide::Ipv6 { "IPv6" } else { "IPv4" };
    format!("{}, {}, {streams} streams, opened from {opening}, {direction}", translator.row.name, part.name())
}

/// The rows of this machine, and the reason for each that is missing.
fn translators(options: &RunOptions) -> (Vec<Translator>, Vec<String>) {
    let mut missing = Vec::new();
    let mut all = vec![Translator { row: Row::new(PLAIN, Kind::Plain, SERVER4), outside: CLIENT4 }];
    match has_program("tayga") {
        true => {
            let row = Row::new("tayga, stateless", Kind::Tayga, tayga::SERVER);
            all.push(Translator { row, outside: PUBLIC_OF_TAYGA });
        }
        false => missing.push("tayga is not installed (Debian: tayga)".into()),
    }
    let fast_path = has_fast_path(&options.programs);
    let off = fast_path.is_ok().then_some("off");
    let mut ways = vec![("TUN", off)];
    match fast_path {
        Ok(()) => ways.push(("fast path", Some("auto"))),
        Err(why) => missing.push(format!("the kernel fast path: {why}")),
    }
    for (way, fast_path) in ways {
        for (state, config) in [("stateful", STATEFUL), ("stateless", STATELESS)] {
            let kind = Kind::Tun { config, udp_gro: false, fast_path };
            let row = Row::new(&format!("Gatun, {way}, {state}"), kind, SERVER);
            all.push(Translator { row, outside: PUBLIC });
        }
    }
    for program in SwitchProgram::ALL {
        match program.missing(&options.programs, STATEFUL) {
            Some(why) => missing.push(why),
            None => {
                for (state, config) in [("stateful", STATEFUL), ("stateless", STATELESS_IN_SWITCH)] {
                    let kind = Kind::Switch { program, config };
                    let row = Row::new(&format!("Gatun, {}, {state}", program.name()), kind, SERVER);
                    all.push(Translator { row, outside: PUBLIC });
                }
            }
        }
    }
    let is_wanted = |name: &str| match options.rows.is_empty() {
        // A switch compiles its program at each start.
        true => !options.brief || name.contains("Gatun") && !SwitchProgram::is_in(name),
        false => options.rows.iter().any(|text| name.contains(text)),
    };
    all.retain(|of| is_wanted(&of.row.name));
    if options.brief {
        missing.push("other translators, more streams, downloads: brief run".into());
    }
    (all, missing)
}

/// Columns of this run.
fn columns(options: &RunOptions) -> Vec<Column> {
    match options.brief {
        true => columns_of(options, &[1], &["upload"]),
        false => columns_of(options, options.streams.as_deref().unwrap_or(&STREAMS), &DIRECTIONS),
    }
}

/// Columns at full length.
fn full_columns(options: &RunOptions) -> Vec<Column> {
    columns_of(options, &STREAMS, &DIRECTIONS)
}

const DIRECTIONS: [&str; 2] = ["upload", "download"];

fn columns_of(options: &RunOptions, streams: &[u32], directions: &[&'static str]) -> Vec<Column> {
    let wanted = |part: &Part| options.parts.as_ref().is_none_or(|parts| parts.contains(part));
    let mut columns = Vec::new();
    for part in [Part::Tcp, Part::Udp].into_iter().filter(wanted) {
        for opening in [OpeningSide::Ipv6, OpeningSide::Ipv4] {
            for &direction in directions {
                columns.extend(
                    streams
                        .iter()
                        .map(|streams| Column { opening, cell: Cell { part, streams: *streams, direction } }),
                );
            }
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_has_the_thesis_share_and_at_least_a_second() {
        assert_eq!([1, 10, 36, 180, 3600].map(warm_up), [1, 1, 2, 10, 10]);
    }

    #[test]
    fn a_shorter_run_is_called_so() {
        assert!(length_note(3, 180).ends_with("10 s of warm-up: full length."));
        for (runs, seconds) in [(3, 179), (2, 180)] {
            assert!(length_note(runs, seconds).contains("shorter than full length"), "{runs} {seconds}");
        }
    }

    #[test]
    fn a_run_ends_before_a_measurement_for_which_the_time_is_too_short() {
        let mut clock = Clock::new(Some(Duration::from_millis(200)));
        assert!(clock.has_time());
        clock.time(|| std::thread::sleep(Duration::from_millis(101)));
        assert!(!clock.has_time());
        assert!(Clock::new(None).has_time());
    }

    #[test]
    fn parts_are_noted_with_the_load_of_the_machine() {
        let averages = ["0.10", "0.25"].map(String::from);
        assert_eq!(note_of_parts(&averages[..1]), None);
        let note = note_of_parts(&averages).unwrap();
        assert_eq!(note, "Measured in 2 parts. Load averages at their begin: 0.10, 0.25.");
    }
}
