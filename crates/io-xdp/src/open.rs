//! Start-up: sockets, memory, the XDP program.

use crate::attached::{Attached, FRAME_LEN_LARGE, FRAME_LEN_SMALL, Opened, PortConfig, check};
use crate::interface::Interface;
use crate::interface_helper::{InterfaceHelper, InterfaceHelperParts};
use crate::ports::Ports;
use crate::program::{Owner, PrefixRule, PrefixTables};
use crate::socket::{open_unbound, step};
use crate::umem::Umem;
use crate::watch::{Watch, WatchedInterface, WatchedWorker};
use crate::{MTU_OF_SMALL_FRAMES_MAX, XdpError};
use std::io;
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

/// Open interfaces.
pub struct Xdp {
    /// Ports of each worker.
    pub workers: Vec<Ports>,
    /// Opened interfaces.
    pub opened: Vec<Opened>,
    /// Watch over the interfaces. Keep it while any worker runs.
    pub watch: Watch,
}

impl Xdp {
    /// Opens the interfaces. Requires CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF, and CAP_IPC_LOCK or a
    /// sufficient limit of locked memory.
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
        let frame_len = frame_len(interfaces.iter().map(|interface| interface.mtu));
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
        let parts = InterfaceHelperParts {
            ports: config.ports.clone(),
            queues: config.queues,
            tables: tables.files().map_err(failed)?,
        };
        let privileged = Box::new(InterfaceHelper::new(parts));
        let watch = Watch::new((watched.collect(), watching), tables, &config.entries, locks, privileged);
        let watch = watch.map_err(failed)?;
        Ok(Xdp { workers, opened, watch })
    }
}

/// Memory in bytes for packets of one queue of every interface. It depends on the interfaces' MTU: a missing
/// interface counts with the usual one of Ethernet.
pub fn queue_bytes(config: &XdpConfig) -> u64 {
    let mtus = config.ports.iter().filter_map(|port| Some(Interface::find(&port.interface).ok()?.mtu));
    u64::from(Ports::frames(config.ports.len())) * frame_len(mtus) as u64
}

/// Size of a frame that holds packets of all these MTUs.
fn frame_len(mut mtus: impl Iterator<Item = u32>) -> usize {
    match mtus.all(|mtu| mtu <= MTU_OF_SMALL_FRAMES_MAX) {
        true => FRAME_LEN_SMALL,
        false => FRAME_LEN_LARGE,
    }
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
