//! Configurations of the nodes of `cluster`, and their answers.

use anyhow::{Context as _, ensure};
use gatun_api::client::Client;
use gatun_api::types::{BackupPhase, Cluster, ClusterShard, ClusterState, Config, LogStore, RevisionStage};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// Directory of the certificates; /run belongs to the sandbox.
const CERTIFICATES: &str = "/run/cluster-certificates";
/// Directory of a node, as the node sees it: all nodes have the same configuration.
const OWN: &str = "/run/node";
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

/// Makes the files of a node. A tmpfs that the daemon mounts by itself would end with its view of the files.
/// The log has a disk of its own, which can be filled.
pub(super) fn make_files(number: usize) -> anyhow::Result<()> {
    let (state, log, files, me) =
        (state(number), log(number), format!("/run/node-{number}/files"), name(number));
    let script = format!(
        "mkdir -p {files} {state} {log} {OWN} && cp {CERTIFICATES}/{me}/* {files}/ && \
         {{ mountpoint -q {state} || mount -t tmpfs -o mode=700 state {state}; }} && \
         {{ mountpoint -q {log} || mount -t tmpfs -o size=96m log {log}; }}"
    );
    gatun_testkit::run(Command::new("sh").args(["-c", &script]))?;
    Ok(())
}

/// Command that gives a node its own directory in place of [`OWN`].
pub(super) fn view(number: usize) -> String {
    format!("mount --rbind /run/node-{number} {OWN} && exec \"$@\"")
}

/// Configuration of all nodes, with a lifetime of UDP sessions in minutes.
pub(super) fn config(count: usize, etcd: &[String], udp: u32) -> String {
    let node = |n: usize| {
        format!(
            "[[cluster.nodes]]\nname = \"{}\"\npeer = \"10.0.9.{n}:7465\"\ntunnel = \"10.0.8.{n}\"\n",
            name(n - 1)
        )
    };
    let nodes: String = (1..=count).map(node).collect();
    format!(
        "[[port]]\ndevice = \"nat64\"\n[translator]\nown4 = \"10.9.9.9\"\n[[pool]]\nname = \"res\"\nprefixes = [\"192.0.2.0/27\"]\n\
         [[nat64]]\nname = \"lab\"\npool6 = \"2001:db8:64::/96\"\nsubscriber = \"/128\"\n[state]\ndirectory = \"{OWN}/state\"\n\
         [log]\ndirectory = \"{OWN}/log\"\n[api]\nlisten = \"unix:{OWN}/api.sock\"\n[timeouts]\nudp = \"{udp}m\"\n[announce]\nlinks = [\"inside\", \"outside\"]\nstall = \"200ms\"\nreturn_after = \"500ms\"\n\
         [cluster]\ndirectory = \"{OWN}/files\"\nshards = {SHARDS}\nlease = \"2s\"\nhold = \"60s\"\n\
         own_ports = 2_000\netcd = {etcd:?}\n{nodes}"
    )
}

/// Fills the disk of a node's log.
pub(super) fn fill_disk(number: usize) -> anyhow::Result<()> {
    let full = std::fs::write(filler(number), vec![0; 128 << 20]);
    ensure!(full.is_err_and(|error| error.kind() == ErrorKind::StorageFull), "the disk has room");
    Ok(())
}

/// Makes room on the disk of a node's log.
pub(super) fn free_disk(number: usize) -> anyhow::Result<()> {
    Ok(std::fs::remove_file(filler(number))?)
}

fn filler(number: usize) -> String {
    format!("{}/filler", log(number))
}

/// Returns whether a node can write its log, and has written all of it.
pub(super) fn logs_all(number: usize) -> bool {
    let log: Result<LogStore, _> = Client::new(socket(number)).get("/v1/log");
    log.is_ok_and(|log| log.kept && log.writable && log.waiting == 0)
}

/// Public addresses of the pool.
pub(super) fn addresses() -> impl Iterator<Item = String> {
    (0..32).map(|n| format!("192.0.2.{n}"))
}

/// Directory of a node's state.
pub(super) fn state(number: usize) -> String {
    format!("/run/node-{number}/state")
}

/// Directory of a node's log, which outlives the loss of its state.
pub(super) fn log(number: usize) -> String {
    format!("/run/node-{number}/log")
}

fn socket(number: usize) -> String {
    format!("/run/node-{number}/api.sock")
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
    let answer = Client::new(socket(number)).get("/v1/cluster");
    answer.map_err(|error| anyhow::anyhow!("{error}")).with_context(|| format!("node {}", name(number)))
}

/// Returns whether a node runs a configuration.
pub(super) fn runs(number: usize, text: &str) -> bool {
    let config: Result<Config, _> = Client::new(socket(number)).get("/v1/config");
    config.is_ok_and(|config| config.text == text)
}

/// Returns whether a node runs a configuration that is not on trial, there and at etcd.
pub(super) fn keeps_configuration(number: usize) -> bool {
    let config: Result<Config, _> = Client::new(socket(number)).get("/v1/config");
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
