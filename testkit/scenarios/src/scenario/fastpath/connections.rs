//! Cost of new connections: 20,000 each second through Gatun with and without its fast path, and through
//! plain forwarding.

use super::tun::{Settings, Tun, route_plain, unroute_plain};
use crate::bed::Bed;
use crate::ends::{Ends, Load, Until};
use crate::middle::Programs;
use crate::processors::{busy_s, stay_on_first_processor};
use crate::report::{Report, Table, group, median};
use crate::scenario::turns;
use gatun_testkit::traffic::{Protocols, Sizes, Spec, Traffic};
use std::time::Duration;

/// New connections each second.
pub(super) const RATE: f64 = 20_000.0;
/// Processor time of new connections with the fast path, at most, as a part of that without it.
const COST_MAX: f64 = 1.1;
/// 99th percentile of the time to give a session to the kernel, at most.
const INSTALL_P99_MAX_US: u64 = 10_000;
/// Pause of the generator when it has nothing to do, so that its polling takes little processor time.
const PAUSE: Duration = Duration::from_micros(100);
const SUBSCRIBERS: u32 = 1_000;

/// Translator of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain,
    Slow,
    /// With the default policy, which leaves short connections to Gatun.
    Fast,
    /// Each connection is given to the kernel at once.
    AtOnce,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Plain => "kernel, untranslated",
            Way::Slow => "Gatun, TUN",
            Way::Fast => "Gatun, fast path",
            Way::AtOnce => "Gatun, fast path, tcp_packets = 0",
        }
    }
}

/// One run.
struct Outcome {
    way: Way,
    /// Processor time of the whole machine for 1,000 connections, ms.
    ms: f64,
    lost: u64,
    /// Connections whose first packet returned.
    returned: u64,
    /// New connections each second, as sent.
    rate: f64,
    installed: u64,
    install_p99_us: u64,
}

/// Runs all ways in turn, several times, and adds their table to the report.
pub(super) fn measure(
    bed: &Bed,
    programs: &Programs,
    (runs, seconds): (u32, f64),
    off: Option<&'static str>,
    is_brief: bool,
    report: &mut Report,
) -> anyhow::Result<()> {
    let flows = (RATE * seconds / f64::from(SUBSCRIBERS)).ceil().max(1.0) as u32;
    let traffic = Traffic::new(Spec {
        family: gatun_testkit::traffic::Family::V6,
        subscribers: SUBSCRIBERS,
        flows_per_subscriber: flows,
        // A SYN in both directions establishes a connection.
        protocols: Protocols::Tcp,
        sizes: Sizes::Fixed(128),
        seed: 0x6661_7374,
    });
    let mut ways = vec![Way::Plain, Way::Slow];
    if off.is_some() {
        ways.extend([Way::Fast, Way::AtOnce]);
    }
    let mut outcomes = Vec::new();
    for (_, (), way) in turns(runs, &[()], &ways) {
        outcomes.push(one(bed, programs, &traffic, *way, off)?);
    }
    tell(&outcomes, report);
    // A brief run is too short for figures.
    if !is_brief {
        check_cost(&outcomes, report);
    }
    Ok(())
}

fn one(
    bed: &Bed,
    programs: &Programs,
    traffic: &Traffic,
    way: Way,
    off: Option<&'static str>,
) -> anyhow::Result<Outcome> {
    let settings = Settings {
        kernel: if matches!(way, Way::Fast | Way::AtOnce) { Some("auto") } else { off },
        kernel_sessions_max: traffic.flows().next_power_of_two(),
        lease: Duration::from_secs(10),
        tcp_packets: (way == Way::AtOnce).then_some(0),
        xdp: false,
    };
    let tun = match way {
        Way::Plain => {
            route_plain(bed)?;
            None
        }
        Way::Slow | Way::Fast | Way::AtOnce => Some(Tun::start(bed, programs, traffic, settings)?),
    };
    stay_on_first_processor();
    let mut ends = Ends::with_pause(bed, traffic.clone(), PAUSE)?;
    // Next hops are resolved by packets that no counter includes.
    anyhow::ensure!(ends.wait_until_open(), "{}: no packet returned", way.name());
    let before_s = busy_s();
    let stage =
        ends.stage("new connections", Load::Rate(RATE), Until::Packets(traffic.flows().into()), |_| {
            (None, 0)
        });
    let busy_s = busy_s().zip(before_s).map(|(after, before)| after - before);
    let busy_s = busy_s.ok_or_else(|| anyhow::anyhow!("/proc/stat cannot be read"))?;
    let offloaded = match &tun {
        Some(tun) if way == Way::AtOnce => {
            tun.wait_until(|offloaded| offloaded.installed >= stage.rx)?;
            tun.offloaded()?
        }
        _ => Default::default(),
    };
    match tun {
        Some(tun) => tun.stop()?,
        None => unroute_plain(bed)?,
    }
    Ok(Outcome {
        way,
        ms: 1e6 * busy_s / stage.tx.max(1) as f64,
        lost: stage.lost(),
        returned: stage.rx,
        rate: stage.tx as f64 / stage.seconds,
        installed: offloaded.installed,
        install_p99_us: offloaded.install_p99_us,
    })
}

