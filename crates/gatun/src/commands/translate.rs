//! `gatun translate`: translates a capture file offline.

use crate::offline::{Offline, Outcome};
use anyhow::Context as _;
use gatun_daemon::tables::group;
use gatun_io::pcap::{CommentedWriter, Reader, Writer};
use gatun_nat::counters::{Count, Direction};
use gatun_wire::DropReason;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufReader, BufWriter, IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Rules and timers are those of `gatun run`. Timestamps of the packets are the clock, \
so sessions expire as they would on the wire. Sessions that began before the capture \
are unknown: their packets are dropped or open new sessions.

INPUT is pcap or pcapng with raw IP, Ethernet (VLAN tags are kept), loopback \
or Linux cooked frames. OUTPUT is pcap with the same frames around the \
translated packets.

Exit status:
  0  all frames of INPUT were read
  3  INPUT ends inside a record (its writer was killed): the frames before it
     are translated, OUTPUT and counters are complete, and a warning is printed
  1  failure; OUTPUT can be incomplete
  2  wrong command line

Examples:
  gatun translate client.pcap server.pcap --config gatun.toml
  gatun translate in.pcapng out.pcap -c gatun.toml --drops dropped.pcapng
  gatun translate in.pcap out.pcap -c gatun.toml --json | jq .drops
";

/// Size of INPUT from which progress is shown.
const PROGRESS_BYTES_MIN: u64 = 16 << 20;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Capture to read: pcap or pcapng
    input: PathBuf,
    /// Capture to write: pcap
    output: PathBuf,
    /// Configuration file
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
    /// Write dropped packets to a pcapng file, with the drop reason as comment
    #[arg(long, value_name = "FILE")]
    drops: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Seed of hashes and port selection; the same seed gives the same output
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
}

/// Translates the file.
///
/// # Errors
/// Returns an error if a file cannot be read or written, or if the configuration is invalid.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    refuse_same_file(&args)?;
    let config = super::check::load(&args.config)?;
    let file = File::open(&args.input).with_context(|| format!("cannot open {}", args.input.display()))?;
    let bar = progress_bar(file.metadata().map_or(0, |m| m.len()));
    let reading = || format!("cannot read {}", args.input.display());
    let mut reader = Reader::new(BufReader::new(bar.wrap_read(file))).with_context(reading)?;
    let output = Writer::new(create(&args.output)?, reader.link(), reader.nanoseconds())?;
    let drops = args.drops.as_deref().map(|path| -> anyhow::Result<_> {
        Ok(CommentedWriter::new(create(path)?, reader.link(), &["dropped"])?)
    });
    let offline = Offline::new(&config.plan, args.seed, output, drops.transpose()?)?;
    let outcome = run(offline, &mut reader).with_context(|| format!("translating {}", args.input.display()));
    bar.finish_and_clear();
    let outcome = outcome?;
    let text = if args.json { json_of(&outcome) } else { summary(&outcome) };
    super::print_bytes(text.as_bytes())?;
    if !outcome.cut_off {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "gatun: warning: {} is truncated inside the record after frame {}, or the record's length is wrong; everything after that frame is ignored",
        args.input.display(),
        group(outcome.frames),
    );
    Ok(ExitCode::from(CUT_OFF))
}

/// Exit status for a truncated capture.
const CUT_OFF: u8 = 3;

type Output = BufWriter<File>;

fn run<R: Read>(offline: Offline<Output, Output>, reader: &mut Reader<R>) -> anyhow::Result<Outcome> {
    offline.run(reader, |_| {})
}

fn create(path: &Path) -> anyhow::Result<Output> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(BufWriter::new(file))
}

/// Refuses to overwrite the input.
fn refuse_same_file(args: &Args) -> anyhow::Result<()> {
    let input = args.input.canonicalize().ok();
    for output in [Some(&args.output), args.drops.as_ref()].into_iter().flatten() {
        let same = input.is_some() && output.canonicalize().ok() == input;
        anyhow::ensure!(!same, "{} is the input: write to another file", output.display());
    }
    Ok(())
}

fn progress_bar(bytes: u64) -> ProgressBar {
    if bytes < PROGRESS_BYTES_MIN || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent}%  {bytes_per_sec}, {eta} left");
    ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Drop counters that are not zero, with direction and reason.
fn drops(outcome: &Outcome) -> Vec<(Direction, DropReason, Count)> {
    let mut list = Vec::new();
    for direction in [Direction::SixToFour, Direction::FourToSix] {
        for reason in DropReason::ALL {
            let count = outcome.counters.drops[direction as usize][*reason as usize];
            if count.packets > 0 {
                list.push((direction, *reason, count));
            }
        }
    }
    list
}

fn summary(outcome: &Outcome) -> String {
    let c = &outcome.counters;
    let mut out = String::new();
    // Writing to a String does not fail.
    let mut line = |name: &str, n: u64, note: &str| {
        let _ = writeln!(out, "  {name:<12}{:>14}  {note}", group(n));
    };
    line("frames", outcome.frames, "in the capture");
    line("not IP", outcome.not_ip, "ignored");
    line("received", c.rx.packets, "by the translator");
    line("v6>v4", c.translated[0].packets, "translated from IPv6 to IPv4");
    line("v4>v6", c.translated[1].packets, "translated from IPv4 to IPv6");
    line("hairpinned", c.hairpinned.packets, "of these, between inside hosts");
    line("passed", c.passed.packets, "not for the translator: not written");
    line("replied", c.replied.packets, "answered with an ICMP error or an echo reply");
    line("dropped", c.dropped.packets, "without an answer");
    line("held", c.held, "still waiting at the end");
    line("written", outcome.written, "packets");
    if outcome.cut > 0 {
        line("cut", outcome.cut, "truncated by the snap length: capture with `tcpdump -s 0`");
    }
    for (direction, reason, count) in drops(outcome) {
        let direction = if direction == Direction::SixToFour { "v6>v4" } else { "v4>v6" };
        let _ = writeln!(
            out,
            "  {direction} {:<24}{:>8}  {}",
            reason.name(),
            group(count.packets),
            reason.help()
        );
    }
    out
}

fn json_of(outcome: &Outcome) -> String {
    let c = &outcome.counters;
    let drops: Vec<_> = drops(outcome)
        .into_iter()
        .map(|(direction, reason, count)| {
            let direction = if direction == Direction::SixToFour { "v6>v4" } else { "v4>v6" };
            json!({ "direction": direction, "reason": reason.name(), "packets": count.packets, "bytes": count.bytes })
        })
        .collect();
    let value = json!({
        "frames": outcome.frames, "not_ip": outcome.not_ip, "cut": outcome.cut, "cut_off": outcome.cut_off, "written": outcome.written,
        "rx": c.rx.packets, "forwarded": c.forwarded.packets, "passed": c.passed.packets,
        "replied": c.replied.packets, "dropped": c.dropped.packets, "held": c.held,
        "translated_v6_to_v4": c.translated[0].packets, "translated_v4_to_v6": c.translated[1].packets,
        "hairpinned": c.hairpinned.packets, "icmp_errors_sent": c.icmp_errors_sent,
        "fragments_made": c.fragments_made, "probes_sent": c.probes_sent, "drops": drops,
    });
    format!("{value:#}\n")
}
