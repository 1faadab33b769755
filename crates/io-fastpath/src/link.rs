//! Links of the kernel: each holds a program at an interface, as long as a file or a pin holds the link.

use crate::error::step;
use crate::pins::unpin;
use crate::sys::{bpf, info, number};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use zerocopy::{FromBytes, IntoBytes};

const OBJ_PIN: libc::c_long = 6;
const OBJ_GET: libc::c_long = 7;
const LINK_CREATE: libc::c_long = 28;
const LINK_UPDATE: libc::c_long = 29;
const LINK_DETACH: libc::c_long = 34;

const ATTACH_XDP: u32 = 37;
const ATTACH_TCX_EGRESS: u32 = 47;
/// XDP in the driver alone.
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const BPF_F_BEFORE: u32 = 1 << 3;
const BPF_F_AFTER: u32 = 1 << 4;

/// Hook of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookOf {
    /// Egress, before or after all other programs.
    Egress { before_others: bool },
    /// XDP in the driver.
    Driver,
}

/// Link of the kernel.
#[derive(Debug)]
pub struct ProgramLink(OwnedFd);

#[repr(C)]
struct Object {
    path: u64,
    file: u32,
    flags: u32,
}

#[repr(C)]
struct Create {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
    relative: u64,
    revision: u64,
}

#[repr(C)]
struct Update {
    link: u32,
    program: u32,
    flags: u32,
    former: u32,
}

/// Beginning of `struct bpf_link_info`, for the two hooks.
#[derive(FromBytes, IntoBytes)]
#[repr(C)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    _pad: u32,
    interface: u32,
    _rest: u32,
}

/// Runs a command that returns a file.
///
/// # Safety
/// As [`bpf`]; the command returns a new file.
unsafe fn open<T>(command: libc::c_long, attr: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's.
    let file = unsafe { bpf(command, attr) }?;
    // SAFETY: a new file that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(file as i32) })
}

fn path_of(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Pins a map or a link.
pub(crate) fn pin(file: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = path_of(path)?;
    let mut attr = Object { path: path.as_ptr() as u64, file: number(file), flags: 0 };
    // SAFETY: the layout of OBJ_PIN; the path is a string with an end that outlives the call.
    unsafe { bpf(OBJ_PIN, &mut attr) }.map(drop)
}

impl ProgramLink {
    /// Attaches a program.
    fn new(program: BorrowedFd<'_>, interface: u32, at: HookOf) -> io::Result<ProgramLink> {
        let (kind, flags) = match at {
            HookOf::Egress { before_others: true } => (ATTACH_TCX_EGRESS, BPF_F_BEFORE),
            HookOf::Egress { before_others: false } => (ATTACH_TCX_EGRESS, BPF_F_AFTER),
            HookOf::Driver => (ATTACH_XDP, XDP_FLAGS_DRV_MODE),
        };
        let program = number(program);
        let mut attr = Create { program, interface, kind, flags, relative: 0, revision: 0 };
        // SAFETY: the layout of LINK_CREATE for both hooks, without addresses. It returns a file.
        Ok(ProgramLink(unsafe { open(LINK_CREATE, &mut attr) }?))
    }

    /// Attaches a program, in place of the one whose link is pinned. The new link is pinned there.
    pub(crate) fn replace(
        program: BorrowedFd<'_>,
        interface: u32,
        at: HookOf,
        path: Option<&Path>,
    ) -> io::Result<ProgramLink> {
        let Some(path) = path else { return ProgramLink::new(program, interface, at) };
        // A link whose interface is gone, or that was detached, cannot be updated.
        let former = ProgramLink::pinned(path).and_then(|former| former.update(program).map(|()| former));
        if let Ok(former) = former {
            return Ok(former);
        }
        unpin(path)?;
        let link = ProgramLink::new(program, interface, at)?;
        pin(link.as_fd(), path)?;
        Ok(link)
    }

    /// The link that is pinned at a path.
    pub(crate) fn pinned(path: &Path) -> io::Result<ProgramLink> {
        let path = path_of(path)?;
        let mut attr = Object { path: path.as_ptr() as u64, file: 0, flags: 0 };
        // SAFETY: the layout of OBJ_GET; the path is as in `pin`. It returns a file.
        Ok(ProgramLink(unsafe { open(OBJ_GET, &mut attr) }?))
    }

    /// Puts another program in the place of the former one, in one step.
    fn update(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let mut attr = Update { link: number(self.0.as_fd()), program: number(program), flags: 0, former: 0 };
        // SAFETY: the layout of LINK_UPDATE, without addresses.
        unsafe { bpf(LINK_UPDATE, &mut attr) }.map(drop)
    }

    /// Detaches the program, whoever holds the link.
    pub(crate) fn detach(&self) -> io::Result<()> {
        let mut attr = number(self.0.as_fd());
        // SAFETY: the layout of LINK_DETACH, without addresses.
        unsafe { bpf(LINK_DETACH, &mut attr) }.map(drop)
    }

    /// Returns true as long as the link holds its program at an interface: nobody has detached it, and the
    /// interface exists. Needs no capability.
    pub fn is_attached(&self) -> bool {
        self.interface().is_some()
    }

    /// Number of the interface at which the link holds its program.
    pub(crate) fn interface(&self) -> Option<u32> {
        info(self.0.as_fd()).ok().map(|info: LinkInfo| info.interface).filter(|interface| *interface != 0)
    }

    /// Another file of the link.
    ///
    /// # Errors
    /// Returns an error if this process has too many files.
    pub fn try_clone(&self) -> io::Result<ProgramLink> {
        Ok(ProgramLink(self.0.try_clone()?))
    }
}

impl From<OwnedFd> for ProgramLink {
    fn from(file: OwnedFd) -> ProgramLink {
        ProgramLink(file)
    }
}

impl AsFd for ProgramLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Detaches the program of a pinned link and removes the pin, if there is one.
pub(crate) fn detach_pinned(pin: &Path) -> Result<(), crate::FastPathError> {
    if let Ok(link) = ProgramLink::pinned(pin) {
        // Before Linux 5.9 it ends with its last file.
        let _ = link.detach();
    }
    unpin(pin).map_err(step("removing a pin"))
}
