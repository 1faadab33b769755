//! Ports on network interfaces through AF_XDP.

use super::ethernet::live::{self, Live};
use super::ethernet::{Backends, Hosts};
use super::sandbox::{Calls, Sandbox};
use super::{Event, privileges};
use anyhow::Context as _;
use gatun_config::{Config, Device, Driver, Network, Port, XdpMode};
use gatun_ether::Mac;
use gatun_io_xdp::{Mode, Opened, Owner, PortConfig, PrefixRule, Watch, Xdp, XdpConfig};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{Sender, channel};

/// What a configuration asks for.
#[derive(Clone, PartialEq, Eq)]
pub struct XdpPorts {
    /// The interfaces, and what their program takes, but for addresses that are made from MACs.
    pub(super) config: XdpConfig,
    pub(super) hosts: Hosts,
}

impl XdpPorts {
    /// Of a configuration whose ports are on Ethernets.
    pub fn of(config: &Config) -> XdpPorts {
        let mode = |device: &str| {
            let port = config.ports.iter().find(|port| port.device == device);
            match port.and_then(|port| port.ethernet.as_ref()).map(|ethernet| ethernet.driver) {
                Some(Driver::Xdp(XdpMode::Native)) => Mode::Native,
                Some(Driver::Xdp(XdpMode::Skb)) => Mode::Skb,
                Some(Driver::Xdp(XdpMode::Auto) | Driver::Dpdk) | None => Mode::Auto,
            }
        };
        let devices = config.devices();
        let ports =
            devices.iter().map(|device| PortConfig { interface: (*device).into(), mode: mode(device) });
        let hosts = Hosts::of(config);
        let queues = config.ports.first().and_then(|port| port.queues).unwrap_or(1);
        let entries = entries(config, &hosts.networks);
        XdpPorts { config: XdpConfig { ports: ports.collect(), queues: queues.into(), entries }, hosts }
    }

    /// All that the program takes or leaves to the kernel, once what is behind a port is known.
    pub(super) fn taken(&self, device: impl Fn(&Port) -> Device) -> Vec<(PrefixRule, Owner)> {
        let addresses = self.hosts.addresses(device);
        let own = addresses.filter_map(|addr| match addr {
            IpAddr::V6(addr) => Some((PrefixRule::To6(addr, 128), Owner::Gatun)),
            IpAddr::V4(_) => None,
        });
        self.config.entries.iter().copied().chain(own).collect()
    }
}

fn device(opened: &[Opened], port: &Port) -> Device {
    let number = opened.iter().position(|opened| opened.interface.name == port.device).unwrap_or(0);
    let found = opened.get(number).map(|opened| &opened.interface);
    let (mac, mtu) = found.map_or(([0; 6], 1500), |interface| (interface.mac, interface.mtu));
    Device { number: number as u8, mac: Mac(mac), mtu }
}

/// What the program takes, and what it leaves to the kernel.
fn entries(config: &Config, networks: &[Network]) -> Vec<(PrefixRule, Owner)> {
    let to = |addr: IpAddr, len| match addr {
        IpAddr::V4(addr) => PrefixRule::To4(addr, len),
        IpAddr::V6(addr) => PrefixRule::To6(addr, len),
    };
    let network = |network: &Network| match network {
        Network::V4(net) => to(net.addr.into(), net.len),
        Network::V6(net) => to(net.addr.into(), net.len),
    };
    // Groups, and the broadcast address: what subscribers say to all on the link is not translated.
    let mut entries = vec![
        (PrefixRule::To4(Ipv4Addr::new(224, 0, 0, 0), 4), Owner::Kernel),
        (PrefixRule::To4(Ipv4Addr::BROADCAST, 32), Owner::Kernel),
    ];
    let exempt = config.plan.nat44.iter().flat_map(|instance| &instance.exempt);
    // Where a port or a protocol counts, the engine looks.
    let exempt = exempt.filter(|exempt| exempt.transport.is_none() && exempt.ports.is_none());
    entries.extend(exempt.map(|e| (PrefixRule::To4(e.net.addr, e.net.len), Owner::Kernel)));
    entries.extend(networks.iter().map(|net| (network(net), Owner::Gatun)));
    let inside = config.plan.nat44.iter().flat_map(|instance| &instance.inside);
    entries.extend(inside.map(|net| (PrefixRule::From4(net.addr, net.len), Owner::Gatun)));
    let behind_clat = config.mapped_hosts().into_iter();
    entries.extend(behind_clat.map(|net| (PrefixRule::From4(net.addr, net.len), Owner::Gatun)));
    for port in &config.ports {
        let own = port.addresses.iter().map(|(addr, _)| match addr.is_ipv4() {
            true => to(*addr, 32),
            false => to(*addr, 128),
        });
        entries.extend(own.map(|entry| (entry, Owner::Gatun)));
        if let Some(gatun_config::Answers::List(list)) = port.ethernet.as_ref().map(|e| &e.answers) {
            entries.extend(list.iter().map(|net| (network(net), Owner::Gatun)));
        }
    }
    entries
}

