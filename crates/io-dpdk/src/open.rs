//! Start-up: processors, memory, queues, and the thread that owns the environment.

use crate::device::{self, Device};
use crate::eal::{self, EalConfig};
use crate::error::DpdkError;
use crate::frame::{Pool, Queue};
use crate::ports::{Port, Ports};
use crate::watch::{self, LinkEvent, Watch};
use crate::{MTU_MAX, RING_LEN};
use gatun_dpdk_shim::{argument, free_socket, is_client};
use gatun_io::{BURST_MAX, OtherProcessors, Processors};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Configuration of the backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DpdkConfig {
    /// Devices.
    pub devices: Vec<DeviceConfig>,
    /// Queues of each device, one per worker.
    pub queues: u16,
    /// Environment.
    pub eal: EalConfig,
}

/// Configuration of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Bus address of a network card, or a driver's name with a number and its arguments, as in
    /// `net_memif0,role=client,socket=/run/memif.sock`.
    pub device: String,
    /// Size in bytes of the largest IP packet that has to fit. `None`: the device's present MTU.
    pub mtu: Option<u16>,
}

impl DeviceConfig {
    /// Checks whether the device is a network card rather than software.
    pub fn is_card(&self) -> bool {
        device::is_pci(&self.device)
    }
}

/// Opened device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Name for operators.
    pub name: String,
    /// Driver.
    pub driver: String,
    /// MAC address.
    pub mac: [u8; 6],
    /// MTU in bytes.
    pub mtu: u16,
    /// True if its link was up.
    pub up: bool,
    /// True if it distributes packets over its queues by their addresses.
    pub rss: bool,
}

impl Opened {
    /// Name of the device, and true if its packets come from software of a kernel, so that checksums may be
    /// unfinished.
    pub fn device(&self) -> (&str, bool) {
        const SOFTWARE: [&str; 6] =
            ["net_af_packet", "net_af_xdp", "net_tap", "net_vhost", "net_virtio", "net_virtio_user"];
        (&self.name, SOFTWARE.contains(&&self.driver[..]))
    }
}

/// Open devices.
pub struct Dpdk {
    /// Ports of each worker.
    pub workers: Vec<Ports>,
    /// Opened devices.
    pub opened: Vec<Opened>,
    /// True if packet buffers use huge pages.
    pub huge_pages: bool,
    /// Link events from now on.
    pub events: Receiver<LinkEvent>,
    /// Processors for everything other than workers.
    pub others: OtherProcessors,
    /// Guard to keep as long as any worker runs.
    pub guard: Guard,
}

/// Keeps the devices open. When it is dropped, all of them are closed once the last worker's ports are
/// dropped. The environment stays until the process ends.
pub struct Guard {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked: there is nothing left to close.
            let _ = thread.join();
        }
    }
}

impl Dpdk {
    /// Starts the environment and the devices in a new thread, which first calls `rights` to drop the
    /// privileges that it does not need. Once per process.
    ///
    /// # Errors
    /// Each error says what to do.
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
                // The receiver is waiting.
                Err(error) => drop(opened.send(Err(error))),
            }
        };
        let thread =
            std::thread::Builder::new().name("dpdk".into()).spawn(body).map_err(DpdkError::System)?;
        let guard = Guard { stop: Some(stop), thread: Some(thread) };
        let ended = |_| DpdkError::Environment("its thread has ended".to_owned());
        let OpenedDevices { workers, opened, huge_pages, events, others } =
            result.recv().map_err(ended)??;
        Ok(Dpdk { workers, opened, huge_pages, events, others, guard })
    }
}

/// Parts of [`Dpdk`] that the thread creates.
struct OpenedDevices {
    workers: Vec<Ports>,
    opened: Vec<Opened>,
    huge_pages: bool,
    events: Receiver<LinkEvent>,
    others: OtherProcessors,
}

/// Bytes of a frame after the headroom: what most drivers expect, or a larger MTU with its Ethernet header,
/// two tags, and room for a reply.
fn room(mtu: Option<u16>) -> u16 {
    const LEAST: u16 = 2048;
    (mtu.unwrap_or(0) + 14 + 2 * 4 + 64).next_multiple_of(64).max(LEAST)
}

