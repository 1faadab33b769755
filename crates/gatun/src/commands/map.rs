//! `gatun map`: static bindings and explicit address mappings of a running daemon.

use super::ask::Daemon;
use super::config::{ChangeOptions, Decision, preview_and_ask, query, tell};
use crate::show::{self, Output};
use anyhow::{Context as _, anyhow, bail};
use gatun_api::paths::with_query;
use gatun_api::types::{Config, ConfigApplied, ConfigPlan, MapsEdit, MapsTable, Protocol, StaticMap};
use gatun_daemon::mapping;
use serde::Serialize;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  gatun map list
  gatun map add --protocol tcp '[2001:db8::5]:443' 203.0.113.5:443
  gatun map add --protocol udp 100.64.0.7:5000-5009 203.0.113.5:7000-7009
  gatun map add 2001:db8::5 203.0.113.5      one address, for siit
  gatun map add --file new.txt               all mappings of a file
  gatun map remove 2001:db8::5 203.0.113.5 --confirm 60s
  gatun map replace eam.txt --instance dc    all mappings of `dc`

Each line of a file is an address mapping as in an eam_file, `203.0.113.5 2001:db8::5`, a \
binding, `tcp [2001:db8::5]:443 203.0.113.5:443`, or JSON as `gatun map list -o ndjson` \
prints it. `#` begins a comment.

The daemon changes its running mappings and its configuration, or the file that `eam_file` \
names. Other text in these files stays the same. A command is applied as a whole or not at \
all. It shows the same preview as `gatun config`.
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
    /// List the mappings of the running configuration
    List {
        /// Instance [default: all]
        #[arg(long, value_name = "NAME")]
        instance: Option<String>,
        /// Output format
        #[arg(long, short, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Add mappings
    Add {
        #[command(flatten)]
        maps: Maps,
        #[command(flatten)]
        options: ChangeOptions,
    },
    /// Remove mappings; their sessions end
    Remove {
        #[command(flatten)]
        maps: Maps,
        #[command(flatten)]
        options: ChangeOptions,
    },
    /// Replace all mappings of an instance
    Replace {
        /// File with the new mappings; `-` is standard input
        file: PathBuf,
        /// Instance, if several can have these mappings
        #[arg(long, value_name = "NAME")]
        instance: Option<String>,
        #[command(flatten)]
        options: ChangeOptions,
    },
}

/// Mappings to add or remove.
#[derive(Clone, Debug, clap::Args)]
struct Maps {
    /// Inside address and port; for an address mapping, the IPv6 address or prefix
    #[arg(required_unless_present = "file", requires = "outside")]
    inside: Option<String>,
    /// Public address and port; for an address mapping, the IPv4 address or prefix
    outside: Option<String>,
    /// Protocol of a static binding: tcp, udp or icmp; an address mapping has none
    #[arg(long, short, value_name = "PROTOCOL")]
    protocol: Option<Protocol>,
    /// File with mappings; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["inside", "outside", "protocol"])]
    file: Option<PathBuf>,
    /// Instance, if several can have these mappings
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
}

impl Maps {
    fn list(&self) -> anyhow::Result<Vec<StaticMap>> {
        match (&self.file, &self.inside, &self.outside) {
            (Some(file), ..) => read(file),
            (None, Some(inside), Some(outside)) => {
                let (inside, outside) = (inside.clone(), outside.clone());
                Ok(vec![StaticMap { instance: None, protocol: self.protocol, inside, outside }])
            }
            _ => bail!("no mapping given: pass an inside and a public address, or --file FILE"),
        }
    }
}

/// # Errors
/// Returns an error if the daemon does not answer or refuses the request.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::List { instance, output, daemon } => {
            let mut query = vec![("format", "ndjson".to_owned())];
            query.extend(instance.map(|name| ("instance", name)));
            let lines = daemon.client()?.open("GET", &with_query("/v1/maps", &query), &[])?;
            show::list::<StaticMap>(lines, output, usize::MAX)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Add { maps, options } => {
            let body = MapsEdit { add: Some(maps.list()?), remove: None };
            change(("PATCH", "Add them?"), &body, maps.instance, &options)
        }
        Command::Remove { maps, options } => {
            let body = MapsEdit { add: None, remove: Some(maps.list()?) };
            change(("PATCH", "Remove them?"), &body, maps.instance, &options)
        }
        Command::Replace { file, instance, options } => {
            let body = MapsTable { maps: read(&file)? };
            change(("PUT", "Replace them?"), &body, instance, &options)
        }
    }
}

