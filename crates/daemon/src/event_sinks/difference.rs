//! Differences between the event sinks of two configurations, as text.

use crate::Settings;
use gatun_config::{Bytes, Config, EventSink, Export, ExportFormat, Log};
use gatun_nat::EventKinds;

/// Settings of event sinks.
pub struct SinkSettings<'c> {
    events: Option<&'c EventSink>,
    /// Kinds of JSON events, and true to include remote ends.
    lines: (EventKinds, bool),
    exports: &'c [Export],
    log: Option<&'c Log>,
}

/// Differences between two configurations.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// A line for each change that a reload makes.
    pub changes: Vec<String>,
    /// A line for each change that only a restart makes.
    pub restarts: Vec<String>,
}

impl<'c> From<&'c Settings> for SinkSettings<'c> {
    fn from(of: &'c Settings) -> Self {
        let lines = (of.json_kinds, of.json_destinations);
        SinkSettings { events: of.events.as_ref(), lines, exports: &of.exports, log: of.log.as_ref() }
    }
}

impl<'c> From<&'c Config> for SinkSettings<'c> {
    fn from(of: &'c Config) -> Self {
        let lines = (of.json_kinds, of.json_destinations);
        SinkSettings { events: of.events.as_ref(), lines, exports: &of.exports, log: of.log.as_ref() }
    }
}

/// Effect of a reload on a collector.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CollectorChange {
    /// It keeps running, possibly with other kinds of events or another queue length.
    Continues,
    /// It starts, and replaces a collector of the same name.
    Starts,
}

/// Effect of a reload on the collector `new`.
pub(super) fn fate(old: &[Export], new: &Export) -> CollectorChange {
    match old.iter().find(|old| old.name == new.name) {
        Some(old) if anew(old, new).is_empty() => CollectorChange::Continues,
        _ => CollectorChange::Starts,
    }
}

/// Differing settings that need a new connection.
fn anew(old: &Export, new: &Export) -> Vec<String> {
    // Kinds and queue length apply before an event is passed to the collector.
    let Export { name: _, target, format, kinds: _, destinations, domain, templates_ms, queue_max: _, spool } =
        new;
    let mut what = Vec::new();
    if old.target != *target {
        what.push(format!("to {} -> {target}", old.target));
    }
    let others = [
        (old.format != *format, "format"),
        (old.destinations != *destinations, "destinations"),
        (old.domain != *domain, "domain"),
        (old.templates_ms != *templates_ms, "templates"),
        (old.spool != *spool, "spool"),
    ];
    what.extend(others.iter().filter(|(differs, _)| *differs).map(|(_, name)| (*name).to_owned()));
    what
}

impl SinkSettings<'_> {
    /// Lists the differences.
    pub fn changes_to(&self, other: &SinkSettings<'_>) -> Changes {
        let mut changes = Vec::new();
        match (self.events, other.events) {
            (Some(old), Some(new)) if old == new => {
                if self.lines.0 != other.lines.0 {
                    changes.push("[events]: kinds".to_owned());
                }
                if self.lines.1 != other.lines.1 {
                    changes.push("[events]: destinations".to_owned());
                }
            }
            (None, Some(new)) => changes.push(format!("[events]: written to {}", place(new))),
            (Some(old), None) => changes.push(format!("[events]: no longer written to {}", place(old))),
            (Some(old), Some(new)) => {
                changes.push(format!("[events]: written to {} instead of {}", place(new), place(old)));
            }
            (None, None) => {}
        }
        let gone = |old: &&Export| other.exports.iter().all(|new| new.name != old.name);
        changes.extend(self.exports.iter().filter(gone).map(goes));
        changes.extend(other.exports.iter().filter_map(|new| comes(self.exports, new)));
        let mut restarts = Vec::new();
        match (self.log, other.log) {
            (Some(old), Some(new)) if old.directory == new.directory => changes.extend(kept(old, new)),
            (None, None) => {}
            _ => restarts.push(
                "[log]: on, off or its directory: only a start can write the existing assignments to a new log"
                    .to_owned(),
            ),
        }
        Changes { changes, restarts }
    }
}

fn place(events: &EventSink) -> String {
    match events {
        EventSink::Stdout => "standard output".to_owned(),
        EventSink::File(path) => path.display().to_string(),
    }
}

fn goes(old: &Export) -> String {
    let spool = match &old.spool {
        Some((directory, _)) => {
            format!("; unsent events stay in its spool in {}", directory.display())
        }
        None => String::new(),
    };
    format!("[[export]] {}: {} is removed; it still gets waiting events{spool}", old.name, old.target)
}

fn comes(all: &[Export], new: &Export) -> Option<String> {
    let templates = match new.format {
        ExportFormat::Ipfix => ", which begins with templates",
        _ => "",
    };
    let Some(old) = all.iter().find(|old| old.name == new.name) else {
        return Some(format!("[[export]] {}: {} is a new collector", new.name, new.target));
    };
    let what = anew(old, new);
    if !what.is_empty() {
        let what = what.join(", ");
        return Some(format!(
            "[[export]] {}: {what}: a new connection{templates}; the old one sends its waiting events",
            new.name
        ));
    }
    let told = [(old.kinds != new.kinds, "kinds"), (old.queue_max != new.queue_max, "queue")];
    let told: Vec<&str> = told.iter().filter(|(differs, _)| *differs).map(|(_, name)| *name).collect();
    (!told.is_empty()).then(|| format!("[[export]] {}: {}: its connection stays", new.name, told.join(", ")))
}

