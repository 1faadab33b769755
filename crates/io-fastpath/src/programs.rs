//! Loaded programs with the names of their places, for a process that attaches them at any later time.

use crate::config::Hook;
use crate::maps::{MAPS, NAMES};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Loaded programs, for a process that attaches them at any later time. It needs CAP_NET_ADMIN.
#[derive(Debug)]
pub struct Programs {
    /// Names of their places.
    pub names: PlaceNames,
    pub(crate) device: OwnedFd,
    /// Program for network interfaces, or the reason why the kernel refuses it.
    pub(crate) xdp: Result<OwnedFd, String>,
    pub(crate) maps: [OwnedFd; MAPS],
}

/// Names of places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceNames {
    /// Device.
    pub device: String,
    /// Folder of the pins.
    pub pins: Option<PathBuf>,
    /// The only way to attach the device's program; `None`: tcx, or clsact where the kernel has no tcx.
    pub hook: Option<Hook>,
    /// Network interfaces.
    pub interfaces: Vec<String>,
}

impl Programs {
    /// Programs of files, in the order of [`Programs::files`]. Without a file for network interfaces,
    /// `refusal` is the reason.
    pub fn from_files(names: PlaceNames, mut files: Vec<OwnedFd>, refusal: String) -> Option<Programs> {
        let xdp = if files.len() == MAPS + 2 { files.pop().ok_or(refusal) } else { Err(refusal) };
        let device = files.pop()?;
        Some(Programs { names, device, xdp, maps: files.try_into().ok()? })
    }

    /// Files of the maps and the programs, for another process.
    pub fn files(&self) -> Vec<BorrowedFd<'_>> {
        let maps = self.maps.iter().chain([&self.device]).chain(&self.xdp);
        maps.map(|file| file.as_fd()).collect()
    }

    /// Reason why there is no program for network interfaces.
    pub fn xdp_refusal(&self) -> &str {
        self.xdp.as_ref().err().map_or("", |why| why)
    }

    /// The map of network interfaces.
    pub(crate) fn ports(&self) -> Option<&OwnedFd> {
        self.maps.iter().zip(NAMES).find(|(_, name)| *name == "xdp_ports").map(|(map, _)| map)
    }
}
