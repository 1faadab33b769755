//! `gatun cluster status`, `shards`, `events`, `drain`, `undrain` and `gone`: requests to a running daemon.

use super::text;
use crate::commands::ask::Daemon;
use crate::commands::{confirmed, print_bytes, report};
use crate::show::Output;
use anyhow::{anyhow, bail};
use gatun_api::paths::with_query;
use gatun_api::types::{Cluster, ClusterEvents, ClusterState};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Time between two looks at the state.
const EVERY: Duration = Duration::from_millis(200);

const STATUS_EXAMPLES: &str = "\
Exit status:
  0  this node is registered at etcd, and each shard has an owner and a backup
  1  otherwise, or there is no [cluster] or no daemon

Examples:
  gatun cluster status
  gatun cluster status --quiet   for scripts
";

const DRAIN_EXAMPLES: &str = "\
Other nodes get the sessions of the node's shards, and then the shards. Subscribers notice nothing. The node \
stays drained across restarts, until `gatun cluster undrain`.

Examples:
  gatun cluster drain            this node, before maintenance
  gatun cluster drain c
";

const GONE_EXAMPLES: &str = "\
Without this command, the other nodes wait for the node's hold before they replace it, and shards whose two \
holders are both away wait for one of them. With it, they are taken over at once.

Use it only if the node is switched off, or has lost its sessions. If it still forwards packets, two \
subscribers could have the same port. A node that registers again is not gone any more.

Examples:
  gatun cluster gone c           asks
  gatun cluster gone c --yes     for scripts
";

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub(super) struct Status {
    /// Print nothing if the exit status is 0
    #[arg(long, short)]
    quiet: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    daemon: Daemon,
}

/// Arguments of `shards`.
#[derive(Debug, clap::Args)]
pub(super) struct Shards {
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    daemon: Daemon,
}

/// Arguments of `events`.
#[derive(Debug, clap::Args)]
pub(super) struct Events {
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    daemon: Daemon,
}

/// Arguments of `drain`.
#[derive(Debug, clap::Args)]
#[command(after_help = DRAIN_EXAMPLES)]
pub(super) struct Drain {
    /// Node [default: that of the daemon]
    node: Option<String>,
    /// Longest time to wait until it has no shards
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    #[command(flatten)]
    daemon: Daemon,
}

/// Arguments of `undrain`.
#[derive(Debug, clap::Args)]
pub(super) struct Undrain {
    /// Node [default: that of the daemon]
    node: Option<String>,
    #[command(flatten)]
    daemon: Daemon,
}

/// Arguments of `gone`.
#[derive(Debug, clap::Args)]
#[command(after_help = GONE_EXAMPLES)]
pub(super) struct Gone {
    /// Node
    node: String,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// # Errors
/// Returns an error if the daemon does not answer.
pub(super) fn status(args: &Status) -> anyhow::Result<ExitCode> {
    let cluster = state(&args.daemon)?;
    let is_whole =
        cluster.unbacked().next().is_none() && cluster.shards.iter().all(|one| one.owner.is_some());
    let is_good = cluster.state == ClusterState::Registered && cluster.reason.is_none() && is_whole;
    report(&cluster, (is_good, args.quiet), args.output, || text::status(&cluster))
}

/// # Errors
/// Returns an error if the daemon does not answer.
pub(super) fn shards(args: &Shards) -> anyhow::Result<ExitCode> {
    let cluster = state(&args.daemon)?;
    report(&cluster.shards, (cluster.name.is_some(), false), args.output, || text::shards(&cluster))
}

/// # Errors
/// Returns an error if the daemon does not answer.
pub(super) fn events(args: &Events) -> anyhow::Result<ExitCode> {
    let events: ClusterEvents = args.daemon.client()?.get("/v1/cluster/events")?;
    report(&events, (true, false), args.output, || text::events(&events))
}

/// # Errors
/// Returns an error if the daemon refuses, or the node still has shards after the time.
pub(super) fn drain(args: &Drain) -> anyhow::Result<ExitCode> {
    let (began, limit) = (Instant::now(), Duration::from_secs(args.timeout));
    let mut cluster = ask(&args.daemon, "drain", args.node.as_deref())?;
    let node = args.node.clone().or_else(|| cluster.node.clone());
    let node = node.ok_or_else(|| anyhow!("{}", text::NO_CLUSTER.trim_end()))?;
    while !cluster.is_empty(&node) {
        if began.elapsed() > limit {
            let left = cluster.shards.iter().filter(|shard| {
                [&shard.owner, &shard.backup].into_iter().any(|holder| holder.as_deref() == Some(&node))
            });
            bail!(
                "node {node} still has {} shards after {} s, and stays drained: see `gatun cluster shards`; \
                 `gatun cluster undrain` ends it",
                left.count(),
                limit.as_secs()
            );
        }
        std::thread::sleep(EVERY);
        cluster = state(&args.daemon)?;
    }
    let text = format!("node {node} has no shards after {:.1} s\n", began.elapsed().as_secs_f64());
    print_bytes(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// # Errors
/// Returns an error if the daemon refuses.
pub(super) fn undrain(args: &Undrain) -> anyhow::Result<ExitCode> {
    let cluster = ask(&args.daemon, "undrain", args.node.as_deref())?;
    let node = args.node.clone().or(cluster.node).unwrap_or_default();
    print_bytes(format!("node {node} gets shards again\n").as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// # Errors
/// Returns an error if the daemon refuses.
pub(super) fn gone(args: &Gone) -> anyhow::Result<ExitCode> {
    let question = format!("Is node {} switched off, or are its sessions lost?", args.node);
    if !args.yes && !confirmed(&question)? {
        eprintln!("gatun: nothing was changed");
        return Ok(ExitCode::FAILURE);
    }
    ask(&args.daemon, "gone", Some(&args.node))?;
    print_bytes(format!("node {} is declared gone\n", args.node).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// State of the cluster as the daemon's node knows it.
pub(super) fn state(daemon: &Daemon) -> anyhow::Result<Cluster> {
    Ok(daemon.client()?.get("/v1/cluster")?)
}

fn ask(daemon: &Daemon, what: &str, node: Option<&str>) -> anyhow::Result<Cluster> {
    let query: Vec<_> = node.map(|node| ("node", node.to_owned())).into_iter().collect();
    let path = with_query(&format!("/v1/cluster/{what}"), &query);
    Ok(daemon.client()?.ask("POST", &path, &[])?)
}
