//! `gatun who` and `gatun where`: the current or past holder of a public port, and the public side of an
//! inside host.

use super::ask::{Daemon, OtherDaemon};
use super::log::{StoreArgs, UNKNOWN, or_unknown};
use crate::show::{self, Output};
use anyhow::bail;
use gatun_api::paths::with_query;
use gatun_api::types::{HostPorts, Outcome, PastHolders, PortHolder, Protocol};
use gatun_daemon::log_queries::{told, transport};
use gatun_logstore::time::Span;
use std::net::{IpAddr, SocketAddrV4};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Without --at, it asks the daemon for the current holder. With --at, it reads the port \
log ([log] in the configuration), whether a daemon runs or not. With --server or \
--socket, the daemon reads its log; this needs a token with --audit, and the daemon \
records the question.

Times without an offset are UTC: 2026-01-31T13:05:59Z, \
\"2026-01-31 13:05\", 2026-01-31T14:05:59+01:00, @1769864759, \"2h ago\".

In a cluster, each node answers for the ports that it has assigned: --also asks the others, too.

Examples:
  gatun who 192.0.2.7:41822
  gatun who 192.0.2.7:41822 --at 2026-01-31T13:05:59Z
  gatun who 192.0.2.7:41822 --protocol udp -o json
  gatun who 192.0.2.7:41822 --at \"2h ago\" --server https://gw1.example.net:8443
  gatun who 192.0.2.7:41822 --server https://a.example --also https://b.example

Exit status:
  0  holder found
  1  proven: no holder
  3  UNKNOWN, with the reason: no answer from the daemon, a damaged file, a log
     that begins later, ...
";

/// Time as text, for a daemon with a clock of its own, and as parsed on this host.
#[derive(Clone, Debug)]
struct Time(String, Span);

fn time(text: &str) -> Result<Time, String> {
    super::log::time(text).map(|span| Time(text.to_owned(), span))
}

/// Arguments of `who`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Public address and port
    #[arg(value_name = "ADDRESS:PORT")]
    outside: SocketAddrV4,
    /// Protocol: tcp, udp or icmp
    #[arg(long, short)]
    protocol: Option<Protocol>,
    /// Past time, answered from the log
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<Time>,
    /// Output format
    #[arg(long, short, value_enum, default_value = "table")]
    output: Output,
    /// Another daemon to ask, with the same token: https://HOST:PORT, or the path of a socket
    #[arg(long, value_name = "DAEMON")]
    also: Vec<OtherDaemon>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    daemon: Daemon,
}

/// Exit status of a wrong command line, as clap has it.
const USAGE: u8 = 2;

/// Finds the holder.
///
/// # Errors
/// None: without an answer, the exit status says that the holder is unknown.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    if args.output == Output::Csv {
        eprintln!("gatun: CSV is for lists only; use -o json or -o table");
        return Ok(ExitCode::from(USAGE));
    }
    Ok(or_unknown(ask_all(&args).map(|outcome| match outcome {
        Outcome::Who => ExitCode::SUCCESS,
        Outcome::Nobody => ExitCode::FAILURE,
        Outcome::Unknown | Outcome::Other => ExitCode::from(UNKNOWN),
    })))
}

/// Asks the daemon and the others. Without an answer of one of them, the holder is unknown, unless another
/// one knows it.
fn ask_all(args: &Args) -> anyhow::Result<Outcome> {
    if args.also.is_empty() {
        return ask(args, &args.daemon);
    }
    let first = std::iter::once(("this daemon".to_owned(), args.daemon.clone()));
    let others = args.also.iter().map(|other| (other.to_string(), args.daemon.at(other)));
    let mut outcomes = Vec::new();
    for (name, daemon) in first.chain(others) {
        if args.output == Output::Table {
            super::print_bytes(format!("{name}:\n").as_bytes())?;
        }
        outcomes.push(ask(args, &daemon).unwrap_or_else(|error| {
            eprintln!("gatun: {name}: {error:#}");
            Outcome::Unknown
        }));
    }
    Ok(together(&outcomes))
}

