//! `gatun map`: static bindings and explicit address mappings of a running daemon.

use super::ask::Daemon;
use super::config::{How, Meant, body, is_meant, query, tell};
use crate::show::{self, Output};
use gatun_api::paths::with_query;
use gatun_api::types::{Config, ConfigApplied, Protocol, StaticMap};
use gatun_daemon::mapping;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  gatun map show
  gatun map add --protocol tcp '[2001:db8::5]:443' 203.0.113.5:443       a port that is reached from outside
  gatun map add --protocol udp 100.64.0.7:5000-5009 203.0.113.5:7000-7009
  gatun map add 2001:db8::5 203.0.113.5                                  an address, one to one (siit)
  gatun map remove 2001:db8::5 203.0.113.5 --confirm 60s

A mapping is a line of the configuration: it is added to the file that the daemon runs by, with all that stands
there left as it is, and is there after a restart. It says what would happen before it does (see `gatun config`).
";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the mappings of the configuration that runs
    Show {
        /// Of this instance
        #[arg(long, value_name = "NAME")]
        instance: Option<String>,
        /// How
        #[arg(long, short, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Add a mapping
    Add {
        #[command(flatten)]
        map: Ends,
        #[command(flatten)]
        how: How,
    },
    /// Take a mapping out; its sessions end
    Remove {
        #[command(flatten)]
        map: Ends,
        #[command(flatten)]
        how: How,
    },
}

/// A mapping.
#[derive(Clone, Debug, clap::Args)]
struct Ends {
    /// Inside address and port; of an address mapping the IPv6 address or prefix
    inside: String,
    /// Public address and port; of an address mapping the IPv4 address or prefix
    outside: String,
    /// A static binding of this protocol: tcp, udp or icmp; an explicit address mapping where nothing is said
    #[arg(long, short, value_name = "PROTOCOL")]
    protocol: Option<Protocol>,
    /// Of this instance, where several can have it
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
}

/// # Errors
/// Why the daemon does not answer, or refuses.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Show { instance, output, daemon } => {
            let mut query = vec![("format", "ndjson".to_owned())];
            query.extend(instance.map(|name| ("instance", name)));
            let lines = daemon.client()?.open("GET", &with_query("/v1/maps", &query), &[])?;
            show::list::<StaticMap>(lines, output, usize::MAX)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Add { map, how } => edit(map, &how, true),
        Command::Remove { map, how } => edit(map, &how, false),
    }
}

fn edit(ends: Ends, how: &How, adds: bool) -> anyhow::Result<ExitCode> {
    let Ends { inside, outside, protocol, instance } = ends;
    let map = StaticMap { instance, protocol, inside, outside };
    let client = how.daemon.client()?;
    let running: Config = client.get("/v1/config")?;
    // What would happen is asked of the same edit as the daemon makes.
    let edit = if adds { gatun_config::add_mapping } else { gatun_config::remove_mapping };
    let text = edit(&running.text, &mapping(map.clone()))?;
    let question = if adds { "Add it?" } else { "Take it out?" };
    match is_meant(&client, &running, &body(text)?, (&running.file, question), how)? {
        Meant::Yes => {}
        Meant::Nothing => return Ok(ExitCode::SUCCESS),
        Meant::No => return Ok(ExitCode::FAILURE),
    }
    let path = if adds { "/v1/maps/add" } else { "/v1/maps/remove" };
    let target = with_query(path, &query(&running.revision, how));
    let done: ConfigApplied = client.ask("POST", &target, &serde_json::to_vec(&map)?)?;
    tell(&done, &running.file)
}
