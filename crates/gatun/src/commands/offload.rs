//! `gatun offload gone`: declares a P4 switch gone.

use super::ask::Daemon;
use gatun_api::paths::with_query;
use gatun_api::types::Offload;
use gatun_wire::text::counted;
use std::process::ExitCode;

const EXAMPLES: &str = "\
A switch without a connection may go on translating. So Gatun keeps the sessions and ports that the switch may \
have, for hours if need be. If the switch is switched off or replaced, declare it gone: Gatun then uses these \
ports again. It is used again when it answers.

Do not declare a switch gone that still forwards packets: two subscribers could then have the same port.

Examples:
  gatun show offload          state of each switch
  gatun offload gone edge     the switch edge is switched off
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
    /// Declare that a switch has no entries and does not forward
    #[command(after_help = EXAMPLES)]
    Gone(Gone),
}

/// Arguments of `gone`.
#[derive(Debug, clap::Args)]
struct Gone {
    /// Name of the switch in the configuration
    #[arg(value_name = "SWITCH")]
    name: String,
    #[command(flatten)]
    daemon: Daemon,
}

/// # Errors
/// Returns an error if the daemon does not answer or refuses the request.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let Action::Gone(Gone { name, daemon }) = args.action;
    let path = with_query("/v1/offload/gone", &[("switch", name.clone())]);
    let before: Offload = daemon.client()?.get("/v1/offload")?;
    let _: Offload = daemon.client()?.ask("POST", &path, &[])?;
    let unknown =
        before.switches.iter().find(|switch| switch.name == name).map_or(0, |switch| switch.unknown);
    let sessions = counted(unknown, "session");
    super::print_bytes(
        format!("switch {name} is declared gone; {sessions} no longer wait for it\n").as_bytes(),
    )?;
    Ok(ExitCode::SUCCESS)
}
