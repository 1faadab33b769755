//! `backends`: small packets, new connections, delays and memory of Gatun's backends beside plain forwarding.

use super::fastpath::tun::{Settings, Tun, route_plain, unroute_plain};
use super::iperf::has_fast_path;
use super::{RunOptions, carrier, turns};
use crate::bed::{Bed, ENDS};
use crate::ends::{Ends, Latency, Load, StageResult, Until};
use crate::processors::stay_on_first_processor;
use crate::report::{Report, Table, group, median};
use crate::run::{Middle, Run};
use gatun_testkit::traffic::{Family, Protocols, Sizes, Spec, Traffic};
use std::process::Command;
use std::time::Duration;

const ABOUT: &str = "Small packets of many UDP flows through Gatun's backends and through plain forwarding. A reflector sends \
every packet back, so each passes twice. The backends alternate, and figures are medians over the runs.";

/// Runs without `--runs`.
const RUNS: u32 = 3;
/// Packets in flight: fewer than a queue holds.
const IN_FLIGHT: u64 = 256;
/// Rounds of packets before the measurement: a UDP session is given to the kernel after ten packets.
const ROUNDS: u64 = 12;
/// Packets each second for the delay.
const CALM: f64 = 10_000.0;

/// Program between the ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Tun,
    FastPath,
    /// With the program at the interfaces, too.
    FastPathXdp,
    Xdp,
}

impl Way {
    const ALL: [Way; 5] = [Way::Plain, Way::Tun, Way::FastPath, Way::FastPathXdp, Way::Xdp];

    /// Returns true if the kernel translates established sessions.
    fn is_in_kernel(self) -> bool {
        matches!(self, Way::FastPath | Way::FastPathXdp)
    }

    fn name(self) -> &'static str {
        match self {
            Way::Plain => "kernel, untranslated",
            Way::Tun => "TUN",
            Way::FastPath => "TUN + fast path",
            Way::FastPathXdp => "TUN + fast path, XDP",
            Way::Xdp => "AF_XDP on veth",
        }
    }
}

/// Bytes of a frame, and the hosts inside. A numbered packet over IPv6 needs 84 bytes.
const FRAMES: [(usize, Family); 2] = [(64, Family::V4), (128, Family::V6)];

/// Result of a run.
struct Outcome {
    way: Way,
    frame: usize,
    steady: StageResult,
    /// New connections each second.
    connections: f64,
    latency: Option<Latency>,
    /// Resident memory of the process, MiB.
    memory_mib: Option<f64>,
    damaged: u64,
}

pub(crate) fn run(options: &RunOptions) -> anyhow::Result<Report> {
    let mut report = Report::new("backends", ABOUT);
    let bed = Bed::new(1500)?;
    // XDP sends to a veth whose other end has GRO or a program: the generator's comes after the daemon's.
    for end in ENDS {
        gatun_testkit::run(Command::new("ethtool").args(["-K", end, "gro", "on"]))?;
    }
    let fast_path = has_fast_path(&options.programs);
    let mut ways = Way::ALL.to_vec();
    if let Err(why) = &fast_path {
        ways.retain(|way| !way.is_in_kernel());
        report.not_run.push(format!("the kernel fast path: {why}"));
    }
    let off = fast_path.is_ok().then_some("off");
    let runs = options.runs.unwrap_or(if options.brief { 1 } else { RUNS }).max(1);
    let mut outcomes = Vec::new();
    for (_, (frame, family), way) in turns(runs, &FRAMES, &ways) {
        let traffic = Traffic::new(Spec {
            family,
            subscribers: if options.brief { 64 } else { 1024 },
            flows_per_subscriber: 16,
            protocols: Protocols::Udp,
            sizes: Sizes::Fixed(frame),
            seed: 0x736d_616c,
        });
        outcomes.push(one(&bed, options, &traffic, (*way, frame), off)?);
    }
    tell(&outcomes, &mut report);
    Ok(report)
}

