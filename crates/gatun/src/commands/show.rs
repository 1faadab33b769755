//! `gatun show`: state and counters of a running daemon.

use super::ask::{Daemon, Filter};
use crate::show::{self, CONNECTION_LOST, Output, Shown};
use anyhow::{Context as _, bail};
use gatun_api::paths::with_query;
use gatun_api::types::*;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  gatun show status
  gatun show sessions --inside 2001:db8:1::/64 --protocol tcp
  gatun show bindings --outside 192.0.2.7 -o json
  gatun show sessions --limit 0 -o ndjson > sessions.ndjson
  gatun show drops --watch
  gatun show events --follow

`json` is the answer of the API (docs/reference/api.md), a list as one array. `ndjson` and `csv` are streamed, so \
a list of millions of sessions needs little memory. Listing does not delay packets.
";

/// Resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Resource {
    /// Overview of the daemon
    Status,
    /// Ports of the configuration
    Ports,
    /// Workers and their counters
    Workers,
    /// Instances: packets and state
    Instances,
    /// Pools and their usage
    Pools,
    /// Public addresses and their usage
    Addresses,
    /// Port blocks of subscribers
    Blocks,
    /// Subscribers with state
    Subscribers,
    /// Bindings
    Bindings,
    /// Sessions
    Sessions,
    /// All counters
    Counters,
    /// Drop reasons
    Drops,
    /// Live events (needs --follow)
    Events,
    /// Event collectors and their counters
    Export,
    /// Kernel fast path: sessions, packets by reason
    Fastpath,
    /// P4 switches: state, sessions, refusals
    Offload,
    /// Port log: records, size, losses
    Log,
    /// Running configuration
    Config,
}

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Resource to show
    what: Resource,
    #[command(flatten)]
    filter: Filter,
    /// Output format
    #[arg(long, short, value_enum, default_value = "table")]
    output: Output,
    /// Longest list; 0 for all entries
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    /// Include drops and counters that are zero
    #[arg(long)]
    zeros: bool,
    /// Print events as they happen, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// Repeat every SECONDS, until Ctrl-C
    #[arg(long, short, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    watch: Option<u32>,
    #[command(flatten)]
    daemon: Daemon,
}

/// Arguments of `gatun drops`.
#[derive(Debug, clap::Args)]
pub(crate) struct DropsArgs {
    /// Output format
    #[arg(long, short, value_enum, default_value = "table")]
    output: Output,
    /// Include reasons that never occurred
    #[arg(long)]
    zeros: bool,
    /// Repeat every SECONDS, until Ctrl-C
    #[arg(long, short, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    watch: Option<u32>,
    #[command(flatten)]
    daemon: Daemon,
}

impl From<DropsArgs> for Args {
    fn from(args: DropsArgs) -> Args {
        let DropsArgs { output, zeros, watch, daemon } = args;
        Args {
            what: Resource::Drops,
            filter: Filter::default(),
            output,
            limit: 0,
            zeros,
            follow: false,
            watch,
            daemon,
        }
    }
}

/// # Errors
/// Returns an error if the daemon does not answer or refuses the request.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let Some(seconds) = args.watch else {
        return show_once(&args);
    };
    loop {
        if std::io::stdout().is_terminal() {
            // Cursor home, then erase what is below: no flicker.
            print!("\x1b[H\x1b[2J");
            std::io::stdout().flush()?;
        }
        show_once(&args)?;
        std::thread::sleep(Duration::from_secs(seconds.into()));
    }
}

