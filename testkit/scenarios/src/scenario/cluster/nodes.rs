//! Configurations of the nodes of `cluster`, and their answers.

use crate::scenario::log_disk::BoxLog;
use anyhow::{Context as _, ensure};
use gatun_api::client::Client;
use gatun_api::types::{
    BackupPhase, Cluster, ClusterNode, ClusterShard, ClusterState, Config, RevisionStage,
};
use gatun_testkit::pair::TRACKED;
use gatun_testkit::{OWN_FILES, make_own_files};
use serde::de::DeserializeOwned;
use std::path::Path;
use std::process::Command;

/// Directory of the certificates; /run belongs to the sandbox.
const CERTIFICATES: &str = "/run/cluster-certificates";
/// One for each public address: with fewer, the first one of seven nodes would own none.
const SHARDS: usize = 32;

/// Name of a node.
pub(super) fn name(number: usize) -> String {
    char::from(b'a' + number as u8).into()
}

/// Makes the certificates of the nodes.
pub(super) fn prepare(gatun: &Path, count: usize) -> anyhow::Result<()> {
    let names = (0..count).map(name);
    let said = Command::new(gatun).args(["cluster", "init", CERTIFICATES]).args(names).output()?;
    ensure!(said.status.success(), "gatun cluster init: {}", String::from_utf8_lossy(&said.stderr));
    Ok(())
}

/// Makes the files of a node. The log has a disk of its own, which can be filled.
pub(super) fn make_files(number: usize) -> anyhow::Result<()> {
    make_own_files(&own(number), &format!("{CERTIFICATES}/{}", name(number)))?;
    log(number).mount()
}

/// Configuration of all nodes, with a lifetime of UDP sessions in minutes. Its limits have room for the
/// connections of several faults, which have been closed.
pub(super) fn config(count: usize, etcd: &[String], udp: u32) -> String {
    let node = |n: usize| {
        format!(
            "[[cluster.nodes]]\nname = \"{}\"\npeer = \"10.0.9.{n}:7465\"\ntunnel = \"10.0.8.{n}\"\n",
            name(n - 1)
        )
    };
    let nodes: String = (1..=count).map(node).collect();
    format!(
        "[[port]]\ndevice = \"nat64\"\n[translator]\nown4 = \"10.9.9.9\"\n\
         [[pool]]\nname = \"res\"\nprefixes = [\"192.0.2.0/27\"]\n\
         [[nat64]]\nname = \"lab\"\npool6 = \"2001:db8:64::/96\"\nsubscriber = \"/128\"\n[state]\ndirectory = \"{OWN_FILES}/state\"\n\
         [log]\ndirectory = \"{OWN_FILES}/log\"\n[api]\nlisten = \"unix:{OWN_FILES}/api.sock\"\n[timeouts]\nudp = \"{udp}m\"\n\
         [limits]\nsessions_per_subscriber = 40000\nports_per_subscriber = 40000\n\
         [announce]\nlinks = [\"inside\", \"outside\"]\ntracked_routes = {TRACKED:?}\nstall = \"200ms\"\nreturn_after = \"500ms\"\n\
         [cluster]\ndirectory = \"{OWN_FILES}/files\"\nshards = {SHARDS}\nlease = \"2s\"\nhold = \"60s\"\n\
         own_ports = 2_000\netcd = {etcd:?}\n{nodes}"
    )
}

/// Public addresses of the pool.
pub(super) fn addresses() -> impl Iterator<Item = String> {
    (0..32).map(|n| format!("192.0.2.{n}"))
}

/// Directory of a node, which it sees as [`OWN_FILES`].
pub(super) fn own(number: usize) -> String {
    format!("/run/node-{number}")
}

/// Directory of a node's state.
fn state(number: usize) -> String {
    format!("{}/state", own(number))
}

/// Log of a node, which outlives the loss of its state.
pub(super) fn log(number: usize) -> BoxLog {
    BoxLog { directory: format!("{}/log", own(number)), socket: socket(number) }
}

