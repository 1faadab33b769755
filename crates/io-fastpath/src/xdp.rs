//! The program at network interfaces (XDP).
//!
//! A link of the kernel holds the program at each interface. With pins it outlives the process, under a name
//! with the interface's index; the next process replaces the program in it. The map `xdp_ports` has the same
//! interfaces.

use crate::error::{FastPathError, step};
use crate::layout::{XDP_PORTS_MAX, XdpPort};
use crate::pins::unpin;
use crate::program::{self, in_words};
use crate::sys;
use aya::Ebpf;
use aya::maps::Map;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::xdp::{XdpLink, XdpMode};
use aya::programs::{ProgramError, Xdp};
use gatun_netlink::Link;
use gatun_netlink::query::link;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// Beginning of the name of a pinned link.
const PIN: &str = "xdp-";

/// Network interface at which the program was to be attached.
#[derive(Debug)]
pub struct XdpInterface {
    /// Name.
    pub name: String,
    /// Reason why the program is not there.
    pub refusal: Option<FastPathError>,
    /// Link without a pin. Dropping it detaches the program.
    _link: Option<FdLink>,
}

/// Attaches the program to each interface, and removes it from all others. Packets are routed as if they came
/// from `device`.
pub(crate) fn attach(
    ebpf: &mut Ebpf,
    device: &str,
    names: &[String],
    pins: Option<&Path>,
) -> Vec<XdpInterface> {
    let found: Vec<Result<Link, FastPathError>> = names.iter().map(|name| interface(name)).collect();
    let indexes: Vec<u32> = found.iter().flatten().map(|link| link.index).collect();
    let prepared = pins.map_or(Ok(()), |pins| unpin_all_but(pins, &indexes));
    let prepared = prepared.and_then(|()| set_ports(ebpf, device, found.iter().flatten()));
    let mut why = prepared.err();
    let attached = names.iter().zip(found).map(|(name, found)| {
        let link = match why.take() {
            // It holds for each interface, and is reported once.
            Some(why) => Err(why),
            None => found.and_then(|link| attach_one(program::xdp(ebpf)?, link.index, pins)),
        };
        match link {
            Ok(link) => XdpInterface { name: name.clone(), refusal: None, _link: link },
            Err(why) => XdpInterface { name: name.clone(), refusal: Some(why), _link: None },
        }
    });
    attached.collect()
}

fn interface(name: &str) -> Result<Link, FastPathError> {
    let found = link(name).map_err(step("finding the interface"))?;
    let found = found.ok_or_else(|| FastPathError::Attach("there is no such interface".to_owned()))?;
    match found.mac.filter(|_| found.is_ethernet) {
        Some(_) => Ok(found),
        None => Err(FastPathError::Attach("it is no Ethernet interface".to_owned())),
    }
}

/// Makes the map have these interfaces alone.
fn set_ports<'a>(
    ebpf: &Ebpf,
    device: &str,
    links: impl Iterator<Item = &'a Link>,
) -> Result<(), FastPathError> {
    let map = ports(ebpf)?;
    let device = link(device).map_err(step("finding the device"))?;
    let device = device.map_or(0, |link| link.index);
    let mut wanted = Vec::new();
    for Link { index, mac, .. } in links {
        let port = XdpPort { mac: mac.unwrap_or_default(), spare: 0, device, more: 0, asked: [0; 2] };
        sys::update(&map, index, &port).map_err(step("setting an interface"))?;
        wanted.push(*index);
    }
    let mut former: Vec<u32> =
        sys::first_keys(&map, XDP_PORTS_MAX as usize).map_err(step("reading the interfaces"))?;
    former.retain(|index| !wanted.contains(index));
    sys::delete_batch(&map, &former).map_err(step("removing an interface"))
}

fn ports(ebpf: &Ebpf) -> Result<OwnedFd, FastPathError> {
    match ebpf.map("xdp_ports") {
        Some(Map::HashMap(data)) => data.fd().as_fd().try_clone_to_owned().map_err(step("keeping a map")),
        _ => Err(FastPathError::Map { name: "xdp_ports", why: "the object has no such map".to_owned() }),
    }
}

fn pin_of(pins: &Path, index: u32) -> PathBuf {
    pins.join(format!("{PIN}{index}"))
}

/// Attaches the program, in place of that of a former process. Returns the link if it is not pinned.
fn attach_one(program: &mut Xdp, index: u32, pins: Option<&Path>) -> Result<Option<FdLink>, FastPathError> {
    let pin = pins.map(|pins| pin_of(pins, index));
    if let Some(pin) = &pin
        && let Ok(former) = PinnedLink::from_pin(pin)
    {
        let link = XdpLink::try_from(FdLink::from(former)).map_err(|e| attach_error(&e))?;
        // A link whose interface is gone cannot be updated.
        if let Ok(id) = program.attach_to_link(link) {
            program.take_link(id).map_err(|e| attach_error(&e))?;
            return Ok(None);
        }
        unpin(pin)?;
    }
    let id = program.attach_to_if_index(index, XdpMode::Driver).map_err(|e| refusal(&e))?;
    let link = FdLink::try_from(program.take_link(id).map_err(|e| attach_error(&e))?);
    let link = link.map_err(|e| attach_error(&e))?;
    let Some(pin) = pin else { return Ok(Some(link)) };
    link.pin(pin).map_err(|e| attach_error(&e))?;
    Ok(None)
}

/// Detaches the program from all interfaces but those with these indexes.
pub(crate) fn unpin_all_but(pins: &Path, indexes: &[u32]) -> Result<(), FastPathError> {
    let Ok(entries) = std::fs::read_dir(pins) else { return Ok(()) };
    let kept: Vec<PathBuf> = indexes.iter().map(|index| pin_of(pins, *index)).collect();
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PIN));
        if is_ours && !kept.contains(&entry.path()) {
            unpin(&entry.path())?;
        }
    }
    Ok(())
}

fn refusal(error: &ProgramError) -> FastPathError {
    let number = match error {
        ProgramError::SyscallError(error) => error.io_error.raw_os_error(),
        _ => None,
    };
    FastPathError::Attach(match number {
        Some(libc::EBUSY) => {
            "another XDP program is there, such as that of an AF_XDP port: an interface has one".to_owned()
        }
        Some(libc::EOPNOTSUPP) => "its driver has no XDP".to_owned(),
        _ => in_words(error),
    })
}

fn attach_error(error: &dyn std::error::Error) -> FastPathError {
    FastPathError::Attach(in_words(error))
}
