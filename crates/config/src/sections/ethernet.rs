//! What a port on an Ethernet has that a TUN device has not: `[[port]]` with `backend = "xdp"` or `"dpdk"`.

use crate::Port;
use crate::keys::{self, Backend, Mode};
use crate::problem::Problems;
use crate::reader::{Read, Table, Wrong, type_name};
use crate::sections::port::{self, Network};
use crate::value;
use gatun_ether::{Mac, Prefix, Route, Settings, StaticNeighbour, Tag};
use std::net::{IpAddr, Ipv6Addr};
use toml::Spanned;
use toml::de::DeValue;

/// A port on an Ethernet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// What is between it and its device.
    pub driver: Driver,
    /// Tags of its frames, outermost first; at most two.
    pub vlan: Vec<u16>,
    /// Where to send what is not on the link.
    pub routes: Vec<Route>,
    /// Neighbours that are not asked for, as their MAC is written down.
    pub neighbours: Vec<StaticNeighbour>,
    /// What else ARP and neighbour discovery answer for.
    pub answers: Answers,
    /// The largest IP packet, bytes; `None`: the interface's MTU.
    pub mtu: Option<u32>,
    /// The realms of its IPv4 and its IPv6 packets: from 1 on where instances name the port.
    pub realms: [u8; 2],
}

/// What is between a port and its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// AF_XDP, and where its program runs.
    Xdp(XdpMode),
    /// DPDK.
    Dpdk,
}

/// Where the XDP program of an interface runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver where that can, else before the kernel's stack.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// Before the kernel's stack.
    Skb,
}

/// What else ARP and neighbour discovery answer for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// What of the translator's addresses lies in a network of the port's.
    #[default]
    Auto,
    /// These; may be none.
    List(Vec<Network>),
}

/// A device under a port: what the system says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The backend's number of it.
    pub number: u8,
    /// Its address.
    pub mac: Mac,
    /// Its MTU, bytes.
    pub mtu: u32,
}

/// Reads what a port on an Ethernet has; what only a TUN device has is an error. `None` where it is on none.
pub(crate) fn read(backend: Backend, table: &Table<'_>, problems: &mut Problems) -> Option<Ethernet> {
    let driver = match backend {
        Backend::Xdp => Driver::Xdp(read_mode(table, problems)),
        Backend::Dpdk => Driver::Dpdk,
        Backend::Tun | Backend::Pcap => return None,
    };
    if table.node("device").is_none() {
        let (word, instead) = match driver {
            Driver::Xdp(_) => ("xdp", "write the interface's name, for example `device = \"eth0\"`"),
            Driver::Dpdk => (
                "dpdk",
                "write the card's address or a driver with its arguments, for example `device = \"0000:01:00.0\"`",
            ),
        };
        problems.error(table.span.clone(), format!("`backend = \"{word}\"` needs a `device`"), instead);
    }
    if driver == Driver::Dpdk && table.node("mode").is_some() {
        let what = "`mode` is for TUN devices and AF_XDP";
        problems.error(table.span_of("mode"), what, "take it out");
    }
    for key in ["offload", "udp_gro"].into_iter().filter(|key| table.node(key).is_some()) {
        let what = format!("`{key}` is for TUN devices: others have no segments of 64 KB");
        problems.error(table.span_of(key), what, "take it out");
    }
    if table.node("precede_routes").is_some() {
        let what = "`precede_routes` is for TUN devices: others set no routes of the kernel";
        problems.error(table.span_of("precede_routes"), what, "take it out");
    }
    let vlan: Vec<u16> = table
        .list("vlan", problems, |v| value::integer(v, 1, 4094))
        .into_iter()
        .map(|v| v.into_inner() as u16)
        .collect();
    Some(Ethernet {
        driver,
        vlan,
        routes: read_routes(table, problems),
        neighbours: table
            .list("neighbours", problems, neighbour)
            .into_iter()
            .map(Spanned::into_inner)
            .collect(),
        answers: read_answers(table, problems),
        mtu: table.integer("mtu", problems),
        realms: [0; 2],
    })
}

fn read_mode(table: &Table<'_>, problems: &mut Problems) -> XdpMode {
    let mode = table.get("mode", problems, |v| match value::choice(v, keys::MODE)? {
        Mode::Auto => Ok(XdpMode::Auto),
        Mode::Native => Ok(XdpMode::Native),
        Mode::Skb => Ok(XdpMode::Skb),
        Mode::Create | Mode::Attach => Err(Wrong::with(
            "this mode is for TUN devices",
            "write `mode = \"auto\"`, \"native\" or \"skb\", or leave it out",
        )),
    });
    mode.unwrap_or_default()
}

