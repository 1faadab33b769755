//! Estimate of the daily log volume at the limits of a configuration.

use gatun_config::{Config, EventSink, Export, ExportFormat};
use gatun_daemon::tables::{counted, group};
use gatun_nat::plan::Allocation;
use gatun_nat::{EventKind, EventKinds};
use std::fmt::Write as _;

/// Connections per subscriber and day, as assumed by RFC 7422 1 for a household.
const CONNECTIONS_A_DAY: u64 = 33_000;
/// Port blocks that a subscriber gets and releases per day: one an hour.
const BLOCKS_A_DAY: u64 = 24;
/// Bytes of a compressed log record of a block and of a binding (measured by the example `measure_log`).
const RECORD_LEN: [u64; 2] = [10, 16];
/// Bytes of a JSON line or a syslog message.
const LINE_LEN: u64 = 240;
/// Bytes of an IPFIX session record of an IPv6 host, and of its remote end (`export/src/ipfix.rs`).
const IPFIX_LEN: [u64; 2] = [38, 6];
/// Bytes of the remote end in a line.
const REMOTE_LEN: u64 = 40;

/// Number of events per day, by kind.
struct Day {
    blocks: u64,
    bindings: u64,
    sessions: u64,
}

impl Day {
    /// Events of the maximum number of subscribers.
    fn of(config: &Config) -> Day {
        let plan = &config.plan;
        let subscribers = u64::from(plan.limits.subscribers_max);
        let pools: Vec<_> = plan.pools_of_instances().filter_map(|pool| plan.pools.get(pool)).collect();
        let has_blocks = pools.iter().any(|pool| matches!(pool.allocation, Allocation::Blocks(_)));
        Day {
            blocks: if has_blocks { subscribers * BLOCKS_A_DAY * 2 } else { 0 },
            bindings: subscribers * CONNECTIONS_A_DAY * 2,
            sessions: subscribers * CONNECTIONS_A_DAY * 2,
        }
    }

    /// Number of events of the given kinds, which may include beginnings, ends or both.
    fn events(&self, kinds: EventKinds) -> u64 {
        use EventKind::*;
        let half = |kind, count: u64| if kinds.has(kind) { count / 2 } else { 0 };
        half(BlockAssigned, self.blocks)
            + half(BlockReleased, self.blocks)
            + half(BindingCreated, self.bindings)
            + half(BindingDeleted, self.bindings)
            + half(SessionCreated, self.sessions)
            + half(SessionDeleted, self.sessions)
    }
}

/// Bytes per day in the log, as JSON lines and to each collector; `None` if a sink is not configured.
pub(crate) struct Volume {
    pub(crate) log: Option<u64>,
    pub(crate) json: Option<u64>,
    /// Bytes per day by collector, in the order of the configuration.
    pub(crate) exports: Vec<u64>,
}

/// Bytes of an exported event.
fn len_of(format: ExportFormat, destinations: bool) -> u64 {
    let [record, remote] = match format {
        ExportFormat::Ipfix => IPFIX_LEN,
        ExportFormat::Syslog | ExportFormat::Json => [LINE_LEN, REMOTE_LEN],
    };
    record + if destinations { remote } else { 0 }
}

impl Volume {
    pub(crate) fn of(config: &Config) -> Volume {
        let day = Day::of(config);
        let [block, binding] = RECORD_LEN;
        let in_log = |log: &gatun_config::Log| {
            day.blocks * block + if log.bindings { day.bindings * binding } else { 0 }
        };
        let is_stateful = config.plan.is_stateful();
        let to = |kinds, format, destinations| match is_stateful {
            true => day.events(kinds) * len_of(format, destinations),
            false => 0,
        };
        let to_collector = |export: &Export| to(export.kinds, export.format, export.destinations);
        Volume {
            log: config.log.as_ref().filter(|_| is_stateful).map(in_log),
            json: config
                .events
                .as_ref()
                .filter(|_| is_stateful)
                .map(|_| to(config.json_kinds, ExportFormat::Json, config.json_destinations)),
            exports: config.exports.iter().map(to_collector).collect(),
        }
    }

