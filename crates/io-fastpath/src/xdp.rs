//! The program at network interfaces (XDP).
//!
//! A link of the kernel holds the program at each interface. With pins it outlives the process, under a name
//! with the interface's index; the next process replaces the program in it. The map `xdp_ports` has the same
//! interfaces.

use crate::error::{FastPathError, step};
use crate::layout::{XDP_PORTS_MAX, XdpPort};
use crate::link::{HookOf, ProgramLink, detach_pinned};
use crate::programs::Programs;
use crate::sys;
use gatun_netlink::query::link;
use gatun_netlink::{Link, XdpAbilities, xdp_abilities};
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

/// Reason of a driver that has no XDP, or not with its present settings.
const OFFLOADS: &str = "its driver has no XDP, or not with its present offloads: try `ethtool -K DEVICE lro \
                        off rx-gro-hw off`, or for the card of a virtual machine `guest_csum=off, \
                        guest_tso4=off, guest_tso6=off`";
/// Beginning of the name of a pinned link.
const PIN: &str = "xdp-";

/// Network interface at which the program was to be attached.
#[derive(Debug)]
pub struct XdpInterface {
    /// Name.
    pub name: String,
    /// Link of the program, or the reason why it is not there. Dropping a link without a pin detaches the
    /// program.
    pub link: Result<ProgramLink, String>,
    /// Reason why no frames can be sent there by XDP: packets for it go to the network stack.
    pub limit: Option<String>,
}

impl XdpInterface {
    /// Returns true if the program is still there.
    pub fn is_attached(&self) -> bool {
        self.link.as_ref().is_ok_and(ProgramLink::is_attached)
    }

    /// Reason why the program was not attached.
    pub fn refusal(&self) -> Option<&String> {
        self.link.as_ref().err()
    }
}

/// Attaches the program to each interface, and removes it from all others. Interfaces of `present` that still
/// have it stay as they are. Packets are routed as if they came from the device.
pub(crate) fn attach(programs: &Programs, present: Vec<XdpInterface>) -> Vec<XdpInterface> {
    let names = &programs.names.interfaces;
    let pins = programs.names.pins.as_deref();
    let found: Vec<Result<Link, FastPathError>> = names.iter().map(|name| interface(name)).collect();
    let indexes: Vec<u32> = found.iter().flatten().map(|link| link.index).collect();
    let prepared = pins.map_or(Ok(()), |pins| detach_all_but(pins, &indexes));
    let mut why = prepared.err();
    let mut present: Vec<XdpInterface> = present.into_iter().filter(XdpInterface::is_attached).collect();
    let attached = names.iter().zip(&found).map(|(name, found)| {
        let link = match why.take() {
            // It holds for each interface, and is reported once.
            Some(why) => Err(why.to_string()),
            None => match (found, present.iter().position(|one| one.name == *name)) {
                (Err(why), _) => Err(why.to_string()),
                (Ok(_), Some(at)) => present.swap_remove(at).link,
                (Ok(link), None) => attach_one(programs, link.index).map_err(|why| why.to_string()),
            },
        };
        XdpInterface { name: name.clone(), link, limit: None }
    });
    let mut attached: Vec<XdpInterface> = attached.collect();
    // Some drivers can send only as long as the program is there.
    let ports = attached.iter_mut().zip(&found).filter_map(|(one, found)| Some((one, found.as_ref().ok()?)));
    if let Err(error) = set_ports(programs, ports.collect()) {
        attached.iter_mut().for_each(|one| one.limit = Some(error.to_string()));
    }
    attached
}

/// Reason why frames cannot be sent at an interface by XDP, if the kernel knows.
fn limit(index: u32) -> Option<String> {
    let abilities = xdp_abilities(index).ok()??;
    let why = "it does not send frames that XDP redirects there; for a veth, run `ethtool -K DEVICE gro on` \
               at its other end";
    (!abilities.sends).then(|| why.to_owned())
}

fn interface(name: &str) -> Result<Link, FastPathError> {
    let found = link(name).map_err(step("finding the interface"))?;
    let found = found.ok_or_else(|| FastPathError::Attach("there is no such interface".to_owned()))?;
    match found.mac.filter(|_| found.is_ethernet) {
        Some(_) => Ok(found),
        None => Err(FastPathError::Attach("it is no Ethernet interface".to_owned())),
    }
}

/// Makes the map have these interfaces alone, and notes which of them cannot send.
fn set_ports(programs: &Programs, found: Vec<(&mut XdpInterface, &Link)>) -> Result<(), FastPathError> {
    let Some(map) = programs.ports() else { return Ok(()) };
    let device = link(&programs.names.device).map_err(step("finding the device"))?;
    let device = device.map_or(0, |link| link.index);
    let mut wanted = Vec::new();
    for (interface, Link { index, mac, .. }) in found {
        interface.limit = limit(*index);
        let cannot_send = interface.limit.is_some().into();
        let port = XdpPort { mac: mac.unwrap_or_default(), cannot_send, device, more: 0, asked: [0; 2] };
        sys::update(map, index, &port).map_err(step("setting an interface"))?;
        wanted.push(*index);
    }
    let mut former: Vec<u32> =
        sys::first_keys(map, XDP_PORTS_MAX as usize).map_err(step("reading the interfaces"))?;
    former.retain(|index| !wanted.contains(index));
    sys::delete_batch(map, &former).map_err(step("removing an interface"))
}

fn pin_of(pins: &Path, index: u32) -> PathBuf {
    pins.join(format!("{PIN}{index}"))
}

/// Attaches the program, in place of that of a former process.
fn attach_one(programs: &Programs, index: u32) -> Result<ProgramLink, FastPathError> {
    let program = programs.xdp.as_ref().map_err(|why| FastPathError::Attach(why.clone()))?;
    // Before Linux 6.3 the kernel does not tell.
    if let Ok(Some(XdpAbilities { redirects: false, .. })) = xdp_abilities(index) {
        return Err(FastPathError::Attach("its driver drops frames that XDP redirects".to_owned()));
    }
    let pin = programs.names.pins.as_ref().map(|pins| pin_of(pins, index));
    ProgramLink::replace(program.as_fd(), index, HookOf::Driver, pin.as_deref()).map_err(|e| refusal(&e))
}

/// Pins of the links of network interfaces.
pub(crate) fn pins_of(pins: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(pins) else { return Vec::new() };
    let is_ours =
        |entry: &std::fs::DirEntry| entry.file_name().to_str().is_some_and(|name| name.starts_with(PIN));
    entries.flatten().filter(is_ours).map(|entry| entry.path()).collect()
}

/// Detaches the program from all interfaces but those with these indexes.
pub(crate) fn detach_all_but(pins: &Path, indexes: &[u32]) -> Result<(), FastPathError> {
    let kept: Vec<PathBuf> = indexes.iter().map(|index| pin_of(pins, *index)).collect();
    pins_of(pins).iter().filter(|pin| !kept.contains(pin)).try_for_each(|pin| detach_pinned(pin))
}

fn refusal(error: &io::Error) -> FastPathError {
    FastPathError::Attach(match error.raw_os_error() {
        Some(libc::EBUSY) => {
            "another XDP program is there, such as that of an AF_XDP port: an interface has one".to_owned()
        }
        // The kernel tells the true reason to nobody but a tracer.
        Some(libc::EOPNOTSUPP) => OFFLOADS.to_owned(),
        Some(libc::EINVAL | libc::ERANGE | libc::ENOSPC) => {
            format!("its driver refuses XDP, perhaps because of its MTU or its queues ({error})")
        }
        _ => error.to_string(),
    })
}
