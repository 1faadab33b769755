//! The maps of the program.

use crate::error::{FastPathError, step};
use crate::layout::{
    Entry, IDENTS, INSTANCES_MAX, InstanceSettings, MAPPINGS_MAX, Mapping4, Mapping6, REASONS, ROWS,
    STATELESS_MAX, SharedControl, TrieKey4, TrieKey6, XDP_PORTS_MAX, XdpPort,
};
use crate::sys::{self, MapInfo};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Names of the maps, in the order of [`Maps::files`].
pub(crate) const NAMES: [&str; MAPS] = [
    "entries",
    "instances",
    "control",
    "idents",
    "reasons",
    "stateless",
    "siit4_first",
    "siit4_second",
    "siit6_first",
    "siit6_second",
    "xdp_ports",
    "hosts4_first",
    "hosts4_second",
    "hosts6_first",
    "hosts6_second",
];
/// Number of the maps.
pub(crate) const MAPS: usize = 15;

const HASH: u32 = 1;
const ARRAY: u32 = 2;
const PERCPU_ARRAY: u32 = 6;
const LPM_TRIE: u32 = 11;

/// Files of the maps, whose sizes have been checked.
pub(crate) struct Maps {
    pub(crate) entries: OwnedFd,
    pub(crate) instances: OwnedFd,
    pub(crate) control: OwnedFd,
    pub(crate) idents: OwnedFd,
    pub(crate) reasons: OwnedFd,
    pub(crate) stateless: OwnedFd,
    /// Both generations.
    pub(crate) siit4: [OwnedFd; 2],
    pub(crate) siit6: [OwnedFd; 2],
    pub(crate) xdp_ports: OwnedFd,
    /// Both generations.
    pub(crate) hosts4: [OwnedFd; 2],
    pub(crate) hosts6: [OwnedFd; 2],
}

impl Maps {
    /// Of files in the order of [`NAMES`].
    ///
    /// # Errors
    /// Returns an error if a map's type or sizes are not those that this version makes.
    pub(crate) fn from_files(files: [OwnedFd; MAPS]) -> Result<Maps, FastPathError> {
        let [
            entries,
            instances,
            control,
            idents,
            reasons,
            stateless,
            a4,
            b4,
            a6,
            b6,
            xdp_ports,
            c4,
            d4,
            c6,
            d6,
        ] = files;
        let (siit4, siit6, hosts4, hosts6) = ([a4, b4], [a6, b6], [c4, d4], [c6, d6]);
        let maps = Maps {
            entries,
            instances,
            control,
            idents,
            reasons,
            stateless,
            siit4,
            siit6,
            xdp_ports,
            hosts4,
            hosts6,
        };
        let entries = maps.entries()?;
        for ((file, name), expected) in maps.files().into_iter().zip(NAMES).zip(expected(entries)) {
            let info = sys::map_info(file).map_err(step("reading a map's sizes"))?;
            // The process that made the maps chose the number of hosts.
            let entries_max = if name.starts_with("hosts") { 0 } else { info.entries_max };
            let is = (info.kind, info.key_size, info.value_size, entries_max);
            if is != expected {
                let why = format!("type and sizes are {is:?} instead of {expected:?}");
                return Err(FastPathError::Map { name, why });
            }
            if sys::is_frozen(file) {
                let why = "somebody has frozen it (BPF_MAP_FREEZE)".to_owned();
                return Err(FastPathError::Map { name, why });
            }
        }
        Ok(maps)
    }

    /// Number of entries.
    pub(crate) fn entries(&self) -> Result<u32, FastPathError> {
        let info: MapInfo = sys::map_info(&self.entries).map_err(step("reading a map's sizes"))?;
        Ok(info.entries_max)
    }

    pub(crate) fn files(&self) -> [&OwnedFd; MAPS] {
        let Maps {
            entries,
            instances,
            control,
            idents,
            reasons,
            stateless,
            siit4,
            siit6,
            xdp_ports,
            hosts4,
            hosts6,
        } = self;
        let ([a4, b4], [a6, b6], [c4, d4], [c6, d6]) = (siit4, siit6, hosts4, hosts6);
        [entries, instances, control, idents, reasons, stateless, a4, b4, a6, b6, xdp_ports, c4, d4, c6, d6]
    }
}

/// Returns true if a former process has pinned maps in a folder.
pub(crate) fn has_pins(pins: &Path) -> bool {
    NAMES.iter().any(|name| pins.join(name).exists())
}

/// Type, sizes of key and value, and number of entries of each map.
fn expected(entries: u32) -> [(u32, u32, u32, u32); MAPS] {
    let size = |bytes: usize| bytes as u32;
    let trie = |key: usize, value: usize| (LPM_TRIE, size(key), size(value), MAPPINGS_MAX);
    let four = trie(size_of::<TrieKey4>(), size_of::<Mapping4>());
    let six = trie(size_of::<TrieKey6>(), size_of::<Mapping6>());
    let hosts = |key: usize, value: usize| (HASH, size(key), size(value), 0);
    let (hosts4, hosts6) = (hosts(4, size_of::<Mapping4>()), hosts(16, size_of::<Mapping6>()));
    [
        (ARRAY, 4, size(size_of::<Entry>()), entries),
        (ARRAY, 4, size(size_of::<InstanceSettings>()), INSTANCES_MAX),
        (ARRAY, 4, size(size_of::<SharedControl>()), 1),
        (ARRAY, 4, 4, IDENTS),
        (PERCPU_ARRAY, 4, size(REASONS * 8), 2 * ROWS),
        (PERCPU_ARRAY, 4, 4 * 8, STATELESS_MAX),
        four,
        four,
        six,
        six,
        (HASH, 4, size(size_of::<XdpPort>()), XDP_PORTS_MAX),
        hosts4,
        hosts4,
        hosts6,
        hosts6,
    ]
}
