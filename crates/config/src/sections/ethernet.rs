//! Keys of an Ethernet port: `[[port]]` with `backend = "xdp"` or `"dpdk"`.

use crate::keys::{self, Backend, Mode};
use crate::network::{Network, network, parse_network, prefix};
use crate::problem::Problems;
use crate::reader::Table;
use crate::value::{self, Invalid, Read, type_name};
use gatun_ether::{Route, StaticNeighbour};
use std::net::IpAddr;
use toml::Spanned;
use toml::de::DeValue;

/// A port on an Ethernet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Driver of its device.
    pub driver: Driver,
    /// Tags of its frames, outermost first; at most two.
    pub vlan: Vec<u16>,
    /// Port of a P4 switch, if the device is connected to the switch's port for its controller.
    pub switch_port: Option<u16>,
    /// Name of that switch in `[[offload]]`. `None`: the only one.
    pub switch: Option<String>,
    /// Routes to destinations that are not on the link.
    pub routes: Vec<Route>,
    /// Static neighbours, with their MAC addresses.
    pub neighbours: Vec<StaticNeighbour>,
    /// Further addresses that ARP and neighbour discovery answer for.
    pub answers: Answers,
    /// Largest IP packet, bytes; `None`: the interface's MTU.
    pub mtu: Option<u32>,
    /// Realms of its IPv4 and its IPv6 packets: 0, or from 1 on if instances name the port.
    pub realms: [u8; 2],
}

/// Driver of a port's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// AF_XDP, and the hook of its program.
    Xdp(XdpMode),
    /// DPDK.
    Dpdk,
}

/// Hook of the XDP program of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// XDP in the driver if it supports that, otherwise before the kernel's stack.
    #[default]
    Auto,
    /// XDP in the driver.
    Native,
    /// XDP before the kernel's stack.
    Skb,
}

/// Further addresses that ARP and neighbour discovery answer for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// Addresses of the translator in a network of the port.
    #[default]
    Auto,
    /// These; the list may be empty.
    List(Vec<Network>),
}

