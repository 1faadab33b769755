//! `gatun clear`: ends sessions or bindings before they expire.

use super::ask::{Daemon, Filter};
use super::confirmed;
use anyhow::bail;
use gatun_api::paths::with_query;
use gatun_api::types::Cleared;
use gatun_daemon::tables::counted;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Cleared sessions end as if they had expired: events are logged and ports are released. The next packet \
from inside opens a new session, possibly with another port. Static bindings stay.

Examples:
  gatun clear sessions --inside 2001:db8:1::/64
  gatun clear bindings --outside 192.0.2.7 --protocol udp --yes
  gatun clear sessions --all
";

/// Kind of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Resource {
    /// Sessions; a binding ends with its last session
    Sessions,
    /// Bindings and all of their sessions
    Bindings,
}

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Kind of state to end
    what: Resource,
    #[command(flatten)]
    filter: Filter,
    /// Select everything, without a filter
    #[arg(long)]
    all: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// # Errors
/// Returns an error if the daemon does not answer or refuses the request.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let (path, what) = match args.what {
        Resource::Sessions => ("/v1/sessions", "sessions"),
        Resource::Bindings => ("/v1/bindings", "bindings"),
    };
    let mut query = args.filter.query();
    if query.is_empty() && !args.all {
        bail!("no filter given: pass one (gatun clear --help), or --all for all {what}");
    }
    if !args.yes {
        let which: Vec<String> = query.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let which = if which.is_empty() {
            format!("all {what}")
        } else {
            format!("{what} with {}", which.join(", "))
        };
        if !confirmed(&format!("End {which}?"))? {
            eprintln!("gatun: nothing was ended");
            return Ok(ExitCode::FAILURE);
        }
    }
    if args.all {
        query.push(("all", "true".to_owned()));
    }
    let cleared: Cleared = args.daemon.client()?.ask("DELETE", &with_query(path, &query), &[])?;
    let (sessions, bindings) = (counted(cleared.sessions, "session"), counted(cleared.bindings, "binding"));
    super::print_bytes(format!("ended: {sessions}, {bindings}\n").as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