/// Lists changes of the log's settings.
fn kept(old: &Log, new: &Log) -> Vec<String> {
    let for_ever = |ms: Option<u64>| ms.map_or_else(|| "unlimited".to_owned(), duration);
    let all = |size: Option<u64>| size.map_or_else(|| "unlimited".to_owned(), |n| Bytes(n).to_string());
    let less = |old: Option<u64>, new: Option<u64>| new.is_some_and(|new| old.is_none_or(|old| new < old));
    let mut changes = Vec::new();
    if old.bindings != new.bindings {
        let what = if new.bindings { "" } else { "no longer " };
        changes.push(format!("[log]: bindings are {what}logged"));
    }
    if old.retention_ms != new.retention_ms {
        let what = if less(old.retention_ms, new.retention_ms) { ": older records are deleted" } else { "" };
        changes.push(format!(
            "[log]: retention {} -> {}{what}",
            for_ever(old.retention_ms),
            for_ever(new.retention_ms)
        ));
    }
    if old.size_max != new.size_max {
        let what =
            if less(old.size_max, new.size_max) { ": the oldest records above that are deleted" } else { "" };
        changes.push(format!("[log]: size_max {} -> {}{what}", all(old.size_max), all(new.size_max)));
    }
    changes
}

/// Formats a duration as in the configuration.
fn duration(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let whole = units.iter().find(|(unit, _)| ms.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{ms}ms"), |(unit, name)| format!("{}{name}", ms / unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_config::ExportTarget;

    fn export(name: &str) -> Export {
        Export {
            name: name.to_owned(),
            target: ExportTarget::Udp("192.0.2.10:4739".parse().unwrap()),
            format: ExportFormat::Ipfix,
            kinds: EventKinds::FEW,
            destinations: false,
            domain: 1,
            templates_ms: 300_000,
            queue_max: 65_536,
            spool: None,
        }
    }

    fn log(directory: &str, days: Option<u64>) -> Log {
        let retention_ms = days.map(|days| days * 86_400_000);
        Log { directory: directory.into(), retention_ms, size_max: None, bindings: false }
    }

    fn of<'c>(
        events: Option<&'c EventSink>,
        exports: &'c [Export],
        log: Option<&'c Log>,
    ) -> SinkSettings<'c> {
        SinkSettings { events, lines: (EventKinds::FEW, false), exports, log }
    }

    #[test]
    fn only_added_removed_and_changed_collectors_are_listed() {
        let old = [export("a"), export("b"), export("c"), export("d")];
        let mut new = [export("e"), export("d"), export("b"), export("c")];
        new[2].kinds = EventKinds::NONE;
        new[3].target = ExportTarget::Unix("/dev/log".into());
        (new[3].format, new[3].domain) = (ExportFormat::Syslog, 2);
        let Changes { changes, restarts } = of(None, &old, None).changes_to(&of(None, &new, None));
        assert_eq!(restarts, [""; 0]);
        assert_eq!(
            changes,
            [
                "[[export]] a: udp:192.0.2.10:4739 is removed; it still gets waiting events",
                "[[export]] e: udp:192.0.2.10:4739 is a new collector",
                "[[export]] b: kinds: its connection stays",
                "[[export]] c: to udp:192.0.2.10:4739 -> unix:/dev/log, format, domain: a new connection; the old one \
                 sends its waiting events",
            ]
        );
        let fates = new.each_ref().map(|new| fate(&old, new));
        assert_eq!(
            fates,
            [
                CollectorChange::Starts,
                CollectorChange::Continues,
                CollectorChange::Continues,
                CollectorChange::Starts
            ]
        );
    }

    #[test]
    fn a_reload_changes_the_event_file_and_retention_but_not_the_log_directory() {
        let (stdout, file) = (EventSink::Stdout, EventSink::File("/run/events".into()));
        let told = |old: &SinkSettings<'_>, new: &SinkSettings<'_>| old.changes_to(new);
        let changes = |old, new| told(&of(old, &[], None), &of(new, &[], None)).changes;
        assert_eq!(changes(Some(&stdout), Some(&stdout)), [""; 0]);
        assert_eq!(changes(None, Some(&stdout)), ["[events]: written to standard output"]);
        assert_eq!(
            changes(Some(&stdout), Some(&file)),
            ["[events]: written to /run/events instead of standard output"]
        );
        assert_eq!(changes(Some(&file), None), ["[events]: no longer written to /run/events"]);
        let other = SinkSettings { lines: (EventKinds::NONE, true), ..of(Some(&file), &[], None) };
        let kinds = told(&of(Some(&file), &[], None), &other).changes;
        assert_eq!(kinds, ["[events]: kinds", "[events]: destinations"]);
        let [half, year, ever] = [Some(180), Some(365), None].map(|days| log("/log", days));
        let changes = |old, new| told(&of(None, &[], Some(old)), &of(None, &[], Some(new)));
        assert_eq!(changes(&half, &year).changes, ["[log]: retention 180d -> 365d"]);
        assert_eq!(
            changes(&ever, &half).changes,
            ["[log]: retention unlimited -> 180d: older records are deleted"]
        );
        let bounded = Log { size_max: Some(5 << 30), ..half.clone() };
        assert_eq!(
            changes(&half, &bounded).changes,
            ["[log]: size_max unlimited -> 5.0 GiB: the oldest records above that are deleted"]
        );
        assert_eq!(changes(&half, &log("/other", Some(180))).restarts.len(), 1);
        assert_eq!(told(&of(None, &[], None), &of(None, &[], Some(&half))).restarts.len(), 1);
    }
}