/// Numbers of entries of a device's rings.
fn rings(config: &DeviceConfig, ring_max: [u16; 2]) -> [u16; 2] {
    // The rings of a memif have the length in its argument, whatever is requested.
    if let Some(log2) = argument(&config.device, "rsize").and_then(|log2| log2.parse::<u32>().ok()) {
        return [1 << log2.min(14); 2];
    }
    ring_max.map(|max| if max == 0 { RING_LEN } else { RING_LEN.min(max) })
}

/// Number of buffers of a queue: a full receive ring, and the transmit rings of all devices full of packets
/// received on this queue, while bursts are processed.
fn buffers(rx_ring: u16, devices: usize) -> u32 {
    // Buffers that a thread caches.
    const CACHE: u32 = 512;
    u32::from(rx_ring) + devices as u32 * u32::from(RING_LEN.max(rx_ring)) + CACHE + 4 * BURST_MAX as u32
}

/// Memory in bytes of the environment with all packet buffers, and of DPDK's libraries. A device without
/// configured MTU counts with Ethernet's usual one.
pub fn memory_bytes(config: &DpdkConfig) -> u64 {
    // As measured with DPDK 22.11: relocated pages, tables, and stacks of threads.
    const LIBRARIES_MB: u64 = 6;
    (eal::needed_mb(buffers_mb(config)) + LIBRARIES_MB) << 20
}

/// Size in MB of all buffers, as far as it is known before the devices exist.
fn buffers_mb(config: &DpdkConfig) -> u64 {
    // DPDK's own header of each buffer, and the pool's gap between buffers.
    const EACH: u64 = 128 + 128 + 192;
    let bytes = config.devices.iter().map(|device| {
        let [rx_ring, _] = rings(device, [0; 2]);
        u64::from(buffers(rx_ring, config.devices.len())) * (u64::from(room(device.mtu)) + EACH)
    });
    ((bytes.sum::<u64>() * u64::from(config.queues)) >> 20) + 1
}

fn open(config: &DpdkConfig) -> Result<(Watch, OpenedDevices), DpdkError> {
    let workers = usize::from(config.queues.max(1));
    let processors = Processors::divide(&config.eal.cores, workers)?;
    for device in &config.devices {
        if let Some(mtu) = device.mtu.filter(|mtu| *mtu > MTU_MAX) {
            return Err(DpdkError::Mtu { device: device::name(&device.device).into(), mtu, max: MTU_MAX });
        }
        free_socket(&device.device).map_err(DpdkError::SocketBusy)?;
    }
    processors.others.pin_thread().map_err(DpdkError::System)?;
    let names = config.devices.iter().map(|device| &device.device[..]);
    let pci: Vec<&str> = names.filter(|name| device::is_pci(name)).collect();
    let low_numbers = eal::LowNumbers::take();
    let huge_pages = eal::start(&config.eal, &processors.others, buffers_mb(config), &pci)?;
    // If a later step fails, this one is undone.
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
    watch.begin(workers.iter().map(Ports::device_events).collect(), alive, sender);
    Ok((watch, OpenedDevices { workers, opened, huge_pages, events, others: processors.others }))
}

/// Starts a device with a queue for each worker.
fn open_device(
    config: &DeviceConfig,
    all: &DpdkConfig,
    queues: &mut [Vec<Port>],
    watch: &mut Watch,
) -> Result<Opened, DpdkError> {
    let mut device = Device::open(&config.device)?;
    device.is_client = device.is_memif() && is_client(&config.device);
    let name = device.name.clone();
    let wanted = queues.len() as u16;
    if device.info.queues_max < wanted {
        return Err(DpdkError::Queues { device: name, has: device.info.queues_max, wanted });
    }
    let rings = rings(config, device.info.ring_max);
    let pool = |queue| device.pool(queue, buffers(rings[0], all.devices.len()), room(config.mtu));
    let pools: Vec<Pool> = (0..queues.len()).map(pool).collect::<Result<_, _>>()?;
    // Drivers without an MTU of their own accept what fits.
    let mtu = config.mtu.filter(|mtu| *mtu <= device.info.mtu_max);
    let done = device.set_up(mtu, rings, &pools)?;
    // Its driver forgets the buffers shared with a peer when the peer disappears.
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
    watch.add(watch::WatchedDevice::new(device, started, up, forgets));
    Ok(opened)
}
