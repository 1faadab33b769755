//! Opening devices: processors, memory, queues, and the thread that keeps them.

use crate::device::{self, Device};
use crate::eal::{self, EalConfig};
use crate::error::DpdkError;
use crate::frame::{Pool, Queue};
use crate::ports::{Port, Ports};
use crate::watch::{self, Event, Watch};
use crate::{MTU_MAX, RING_LEN};
use gatun_io::{BURST_MAX, Others, Processors};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// How long who serves a memif may take to greet.
const GREETING_MAX: Timespec = Timespec { tv_sec: 3, tv_nsec: 0 };

/// What is to be opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DpdkConfig {
    /// The devices.
    pub devices: Vec<DeviceConfig>,
    /// Queues of each, one for each worker.
    pub queues: u16,
    /// The environment.
    pub eal: EalConfig,
}

/// A device that is to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// The address of a network card on its bus, or a driver's name with a number and its arguments, as in
    /// `net_memif0,role=client,socket=/run/memif.sock`.
    pub device: String,
    /// The largest IP packet that has to fit, bytes; `None`: what the device is set to.
    pub mtu: Option<u16>,
}

impl DeviceConfig {
    /// Whether it is a network card, and not software.
    pub fn is_card(&self) -> bool {
        device::is_pci(&self.device)
    }
}

/// How a device was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// What operators call it.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Its MTU, bytes.
    pub mtu: u16,
    /// Whether its link was up.
    pub up: bool,
    /// Whether it spreads packets over its queues by their addresses.
    pub rss: bool,
}

impl Opened {
    /// Its name, and whether what comes from it is as some kernel's software left it: checksums may be unfinished.
    pub fn device(&self) -> (&str, bool) {
        const SOFTWARE: [&str; 6] =
            ["net_af_packet", "net_af_xdp", "net_tap", "net_vhost", "net_virtio", "net_virtio_user"];
        (&self.name, SOFTWARE.contains(&&self.driver[..]))
    }
}

/// Open devices.
pub struct Dpdk {
    /// One for each worker.
    pub workers: Vec<Ports>,
    /// How each device was opened.
    pub opened: Vec<Opened>,
    /// Whether packet buffers lie on huge pages.
    pub huge_pages: bool,
    /// What happens to links from now on.
    pub events: Receiver<Event>,
    /// Where the process may do what workers do not.
    pub others: Others,
    /// To be kept as long as any worker.
    pub guard: Guard,
}

/// Keeps the devices. When it goes, all of them are closed, once the last worker's ports are gone; the environment stays until the
/// process ends.
pub struct Guard {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It panicked: nothing is left to be taken down in order.
            let _ = thread.join();
        }
    }
}

impl Dpdk {
    /// Starts the environment and the devices, in a thread of its own, which first calls `rights`: there it gives up what it
    /// does not need. Once in a process.
    ///
    /// # Errors
    /// Each says what to do about it.
    pub fn open(
        config: &DpdkConfig,
        rights: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<Dpdk, DpdkError> {
        let (opened, result) = channel();
        let (stop, stopped) = channel();
        let config = config.clone();
        let body = move || {
            let open = rights().map_err(DpdkError::Environment).and_then(|()| open(&config));
            match open {
                Ok((watch, rest)) => {
                    if opened.send(Ok(rest)).is_ok() {
                        watch.run(&stopped);
                    }
                }
                // Who waits for it is there.
                Err(error) => drop(opened.send(Err(error))),
            }
        };
        let thread =
            std::thread::Builder::new().name("dpdk".into()).spawn(body).map_err(DpdkError::System)?;
        let guard = Guard { stop: Some(stop), thread: Some(thread) };
        let ended = |_| DpdkError::Environment("its thread has ended".to_owned());
        let Rest { workers, opened, huge_pages, events, others } = result.recv().map_err(ended)??;
        Ok(Dpdk { workers, opened, huge_pages, events, others, guard })
    }
}

/// What of [`Dpdk`] the thread makes.
struct Rest {
    workers: Vec<Ports>,
    opened: Vec<Opened>,
    huge_pages: bool,
    events: Receiver<Event>,
    others: Others,
}

/// Bytes of a frame behind the room in front: what most drivers count on, or a larger MTU with its Ethernet header,
/// two tags, and room for an answer.
fn room(mtu: Option<u16>) -> u16 {
    const LEAST: u16 = 2048;
    (mtu.unwrap_or(0) + 14 + 2 * 4 + 64).next_multiple_of(64).max(LEAST)
}

/// Entries of a device's rings.
fn rings(config: &DeviceConfig, ring_max: [u16; 2]) -> [u16; 2] {
    // A memif's are as long as its argument says, whatever it is asked for.
    if let Some(log2) = argument(&config.device, "rsize").and_then(|log2| log2.parse::<u32>().ok()) {
        return [1 << log2.min(14); 2];
    }
    ring_max.map(|max| if max == 0 { RING_LEN } else { RING_LEN.min(max) })
}

/// Buffers of a queue: its receive ring is full, and so are the transmit rings of all devices with what came in by this
/// one, while bursts are at work.
fn buffers(rx_ring: u16, devices: usize) -> u32 {
    // What a thread keeps at hand.
    const CACHE: u32 = 512;
    u32::from(rx_ring) + devices as u32 * u32::from(RING_LEN.max(rx_ring)) + CACHE + 4 * BURST_MAX as u32
}

/// MB that all buffers take, as far as can be said before there are devices.
fn buffers_mb(config: &DpdkConfig) -> u64 {
    // Of DPDK's own before each, and what its pools put between them.
    const EACH: u64 = 128 + 128 + 192;
    let bytes = config.devices.iter().map(|device| {
        let [rx_ring, _] = rings(device, [0; 2]);
        u64::from(buffers(rx_ring, config.devices.len())) * (u64::from(room(device.mtu)) + EACH)
    });
    ((bytes.sum::<u64>() * u64::from(config.queues)) >> 20) + 1
}

/// The value of an argument in a device's text.
fn argument<'d>(device: &'d str, key: &str) -> Option<&'d str> {
    device.split(',').skip(1).filter_map(|word| word.split_once('=')).find(|(k, _)| *k == key).map(|(_, v)| v)
}

