//! `cluster`: nodes of a cluster with BIRD and etcd. Nodes, links and etcd fail while numbered packets pass.

mod faults;
mod lab;
mod nodes;
mod play;

use super::goals::{Runs, Series, runs_of};
use super::probe::{self, ProbeLoad};
use super::upgrade::Builds;
use super::{RunOptions, lag};
use crate::port_users;
use crate::report::{Report, Table, group};
use faults::{FAULTS, Fault};
use gatun_testkit::PairNetwork;
use lab::Lab;
use play::{Outcome, play};

const ABOUT: &str = "Nodes of a cluster translate with NAT64 between two routers, to which BIRD on the nodes announces the routes of [announce]; each node has a member of \
etcd, too. A client with many addresses sends a numbered datagram each millisecond in several flows, and keeps TCP connections open; a server echoes all. Nodes, links and etcd fail in \
several ways, and come back. A figure is the median of the runs, with the least and the greatest value. The first node is the one that both routers send the client's packets to.";

/// Addresses of the client, subscribers of all shards: fewer would not show the share of redirected packets.
const HOSTS: u32 = 64;
/// Flows of datagrams, one of which is sent each ms. More would pass all nodes in more ways, and show gaps
/// less exactly.
const FLOWS: u32 = 32;

const COLUMNS: [&str; 11] = [
    "fault",
    "sent",
    "lost, fault",
    "longest gap of a flow, ms",
    "lost, return",
    "longest gap of a flow, ms",
    "connections ended",
    "of packets from inside redirected before, %",
    "from outside, %",
    "owners changed after, s",
    "whole again after, s",
];

pub(crate) fn run(options: &RunOptions) -> anyhow::Result<Report> {
    let mut report = Report::new("cluster", ABOUT);
    let programs = [
        ("bird", "bird2"),
        ("etcd", "etcd-server"),
        ("etcdctl", "etcd-client"),
        ("nft", "nftables"),
        ("python3", "python3"),
    ];
    if let Some(why) = gatun_testkit::missing(&programs) {
        report.not_run.push(why);
        return Ok(report);
    }
    let count = options.nodes.unwrap_or(3);
    let connections = if options.brief { 24 } else { 10_000 };
    let hosts: Vec<String> = (0..HOSTS).map(|n| format!("2001:db8:1::1:{n:x}")).collect();
    let net = PairNetwork::with_boxes(count)?;
    for host in &hosts {
        net.client.address("eth0", &format!("{host}/64"))?;
    }
    nodes::prepare(&options.programs.gatun, count.into())?;
    let load = ProbeLoad { flows: options.flows.unwrap_or(FLOWS), connections, hosts };
    let mut lab = Lab::new(&net, &options.programs, load)?;
    let wants_upgrade = FAULTS.iter().any(|fault| fault.from_former && options.wants_row(fault.name));
    let builds = Builds::of(&options.programs, &mut report, wants_upgrade)?;
    let is_wanted = |fault: &&Fault| {
        let is_possible = !fault.from_former || builds.is_some();
        is_possible && (fault.is_brief || !options.brief) && options.wants_row(fault.name)
    };
    let faults: Vec<&Fault> = FAULTS.iter().filter(is_wanted).collect();
    let (mut lags, mut outcomes) = (Vec::new(), faults.iter().map(|_| Vec::new()).collect::<Vec<_>>());
    for _ in 0..options.runs() {
        lags.push(lab.lag(options.brief)?);
        for (fault, of_fault) in faults.iter().zip(&mut outcomes) {
            let length = fault.length(options.length(5.0), options.brief);
            of_fault.push(play(&mut lab, fault, length, builds.as_ref())?);
        }
    }
    let judged = faults.iter().zip(&outcomes);
    let rows = judged.map(|(fault, outcomes)| row(&mut report, fault, outcomes, options.brief)).collect();
    let title =
        format!("Faults of a cluster of {count} nodes ({} TCP connections)", group(connections.into()));
    report.tables.push(Table { title, header: COLUMNS.map(Into::into).to_vec(), rows });
    report.tables.push(lag::table(&lags));
    if let Some(builds) = builds {
        builds.judge(&mut report);
    }
    let logs = lab.end()?;
    port_users::judge(&mut report, &options.programs.gatun, &logs, &[]);
    report.notes.push(format!(
        "{} BFD: 3 x 50 ms. `lease` is two seconds, `hold` a minute, `stall` 200 ms. During a fault without etcd, no shard gets another owner.",
        runs_of(options.runs())
    ));
    report.notes.push(format!(
        "A flow has a datagram each {FLOWS} ms, so its longest gap is up to {} ms longer than the time without answers.",
        2 * FLOWS
    ));
    Ok(report)
}

/// Adds the checks of a fault, and returns its row.
fn row(report: &mut Report, fault: &Fault, outcomes: &[Outcome], is_brief: bool) -> Vec<String> {
    for outcome in outcomes {
        let is_direct = outcome.redirected.outside == 0.0;
        report.check_once(is_direct, "no packet from outside was redirected before a fault");
    }
    let probes = outcomes.iter().map(|outcome| &outcome.probe).collect();
    let runs = Runs {
        what: "",
        fault: fault.name,
        goals: fault.goals,
        outcomes: probes,
        gaps: probe::Outcome::flow_gaps_ms,
    };
    let mut row = runs.judge(report, is_brief);
    let shown = |of: &dyn Fn(&Outcome) -> f64, decimals| Series::new(outcomes.iter().map(of)).shown(decimals);
    row.push(shown(&|outcome| outcome.redirected.inside * 100.0, 0));
    row.push(shown(&|outcome| outcome.redirected.outside * 100.0, 0));
    let claimed: Vec<f64> =
        outcomes.iter().filter_map(|outcome| Some(outcome.claimed?.as_secs_f64())).collect();
    row.push(if claimed.is_empty() { "-".into() } else { Series::new(claimed).shown(1) });
    row.push(shown(&|outcome| outcome.whole.as_secs_f64(), 1));
    row
}
