//! `ladder`: the cost of a packet, step by step, from plain forwarding to two million sessions.

mod handover;

use super::{Over, RunOptions, carrier};
use crate::bed::Bed;
use crate::ends::{Latency, Load, StageResult, Until};
use crate::middle::on_the_bed;
use crate::report::{Report, Table, group};
use crate::run::{Accounts, Middle};
use gatun_testkit::traffic::{Family, Sizes, Traffic};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

const ABOUT: &str = "The same traffic, as much as passes without loss, through several programs between two cables: forwarders, stateless \
translation, stateful translation, and two million sessions. Processor time is that of the program in the middle, including the \
kernel's work on its behalf; over memif, the time in which it had packets.";

/// A step of the ladder.
struct Rung {
    name: String,
    family: Family,
    flows: u32,
    /// Program in the middle.
    what: What,
}

enum What {
    Forwarder,
    Backend,
    Kernel,
    Siit,
    Stateful,
}

/// Subscribers of the small steps.
const SUBSCRIBERS: u32 = 256;
/// Subscribers of the large step.
const SUBSCRIBERS_MANY: u32 = 131_072;

fn rungs(options: &RunOptions) -> Vec<Rung> {
    let rung = |name: &str, family, what| Rung { name: name.into(), family, flows: SUBSCRIBERS, what };
    let mut rungs = vec![
        rung("plain forwarder, IPv6", Family::V6, What::Forwarder),
        rung("SIIT, 256 mappings", Family::V6, What::Siit),
        rung("NAT64, 4,096 sessions", Family::V6, What::Stateful),
    ];
    if options.over == Over::Memif {
        rungs.insert(1, rung("Gatun's backend without translation, IPv6", Family::V6, What::Backend));
    }
    if !options.brief {
        rungs.insert(1, rung("plain forwarder, IPv4", Family::V4, What::Forwarder));
        rungs.push(rung("NAT44, 4,096 sessions", Family::V4, What::Stateful));
        rungs.push(Rung {
            name: format!("NAT64, {} sessions", group(u64::from(SUBSCRIBERS_MANY) * 16)),
            family: Family::V6,
            flows: SUBSCRIBERS_MANY,
            what: What::Stateful,
        });
    }
    if options.over == Over::Veth {
        // Last, because it leaves routes behind.
        rungs.push(rung("kernel, IPv6 untranslated", Family::V6, What::Kernel));
    }
    rungs
}

/// SIIT configuration with a mapping for each subscriber.
fn siit(bed: &Bed, traffic: &Traffic) -> String {
    let mut eam = String::new();
    for subscriber in 0..traffic.spec().subscribers {
        if let IpAddr::V6(v6) = traffic.flow(subscriber).inside.0 {
            let v4 = Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 0, 0)) + subscriber);
            let _ = writeln!(eam, "  {{ v4 = \"{v4}\", v6 = \"{v6}\" }},");
        }
    }
    on_the_bed(
        bed,
        &format!(
            "[translator]\nown4 = \"192.0.2.14\"\nown6 = \"2001:db8:ffff::1\"\n\
         [[siit]]\npool6 = \"2001:db8:64::/96\"\neam = [\n{eam}]\n"
        ),
    )
}

pub(crate) fn run(options: &RunOptions) -> anyhow::Result<Report> {
    let mut report = Report::new("ladder", ABOUT);
    let length = options.length(5.0);
    let bed = options.bed(&options.traffic(SUBSCRIBERS, 16, Sizes::Fixed(128)))?;
    let mut rows = Vec::new();
    for rung in rungs(options) {
        let of_family = RunOptions { family: rung.family, ..options.clone() };
        let traffic = of_family.traffic(rung.flows, 16, Sizes::Fixed(128));
        let config = match rung.what {
            What::Siit => siit(&bed, &traffic),
            What::Stateful => carrier::config(&bed, &traffic),
            What::Forwarder | What::Backend | What::Kernel => String::new(),
        };
        let middle = match rung.what {
            What::Forwarder => Middle::Forwarder,
            What::Backend => Middle::Backend,
            What::Kernel => Middle::Kernel,
            What::Siit | What::Stateful => Middle::Gatun(&config),
        };
        let flows = u64::from(traffic.flows());
        let mut run = carrier::begin(&bed, options, middle, &traffic)?;
        let load = Load::InFlight(bed.in_flight());
        carrier::build_up(&mut run, load, flows);
        let steady = run.stage("steady", load, Until::Elapsed(length));
        let (accounts, _) = run.finish()?;
        // The kernel's forwarding has no counters to read here.
        if !matches!(rung.what, What::Kernel) {
            report.account(&accounts);
        }
        if rung.name.starts_with("NAT64, 4,096") {
            (report.pps, report.latency_us) = (Some(steady.pps()), Latency::of(&steady.latency));
        }
        if rung.name.starts_with("plain forwarder, IPv6") {
            (report.reference_pps, report.reference_latency_us) =
                (Some(steady.pps()), Latency::of(&steady.latency));
        }
        rows.push(row(options, &rung, &accounts, &steady, &mut report));
    }
    rows.extend(handover::rows(options, &mut report)?);
    report.tables.push(Table {
        title: "Cost of a packet".into(),
        header: ["step", "packets a second", "ns of processor time", "busy", "generator behind", "lost"]
            .map(String::from)
            .into(),
        rows,
    });
    if options.over == Over::Veth {
        report.notes.push("The plain forwarder is Gatun's backend without an engine.".into());
        let what = "over memif with testpmd as the baseline (--over memif): this run uses AF_XDP on veth in copy mode, whose cost is the kernel's";
        report.not_run.push(what.into());
    }
    if options.brief {
        report.not_run.push("IPv4, and two million sessions: brief run".into());
    }
    Ok(report)
}

/// A step's row of the table. Adds the processor time of the first step of each kind to the report.
fn row(
    options: &RunOptions,
    rung: &Rung,
    accounts: &Accounts,
    steady: &StageResult,
    report: &mut Report,
) -> Vec<String> {
    let ns_each = accounts.ns_each.or(steady.ns_per_packet());
    let share = ns_each.map(|ns| steady.pps() * ns / 1e9);
    match rung.what {
        _ if options.over != Over::Memif => {}
        What::Forwarder if report.reference_core_ns.is_none() => report.reference_core_ns = ns_each,
        What::Stateful if report.core_ns.is_none() => {
            report.core_ns = ns_each;
            options.tell_limits(report, share.unwrap_or(0.0), steady.generator_behind);
        }
        _ => {}
    }
    let each = ns_each.map_or("-".into(), |ns| format!("{ns:.1}"));
    let share = share.map_or("-".into(), |share| format!("{:.0} %", 100.0 * share));
    let rate = group(steady.pps().round() as u64);
    let generator = format!("{:.0} %", 100.0 * steady.generator_behind);
    vec![rung.name.clone(), rate, each, share, generator, group(accounts.lost())]
}
