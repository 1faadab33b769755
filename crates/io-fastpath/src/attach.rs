//! Places of the programs: the egress of a device, and network interfaces.

use crate::config::{FastPathConfig, Hook};
use crate::error::{FastPathError, step};
use crate::link::{HookOf, ProgramLink, detach_pinned, pin};
use crate::maps::NAMES;
use crate::others::LINK;
use crate::pins::unpin;
use crate::program::{self, NAME};
use crate::programs::{PlaceNames, Programs};
use crate::xdp::{self, XdpInterface};
use aya::Ebpf;
use gatun_netlink::EgressFilter;
use gatun_netlink::query::link;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Priority of the filter. No other program uses it, so a filter there is one of another version of Gatun.
const PRIORITY: u16 = 0x6761;

/// Places where the programs are.
#[derive(Debug)]
pub struct Places {
    /// Way in which the device's program is attached.
    pub hook: Hook,
    /// Link of tcx. `None` for a filter. If it is not pinned, dropping it detaches the program.
    pub link: Option<ProgramLink>,
    /// Network interfaces, in the order of the configuration.
    pub xdp: Vec<XdpInterface>,
}

/// The attached programs of a process.
pub struct Attachment {
    /// The programs.
    pub programs: Programs,
    /// Places where they are.
    pub places: Places,
    /// Shows a second process that this one uses the device, as long as it is open.
    pub lock: UnixDatagram,
}

impl Attachment {
    /// Attaches loaded programs, in place of those that a former process has attached.
    pub(crate) fn new(
        ebpf: &mut Ebpf,
        lock: UnixDatagram,
        config: &FastPathConfig,
    ) -> Result<Attachment, FastPathError> {
        let names = PlaceNames {
            device: config.device.clone(),
            pins: config.pins.clone(),
            hook: config.hook,
            interfaces: config.xdp.clone(),
        };
        let xdp = match names.interfaces.is_empty() {
            true => Err(String::new()),
            false => program::xdp_file(ebpf).map_err(|error| error.to_string()),
        };
        let (device, maps) = (program::device_file(ebpf)?, program::files(ebpf)?);
        let programs = Programs { names, device, xdp, maps };
        let places = programs.attach()?;
        Ok(Attachment { programs, places, lock })
    }

    /// Detaches the programs and removes everything.
    ///
    /// # Errors
    /// Returns an error if a pin cannot be removed.
    pub fn detach(self) -> Result<(), FastPathError> {
        detach(&self.programs.names.device, self.programs.names.pins.as_deref())
    }
}

impl Places {
    /// Detaches the programs of all links, whoever holds them.
    pub fn detach(&self) {
        let links = self.link.iter().chain(self.xdp.iter().flat_map(|interface| &interface.link));
        // It fails if somebody has done so.
        links.for_each(|link| drop(link.detach()));
    }
}

impl Programs {
    fn attach(&self) -> Result<Places, FastPathError> {
        let (hook, link) = self.attach_to_device(false)?;
        Ok(Places { hook, link, xdp: xdp::attach(self, Vec::new()) })
    }

    /// Attaches the programs where they are not any more. If other programs of the device keep packets from
    /// ours (`is_bypassed`), it moves before them.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the device's program. It is tried at network interfaces in any
    /// case.
    pub fn attach_again(&self, places: &mut Places, is_bypassed: bool) -> Result<(), FastPathError> {
        let pinned = self.pin_maps();
        places.xdp = xdp::attach(self, std::mem::take(&mut places.xdp));
        pinned?;
        let is_there = places.link.as_ref().is_some_and(ProgramLink::is_attached);
        if is_there && !is_bypassed {
            return Ok(());
        }
        if let Some(link) = &places.link {
            let _ = link.detach();
        }
        (places.hook, places.link) = self.attach_to_device(true)?;
        Ok(())
    }

    /// Pins maps whose pins somebody has removed, so that the next process finds them.
    fn pin_maps(&self) -> Result<(), FastPathError> {
        let Some(pins) = &self.names.pins else { return Ok(()) };
        std::fs::create_dir_all(pins).map_err(step("creating the folder of pins"))?;
        for (map, name) in self.maps.iter().zip(NAMES) {
            let path = pins.join(name);
            if !path.exists() {
                pin(map.as_fd(), &path).map_err(step("pinning a map"))?;
            }
        }
        Ok(())
    }

    /// Attaches the device's program. Returns the hook, and its link.
    fn attach_to_device(&self, before_others: bool) -> Result<(Hook, Option<ProgramLink>), FastPathError> {
        let PlaceNames { device, pins, hook, .. } = &self.names;
        let found = link(device).map_err(step("finding the device"))?;
        let missing = || FastPathError::Attach(format!("there is no device {device}"));
        let interface = found.ok_or_else(missing)?.index;
        let filter = EgressFilter { interface, priority: PRIORITY, name: NAME };
        if *hook != Some(Hook::Clsact) {
            match self.attach_tcx(interface, before_others) {
                Ok(link) => {
                    let _ = filter.delete();
                    return Ok((Hook::Tcx, Some(link)));
                }
                Err(error) if *hook == Some(Hook::Tcx) => return Err(error),
                // Before Linux 6.6. If there is another reason, clsact fails as well, and its error is
                // returned.
                Err(_) => {}
            }
        }
        filter.set(self.device.as_fd()).map_err(|e| FastPathError::Attach(e.to_string()))?;
        if let Some(pins) = pins {
            unpin(&pins.join(LINK)).map_err(step("removing a pin"))?;
        }
        Ok((Hook::Clsact, None))
    }

    fn attach_tcx(&self, interface: u32, before_others: bool) -> Result<ProgramLink, FastPathError> {
        let pins = self.names.pins.as_ref().map(|pins| pins.join(LINK));
        let refused = |error: std::io::Error| FastPathError::Attach(error.to_string());
        ProgramLink::replace(
            self.device.as_fd(),
            interface,
            HookOf::Egress { before_others },
            pins.as_deref(),
        )
        .map_err(refused)
    }
}

/// Detaches the programs from a device and from network interfaces, and removes all pins, also if a process
/// still uses them.
///
/// # Errors
/// Returns an error if a pin cannot be removed.
pub fn detach(device: &str, pins: Option<&Path>) -> Result<(), FastPathError> {
    if let Some(pins) = pins {
        xdp::detach_all_but(pins, &[])?;
        detach_pinned(&pins.join(LINK))?;
        unpin_all(pins)?;
    }
    if let Ok(Some(link)) = link(device) {
        // It fails if there is no filter.
        let _ = EgressFilter { interface: link.index, priority: PRIORITY, name: NAME }.delete();
    }
    Ok(())
}

/// Removes all pins. Programs stay where they are as long as a process has files of their links.
///
/// # Errors
/// Returns an error if a pin cannot be removed.
pub fn unpin_all(pins: &Path) -> Result<(), FastPathError> {
    let names = [LINK].into_iter().chain(NAMES).map(|name| pins.join(name));
    let mut all = xdp::pins_of(pins).into_iter().chain(names);
    all.try_for_each(|pin| unpin(&pin)).map_err(step("removing a pin"))?;
    let _ = std::fs::remove_dir(pins);
    Ok(())
}
