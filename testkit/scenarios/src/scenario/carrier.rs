//! `carrier`: the traffic of many subscribers. All flows open once, then continue in random order. At the
//! end, the number of packets that did not return equals the sum of all drop counters.

use super::{Over, RunOptions};
use crate::bed::Bed;
use crate::ends::{Latency, Load, ProcessorTime, Sample, StageResult, Until, quantile_us};
use crate::middle::on_the_bed;
use crate::report::{Report, Table, group};
use crate::run::{Middle, Run};
use gatun_testkit::traffic::{Family, Sizes, Traffic};
use std::time::Duration;

const ABOUT: &str = "Many subscribers with many flows each use Gatun's stateful translation. All sessions open, then go on in random order, \
while Gatun's API ends random ones, which open again. A reflector sends every packet back, so each passes Gatun twice. The same traffic \
then passes a forwarder in Gatun's place that only copies frames.";

/// Packets of a warm-up, fewer than the queue for an unresolved next hop holds.
const WARM_UP: u64 = 2;
/// Maximum number of warm-ups until packets return.
const WARM_UPS_MAX: u32 = 2;
/// Maximum number of starts of a forwarder.
const STARTS_MAX: u32 = 8;

/// Sessions ended on request each second by default.
const KILLS_PER_S: f64 = 27_000.0;

/// Configuration sized for the flows: 64,512 ports for each address and protocol, half of them free.
pub(super) fn config(bed: &Bed, traffic: &Traffic) -> String {
    config_with_room(bed, traffic, u64::from(traffic.flows()))
}

/// Like [`config`], for a table with room for more sessions than flows.
pub(super) fn config_with_room(bed: &Bed, traffic: &Traffic, sessions_max: u64) -> String {
    let spec = traffic.spec();
    let flows = u64::from(traffic.flows());
    let addresses = (flows.div_ceil(2) * 2).div_ceil(64_512).next_power_of_two();
    let instance = match spec.family {
        Family::V6 => "[[nat64]]\npool6 = \"2001:db8:64::/96\"",
        Family::V4 => "[[nat44]]\ninside = \"100.64.0.0/10\"",
    };
    let mtu = traffic.packet_len_max().max(1500) + 20;
    on_the_bed(
        bed,
        &format!(
            "[[pool]]\nprefixes = \"198.18.0.0/{}\"\n{instance}\n[limits]\nsessions_max = {}\nsubscribers_max = {}\n\
         [translator]\nmtu4 = {mtu}\n{}",
            32 - addresses.ilog2(),
            sessions_max.max(1024),
            spec.subscribers.max(1024),
            if spec.family == Family::V6 { format!("mtu6 = {mtu}\n") } else { String::new() },
        ),
    )
}

