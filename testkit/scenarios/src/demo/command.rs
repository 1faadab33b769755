//! `lab/run demo`: shows Gatun at work between network namespaces.

use super::Demo;
use anyhow::{Context as _, ensure};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

const ABOUT: &str = "\
Makes an IPv6-only client, Gatun and an IPv4-only server in network namespaces,
with the kernel's own stacks and real programs: ping, traceroute, HTTP, TCP and
UDP both ways, path MTU discovery, then iperf3 through Gatun, tayga and plain
kernel forwarding. Takes about a minute; needs root, or a kernel that lets
users make namespaces. Nothing is left behind but the files in the output
directory, also when it is interrupted.
";

/// Shows Gatun at work between network namespaces of this machine
#[derive(Debug, clap::Parser)]
#[command(name = "lab/run demo", after_help = ABOUT)]
pub(crate) struct Args {
    /// Where report.json, the captures and the configuration go
    #[arg(long, value_name = "DIR", default_value = "target/demo")]
    output: PathBuf,
    /// How long one measurement of throughput takes, in seconds; 0 leaves them out
    #[arg(long, value_name = "N", default_value_t = 2)]
    seconds: u32,
    /// The daemon's program [default: `gatun` beside this program]
    #[arg(long, value_name = "FILE")]
    gatun: Option<PathBuf>,
}

/// # Errors
/// What kept the demo from running.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let output = std::path::absolute(&args.output).context("the output directory")?;
    std::fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
    let gatun = match args.gatun {
        Some(program) => program,
        None => std::env::current_exe().context("the path of this program")?.with_file_name("gatun"),
    };
    let gatun = std::path::absolute(gatun).context("the daemon's program")?;
    ensure!(
        gatun.is_file(),
        "{} does not exist: build it (cargo build --release --package gatun), or name it with --gatun",
        gatun.display()
    );
    let mut again: Vec<OsString> = ["demo", "--seconds"].map(Into::into).into();
    again.extend([args.seconds.to_string().into(), "--output".into(), output.clone().into_os_string()]);
    again.extend(["--gatun".into(), gatun.clone().into_os_string()]);
    match gatun_testkit::enter("demo", &again).context("no demo here")? {
        Some(status) if status.success() => Ok(ExitCode::SUCCESS),
        Some(_) => Ok(ExitCode::FAILURE),
        None => {
            let ok = super::run(&Demo { output, gatun, seconds: args.seconds })?;
            Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}
