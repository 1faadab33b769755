//! `gatun who` and `gatun where`: whose a public port is now, and where an inside host is seen now.

use super::ask::Daemon;
use crate::show::{self, Output};
use anyhow::bail;
use gatun_api::paths::with_query;
use gatun_api::types::{Protocol, Where, Who};
use std::net::{IpAddr, SocketAddrV4};
use std::process::ExitCode;

const EXAMPLES: &str = "\
It tells of this moment. What there was is in the log of events ([events]).

Examples:
  gatun who 192.0.2.7:41822
  gatun who 192.0.2.7:41822 --protocol udp -o json

Exit status: 0 where somebody has it, 1 where nobody does.
";

/// Arguments of `who`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Public address and port
    #[arg(value_name = "ADDRESS:PORT")]
    outside: SocketAddrV4,
    /// Only of this protocol: tcp, udp or icmp
    #[arg(long, short)]
    protocol: Option<Protocol>,
    /// How
    #[arg(long, short, value_enum, default_value = "table")]
    output: Output,
    #[command(flatten)]
    daemon: Daemon,
}

/// # Errors
/// Why the daemon does not answer.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let mut query =
        vec![("address", args.outside.ip().to_string()), ("port", args.outside.port().to_string())];
    query.extend(args.protocol.map(|protocol| ("protocol", protocol.to_string())));
    let who: Who = args.daemon.client().get(&with_query("/v1/who", &query))?;
    let is_known = !(who.blocks.is_empty() && who.bindings.is_empty() && who.sessions.is_empty());
    match args.output {
        Output::Table => super::print_bytes(show::who(&who)?.as_bytes())?,
        Output::Csv => bail!("this is no list: -o json or table"),
        output => super::print_bytes(&show::as_json(&who, output)?)?,
    }
    Ok(if is_known { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Arguments of `where`.
#[derive(Debug, clap::Args)]
pub(crate) struct WhereArgs {
    /// Address of an inside host
    address: IpAddr,
    /// How
    #[arg(long, short, value_enum, default_value = "table")]
    output: Output,
    #[command(flatten)]
    daemon: Daemon,
}

/// # Errors
/// Why the daemon does not answer.
pub(crate) fn execute_where(args: WhereArgs) -> anyhow::Result<ExitCode> {
    let query = [("address", args.address.to_string())];
    let found: Where = args.daemon.client().get(&with_query("/v1/where", &query))?;
    match args.output {
        Output::Table => super::print_bytes(show::whereabouts(&found)?.as_bytes())?,
        Output::Csv => bail!("this is no list: -o json or table"),
        output => super::print_bytes(&show::as_json(&found, output)?)?,
    }
    Ok(if found.subscribers.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
