//! `lab/run`: one command runs a scenario or the demo in network namespaces of this machine, and leaves
//! nothing behind. `testkit/README.md` explains the reports.
#![forbid(unsafe_code)]

mod bed;
mod counters;
mod demo;
mod distance;
#[cfg(test)]
mod documented;
mod ends;
mod forwarder;
mod killer;
#[cfg(feature = "dpdk")]
mod memif;
mod middle;
mod port_users;
mod ports;
mod processors;
mod report;
mod run;
mod scenario;
#[cfg(feature = "dpdk")]
mod switch;
mod wire;

use anyhow::Context as _;
use clap::Parser;
use gatun_testkit::traffic::{Family, Sizes};
use middle::Programs;
use scenario::iperf::Part;
use scenario::{Over, RunOptions};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

/// Run a scenario and report the fate of every packet
#[derive(Debug, Parser)]
#[command(name = "lab/run", arg_required_else_help = true, after_help = scenario::list())]
struct Args {
    /// Scenario: iperf, carrier, ladder, rfc8219, fastpath, backends, pair, cluster, thesis or demo
    scenario: String,
    /// Length of the main stage; each scenario has its own default
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,
    /// Another file for the report in JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Page between whose marks for this scenario the report's tables are written
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Folder for the report (Markdown, HTML, JSON), configurations and logs
    #[arg(long, value_name = "DIR", default_value = "target/lab")]
    output: PathBuf,
    /// Subscribers of the generator
    #[arg(long, value_name = "N")]
    subscribers: Option<u32>,
    /// Flows of each subscriber
    #[arg(long, value_name = "N")]
    flows: Option<u32>,
    /// Bytes of a frame, 64 to 9000, or imix
    #[arg(long, value_name = "BYTES", value_parser = sizes)]
    frame: Option<Sizes>,
    /// Packets per second that the generator sends [default: a window of packets in flight]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// carrier: random sessions ended per second through Gatun's API; 0 for none
    #[arg(long, value_name = "N")]
    kills: Option<f64>,
    /// Use NAT44 instead of NAT64: IPv4 hosts inside
    #[arg(long)]
    nat44: bool,
    /// iperf, thesis: numbers of parallel streams of iperf3, one table column each
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    streams: Option<Vec<u32>>,
    /// iperf, thesis: kinds of measurement [default: all]
    #[arg(long, value_name = "PART,PART", value_delimiter = ',')]
    parts: Option<Vec<Part>>,
    /// iperf, fastpath, backends, thesis, pair, cluster: runs in turn, for medians [default: 5; thesis: 3]
    #[arg(long, value_name = "N")]
    runs: Option<u32>,
    /// iperf, thesis, pair, cluster: only rows whose names have one of these texts
    #[arg(long, value_name = "TEXT,TEXT", value_delimiter = ',')]
    rows: Vec<String>,
    /// iperf: also show the processor time of each function, by perf (Debian: linux-perf)
    #[arg(long)]
    profile: bool,
    /// iperf: another translator as a row, set up by a command (testkit/README.md)
    #[arg(long, value_name = "NAME=COMMAND", value_parser = beside)]
    beside: Vec<(String, PathBuf)>,
    /// thesis: keep the measurements in a file, and repeat none that it has
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// thesis: end within this time; the next run with the same `--keep` goes on
    #[arg(long, value_name = "N", requires = "keep")]
    minutes: Option<u32>,
    /// cluster: nodes, 3 to 7 [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(3..=7))]
    nodes: Option<u8>,
    /// pair: translate in the kernel, too, so that it goes on when a box is killed or stopped
    #[arg(long)]
    fastpath: bool,
    /// pair, cluster: earlier build of Gatun, from which the boxes are upgraded one after the other
    #[arg(long, value_name = "FILE")]
    former: Option<PathBuf>,
    /// Run as little as possible, to show that a scenario works (its figures are meaningless)
    #[arg(long)]
    brief: bool,
    /// carrier, ladder, rfc8219: type of the cables, veth through AF_XDP or memory shared by DPDK programs
    #[arg(long, value_name = "TYPE", default_value = "veth")]
    over: Over,
    /// carrier: a P4 switch in the middle, with Gatun as its controller (with `--over memif`)
    #[cfg(feature = "dpdk")]
    #[arg(long)]
    switch: bool,
    /// Reflector with memif [default: testpmd with three processors, own with fewer]
    #[cfg(feature = "dpdk")]
    #[arg(long, value_name = "PROGRAM")]
    reflector: Option<memif::Reflector>,
    /// Gatun program to measure
    #[arg(long, value_name = "FILE", default_value = "target/release/gatun")]
    gatun: PathBuf,
}

fn beside(text: &str) -> Result<(String, PathBuf), String> {
    let (name, command) = text.split_once('=').ok_or("expected NAME=COMMAND")?;
    let command = Path::new(command).canonicalize().map_err(|e| format!("{command}: {e}"))?;
    Ok((name.to_owned(), command))
}

