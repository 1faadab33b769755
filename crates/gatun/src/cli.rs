//! The command line's grammar. Each command's arguments and work are in its own file in `commands/`.

use crate::commands::{
    check, clear, completions, config, doctor, drain, explain, init, log, log_level, man, map, run, show,
    snapshot, token, top, trace, translate, web, who,
};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[cfg(test)]
mod documented;

const EXAMPLES: &str = "\
Examples:
  gatun init --output gatun.toml       write a configuration by answering questions
  gatun check gatun.toml               say what is wrong with it, and how to fix it
  gatun run gatun.toml                 translate, until SIGTERM or Ctrl-C
  gatun show status                    what a running daemon has and does
  gatun explain 2001:db8::5 198.51.100.7 tcp
                                       what would become of a packet, and why
  gatun who 192.0.2.7:41822            whose a public port is
  gatun who 192.0.2.7:41822 --at @1769864759
                                       whose it was, by the log
  gatun translate in.pcap out.pcap --config gatun.toml
                                       translate a capture, offline
";

/// Translates between IPv6 and IPv4: stateful NAT64 and stateless SIIT with explicit address mappings.
#[derive(Debug, Parser)]
#[command(name = "gatun", version, about, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Translate packets, until told to stop
    Run(run::Args),
    /// Show what a running daemon has and has done
    Show(show::Args),
    /// Say what would become of a packet now, and why
    Explain(explain::Args),
    /// Look for what of this machine keeps packets from being translated
    Doctor(doctor::Args),
    /// Show what a running daemon does at this moment, again and again
    Top(top::Args),
    /// Show a web page of a running daemon on this host
    Web(web::Args),
    /// Show packets as they pass, before and after
    Trace(trace::Args),
    /// Give public addresses no new bindings
    Drain(drain::Args),
    /// Give drained public addresses new bindings again
    Undrain(drain::Args),
    /// Show why packets were not forwarded: `gatun show drops`
    Drops(show::DropsArgs),
    /// End sessions or bindings of a running daemon
    Clear(clear::Args),
    /// Say whose a public address and port is, or was
    Who(who::Args),
    /// Say where an inside host is seen from outside now
    Where(who::WhereArgs),
    /// Check or print the log of who had which port when
    Log(log::Args),
    /// Take a daemon's sessions to another host, or keep them over a reboot
    Snapshot(snapshot::Args),
    /// Say who may ask a daemon over TCP, and make its certificate
    Token(token::Args),
    /// Show, compare, change and change back the configuration of a running daemon
    Config(config::Args),
    /// List, add and remove static bindings and address mappings of a running daemon
    Map(map::Args),
    /// Let a running daemon log more or less
    LogLevel(log_level::Args),
    /// Check a configuration file, and say what it asks for
    Check(check::Args),
    /// Write a small configuration file
    Init(init::Args),
    /// Translate a capture file, offline
    Translate(translate::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Write the manual pages into a directory
    #[command(hide = true)]
    Man(man::Args),
}

impl Command {
    /// Does it, and says what the process exits with.
    ///
    /// # Errors
    /// Whatever kept the command from doing its work.
    pub(crate) fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Command::Run(args) => run::execute(args),
            Command::Show(args) => show::execute(args),
            Command::Explain(args) => explain::execute(args),
            Command::Doctor(args) => doctor::execute(args),
            Command::Top(args) => top::execute(args),
            Command::Web(args) => web::execute(args),
            Command::Trace(args) => trace::execute(args),
            Command::Drain(args) => drain::execute(args, true),
            Command::Undrain(args) => drain::execute(args, false),
            Command::Drops(args) => show::execute(args.into()),
            Command::Clear(args) => clear::execute(args),
            Command::Who(args) => who::execute(args),
            Command::Where(args) => who::execute_where(args),
            Command::Log(args) => log::execute(args),
            Command::Snapshot(args) => snapshot::execute(args),
            Command::Token(args) => token::execute(args),
            Command::Config(args) => config::execute(args),
            Command::Map(args) => map::execute(args),
            Command::LogLevel(args) => log_level::execute(args),
            Command::Check(args) => check::execute(args),
            Command::Init(args) => init::execute(args),
            Command::Translate(args) => translate::execute(args),
            Command::Completions(args) => completions::execute(args),
            Command::Man(args) => man::execute(args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_grammar_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }
}
