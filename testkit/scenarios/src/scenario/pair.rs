//! `pair`: two boxes with BIRD, and faults of one of them while numbered packets pass.

mod lab;
mod stateful;
mod stateless;

use super::RunOptions;
use super::probe::ProbeLoad;
use crate::port_users;
use crate::report::{Report, Table};
use gatun_testkit::PairNetwork;
use lab::{Fault, Lab, Setup};

const ABOUT: &str = "Two boxes translate the same prefix, and BIRD on them announces the routes of [announce] to two routers: first without sessions (SIIT), then \
with sessions that they tell each other (NAT64 and [peer]). A client sends a numbered datagram each millisecond in several flows, and keeps TCP connections open; a server \
echoes all. The first box fails in several ways, and comes back.";

pub(crate) fn run(options: &RunOptions) -> anyhow::Result<Report> {
    let mut report = Report::new("pair", ABOUT);
    if let Some(why) =
        gatun_testkit::missing(&[("bird", "bird2"), ("nft", "nftables"), ("python3", "python3")])
    {
        report.not_run.push(why);
        return Ok(report);
    }
    let (flows, connections) = if options.brief { (4, 4) } else { (64, 100) };
    let setup = Setup {
        programs: &options.programs,
        config: stateless::config,
        settle: || Ok(()),
        examine: |_| Ok(()),
        load: ProbeLoad { flows: options.flows.unwrap_or(flows), connections, hosts: Vec::new() },
    };
    let (settle, examine) = (stateful::settle, stateful::examine);
    // Four in a short run.
    let connections = if options.brief { connections } else { 10_000 };
    stateful::prepare(&options.programs.gatun)?;
    let load = ProbeLoad { connections, ..setup.load.clone() };
    let with_sessions = Setup { config: stateful::config, settle, examine, load, ..setup };
    let (stateless, stateful) = match options.brief {
        true => (&stateless::FAULTS[..1], &stateful::FAULTS[..4]),
        false => (&stateless::FAULTS[..], &stateful::FAULTS[..]),
    };
    let is_named = |fault: &&Fault| {
        options.rows.is_empty() || options.rows.iter().any(|text| fault.name.contains(text.as_str()))
    };
    let [stateless, stateful] = [stateless, stateful].map(|all| all.iter().filter(is_named).collect());
    let net = faults(options, &mut report, ("SIIT", setup), (PairNetwork::new()?, stateless))?;
    faults(options, &mut report, ("NAT64 with [peer]", with_sessions), (net, stateful))?;
    // A port with two users in the tables of running boxes has ended the run.
    port_users::judge(&mut report, &options.programs.gatun, &[stateful::log(0), stateful::log(1)]);
    report.notes.push(
        "BFD: 3 x 50 ms. `stall` is one second, so a stopped daemon is noticed after one second; cut links are noticed by BIRD at once.".into(),
    );
    Ok(report)
}

const COLUMNS: [&str; 7] = [
    "fault",
    "sent",
    "lost, fault",
    "longest gap, ms",
    "lost, return",
    "longest gap, ms",
    "connections ended",
];

/// Plays faults, and adds their table and checks. Returns the network.
fn faults(
    options: &RunOptions,
    report: &mut Report,
    (what, setup): (&str, Setup<'_>),
    (net, faults): (PairNetwork, Vec<&Fault>),
) -> anyhow::Result<PairNetwork> {
    if faults.is_empty() {
        return Ok(net);
    }
    let connections = setup.load.connections;
    let mut lab = Lab::new(net, setup)?;
    let mut outcomes = Vec::new();
    for fault in faults {
        let outcome = lab.during(fault, options.length(5.0))?;
        report.check_once(outcome.goes_on(), "packets passed during each fault and after it");
        report.check_once(outcome.ended == 0, "no TCP connection ended");
        if fault.is_lossless {
            report.check(outcome.lost() == 0, format!("{what}, {}: no packet was lost", fault.name));
        }
        // A busy machine delays BIRD and the daemons.
        if let Some(most) = fault.gap_max_ms.filter(|_| !options.brief) {
            report.check(
                outcome.gaps_ms()[0] <= most,
                format!("{what}, {}: gap of {most} ms at most", fault.name),
            );
        }
        outcomes.push(outcome.row(fault.name, outcome.gaps_ms()));
    }
    let title = format!("{what}: faults of the box that translates ({connections} TCP connections each)");
    report.tables.push(Table { title, header: COLUMNS.map(Into::into).to_vec(), rows: outcomes });
    lab.end()
}
