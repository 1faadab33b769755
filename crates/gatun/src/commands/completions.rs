//! `gatun completions`: a completion script for a shell.

use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  gatun completions bash > /usr/share/bash-completion/completions/gatun
  gatun completions zsh > /usr/share/zsh/vendor-completions/_gatun
  gatun completions fish > ~/.config/fish/completions/gatun.fish
";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Shell
    shell: clap_complete::Shell,
}

/// Prints the script.
///
/// # Errors
/// Returns an error if standard output cannot be written. A closed pipe is no error.
pub(crate) fn execute(args: Args, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "gatun", &mut script);
    super::print_bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}