pub(crate) fn run(options: &RunOptions) -> anyhow::Result<Report> {
    let traffic = options.traffic(131_072, 16, Sizes::Fixed(128));
    let flows = u64::from(traffic.flows());
    let length = options.length(600.0);
    let mut report = Report::new("carrier", ABOUT);
    let bed = options.bed(&traffic)?;
    let load = options.rate.map_or(Load::InFlight(bed.in_flight()), Load::Rate);

    let config = config(&bed, &traffic);
    let mut run = begin(&bed, options, Middle::Gatun(&config), &traffic)?;
    let build_up = build_up(&mut run, load, flows);
    let sessions_built = run.counters()?.map(|counters| counters.sessions);
    let kills = options.kills.unwrap_or(if options.brief { 200.0 } else { KILLS_PER_S });
    let (steady, killed) = match kills > 0.0 {
        true => run.stage_with_kills("steady", load, Until::Elapsed(length), kills)?,
        false => (run.stage("steady", load, Until::Elapsed(length)), 0),
    };
    report.kills_per_s = Some(killed as f64 / steady.seconds);
    let calm_rate = 0.8 * steady.tx as f64 / steady.seconds;
    let calm = run.stage("at 80 %", Load::Rate(calm_rate), Until::Elapsed(length / 4));
    report.sessions = run.counters()?.map(|counters| counters.sessions);
    let (accounts, ends) = run.finish()?;
    report.samples = ends.samples().to_vec();
    drop(ends);

    // Separate runs: testpmd reports the cost of its packets at its end.
    let mut plain = |name, load, length| {
        plain_stage(&bed, options, &traffic, name, (load, Until::Elapsed(length)), &mut report)
    };
    let plain_calm = plain("plain, the same rate", Load::Rate(calm_rate), length / 4);
    let plain = plain_calm.and_then(|calm| Ok((calm, plain("plain forwarder", load, length / 4)?)));

    report.account(&accounts);
    report.pps = Some(steady.pps());
    report.latency_us = Latency::of(&calm.latency);
    let mut rows = vec![("build-up", &build_up), ("steady", &steady), ("at 80 %", &calm)];
    if let Ok(((plain_calm, _), (plain, _))) = &plain {
        report.reference_pps = Some(plain.pps());
        report.reference_latency_us = Latency::of(&plain_calm.latency);
        rows.extend([("plain forwarder, the same rate", plain_calm), ("plain forwarder", plain)]);
        report.tables.push(delays(&calm, plain_calm));
    }
    report.tables.insert(0, stages(&rows));
    let built = sessions_built.map_or("unknown".into(), group);
    // A flow whose first packet was lost opens its session in the next round.
    let open = sessions_built.is_some_and(|n| n <= flows && n + build_up.lost() >= flows);
    report.check(open, format!("the build-up of {} flows opened as many sessions: {built}", group(flows)));
    match &plain {
        Ok(((_, calm_balance), (_, balance))) => {
            report.check(*balance && *calm_balance, "the same is true of the plain forwarder".into());
        }
        // Gatun's figures are reported even then.
        Err(error) => report.check(false, format!("the plain forwarder in Gatun's place: {error}")),
    }
    report.check(killed > 0 || kills <= 0.0, format!("{} sessions were ended on request", group(killed)));
    tell_costs(options, &steady, plain.as_ref().ok().map(|(_, (plain, _))| plain), &mut report);
    Ok(report)
}

/// Reports the cost of packets in the middle, and the method of measurement.
fn tell_costs(options: &RunOptions, steady: &StageResult, plain: Option<&StageResult>, report: &mut Report) {
    match options.over {
        Over::Veth => {
            report.not_run.push(
                "over memif (--over memif): this run uses AF_XDP on veth in copy mode, whose cost is the kernel's"
                    .into(),
            );
            report.notes.push("ns each: processor time of the program in the middle for each packet, including the kernel's work on its behalf.".into());
        }
        Over::Memif => {
            report.notes.push("ns each: time of the turns, or of testpmd's bursts, with packets, for each of these packets. Polls without packets are excluded.".into());
            report.notes.push("testpmd in the middle uses no huge pages, because its driver cannot share them with two peers. Gatun uses them if some are set aside.".into());
            report.core_ns = steady.ns_per_packet();
            report.reference_core_ns = plain.and_then(StageResult::ns_per_packet);
            let share = steady.middle.map_or(0.0, |middle| middle.share);
            options.tell_limits(report, share, steady.generator_behind);
        }
    }
    report.notes.push("Times are round trips: generator, translator, reflector, translator, judge; at 80 % of the steady rate, where queues are short.".into());
}

/// A stage with the plain forwarder in Gatun's place.
fn plain_stage(
    bed: &Bed,
    options: &RunOptions,
    traffic: &Traffic,
    name: &'static str,
    (load, until): (Load, Until),
    report: &mut Report,
) -> anyhow::Result<(StageResult, bool)> {
    let mut run = begin(bed, options, Middle::Forwarder, traffic)?;
    let mut stage = run.stage(name, load, until);
    let (accounts, ends) = run.finish()?;
    // After the earlier samples: each run has a clock of its own.
    let before_s = report.samples.last().map_or(0.0, |sample| sample.at_s);
    let samples = ends.samples().iter().filter(|sample| sample.stage == name);
    report.samples.extend(samples.map(|sample| Sample { at_s: before_s + sample.at_s, ..sample.clone() }));
    if let Some(ns_each) = accounts.ns_each {
        let share = ns_each * stage.pps() / 1e9;
        stage.middle = Some(ProcessorTime { ns_each, share });
    }
    Ok((stage, accounts.balance()))
}

