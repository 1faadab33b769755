//! Creating a TUN device, or attaching to an existing one.

use crate::{TunError, TunQueue, ioctl, vnet};
use gatun_netlink::{Compared, Device, Existing, Link, Prefix, compare};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Settings of a TUN device.
#[derive(Clone, Debug)]
pub struct TunConfig {
    /// Device name.
    pub name: String,
    /// Create the device, or attach to an existing one.
    pub mode: Mode,
    /// Number of queues: one per worker.
    pub queues: usize,
    /// True if the kernel may leave checksums and segmentation to the far end. Switch it off only to find
    /// out if offloads cause a fault.
    pub offload: bool,
    /// True to write UDP datagrams of one flow together. Has no effect if the kernel does not support it.
    pub udp_gro: bool,
    /// True to set the link up.
    pub up: bool,
    /// MTU to set, in bytes.
    pub mtu: Option<u32>,
    /// Addresses to add.
    pub addresses: Vec<Prefix>,
    /// Networks to route to the device.
    pub routes: Vec<Prefix>,
    /// True to route them to the device even if the host has routes to the same networks. The device's
    /// routes come first.
    pub precede_routes: bool,
}

/// Origin of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Gatun creates the device. It disappears with the process.
    #[default]
    Create,
    /// Gatun attaches to an existing persistent device.
    Attach,
}

impl Default for TunConfig {
    fn default() -> Self {
        TunConfig {
            name: "gatun".into(),
            mode: Mode::Create,
            queues: 1,
            offload: true,
            udp_gro: false,
            up: false,
            mtu: None,
            addresses: Vec::new(),
            routes: Vec::new(),
            precede_routes: false,
        }
    }
}

/// Open TUN device.
pub struct Tun {
    /// Device name; the kernel may have completed it (`nat%d`).
    pub name: String,
    /// Queues, one for each worker.
    pub queues: Vec<TunQueue>,
    /// Offloads that the kernel accepted.
    pub offloads: Offloads,
    /// True if UDP datagrams of one flow are written together: it was configured, and the kernel supports
    /// it.
    pub udp_gro: bool,
    /// True if the device existed before.
    pub attached: bool,
    /// Routes of the host that get no packets while the device has its own, as `ip route` shows them.
    pub preceded: Vec<String>,
    /// Keeps a second instance off the device. The kernel alone would let it share the queues of a
    /// multi-queue device.
    lock: Guard,
}

/// Lock on a device's name.
pub struct Guard {
    _socket: UnixDatagram,
    /// Queue of a persistent device that is deleted when this guard is dropped.
    lasting: Option<OwnedFd>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(queue) = &self.lasting {
            // If the device is already gone, there is nothing to delete.
            let _ = ioctl::set_persist(queue, false);
        }
    }
}

/// Fate of a created device when its process is killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KillBehaviour {
    /// The device is deleted.
    #[default]
    Goes,
    /// The device and its routes stay for the next process. An orderly end deletes the device.
    Stays,
}

/// Alias of devices that Gatun creates. It identifies a device left over from a killed process: the name
/// proves nothing, and files of that process may be gone, or out of reach in another mount namespace.
const OWN: &str = "made by gatun";

/// Offloads that the kernel accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offloads {
    /// Checksums, TCP with ECN, UDP.
    All,
    /// Checksums and TCP with ECN: kernels before 6.2.
    Tcp,
    /// Checksums and TCP.
    TcpWithoutEcn,
    /// None: the kernel sends single, complete packets.
    None,
}

impl Offloads {
    /// All values, the best first.
    const LADDER: [Offloads; 4] = [Offloads::All, Offloads::Tcp, Offloads::TcpWithoutEcn, Offloads::None];

    fn flags(self) -> u32 {
        use ioctl::*;
        let tcp = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
        match self {
            Offloads::All => tcp | TUN_F_TSO_ECN | TUN_F_USO4 | TUN_F_USO6,
            Offloads::Tcp => tcp | TUN_F_TSO_ECN,
            Offloads::TcpWithoutEcn => tcp,
            Offloads::None => 0,
        }
    }

    /// Description for operators.
    pub fn describe(self) -> &'static str {
        match self {
            Offloads::All => "checksum, TSO, TSO with ECN, USO",
            Offloads::Tcp => "checksum, TSO, TSO with ECN",
            Offloads::TcpWithoutEcn => "checksum, TSO",
            Offloads::None => "none",
        }
    }
}

