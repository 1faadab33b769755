//! `gatun fastpath detach`: removes the kernel fast path, without a daemon.

use anyhow::bail;
use gatun_config::FastPath;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
For a daemon that was killed and does not come back: a program that is left stops translating when its lease \
has run out, at the latest, and then costs a few instructions per packet until it is detached. \
A running daemon attaches the program again. To end the fast path of a running daemon, write \
kernel = \"off\" in [fastpath] and reload. Needs root, in the network namespace of the device.

Examples:
  gatun fastpath detach /etc/gatun/gatun.toml
  gatun fastpath detach --device gatun0
";

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

/// Action.
#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Detach the program from its device and remove the kernel's tables
    #[command(after_help = EXAMPLES)]
    Detach(Detach),
}

/// Arguments of `detach`.
#[derive(Debug, clap::Args)]
struct Detach {
    /// Configuration file
    #[arg(required_unless_present = "device")]
    file: Option<PathBuf>,
    /// Device, if there is no configuration file
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    device: Option<String>,
    /// Directory of the kernel's tables [default: that of FILE, or /run/gatun/fastpath]
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

/// # Errors
/// Returns an error if the configuration is invalid, or if a table cannot be removed.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let Action::Detach(Detach { file, device, directory }) = args.action;
    let (mut settings, devices) = match (file, device) {
        (Some(file), _) => {
            let config = super::check::load(&file)?;
            let tun = config.ports.into_iter().filter(|port| port.ethernet.is_none());
            (config.fastpath, tun.map(|port| port.device).collect())
        }
        (None, device) => (FastPath::default(), Vec::from_iter(device)),
    };
    if devices.is_empty() {
        bail!("the configuration has no TUN device, so there is no kernel fast path");
    }
    settings.directory = directory.unwrap_or(settings.directory);
    for line in gatun_daemon::detach_fastpath(&settings, &devices)? {
        super::print_bytes(format!("{line}\n").as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}