/// Round trips at the same rate: Gatun and the plain forwarder.
fn delays(gatun: &StageResult, plain: &StageResult) -> Table {
    let shares = [0.1, 0.5, 0.9, 0.99, 0.999];
    let us = |stage: &StageResult, share| quantile_us(&stage.latency, share);
    let cell = |us: Option<f64>| us.map_or("-".into(), |us| format!("{us:.1}"));
    let row = |share: f64| {
        let (a, b) = (us(gatun, share), us(plain, share));
        let more = a.zip(b).map(|(a, b)| a - b);
        vec![format!("{} %", 100.0 * share), cell(a), cell(b), cell(more)]
    };
    let header = ["quantile", "Gatun, µs", "plain forwarder, µs", "difference, µs"];
    Table {
        title: "Round trip at 80 % of the steady rate".into(),
        header: header.map(String::from).into(),
        rows: shares.map(row).into(),
    }
}

/// Starts a program in the middle, sends a few packets so that next hops are resolved, and waits until
/// packets return.
///
/// A testpmd that is the client of two memifs closes, when the first connects, the files that the other one
/// is about to send (decision 0064): then it is restarted.
pub(super) fn begin<'b>(
    bed: &'b Bed,
    options: &RunOptions,
    middle: Middle<'_>,
    traffic: &Traffic,
) -> anyhow::Result<Run<'b>> {
    let may_fail = options.over == Over::Memif && matches!(middle, Middle::Forwarder);
    for _ in 1..STARTS_MAX {
        match Run::new(bed, &options.programs, middle, traffic.clone()) {
            Ok(mut run) => {
                if warm_up(&mut run) || !may_fail {
                    return Ok(run);
                }
                // The run is unusable; its middle may have ended by itself.
                drop(run.finish());
            }
            Err(error) if !may_fail => return Err(error),
            Err(_) => {}
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    Run::new(bed, &options.programs, middle, traffic.clone())
}

/// Returns true if any packet returned.
fn warm_up(run: &mut Run<'_>) -> bool {
    let mut stage = || run.stage("warm-up", Load::InFlight(WARM_UP), Until::Packets(WARM_UP)).rx > 0;
    (0..WARM_UPS_MAX).any(|_| stage())
}

/// Sends the first packet of every flow.
pub(super) fn build_up(run: &mut Run<'_>, load: Load, flows: u64) -> StageResult {
    let left = flows.saturating_sub(run.sent()).max(1);
    run.stage("build-up", load, Until::Packets(left))
}

pub(super) fn stages(rows: &[(&str, &StageResult)]) -> Table {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let cells = |(name, stage): &(&str, &StageResult)| {
        let latency = Latency::of(&stage.latency);
        let us = |of: fn(&Latency) -> f64| latency.as_ref().map_or("-".into(), |l| format!("{:.0}", of(l)));
        vec![
            (*name).to_owned(),
            format!("{:.1}", stage.seconds),
            group(stage.tx),
            group(stage.lost()),
            group(stage.pps().round() as u64),
            stage.ns_per_packet().map_or("-".into(), |ns| format!("{ns:.0}")),
            stage.middle.map_or("-".into(), |middle| percent(middle.share)),
            percent(stage.generator_behind),
            us(|l| l.p50),
            us(|l| l.p99),
            us(|l| l.p999),
        ]
    };
    let header = [
        "stage",
        "s",
        "sent",
        "lost",
        "packets a second",
        "ns each",
        "busy",
        "generator behind",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
    ];
    Table {
        title: "Stages".into(),
        header: header.map(String::from).into(),
        rows: rows.iter().map(cells).collect(),
    }
}
