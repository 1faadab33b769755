//! Settings of ports on network interfaces through AF_XDP.

use super::hosts::{self, Hosts};
use gatun_config::{Config, Device, Driver, Network, Port, XdpMode};
use gatun_io_xdp::{Mode, Owner, PortConfig, PrefixRule, XdpConfig};
use std::net::{IpAddr, Ipv4Addr};

/// Requested configuration.
#[derive(Clone, PartialEq, Eq)]
pub struct XdpPorts {
    /// Interfaces and the rules of their program, without addresses that are derived from MACs.
    pub(crate) config: XdpConfig,
    pub(crate) hosts: Hosts,
}

impl XdpPorts {
    /// Settings from a configuration with AF_XDP ports.
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

    /// Rules of the XDP program. `device` gives the interface of a port.
    pub(crate) fn taken(&self, device: impl Fn(&Port) -> Device) -> Vec<(PrefixRule, Owner)> {
        let addresses = self.hosts.addresses(device);
        let own = addresses.filter_map(|addr| match addr {
            IpAddr::V6(addr) => Some((PrefixRule::To6(addr, 128), Owner::Gatun)),
            IpAddr::V4(_) => None,
        });
        self.config.entries.iter().copied().chain(own).collect()
    }
}

/// Prefixes that the program takes or leaves to the kernel.
fn entries(config: &Config, networks: &[Network]) -> Vec<(PrefixRule, Owner)> {
    let to = |addr: IpAddr, len| match addr {
        IpAddr::V4(addr) => PrefixRule::To4(addr, len),
        IpAddr::V6(addr) => PrefixRule::To6(addr, len),
    };
    let network = |network: &Network| match network {
        Network::V4(net) => to(net.addr.into(), net.len),
        Network::V6(net) => to(net.addr.into(), net.len),
    };
    // Multicast and broadcast packets of subscribers are not translated.
    let mut entries = vec![
        (PrefixRule::To4(Ipv4Addr::new(224, 0, 0, 0), 4), Owner::Kernel),
        (PrefixRule::To4(Ipv4Addr::BROADCAST, 32), Owner::Kernel),
    ];
    let exempt = config.plan.nat44.iter().flat_map(|instance| &instance.exempt);
    // The engine decides on exemptions that depend on a port or a protocol.
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

/// Lists differences that need a restart.
pub(crate) fn differ(old: &XdpPorts, new: &XdpPorts) -> Vec<String> {
    let devices = |ports: &XdpPorts| (ports.config.ports.clone(), ports.config.queues);
    let differ = devices(old) != devices(new) || hosts::needs_restart(&old.hosts, &new.hosts);
    let what = "ports with backend \"xdp\": their number, devices, modes, queues, VLANs or MTUs";
    if differ { vec![what.to_owned()] } else { Vec::new() }
}
