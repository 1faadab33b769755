//! `gatun trace`: packets as they pass, before and after, on the terminal or into a capture file.

mod capture;

use super::ask::Daemon;
use super::explain::ends;
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
A packet is meant where all holds that is said; an address may be the source's or the destination's,
before translation or after. What is said of a packet beside its bytes was found out before it went
through the engine: whose it is, its session or what it would open, what it is dropped for.

While nothing is traced, it costs nothing. While something is, packets take a slower way one by one:
the trace ends by itself after --count packets or --seconds.

Examples:
  gatun trace --subscriber 2001:db8:1::/64 --protocol tcp
  gatun trace --remote 198.51.100.7 --port 443 --count 10
  gatun trace --outside 192.0.2.7 --one-in 100 --seconds 600 --write trace.pcapng
  gatun trace --inside 100.64.0.9 -o ndjson | jq .why
";

/// In which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// Lines for people
    Text,
    /// JSON, one object a line, as the API has it
    Ndjson,
}

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Of this inside host, or network: a subscriber
    #[arg(long, visible_alias = "subscriber", value_name = "ADDRESS[/LEN]")]
    inside: Option<String>,
    /// With this public address
    #[arg(long, value_name = "ADDRESS[/LEN]")]
    outside: Option<String>,
    /// With this remote host, or network
    #[arg(long, value_name = "ADDRESS[/LEN]")]
    remote: Option<String>,
    /// Of this protocol: tcp, udp or icmp
    #[arg(long, short)]
    protocol: Option<Protocol>,
    /// With this port (ICMP: identifier) at any end, before or after
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// So many packets at most
    #[arg(long, value_name = "N", default_value_t = 100)]
    count: u32,
    /// No longer than so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u16,
    /// One packet in so many
    #[arg(long, value_name = "N", default_value_t = 1)]
    one_in: u32,
    /// Bytes of a packet that are kept; 1600 where they are written to a file
    #[arg(long, value_name = "N")]
    bytes: Option<u16>,
    /// Write the packets to this file, pcapng: each as it came and as it left, with a comment on why
    #[arg(long, short, value_name = "FILE")]
    write: Option<PathBuf>,
    /// How
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
/// Why the daemon does not answer, or a file cannot be written.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let mut capture = match &args.write {
        None => None,
        Some(path) => {
            let file = File::create(path).with_context(|| format!("cannot write to {}", path.display()))?;
            Some(Capture::new(BufWriter::new(file))?)
        }
    };
    // A trace in which nothing passes says nothing until its end.
    let client = args.daemon.client()?.with_idle_max(std::time::Duration::from_secs(4_000));
    let body = client.open("GET", &with_query("/v1/trace", &args.query()), &[])?;
    let mut packets = 0;
    for line in BufReader::new(body).lines() {
        let line = line.context("the trace broke off")?;
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
    let what = packet.packet.as_ref().map_or_else(|| format!("{} bytes", packet.before_bytes), ends);
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
        None if !packet.after.is_empty() => out + &format!(": {} bytes", packet.after_bytes),
        None => out,
    }
}
