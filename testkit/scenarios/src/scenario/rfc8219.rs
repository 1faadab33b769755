//! `rfc8219`: benchmarks of RFC 8219 (transition technologies) and RFC 9693 (stateful translators), as far as
//! one machine can: throughput without loss by binary search, latency at that rate, frame loss, and the rate
//! of new connections.

mod dual;

use super::{RunOptions, carrier};
use crate::bed::Bed;
use crate::ends::{Latency, Load, Until};
use crate::report::{Report, Table, group};
use crate::run::{Middle, Run};
use gatun_testkit::traffic::{Sizes, Traffic};
use std::time::Duration;

const ABOUT: &str = "Single translation (RFC 8219 4), stateful (RFC 9693). A reflector loads both directions alike, so every packet is \
translated twice. Throughput is the highest rate at which a trial loses nothing, by binary search (RFC 8219 7.1). Latency is that of every \
packet at this rate (7.2), and frame loss is measured from twice the rate down to half of it (7.5). Frame sizes are those of RFC 8219 4.3 for IPv6.";

/// RFC 8219 4.3: IPv6 frames are 20 bytes longer than IPv4 frames. The last size is the largest that both
/// links carry.
const FRAMES: [usize; 6] = [84, 128, 256, 512, 1024, 1498];
/// Relative distance of the bounds at which the search ends.
const PRECISION: f64 = 0.02;
/// Maximum steps of the search, and of a brief one.
const TRIALS_MAX: usize = 10;
const TRIALS_BRIEF: usize = 3;
/// Shares of the throughput at which frame loss is measured, and those of a brief run.
const SHARES: [f64; 6] = [2.0, 1.5, 1.2, 1.0, 0.8, 0.5];
const SHARES_BRIEF: [f64; 1] = [0.5];
const SUBSCRIBERS: u32 = 1024;

/// Results for a frame size.
struct FrameSizeResult {
    frame: usize,
    /// Packets a second, both directions.
    throughput: f64,
    latency: Option<Latency>,
    /// New connections a second.
    connections: f64,
    /// Share of the rate, and share of lost packets.
    loss: Vec<(f64, f64)>,
}

pub(crate) fn run(options: &RunOptions) -> anyhow::Result<Report> {
    let mut report = Report::new("rfc8219", ABOUT);
    let length = if options.brief { Duration::from_millis(300) } else { options.length(5.0) };
    let mut bed = options.bed(&options.traffic(SUBSCRIBERS, 16, Sizes::Fixed(1518)))?;
    let frames: Vec<usize> = match (options.sizes, options.brief) {
        (Some(Sizes::Fixed(frame)), _) => vec![frame],
        (_, true) => vec![128],
        _ => FRAMES.into(),
    };
    let mut all = Vec::new();
    for &frame in &frames {
        let sized = RunOptions { sizes: Some(Sizes::Fixed(frame)), ..options.clone() };
        let traffic = sized.traffic(SUBSCRIBERS, 16, Sizes::Fixed(frame));
        all.push(one_size(&bed, options, &traffic, frame, length, &mut report)?);
    }
    if let Some(first) = all.first() {
        (report.pps, report.latency_us) = (Some(first.throughput), first.latency);
        let sized = RunOptions { sizes: Some(Sizes::Fixed(first.frame)), ..options.clone() };
        let traffic = sized.traffic(SUBSCRIBERS, 16, Sizes::Fixed(first.frame));
        let mut run = carrier::begin(&bed, options, Middle::Forwarder, &traffic)?;
        report.reference_pps =
            search(&mut run, bed.in_flight(), length, trials(options)).map(|(rate, _)| 2.0 * rate);
        report.account(&run.finish()?.0);
    }
    // On a busy machine, a brief search may end before it reaches such a rate.
    let found = options.brief || all.iter().all(|found| found.throughput > 0.0);
    report.check(found, "each size has a rate without loss".into());
    report.tables.push(throughput_table(&all));
    report.tables.push(loss_table(&all));
    dual::run(&mut bed, options, &frames, length, &mut report)?;
    report.not_run.push("trials of 60 s (RFC 8219 7.1), repeated 20 times for latency: see --seconds".into());
    Ok(report)
}