fn one(
    bed: &Bed,
    options: &RunOptions,
    traffic: &Traffic,
    (way, frame): (Way, usize),
    off: Option<&'static str>,
) -> anyhow::Result<Outcome> {
    if way == Way::Xdp {
        return on_xdp(bed, options, traffic, frame);
    }
    let kernel = if way.is_in_kernel() { Some("auto") } else { off };
    let settings = Settings {
        kernel,
        kernel_sessions_max: (2 * traffic.flows()).next_power_of_two(),
        lease: Duration::from_secs(10),
        tcp_packets: None,
        xdp: way == Way::FastPathXdp,
    };
    let tun = match way {
        Way::Plain => {
            route_plain(bed)?;
            None
        }
        _ => Some(Tun::start(bed, &options.programs, traffic, settings)?),
    };
    stay_on_first_processor();
    let mut ends = Ends::new(bed, traffic.clone())?;
    anyhow::ensure!(ends.wait_until_open(), "{}: no packet returned", way.name());
    let flows = u64::from(traffic.flows());
    let load = Load::InFlight(IN_FLIGHT);
    let stage = |ends: &mut Ends, name, load, until| ends.stage(name, load, until, |_| (None, 0));
    let build_up = stage(&mut ends, "build-up", load, Until::Packets(flows));
    stage(&mut ends, "more packets", load, Until::Packets(ROUNDS * flows));
    if let Some(tun) = tun.as_ref().filter(|_| way.is_in_kernel()) {
        let has_all = tun.wait_until(|offloaded| offloaded.sessions >= flows)?.is_some();
        anyhow::ensure!(has_all, "the kernel was not given all sessions: {:?}", tun.offloaded()?);
    }
    let length = options.length(5.0);
    let steady = stage(&mut ends, "steady", load, Until::Elapsed(length));
    if let Some(tun) = tun.as_ref().filter(|_| way == Way::FastPathXdp) {
        let offloaded = tun.offloaded()?;
        let is_at_interfaces = offloaded.xdp_translated > steady.rx;
        anyhow::ensure!(is_at_interfaces, "the interfaces did not translate: {offloaded:?}");
    }
    let calm = stage(&mut ends, "calm", Load::Rate(CALM), Until::Elapsed(length / 2));
    let memory_mib = tun.as_ref().and_then(Tun::memory_mib);
    match tun {
        Some(tun) => tun.stop()?,
        None => unroute_plain(bed)?,
    }
    Ok(Outcome {
        way,
        frame,
        connections: build_up.rx as f64 / build_up.seconds,
        latency: Latency::of(&calm.latency),
        memory_mib,
        damaged: ends.tally().damaged(),
        steady,
    })
}

/// AF_XDP on the ports of the bed.
fn on_xdp(bed: &Bed, options: &RunOptions, traffic: &Traffic, frame: usize) -> anyhow::Result<Outcome> {
    // The rest of a table is reserved for subscribers with few sessions.
    let config = carrier::config_with_room(bed, traffic, 2 * u64::from(traffic.flows()));
    let of_family = RunOptions { family: traffic.spec().family, ..options.clone() };
    let mut run: Run<'_> = carrier::begin(bed, &of_family, Middle::Gatun(&config), traffic)?;
    let flows = u64::from(traffic.flows());
    let load = Load::InFlight(IN_FLIGHT);
    let build_up = carrier::build_up(&mut run, load, flows);
    run.stage("more packets", load, Until::Packets(ROUNDS * flows));
    let length = options.length(5.0);
    let steady = run.stage("steady", load, Until::Elapsed(length));
    let calm = run.stage("calm", Load::Rate(CALM), Until::Elapsed(length / 2));
    let memory_mib = run.memory_mib();
    let (accounts, _) = run.finish()?;
    Ok(Outcome {
        way: Way::Xdp,
        frame,
        connections: build_up.rx as f64 / build_up.seconds,
        latency: Latency::of(&calm.latency),
        memory_mib,
        damaged: accounts.tally.damaged(),
        steady,
    })
}

fn tell(outcomes: &[Outcome], report: &mut Report) {
    let of = |way, frame| outcomes.iter().filter(move |o| (o.way, o.frame) == (way, frame));
    let mut rows = Vec::new();
    for (frame, _) in FRAMES {
        let pps = |way| median(of(way, frame).map(|o| o.steady.pps()).collect());
        for way in Way::ALL {
            let Some(own) = pps(way) else { continue };
            let middle = |value: &dyn Fn(&Outcome) -> Option<f64>, digits: usize| {
                median(of(way, frame).filter_map(value).collect())
                    .map_or("-".into(), |value| format!("{value:.digits$}"))
            };
            let connections = median(of(way, frame).map(|o| o.connections).collect()).unwrap_or(0.0);
            rows.push(vec![
                format!("{frame} bytes: {}", way.name()),
                group(own.round() as u64),
                pps(Way::Plain).map_or("-".into(), |plain| format!("{:.2}", own / plain)),
                pps(Way::Tun).map_or("-".into(), |tun| format!("{:.2}", own / tun)),
                group(of(way, frame).map(|o| o.steady.lost()).sum()),
                group(connections.round() as u64),
                middle(&|o| o.latency.map(|l| l.p50), 0),
                middle(&|o| o.latency.map(|l| l.p99), 0),
                middle(&|o| o.memory_mib, 0),
            ]);
        }
    }
    let header = [
        "",
        "packets a second, both directions",
        "/ plain",
        "/ TUN",
        "lost",
        "new connections a second",
        "p50 µs",
        "p99 µs",
        "memory, MiB",
    ];
    let title = "Small packets".into();
    report.tables.push(Table { title, header: header.map(String::from).into(), rows });
    report.check(outcomes.iter().all(|o| o.steady.rx > 0), "packets passed every backend".into());
    let damaged: u64 = outcomes.iter().map(|o| o.damaged).sum();
    report.check(damaged == 0, "nothing was corrupted, repeated or reordered".into());
    report.notes.extend([
        "64 bytes are NAT44, 128 bytes NAT64; times are round trips at 10,000 packets a second.".into(),
        "The generator has the first processor; plain forwarding and the fast path, with and without XDP, run on it, too.".into(),
    ]);
}
