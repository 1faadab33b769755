//! The running configuration, a proposed one, and its effects.

use super::Protocol;
use crate::schema::{structs, words};

words! {
    /// Severity of a problem.
    pub enum Severity {
        /// The configuration is accepted.
        Warning = "warning",
        /// The configuration is refused.
        Error = "error",
    }
}

words! {
    /// Log level of the daemon's standard error.
    pub enum LogLevel {
        /// Failures only.
        Error = "error",
        /// Also changes: configuration, links, cleared sessions.
        Info = "info",
        /// Also requests to the API and durations of reload steps.
        Debug = "debug",
    }
}

structs! {
    /// The running configuration or an earlier one.
    #[derive(Default)]
    pub struct Config {
        /// Path of the file.
        pub file: String,
        /// Revision: SHA-256 of the text and of the mapping files that it names.
        pub revision: String,
        /// Text; empty if it is longer than 40 MiB.
        pub text: String,
        /// Pending automatic rollback, if any.
        pub unconfirmed: Option<Unconfirmed>,
    }

    /// A running configuration that is not in the file yet.
    pub struct Unconfirmed {
        /// Seconds left to confirm it.
        pub seconds_left: u64,
        /// Revision that returns after that time, and after a restart.
        pub before: String,
    }

    /// A proposed configuration.
    pub struct ConfigText {
        /// Whole new text of the file.
        pub text: String,
    }

    /// An error in a configuration, or a warning.
    pub struct ConfigProblem {
        /// An error, with which the configuration is refused, or a warning.
        pub severity: Severity,
        /// Path of the file with the problem: the configuration, or a mapping file that it names.
        pub file: String,
        /// Line, from 1.
        pub line: u64,
        /// Column in characters, from 1.
        pub column: u64,
        /// The problem in a sentence.
        pub message: String,
        /// Text to write instead, if there is a suggestion.
        pub help: Option<String>,
    }

    /// A figure of the running and of the proposed configuration.
    pub struct Figure {
        /// Value with the running configuration.
        pub before: u64,
        /// Value with the proposed configuration.
        pub after: u64,
    }

    /// Preview of a configuration.
    pub struct ConfigPlan {
        /// Revision; empty if the configuration is invalid.
        pub revision: String,
        /// Running revision, with which it was compared.
        pub running: String,
        /// True if it can be applied: there is no error, and nothing needs a restart.
        pub applicable: bool,
        /// Errors and warnings.
        pub problems: Vec<ConfigProblem>,
        /// Differences from the running configuration, one per line.
        pub changes: Vec<String>,
        /// Sessions and bindings that end, and subscribers that move.
        pub ends: Vec<String>,
        /// Sessions that would end at this moment; none if the configuration cannot be applied or the workers
        /// have not counted them within three seconds.
        pub sessions: Option<u64>,
        /// Subscribers of these sessions; none under the same conditions.
        pub subscribers: Option<u64>,
        /// Changes that need a restart. If there are any, the configuration cannot be applied.
        pub restarts: Vec<String>,
        /// Bytes of all full tables, of all workers together.
        pub memory_bytes: Figure,
        /// Bytes per day of the log, at the limits of subscribers; 0 without a log.
        pub log_bytes_a_day: Figure,
        /// Bytes per day of events as JSON lines; 0 if none are written.
        pub events_bytes_a_day: Figure,
    }

    /// Result of applying a configuration.
    pub struct ConfigApplied {
        /// The changed file: the configuration, or a mapping file that it names.
        pub file: String,
        /// Revision that runs now.
        pub revision: String,
        /// Revision that ran before.
        pub before: String,
        /// Sessions ended by the change.
        pub sessions: u64,
        /// Bindings ended by the change.
        pub bindings: u64,
        /// Port blocks freed by the change.
        pub blocks: u64,
        /// Seconds left to confirm it; none if no confirmation is needed. Until it is confirmed, the file
        /// contains the previous configuration.
        pub confirm_within_seconds: Option<u64>,
        /// Notes for the operator.
        pub notes: Vec<String>,
    }

    /// A mapping of the configuration: a static binding, or an explicit address mapping.
    pub struct StaticMap {
        /// Its instance; default: the only one that can have it.
        pub instance: Option<String>,
        /// Protocol of a binding; none for an address mapping.
        pub protocol: Option<Protocol>,
        /// Inside address and port; for an address mapping, the IPv6 prefix.
        pub inside: String,
        /// Public address and port; for an address mapping, the IPv4 prefix.
        pub outside: String,
    }

    /// Table of an instance: all of its mappings.
    pub struct MapsTable {
        /// Mappings of the table.
        pub maps: Vec<StaticMap>,
    }

    /// Mappings to add to the table of an instance and to remove from it: all or none.
    pub struct MapsEdit {
        /// Mappings to add; none of them may exist.
        pub add: Option<Vec<StaticMap>>,
        /// Mappings to remove; each of them must exist.
        pub remove: Option<Vec<StaticMap>>,
    }

    /// Log level.
    pub struct LogLevelSetting {
        /// Highest level that is logged.
        pub level: LogLevel,
    }

    /// An earlier configuration.
    pub struct ConfigPast {
        /// Revision, for `/v1/config` and `/v1/config/rollback`.
        pub revision: String,
        /// Time when it was replaced, RFC 3339.
        pub replaced_at: String,
        /// Client that replaced it.
        pub replaced_by: String,
        /// Length of its text in bytes.
        pub bytes: u64,
    }
}
