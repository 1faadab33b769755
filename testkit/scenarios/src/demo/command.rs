//! Command line of the demo.

use super::Demo;
use anyhow::{Context as _, ensure};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

const ABOUT: &str = "\
The demo creates an IPv6-only client, Gatun and an IPv4-only server in network
namespaces, and uses the kernel's own stacks and real programs: ping,
traceroute, HTTP, TCP and UDP both ways, path MTU discovery, then iperf3
through Gatun, tayga and plain kernel forwarding. It takes about a minute, and
needs root or a kernel that lets users create namespaces. It leaves nothing
behind but the files in the output directory, even when it is interrupted.
";

/// Shows Gatun at work between network namespaces of this machine
#[derive(Debug, clap::Parser)]
#[command(name = "lab/run demo", after_help = ABOUT)]
pub(crate) struct Args {
    /// Folder for report.json, the captures and the configuration
    #[arg(long, value_name = "DIR", default_value = "target/demo")]
    output: PathBuf,
    /// Seconds of one throughput measurement; 0 skips them
    #[arg(long, value_name = "N", default_value_t = 2)]
    seconds: u32,
    /// The daemon's program [default: `gatun` beside this program]
    #[arg(long, value_name = "FILE")]
    gatun: Option<PathBuf>,
}

/// # Errors
/// Returns an error if the demo cannot run.
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
        "{} does not exist: build it (cargo build --release --package gatun) or pass --gatun",
        gatun.display()
    );
    let mut again: Vec<OsString> = ["demo", "--seconds"].map(Into::into).into();
    again.extend([args.seconds.to_string().into(), "--output".into(), output.clone().into_os_string()]);
    again.extend(["--gatun".into(), gatun.clone().into_os_string()]);
    match gatun_testkit::enter("demo", &again).context("the demo cannot run here")? {
        Some(status) => Ok(crate::ended(status)),
        None => {
            let ok = super::run(&Demo { output, gatun, seconds: args.seconds })?;
            Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}
