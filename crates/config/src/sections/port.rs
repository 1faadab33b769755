//! `[[port]]`: devices that packets are received from and sent to.

use crate::keys::{self, Backend, Mode};
use crate::network::{Network, network};
use crate::problem::Problems;
use crate::reader::Table;
use crate::sections::dpdk;
use crate::sections::ethernet::{self, Answers, Driver, Ethernet};
use crate::value::{self, Invalid, Read, type_name};
use std::net::IpAddr;
use toml::Spanned;
use toml::de::DeValue;

/// A port: a TUN device, or an Ethernet interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name, for operators.
    pub name: String,
    /// Device name in the system, at most 15 bytes; for DPDK, the device with its arguments.
    pub device: String,
    /// Creates the device or attaches to an existing one.
    pub mode: DeviceMode,
    /// Number of queues, each served by one worker; `None`: one per processor.
    pub queues: Option<u16>,
    /// Addresses with prefix lengths: the kernel's on a TUN device, the translator's on an Ethernet.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Routes to the device.
    pub routes: Routes,
    /// True if the device's routes take precedence over the host's routes to the same networks.
    pub precede_routes: bool,
    /// MTU of the device in bytes.
    pub mtu: u32,
    /// True if segments of up to 64 KB pass as one packet.
    pub offload: bool,
    /// True if UDP datagrams of one flow are given to the kernel together.
    pub udp_gro: bool,
    /// Settings of an Ethernet port; `None` for a TUN device. If set, `mode`, `routes`, `precede_routes`,
    /// `mtu`, `offload` and `udp_gro` have no effect.
    pub ethernet: Option<Ethernet>,
}

impl Port {
    /// The port without the settings that can change while it is open. If two ports are equal in this form,
    /// replacing one by the other needs no restart.
    pub fn fixed(&self) -> Port {
        let mut port = Port { addresses: Vec::new(), routes: Routes::default(), ..self.clone() };
        if let Some(ethernet) = &mut port.ethernet {
            ethernet.routes.clear();
            ethernet.neighbours.clear();
            ethernet.answers = Answers::Auto;
        }
        port
    }
}

/// Origin of a TUN device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceMode {
    /// Created at start, removed at the end.
    #[default]
    Create,
    /// An existing persistent device.
    Attach,
}

/// Routes to a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Routes {
    /// Networks of [`crate::Config::routes`].
    #[default]
    Auto,
    /// These; the list may be empty.
    List(Vec<Network>),
}

/// A port as in the file; missing names are filled in once all are known.
pub(crate) struct RawPort {
    pub(crate) name: Option<Spanned<String>>,
    pub(crate) device: Option<Spanned<String>>,
    pub(crate) mode: DeviceMode,
    pub(crate) queues: Option<u16>,
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    pub(crate) routes: Routes,
    pub(crate) precede_routes: bool,
    pub(crate) mtu: Option<u32>,
    pub(crate) offload: bool,
    pub(crate) udp_gro: bool,
    pub(crate) ethernet: Option<Ethernet>,
    pub(crate) span: std::ops::Range<usize>,
}

impl RawPort {
    /// The default port of a file without `[[port]]`.
    pub(crate) fn unwritten() -> Self {
        RawPort {
            name: None,
            device: None,
            mode: DeviceMode::Create,
            queues: None,
            addresses: Vec::new(),
            routes: Routes::Auto,
            precede_routes: false,
            mtu: None,
            offload: true,
            udp_gro: false,
            ethernet: None,
            span: 0..0,
        }
    }
}

pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> RawPort {
    let backend = table.get("backend", problems, |v| match value::choice(v, keys::BACKEND)? {
        backend @ (Backend::Tun | Backend::Xdp | Backend::Dpdk) => Ok(backend),
        Backend::Pcap => Err(Invalid::with(
            "the daemon does not read capture files",
            "write `backend = \"tun\"`; `gatun translate` reads capture files",
        )),
    });
    let backend = backend.unwrap_or(Backend::Tun);
    if let Some(ethernet) = ethernet::read(backend, table, problems) {
        let name = if ethernet.driver == Driver::Dpdk { dpdk::device } else { device_name };
        return RawPort { ethernet: Some(ethernet), ..read_common(table, name, problems) };
    }
    for key in ["vlan", "switch_port", "switch", "answers", "neighbours"]
        .into_iter()
        .filter(|key| table.node(key).is_some())
    {
        let what = format!("`{key}` is for ports on an Ethernet");
        problems.error(table.span_of(key), what, "remove it, or write `backend = \"xdp\"` or \"dpdk\"");
    }
    let offload = table.flag("offload", problems).unwrap_or(true);
    let udp_gro = table.flag("udp_gro", problems).unwrap_or(false);
    if udp_gro && !offload {
        let what = "`udp_gro` is one of the offloads that `offload = false` switches off";
        problems.error(table.span_of("udp_gro"), what, "remove one of the two");
    }
    let mode = table.get("mode", problems, device_mode).unwrap_or_default();
    let precede_routes = table.flag("precede_routes", problems).unwrap_or(false);
    if precede_routes && mode == DeviceMode::Attach {
        let what = "`precede_routes` needs a device that gatun removes at its end: with `mode = \"attach\"` the \
                    device would keep its routes, and the host would not get its own ones back";
        let instead = "write `mode = \"create\"`, or `routes = false` and set routes by hand";
        problems.error(table.span_of("precede_routes"), what, instead);
    }
    RawPort {
        mode,
        routes: read_routes(table, problems),
        precede_routes,
        mtu: table.integer("mtu", problems),
        offload,
        udp_gro,
        ..read_common(table, device_name, problems)
    }
}

/// Reads the keys of all backends.
fn read_common(
    table: &Table<'_>,
    device: fn(&DeValue<'_>) -> Read<String>,
    problems: &mut Problems,
) -> RawPort {
    let spanned = |name: &str, text: String| Spanned::new(table.span_of(name), text);
    RawPort {
        name: table.get("name", problems, value::name).map(|s| spanned("name", s)),
        device: table.get("device", problems, device).map(|s| spanned("device", s)),
        queues: table.integer("queues", problems).map(|n| n as u16),
        addresses: table.list("addresses", problems, address).into_iter().map(Spanned::into_inner).collect(),
        span: table.span.clone(),
        ..RawPort::unwritten()
    }
}

fn device_mode(value: &DeValue<'_>) -> Read<DeviceMode> {
    match value::choice(value, keys::MODE)? {
        Mode::Create => Ok(DeviceMode::Create),
        Mode::Attach => Ok(DeviceMode::Attach),
        Mode::Auto | Mode::Native | Mode::Skb => Err(Invalid::with(
            "this mode is for `backend = \"xdp\"`",
            "write `mode = \"create\"` or \"attach\", or remove it",
        )),
    }
}

fn read_routes(table: &Table<'_>, problems: &mut Problems) -> Routes {
    match table.node("routes").map(Spanned::get_ref) {
        None => Routes::Auto,
        Some(DeValue::Boolean(false)) => Routes::List(Vec::new()),
        Some(DeValue::String(s)) if s == "auto" => Routes::Auto,
        Some(DeValue::Array(_)) => Routes::List(
            table.list("routes", problems, network).into_iter().map(Spanned::into_inner).collect(),
        ),
        Some(other) => {
            let what = format!("`routes`: expected \"auto\", false or a list, found {}", type_name(other));
            problems.error(
                table.span_of("routes"),
                what,
                "write `routes = \"auto\"`, `routes = false`, or `routes = [\"2001:db8:64::/96\", \"192.0.2.0/28\"]`",
            );
            Routes::Auto
        }
    }
}

/// Reads a name that the kernel accepts and that needs no quotes; `%` would be a template.
fn device_name(value: &DeValue<'_>) -> Read<String> {
    let s = value::text(value)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '@' | '-');
    if s.is_empty() || s.len() > 15 || s == "." || s == ".." || !s.chars().all(fits) {
        let what = format!("invalid device name \"{}\"", value::shorten(s));
        return Err(Invalid::with(
            what,
            "write 1 to 15 letters, digits, `.`, `_`, `@` or `-`, for example \"gatun0\"",
        ));
    }
    Ok(s.to_owned())
}

/// Reads an address with its prefix length; host bits may be set.
fn address(value: &DeValue<'_>) -> Read<(IpAddr, u8)> {
    let s = value::text(value)?;
    let wrong = || Invalid::new(format!("\"{}\" is not an address with a prefix length", value::shorten(s)));
    let (address, len) = s.split_once('/').map_or((s, None), |(a, l)| (a, Some(l)));
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    let len = len.map_or(Some(max), |l| l.parse().ok().filter(|l| *l <= max)).ok_or_else(wrong)?;
    Ok((address, len))
}