/// Reads the keys of an Ethernet port; keys of TUN devices only are errors. Returns `None` for a TUN device.
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
                "write the card's bus address, or a driver with its arguments, for example `device = \"0000:01:00.0\"`",
            ),
        };
        problems.error(table.span.clone(), format!("`backend = \"{word}\"` needs a `device`"), instead);
    }
    if driver == Driver::Dpdk && table.node("mode").is_some() {
        let what = "`mode` is for TUN devices and AF_XDP";
        problems.error(table.span_of("mode"), what, "remove it");
    }
    for key in ["offload", "udp_gro"].into_iter().filter(|key| table.node(key).is_some()) {
        let what = format!("`{key}` is for TUN devices: others have no segments of 64 KB");
        problems.error(table.span_of(key), what, "remove it");
    }
    if table.node("precede_routes").is_some() {
        let what = "`precede_routes` is for TUN devices: others set no routes of the kernel";
        problems.error(table.span_of("precede_routes"), what, "remove it");
    }
    let vlan: Vec<u16> = table
        .list("vlan", problems, |v| value::integer(v, 1, 4094))
        .into_iter()
        .map(|v| v.into_inner() as u16)
        .collect();
    if vlan.len() > 1 && table.node("switch_port").is_some() {
        let what = "two `vlan`s: a P4 switch knows one VLAN tag";
        problems.error(table.span_of("vlan"), what, "write one, or none");
    }
    Some(Ethernet {
        driver,
        vlan,
        switch_port: read_switch_port(driver, table, problems),
        switch: read_switch(table, problems),
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

fn read_switch_port(driver: Driver, table: &Table<'_>, problems: &mut Problems) -> Option<u16> {
    let port = table.integer("switch_port", problems).map(|n| n as u16);
    if port.is_some() && driver != Driver::Dpdk {
        let what = "`switch_port` needs DPDK: the program of AF_XDP does not know the switch's header";
        let instead =
            "write `backend = \"dpdk\"` with `device = \"net_af_packet0,iface=...\"` or a memif device";
        problems.error(table.span_of("switch_port"), what, instead);
    }
    port
}

fn read_switch(table: &Table<'_>, problems: &mut Problems) -> Option<String> {
    let switch = table.get("switch", problems, value::name);
    if switch.is_some() && table.node("switch_port").is_none() {
        let what = "`switch` needs `switch_port`: the number of the port there";
        problems.error(table.span_of("switch"), what, table.example("switch_port"));
    }
    switch
}

fn read_mode(table: &Table<'_>, problems: &mut Problems) -> XdpMode {
    let mode = table.get("mode", problems, |v| match value::choice(v, keys::MODE)? {
        Mode::Auto => Ok(XdpMode::Auto),
        Mode::Native => Ok(XdpMode::Native),
        Mode::Skb => Ok(XdpMode::Skb),
        Mode::Create | Mode::Attach => Err(Invalid::with(
            "this mode is for TUN devices",
            "write `mode = \"auto\"`, \"native\" or \"skb\", or remove it",
        )),
    });
    mode.unwrap_or_default()
}

fn read_routes(table: &Table<'_>, problems: &mut Problems) -> Vec<Route> {
    match table.node("routes").map(Spanned::get_ref) {
        None | Some(DeValue::Boolean(false)) => Vec::new(),
        Some(DeValue::String(s)) if s == "auto" => {
            let what = "`routes = \"auto\"` is for TUN devices: an Ethernet port needs explicit next hops";
            let instead = "write, for example, `routes = [\"0.0.0.0/0 via 198.51.100.1\"]`";
            problems.error(table.span_of("routes"), what, instead);
            Vec::new()
        }
        Some(_) => table.list("routes", problems, route).into_iter().map(Spanned::into_inner).collect(),
    }
}

/// Parses `PREFIX via ADDRESS`, or `PREFIX` alone for a network on the link.
fn route(value: &DeValue<'_>) -> Read<Route> {
    let s = value::text(value)?;
    let instead = "write, for example, `routes = [\"0.0.0.0/0 via 198.51.100.1\"]`";
    let (net, via) = s.split_once(" via ").map_or((s, None), |(net, via)| (net, Some(via)));
    let via = via.map(|via| {
        let what = || format!("\"{}\" is not the address of a next hop", value::shorten(via));
        via.trim().parse::<IpAddr>().map_err(|_| Invalid::with(what(), instead))
    });
    let network = parse_network(net.trim());
    let network =
        network.map_err(|wrong| Invalid::with(wrong.what, wrong.instead.as_deref().unwrap_or(instead)))?;
    Ok(Route { to: prefix(network), via: via.transpose()? })
}

/// Parses `ADDRESS at MAC`.
fn neighbour(value: &DeValue<'_>) -> Read<StaticNeighbour> {
    let s = value::text(value)?;
    let read = s.split_once(" at ").and_then(|(addr, mac)| {
        Some(StaticNeighbour { addr: addr.trim().parse().ok()?, mac: mac.trim().parse().ok()? })
    });
    read.ok_or_else(|| {
        let what = format!("\"{}\" is not an address and a MAC", value::shorten(s));
        Invalid::with(what, "write, for example, `neighbours = [\"198.51.100.1 at 02:00:00:00:00:01\"]`")
    })
}

fn read_answers(table: &Table<'_>, problems: &mut Problems) -> Answers {
    match table.node("answers").map(Spanned::get_ref) {
        None => Answers::Auto,
        Some(DeValue::Boolean(false)) => Answers::List(Vec::new()),
        Some(DeValue::String(s)) if s == "auto" => Answers::Auto,
        Some(DeValue::Array(_)) => Answers::List(
            table.list("answers", problems, network).into_iter().map(Spanned::into_inner).collect(),
        ),
        Some(other) => {
            let what = format!("`answers`: expected \"auto\", false or a list, found {}", type_name(other));
            let instead = "write `answers = \"auto\"`, `answers = false`, or `answers = [\"192.0.2.0/28\"]`";
            problems.error(table.span_of("answers"), what, instead);
            Answers::Auto
        }
    }
}
