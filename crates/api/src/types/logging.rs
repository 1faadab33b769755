//! Collectors of events, and the log on disk.

use crate::schema::structs;

structs! {
    /// A collector and its counters.
    pub struct Export {
        /// Name of the collector.
        pub name: String,
        /// True if the collector accepted the last message.
        pub connected: bool,
        /// Events given to the transport.
        pub sent: u64,
        /// Events lost: the queue or the spool was full.
        pub lost: u64,
        /// Events that wait in memory.
        pub waiting: u64,
        /// Bytes that wait in its spool on disk.
        pub spooled_bytes: u64,
    }

    /// The log of public port holders.
    pub struct LogStore {
        /// True if a log is kept; if not, all other values are zero.
        pub kept: bool,
        /// True if the last attempt to write it succeeded.
        pub writable: bool,
        /// Error of the last attempt to write it; none if that succeeded.
        pub error: Option<String>,
        /// Records on disk.
        pub records: u64,
        /// Bytes of the log's files.
        pub bytes: u64,
        /// Records that wait to be written.
        pub waiting: u64,
        /// Events lost before they could be written.
        pub lost: u64,
    }
}
