//! Start-up: sockets, memory, the XDP program.

use crate::bpf;
use crate::interface::{self, Interface};
use crate::keeper::{AttachedParts, Keeper, KeeperParts};
use crate::ports::Ports;
use crate::program::{Owner, PrefixRule, PrefixTables, Program};
use crate::socket::{Socket, open_unbound, step};
use crate::umem::Umem;
use crate::watch::{Watch, WatchedInterface, WatchedWorker};
use crate::{MTU_MAX, MTU_OF_SMALL_FRAMES_MAX, XdpError};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;

/// Configuration of the backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpConfig {
    /// Interfaces.
    pub ports: Vec<PortConfig>,
    /// Number of queues served on each interface, one per worker.
    pub queues: u32,
    /// Prefixes that the program takes or leaves to the kernel.
    pub entries: Vec<(PrefixRule, Owner)>,
}

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
    /// In the driver if it supports this, otherwise before the kernel's stack.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// Before the kernel's stack, on the kernel's packets (skb): slower, but works with every driver.
    Skb,
}

/// Opened interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Properties of the interface.
    pub interface: Interface,
    /// Whether the program runs in the driver.
    pub native: bool,
    /// Whether the device reads and writes frames directly.
    pub zero_copy: bool,
}

impl Opened {
    /// Name of the interface, and whether its packets come from software of a kernel, so that checksums may be
    /// unfinished.
    pub fn device(&self) -> (&str, bool) {
        (&self.interface.name, self.interface.software || !self.native)
    }
}

/// Open interfaces.
pub struct Xdp {
    /// Ports of each worker.
    pub workers: Vec<Ports>,
    /// Opened interfaces.
    pub opened: Vec<Opened>,
    /// Watch over the interfaces. Keep it while any worker runs.
    pub watch: Watch,
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
const FRAME_LEN_SMALL: usize = 2048;
const FRAME_LEN_LARGE: usize = 4096;

/// `XDP_FLAGS_*` of `linux/if_link.h`.
const FLAG_SKB: u32 = 1 << 1;
const FLAG_NATIVE: u32 = 1 << 2;

impl Xdp {
    /// Opens the interfaces. Requires CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF, and CAP_IPC_LOCK or a sufficient
    /// limit of locked memory.
    ///
    ///
    /// # Errors
    /// Each error says what to do.
    pub fn open(config: &XdpConfig) -> Result<Xdp, XdpError> {
        let mut interfaces = Vec::new();
        let mut locks = Vec::new();
        for port in &config.ports {
            let interface = Interface::find(&port.interface)?;
            check(&interface, config.queues)?;
            locks.push(lock(&port.interface)?);
            interfaces.push(interface);
        }
        let tables = PrefixTables::new().map_err(|e| step(&interfaces[0].name, "creating a BPF map", e))?;
        for (entry, owner) in &config.entries {
            let set = tables.set(*entry, *owner);
            set.map_err(|e| step(&interfaces[0].name, "filling a BPF map", e))?;
        }
        let mut attached = Vec::new();
        for (interface, port) in interfaces.iter().zip(&config.ports) {
            attached.push(Attached::new(interface, port.mode, &tables, config.queues)?);
        }
        let mtu = interfaces.iter().map(|interface| interface.mtu).max().unwrap_or(0);
        let frame_len = if mtu <= MTU_OF_SMALL_FRAMES_MAX { FRAME_LEN_SMALL } else { FRAME_LEN_LARGE };
        let mut workers = Vec::new();
        for queue in 0..config.queues {
            workers.push(open_queue(queue, frame_len, &interfaces, &attached)?);
        }
        let of_worker =
            |ports: &Ports| WatchedWorker { device_events: ports.device_events(), umem: ports.umem() };
        let watching = workers.iter().map(of_worker).collect();
        let opened: Vec<Opened> = (interfaces.iter().zip(&attached).enumerate())
            .map(|(port, (interface, attached))| Opened {
                interface: interface.clone(),
                native: attached.native,
                zero_copy: workers.iter().all(|worker| worker.is_zero_copy(port)),
            })
            .collect();
        let watched = interfaces.iter().zip(&config.ports).zip(attached);
        let watched = watched
            .map(|((interface, port), attached)| WatchedInterface::new(interface, port.mode, attached));
        let failed = |e| step(&interfaces[0].name, "watching interfaces", e);
        let parts = KeeperParts {
            ports: config.ports.clone(),
            queues: config.queues,
            tables: tables.files().map_err(failed)?,
        };
        let privileged = Box::new(Keeper::new(parts));
        let watch = Watch::new((watched.collect(), watching), tables, &config.entries, locks, privileged);
        let watch = watch.map_err(failed)?;
        Ok(Xdp { workers, opened, watch })
    }
}

/// Memory in bytes for packets of one queue of every interface, with the usual MTU of Ethernet.
pub fn queue_bytes(config: &XdpConfig) -> u64 {
    u64::from(Ports::frames(config.ports.len())) * FRAME_LEN_SMALL as u64
}

/// Opens one queue of every interface, and the memory for it.
fn open_queue(
    queue: u32,
    frame_len: usize,
    interfaces: &[Interface],
    attached: &[Attached],
) -> Result<Ports, XdpError> {
    let failed = |step: &'static str| {
        let interface = interfaces[0].name.clone();
        move |error: io::Error| XdpError::Step { interface, step, error }
    };
    let (umem, free) =
        Umem::new(Ports::frames(interfaces.len()), frame_len).map_err(failed("allocating the UMEM"))?;
    let umem = Arc::new(umem);
    let mut sockets = Vec::new();
    for (interface, attached) in interfaces.iter().zip(attached) {
        sockets.push((
            interface,
            attached.open_socket(&umem, interface, queue, &mut || open_unbound(&interface.name))?,
        ));
    }
    for ((interface, socket), attached) in sockets.iter().zip(attached) {
        attached.serve(interface, queue, socket)?;
    }
    Ports::new(umem, free, sockets).map_err(failed("opening an eventfd"))
}

