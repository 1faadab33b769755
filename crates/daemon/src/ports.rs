//! The ports: opened, watched, and a backend of them for each worker.

use super::Event;
#[cfg(any(feature = "xdp", feature = "dpdk"))]
use super::ethernet::{Hosts, live};
use super::live_ports::LivePorts;
use super::net_helper::{self, HelperState, Routes};
use super::outlet::Output;
use super::privileges::{self, Rights};
use super::sandbox::{Calls, Sandbox};
use anyhow::Context as _;
use gatun_io::{Backend, Processors};
use gatun_io_tun::{Guard, Killed, Mode, Tun, TunConfig, TunError, WatchedDevice};
use std::any::Any;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

#[cfg(feature = "dpdk")]
use super::dpdk::{self, DpdkPorts};
#[cfg(feature = "xdp")]
use super::xdp::{self, OpenXdp, XdpPorts};

/// What a configuration asks for.
#[derive(Clone)]
pub enum PortSettings {
    /// TUN devices, each with one queue a worker.
    Tun(Vec<TunConfig>),
    /// Network interfaces through AF_XDP.
    #[cfg(feature = "xdp")]
    Xdp(XdpPorts),
    /// Devices of DPDK.
    #[cfg(feature = "dpdk")]
    Dpdk(DpdkPorts),
}

impl PortSettings {
    /// Queues, each of which gets a worker.
    pub fn workers(&self) -> usize {
        match self {
            PortSettings::Tun(devices) => devices.iter().map(|device| device.queues).sum(),
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(ports) => ports.config.queues as usize,
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(ports) => ports.config.queues.into(),
        }
    }

    /// Memory of the packets that they are read into, bytes. DPDK has its own.
    pub fn memory_bytes(&self) -> u64 {
        match self {
            PortSettings::Tun(_) => self.workers() as u64 * gatun_io_tun::QUEUE_BYTES,
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(ports) => self.workers() as u64 * gatun_io_xdp::queue_bytes(&ports.config),
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(_) => 0,
        }
    }

    /// Processors of the workers, and for the rest. None: they are where the system puts them, or where DPDK has put them.
    ///
    /// # Errors
    /// Says what to write instead.
    pub(super) fn processors(&self, cores: &[u16]) -> anyhow::Result<Option<Processors>> {
        let takes_them_itself = match self {
            PortSettings::Tun(_) => false,
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(_) => false,
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(_) => true,
        };
        if takes_them_itself || cores.is_empty() {
            return Ok(None);
        }
        Ok(Some(Processors::divide(cores, self.workers())?))
    }

    /// What opening them needs.
    pub(super) fn rights(&self) -> Rights {
        match self {
            PortSettings::Tun(_) => Rights::Tun,
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(_) => Rights::Xdp,
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(_) => Rights::All,
        }
    }

    /// System calls of the threads that move packets, and of all others that begin later.
    pub(super) fn calls(&self) -> Calls {
        match self {
            PortSettings::Tun(_) => Calls::Daemon,
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(_) => Calls::Daemon,
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(_) => Calls::Dpdk,
        }
    }

    /// The TUN devices.
    pub(super) fn devices(&self) -> &[TunConfig] {
        match self {
            PortSettings::Tun(devices) => devices,
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(_) => &[],
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(_) => &[],
        }
    }

    /// The hosts that ports on Ethernets are.
    #[cfg(any(feature = "xdp", feature = "dpdk"))]
    pub(super) fn hosts(&self) -> Option<&Hosts> {
        match self {
            PortSettings::Tun(_) => None,
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(ports) => Some(&ports.hosts),
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(ports) => Some(&ports.hosts),
        }
    }

    /// What changes while ports on Ethernets are open, in words.
    #[cfg(any(feature = "xdp", feature = "dpdk"))]
    pub(super) fn changes(old: &PortSettings, new: &PortSettings) -> Vec<String> {
        match (old.hosts(), new.hosts()) {
            (Some(old), Some(new)) => live::changes(old, new),
            _ => Vec::new(),
        }
    }

    /// No port is on an Ethernet.
    #[cfg(not(any(feature = "xdp", feature = "dpdk")))]
    pub(super) fn changes(_: &PortSettings, _: &PortSettings) -> Vec<String> {
        Vec::new()
    }

    /// What differs, beside what TUN devices are like, and needs a restart.
    pub(super) fn differ(old: &PortSettings, new: &PortSettings) -> Vec<String> {
        match (old, new) {
            (PortSettings::Tun(old), PortSettings::Tun(new)) if old.len() == new.len() => Vec::new(),
            (PortSettings::Tun(_), PortSettings::Tun(_)) => vec!["the number of ports".to_owned()],
            #[cfg(feature = "xdp")]
            (PortSettings::Xdp(old), PortSettings::Xdp(new)) => xdp::differ(old, new),
            #[cfg(feature = "dpdk")]
            (PortSettings::Dpdk(old), PortSettings::Dpdk(new)) => dpdk::differ(old, new),
            #[cfg(any(feature = "xdp", feature = "dpdk"))]
            _ => vec!["ports of another backend".to_owned()],
        }
    }
}

