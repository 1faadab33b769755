//! `gatun drain` and `gatun undrain`: stops and resumes new bindings on public addresses.

use super::ask::Daemon;
use anyhow::bail;
use gatun_api::paths::with_query;
use gatun_api::types::Drained;
use gatun_daemon::tables::counted;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Existing bindings, and new sessions on them, keep working; `gatun show bindings --outside ADDRESS` \
lists those that are left. Subscribers paired with a drained address get another one for new bindings. \
An address stays drained, across restarts too, until `gatun undrain` or until it leaves its pool.

Examples:
  gatun drain 192.0.2.7                 before its removal from the pool
  gatun drain --pool old                all addresses of a pool
  gatun undrain 192.0.2.0/28
  gatun show addresses                  drained addresses, and how full each is
";

/// Arguments of both commands.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Public address or network
    #[arg(value_name = "ADDRESS[/LEN]", required_unless_present = "pool")]
    address: Option<String>,
    /// Pool; without ADDRESS, all of its addresses
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    #[command(flatten)]
    daemon: Daemon,
}

/// # Errors
/// Returns an error if the daemon does not answer or refuses the request.
pub(crate) fn execute(args: Args, drains: bool) -> anyhow::Result<ExitCode> {
    let query = [("address", args.address), ("pool", args.pool)];
    let query: Vec<_> = query.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    if query.is_empty() {
        bail!("no address given: name an ADDRESS or network, or --pool NAME");
    }
    let path = if drains { "/v1/addresses/drain" } else { "/v1/addresses/undrain" };
    let Drained { addresses } = args.daemon.client()?.ask("POST", &with_query(path, &query), &[])?;
    let what = if drains { "drained" } else { "no longer drained" };
    super::print_bytes(format!("{} {what}\n", counted(addresses, "address")).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
