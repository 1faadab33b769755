//! The maps of the program.

use crate::error::{FastPathError, step};
use crate::layout::{IDENTS, INSTANCES_MAX, InstanceSettings, Key4, Key6, REASONS, Session, SharedControl};
use crate::sys::{self, MapInfo};
use std::os::fd::OwnedFd;

/// Names of the maps, in the order of [`Maps::files`].
pub(crate) const NAMES: [&str; 7] =
    ["flows6", "flows4", "sessions", "instances", "control", "idents", "reasons"];

const HASH: u32 = 1;
const ARRAY: u32 = 2;
const PERCPU_ARRAY: u32 = 6;

/// Files of the maps, whose sizes have been checked.
pub(crate) struct Maps {
    pub(crate) flows6: OwnedFd,
    pub(crate) flows4: OwnedFd,
    pub(crate) sessions: OwnedFd,
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
    pub(crate) fn from_files(files: [OwnedFd; 7]) -> Result<Maps, FastPathError> {
        let [flows6, flows4, sessions, instances, control, idents, reasons] = files;
        let maps = Maps { flows6, flows4, sessions, instances, control, idents, reasons };
        let capacity = maps.capacity()?;
        for ((file, name), expected) in maps.files().into_iter().zip(NAMES).zip(expected(capacity)) {
            let info = sys::map_info(file).map_err(step("reading a map's sizes"))?;
            let is = (info.kind, info.key_size, info.value_size, info.entries_max);
            if is != expected {
                let why = format!("type and sizes are {is:?} instead of {expected:?}");
                return Err(FastPathError::Map { name, why });
            }
        }
        Ok(maps)
    }

    /// Number of sessions.
    pub(crate) fn capacity(&self) -> Result<u32, FastPathError> {
        let info: MapInfo = sys::map_info(&self.sessions).map_err(step("reading a map's sizes"))?;
        Ok(info.entries_max)
    }

    pub(crate) fn files(&self) -> [&OwnedFd; 7] {
        let Maps { flows6, flows4, sessions, instances, control, idents, reasons } = self;
        [flows6, flows4, sessions, instances, control, idents, reasons]
    }
}

/// Entries of `flows4`: both directions of a NAT44 session are there.
pub(crate) fn entries4(capacity: u32) -> u32 {
    capacity.saturating_mul(2)
}

/// Type, sizes of key and value, and number of entries of each map.
fn expected(capacity: u32) -> [(u32, u32, u32, u32); 7] {
    let size = |bytes: usize| bytes as u32;
    [
        (HASH, size(size_of::<Key6>()), 4, capacity),
        (HASH, size(size_of::<Key4>()), 4, entries4(capacity)),
        (ARRAY, 4, size(size_of::<Session>()), capacity),
        (ARRAY, 4, size(size_of::<InstanceSettings>()), INSTANCES_MAX),
        (ARRAY, 4, size(size_of::<SharedControl>()), 1),
        (ARRAY, 4, 4, IDENTS),
        (PERCPU_ARRAY, 4, size(REASONS * 8), INSTANCES_MAX + 1),
    ]
}
