//! The maps of the program.

use crate::error::{FastPathError, step};
use crate::layout::{Entry, IDENTS, INSTANCES_MAX, InstanceSettings, REASONS, SharedControl};
use crate::sys::{self, MapInfo};
use std::os::fd::OwnedFd;

/// Names of the maps, in the order of [`Maps::files`].
pub(crate) const NAMES: [&str; 5] = ["entries", "instances", "control", "idents", "reasons"];

const ARRAY: u32 = 2;
const PERCPU_ARRAY: u32 = 6;

/// Files of the maps, whose sizes have been checked.
pub(crate) struct Maps {
    pub(crate) entries: OwnedFd,
    pub(crate) instances: OwnedFd,
    pub(crate) control: OwnedFd,
    pub(crate) idents: OwnedFd,
    pub(crate) reasons: OwnedFd,
}

impl Maps {
    /// Of files in the order of [`NAMES`].
    ///
    /// # Errors
    /// Returns an error if a map's type or sizes are not those that this version makes.
    pub(crate) fn from_files(files: [OwnedFd; 5]) -> Result<Maps, FastPathError> {
        let [entries, instances, control, idents, reasons] = files;
        let maps = Maps { entries, instances, control, idents, reasons };
        let entries = maps.entries()?;
        for ((file, name), expected) in maps.files().into_iter().zip(NAMES).zip(expected(entries)) {
            let info = sys::map_info(file).map_err(step("reading a map's sizes"))?;
            let is = (info.kind, info.key_size, info.value_size, info.entries_max);
            if is != expected {
                let why = format!("type and sizes are {is:?} instead of {expected:?}");
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

    pub(crate) fn files(&self) -> [&OwnedFd; 5] {
        let Maps { entries, instances, control, idents, reasons } = self;
        [entries, instances, control, idents, reasons]
    }
}

/// Type, sizes of key and value, and number of entries of each map.
fn expected(entries: u32) -> [(u32, u32, u32, u32); 5] {
    let size = |bytes: usize| bytes as u32;
    [
        (ARRAY, 4, size(size_of::<Entry>()), entries),
        (ARRAY, 4, size(size_of::<InstanceSettings>()), INSTANCES_MAX),
        (ARRAY, 4, size(size_of::<SharedControl>()), 1),
        (ARRAY, 4, 4, IDENTS),
        (PERCPU_ARRAY, 4, size(REASONS * 8), INSTANCES_MAX + 1),
    ]
}
