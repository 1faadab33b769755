//! `pair`: two boxes with BIRD, and faults of one of them while numbered packets pass.

mod lab;
mod stateful;
mod stateless;

use super::RunOptions;
use crate::port_users::{self, PortUsers};
use crate::report::{Report, group};
use gatun_testkit::PairNetwork;
use lab::{Fault, Lab, Setup, table};

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
        flows: options.flows.unwrap_or(flows),
        connections,
    };
    let (settle, examine) = (stateful::settle, stateful::examine);
    // Four in a short run.
    let connections = if options.brief { connections } else { 10_000 };
    stateful::prepare(&options.programs.gatun)?;
    let with_sessions = Setup { config: stateful::config, settle, examine, connections, ..setup };
    let (stateless, stateful) = match options.brief {
        true => (&stateless::FAULTS[..1], &stateful::FAULTS[..4]),
        false => (&stateless::FAULTS[..], &stateful::FAULTS[..]),
    };
    let net = faults(options, &mut report, ("SIIT", setup), (PairNetwork::new()?, stateless))?;
    faults(options, &mut report, ("NAT64 with [peer]", with_sessions), (net, stateful))?;
    // A port with two users in the tables of running boxes has ended the run.
    let users = port_users::check(&options.programs.gatun, &[stateful::log(0), stateful::log(1)]);
    let why = users.as_ref().err().map(|error| format!("{error:#}"));
    report
        .check(why.is_none(), "no public port had two users, at any time, by the logs of both boxes".into());
    report.notes.extend(why);
    if let Ok(PortUsers { ports, users }) = users {
        report.notes.push(format!(
            "The logs have {} users of {} public ports.",
            group(users as u64),
            group(ports as u64)
        ));
    }
    report.notes.push(
        "BFD: 3 x 50 ms. `stall` is one second, so a stopped daemon is noticed after one second; cut links are noticed by BIRD at once.".into(),
    );
    Ok(report)
}

/// Plays faults, and adds their table and checks. Returns the network.
fn faults(
    options: &RunOptions,
    report: &mut Report,
    (what, setup): (&str, Setup<'_>),
    (net, faults): (PairNetwork, &[Fault]),
) -> anyhow::Result<PairNetwork> {
    let connections = setup.connections;
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
            report
                .check(outcome.gap_ms() <= most, format!("{what}, {}: gap of {most} ms at most", fault.name));
        }
        outcomes.push((fault, outcome));
    }
    let title = format!("{what}: faults of the box that translates ({connections} TCP connections each)");
    report.tables.push(table(title, &outcomes));
    lab.end()
}
