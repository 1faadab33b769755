//! `cluster`: nodes of a cluster with BIRD and etcd. Nodes, links and etcd fail while numbered packets pass.

mod faults;
mod lab;
mod nodes;
mod play;

use super::RunOptions;
use super::probe::ProbeLoad;
use crate::port_users;
use crate::report::{Report, Table};
use faults::{FAULTS, Fault};
use gatun_testkit::PairNetwork;
use lab::Lab;
use play::{Outcome, play};

const ABOUT: &str = "Nodes of a cluster translate with NAT64 between two routers, to which BIRD on the nodes announces the routes of [announce]; each node has a member of \
etcd, too. A client with many addresses sends a numbered datagram each millisecond in several flows, and keeps TCP connections open; a server echoes all. Nodes, links and etcd fail in \
several ways, and come back. The first node is the one that both routers send the client's packets to.";

/// Addresses of the client, subscribers of all shards, and flows of datagrams: fewer would not show the share
/// of redirected packets.
const HOSTS: u32 = 64;

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
    let connections = if options.brief { 24 } else { 2_000 };
    let hosts: Vec<String> = (0..HOSTS).map(|n| format!("2001:db8:1::1:{n:x}")).collect();
    let net = PairNetwork::with_boxes(count)?;
    for host in &hosts {
        net.client.address("eth0", &format!("{host}/64"))?;
    }
    nodes::prepare(&options.programs.gatun, count.into())?;
    let load = ProbeLoad { flows: options.flows.unwrap_or(HOSTS), connections, hosts };
    let mut lab = Lab::new(&net, &options.programs, load)?;
    let all = FAULTS.iter().filter(|fault| !options.brief || fault.is_brief);
    let named = |fault: &&Fault| {
        options.rows.is_empty() || options.rows.iter().any(|text| fault.name.contains(text.as_str()))
    };
    let mut rows = Vec::new();
    for fault in all.filter(named) {
        let outcome = play(&mut lab, fault, fault.length(options.length(5.0), options.brief))?;
        judge(&mut report, fault, &outcome);
        rows.push(row(fault, &outcome));
    }
    let title = format!("Faults of a cluster of {count} nodes ({connections} TCP connections)");
    report.tables.push(Table { title, header: COLUMNS.map(Into::into).to_vec(), rows });
    let logs = lab.end()?;
    port_users::judge(&mut report, &options.programs.gatun, &logs);
    report.notes.push(
        "BFD: 3 x 50 ms. `lease` is two seconds, `hold` a minute, `stall` 200 ms. During a fault without etcd, no shard gets another owner."
            .into(),
    );
    Ok(report)
}

fn judge(report: &mut Report, fault: &Fault, outcome: &Outcome) {
    let probe = &outcome.probe;
    report.check_once(probe.goes_on(), "packets passed during each fault and after it");
    report.check_once(probe.ended == 0, "no TCP connection ended");
    report.check_once(
        outcome.redirected.outside == 0.0,
        "no packet from outside was redirected before a fault",
    );
    if probe.ended > 0 {
        let why = format!("{}: {} connections ended: {}", fault.name, probe.ended, probe.why.join(", "));
        report.notes.push(why);
    }
    if fault.is_lossless {
        let lost = probe.lost() + probe.lost_on_return();
        report.check(lost == 0, format!("{}: no packet was lost", fault.name));
    }
}

fn row(fault: &Fault, outcome: &Outcome) -> Vec<String> {
    let seconds = |time: std::time::Duration| format!("{:.1}", time.as_secs_f64());
    let mut row = outcome.probe.row(fault.name, outcome.probe.flow_gaps_ms());
    let redirected = outcome.redirected;
    row.extend([redirected.inside, redirected.outside].map(|share| format!("{:.0}", share * 100.0)));
    row.push(outcome.claimed.map_or("-".into(), seconds));
    row.push(seconds(outcome.whole));
    row
}