/// Open ports, which are watched.
#[derive(Default)]
pub(super) struct Ports {
    /// One for each worker.
    pub(super) backends: Vec<Box<dyn Backend>>,
    /// Names of the TUN devices as the kernel has them.
    pub(super) names: Vec<String>,
    /// To let them change.
    pub(super) live: LivePorts,
    /// To give TUN devices other addresses and routes.
    pub(super) routes: Option<Routes>,
    /// The network helper, where there is one.
    pub(super) helper: HelperState,
    /// How each was opened, for the log.
    said: Vec<String>,
    /// Keep the devices' names taken, or DPDK's environment, until the last worker has ended.
    _guards: Vec<Box<dyn Any>>,
}

impl Ports {
    /// Opens them. `killed`: whether TUN devices that are made stay where the process is killed. The network helper begins here, as it keeps rights that are then given up.
    ///
    /// # Errors
    /// Each says what to do about it.
    pub(super) fn open(
        settings: &PortSettings,
        killed: Killed,
        (user, sandbox): (Option<privileges::User>, &Sandbox),
        events: &Sender<Event>,
    ) -> anyhow::Result<Ports> {
        match settings {
            PortSettings::Tun(devices) => open_tun(devices, killed, (user, sandbox), events),
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(ports) => {
                let OpenXdp { backends, said, live, helper } = xdp::open(ports, (user, sandbox), events)?;
                let live = LivePorts { ethernet: Some(live) };
                Ok(Ports { backends, said, live, helper, ..Ports::default() })
            }
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(ports) => {
                let (backends, said, guard, live) = dpdk::open(ports, user, events)?;
                let live = LivePorts { ethernet: Some(live) };
                Ok(Ports { backends, said, live, _guards: vec![Box::new(guard)], ..Ports::default() })
            }
        }
    }

    pub(super) fn describe(&self, output: &Output) {
        self.said.iter().for_each(|line| output.log(line));
    }
}

/// How long a process that was killed may take to let go of its device.
const LET_GO_MAX: Duration = Duration::from_millis(500);

fn open_device(config: &TunConfig, killed: Killed) -> Result<Tun, TunError> {
    let begin = Instant::now();
    loop {
        match Tun::open(config, killed) {
            Err(TunError::Busy(_) | TunError::SecondInstance(_))
                if config.mode == Mode::Create && begin.elapsed() < LET_GO_MAX =>
            {
                std::thread::sleep(Duration::from_millis(2));
            }
            other => return other,
        }
    }
}

fn watched((name, config): (&String, &TunConfig)) -> WatchedDevice {
    let TunConfig { addresses, routes, precede_routes, .. } = config.clone();
    WatchedDevice { name: name.clone(), addresses, routes, precede_routes }
}

fn open_tun(
    configs: &[TunConfig],
    killed: Killed,
    (user, sandbox): (Option<privileges::User>, &Sandbox),
    events: &Sender<Event>,
) -> anyhow::Result<Ports> {
    let devices: Vec<Tun> = configs
        .iter()
        .map(|config| open_device(config, killed))
        .collect::<Result<_, _>>()
        .context("no device to work on")?;
    let names: Vec<String> = devices.iter().map(|device| device.name.clone()).collect();
    let watched: Vec<WatchedDevice> = names.iter().zip(configs).map(watched).collect();
    let (routes, helper, started) = net_helper::for_devices(&watched, (user, sandbox), events)?;
    let opened = devices.iter().zip(configs).map(|(device, config)| {
        let how = match (device.attached, config.mode) {
            (false, _) => "created",
            (true, Mode::Attach) => "attached",
            (true, Mode::Create) => "taken over, as an earlier gatun left it",
        };
        let udp_gro = match (config.udp_gro, device.udp_gro) {
            (true, true) => "; UDP datagrams of one flow are written together",
            (true, false) => "; no udp_gro, which needs USO: Linux 6.2",
            (false, _) => "",
        };
        format!("device {}: {how}, offloads: {}{udp_gro}", device.name, device.offloads.describe())
    });
    let preceded = devices.iter().flat_map(|device| {
        let of = |route| {
            format!(
                "device {0}: gets packets for which the host has this route, which holds again when {0} is gone: {route}",
                device.name
            )
        };
        device.preceded.iter().map(of)
    });
    let said = opened.chain(preceded).chain([started]).collect();
    let (queues, guards): (Vec<_>, Vec<_>) = devices.into_iter().map(Tun::into_parts).unzip();
    let backends = queues.into_iter().flatten().map(|queue| Box::new(queue) as Box<dyn Backend>);
    let guards = guards.into_iter().map(|guard: Guard| Box::new(guard) as Box<dyn Any>);
    Ok(Ports {
        backends: backends.collect(),
        names,
        routes: Some(routes),
        helper,
        said,
        _guards: guards.collect(),
        ..Ports::default()
    })
}
