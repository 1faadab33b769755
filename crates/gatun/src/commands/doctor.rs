//! `gatun doctor`: problems of this machine that keep packets from being translated, and how to fix them.

use super::ask::Daemon;
use crate::doctor::{self, Finding, State, Subject};
use crate::show::Output;
use gatun_api::client::Client;
use gatun_api::types::{self, Urgency};
use gatun_config::Config;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Checks forwarding, firewall rules, routes, policy rules, reverse path filters, MTUs, offloads, \
addresses of pools, disks, huge pages, limits, the daemon with its log and collectors, and a \
name server's answer for ipv4only.arpa (RFC 7050). It works with and without a running daemon, \
and changes nothing. Reading firewall rules needs CAP_NET_ADMIN.

Examples:
  gatun doctor                                 with the running configuration
  gatun doctor /etc/gatun.toml                 before the daemon starts
  gatun doctor --dns64 2001:db8::53            check a name server's DNS64

Exit status: 0 if it finds no problem, 1 otherwise.
";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Configuration file [default: the configuration of the running daemon]
    file: Option<PathBuf>,
    /// Name server of IPv6 hosts [default: that of this host]
    #[arg(long, value_name = "ADDRESS")]
    dns64: Option<IpAddr>,
    /// Output format
    #[arg(long, short, value_enum, default_value = "table")]
    output: Output,
    /// Print only problems and notes
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// # Errors
/// Returns an error if the configuration file is invalid.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.daemon.client()?;
    let config = match &args.file {
        Some(file) => Some(super::check::load(file)?),
        None => client.get("/v1/config").ok().and_then(|running| running_config(&client, &running)),
    };
    let mut findings = doctor::examine(&Subject { client, config, dns64: args.dns64 });
    let is_wrong = findings.iter().any(|finding| finding.state == State::Wrong);
    if args.quiet {
        findings.retain(|finding| finding.state != State::Ok);
    }
    let text = match args.output {
        Output::Table | Output::Csv => text(&findings)?,
        Output::Json => serde_json::to_string_pretty(&findings)? + "\n",
        Output::Ndjson => {
            let lines: Result<Vec<_>, _> = findings.iter().map(serde_json::to_string).collect();
            lines?.iter().map(|line| format!("{line}\n")).collect()
        }
    };
    super::print_bytes(text.as_bytes())?;
    Ok(if is_wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Configuration of a daemon: its text, or the file if the text is too long for the daemon to keep. The
/// daemon knows which node of a cluster it is.
fn running_config(client: &Client, running: &types::Config) -> Option<Config> {
    let loaded = match running.text.is_empty() {
        true => gatun_config::load_file(running.file.as_ref()),
        false => gatun_config::load_str(&running.text, &running.file),
    };
    let (mut config, _) = loaded.ok()?;
    let node = client.get::<types::Cluster>("/v1/cluster").ok().and_then(|cluster| cluster.node);
    if let (Some(node), Some(_)) = (&node, &config.cluster) {
        config.choose_node(Some(node), "").ok()?;
    }
    Some(config)
}

fn text(findings: &[Finding]) -> anyhow::Result<String> {
    let mut out = String::new();
    for finding in findings {
        let mark = match finding.state {
            State::Ok => "ok   ".to_owned(),
            State::Note => "note ".to_owned(),
            State::Wrong => super::colour::line(Urgency::Bad, "WRONG"),
        };
        writeln!(out, "{mark} {}: {}", finding.check, finding.what)?;
        if let Some(fix) = &finding.fix {
            writeln!(out, "        fix: {fix}")?;
        }
    }
    let wrong = findings.iter().filter(|finding| finding.state == State::Wrong).count();
    match wrong {
        0 => writeln!(out, "no problems found")?,
        1 => writeln!(out, "1 problem found")?,
        n => writeln!(out, "{n} problems found")?,
    }
    Ok(out)
}
