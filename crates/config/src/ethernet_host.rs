//! Conversion of Ethernet ports to `gatun_ether`'s configuration.

use crate::network::{Network, prefix};
use crate::sections::ethernet::{Answers, Ethernet};
use crate::sections::port::Port;
use gatun_ether::{Mac, Prefix, Settings, Tag};
use std::net::{IpAddr, Ipv6Addr};

/// Device of a port, with the system's properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Number of the device in the backend.
    pub number: u8,
    /// MAC address.
    pub mac: Mac,
    /// Its MTU, bytes.
    pub mtu: u32,
}

/// Settings of the host on Ethernet ports, for worker number `worker` of `workers`; worker 0 sends the
/// announcements. `networks` are the engine's.
pub fn host(
    ports: &[Port],
    networks: &[Network],
    device: impl Fn(&Port) -> Device,
    workers: usize,
    worker: usize,
) -> Settings {
    let engine: Vec<Prefix> = networks.iter().copied().map(prefix).collect();
    let ports = ports.iter().filter_map(|port| {
        let ethernet = port.ethernet.as_ref()?;
        let device = device(port);
        let number = switch_device(ports, port).unwrap_or(device.number);
        Some(settings(port, ethernet, Device { number, ..device }, &engine))
    });
    Settings { ports: ports.collect(), engine, announces: worker == 0, shares: workers > 1 }
}

/// Number of the first port of a P4 switch as a device.
const SWITCH_DEVICES: usize = 128;

/// Number as a device of the port of a P4 switch that a port of the configuration is. Ports that differ by
/// their VLANs have the same one. `None` for any other port.
pub fn switch_device(ports: &[Port], port: &Port) -> Option<u8> {
    let place = |of: &Port| Some((of.ethernet.as_ref()?.switch_port?, of.device.clone()));
    let wanted = place(port)?;
    let first = ports.iter().position(|other| place(other).as_ref() == Some(&wanted))?;
    u8::try_from(SWITCH_DEVICES + first).ok()
}

fn settings(
    port: &Port,
    ethernet: &Ethernet,
    device: Device,
    engine: &[Prefix],
) -> gatun_ether::PortSettings {
    let mut addresses: Vec<Prefix> = port.addresses.iter().map(|&(addr, len)| Prefix { addr, len }).collect();
    let answers = match &ethernet.answers {
        Answers::List(list) => list.iter().copied().map(prefix).collect(),
        Answers::Auto => {
            let on_link = |p: &&Prefix| addresses.iter().any(|own| own.len < p.len && own.contains(p.addr));
            let own = |p: &&Prefix| addresses.iter().any(|own| own.addr == p.addr);
            engine.iter().filter(on_link).filter(|p| !own(p)).copied().collect()
        }
    };
    if !addresses.iter().any(|own| is_link_local(own.addr)) {
        addresses.push(Prefix { addr: link_local(device.mac).into(), len: 64 });
    }
    // Of two tags the inner one is a customer tag (IEEE 802.1Q 5.6).
    let outer = if ethernet.vlan.len() > 1 { Tag::service as fn(u16) -> Tag } else { Tag::customer };
    let tags = ethernet.vlan.iter().enumerate();
    let tags = tags.map(|(i, vlan)| if i == 0 { outer(*vlan) } else { Tag::customer(*vlan) });
    gatun_ether::PortSettings {
        name: port.name.clone(),
        device: device.number,
        mac: device.mac,
        tags: tags.collect(),
        mtu: ethernet.mtu.unwrap_or(device.mtu),
        addresses,
        answers,
        routes: ethernet.routes.clone(),
        neighbours: ethernet.neighbours.clone(),
        realms: ethernet.realms,
    }
}

fn is_link_local(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V6(a) if a.is_unicast_link_local())
}

/// A link-local address of the translator. The kernel uses the address that RFC 4291 derives from the MAC on
/// the same interface; this one differs in the middle bits.
fn link_local(Mac(mac): Mac) -> Ipv6Addr {
    let mut address = [0; 16];
    address[..2].copy_from_slice(&[0xfe, 0x80]);
    let [a, b, c, d, e, f] = mac;
    address[8..].copy_from_slice(&[a ^ 2, b, c, b'g', b't', d, e, f]);
    Ipv6Addr::from(address)
}
