//! `gatun cluster`: nodes of a cluster.

mod certificates;
mod configuration;
mod requests;
mod text;

pub(crate) use text::summary;

use std::process::ExitCode;

const EXAMPLES: &str = "\
The nodes of a cluster share public addresses by shards: each shard has an owner and a backup, and any node can \
fail: [cluster] in the configuration. etcd coordinates them. They know each other by certificates of an \
authority of their own. docs/tutorials/cluster.md shows a cluster from start to finish.

Examples:
  gatun cluster init cluster a b c
                                the authority, and files for three nodes
  scp cluster/a/* root@a:/etc/gatun/cluster/
                                then those of the other nodes
  gatun cluster status          state of the nodes
  gatun cluster apply new.toml --confirm 60s
                                configuration of all nodes, on trial
  gatun cluster confirm         keep it
  gatun cluster drain           before maintenance of this node
  gatun cluster undrain         afterwards
  gatun cluster gone c          a node that will not come back
  gatun cluster add cluster d   files for a further node
  gatun cluster renew cluster/authority a /etc/gatun/cluster
                                new certificate in place of the old one
  systemctl reload gatun        uses it for the next connection

Keep cluster/authority where nobody else can read it: its key lets others join the cluster.
";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

/// Action.
#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show the nodes; the exit status tells if all shards have an owner and a backup
    Status(requests::Status),
    /// Show the shards: owner, backup, addresses
    Shards(requests::Shards),
    /// Show the latest events
    Events(requests::Events),
    /// Apply a configuration at all nodes
    Apply(configuration::Apply),
    /// Keep the configuration of all nodes that awaits confirmation
    Confirm(configuration::EndTrial),
    /// Have all nodes return from the configuration that awaits confirmation
    Rollback(configuration::EndTrial),
    /// List the configuration revisions of the cluster
    Revisions(configuration::Revisions),
    /// Have a node give its shards away, and wait until it has none
    Drain(requests::Drain),
    /// Have a drained node get shards again
    Undrain(requests::Undrain),
    /// Declare a node gone: others take its shards over at once
    Gone(requests::Gone),
    /// Create the cluster's authority, and certificates for its nodes
    Init(certificates::Init),
    /// Create certificates for further nodes
    Add(certificates::Add),
    /// Replace a node's certificate and key by new ones of the same authority
    Renew(certificates::Renew),
}

/// # Errors
/// Returns an error if a file cannot be read or written, or if the daemon does not answer or refuses.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Status(args) => return requests::status(&args),
        Action::Shards(args) => return requests::shards(&args),
        Action::Events(args) => return requests::events(&args),
        Action::Apply(args) => return configuration::apply(&args),
        Action::Confirm(args) => return configuration::end_trial(&args, "confirm"),
        Action::Rollback(args) => return configuration::end_trial(&args, "rollback"),
        Action::Revisions(args) => return configuration::revisions(&args),
        Action::Drain(args) => return requests::drain(&args),
        Action::Undrain(args) => return requests::undrain(&args),
        Action::Gone(args) => return requests::gone(&args),
        Action::Init(args) => certificates::init(&args)?,
        Action::Add(args) => certificates::add(&args)?,
        Action::Renew(args) => certificates::renew(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}