fn trials(options: &RunOptions) -> usize {
    if options.brief { TRIALS_BRIEF } else { TRIALS_MAX }
}

fn one_size(
    bed: &Bed,
    options: &RunOptions,
    traffic: &Traffic,
    frame: usize,
    length: Duration,
    report: &mut Report,
) -> anyhow::Result<FrameSizeResult> {
    let config = carrier::config(bed, traffic);
    let mut run = carrier::begin(bed, options, Middle::Gatun(&config), traffic)?;
    let build_up = carrier::build_up(&mut run, Load::InFlight(bed.in_flight()), traffic.flows().into());
    let connections = build_up.rx as f64 / build_up.seconds;
    let (rate, latency) = search(&mut run, bed.in_flight(), length, trials(options)).unwrap_or((0.0, None));
    let mut loss = Vec::new();
    let shares = if options.brief { &SHARES_BRIEF[..] } else { &SHARES };
    for &share in shares {
        let trial = run.stage("frame loss", Load::Rate((rate * share).max(100.0)), Until::Elapsed(length));
        loss.push((share, 100.0 * trial.lost() as f64 / trial.tx.max(1) as f64));
    }
    let (accounts, ends) = run.finish()?;
    report.account(&accounts);
    report.samples = ends.samples().to_vec();
    Ok(FrameSizeResult { frame, throughput: 2.0 * rate, latency, connections, loss })
}

/// Searches the highest rate at which a trial loses nothing. Returns the sent packets a second and the
/// delays.
fn search(
    run: &mut Run<'_>,
    in_flight: u64,
    length: Duration,
    trials: usize,
) -> Option<(f64, Option<Latency>)> {
    // The rate with a window is a good first guess of the rate without one.
    let guess = run.stage("guess", Load::InFlight(in_flight), Until::Elapsed(length));
    let (mut low, mut high) = (0.0, 1.5 * guess.tx as f64 / guess.seconds);
    let mut best = None;
    for _ in 0..trials {
        if high <= 0.0 || (high - low) / high < PRECISION {
            break;
        }
        let rate = (low + high) / 2.0;
        let trial = run.stage("throughput", Load::Rate(rate), Until::Elapsed(length));
        // If the generator does not keep up, the trial does not count for this rate.
        let sent = trial.tx as f64 / trial.seconds;
        if trial.lost() == 0 && trial.tx > 0 && sent > 0.95 * rate {
            best = Some((sent, Latency::of(&trial.latency)));
            low = rate;
        } else {
            high = rate;
        }
    }
    best
}

fn throughput_table(all: &[FrameSizeResult]) -> Table {
    let row = |found: &FrameSizeResult| {
        let us =
            |of: fn(&Latency) -> f64| found.latency.as_ref().map_or("-".into(), |l| format!("{:.0}", of(l)));
        vec![
            found.frame.to_string(),
            group(found.throughput.round() as u64),
            us(|l| l.p50),
            us(|l| l.p999),
            group(found.connections.round() as u64),
        ]
    };
    let header = [
        "frame, bytes",
        "packets a second without loss",
        "typical µs",
        "worst case µs",
        "new connections a second",
    ];
    Table {
        title: "Throughput, round trip, connection rate".into(),
        header: header.map(String::from).into(),
        rows: all.iter().map(row).collect(),
    }
}

fn loss_table(all: &[FrameSizeResult]) -> Table {
    let shares = all.first().map(|found| found.loss.as_slice()).unwrap_or_default();
    let header = shares.iter().map(|(share, _)| format!("{:.0} %", 100.0 * share));
    let row = |found: &FrameSizeResult| {
        let cells = found.loss.iter().map(|(_, lost)| format!("{lost:.2}"));
        std::iter::once(found.frame.to_string()).chain(cells).collect()
    };
    Table {
        title: "Frame loss in per cent, at a share of the throughput".into(),
        header: std::iter::once("frame, bytes".to_owned()).chain(header).collect(),
        rows: all.iter().map(row).collect(),
    }
}
