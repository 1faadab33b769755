//! Ports on network interfaces through AF_XDP.

use super::ethernet::Backends;
use super::ethernet::live::LiveEthernet;
use super::net_helper::{self, HelperState};
use super::port_settings::{Hosts, XdpPorts};
use super::sandbox::{Calls, Sandbox};
use super::{Event, privileges};
use anyhow::Context as _;
use gatun_config::{Device, Port};
use gatun_ether::Mac;
use gatun_io_xdp::{Opened, PrefixRule, Watch, Xdp};
use std::net::IpAddr;
use std::sync::mpsc::{Sender, channel};

fn device(opened: &[Opened], port: &Port) -> Device {
    let number = opened.iter().position(|opened| opened.interface.name == port.device).unwrap_or(0);
    let found = opened.get(number).map(|opened| &opened.interface);
    let (mac, mtu) = found.map_or(([0; 6], 1500), |interface| (interface.mac, interface.mtu));
    Device { number: number as u8, mac: Mac(mac), mtu }
}

/// Open interfaces with their watch.
pub(super) struct OpenXdp {
    pub(super) backends: Backends,
    /// Lines for the log.
    pub(super) said: Vec<String>,
    pub(super) live: LiveEthernet,
    pub(super) helper: HelperState,
}

/// Opens the interfaces, starts the thread that watches them, and creates a backend for each worker.
pub(super) fn open(
    ports: &XdpPorts,
    (user, sandbox): (Option<privileges::User>, &Sandbox),
    events: &Sender<Event>,
) -> anyhow::Result<OpenXdp> {
    let mut xdp = Xdp::open(&ports.config).context("cannot open the interfaces")?;
    // The program also has to take addresses that are derived from MACs.
    let own = |addr: IpAddr| match addr {
        IpAddr::V6(addr) => xdp.watch.take_more(PrefixRule::To6(addr, 128)),
        IpAddr::V4(_) => Ok(()),
    };
    let ethers = ports.hosts.ethers(xdp.workers.len(), |port| device(&xdp.opened, port), own)?;
    let (privileged, helper, started) =
        net_helper::for_interfaces(&xdp.watch.helper_parts()?, (user, sandbox), events)?;
    xdp.watch.delegate(privileged);
    let said = xdp.opened.iter();
    let said = said
        .flat_map(|opened| [Some(describe(opened)), small_mtu(opened, &ports.hosts), super_packets(opened)]);
    let said = said.flatten().chain([started]).collect();
    let devices: Vec<_> = xdp.opened.iter().map(Opened::device).collect();
    let (backends, handovers) = super::ethernet::backends(xdp.workers, &devices, &[], ethers)?;
    let behind = |port: &Port| (port.device.clone(), device(&xdp.opened, port));
    let devices = ports.hosts.ports.iter().map(behind).collect();
    let live = LiveEthernet { devices, handovers, program: Some(xdp.watch.rule_updates()) };
    watch(xdp.watch, (user, sandbox.clone()), events.clone())?;
    Ok(OpenXdp { backends, said, live, helper })
}

fn describe(opened: &Opened) -> String {
    let mode = if opened.native { "in the driver (native)" } else { "before the kernel's stack (skb)" };
    let copy = if opened.zero_copy { "zero copy" } else { "packets are copied" };
    let Opened { interface, .. } = opened;
    let up = if interface.up { "" } else { "; link is down" };
    format!("interface {}: XDP program {mode}, {copy}, MTU {}{up}", interface.name, interface.mtu)
}

fn small_mtu(opened: &Opened, hosts: &Hosts) -> Option<String> {
    let Opened { interface, .. } = opened;
    hosts.small_mtu(&format!("interface {}", interface.name), interface.mtu)
}

/// Warns of super-packets. In native mode, the kernel sends none to an interface with an XDP program.
fn super_packets(opened: &Opened) -> Option<String> {
    let Opened { interface, native, .. } = opened;
    (interface.software && !native).then(|| {
        format!(
            "warning: interface {}: without native mode, super-packets from the other end are dropped (rx_truncated): run ethtool -K DEVICE tso off gso off there",
            interface.name
        )
    })
}

/// Starts the thread that reports interface events. It has no capability, except for registering packet
/// memory if the limit of locked memory is too low.
fn watch(
    mut watch: Watch,
    (user, sandbox): (Option<privileges::User>, Sandbox),
    events: Sender<Event>,
) -> anyhow::Result<()> {
    let (ready, readiness) = channel();
    let body = move || {
        let rights = privileges::keep_for_registration(user.as_ref());
        sandbox.enter(Calls::Interfaces);
        let fine = rights.is_ok();
        if ready.send(rights).is_err() || !fine {
            return;
        }
        let deaf = loop {
            match watch.wait() {
                Ok(event) if events.send(Event::Line(say(&event))).is_ok() => {}
                Ok(_) => return,
                Err(error) => break error,
            }
        };
        // If nobody listens, the process is ending.
        let _ = events.send(Event::LinksUnwatched(deaf));
        // Dropping `watch` would remove the programs.
        loop {
            std::thread::park();
        }
    };
    std::thread::Builder::new()
        .name("links".into())
        .spawn(body)
        .context("cannot start the thread that watches interfaces")?;
    readiness.recv().context("the thread that watches interfaces has ended")?
}

/// Log line of an event.
fn say(event: &gatun_io_xdp::InterfaceEvent) -> String {
    use gatun_io_xdp::InterfaceEvent;
    match event {
        InterfaceEvent::Down(name) => {
            format!("interface {name}: link is down; no packets pass until it is up again")
        }
        InterfaceEvent::Up(name) => format!("interface {name}: link is up again"),
        InterfaceEvent::Gone(name) => format!(
            "interface {name}: removed; sessions continue, and gatun uses the interface again once it returns"
        ),
        InterfaceEvent::Back(opened) => format!("{}; it is back", describe(opened)),
        InterfaceEvent::Address(name, mac) => format!("interface {name}: MAC address is now {mac}"),
        InterfaceEvent::Refused(name, error) => {
            format!("interface {name}: it is back but cannot be used: {error}; gatun retries when it changes")
        }
    }
}
