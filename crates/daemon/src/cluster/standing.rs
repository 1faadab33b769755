//! State of the node that outlives the process, beside its sessions: valid only together with them.

use crate::peer::StoredRange;
use crate::state::{Directory, NamedFile};
use gatun_cluster::node::{SavedNode, SavedShard};
use gatun_cluster::record::{NodeName, ShardRecord};
use gatun_peer::member::AddressRange;
use serde::{Deserialize, Serialize};
use std::io;

/// Name of the file.
const NAME: &str = "cluster.json";

/// Division of the ports that the state of a node depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layout {
    cluster: String,
    node: String,
    own_ports: u16,
    ranges: Vec<StoredRange>,
}

impl Layout {
    pub(super) fn new((cluster, node): (&str, &str), own_ports: u16, ranges: &[AddressRange]) -> Layout {
        let ranges = ranges.iter().map(StoredRange::from).collect();
        Layout { cluster: cluster.to_owned(), node: node.to_owned(), own_ports, ranges }
    }
}

/// File of the standing.
pub(super) struct StandingFile {
    file: NamedFile,
    /// Generation of the session files of this process.
    generation: u64,
    /// Random number of this directory.
    pub(super) instance: String,
}

/// Contents of the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Contents {
    generation: u64,
    instance: String,
    layout: Layout,
    shards: Vec<StoredShard>,
    /// Number of etcd, and the revision of its data that the node knew.
    #[serde(default)]
    seen: Option<(u64, i64)>,
}

/// Shard in the file. Records are in the form that they have in etcd.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct StoredShard {
    record: Option<String>,
    pending: Option<(String, i64)>,
    has_state: bool,
    is_unsure: bool,
    needs_forget: bool,
}

impl StoredShard {
    fn new(of: &SavedShard) -> StoredShard {
        let SavedShard { record, pending, has_state, is_unsure, needs_forget } = of;
        StoredShard {
            record: record.as_ref().map(ToString::to_string),
            pending: pending.as_ref().map(|(record, revision)| (record.to_string(), *revision)),
            has_state: *has_state,
            is_unsure: *is_unsure,
            needs_forget: *needs_forget,
        }
    }

    /// `None` if a record cannot be read.
    fn shard(&self) -> Option<SavedShard> {
        let read = |text: &String| text.parse::<ShardRecord<NodeName>>().ok();
        let record = self.record.as_ref().map(read);
        let pending = self.pending.as_ref().map(|(text, revision)| Some((read(text)?, *revision)));
        let (record, pending) = (
            record.map_or(Some(None), |one| one.map(Some))?,
            pending.map_or(Some(None), |one| one.map(Some))?,
        );
        let StoredShard { has_state, is_unsure, needs_forget, .. } = *self;
        Some(SavedShard { record, pending, has_state, is_unsure, needs_forget })
    }
}

impl Contents {
    /// Returns the state if it belongs to a generation of sessions and to a layout, and can be read.
    fn saved(&self, generation: u64, layout: &Layout) -> Option<SavedNode> {
        if self.generation != generation || self.layout != *layout {
            return None;
        }
        let shards = self.shards.iter().map(StoredShard::shard).collect::<Option<_>>()?;
        Some(SavedNode { shards, seen: self.seen })
    }
}

impl StandingFile {
    /// Creates the handle of a process whose session files have a generation, and reads what the process with
    /// the generation `before` has left. The directory keeps its instance.
    ///
    /// # Errors
    /// Returns an error if the process has reached its limit of open files, or has no random numbers.
    pub(super) fn open(
        directory: &Directory,
        (generation, before): (u64, Option<u64>),
        layout: &Layout,
    ) -> anyhow::Result<(StandingFile, Option<SavedNode>)> {
        let file = directory.named_file(NAME)?;
        let contents: Option<Contents> = file.read().ok().and_then(|text| serde_json::from_str(&text).ok());
        let saved = before.and_then(|before| contents.as_ref()?.saved(before, layout));
        let instance = match contents {
            Some(contents) => contents.instance,
            None => instance()?,
        };
        Ok((StandingFile { file, generation, instance }, saved))
    }

    /// Saves the state for the next process.
    ///
    /// # Errors
    /// Returns the reason why the file cannot be written.
    pub(super) fn save(&self, layout: &Layout, saved: &SavedNode) -> Result<(), String> {
        let contents = Contents {
            generation: self.generation,
            instance: self.instance.clone(),
            layout: layout.clone(),
            shards: saved.shards.iter().map(StoredShard::new).collect(),
            seen: saved.seen,
        };
        let text = serde_json::to_string(&contents).map_err(|error| error.to_string())?;
        let write = |error: io::Error| format!("[state]: cannot write {NAME}: {error}");
        self.file.replace(text.as_bytes()).map_err(write)
    }
}

/// Random number, as text.
pub(super) fn instance() -> anyhow::Result<String> {
    Ok(crate::seed()?.iter().take(2).map(|word| format!("{word:016x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standing_is_read_as_it_was_written() {
        let range = AddressRange {
            first: [192, 0, 2, 1].into(),
            last: [192, 0, 2, 3].into(),
            ports: (1024, 65535),
            shard: 1,
        };
        let layout = Layout::new(("edge", "a"), 512, &[range]);
        let record = |text: &str| text.parse::<ShardRecord<NodeName>>().unwrap();
        let saved = SavedNode {
            shards: vec![
                SavedShard {
                    record: Some(record("epoch=7 owner=a@3 backup=b@7 phase=ready")),
                    pending: Some((record("epoch=8 owner=b@7 backup=a@3 phase=ready"), 42)),
                    has_state: true,
                    is_unsure: true,
                    needs_forget: true,
                },
                SavedShard::default(),
            ],
            seen: Some((u64::MAX, 9)),
        };
        let shards = saved.shards.iter().map(StoredShard::new).collect();
        let contents = Contents {
            generation: 7,
            instance: "i".into(),
            layout: layout.clone(),
            shards,
            seen: saved.seen,
        };
        let text = serde_json::to_string(&contents).unwrap();
        let mut read: Contents = serde_json::from_str(&text).unwrap();
        assert_eq!(read.saved(7, &layout), Some(saved));
        assert_eq!(read.saved(6, &layout), None);
        assert_eq!(read.saved(7, &Layout::new(("edge", "a"), 511, &[range])), None);
        assert_eq!(read.saved(7, &Layout::new(("edge", "b"), 512, &[range])), None);
        assert_eq!(read.saved(7, &Layout::new(("edge", "a"), 512, &[])), None);
        read.shards[0].record = Some("epoch=9 owner=".to_owned());
        assert_eq!(read.saved(7, &layout), None);
    }
}