fn read_routes(table: &Table<'_>, problems: &mut Problems) -> Vec<Route> {
    match table.node("routes").map(Spanned::get_ref) {
        None | Some(DeValue::Boolean(false)) => Vec::new(),
        Some(DeValue::String(s)) if s == "auto" => {
            let what = "`routes = \"auto\"` is for TUN devices: next hops of an Ethernet have to be written";
            let instead = "write, for example, `routes = [\"0.0.0.0/0 via 198.51.100.1\"]`";
            problems.error(table.span_of("routes"), what, instead);
            Vec::new()
        }
        Some(_) => table.list("routes", problems, route).into_iter().map(Spanned::into_inner).collect(),
    }
}

/// `PREFIX via ADDRESS`, or `PREFIX` alone for what is on the link.
fn route(value: &DeValue<'_>) -> Read<Route> {
    let s = value::text(value)?;
    let instead = "write, for example, `routes = [\"0.0.0.0/0 via 198.51.100.1\"]`";
    let (net, via) = s.split_once(" via ").map_or((s, None), |(net, via)| (net, Some(via)));
    let via = via.map(|via| {
        let what = || format!("\"{}\" is not the address of a next hop", value::shorten(via));
        via.trim().parse::<IpAddr>().map_err(|_| Wrong::with(what(), instead))
    });
    let network = port::parse_network(net.trim());
    let network =
        network.map_err(|wrong| Wrong::with(wrong.what, wrong.instead.as_deref().unwrap_or(instead)))?;
    Ok(Route { to: prefix(network), via: via.transpose()? })
}

/// `ADDRESS at MAC`.
fn neighbour(value: &DeValue<'_>) -> Read<StaticNeighbour> {
    let s = value::text(value)?;
    let read = s.split_once(" at ").and_then(|(addr, mac)| {
        Some(StaticNeighbour { addr: addr.trim().parse().ok()?, mac: mac.trim().parse().ok()? })
    });
    read.ok_or_else(|| {
        let what = format!("\"{}\" is not an address and a MAC", value::shorten(s));
        Wrong::with(what, "write, for example, `neighbours = [\"198.51.100.1 at 02:00:00:00:00:01\"]`")
    })
}

fn read_answers(table: &Table<'_>, problems: &mut Problems) -> Answers {
    match table.node("answers").map(Spanned::get_ref) {
        None => Answers::Auto,
        Some(DeValue::Boolean(false)) => Answers::List(Vec::new()),
        Some(DeValue::String(s)) if s == "auto" => Answers::Auto,
        Some(DeValue::Array(_)) => Answers::List(
            table.list("answers", problems, port::network).into_iter().map(Spanned::into_inner).collect(),
        ),
        Some(other) => {
            let what =
                format!("`answers`: \"auto\", false or a list is wanted here, not {}", type_name(other));
            let instead = "write `answers = \"auto\"`, `answers = false`, or `answers = [\"192.0.2.0/28\"]`";
            problems.error(table.span_of("answers"), what, instead);
            Answers::Auto
        }
    }
}

fn prefix(network: Network) -> Prefix {
    match network {
        Network::V4(net) => Prefix { addr: net.addr.into(), len: net.len },
        Network::V6(net) => Prefix { addr: net.addr.into(), len: net.len },
    }
}

/// The manners of ports on Ethernets, for one of so many workers; the first speaks for all. `networks` are the engine's.
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
        Some(settings(port, ethernet, device(port), &engine))
    });
    Settings { ports: ports.collect(), engine, announces: worker == 0, shares: workers > 1 }
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
    // The inner of two tags is a customer's (IEEE 802.1Q 5.6).
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

/// A link-local address of the translator's own. The one that RFC 4291 makes from the MAC is the kernel's, which has
/// the same interface; this one has other bits in the middle.
fn link_local(Mac(mac): Mac) -> Ipv6Addr {
    let mut address = [0; 16];
    address[..2].copy_from_slice(&[0xfe, 0x80]);
    let [a, b, c, d, e, f] = mac;
    address[8..].copy_from_slice(&[a ^ 2, b, c, b'g', b't', d, e, f]);
    Ipv6Addr::from(address)
}