impl Tun {
    /// Opens the device and applies the settings in `config`.
    ///
    /// # Errors
    /// Returns an error that says what to do, if the device cannot be opened or set up as configured.
    pub fn open(config: &TunConfig, killed: KillBehaviour) -> Result<Tun, TunError> {
        let name = &config.name;
        let legal = |b: u8| b.is_ascii_graphic() && b != b'/';
        if name.is_empty() || name.len() > ioctl::NAME_MAX || !name.bytes().all(legal) {
            return Err(TunError::Name(name.clone()));
        }
        let mut lock = lock(name)?;
        let mut device = Device::open(name).map_err(|e| TunError::Ioctl("netlink", name.clone(), e))?;
        let left = config.mode == Mode::Create && is_own(&mut device);
        if left {
            take_away_unless_fits(name, config.queues)?;
        }
        let attached = device.exists();
        match (config.mode, attached) {
            (Mode::Create, true) if left => {}
            (Mode::Create, true) => return Err(TunError::Exists(name.clone())),
            (Mode::Attach, false) => return Err(TunError::Missing(name.clone())),
            _ => {}
        }
        // Compared before the device is created, so that a refusal leaves no trace.
        let compared = compare_routes(&device, config)?;
        let first = open_device()?;
        check_features(&first, config.queues)?;
        let (name, flags) = attach_first(&first, name, config.queues)?;
        device.rename(&name);
        let offloads = set_up_framing(&first, &name, config.offload)?;
        if config.mode == Mode::Create {
            if !attached {
                let index = device.index().map_err(|e| device.error("link show".into(), e))?;
                device.set_alias(index, OWN)?;
            }
            lock.lasting =
                last(&first, killed).map_err(|e| TunError::Ioctl("TUNSETPERSIST", name.clone(), e))?;
        }
        let udp_gro = config.udp_gro && offloads == Offloads::All;
        let mut queues = vec![TunQueue::new(name.clone(), first, udp_gro)];
        while queues.len() < config.queues {
            let next = open_device()?;
            ioctl::set_iff(&next, &name, flags).map_err(|e| attach_error(&name, e))?;
            queues.push(TunQueue::new(name.clone(), next, udp_gro));
        }
        configure(&mut device, config, &compared)?;
        if left {
            // Routes of the previous configuration.
            let index = device.index().map_err(|e| device.error("link show".into(), e))?;
            device.remove_routes(index, &compared.stale)?;
        }
        let preceded = compared.others.iter().map(ToString::to_string).collect();
        Ok(Tun { name, queues, offloads, udp_gro, attached, preceded, lock })
    }

    /// Splits the device into its queues and the guard, which must be kept while any queue is in use.
    pub fn into_parts(self) -> (Vec<TunQueue>, Guard) {
        (self.queues, self.lock)
    }
}

/// Compares the host's routes with the routes that the device needs.
fn compare_routes(device: &Device, config: &TunConfig) -> Result<Compared, TunError> {
    let index = device.index().ok();
    if config.routes.is_empty() && index.is_none() {
        return Ok(Compared::default());
    }
    let compared = compare(&config.routes, index)
        .map_err(|e| TunError::Netlink(device.error("route show".into(), e)))?;
    match compared.others.is_empty() || config.precede_routes {
        true => Ok(compared),
        false => Err(TunError::routes_exist(&config.name, &compared.others)),
    }
}

/// Applies the settings of `config` that the device lacks, in an order in which each step can succeed. A
/// device that lacks nothing needs no privileges.
fn configure(device: &mut Device, config: &TunConfig, compared: &Compared) -> Result<(), TunError> {
    let link = device.index().and_then(|index| device.link(index));
    let Link { index, mtu, is_up, .. } = link.map_err(|e| device.error("link show".into(), e))?;
    if let Some(wanted) = config.mtu.filter(|wanted| *wanted != mtu) {
        device.set_mtu(index, wanted)?;
    }
    device.add_addresses(index, &config.addresses)?;
    if config.up && !is_up {
        device.set_up(index)?;
    }
    let (free, taken) = compared.split();
    device.add_routes(index, &free, Existing::Keep)?;
    match device.add_routes(index, &taken, Existing::Precede)? {
        0 => Ok(()),
        // No route can come before this one.
        _ => Err(TunError::routes_exist(&config.name, &compared.others)),
    }
}

