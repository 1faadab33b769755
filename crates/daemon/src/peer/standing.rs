//! State of the member that outlives the process, beside its sessions: valid only together with them.

use super::addresses::Layout;
use crate::state::{Directory, NamedFile};
use gatun_peer::member::{AddressRange, SavedStanding};
use gatun_peer::ownership::{Epoch, Member};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// Name of the file.
const NAME: &str = "peer.json";

/// File of the standing.
pub(crate) struct StandingFile {
    file: NamedFile,
    /// Generation of the session files of this process.
    generation: u64,
}

/// Contents of the file.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Contents {
    generation: u64,
    is_second: bool,
    own_ports: u16,
    ranges: Vec<StoredRange>,
    epochs: Vec<OwnerEpoch>,
    is_settled: bool,
    is_peer_gone: bool,
}

/// Public addresses in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredRange {
    first: Ipv4Addr,
    last: Ipv4Addr,
    ports: (u16, u16),
    shard: usize,
}

impl From<&AddressRange> for StoredRange {
    fn from(of: &AddressRange) -> StoredRange {
        let AddressRange { first, last, ports, shard } = *of;
        StoredRange { first, last, ports, shard }
    }
}

impl From<&StoredRange> for AddressRange {
    fn from(of: &StoredRange) -> AddressRange {
        let StoredRange { first, last, ports, shard } = *of;
        AddressRange { first, last, ports, shard }
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OwnerEpoch {
    number: u32,
    is_second: bool,
}

fn member(is_second: bool) -> Member {
    if is_second { Member::Second } else { Member::First }
}

impl Contents {
    fn new(generation: u64, layout: &Layout, standing: &SavedStanding) -> Contents {
        let epoch = |of: &Epoch| OwnerEpoch { number: of.number, is_second: of.owner == Member::Second };
        Contents {
            generation,
            is_second: layout.me == Member::Second,
            own_ports: layout.own_ports,
            ranges: layout.ranges.iter().map(StoredRange::from).collect(),
            epochs: standing.epochs.iter().map(epoch).collect(),
            is_settled: standing.is_settled,
            is_peer_gone: standing.is_peer_gone,
        }
    }

    fn layout(&self) -> Layout {
        let ranges = self.ranges.iter().map(AddressRange::from).collect();
        Layout { me: member(self.is_second), own_ports: self.own_ports, ranges }
    }

    /// Returns the standing if it belongs to a generation of sessions, fits a layout, and is possible.
    fn standing_of(&self, generation: u64, layout: &Layout) -> Option<SavedStanding> {
        let is_possible = self.epochs.iter().all(|epoch| epoch.number <= Epoch::NUMBER_MAX);
        let fits = self.generation == generation && layout.conflict(&self.layout()).is_none();
        (is_possible && fits).then(|| self.standing())
    }

    fn standing(&self) -> SavedStanding {
        let epoch = |of: &OwnerEpoch| Epoch { number: of.number, owner: member(of.is_second) };
        SavedStanding {
            epochs: self.epochs.iter().map(epoch).collect(),
            is_settled: self.is_settled,
            is_peer_gone: self.is_peer_gone,
        }
    }
}

impl StandingFile {
    /// Creates the handle of a process whose session files have a generation.
    ///
    /// # Errors
    /// Returns an error if the process has reached its limit of open files.
    pub(crate) fn new(directory: &Directory, generation: u64) -> std::io::Result<StandingFile> {
        Ok(StandingFile { file: directory.named_file(NAME)?, generation })
    }

    /// Returns the standing of the process whose sessions have the generation `before`, if it divided the
    /// ports as `layout` does.
    pub(crate) fn read(&self, before: u64, layout: &Layout) -> Option<SavedStanding> {
        let contents: Contents = serde_json::from_str(&self.file.read().ok()?).ok()?;
        contents.standing_of(before, layout)
    }

    /// Saves the standing for the next process.
    ///
    /// # Errors
    /// Returns the reason why the file cannot be written.
    pub(super) fn save(&self, layout: &Layout, standing: &SavedStanding) -> Result<(), String> {
        let contents = Contents::new(self.generation, layout, standing);
        let text = serde_json::to_string(&contents).map_err(|error| error.to_string())?;
        self.file.replace(text.as_bytes()).map_err(|error| format!("[state]: cannot write {NAME}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standing_is_read_as_it_was_written() {
        let range = AddressRange {
            first: Ipv4Addr::new(192, 0, 2, 1),
            last: Ipv4Addr::new(192, 0, 2, 3),
            ports: (1024, 65535),
            shard: 1,
        };
        let layout = Layout { me: Member::Second, own_ports: 512, ranges: vec![range] };
        let standing = SavedStanding {
            epochs: vec![
                Epoch { number: 3, owner: Member::First },
                Epoch { number: 4, owner: Member::Second },
            ],
            is_settled: true,
            is_peer_gone: true,
        };
        let text = serde_json::to_string(&Contents::new(7, &layout, &standing)).unwrap();
        let read: Contents = serde_json::from_str(&text).unwrap();
        assert_eq!((read.generation, read.layout(), read.standing()), (7, layout.clone(), standing.clone()));
        assert_eq!(read.standing_of(7, &layout), Some(standing.clone()));
        assert_eq!(read.standing_of(6, &layout), None);
        // A number after which there is none cannot be counted up.
        let last = Epoch { number: u32::MAX, owner: Member::First };
        let impossible = SavedStanding { epochs: vec![last], ..standing };
        assert_eq!(Contents::new(7, &layout, &impossible).standing_of(7, &layout), None);
    }
}