fn sizes(text: &str) -> Result<Sizes, String> {
    match text {
        "imix" => Ok(Sizes::Imix),
        _ => match text.parse() {
            Ok(bytes @ 64..=9000) => Ok(Sizes::Fixed(bytes)),
            _ => Err("expected a number from 64 to 9000, or imix".into()),
        },
    }
}

/// Result of a run in its namespaces. A crash in a library leaves no other word than the signal.
fn ended(status: ExitStatus) -> ExitCode {
    if status.code().is_none() {
        eprintln!("ended by {status}");
    }
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn main() -> anyhow::Result<ExitCode> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    // This program also is the plain forwarder inside the sandbox.
    if let [command, a, b] = &words[..]
        && command == "forward"
    {
        forwarder::run(&a.to_string_lossy(), &b.to_string_lossy())?;
        return Ok(ExitCode::SUCCESS);
    }
    #[cfg(feature = "dpdk")]
    if let [command, a, b, mtu, core] = &words[..]
        && command == "forward-dpdk"
    {
        let [a, b, mtu, core] = [a, b, mtu, core].map(|word| word.to_string_lossy());
        // Any word that is not a number keeps the device's own MTU.
        forwarder::run_dpdk([&*a, &*b], mtu.parse().ok(), core.parse()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if words.first().is_some_and(|word| word == "demo") {
        return demo::command::execute(demo::command::Args::parse_from(&words));
    }
    let args = Args::parse();
    let Some(scenario) = scenario::ALL.iter().find(|known| known.name == args.scenario) else {
        let names: Vec<&str> = scenario::ALL.iter().map(|known| known.name).collect();
        anyhow::bail!("unknown scenario `{}`: expected {} or demo", args.scenario, names.join(", "));
    };
    if let Some(why) = gatun_testkit::refusal_but_to_root("AF_XDP") {
        anyhow::bail!("scenarios cannot run here: {why}");
    }
    match gatun_testkit::enter("lab", &words).context("scenarios cannot run here")? {
        Some(status) => Ok(ended(status)),
        None => inside(&args, scenario.run),
    }
}

/// Inside the sandbox: runs the scenario and writes its report.
fn inside(args: &Args, run: fn(&RunOptions) -> anyhow::Result<report::Report>) -> anyhow::Result<ExitCode> {
    let absolute = |path: &Path| std::path::absolute(path).with_context(|| path.display().to_string());
    let (output, gatun) = (absolute(&args.output)?, absolute(&args.gatun)?);
    // Before any thread is pinned to one processor.
    processors::processors_count();
    std::fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
    anyhow::ensure!(gatun.is_file(), "{} is missing: cargo build --release --package gatun", gatun.display());
    let former = args.former.as_deref().map(absolute).transpose()?;
    if let Some(former) = &former {
        anyhow::ensure!(
            former.is_file(),
            "{} is missing: `--former` names an earlier build",
            former.display()
        );
    }
    let options = RunOptions {
        programs: Programs { gatun, former, output: output.clone() },
        seconds: args.seconds,
        subscribers: args.subscribers,
        flows: args.flows,
        sizes: args.frame,
        family: if args.nat44 { Family::V4 } else { Family::V6 },
        rate: args.rate,
        kills: args.kills,
        brief: args.brief,
        streams: args.streams.clone(),
        parts: args.parts.clone(),
        runs: args.runs,
        rows: args.rows.clone(),
        profile: args.profile,
        beside: args.beside.clone(),
        keep: args.keep.as_deref().map(absolute).transpose()?,
        time_max: args.minutes.map(|minutes| Duration::from_secs(60 * u64::from(minutes))),
        nodes: args.nodes,
        fastpath: args.fastpath,
        over: args.over,
        #[cfg(feature = "dpdk")]
        switch: args.switch,
        #[cfg(feature = "dpdk")]
        reflector: args.reflector.unwrap_or_else(|| match args.switch {
            // Its counters say what a killed switch had.
            true => memif::Reflector::Own,
            false => memif::Reflector::of_this_machine(),
        }),
    };
    let before = distance::line_round_trip();
    let mut report = run(&options)?;
    for (when, time) in [("start", before), ("end", distance::line_round_trip())] {
        let time = time.map_or("unknown".into(), |time| format!("{} ns", time.as_nanos()));
        let name = format!("round trip of a cache line between the processors, at the {when}");
        report.machine.push((name, time));
    }
    report.write(&output, args.json.as_deref())?;
    if let Some(page) = &args.write {
        anyhow::ensure!(!args.brief, "figures of a brief run are not written");
        anyhow::ensure!(report.left == 0, "{} measurements are left: they are not written", report.left);
        report.write_tables(page)?;
    }
    println!("{}", report.markdown());
    println!("{}", output.join(format!("{}.html", report.scenario)).display());
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