/// A server's socket whose process was killed is still there, and nobody else can have its name.
fn free_socket(device: &str) -> Result<(), DpdkError> {
    let is_server = !device::is_client(argument(device, "role"));
    let is_file = argument(device, "socket-abstract") == Some("no");
    let Some(path) = argument(device, "socket").filter(|_| is_server && is_file).map(Path::new) else {
        return Ok(());
    };
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if !is_socket {
        return Ok(());
    }
    if is_served(path) {
        // Several devices of this process may share one, which is made with the first.
        return Err(DpdkError::SocketBusy(path.display().to_string()));
    }
    drop(fs::remove_file(path));
    Ok(())
}

/// Whether anybody listens at a socket. Who does is heard out: a DPDK (22.11) aborts where a connection is gone before
/// it has greeted.
fn is_served(path: &Path) -> bool {
    let connection = SocketAddrUnix::new(path).and_then(|address| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &address)?;
        Ok(socket)
    });
    if let Ok(socket) = &connection {
        // Where it says nothing, it is no memif's, and there all the same.
        let _ = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&GREETING_MAX));
    }
    !matches!(connection, Err(rustix::io::Errno::CONNREFUSED))
}

fn open(config: &DpdkConfig) -> Result<(Watch, Rest), DpdkError> {
    let workers = usize::from(config.queues.max(1));
    let processors = Processors::divide(&config.eal.cores, workers)?;
    for device in &config.devices {
        if let Some(mtu) = device.mtu.filter(|mtu| *mtu > MTU_MAX) {
            return Err(DpdkError::Mtu { device: device::name(&device.device).into(), mtu, max: MTU_MAX });
        }
        free_socket(&device.device)?;
    }
    processors.others.stay().map_err(DpdkError::System)?;
    let names = config.devices.iter().map(|device| &device.device[..]);
    let pci: Vec<&str> = names.filter(|name| device::is_pci(name)).collect();
    let low_numbers = eal::LowNumbers::take();
    let huge_pages = eal::start(&config.eal, &processors.others, buffers_mb(config), &pci)?;
    // Whatever fails from here on, what there is is taken down again.
    let mut watch = Watch::new();
    let mut queues: Vec<Vec<Port>> = (0..workers).map(|_| Vec::new()).collect();
    let mut opened = Vec::new();
    for device in &config.devices {
        opened.push(open_device(device, config, &mut queues, &mut watch)?);
    }
    eal::keep_files();
    drop(low_numbers);
    let alive = Arc::new(());
    let ports =
        queues.into_iter().zip(&processors.workers).enumerate().map(|(worker, (ports, processor))| {
            Ports::new(ports, *processor, worker == 0, Arc::clone(&alive)).map_err(DpdkError::System)
        });
    let workers = ports.collect::<Result<Vec<_>, _>>()?;
    let (sender, events) = channel();
    watch.begin(workers.iter().map(Ports::letterbox).collect(), alive, sender);
    Ok((watch, Rest { workers, opened, huge_pages, events, others: processors.others }))
}

/// Starts a device, with a queue for each worker.
fn open_device(
    config: &DeviceConfig,
    all: &DpdkConfig,
    queues: &mut [Vec<Port>],
    watch: &mut Watch,
) -> Result<Opened, DpdkError> {
    let mut device = Device::open(&config.device)?;
    device.is_client = device.is_memif() && device::is_client(argument(&config.device, "role"));
    let name = device.name.clone();
    let wanted = queues.len() as u16;
    if device.info.queues_max < wanted {
        return Err(DpdkError::Queues { device: name, has: device.info.queues_max, wanted });
    }
    let rings = rings(config, device.info.ring_max);
    let pool = |queue| device.pool(queue, buffers(rings[0], all.devices.len()), room(config.mtu));
    let pools: Vec<Pool> = (0..queues.len()).map(pool).collect::<Result<_, _>>()?;
    // Drivers without an MTU of their own take what fits.
    let mtu = config.mtu.filter(|mtu| *mtu <= device.info.mtu_max);
    let done = device.set_up(mtu, rings, &pools)?;
    // Its driver forgets the buffers that it shares with a peer when that goes.
    let forgets = device.is_client && argument(&config.device, "zero-copy") == Some("yes");
    let started = !forgets && device.start()?;
    let up = started && device.link();
    for (number, (ports, pool)) in queues.iter_mut().zip(pools).enumerate() {
        let queue = Queue { port: device.port, number: number as u16 };
        ports.push(Port::new(&name, queue, pool, device.marks_buffers(), up));
    }
    let opened = Opened {
        name,
        driver: device.info.driver.clone(),
        mac: device.info.mac,
        mtu: config.mtu.unwrap_or(done.mtu),
        up,
        rss: done.rss != 0,
    };
    watch.add(watch::Watched::new(device, started, up, forgets));
    Ok(opened)
}
