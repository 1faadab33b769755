//! Grammar of the command line. Each command has a file in `commands/` with its arguments and implementation.

use crate::commands::{
    check, clear, cluster, completions, config, doctor, drain, explain, fastpath, health, init, log,
    log_level, man, map, offload, p4, peer, run, show, snapshot, token, top, trace, translate, web, who,
};
use clap::{CommandFactory as _, Parser, Subcommand};
use std::process::ExitCode;

#[cfg(test)]
mod documented;

const EXAMPLES: &str = "\
Examples:
  gatun init --output gatun.toml       create a configuration interactively
  gatun check gatun.toml               check it
  gatun run gatun.toml                 translate packets until SIGTERM or Ctrl-C
  gatun show status                    state and counters of a running daemon
  gatun explain 2001:db8::5 198.51.100.7 tcp
                                       fate of a packet, with reasons
  gatun who 192.0.2.7:41822            current holder of a public port
  gatun who 192.0.2.7:41822 --at @1769864759
                                       past holder, from the log
  gatun translate in.pcap out.pcap --config gatun.toml
                                       translate a capture file
";

/// Address translator: stateful NAT64 and NAT44, stateless SIIT with explicit address mappings.
#[derive(Debug, Parser)]
#[command(name = "gatun", version, about, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the translator
    Run(run::Args),
    /// Show state and counters of a running daemon
    Show(show::Args),
    /// Predict the fate of a packet, with reasons
    Explain(explain::Args),
    /// Diagnose why packets are not translated on this machine
    Doctor(doctor::Args),
    /// Tell if a running daemon is healthy, by the exit status
    Health(health::Args),
    /// Show a live view of a running daemon
    Top(top::Args),
    /// Serve the web page of a running daemon on this host
    Web(web::Args),
    /// Show live packets before and after translation
    Trace(trace::Args),
    /// Stop new bindings on public addresses
    Drain(drain::Args),
    /// Resume new bindings on drained public addresses
    Undrain(drain::Args),
    /// Show drop reasons and their counters (`gatun show drops`)
    Drops(show::DropsArgs),
    /// End sessions or bindings of a running daemon
    Clear(clear::Args),
    /// Show the current or past holder of a public address and port
    Who(who::Args),
    /// Show the public addresses and ports of an inside host
    Where(who::WhereArgs),
    /// Verify or print the port log
    Log(log::Args),
    /// Save sessions to a file, or load them from one
    Snapshot(snapshot::Args),
    /// Manage API tokens and the API's certificate
    Token(token::Args),
    /// Show, compare, apply and roll back the running configuration
    Config(config::Args),
    /// List, add and remove static bindings and address mappings
    Map(map::Args),
    /// Set the log level of a running daemon
    LogLevel(log_level::Args),
    /// Check a configuration file and summarise it
    Check(check::Args),
    /// Remove the kernel fast path without a daemon
    Fastpath(fastpath::Args),
    /// Declare a P4 switch gone
    Offload(offload::Args),
    /// Run a P4 switch in software
    P4(p4::Args),
    /// Operate a pair of boxes: state, hand-over, certificates
    Peer(peer::Args),
    /// Operate a cluster: state, drain, certificates
    Cluster(cluster::Args),
    /// Create a configuration file
    Init(init::Args),
    /// Translate a capture file
    Translate(translate::Args),
    /// Print a shell completion script
    Completions(completions::Args),
    /// Write the manual pages into a directory
    #[command(hide = true)]
    Man(man::Args),
}

impl Command {
    /// Executes the command and returns the exit status.
    ///
    /// # Errors
    /// Returns an error if the command fails.
    pub(crate) fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Command::Run(args) => run::execute(args),
            Command::Show(args) => show::execute(args),
            Command::Fastpath(args) => fastpath::execute(args),
            Command::Explain(args) => explain::execute(args),
            Command::Doctor(args) => doctor::execute(args),
            Command::Health(args) => health::execute(args),
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
            Command::Offload(args) => offload::execute(args),
            Command::P4(args) => p4::execute(args),
            Command::Peer(args) => peer::execute(args),
            Command::Cluster(args) => cluster::execute(args),
            Command::Init(args) => init::execute(args),
            Command::Translate(args) => translate::execute(args),
            Command::Completions(args) => completions::execute(args, Cli::command()),
            Command::Man(args) => man::execute(args, Cli::command()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }
}
