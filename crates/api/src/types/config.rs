//! The configuration that runs, another one, and what would become of it.

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
        /// Errors.
        Error = "error",
        /// And what has changed.
        Info = "info",
        /// And each request to the API, and how long the steps of a change take.
        Debug = "debug",
    }
}

structs! {
    /// The configuration that runs, or one that ran before.
    #[derive(Default)]
    pub struct Config {
        /// The file that it was read from.
        pub file: String,
        /// Its revision: the SHA-256 of its text, and of the files of mappings that it names.
        pub revision: String,
        /// Text that was read; empty if it is longer than 40 MiB.
        pub text: String,
        /// Pending automatic rollback, if any.
        pub unconfirmed: Option<Unconfirmed>,
    }

    /// A configuration that runs, but is not in the file yet.
    pub struct Unconfirmed {
        /// Seconds that are left to confirm it.
        pub seconds_left: u64,
        /// The revision that comes back then, and after a restart.
        pub before: String,
    }

    /// A configuration that is proposed.
    pub struct ConfigText {
        /// Whole new text of the file.
        pub text: String,
    }

    /// Something that is wrong with a configuration, or doubtful.
    pub struct ConfigProblem {
        /// Severity.
        pub severity: Severity,
        /// In which file.
        pub file: String,
        /// In which line, from 1.
        pub line: u64,
        /// At which character of it, from 1.
        pub column: u64,
        /// Error or warning.
        pub message: String,
        /// Correction.
        pub help: Option<String>,
    }

    /// A figure of the configuration that runs, and of the other one.
    pub struct Figure {
        /// Now.
        pub before: u64,
        /// Then.
        pub after: u64,
    }

    /// Preview of a configuration.
    pub struct ConfigPlan {
        /// Its revision; empty where it is wrong.
        pub revision: String,
        /// The revision that runs, and that it was compared with.
        pub running: String,
        /// Whether it can be applied: there is no error, and nothing needs a restart.
        pub applicable: bool,
        /// Errors and warnings.
        pub problems: Vec<ConfigProblem>,
        /// Changes.
        pub changes: Vec<String>,
        /// Sessions and bindings that end, and subscribers that move.
        pub ends: Vec<String>,
        /// Sessions that would end by it at this moment; none where it cannot be applied, or the workers have not
        /// counted them within three seconds.
        pub sessions: Option<u64>,
        /// Subscribers whose sessions these are; none as above.
        pub subscribers: Option<u64>,
        /// Changes that need a restart. If there are any, the configuration cannot be applied.
        pub restarts: Vec<String>,
        /// Bytes that all tables take when they are full, all workers together.
        pub memory_bytes: Figure,
        /// Bytes a day of the log, at the limits of subscribers; 0 where none is kept.
        pub log_bytes_a_day: Figure,
        /// Bytes a day of events as JSON lines; 0 where none are written.
        pub events_bytes_a_day: Figure,
    }

    /// A configuration that was put in place.
    pub struct ConfigApplied {
        /// The file that has the change: the configuration, or a file of mappings that it names.
        pub file: String,
        /// Its revision: the one that runs.
        pub revision: String,
        /// The one that ran before.
        pub before: String,
        /// Sessions that have ended by it.
        pub sessions: u64,
        /// Bindings that have ended by it.
        pub bindings: u64,
        /// Port blocks that have been taken back by it.
        pub blocks: u64,
        /// Seconds that are left to confirm it, where it waits for that; the file is the old one until then.
        pub confirm_within_seconds: Option<u64>,
        /// Notes for the operator.
        pub notes: Vec<String>,
    }

    /// A mapping of the configuration: a static binding, or an explicit address mapping.
    pub struct StaticMap {
        /// The instance that it is of; the only one that can have it where nothing is said.
        pub instance: Option<String>,
        /// Protocol of a binding; none of an address mapping.
        pub protocol: Option<Protocol>,
        /// Inside address and port; of an address mapping the IPv6 prefix.
        pub inside: String,
        /// Public address and port; of an address mapping the IPv4 prefix.
        pub outside: String,
    }

    /// Table of an instance: all of its mappings.
    pub struct MapsTable {
        /// Mappings of the table.
        pub maps: Vec<StaticMap>,
    }

    /// Mappings to add to the table of an instance and to remove from it: all of them or none.
    pub struct MapsEdit {
        /// Mappings to add; none of them may be there.
        pub add: Option<Vec<StaticMap>>,
        /// Mappings to remove; each of them must be there.
        pub remove: Option<Vec<StaticMap>>,
    }

    /// Log level.
    pub struct Logged {
        /// Up to which level.
        pub level: LogLevel,
    }

    /// A configuration that ran before.
    pub struct ConfigPast {
        /// Its revision.
        pub revision: String,
        /// When another one took its place, by RFC 3339.
        pub replaced_at: String,
        /// By whom.
        pub replaced_by: String,
        /// Its length in bytes.
        pub bytes: u64,
    }
}
