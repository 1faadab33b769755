//! What the log keeps beside records: when the daemon ran and by which configuration, and what is missing.

use crate::hash::Hash;
use crate::plan::PlanInForce;
use serde::{Deserialize, Serialize};

/// A mark; all times are milliseconds since 1970 (UTC).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mark", rename_all = "snake_case")]
pub enum Mark {
    /// A daemon began.
    Start {
        /// When.
        at_ms: u64,
        /// Its version.
        version: String,
        /// Whether it has sessions of the one before it, and tells as it finds them what of it goes on
        /// ([`RecordKind::goes_on`](crate::RecordKind::goes_on)); all else that was open has ended.
        keeps_state: bool,
    },
    /// A daemon ended, and all its state with it.
    Stop {
        /// When.
        at_ms: u64,
    },
    /// The daemon runs; only the last of these is kept.
    Alive {
        /// When.
        at_ms: u64,
    },
    /// From now on another configuration holds.
    Config {
        /// When.
        at_ms: u64,
        /// SHA-256 of its text.
        hash: Hash,
        /// What of it says who has a port.
        plan: Box<PlanInForce>,
    },
    /// Events were lost before they could be written.
    Lost {
        /// When that was noticed.
        at_ms: u64,
        /// How many.
        events: u64,
    },
    /// The system's clock was set while the daemon ran.
    ClockSet {
        /// When, by the new time.
        at_ms: u64,
        /// By how much, milliseconds.
        by_ms: i64,
    },
    /// The end of the last file was a write that had not been finished, and was cut: nothing of it had been acknowledged.
    Cut {
        /// When.
        at_ms: u64,
        /// Bytes.
        bytes: u64,
    },
    /// A file was found damaged or missing as the daemon began. This stays a fault of the log for ever.
    Damaged {
        /// When.
        at_ms: u64,
        /// The file, by the name under which it is kept.
        file: String,
        /// The damage.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        what: String,
    },
    /// The last write before this start had no receipt: the process was killed between the two, or somebody added it.
    NoReceipt {
        /// When that was found.
        at_ms: u64,
    },
    /// Somebody asked over the API who had a port at a time.
    Asked {
        /// When.
        at_ms: u64,
        /// The name of the token, or the user of the Unix socket.
        by: String,
        /// The address and port, and the time.
        question: String,
        /// `who`, `nobody` or `unknown`.
        outcome: String,
    },
    /// Old segments were taken away, as the retention setting says.
    Retired {
        /// When.
        at_ms: u64,
        /// The number of the first segment that is kept.
        first: u64,
        /// The hash of the last segment that was taken away.
        last_hash: Hash,
        /// The hash of the file with what was still open at the end of it.
        carried_hash: Hash,
    },
}

impl Mark {
    /// When.
    pub fn at_ms(&self) -> u64 {
        match self {
            Mark::Start { at_ms, .. }
            | Mark::Stop { at_ms }
            | Mark::Alive { at_ms }
            | Mark::Config { at_ms, .. }
            | Mark::Lost { at_ms, .. }
            | Mark::ClockSet { at_ms, .. }
            | Mark::Cut { at_ms, .. }
            | Mark::Damaged { at_ms, .. }
            | Mark::NoReceipt { at_ms, .. }
            | Mark::Asked { at_ms, .. }
            | Mark::Retired { at_ms, .. } => *at_ms,
        }
    }
}

/// JSON of marks, compressed.
pub(crate) fn encode(marks: &[Mark]) -> Vec<u8> {
    if marks.is_empty() {
        return Vec::new();
    }
    // Cannot fail: every key is a text.
    let json = serde_json::to_vec(marks).unwrap_or_default();
    lz4_flex::block::compress_prepend_size(&json)
}

/// Bytes of marks that are not compressed, at most: a configuration of some hundred thousand static bindings.
const JSON_LEN_MAX: usize = 64 << 20;

/// `None` where the bytes are not what [`encode`] writes.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Mark>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let (len, _) = bytes.split_first_chunk::<4>()?;
    let len = u32::from_le_bytes(*len) as usize;
    // LZ4 makes at most 255 times as much of its input.
    if len > JSON_LEN_MAX || len / 256 > bytes.len() {
        return None;
    }
    let json = lz4_flex::block::decompress_size_prepended(bytes).ok()?;
    serde_json::from_slice(&json).ok()
}
