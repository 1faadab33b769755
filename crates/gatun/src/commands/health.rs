//! `gatun health`: tells by its exit status if the daemon is healthy.

use super::ask::Daemon;
use crate::show::Output;
use gatun_api::types::{AnnounceState, AnnouncedTable, Health};
use gatun_wire::text::counted;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Exit status:
  0  healthy: all workers answer, all ports have a link
  1  not healthy, or no daemon answers; with --owner, or no owner

An exhausted pool is reported, and does not change the exit status unless `withdraw_exhausted` in [announce] \
is set.

With [announce] in the configuration, Gatun withdraws its routes while it is not healthy. For keepalived and \
other programs that decide by a command, see docs/how-to/announce.md.

Examples:
  gatun health             state and reasons
  gatun health --quiet     exit status alone
  gatun health --owner     of a pair, the box that assigns the ports
";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print nothing if the daemon is healthy
    #[arg(long, short)]
    quiet: bool,
    /// Count a box of a pair that owns no public address as not healthy
    #[arg(long)]
    owner: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    daemon: Daemon,
}

/// # Errors
/// Returns an error if the daemon does not answer.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.daemon.client()?;
    let health: Health = client.get("/v1/health")?;
    let is_owner = !args.owner || super::peer::owns_addresses(&client.get("/v1/peer")?);
    let is_good = health.healthy && is_owner;
    super::report(&health, (is_good, args.quiet), args.output, || {
        let note = if is_owner { "" } else { "this box owns no public address: see `gatun peer status`\n" };
        text(&health) + note
    })
}

fn text(health: &Health) -> String {
    let mut text = if health.healthy { "healthy\n".to_owned() } else { "NOT healthy\n".to_owned() };
    for reason in &health.reasons {
        text += &format!("  {}: {}\n", reason.part, reason.what);
    }
    let table = |table: &AnnouncedTable| {
        format!("{} in table {} ({})", counted(table.routes, "route"), table.table, table.role)
    };
    let tables = health.tables.iter().map(table).collect::<Vec<_>>().join(", ");
    text += &match (health.announce, health.returns_in_ms) {
        (AnnounceState::Announced, _) => format!("announced: {tables}\n"),
        (AnnounceState::Withdrawn, Some(ms)) => {
            format!("routes are withdrawn, and come back in {:.1} s if nothing happens\n", ms as f64 / 1e3)
        }
        (AnnounceState::Withdrawn, None) => "routes are withdrawn\n".to_owned(),
        (AnnounceState::Off | AnnounceState::Other, _) => String::new(),
    };
    text += &health.error.iter().map(|error| format!("error: {error}\n")).collect::<String>();
    text
}