/// Opens the interfaces, begins to watch them, and makes a backend for each worker; with a line for each interface.
pub(super) fn open(
    ports: &XdpPorts,
    (user, sandbox): (Option<privileges::User>, &Sandbox),
    events: &Sender<Event>,
) -> anyhow::Result<(Backends, Vec<String>, Live)> {
    let xdp = Xdp::open(&ports.config).context("no interface to work on")?;
    // The program has to know addresses that are made from MACs as well.
    let own = |addr: IpAddr| match addr {
        IpAddr::V6(addr) => xdp.watch.take_more(PrefixRule::To6(addr, 128)),
        IpAddr::V4(_) => Ok(()),
    };
    let ethers = ports.hosts.ethers(xdp.workers.len(), |port| device(&xdp.opened, port), own)?;
    let said = xdp.opened.iter();
    let said = said
        .flat_map(|opened| [Some(describe(opened)), small_mtu(opened, &ports.hosts), super_packets(opened)]);
    let said = said.flatten().collect();
    let devices: Vec<_> = xdp.opened.iter().map(Opened::device).collect();
    let (backends, handovers) = super::ethernet::backends(xdp.workers, &devices, ethers)?;
    let behind = |port: &Port| (port.device.clone(), device(&xdp.opened, port));
    let devices = ports.hosts.ports.iter().map(behind).collect();
    let live = Live { devices, handovers, program: Some(xdp.watch.rule_updates()) };
    watch(xdp.watch, (user, sandbox.clone()), events.clone())?;
    Ok((backends, said, live))
}

fn describe(opened: &Opened) -> String {
    let mode = if opened.native { "in the driver (native)" } else { "before the kernel's stack (skb)" };
    let copy = if opened.zero_copy { "zero copy" } else { "packets are copied" };
    let Opened { interface, .. } = opened;
    let up = if interface.up { "" } else { "; its link is down" };
    format!("interface {}: XDP program {mode}, {copy}, MTU {}{up}", interface.name, interface.mtu)
}

fn small_mtu(opened: &Opened, hosts: &Hosts) -> Option<String> {
    let Opened { interface, .. } = opened;
    hosts.small_mtu(&format!("interface {}", interface.name), interface.mtu)
}

/// In native mode the kernel sends none to an interface with an XDP program.
fn super_packets(opened: &Opened) -> Option<String> {
    let Opened { interface, native, .. } = opened;
    (interface.software && !native).then(|| {
        format!(
            "warning: interface {}: without native mode the other end's super-packets are lost (rx_truncated): ethtool -K DEVICE tso off gso off there",
            interface.name
        )
    })
}

/// Sends an event whenever something happens to an interface, from now on. The thread keeps the rights to use an
/// interface that comes back.
fn watch(
    mut watch: Watch,
    (user, sandbox): (Option<privileges::User>, Sandbox),
    events: Sender<Event>,
) -> anyhow::Result<()> {
    let (ready, readiness) = channel();
    let body = move || {
        let rights = privileges::keep_for_xdp(user.as_ref());
        sandbox.enter(Calls::Interfaces);
        let fine = rights.is_ok();
        if ready.send(rights).is_err() || !fine {
            return;
        }
        let deaf = loop {
            match watch.wait() {
                Ok(event) if events.send(Event::Interface(say(&event))).is_ok() => {}
                Ok(_) => return,
                Err(error) => break error,
            }
        };
        // Where nobody listens, the process ends.
        let _ = events.send(Event::LinksUnwatched(deaf));
        // The programs would go with `watch`.
        loop {
            std::thread::park();
        }
    };
    std::thread::Builder::new().name("links".into()).spawn(body).context("no thread to watch interfaces")?;
    readiness.recv().context("the thread that watches interfaces has ended")?
}

/// What an operator reads about it.
fn say(event: &gatun_io_xdp::InterfaceEvent) -> String {
    use gatun_io_xdp::InterfaceEvent;
    match event {
        InterfaceEvent::Down(name) => {
            format!("interface {name}: its link is down: no packet crosses until it is up again")
        }
        InterfaceEvent::Up(name) => format!("interface {name}: its link is up again"),
        InterfaceEvent::Gone(name) => format!(
            "interface {name}: it is gone; it is used again once there is one of this name, and sessions live on"
        ),
        InterfaceEvent::Back(opened) => format!("{}; it is back", describe(opened)),
        InterfaceEvent::Address(name, mac) => format!("interface {name}: its address is {mac} now"),
        InterfaceEvent::Refused(name, error) => {
            format!("interface {name}: it is back and cannot be used: {error}; tried again when it changes")
        }
    }
}

/// What differs, and needs a restart.
pub(super) fn differ(old: &XdpPorts, new: &XdpPorts) -> Vec<String> {
    let devices = |ports: &XdpPorts| (ports.config.ports.clone(), ports.config.queues);
    let differ = devices(old) != devices(new) || live::needs_restart(&old.hosts, &new.hosts);
    let what = "ports with backend \"xdp\": their number, devices, modes, queues, VLANs or MTUs";
    if differ { vec![what.to_owned()] } else { Vec::new() }
}