fn show_once(args: &Args) -> anyhow::Result<ExitCode> {
    match args.what {
        Resource::Status => status(args),
        Resource::Config => config(args),
        Resource::Ports => all::<Port>(args, "/v1/ports", |_| true),
        Resource::Workers => all::<Worker>(args, "/v1/workers", |_| true),
        Resource::Instances => all::<Instance>(args, "/v1/instances", |_| true),
        Resource::Pools => all::<Pool>(args, "/v1/pools", |_| true),
        Resource::Counters => all::<Counter>(args, "/v1/counters", |counter| counter.value > 0),
        Resource::Drops => all::<Drop>(args, "/v1/drops", |drop| {
            drop.six_to_four.packets + drop.four_to_six.packets + drop.four_to_four.packets > 0
        }),
        Resource::Events => events(args),
        Resource::Export => all::<Export>(args, "/v1/exports", |_| true),
        Resource::Fastpath => one::<FastPath>(args, "/v1/fastpath"),
        Resource::Offload => one::<Offload>(args, "/v1/offload"),
        Resource::Log => one::<LogStore>(args, "/v1/log"),
        Resource::Addresses => list::<Address>(args, "/v1/addresses"),
        Resource::Blocks => list::<Block>(args, "/v1/blocks"),
        Resource::Subscribers => list::<Subscriber>(args, "/v1/subscribers"),
        Resource::Bindings => list::<Binding>(args, "/v1/bindings"),
        Resource::Sessions => list::<Session>(args, "/v1/sessions"),
    }
}

fn one<T: Shown>(args: &Args, path: &str) -> anyhow::Result<ExitCode> {
    let thing: T = args.daemon.client()?.get(&with_query(path, &args.filter.query()))?;
    super::print_bytes(&show::one(&thing, args.output)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Overview; as a table with problems below it, in colour.
fn status(args: &Args) -> anyhow::Result<ExitCode> {
    let status: Status = args.daemon.client()?.get("/v1/status")?;
    let mut text = show::one(&status, args.output)?;
    if args.output == Output::Table {
        for Trouble { urgency, what, .. } in &status.troubles {
            text.extend(super::colour::line(*urgency, &format!("needs attention: {what}")).into_bytes());
            text.push(b'\n');
        }
    }
    super::print_bytes(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn config(args: &Args) -> anyhow::Result<ExitCode> {
    let config: Config = args.daemon.client()?.get(&with_query("/v1/config", &args.filter.query()))?;
    match args.output {
        Output::Table => super::print_bytes(format!("# {}\n{}", config.file, config.text).as_bytes())?,
        output => super::print_bytes(&show::one(&config, output)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Live events.
fn events(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.follow {
        bail!(
            "pass --follow: events are shown as they happen. Past events are in the file that [events] names"
        );
    }
    let body = args.daemon.client()?.open("GET", "/v1/events", &[])?;
    for line in BufReader::new(body).lines() {
        let line = line.context(CONNECTION_LOST)?;
        // An empty line: nothing has happened for a while.
        if line.is_empty() {
            continue;
        }
        let text = match args.output {
            Output::Table => in_words(&line),
            Output::Csv => {
                bail!("events have different fields, so CSV cannot hold them: use -o ndjson or -o table")
            }
            _ => line,
        };
        super::print_bytes(format!("{text}\n").as_bytes())?;
    }
    bail!("the daemon has stopped")
}

/// Text of an event: its fields in order.
fn in_words(line: &str) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str(line) else { return line.to_owned() };
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let get = |name: &str| fields.get(name).map_or_else(String::new, plain);
    let mut text = format!("{} {}", get("time"), get("event"));
    for (name, value) in fields.iter().filter(|(name, _)| !["time", "event"].contains(&name.as_str())) {
        text += &format!(" {name}={}", plain(value));
    }
    text
}

/// Short list.
fn all<T: Shown>(args: &Args, path: &str, is_of_interest: fn(&T) -> bool) -> anyhow::Result<ExitCode> {
    let mut items: Vec<T> = args.daemon.client()?.get(&with_query(path, &args.filter.query()))?;
    if args.output == Output::Table && !args.zeros {
        items.retain(is_of_interest);
    }
    super::print_bytes(&show::all(&items, args.output)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Long list, streamed.
fn list<T: Shown>(args: &Args, path: &str) -> anyhow::Result<ExitCode> {
    let mut query = args.filter.query();
    query.push(("format", "ndjson".to_owned()));
    let lines = args.daemon.client()?.open("GET", &with_query(path, &query), &[])?;
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    let is_whole = show::list::<T>(lines, args.output, limit)?;
    if !is_whole {
        eprintln!(
            "gatun: showing {limit} of more: add a filter (gatun show --help), or use --limit 0 for all"
        );
    }
    Ok(ExitCode::SUCCESS)
}