/// Socket of a node's API.
pub(super) fn socket(number: usize) -> String {
    format!("{}/api.sock", own(number))
}

/// Answer of a node's API.
fn get<T: DeserializeOwned>(number: usize, path: &str) -> anyhow::Result<T> {
    let answer = Client::new(socket(number)).get(path);
    answer.map_err(|error| anyhow::anyhow!("{error}")).with_context(|| format!("node {}", name(number)))
}

/// Runs `gatun cluster` at a node.
pub(super) fn ask(gatun: &Path, number: usize, words: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new(gatun);
    command.arg("cluster").args(words).args(["--socket", &socket(number)]);
    let said = command.output()?;
    ensure!(said.status.success(), "{words:?}: {}", String::from_utf8_lossy(&said.stderr));
    Ok(())
}

/// The cluster as a node knows it.
pub(super) fn cluster(number: usize) -> anyhow::Result<Cluster> {
    get(number, "/v1/cluster")
}

/// Returns whether a node is registered at etcd.
pub(super) fn is_registered(number: usize) -> bool {
    cluster(number).is_ok_and(|cluster| cluster.state == ClusterState::Registered)
}

/// Returns whether a node goes on without etcd.
pub(super) fn is_without_etcd(number: usize) -> bool {
    cluster(number).is_ok_and(|cluster| cluster.state == ClusterState::WithoutEtcd)
}

/// Returns whether a node has no connection to another one.
pub(super) fn is_apart(number: usize, other: usize) -> bool {
    let other = name(other);
    let is_open = |node: &ClusterNode| {
        let connection = node.connection.as_ref();
        node.name == other && connection.is_some_and(|connection| connection.connected_for_ms.is_some())
    };
    cluster(number).is_ok_and(|cluster| !cluster.nodes.iter().any(is_open))
}

/// Removes the state of a node.
pub(super) fn lose_state(number: usize) -> anyhow::Result<()> {
    // The directory itself may be a mount point.
    for file in std::fs::read_dir(state(number))? {
        std::fs::remove_file(file?.path())?;
    }
    Ok(())
}

/// Returns whether a node runs a configuration.
pub(super) fn runs(number: usize, text: &str) -> bool {
    get::<Config>(number, "/v1/config").is_ok_and(|config| config.text == text)
}

/// Returns whether a node runs a configuration that is not on trial, there and at etcd.
pub(super) fn keeps_configuration(number: usize) -> bool {
    let config = get::<Config>(number, "/v1/config");
    let stage = cluster(number).ok().and_then(|cluster| cluster.configuration).map(|one| one.stage);
    config.is_ok_and(|config| config.unconfirmed.is_none()) && stage == Some(RevisionStage::Confirmed)
}

/// Returns whether a node is registered, and knows an owner and a ready backup of each shard. These nodes own
/// all shards, and each has some.
pub(super) fn is_whole(number: usize, owners: &[usize]) -> bool {
    let Ok(cluster) = cluster(number) else { return false };
    let is_ready = |shard: &ClusterShard| shard.backup.is_some() && shard.phase == Some(BackupPhase::Ready);
    let owned = |node: &usize| {
        let node = Some(name(*node));
        cluster.shards.iter().filter(|shard| shard.owner == node).count()
    };
    let counts: Vec<usize> = owners.iter().map(owned).collect();
    cluster.state == ClusterState::Registered
        && counts.iter().sum::<usize>() == SHARDS
        && counts.iter().all(|count| *count > 0)
        && cluster.shards.iter().all(is_ready)
}

/// Returns whether a node knows other owners of all shards than this one.
pub(super) fn owns_nothing(of: usize, by: usize) -> bool {
    let owner = Some(name(of));
    let is_other = |shard: &ClusterShard| shard.owner.is_some() && shard.owner != owner;
    cluster(by).is_ok_and(|cluster| cluster.shards.len() == SHARDS && cluster.shards.iter().all(is_other))
}
