//! Ports of the daemon: opens and watches them, and creates a backend for each worker.

use super::Event;
use super::down_devices::DownDevices;
use super::killed::once_released;
use super::live_ports::LivePorts;
use super::net_helper::{self, HelperState, Routes};
use super::output::Output;
use super::port_settings::PortSettings;
use super::privileges;
use super::sandbox::Sandbox;
use anyhow::Context as _;
use gatun_io::Backend;
use gatun_io_tun::{Guard, KillBehaviour, Mode, Tun, TunConfig, TunError, WatchedDevice};
use std::any::Any;
use std::sync::mpsc::Sender;
use std::time::Duration;

#[cfg(feature = "dpdk")]
use super::dpdk;
#[cfg(feature = "xdp")]
use super::xdp::{self, OpenXdp};

/// Open ports with their watch.
#[derive(Default)]
pub(super) struct Ports {
    /// Backend of each worker.
    pub(super) backends: Vec<Box<dyn Backend>>,
    /// Names of the TUN devices in the kernel.
    pub(super) names: Vec<String>,
    /// Changes of Ethernet ports.
    pub(super) live: LivePorts,
    /// Changes of TUN devices' addresses and routes.
    pub(super) routes: Option<Routes>,
    /// State of the network helper, if there is one.
    pub(super) helper: HelperState,
    /// DPDK devices without a link.
    pub(super) down: DownDevices,
    /// Lines for the log.
    said: Vec<String>,
    /// Locks of the devices' names, or DPDK's environment, kept until the last worker has ended.
    _guards: Vec<Box<dyn Any>>,
}

impl Ports {
    /// Opens the ports. `killed` is the fate of created TUN devices if the process is killed. The network
    /// helper starts here, because it keeps rights that the daemon then drops.
    ///
    /// # Errors
    /// Returns an error that says what to do, if a port cannot be opened.
    pub(super) fn open(
        settings: &PortSettings,
        killed: KillBehaviour,
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
                let down = DownDevices::default();
                let (backends, said, guard, live) = dpdk::open(ports, user, (events, &down))?;
                let live = LivePorts { ethernet: Some(live) };
                let _guards: Vec<Box<dyn Any>> = vec![Box::new(guard)];
                Ok(Ports { backends, said, live, down, _guards, ..Ports::default() })
            }
        }
    }

    pub(super) fn describe(&self, output: &Output) {
        self.said.iter().for_each(|line| output.log(line));
    }
}

/// Longest time that a killed process may take to release its device.
const LET_GO_MAX: Duration = Duration::from_millis(500);

fn open_device(config: &TunConfig, killed: KillBehaviour) -> Result<Tun, TunError> {
    let is_taken = |error: &TunError| {
        config.mode == Mode::Create && matches!(error, TunError::Busy(_) | TunError::SecondInstance(_))
    };
    once_released(LET_GO_MAX, is_taken, || Tun::open(config, killed))
}

fn watched((name, config): (&String, &TunConfig)) -> WatchedDevice {
    let TunConfig { addresses, routes, precede_routes, .. } = config.clone();
    WatchedDevice { name: name.clone(), addresses, routes, precede_routes }
}

fn open_tun(
    configs: &[TunConfig],
    killed: KillBehaviour,
    (user, sandbox): (Option<privileges::User>, &Sandbox),
    events: &Sender<Event>,
) -> anyhow::Result<Ports> {
    let devices: Vec<Tun> = configs
        .iter()
        .map(|config| open_device(config, killed))
        .collect::<Result<_, _>>()
        .context("cannot open the devices")?;
    let names: Vec<String> = devices.iter().map(|device| device.name.clone()).collect();
    let watched: Vec<WatchedDevice> = names.iter().zip(configs).map(watched).collect();
    let (routes, helper, started) = net_helper::for_devices(&watched, (user, sandbox), events)?;
    let opened = devices.iter().zip(configs).map(|(device, config)| {
        let how = match (device.attached, config.mode) {
            (false, _) => "created",
            (true, Mode::Attach) => "attached",
            (true, Mode::Create) => "taken over from an earlier gatun",
        };
        let udp_gro = match (config.udp_gro, device.udp_gro) {
            (true, true) => "; UDP datagrams of a flow are joined (udp_gro)",
            (true, false) => "; udp_gro is off: it needs USO (Linux 6.2)",
            (false, _) => "",
        };
        format!("device {}: {how}, offloads: {}{udp_gro}", device.name, device.offloads.describe())
    });
    let preceded = devices.iter().flat_map(|device| {
        let of = |route| {
            format!(
                "device {0}: takes precedence over this route of the host until {0} is removed: {route}",
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