/// Locks a device name by an abstract socket. The socket's name is unique in its network namespace, like the
/// device's, and disappears with the process.
pub(crate) fn lock(name: &str) -> Result<Guard, TunError> {
    SocketAddr::from_abstract_name(format!("gatun/tun/{name}"))
        .and_then(|address| UnixDatagram::bind_addr(&address))
        .map(|socket| Guard { _socket: socket, lasting: None })
        .map_err(|e| match e.kind() {
            io::ErrorKind::AddrInUse => TunError::SecondInstance(name.to_owned()),
            _ => TunError::Ioctl("locking", name.to_owned(), e),
        })
}

/// Returns true if the device exists and was created by Gatun.
fn is_own(device: &mut Device) -> bool {
    let link = device.index().and_then(|index| device.link(index));
    link.is_ok_and(|link| link.alias.as_deref() == Some(OWN))
}

/// Makes a created device persistent or not, by `killed`. Returns a queue with which an orderly end deletes a
/// persistent device.
fn last(first: &OwnedFd, killed: KillBehaviour) -> io::Result<Option<OwnedFd>> {
    ioctl::set_persist(first, killed == KillBehaviour::Stays)?;
    match killed {
        KillBehaviour::Goes => Ok(None),
        KillBehaviour::Stays => first.try_clone().map(Some),
    }
}

pub(crate) fn open_device() -> Result<OwnedFd, TunError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open("/dev/net/tun", flags, rustix::fs::Mode::empty()).map_err(|e| TunError::Open(e.into()))
}

fn check_features(fd: &OwnedFd, queues: usize) -> Result<(), TunError> {
    let known = ioctl::features(fd).map_err(TunError::Open)?;
    if known & u32::from(ioctl::IFF_VNET_HDR) == 0 {
        return Err(TunError::Features("virtio-net headers"));
    }
    if queues > 1 && known & u32::from(ioctl::IFF_MULTI_QUEUE) == 0 {
        return Err(TunError::Features("multiple queues"));
    }
    Ok(())
}

/// Makes `fd` the device's first queue. Returns the device's name and the flags for further queues. The
/// kernel answers EINVAL if the multi-queue flag of an existing device differs, so the other value is tried:
/// a multi-queue device serves one worker as well.
fn attach_first(fd: &OwnedFd, name: &str, queues: usize) -> Result<(String, u16), TunError> {
    let base = ioctl::IFF_TUN | ioctl::IFF_NO_PI | ioctl::IFF_VNET_HDR;
    let multi = base | ioctl::IFF_MULTI_QUEUE;
    let (wanted, other) = if queues > 1 { (multi, base) } else { (base, multi) };
    match ioctl::set_iff(fd, name, wanted) {
        Ok(name) => return Ok((name, wanted)),
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
        Err(e) => return Err(attach_error(name, e)),
    }
    match ioctl::set_iff(fd, name, other) {
        Ok(name) if queues > 1 => Err(TunError::SingleQueue(name)),
        Ok(name) => Ok((name, other)),
        Err(e) => Err(attach_error(name, e)),
    }
}

/// Deletes a leftover device that has one queue if several are wanted.
fn take_away_unless_fits(name: &str, queues: usize) -> Result<(), TunError> {
    let fd = open_device()?;
    match attach_first(&fd, name, queues) {
        Err(TunError::SingleQueue(_)) => {}
        Ok(_) => return Ok(()),
        Err(e) => return Err(e),
    }
    ioctl::set_persist(&fd, false).map_err(|e| TunError::Ioctl("TUNSETPERSIST", name.to_owned(), e))
}

pub(crate) fn attach_error(name: &str, e: io::Error) -> TunError {
    let name = name.to_owned();
    match e.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::BUSY) => TunError::Busy(name),
        Some(Errno::PERM | Errno::ACCESS) => TunError::Permission(name),
        Some(Errno::INVAL) => TunError::NotTun(name),
        _ => TunError::Ioctl("TUNSETIFF", name, e),
    }
}

fn set_up_framing(fd: &OwnedFd, name: &str, offload: bool) -> Result<Offloads, TunError> {
    // 10 bytes, not 12: the other two would count merged buffers, which TUN does not have.
    ioctl::set_vnet_hdr_len(fd, vnet::LEN as i32)
        .map_err(|e| TunError::Ioctl("TUNSETVNETHDRSZ", name.to_owned(), e))?;
    let ladder = if offload { &Offloads::LADDER[..] } else { &[Offloads::None] };
    let mut refused = io::Error::from(io::ErrorKind::Unsupported);
    for &offloads in ladder {
        match ioctl::set_offload(fd, offloads.flags()) {
            Ok(()) => return Ok(offloads),
            Err(e) => refused = e,
        }
    }
    Err(TunError::Ioctl("TUNSETOFFLOAD", name.to_owned(), refused))
}
