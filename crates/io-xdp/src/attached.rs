//! An interface with the XDP program attached to it.

use crate::bpf;
use crate::interface::{self, Interface};
use crate::program::{PrefixTables, Program};
use crate::socket::{Socket, step};
use crate::umem::Umem;
use crate::{MTU_MAX, MTU_OF_SMALL_FRAMES_MAX, XdpError};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

/// Configuration of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Name of the interface.
    pub interface: String,
    /// Mode of its XDP program.
    pub mode: Mode,
}

/// Mode of the XDP program of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// XDP in the driver if it supports that, otherwise before the kernel's stack.
    #[default]
    Auto,
    /// XDP in the driver.
    Native,
    /// XDP before the kernel's stack, on the kernel's packets (skb): slower, but available with every driver.
    Skb,
}

/// Opened interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Properties of the interface.
    pub interface: Interface,
    /// True if the program runs in the driver.
    pub native: bool,
    /// True if the device reads and writes frames directly.
    pub zero_copy: bool,
}

impl Opened {
    /// Name of the interface, and true if its packets come from software of a kernel, so that checksums may
    /// be unfinished.
    pub fn device(&self) -> (&str, bool) {
        (&self.interface.name, self.interface.software || !self.native)
    }
}

/// Parts of an attached program, for sending to another process.
pub struct AttachedParts {
    /// Number of the interface.
    pub index: u32,
    /// True if the program runs in the driver.
    pub native: bool,
    /// Its files: program, map of sockets, link, membership of multicast groups.
    pub files: [OwnedFd; 4],
}

/// XDP program attached to an interface.
pub(crate) struct Attached {
    program: Program,
    pub(crate) native: bool,
    /// Dropping these files detaches the program and leaves the multicast groups.
    _link: OwnedFd,
    _groups: OwnedFd,
}

/// Frame size in bytes: half a page, or a page for a larger MTU.
pub(crate) const FRAME_LEN_SMALL: usize = 2048;
pub(crate) const FRAME_LEN_LARGE: usize = 4096;

/// `XDP_FLAGS_*` of `linux/if_link.h`.
const FLAG_SKB: u32 = 1 << 1;
const FLAG_NATIVE: u32 = 1 << 2;

/// Checks that a frame holds a packet of the interface's MTU.
///
/// # Errors
/// Returns an error if the worker's frames are too short for the interface's MTU: it came back with a larger
/// one.
pub(crate) fn cut_off(interface: &Interface, frame_len: usize) -> Result<(), XdpError> {
    if frame_len == FRAME_LEN_SMALL && interface.mtu > MTU_OF_SMALL_FRAMES_MAX {
        let (interface, mtu) = (interface.name.clone(), interface.mtu);
        return Err(XdpError::MtuGrown { interface, mtu });
    }
    Ok(())
}

/// Checks that an interface is usable with this number of queues.
///
/// # Errors
/// Returns an error if its MTU is too large or its number of queues differs.
pub(crate) fn check(interface: &Interface, queues: u32) -> Result<(), XdpError> {
    if interface.mtu > MTU_MAX {
        return Err(XdpError::Mtu { interface: interface.name.clone(), mtu: interface.mtu });
    }
    let has = interface::rx_queues(&interface.name);
    if has != queues {
        return Err(XdpError::Queues { interface: interface.name.clone(), has, served: queues });
    }
    Ok(())
}

impl Attached {
    /// Directs the packets of a queue to a socket.
    pub(crate) fn serve(&self, interface: &Interface, queue: u32, socket: &Socket) -> Result<(), XdpError> {
        let served = self.program.serve(queue, socket.as_fd());
        served.map_err(|e| step(&interface.name, "adding a socket to the BPF map", e))
    }

    pub(crate) fn new(
        interface: &Interface,
        mode: Mode,
        tables: &PrefixTables,
        queues: u32,
    ) -> Result<Attached, XdpError> {
        let name = &interface.name;
        let program = Program::load(tables, queues).map_err(|e| load_error(name, e))?;
        let tries: &[bool] = match mode {
            Mode::Auto => &[true, false],
            Mode::Native => &[true],
            Mode::Skb => &[false],
        };
        let mut last = XdpError::Kernel("XDP");
        for &native in tries {
            let flags = if native { FLAG_NATIVE } else { FLAG_SKB };
            match bpf::attach(&program, interface.index, flags) {
                Ok(link) => {
                    let groups = interface::receive_multicast(interface.index);
                    let groups = groups.map_err(|e| step(name, "joining multicast groups", e))?;
                    return Ok(Attached { program, native, _link: link, _groups: groups });
                }
                Err(e) => last = attach_error(name, mode, e),
            }
            if matches!(last, XdpError::Busy(_) | XdpError::Permission { .. }) {
                break;
            }
        }
        Err(last)
    }

    /// Opens a socket for a queue. `open` creates the unbound socket.
    pub(crate) fn open_socket(
        &self,
        umem: &Umem,
        interface: &Interface,
        queue: u32,
        open: &mut dyn FnMut() -> Result<OwnedFd, XdpError>,
    ) -> Result<Socket, XdpError> {
        // Before the kernel's stack, packets are the kernel's: they can only be copied.
        Socket::open(umem, (&interface.name, interface.index), queue, self.native, open)
    }

    pub(crate) fn into_parts(self, index: u32) -> AttachedParts {
        let (program, sockets) = self.program.into_files();
        AttachedParts { index, native: self.native, files: [program, sockets, self._link, self._groups] }
    }

    pub(crate) fn from_parts(parts: AttachedParts) -> Attached {
        let [program, sockets, link, groups] = parts.files;
        let program = Program::from_files(program, sockets);
        Attached { program, native: parts.native, _link: link, _groups: groups }
    }
}

/// Linux before 6.6, unless the fix was backported, does not allow comparisons of packet addresses without
/// CAP_PERFMON.
fn load_error(name: &str, error: io::Error) -> XdpError {
    match error.to_string().contains("pointer comparison prohibited") {
        true => XdpError::Verifier { interface: name.to_owned(), error },
        false => step(name, "loading the XDP program", error),
    }
}

fn attach_error(name: &str, mode: Mode, error: io::Error) -> XdpError {
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => XdpError::Busy(name.to_owned()),
        Some(libc::EPERM | libc::EACCES) => step(name, "attaching the XDP program", error),
        _ if mode == Mode::Native => XdpError::NoNative(name.to_owned(), error),
        _ => step(name, "attaching the XDP program", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifier_that_requires_more_rights_differs_from_a_missing_right() {
        let said = "Permission denied (os error 13); the verifier says: R8 pointer comparison prohibited";
        let text = load_error("eth0", io::Error::new(io::ErrorKind::PermissionDenied, said)).to_string();
        assert!(text.contains("Linux 6.6 or later") && !text.contains("CAP_NET_ADMIN"), "{text}");
        let text = load_error("eth0", io::Error::from_raw_os_error(libc::EPERM)).to_string();
        assert!(text.contains("CAP_BPF") && !text.contains("Linux 6.6"), "{text}");
    }
}