/// # Errors
/// If the worker's frames are too short for the interface's MTU: it came back with a larger one.
pub(crate) fn cut_off(interface: &Interface, frame_len: usize) -> Result<(), XdpError> {
    if frame_len == FRAME_LEN_SMALL && interface.mtu > MTU_OF_SMALL_FRAMES_MAX {
        let (interface, mtu) = (interface.name.clone(), interface.mtu);
        return Err(XdpError::MtuGrown { interface, mtu });
    }
    Ok(())
}

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

/// Locks the interface's name. An abstract socket's name is unique in its network namespace, like an
/// interface's name, and disappears with the process.
fn lock(name: &str) -> Result<UnixDatagram, XdpError> {
    let bound = SocketAddr::from_abstract_name(format!("gatun/xdp/{name}"))
        .and_then(|address| UnixDatagram::bind_addr(&address));
    bound.map_err(|e| match e.kind() {
        io::ErrorKind::AddrInUse => XdpError::SecondInstance(name.to_owned()),
        _ => step(name, "locking the interface's name", e),
    })
}

impl Attached {
    /// Directs the packets of a queue to a socket.
    pub(crate) fn serve(&self, interface: &Interface, queue: u32, socket: &Socket) -> Result<(), XdpError> {
        let served = self.program.serve(queue, socket.as_fd());
        served.map_err(|e| step(&interface.name, "giving the program a socket", e))
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

    /// `open`: gives a socket that is not bound.
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
    fn a_kernel_whose_verifier_wants_more_rights_is_told_from_a_missing_right() {
        let said = "Permission denied (os error 13); the verifier says: R8 pointer comparison prohibited";
        let text = load_error("eth0", io::Error::new(io::ErrorKind::PermissionDenied, said)).to_string();
        assert!(text.contains("Linux 6.6 or later") && !text.contains("CAP_NET_ADMIN"), "{text}");
        let text = load_error("eth0", io::Error::from_raw_os_error(libc::EPERM)).to_string();
        assert!(text.contains("CAP_BPF") && !text.contains("Linux 6.6"), "{text}");
    }
}
