//! `gatun drain` and `gatun undrain`: public addresses get no new bindings, or do again.

use super::ask::Daemon;
use anyhow::bail;
use gatun_api::paths::with_query;
use gatun_api::types::Drained;
use gatun_daemon::tables::counted;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Bindings that there are live on, and their sessions, old and new ones; `gatun show bindings --outside
ADDRESS` says how many are left. Subscribers that are paired with such an address get another one for
what is new. It holds until `gatun undrain`, or until the address leaves its pool; over restarts too.

Examples:
  gatun drain 192.0.2.7                 before the address is taken out of the pool
  gatun drain --pool old                all addresses of a pool
  gatun undrain 192.0.2.0/28
  gatun show addresses                  which are drained, and how full each is
";

/// Arguments of both.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A public address, or a network of such
    #[arg(value_name = "ADDRESS[/LEN]", required_unless_present = "pool")]
    address: Option<String>,
    /// Of this pool; all of its addresses where none is named
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    #[command(flatten)]
    daemon: Daemon,
}

/// # Errors
/// Why the daemon does not answer, or what is wrong with the question.
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
