//! `gatun clear`: ends sessions or bindings before their time.

use super::ask::{Daemon, Filter};
use super::confirmed;
use anyhow::bail;
use gatun_api::paths::with_query;
use gatun_api::types::Cleared;
use gatun_daemon::tables::counted;
use std::process::ExitCode;

const EXAMPLES: &str = "\
What is cleared ends as if its time were over: it is told in events, its ports go back, and the next
packet from inside opens a new session, with another port perhaps. Bindings of the configuration stay.

Examples:
  gatun clear sessions --inside 2001:db8:1::/64
  gatun clear bindings --outside 192.0.2.7 --protocol udp --yes
  gatun clear sessions --all
";

/// What can be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Sessions; a binding goes with its last one
    Sessions,
    /// Bindings with all of their sessions
    Bindings,
}

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What
    what: What,
    #[command(flatten)]
    filter: Filter,
    /// All of them
    #[arg(long)]
    all: bool,
    /// Do not ask whether that is meant
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// # Errors
/// Why the daemon does not answer, or what is wrong with the question.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let (path, what) = match args.what {
        What::Sessions => ("/v1/sessions", "sessions"),
        What::Bindings => ("/v1/bindings", "bindings"),
    };
    let mut query = args.filter.query();
    if query.is_empty() && !args.all {
        bail!("which {what}? Say so (gatun clear --help), or --all");
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
