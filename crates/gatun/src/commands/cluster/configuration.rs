//! `gatun cluster apply`, `confirm`, `rollback` and `revisions`: one configuration for all nodes.

use super::requests::state;
use super::text;
use crate::commands::ask::Daemon;
use crate::commands::config::{ChangeOptions, Decision, body, preview_and_ask, read};
use crate::commands::{print_bytes, report};
use crate::show::Output;
use anyhow::{Context as _, bail};
use gatun_api::client::Client;
use gatun_api::paths::with_query;
use gatun_api::types::{Cluster, ClusterRevision, Config, ConfigText, RevisionStage};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Time between two looks at the state, and longest time until all nodes have a revision.
const EVERY: Duration = Duration::from_millis(100);
const APPLIED_MAX: Duration = Duration::from_secs(180);

const APPLY_EXAMPLES: &str = "\
All registered nodes check the configuration first, as a reload does. If one of them cannot take it, nothing \
changes. Otherwise they apply it one after the other, each with its file. A node that is down takes it when it \
is back. If a node fails, all return to the previous configuration.

With --confirm, all nodes return unless `gatun cluster confirm` comes in time. Each does so by itself, even \
without etcd.

Examples:
  gatun cluster apply new.toml
  gatun cluster apply new.toml --confirm 60s
  gatun cluster confirm
  gatun cluster apply --revision 12    returns to the text of revision 12
";

/// Arguments of `apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = APPLY_EXAMPLES)]
pub(super) struct Apply {
    /// Configuration file; `-` is standard input
    #[arg(required_unless_present = "revision")]
    file: Option<PathBuf>,
    /// Revision whose text is applied again: see `gatun cluster revisions`
    #[arg(long, value_name = "NUMBER", conflicts_with = "file")]
    revision: Option<u64>,
    #[command(flatten)]
    options: ChangeOptions,
}

/// Arguments of `confirm` and `rollback`.
#[derive(Debug, clap::Args)]
pub(super) struct EndTrial {
    #[command(flatten)]
    daemon: Daemon,
}

/// Arguments of `revisions`.
#[derive(Debug, clap::Args)]
pub(super) struct Revisions {
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    daemon: Daemon,
}

/// # Errors
/// Returns an error if the daemon or a node refuses, or a node cannot apply it.
pub(super) fn apply(args: &Apply) -> anyhow::Result<ExitCode> {
    let client = args.options.daemon.client()?;
    let (text, name) = match (&args.file, args.revision) {
        (_, Some(number)) => {
            let path = with_query("/v1/cluster/revision", &[("number", number.to_string())]);
            (client.get::<ConfigText>(&path)?.text, format!("revision {number}"))
        }
        (Some(file), None) => (read(file)?, file.display().to_string()),
        (None, None) => bail!("name a configuration file, or --revision"),
    };
    let before: Cluster = client.get("/v1/cluster")?;
    if before.name.is_none() {
        bail!("{}", text::NO_CLUSTER.trim_end());
    }
    let running: Config = client.get("/v1/config")?;
    let body = body(text)?;
    let plan = client.ask("POST", "/v1/config/plan", &body)?;
    let question = "Apply it at all nodes?";
    match preview_and_ask(&plan, &running, (&name, question), &args.options)? {
        Decision::Yes => {}
        Decision::No => return Ok(ExitCode::FAILURE),
        // The others may run another one.
        Decision::Nothing if before.configuration.is_some() && before.differing().next().is_none() => {
            return Ok(ExitCode::SUCCESS);
        }
        Decision::Nothing => {}
    }
    let confirm = args.options.confirm.map(|seconds| ("confirm_seconds", seconds.to_string()));
    let query: Vec<_> = confirm.into_iter().collect();
    let begun: Cluster = client.ask("POST", &with_query("/v1/cluster/apply", &query), &body)?;
    let number = begun.configuration.as_ref().map(|one| one.number);
    wait_applied(&client, number.context("the daemon knows no revision")?)
}

/// Waits until all registered nodes run a revision, or return from it.
fn wait_applied(client: &Client, number: u64) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    loop {
        let cluster: Cluster = client.get("/v1/cluster")?;
        let current = cluster.configuration.as_ref().context("etcd has no revision any more")?;
        if current.number != number {
            bail!("revision {} was applied after revision {number}", current.number);
        }
        let late: Vec<&str> = text::late(&cluster, number);
        match current.stage {
            RevisionStage::Withdrawn => bail!(
                "revision {number} was withdrawn by {}{}; see `gatun cluster status`",
                current.changed_by,
                current.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default()
            ),
            RevisionStage::Confirmed if late.is_empty() => {
                print_bytes(format!("revision {number} runs at all nodes that are here\n").as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            RevisionStage::Trial if late.is_empty() && current.needs_confirmation => {
                let left = current.seconds_left.unwrap_or(0);
                let text = format!(
                    "revision {number} runs at all nodes that are here\nall nodes return in {left} s unless \
                     confirmed: gatun cluster confirm\n"
                );
                print_bytes(text.as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            _ if began.elapsed() > APPLIED_MAX => {
                bail!("revision {number} does not run yet at {}: see `gatun cluster status`", late.join(", "))
            }
            _ => std::thread::sleep(EVERY),
        }
    }
}

/// # Errors
/// Returns an error if the daemon refuses.
pub(super) fn end_trial(args: &EndTrial, what: &str) -> anyhow::Result<ExitCode> {
    let cluster: Cluster = args.daemon.client()?.ask("POST", &format!("/v1/cluster/{what}"), &[])?;
    let number = cluster.configuration.map_or(0, |one| one.number);
    let done = if what == "confirm" { "is confirmed" } else { "is withdrawn: all nodes return" };
    print_bytes(format!("revision {number} {done}\n").as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// # Errors
/// Returns an error if the daemon does not answer.
pub(super) fn revisions(args: &Revisions) -> anyhow::Result<ExitCode> {
    state(&args.daemon)?.name.context(text::NO_CLUSTER.trim_end())?;
    let kept: Vec<ClusterRevision> = args.daemon.client()?.get("/v1/cluster/revisions")?;
    report(&kept, (true, false), args.output, || text::revisions(&kept))
}
