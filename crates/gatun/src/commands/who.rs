//! `gatun who` and `gatun where`: the current or past holder of a public port, and the public side of an
//! inside host.

use super::ask::{Daemon, OtherDaemon};
use super::log::{StoreArgs, UNKNOWN, or_unknown};
use crate::show::{self, Output};
use anyhow::{anyhow, bail};
use gatun_api::client::{Client, Error as ClientError};
use gatun_api::paths::with_query;
use gatun_api::types::{Cluster, HostPorts, Outcome, PastHolders, Peer, PortHolder, Protocol};
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

In a pair or a cluster, each daemon answers for the ports that it has assigned. So the \
others are asked, too, with the same token: at `api` of [peer] or of [[cluster.nodes]]. \
--also names them instead. Without a running daemon, the log of this host alone answers.

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
    /// Another daemon to ask, with the same token, instead of those that the daemon knows:
    /// https://HOST:PORT, or the path of a socket
    #[arg(long, value_name = "DAEMON")]
    also: Vec<OtherDaemon>,
    /// Ask one daemon, or read one log, although others may have assigned the port
    #[arg(long, conflicts_with = "also")]
    alone: bool,
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
    let others = others(args);
    if others.is_empty() {
        return ask(args, &args.daemon);
    }
    let first = Asked { name: "this daemon".to_owned(), daemon: Ok(args.daemon.clone()) };
    let mut outcomes = Vec::new();
    for Asked { name, daemon } in std::iter::once(first).chain(others) {
        if args.output == Output::Table {
            super::print_bytes(format!("{name}:\n").as_bytes())?;
        }
        let answer = daemon.map_err(|why| anyhow!(why)).and_then(|daemon| ask(args, &daemon));
        outcomes.push(answer.unwrap_or_else(|error| {
            eprintln!("gatun: {name}: UNKNOWN: {error:#}");
            Outcome::Unknown
        }));
    }
    Ok(together(&outcomes))
}

/// Daemon to ask, or the reason why it cannot be asked.
struct Asked {
    name: String,
    daemon: Result<Daemon, String>,
}

/// Daemons that may have assigned the port, beside the first one.
fn others(args: &Args) -> Vec<Asked> {
    let named = |other: &OtherDaemon| Asked { name: other.to_string(), daemon: Ok(args.daemon.at(other)) };
    if args.alone || !args.also.is_empty() {
        return args.also.iter().map(named).collect();
    }
    // Without a token, the question fails in the same way.
    let Ok(client) = args.daemon.client() else { return Vec::new() };
    match boxes(&client) {
        Ok(boxes) => boxes
            .into_iter()
            .map(|(name, api)| Asked { name, daemon: api.map(|other| args.daemon.at(&other)) })
            .collect(),
        // A log can be read without a daemon. Then nobody knows if there are others.
        Err(error) if error.is_no_daemon() => Vec::new(),
        Err(error) => {
            let why = format!(
                "not asked: this daemon does not name them: {error}; pass --also, or --alone to ask one daemon"
            );
            vec![Asked { name: "other boxes".to_owned(), daemon: Err(why) }]
        }
    }
}

/// Names of boxes, and their APIs or why they cannot be asked.
type Boxes = Vec<(String, Result<OtherDaemon, String>)>;

/// The other boxes, by a daemon.
fn boxes(client: &Client) -> Result<Boxes, ClientError> {
    let (cluster, peer): (Cluster, Peer) = (client.get("/v1/cluster")?, client.get("/v1/peer")?);
    Ok(of_boxes(&cluster, &peer))
}

/// The other boxes of a pair or a cluster.
fn of_boxes(cluster: &Cluster, peer: &Peer) -> Boxes {
    let api = |api: Option<&str>, place: &str| match api {
        Some(api) => api.parse(),
        None => Err(format!("not asked: {place} has no `api`; pass --also, or --alone to ask one daemon")),
    };
    let nodes = cluster.nodes.iter().filter(|node| !node.is_this);
    let nodes = nodes.map(|node| {
        (format!("node {}", node.name), api(node.api.as_deref(), "its entry in [[cluster.nodes]]"))
    });
    let other = peer.member.map(|_| ("the other box".to_owned(), api(peer.peer_api.as_deref(), "[peer]")));
    nodes.chain(other).collect()
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
    use gatun_api::types::{ClusterNode, PeerMember};

    #[test]
    fn of_several_daemons_one_that_knows_the_holder_is_enough() {
        let (who, nobody, unknown) = (Outcome::Who, Outcome::Nobody, Outcome::Unknown);
        assert_eq!(together(&[nobody, who, unknown]), Outcome::Who);
        assert_eq!(together(&[nobody, nobody]), Outcome::Nobody);
        assert_eq!(together(&[nobody, unknown]), Outcome::Unknown);
    }

    #[test]
    fn the_other_boxes_are_asked_at_their_apis() {
        let node = |name: &str, is_this, api: Option<&str>| ClusterNode {
            name: name.to_owned(),
            is_this,
            is_configured: true,
            weight: 1,
            api: api.map(str::to_owned),
            is_registered: true,
            ..ClusterNode::default()
        };
        let nodes =
            vec![node("a", true, None), node("b", false, Some("https://b.example")), node("c", false, None)];
        let cluster = Cluster { nodes, ..Cluster::default() };
        let text = |cluster: &Cluster, peer: &Peer| -> Vec<String> {
            let shown = |api: Result<OtherDaemon, String>| api.map_or_else(|why| why, |api| api.to_string());
            of_boxes(cluster, peer).into_iter().map(|(name, api)| format!("{name}: {}", shown(api))).collect()
        };
        assert_eq!(text(&Cluster::default(), &Peer::default()), [""; 0]);
        let [b, c] = text(&cluster, &Peer::default()).try_into().unwrap();
        assert_eq!(b, "node b: https://b.example:8443");
        assert!(c.starts_with("node c: not asked: its entry in [[cluster.nodes]] has no `api`"), "{c}");
        let peer = Peer { member: Some(PeerMember::A), ..Peer::default() };
        let [other] = text(&Cluster::default(), &peer).try_into().unwrap();
        assert!(other.starts_with("the other box: not asked: [peer] has no `api`"), "{other}");
        let peer = Peer { peer_api: Some("/run/b.sock".to_owned()), ..peer };
        assert_eq!(text(&Cluster::default(), &peer), ["the other box: /run/b.sock"]);
    }

    #[test]
    fn a_daemon_that_does_not_say_if_it_is_alone_leaves_the_holder_unknown() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let socket = std::env::temp_dir().join(format!("gatun-who-{}.sock", std::process::id()));
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let closing = std::thread::spawn(move || drop(listener.accept().unwrap()));
        let words = ["who", "192.0.2.1:80", "--socket", socket.to_str().unwrap()];
        let others = others(&<Line as clap::Parser>::parse_from(words).args);
        closing.join().unwrap();
        std::fs::remove_file(&socket).unwrap();
        let [Asked { name, daemon: Err(why) }] = &others[..] else { panic!("{} others", others.len()) };
        assert!(name == "other boxes" && why.contains("pass --also, or --alone"), "{name}: {why}");
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
