//! Health of the daemon, and announced routes.

use super::running::Part;
use crate::schema::{structs, words};

words! {
    /// State of the announced routes.
    pub enum AnnounceState {
        /// Not configured.
        Off = "off",
        /// Gatun is healthy, and the routes are set.
        Announced = "announced",
        /// Gatun is not healthy, or has been for a short time only: the routes are withdrawn.
        Withdrawn = "withdrawn",
    }

    /// Role of this box for networks.
    pub enum AnnounceRole {
        /// It owns them.
        Own = "own",
        /// The other box of the pair owns them.
        Backup = "backup",
    }
}

// `words!` defines the enum, without this trait.
#[allow(clippy::derivable_impls)]
impl Default for AnnounceState {
    fn default() -> Self {
        AnnounceState::Off
    }
}

structs! {
    /// Something that is not as it should be.
    pub struct HealthReason {
        /// Part of the daemon.
        pub part: Part,
        /// Description in a sentence.
        pub what: String,
        /// True if the daemon is not healthy because of it, and routes are withdrawn.
        pub withdraws: bool,
    }

    /// Table of announced routes.
    pub struct AnnouncedTable {
        /// Number of the table.
        pub table: u32,
        /// Role for its networks.
        pub role: AnnounceRole,
        /// Routes in it.
        pub routes: u64,
    }

    /// Health of the daemon, and announced routes.
    #[derive(Default)]
    pub struct Health {
        /// True if the daemon translates packets of all its ports.
        pub healthy: bool,
        /// Reasons why it is not, and exhausted pools, which alone do not make it unhealthy.
        pub reasons: Vec<HealthReason>,
        /// State of the announced routes.
        pub announce: AnnounceState,
        /// Milliseconds until withdrawn routes come back, if nothing happens until then.
        pub returns_in_ms: Option<u64>,
        /// Tables of announced routes.
        pub tables: Vec<AnnouncedTable>,
        /// Error of the last change of routes.
        pub error: Option<String>,
    }
}
