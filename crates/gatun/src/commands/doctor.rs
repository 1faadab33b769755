//! `gatun doctor`: what of this machine keeps packets from being translated, and what to do about it.

use super::ask::Daemon;
use crate::doctor::{self, Finding, Patient, State};
use crate::show::Output;
use gatun_api::types::{self, Urgency};
use gatun_config::Config;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
It looks at forwarding, firewall rules, routes, policy rules, reverse path filters, MTUs,
offloads, addresses of pools, disks, huge pages, limits, the daemon with its log and collectors,
and what a name server says of ipv4only.arpa (RFC 7050). It works with and without a running
daemon, and changes nothing. Rules of the firewall are read with CAP_NET_ADMIN.

Examples:
  gatun doctor                                 by the configuration that runs
  gatun doctor /etc/gatun.toml                 before the daemon is started
  gatun doctor --dns64 2001:db8::53            is this name server a DNS64 for our prefix?

Exit status: 0 where nothing is wrong, 1 where something is.
";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The configuration; where none is named, that of the running daemon
    file: Option<PathBuf>,
    /// The name server that IPv6 hosts ask; without it this host's own is looked at
    #[arg(long, value_name = "ADDRESS")]
    dns64: Option<IpAddr>,
    /// How
    #[arg(long, short, value_enum, default_value = "table")]
    output: Output,
    /// Only what is wrong or worth knowing
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// # Errors
/// Where the configuration that is named cannot be used.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.daemon.client()?;
    let config = match &args.file {
        Some(file) => Some(super::check::load(file)?),
        None => client.get("/v1/config").ok().and_then(|running| running_config(&running)),
    };
    let mut findings = doctor::examine(&Patient { client, config, dns64: args.dns64 });
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

/// A daemon keeps the text of its configuration, unless that is very long: then its file is read.
fn running_config(running: &types::Config) -> Option<Config> {
    let loaded = match running.text.is_empty() {
        true => gatun_config::load_file(running.file.as_ref()),
        false => gatun_config::load_str(&running.text, &running.file),
    };
    loaded.ok().map(|(config, _)| config)
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
        0 => writeln!(out, "nothing is wrong")?,
        1 => writeln!(out, "one thing is wrong")?,
        n => writeln!(out, "{n} things are wrong")?,
    }
    Ok(out)
}