/// Outcome of several answers: each daemon knows its own ports only.
fn together(outcomes: &[Outcome]) -> Outcome {
    match () {
        () if outcomes.contains(&Outcome::Who) => Outcome::Who,
        () if outcomes.iter().all(|outcome| *outcome == Outcome::Nobody) => Outcome::Nobody,
        () => Outcome::Unknown,
    }
}

fn ask(args: &Args, daemon: &Daemon) -> anyhow::Result<Outcome> {
    match &args.at {
        Some(at) => execute_at(args, daemon, at),
        None => execute_now(args, daemon),
    }
}

/// Answers from the daemon's present state.
fn execute_now(args: &Args, daemon: &Daemon) -> anyhow::Result<Outcome> {
    let who: PortHolder = daemon.client()?.get(&with_query("/v1/who", &end_query(args)))?;
    match args.output {
        Output::Table => super::print_bytes(show::who(&who)?.as_bytes())?,
        output => super::print_bytes(&show::as_json(&who, output)?)?,
    }
    Ok(who.outcome)
}

/// Query parameters of the public end.
fn end_query(args: &Args) -> Vec<(&'static str, String)> {
    let end = [("address", args.outside.ip().to_string()), ("port", args.outside.port().to_string())];
    end.into_iter().chain(args.protocol.map(|protocol| ("protocol", protocol.to_string()))).collect()
}

/// Answers from the log.
fn execute_at(args: &Args, daemon: &Daemon, Time(text, at): &Time) -> anyhow::Result<Outcome> {
    let answer: PastHolders = if daemon.is_named() {
        let mut query = end_query(args);
        query.push(("at", text.clone()));
        daemon.client()?.get(&with_query("/v1/log/who", &query))?
    } else {
        let (address, port) = (*args.outside.ip(), args.outside.port());
        told(&args.store.open()?.who(address, port, *at, args.protocol.and_then(transport)))
    };
    match args.output {
        Output::Table => super::print_bytes(show::who_had(&answer).as_bytes())?,
        output => super::print_bytes(&show::as_json(&answer, output)?)?,
    }
    Ok(answer.outcome)
}

/// Arguments of `where`.
#[derive(Debug, clap::Args)]
pub(crate) struct WhereArgs {
    /// Address of an inside host
    address: IpAddr,
    /// Output format
    #[arg(long, short, value_enum, default_value = "table")]
    output: Output,
    #[command(flatten)]
    daemon: Daemon,
}

/// # Errors
/// Returns an error if the daemon does not answer.
pub(crate) fn execute_where(args: WhereArgs) -> anyhow::Result<ExitCode> {
    let query = [("address", args.address.to_string())];
    let found: HostPorts = args.daemon.client()?.get(&with_query("/v1/where", &query))?;
    match args.output {
        Output::Table => super::print_bytes(show::host_ports(&found)?.as_bytes())?,
        Output::Csv => bail!("CSV is for lists only; use -o json or -o table"),
        output => super::print_bytes(&show::as_json(&found, output)?)?,
    }
    Ok(if found.subscribers.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_daemons_one_that_knows_the_holder_is_enough() {
        let (who, nobody, unknown) = (Outcome::Who, Outcome::Nobody, Outcome::Unknown);
        assert_eq!(together(&[nobody, who, unknown]), Outcome::Who);
        assert_eq!(together(&[nobody, nobody]), Outcome::Nobody);
        assert_eq!(together(&[nobody, unknown]), Outcome::Unknown);
    }

    #[test]
    fn another_daemon_is_a_url_or_a_path() {
        assert_eq!("/run/b.sock".parse::<OtherDaemon>().unwrap().to_string(), "/run/b.sock");
        assert_eq!(
            "https://b.example:8443".parse::<OtherDaemon>().unwrap().to_string(),
            "https://b.example:8443"
        );
        assert!("b.sock".parse::<OtherDaemon>().unwrap_err().contains("or an absolute path"));
    }
}
