//! Marks, the entries beside records: starts and stops of the daemon, configurations, and losses.

use crate::hash::Hash;
use crate::plan::PlanInForce;
use serde::{Deserialize, Serialize};

/// Mark. Times are milliseconds since 1970 (UTC).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mark", rename_all = "snake_case")]
pub enum Mark {
    /// Start of a daemon.
    Start {
        /// Time.
        at_ms: u64,
        /// Version of the daemon.
        version: String,
        /// True if the daemon restores sessions of its predecessor and writes a record for each restored
        /// block or binding ([`RecordKind::goes_on`](crate::RecordKind::goes_on)). Everything else that was
        /// open has ended.
        keeps_state: bool,
    },
    /// Stop of a daemon, and of all its state.
    Stop {
        /// Time.
        at_ms: u64,
    },
    /// Sign of life; only the last one is kept.
    Alive {
        /// Time.
        at_ms: u64,
    },
    /// New configuration.
    Config {
        /// Time.
        at_ms: u64,
        /// SHA-256 of its text.
        hash: Hash,
        /// The part that determines holders of ports.
        plan: Box<PlanInForce>,
    },
    /// Loss of events before they could be written.
    Lost {
        /// Time of detection.
        at_ms: u64,
        /// Number of events.
        events: u64,
    },
    /// Change of the system clock while the daemon ran.
    ClockSet {
        /// Time by the new clock.
        at_ms: u64,
        /// Difference in milliseconds.
        by_ms: i64,
    },
    /// Removal of an unfinished write, never acknowledged, from the end of the last file.
    Cut {
        /// Time.
        at_ms: u64,
        /// Bytes.
        bytes: u64,
    },
    /// Damaged or missing file found at start. It remains a fault of the log permanently.
    Damaged {
        /// Time.
        at_ms: u64,
        /// Name under which the file is kept.
        file: String,
        /// The damage.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        what: String,
    },
    /// Last write before this start without a receipt: the process was killed between the two, or the write
    /// was added.
    NoReceipt {
        /// Time of detection.
        at_ms: u64,
    },
    /// Question over the API about the past holder of a port.
    Asked {
        /// Time.
        at_ms: u64,
        /// Name of the token, or user of the Unix socket.
        by: String,
        /// Address, port and time of the question.
        question: String,
        /// `who`, `nobody` or `unknown`.
        outcome: String,
    },
    /// Removal of old segments by the retention setting.
    Retired {
        /// Time.
        at_ms: u64,
        /// Number of the first segment kept.
        first: u64,
        /// Hash of the last segment removed.
        last_hash: Hash,
        /// Hash of the file with holdings that were open at its end.
        carried_hash: Hash,
    },
}

impl Mark {
    /// Time of the mark.
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

/// Encodes marks as compressed JSON.
pub(crate) fn encode(marks: &[Mark]) -> Vec<u8> {
    if marks.is_empty() {
        return Vec::new();
    }
    // Serialization cannot fail: every key is a text.
    let json = serde_json::to_vec(marks).unwrap_or_default();
    lz4_flex::block::compress_prepend_size(&json)
}

/// Largest uncompressed marks, in bytes: a configuration with several hundred thousand static bindings.
const JSON_LEN_MAX: usize = 64 << 20;

/// Decodes marks; `None` for bytes that [`encode`] does not write.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Mark>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let (len, _) = bytes.split_first_chunk::<4>()?;
    let len = u32::from_le_bytes(*len) as usize;
    // LZ4 expands its input at most 255 times.
    if len > JSON_LEN_MAX || len / 256 > bytes.len() {
        return None;
    }
    let json = lz4_flex::block::decompress_size_prepended(bytes).ok()?;
    serde_json::from_slice(&json).ok()
}
