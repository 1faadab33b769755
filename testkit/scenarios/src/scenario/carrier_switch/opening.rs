//! First packets of new UDP sessions, through Gatun alone and through a switch before it, in turn.

use crate::bed::Bed;
use crate::ends::{StageResult, quantile_us};
use crate::report::{Report, Table, group};
use crate::run::Middle;
use crate::scenario::carrier::{begin, build_up, config_with_room};
use crate::scenario::{RunOptions, turns};
use crate::switch::CONTROLLER;
use gatun_testkit::traffic::{Load, Protocols, Sizes, Spec, Traffic, latencies};
use hdrhistogram::Histogram;

/// New sessions each second.
const RATE: f64 = 1_000.0;
/// Runs of each way, in turn.
const RUNS: u32 = 5;
/// Largest difference between the medians of both ways, microseconds.
const DIFFERENCE_MAX_US: f64 = 1_000.0;

/// First packets of one way.
struct FirstPackets {
    name: &'static str,
    has_switch: bool,
    round_trips: Histogram<u64>,
    /// Median of each run, microseconds.
    medians_us: Vec<f64>,
}

impl FirstPackets {
    fn new(name: &'static str, has_switch: bool) -> FirstPackets {
        FirstPackets { name, has_switch, round_trips: latencies(), medians_us: Vec::new() }
    }

    fn add(&mut self, stage: &StageResult) {
        self.round_trips += &stage.latency;
        self.medians_us.extend(quantile_us(&stage.latency, 0.5));
    }

    fn row(&self) -> Vec<String> {
        let us = |us: Option<f64>| us.map_or("-".into(), |us| group(us.round() as u64));
        let quantile = |share| us(quantile_us(&self.round_trips, share));
        let medians: Vec<String> = self.medians_us.iter().map(|median| us(Some(*median))).collect();
        let packets = group(self.round_trips.len());
        vec![self.name.into(), packets, quantile(0.5), quantile(0.99), medians.join(", ")]
    }
}

/// Plays all runs, each with programs of its own, and adds a table and checks to the report.
pub(super) fn run(bed: &mut Bed, options: &RunOptions, report: &mut Report) -> anyhow::Result<()> {
    let traffic = traffic(options);
    let runs = if options.brief { 1 } else { RUNS };
    let mut ways = [FirstPackets::new("Gatun alone", false), FirstPackets::new("switch and Gatun", true)];
    let mut opened = true;
    for (_, (), way) in turns(runs, &[()], &[0, 1]) {
        let way = &mut ways[*way];
        let (stage, has_sessions) = open(bed, options, way.has_switch, &traffic, report)?;
        way.add(&stage);
        opened &= has_sessions;
    }
    let [alone, switch] = &ways;
    let [of_alone, of_switch] = [alone, switch].map(|way| way.round_trips.len());
    report.check(
        opened && of_alone.min(of_switch) > 0,
        format!("first packets opened sessions and returned: {} and {}", group(of_alone), group(of_switch)),
    );
    if !options.brief {
        check_medians(report, [alone, switch].map(|way| quantile_us(&way.round_trips, 0.5)));
    }
    report.tables.push(table(&ways, runs));
    Ok(())
}

/// One packet of each flow.
fn traffic(options: &RunOptions) -> Traffic {
    Traffic::new(Spec {
        family: options.family,
        subscribers: if options.brief { 1 } else { 128 },
        flows_per_subscriber: 16,
        protocols: Protocols::Udp,
        sizes: Sizes::Fixed(128),
        seed: 0x6f70_656e,
    })
}

/// Opens all sessions of one run. Also returns true if Gatun has a session for each packet that returned.
fn open(
    bed: &mut Bed,
    options: &RunOptions,
    has_switch: bool,
    traffic: &Traffic,
    report: &mut Report,
) -> anyhow::Result<(StageResult, bool)> {
    bed.set_switch(has_switch)?;
    let flows = u64::from(traffic.flows());
    let without = config_with_room(bed, traffic, 2 * flows);
    let with = format!("{without}\n{CONTROLLER}");
    let middle = if has_switch { Middle::Switch(&with, flows) } else { Middle::Gatun(&without) };
    let mut run = begin(bed, options, middle, traffic)?;
    let stage = build_up(&mut run, Load::Rate(RATE), flows);
    let sessions = run.counters()?.map_or(0, |counters| counters.sessions);
    let returned = run.returned();
    let (accounts, _) = run.finish()?;
    report.account_with_moves(&accounts);
    Ok((stage, (returned..=flows).contains(&sessions)))
}

fn check_medians(report: &mut Report, medians_us: [Option<f64>; 2]) {
    let difference_us = match medians_us {
        [Some(alone), Some(switch)] => (switch - alone).abs(),
        _ => f64::INFINITY,
    };
    report.check(
        difference_us <= DIFFERENCE_MAX_US,
        format!(
            "the median of first packets differs by {difference_us:.0} µs with a switch and without, at most {DIFFERENCE_MAX_US:.0} µs"
        ),
    );
}

fn table(ways: &[FirstPackets], runs: u32) -> Table {
    let header = ["way", "first packets", "p50 µs", "p99 µs", "p50 of each run, µs"];
    Table {
        title: format!(
            "First packets of new UDP sessions, round trip, {} sessions a second, {runs} alternated runs",
            group(RATE as u64)
        ),
        header: header.map(String::from).into(),
        rows: ways.iter().map(FirstPackets::row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_good(medians_us: [Option<f64>; 2]) -> bool {
        let mut report = Report::new("carrier", "A test.");
        check_medians(&mut report, medians_us);
        report.is_good()
    }

    #[test]
    fn medians_that_differ_by_more_than_a_millisecond_or_are_missing_fail() {
        assert!(is_good([Some(354.0), Some(1_354.0)]));
        assert!(!is_good([Some(354.0), Some(1_355.0)]));
        assert!(!is_good([Some(1_355.0), Some(354.0)]));
        assert!(!is_good([Some(354.0), None]) && !is_good([None, Some(356.0)]));
    }

    #[test]
    fn the_row_of_a_way_has_the_quantiles_of_all_its_runs() {
        let mut way = FirstPackets::new("Gatun alone", false);
        for us in [100, 300] {
            let mut latency = latencies();
            latency.record_n(1_000 * us, 10).unwrap();
            let stage =
                StageResult { seconds: 1.0, tx: 10, rx: 10, latency, middle: None, generator_behind: 0.0 };
            way.add(&stage);
        }
        assert_eq!(way.row()[..2], ["Gatun alone", "20"]);
        assert!(way.row()[2].starts_with("10") && way.row()[3].starts_with("30"), "{:?}", way.row());
        assert_eq!(way.row()[4].split(", ").count(), 2);
    }
}
