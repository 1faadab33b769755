//! `gatun trace`: live packets before and after translation, on the terminal or in a capture file.

mod capture;

use super::ask::Daemon;
use super::explain::ends;
use crate::show::CONNECTION_LOST;
use anyhow::Context as _;
use capture::Capture;
use gatun_api::paths::with_query;
use gatun_api::types::{Protocol, TracedPacket};
use gatun_daemon::tables::counted;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
A packet must match all filters; an address may be source or destination, before or after translation. \
Subscriber, session and drop reason are determined before translation.

An active trace sends each packet through the slow path, one by one. It stops after --count packets or \
--seconds. Without a trace, there is no cost. During a trace, Gatun itself translates matching sessions and \
all stateless packets, also if the kernel ([fastpath]) or a P4 switch ([[offload]]) does so otherwise. If \
these have more than 4096 matching sessions, it is a sample of the sessions: a filter avoids that. The \
trace says of each packet which of them translated such packets before, and how large the sample is.

Examples:
  gatun trace --subscriber 2001:db8:1::/64 --protocol tcp
  gatun trace --remote 198.51.100.7 --port 443 --count 10
  gatun trace --outside 192.0.2.7 --one-in 100 --seconds 600 --write t.pcapng
  gatun trace --inside 100.64.0.9 -o ndjson | jq .why
";

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// Text
    Text,
    /// JSON of the API, one object per line
    Ndjson,
}

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Inside host or network, such as a subscriber
    #[arg(long, visible_alias = "subscriber", value_name = "ADDRESS[/LEN]")]
    inside: Option<String>,
    /// Public address or network
    #[arg(long, value_name = "ADDRESS[/LEN]")]
    outside: Option<String>,
    /// Remote host or network
    #[arg(long, value_name = "ADDRESS[/LEN]")]
    remote: Option<String>,
    /// Protocol: tcp, udp or icmp
    #[arg(long, short)]
    protocol: Option<Protocol>,
    /// Port (ICMP: identifier) of either end, before or after translation
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Maximum number of packets
    #[arg(long, value_name = "N", default_value_t = 100)]
    count: u32,
    /// Maximum duration in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u16,
    /// Trace one packet in N
    #[arg(long, value_name = "N", default_value_t = 1)]
    one_in: u32,
    /// Bytes kept of each packet [default: 128, with --write 1600]
    #[arg(long, value_name = "N")]
    bytes: Option<u16>,
    /// Write a pcapng file: packets before and after translation, reasons as comments
    #[arg(long, short, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Output format
    #[arg(long, short, value_enum, default_value = "text")]
    output: Form,
    #[command(flatten)]
    daemon: Daemon,
}

impl Args {
    fn query(&self) -> Vec<(&'static str, String)> {
        let usual = if self.write.is_some() { 1600 } else { 128 };
        let number = |value: Option<u16>| value.map(|number| number.to_string());
        [
            ("inside", self.inside.clone()),
            ("outside", self.outside.clone()),
            ("remote", self.remote.clone()),
            ("protocol", self.protocol.map(|protocol| protocol.to_string())),
            ("port", number(self.port)),
            ("count", Some(self.count.to_string())),
            ("seconds", number(Some(self.seconds))),
            ("one_in", Some(self.one_in.to_string())),
            ("bytes", number(Some(self.bytes.unwrap_or(usual)))),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }
}

/// # Errors
/// Returns an error if the daemon does not answer, or if a file cannot be written.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let mut capture = match &args.write {
        None => None,
        Some(path) => {
            let file = File::create(path).with_context(|| format!("cannot write to {}", path.display()))?;
            Some(Capture::new(BufWriter::new(file))?)
        }
    };
    // A trace without packets sends nothing until it ends.
    let client = args.daemon.client()?.with_idle_max(std::time::Duration::from_secs(4_000));
    let body = client.open("GET", &with_query("/v1/trace", &args.query()), &[])?;
    let mut packets = 0;
    for line in BufReader::new(body).lines() {
        let line = line.context(CONNECTION_LOST)?;
        let packet: TracedPacket = serde_json::from_str(&line)?;
        packets += 1;
        match (&mut capture, args.output) {
            (Some(capture), _) => capture.write(&packet)?,
            (None, Form::Text) => super::print_bytes(text(&packet)?.as_bytes())?,
            (None, Form::Ndjson) => super::print_bytes(format!("{line}\n").as_bytes())?,
        }
    }
    if let (Some(capture), Some(path)) = (capture, &args.write) {
        capture.finish()?;
        eprintln!("gatun: {} written to {}", counted(packets, "packet"), path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn text(packet: &TracedPacket) -> anyhow::Result<String> {
    let mut out = String::new();
    if packet.lost > 0 {
        writeln!(out, "({} lost here: the reader is too slow)", counted(packet.lost, "packet"))?;
    }
    let seconds = packet.time_us / 1_000_000;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    let (seconds, us) = (seconds % 60, packet.time_us % 1_000_000);
    let what = packet.packet.as_ref().map_or_else(|| counted(packet.before_bytes.into(), "byte"), ends);
    writeln!(out, "{hours:02}:{minutes:02}:{seconds:02}.{us:06} worker {}: {what}", packet.worker)?;
    writeln!(out, "  {}", outcome(packet))?;
    for sentence in &packet.why {
        writeln!(out, "  - {sentence}")?;
    }
    writeln!(out, "  before {}", packet.before)?;
    if !packet.after.is_empty() {
        writeln!(out, "  after  {}", packet.after)?;
    }
    Ok(out)
}

/// Fate of a packet, on one line.
fn outcome(packet: &TracedPacket) -> String {
    let mut out = packet.fate.to_string();
    if let Some(reason) = &packet.reason {
        out += &format!(" ({reason})");
    }
    if packet.answered {
        out += ", answered";
    }
    match &packet.becomes {
        Some(becomes) => out + ": " + &ends(becomes),
        None if !packet.after.is_empty() => out + ": " + &counted(packet.after_bytes.into(), "byte"),
        None => out,
    }
}