fn of(outcomes: &[Outcome], way: Way) -> impl Iterator<Item = &Outcome> {
    outcomes.iter().filter(move |outcome| outcome.way == way)
}

/// Median of the processor time for 1,000 connections, ms.
fn median_ms(outcomes: &[Outcome], way: Way) -> Option<f64> {
    median(of(outcomes, way).map(|outcome| outcome.ms).collect())
}

/// Checks that the fast path makes new connections little dearer, and gets them soon.
fn check_cost(outcomes: &[Outcome], report: &mut Report) {
    let slow = median_ms(outcomes, Way::Slow);
    for way in [Way::Fast, Way::AtOnce] {
        let Some(ratio) = median_ms(outcomes, way).zip(slow).map(|(fast, slow)| fast / slow) else {
            continue;
        };
        let what = format!(
            "{}: processor time of new connections at most {COST_MAX} times that of TUN: {ratio:.2}",
            way.name()
        );
        report.check(ratio <= COST_MAX, what);
    }
    if let Some(p99_us) = of(outcomes, Way::AtOnce).map(|outcome| outcome.install_p99_us).max() {
        let what = format!(
            "99 of 100 sessions are given to the kernel within {} ms: {} µs",
            INSTALL_P99_MAX_US / 1000,
            group(p99_us)
        );
        report.check(p99_us <= INSTALL_P99_MAX_US, what);
    }
}

fn tell(outcomes: &[Outcome], report: &mut Report) {
    let of = |way: Way| of(outcomes, way);
    let median_ms = |way: Way| median_ms(outcomes, way);
    let (plain, slow) = (median_ms(Way::Plain), median_ms(Way::Slow));
    let mut rows = Vec::new();
    for way in [Way::Plain, Way::Slow, Way::Fast, Way::AtOnce] {
        let Some(ms) = median_ms(way) else { continue };
        let ratio =
            |reference: Option<f64>| reference.map_or("-".into(), |other| format!("{:.2}", ms / other));
        let own = plain.zip(slow).filter(|(plain, slow)| slow > plain);
        let own = own.map_or("-".into(), |(plain, slow)| format!("{:.2}", (ms - plain) / (slow - plain)));
        rows.push(vec![
            way.name().to_owned(),
            group(median(of(way).map(|outcome| outcome.rate).collect()).unwrap_or(0.0).round() as u64),
            format!("{ms:.2}"),
            ratio(slow),
            own,
            group(of(way).map(|outcome| outcome.lost).sum()),
            group(of(way).map(|outcome| outcome.installed).max().unwrap_or(0)),
            group(of(way).map(|outcome| outcome.install_p99_us).max().unwrap_or(0)),
        ]);
    }
    let header = [
        "",
        "new connections a second",
        "ms of processor time for 1,000",
        "/ TUN",
        "/ TUN, without plain forwarding",
        "lost",
        "installed",
        "install p99, µs",
    ];
    let title = "New connections: processor time of the whole machine, medians".into();
    report.tables.push(Table { title, header: header.map(String::from).into(), rows });
    if of(Way::AtOnce).next().is_some() {
        let all =
            of(Way::AtOnce).all(|outcome| outcome.returned > 0 && outcome.installed >= outcome.returned);
        report.check(all, "the kernel was given all new connections".into());
    }
}
