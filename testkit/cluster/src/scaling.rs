//! Loads of a cluster's nodes, by their number.
//!
//! Subscribers are divided among shards at random, and shards among nodes by the function of the daemon. The
//! rest follows from the constants, which are measured values of other pages or settings.

use gatun_cluster::target::{Candidate, Target, targets};
use std::collections::BTreeSet;

/// Shards.
const SHARDS: u16 = 256;
/// Sessions for which a node has room, its own and those that it backs up.
const ROOM: f64 = 2_000_000.0;
/// Subscribers for each node.
const SUBSCRIBERS: u64 = 20_000;
/// Mean lifetime of a session, s.
const LIFETIME_S: f64 = 100.0;
/// Bytes on a link for a session and its end, with TLS, as benchmarks.md has them.
pub const SESSION_BYTES: f64 = 49.3;
/// Sessions that a node sends in a walk each second (decision 0102).
const WALK_S: f64 = 500_000.0;
/// Cost of a redirected packet at both nodes together, in packets, by instructions (decision 0108).
const REDIRECTED: f64 = (640.0 + 515.0) / 515.0;

/// Names of the columns, in two lines.
const NAMES: [&str; 2] = [
    "nodes  sessions  load of a node  peers  sync Mbit/s  redirected  throughput  load after  copied",
    "                                                                              a death",
];

/// Returns the lines of the table.
pub fn table() -> Vec<String> {
    let rows = [2, 4, 8, 16, 32, 64, 128].map(|nodes| Row::of(nodes).shown());
    NAMES.iter().map(|line| (*line).to_owned()).chain(rows).collect()
}

/// Figures of a cluster.
struct Row {
    nodes: usize,
    /// Sessions until the first node is full.
    sessions: f64,
    /// Lowest and highest load of a node, in parts of the mean.
    loads: (f64, f64),
    peers: (usize, usize),
    /// Traffic to all peers of the busiest node, Mbit/s.
    sync: f64,
    /// Part of the packets from inside that arrive at another node, if routers divide them evenly.
    redirected: f64,
    /// Throughput, in nodes without redirection.
    throughput: f64,
    /// Highest load after a node has died, in parts of the load before.
    after_death: f64,
    /// Time until every shard has two copies again, s, beginning with the choice of other backups.
    copied_s: f64,
}

impl Row {
    fn of(nodes: usize) -> Row {
        let all = targets(&candidates(nodes, None), SHARDS);
        let shares = shares_of_shards(nodes);
        let loads = loads(&all, &shares, nodes);
        let most = loads.iter().copied().fold(0.0, f64::max);
        let least = loads.iter().copied().fold(f64::MAX, f64::min);
        // Each session is at two nodes.
        let mean = 2.0 / nodes as f64;
        let sessions = ROOM / most;
        let owned = owned(&all, &shares, nodes);
        let busiest = owned.iter().copied().fold(0.0, f64::max);
        let redirected = 1.0 - 1.0 / nodes as f64;
        let dead = loads.iter().position(|load| *load == most).unwrap_or(0);
        let (after, copied) = death(&all, &shares, nodes, dead);
        Row {
            nodes,
            sessions,
            loads: (least / mean, most / mean),
            peers: peers(&all, nodes),
            sync: sessions * busiest / LIFETIME_S * SESSION_BYTES * 8.0 / 1e6,
            redirected,
            // Half of the packets come from inside.
            throughput: nodes as f64 / (1.0 + redirected / 2.0 * (REDIRECTED - 1.0)),
            after_death: after / most,
            copied_s: sessions * copied / WALK_S,
        }
    }

    fn shown(&self) -> String {
        let sessions = format!("{:.1} M", self.sessions / 1e6);
        let loads = format!("{:.2} to {:.2}", self.loads.0, self.loads.1);
        let peers = format!("{}-{}", self.peers.0, self.peers.1);
        let redirected = format!("{:.0} %", self.redirected * 100.0);
        let copied = format!("{:.1} s", self.copied_s);
        format!(
            "{:5}  {sessions:>8}  {loads:>14}  {peers:>5}  {:11.1}  {redirected:>10}  {:10.1}  {:10.2}  {copied:>6}",
            self.nodes, self.sync, self.throughput, self.after_death
        )
    }
}

fn candidates(nodes: usize, without: Option<usize>) -> Vec<Candidate<usize>> {
    let one = |node: usize| Candidate { node, name: format!("node-{node:03}"), weight: 100 };
    (0..nodes).filter(|node| Some(*node) != without).map(one).collect()
}

/// Part of all sessions in each shard: subscribers are hashed, and have the same number of sessions.
fn shares_of_shards(nodes: usize) -> Vec<f64> {
    let subscribers = SUBSCRIBERS * nodes as u64;
    let mut counts = vec![0u64; SHARDS.into()];
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..subscribers {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        counts[(random >> 40) as usize % usize::from(SHARDS)] += 1;
    }
    counts.into_iter().map(|count| count as f64 / subscribers as f64).collect()
}

fn loads(all: &[Target<usize>], shares: &[f64], nodes: usize) -> Vec<f64> {
    let mut loads = owned(all, shares, nodes);
    for (target, share) in all.iter().zip(shares) {
        target.second.iter().for_each(|node| loads[*node] += share);
    }
    loads
}

fn owned(all: &[Target<usize>], shares: &[f64], nodes: usize) -> Vec<f64> {
    let mut owned = vec![0.0; nodes];
    all.iter().zip(shares).for_each(|(target, share)| owned[target.first] += share);
    owned
}

/// Fewest and most nodes with which a node shares shards.
fn peers(all: &[Target<usize>], nodes: usize) -> (usize, usize) {
    let mut peers = vec![BTreeSet::new(); nodes];
    for target in all {
        if let Some(second) = target.second {
            peers[target.first].insert(second);
            peers[second].insert(target.first);
        }
    }
    let counts = || peers.iter().map(BTreeSet::len);
    (counts().min().unwrap_or(0), counts().max().unwrap_or(0))
}

/// A node dies: returns the highest load after it, and the largest part of all sessions that a node has to
/// send to others.
fn death(all: &[Target<usize>], shares: &[f64], nodes: usize, dead: usize) -> (f64, f64) {
    let after = targets(&candidates(nodes, Some(dead)), SHARDS);
    let mut sent = vec![0.0; nodes];
    for ((before, after), share) in all.iter().zip(&after).zip(shares) {
        let holders = [Some(after.first), after.second];
        let new = holders.into_iter().flatten().filter(|node| !before.contains(node)).count();
        let holds = |node: &usize| *node != dead;
        let sender = [Some(before.first), before.second].into_iter().flatten().find(holds);
        sender.iter().for_each(|node| sent[*node] += share * new as f64);
    }
    let highest = |values: Vec<f64>| values.into_iter().fold(0.0, f64::max);
    (highest(loads(&after, shares, nodes)), highest(sent))
}