    /// Summary with its assumptions.
    pub(crate) fn summary(&self, config: &Config) -> String {
        let mut out = String::new();
        let mut line = |what: &str, bytes: u64, place: &str| {
            // Writing to a String does not fail.
            let _ = writeln!(out, "  {what} {} GB per day, {place}", gigabytes(bytes));
        };
        if let (Some(bytes), Some(log)) = (self.log, &config.log) {
            line("log    ", bytes, &format!("in {}", log.directory.display()));
        }
        if let (Some(bytes), Some(sink)) = (self.json, &config.events) {
            let place = match sink {
                EventSink::Stdout => "standard output".to_owned(),
                EventSink::File(file) => file.display().to_string(),
            };
            line("events ", bytes, &format!("as JSON lines to {place}"));
        }
        for (bytes, export) in self.exports.iter().zip(&config.exports) {
            let Export { name, target, .. } = export;
            let format = match export.format {
                ExportFormat::Ipfix => "IPFIX",
                ExportFormat::Syslog => "syslog",
                ExportFormat::Json => "JSON lines",
            };
            line("export ", *bytes, &format!("as {format} to {name} ({target})"));
        }
        if !out.is_empty() {
            let subscribers = counted(config.plan.limits.subscribers_max.into(), "subscriber");
            let _ = writeln!(
                out,
                "          for {subscribers} (subscribers_max), each with {} connections (RFC 7422 1)",
                group(CONNECTIONS_A_DAY)
            );
            let _ = writeln!(
                out,
                "          and {BLOCKS_A_DAY} port blocks per day, if ports are allocated in blocks"
            );
        }
        out
    }
}

/// Formats gigabytes, with two decimals below ten.
fn gigabytes(bytes: u64) -> String {
    let gb = bytes as f64 / 1e9;
    match gb {
        gb if gb >= 10.0 => group(gb.round() as u64),
        gb => format!("{gb:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[[pool]]\nprefixes = \"192.0.2.0/28\"\nALLOCATION\n[[nat64]]\npool6 = \"64:ff9b::/96\"\n\
                        [limits]\nsubscribers_max = 100000\n[log]\n[events]\nfile = \"stdout\"\n";

    fn volume(allocation: &str) -> (Volume, String) {
        let text = FILE.replace("ALLOCATION", allocation);
        let (config, _) = gatun_config::load_str(&text, "x").unwrap();
        let volume = Volume::of(&config);
        let summary = volume.summary(&config);
        (volume, summary)
    }

    #[test]
    fn every_sink_has_an_estimate_for_its_events_and_format() {
        let collectors = "[[export]]\nname = \"flows\"\nto = \"udp:192.0.2.9:4739\"\ndestinations = true\n\
                          kinds = [\"session_created\", \"session_deleted\"]\n[[export]]\nname = \"siem\"\n\
                          to = \"tcp:192.0.2.9:6514\"\nformat = \"syslog\"\nkinds = [\"session_created\"]\n\
                          [[export]]\nname = \"quiet\"\nto = \"tcp:192.0.2.9:6515\"\nkinds = [\"quota_hit\"]\n";
        let text = FILE.replace("ALLOCATION", "allocation = \"blocks\"") + collectors;
        let (config, _) = gatun_config::load_str(&text, "x").unwrap();
        let volume = Volume::of(&config);
        let sessions = 100_000 * CONNECTIONS_A_DAY;
        assert_eq!(volume.exports, [sessions * 2 * 44, sessions * 240, 0]);
        let said = volume.summary(&config);
        for line in [
            "  events  1.15 GB per day, as JSON lines to standard output\n",
            "  export  290 GB per day, as IPFIX to flows (udp:192.0.2.9:4739)\n",
            "  export  792 GB per day, as syslog to siem (tcp:192.0.2.9:6514)\n",
            "  export  0.00 GB per day, as IPFIX to quiet (tcp:192.0.2.9:6515)\n",
        ] {
            assert!(said.contains(line), "{said}");
        }
        let stateless = "[[siit]]\npool6 = \"2001:db8::/96\"\n".to_owned() + collectors;
        let (config, _) = gatun_config::load_str(&stateless, "x").unwrap();
        assert_eq!(Volume::of(&config).exports, [0; 3]);
    }

    #[test]
    fn the_summary_states_volumes_and_assumptions() {
        let (blocks, summary) = volume("allocation = \"blocks\"");
        assert_eq!((blocks.log, blocks.json), (Some(48_000_000), Some(1_152_000_000)));
        assert!(summary.contains("0.05 GB per day, in /var/lib/gatun/log"), "{summary}");
        assert!(summary.contains("100,000 subscribers (subscribers_max), each with 33,000"), "{summary}");
        let (bindings, summary) = volume("");
        assert_eq!(bindings.log, Some(105_600_000_000));
        assert!(summary.contains("106 GB per day"), "{summary}");
    }
}