/// Shows the preview, asks for confirmation, and changes the mappings.
fn change(
    (method, question): (&str, &str),
    body: &impl Serialize,
    instance: Option<String>,
    options: &ChangeOptions,
) -> anyhow::Result<ExitCode> {
    let client = options.daemon.client()?;
    let body = serde_json::to_vec(body)?;
    let instance: Vec<_> = instance.map(|name| ("instance", name)).into_iter().collect();
    let running: Config = client.get("/v1/config")?;
    let plan: ConfigPlan = client.ask(method, &with_query("/v1/maps/plan", &instance), &body)?;
    match preview_and_ask(&plan, &running, (&running.file, question), options)? {
        Decision::Yes => {}
        Decision::Nothing => return Ok(ExitCode::SUCCESS),
        Decision::No => return Ok(ExitCode::FAILURE),
    }
    let query: Vec<_> = query(&running.revision, options).into_iter().chain(instance).collect();
    let done: ConfigApplied = client.ask(method, &with_query("/v1/maps", &query), &body)?;
    tell(&done)
}

/// Reads the mappings of a file.
///
/// # Errors
/// Returns the first malformed line and its correction.
fn read(file: &Path) -> anyhow::Result<Vec<StaticMap>> {
    let (mut text, name) = (String::new(), file.display());
    let read = match file == Path::new("-") {
        true => std::io::stdin().read_to_string(&mut text),
        false => std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text)),
    };
    read.with_context(|| format!("cannot read {name}"))?;
    let lines = text.lines().enumerate().filter_map(|(n, line)| Some((n, read_line(line)?)));
    lines.map(|(n, map)| map.map_err(|why| anyhow!("{name}:{}: {why:#}", n + 1))).collect()
}

/// Mapping of a line; `None` for an empty line or a comment.
fn read_line(line: &str) -> Option<anyhow::Result<StaticMap>> {
    if line.trim_start().starts_with('{') {
        return Some(
            gatun_api::request::read(line.as_bytes())
                .map_err(|why| anyhow!("invalid JSON: {why}"))
                .and_then(checked),
        );
    }
    let fields: Vec<&str> = line.split('#').next().unwrap_or_default().split_ascii_whitespace().collect();
    let map = |protocol, inside: &str, outside: &str| StaticMap {
        instance: None,
        protocol,
        inside: inside.to_owned(),
        outside: outside.to_owned(),
    };
    Some(match fields[..] {
        [] => return None,
        [outside, inside] => checked(map(None, inside, outside)),
        [protocol, inside, outside] => match protocol.parse() {
            Ok(protocol) => checked(map(Some(protocol), inside, outside)),
            Err(why) => Err(anyhow!("{why}")),
        },
        _ => Err(anyhow!(
            "{} field{}: write `203.0.113.5 2001:db8::5`, or `tcp [2001:db8::5]:443 203.0.113.5:443`",
            fields.len(),
            if fields.len() == 1 { "" } else { "s" }
        )),
    })
}

fn checked(map: StaticMap) -> anyhow::Result<StaticMap> {
    gatun_config::check_mapping(&mapping(map.clone()))?;
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_form_are_parsed_and_malformed_ones_reported() {
        let file = std::env::temp_dir().join(format!("gatun-maps-{}", std::process::id()));
        let good = "# ours\n203.0.113.5 2001:db8::5 # one\n\nudp 100.64.0.1:5-6 192.0.2.1:7-8\n\
                    {\"instance\":\"n\",\"protocol\":\"tcp\",\"inside\":\"[2001:db8::1]:80\",\"outside\":\"192.0.2.1:80\"}\n";
        std::fs::write(&file, good).unwrap();
        let maps = read(&file).unwrap();
        let ends: Vec<_> = maps.iter().map(|map| (map.protocol, &map.inside[..], &map.outside[..])).collect();
        assert_eq!(
            ends,
            [
                (None, "2001:db8::5", "203.0.113.5"),
                (Some(Protocol::Udp), "100.64.0.1:5-6", "192.0.2.1:7-8"),
                (Some(Protocol::Tcp), "[2001:db8::1]:80", "192.0.2.1:80"),
            ]
        );
        for (line, why) in [
            ("203.0.113.5", "1 field: write"),
            ("a b c d", "4 fields: write"),
            ("2001:db8::5 203.0.113.5", "`inside`: \"203.0.113.5\" is not an IPv6 prefix: write"),
            ("sctp [2001:db8::1]:80 192.0.2.1:80", "not one of tcp, udp, icmp"),
            ("{\"inside\": 1}", "invalid JSON: "),
        ] {
            std::fs::write(&file, format!("{good}{line}\n")).unwrap();
            let refused = read(&file).unwrap_err().to_string();
            assert!(refused.contains(&format!("gatun-maps-{}:6: ", std::process::id())), "{refused}");
            assert!(refused.contains(why), "{refused}");
        }
        std::fs::remove_file(file).unwrap();
    }
}
