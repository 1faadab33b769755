//! `pair`: two boxes with BIRD, and faults of one of them while numbered packets pass.

mod kernel;
mod lab;
mod stateful;
mod stateless;

use super::goals::{Gaps, Runs, runs_of};
use super::probe::{Outcome, ProbeLoad};
use super::upgrade::Builds;
use super::{RunOptions, lag};
use crate::port_users::{self, Silence};
use crate::report::{Report, Table, group};
use gatun_testkit::PairNetwork;
use lab::{Fault, Lab, Setup};

const ABOUT: &str = "Two boxes translate the same prefix, and BIRD on them announces the routes of [announce] to two routers: first without sessions (SIIT), then \
with sessions that they tell each other (NAT64 and [peer]). A client sends a numbered datagram each millisecond in several flows, and keeps TCP connections open; a server \
echoes all. The first box fails in several ways, and comes back. A figure is the median of the runs, with the least and the greatest value.";

pub(crate) fn run(options: &RunOptions) -> anyhow::Result<Report> {
    let mut report = Report::new("pair", ABOUT);
    if let Some(why) =
        gatun_testkit::missing(&[("bird", "bird2"), ("nft", "nftables"), ("python3", "python3")])
    {
        report.not_run.push(why);
        return Ok(report);
    }
    let (flows, connections) = if options.brief { (4, 4) } else { (64, 10_000) };
    let flows = options.flows.unwrap_or(flows);
    let (is_fast, net) = (options.fastpath, PairNetwork::new()?);
    let wants_upgrade =
        stateful::FAULTS.iter().any(|fault| fault.from_former && options.wants_row(fault.name));
    let builds = Builds::of(&options.programs, &mut report, wants_upgrade)?;
    let setup = Setup {
        programs: &options.programs,
        config: stateless::config,
        socket: stateless::socket,
        in_kernel: is_fast.then_some(0),
        builds: builds.as_ref(),
        settle: || Ok(()),
        forget: |_| Ok(()),
        examine: |_| Ok(()),
        // The ports of one address are used again soon.
        load: ProbeLoad { flows, connections: connections.min(100), hosts: Vec::new() },
    };
    stateful::prepare(&options.programs.gatun)?;
    let with_sessions = Setup {
        config: stateful::config,
        socket: stateful::socket,
        in_kernel: is_fast.then_some(u64::from(flows + connections)),
        settle: stateful::settle,
        forget: stateful::forget,
        examine: stateful::examine,
        load: ProbeLoad { flows, connections, hosts: stateful::hosts() },
        ..setup
    };
    let is_wanted = |fault: &&Fault| {
        let is_possible = !fault.from_former || builds.is_some();
        is_possible && (fault.is_brief || !options.brief) && options.wants_row(fault.name)
    };
    let named = |all: &'static [Fault]| all.iter().filter(is_wanted).collect();
    let (net, _) = faults(options, &mut report, ("SIIT", setup), (net, named(&stateless::FAULTS)))?;
    let (_, silences) =
        faults(options, &mut report, ("NAT64 with [peer]", with_sessions), (net, named(&stateful::FAULTS)))?;
    if let Some(builds) = &builds {
        builds.judge(&mut report);
    }
    // A port with two users in the tables of running boxes has ended the run.
    let logs = stateful::logs().map(|log| log.directories());
    port_users::judge(&mut report, &options.programs.gatun, &logs, &silences);
    report.notes.push(format!(
        "{} BFD: 3 x 50 ms. `stall` is one second, so a stopped daemon is noticed after one second; cut links are noticed by BIRD at once.",
        runs_of(options.runs())
    ));
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

/// Plays faults, and adds their table and checks. Returns the network, and the times after which killed boxes
/// translated nothing more.
fn faults(
    options: &RunOptions,
    report: &mut Report,
    (what, setup): (&str, Setup<'_>),
    (net, faults): (PairNetwork, Vec<&Fault>),
) -> anyhow::Result<(PairNetwork, Vec<Silence>)> {
    if faults.is_empty() {
        return Ok((net, Vec::new()));
    }
    let (connections, is_fast) = (setup.load.connections, setup.in_kernel.is_some());
    let has_sessions = !setup.load.hosts.is_empty();
    let mut lab = Lab::new(net, setup)?;
    let mut outcomes: Vec<Vec<Outcome>> = faults.iter().map(|_| Vec::new()).collect();
    let mut lags = Vec::new();
    for _ in 0..options.runs() {
        if has_sessions {
            lags.push(lab.lag(options.brief)?);
        }
        for (fault, of_fault) in faults.iter().zip(&mut outcomes) {
            of_fault.push(lab.play(fault, options.length(5.0))?);
        }
    }
    let what = if is_fast { format!("{what}, kernel fast path") } else { what.to_owned() };
    let rows = faults.iter().zip(&outcomes).map(|(fault, outcomes)| {
        let (outcomes, gaps) = (outcomes.iter().collect(), Outcome::gaps_ms as Gaps);
        Runs { what: &what, fault: fault.name, goals: fault.goals, outcomes, gaps }
            .judge(report, options.brief)
    });
    let rows = rows.collect();
    let title = format!(
        "{what}: faults of the box that translates ({} TCP connections each)",
        group(connections.into())
    );
    report.tables.push(Table { title, header: COLUMNS.map(Into::into).to_vec(), rows });
    if has_sessions {
        report.tables.push(lag::table(&lags));
    }
    if is_fast {
        report.check_once(true, "the kernel translated, and had all sessions, before each fault");
    }
    lab.end()
}
