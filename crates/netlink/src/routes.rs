//! Routes of the main table.

use crate::client::Client;
use crate::prefix::{Prefix, route_family};
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Metric that the kernel gives to IPv6 routes set without one.
const METRIC6: u32 = 1024;

/// A route of the main table. Its text has the format of `ip route`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination.
    pub to: Prefix,
    /// Number of the interface; `None` if the route has none or several.
    pub device: Option<u32>,
    kind: RouteType,
    protocol: RouteProtocol,
    scope: RouteScope,
    metric: u32,
    gateway: Option<IpAddr>,
    source: Option<IpAddr>,
    device_name: Option<String>,
}

impl Route {
    /// Returns true if a route of ours to the same destination would take packets from this one. Routes that
    /// only refuse and have a worse metric than ours are meant for times without ours.
    fn stands_in_the_way(&self) -> bool {
        match self.kind {
            RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit | RouteType::Throw => {
                self.metric <= if self.to.addr.is_ipv4() { 0 } else { METRIC6 }
            }
            RouteType::Unicast | RouteType::Nat => true,
            _ => false,
        }
    }

    /// Returns true for a unicast route.
    pub(crate) fn is_direct(&self) -> bool {
        self.kind == RouteType::Unicast
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            RouteType::Unicast => {}
            RouteType::BlackHole => f.write_str("blackhole ")?,
            RouteType::Unreachable => f.write_str("unreachable ")?,
            RouteType::Prohibit => f.write_str("prohibit ")?,
            RouteType::Throw => f.write_str("throw ")?,
            _ => f.write_str("nat ")?,
        }
        write!(f, "{}", self.to)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        match (&self.device_name, self.device) {
            (Some(name), _) => write!(f, " dev {name}")?,
            (None, Some(index)) => write!(f, " dev {index}")?,
            (None, None) => {}
        }
        write!(f, " proto {}", self.protocol)?;
        if self.to.addr.is_ipv4() && self.scope == RouteScope::Link {
            f.write_str(" scope link")?;
        }
        if let Some(source) = self.source {
            write!(f, " src {source}")?;
        }
        if self.metric != 0 {
            write!(f, " metric {}", self.metric)?;
        }
        Ok(())
    }
}

/// Comparison of the main table with the wanted routes of a device.
#[derive(Debug, Default)]
pub struct Compared {
    /// Destinations without a route of the device, in order.
    pub missing: Vec<Prefix>,
    /// Routes of other devices to wanted destinations.
    pub others: Vec<Route>,
    /// Destinations of unwanted static routes of the device.
    pub stale: Vec<Prefix>,
}

impl Compared {
    /// Splits missing destinations into those without another route and those with one.
    pub fn split(&self) -> (Vec<Prefix>, Vec<Prefix>) {
        let mut taken: Vec<&Prefix> = self.others.iter().map(|route| &route.to).collect();
        taken.sort_unstable();
        self.missing.iter().partition(|prefix| taken.binary_search(prefix).is_err())
    }
}

/// Compares the main table with the wanted routes of a device. `device` is its number, if it exists.
///
/// # Errors
/// Returns an error if the kernel does not answer.
pub fn compare(wanted: &[Prefix], device: Option<u32>) -> io::Result<Compared> {
    let mut compared = Compared { missing: wanted.to_vec(), ..Compared::default() };
    compared.missing.sort_unstable();
    compared.missing.dedup();
    let mut there = vec![false; compared.missing.len()];
    let mut client = Client::open()?;
    for v4 in [true, false] {
        if device.is_none() && !compared.missing.iter().any(|prefix| prefix.addr.is_ipv4() == v4) {
            continue;
        }
        for_each(&mut client, v4, |route| {
            let is_its_own = device.is_some() && route.device == device;
            let Ok(at) = compared.missing.binary_search(&route.to) else {
                if is_its_own && route.is_direct() && route.protocol == RouteProtocol::Static {
                    compared.stale.push(route.to);
                }
                return;
            };
            if is_its_own {
                if let Some(there) = there.get_mut(at).filter(|_| route.is_direct()) {
                    *there = true;
                }
            } else if route.stands_in_the_way() {
                compared.others.push(route);
            }
        })?;
    }
    let mut there = there.into_iter();
    compared.missing.retain(|_| !there.next().unwrap_or(false));
    name_devices(&mut compared.others)?;
    Ok(compared)
}

fn name_devices(routes: &mut [Route]) -> io::Result<()> {
    if routes.is_empty() {
        return Ok(());
    }
    let client = Client::open()?;
    for route in routes {
        let name = |index| rustix::net::netdevice::index_to_name(&client.socket, index).ok();
        route.device_name = route.device.and_then(name);
    }
    Ok(())
}

/// Reads the main table's routes of one IP version.
pub(crate) fn for_each(client: &mut Client, v4: bool, mut each: impl FnMut(Route)) -> io::Result<()> {
    let mut request = RouteMessage::default();
    let any = if v4 { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    request.header.address_family = route_family(any);
    client.ask_each(RouteNetlinkMessage::GetRoute(request), NLM_F_DUMP, |answer| {
        if let RouteNetlinkMessage::NewRoute(message) = answer
            && let Some(route) = route_of(&message, any)
        {
            each(route);
        }
    })
}

/// Parses a route of the main table; returns `None` for routes of other tables and those that the kernel
/// derived. `any` is the destination of a default route; routes of the other IP version, which a kernel
/// without IPv6 lists instead, are left out.
pub(crate) fn route_of(message: &RouteMessage, any: IpAddr) -> Option<Route> {
    if message.header.address_family != route_family(any) {
        return None;
    }
    let mut table = u32::from(message.header.table);
    let mut route = Route {
        to: Prefix { addr: any, len: message.header.destination_prefix_length },
        device: None,
        kind: message.header.kind,
        protocol: message.header.protocol,
        scope: message.header.scope,
        metric: 0,
        gateway: None,
        source: None,
        device_name: None,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Destination(address) => route.to.addr = ip(address)?,
            RouteAttribute::Gateway(address) => route.gateway = ip(address),
            RouteAttribute::PrefSource(address) => route.source = ip(address),
            RouteAttribute::Oif(index) => route.device = Some(*index),
            RouteAttribute::Priority(metric) => route.metric = *metric,
            _ => {}
        }
    }
    let is_cached = message.header.flags.contains(RouteFlags::Cloned);
    (table == u32::from(RouteHeader::RT_TABLE_MAIN) && !is_cached).then_some(route)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(text: &str, kind: RouteType, metric: u32) -> Route {
        let (addr, len) = text.split_once('/').unwrap();
        Route {
            to: Prefix { addr: addr.parse().unwrap(), len: len.parse().unwrap() },
            device: Some(3),
            kind,
            protocol: RouteProtocol::Kernel,
            scope: RouteScope::Link,
            metric,
            gateway: None,
            source: Some("192.168.1.1".parse().unwrap()),
            device_name: Some("lan".to_owned()),
        }
    }

    #[test]
    fn a_route_is_formatted_like_ip_route() {
        let connected = route("192.168.1.0/24", RouteType::Unicast, 0);
        assert_eq!(connected.to_string(), "192.168.1.0/24 dev lan proto kernel scope link src 192.168.1.1");
        let other =
            Route { device: None, device_name: None, ..route("192.0.2.0/24", RouteType::BlackHole, 9) };
        assert!(other.to_string().starts_with("blackhole 192.0.2.0/24 proto"), "{other}");
        assert!(other.to_string().ends_with("metric 9"), "{other}");
    }

    #[test]
    fn refusing_routes_with_a_worse_metric_are_no_obstacle() {
        let waits = |text, metric| !route(text, RouteType::BlackHole, metric).stands_in_the_way();
        assert!(!waits("192.0.2.0/24", 0) && waits("192.0.2.0/24", 1));
        assert!(!waits("2001:db8::/32", METRIC6) && waits("2001:db8::/32", METRIC6 + 1));
        assert!(route("192.0.2.0/24", RouteType::Unicast, 600).stands_in_the_way());
    }

    #[test]
    fn missing_destinations_are_split_by_existing_routes() {
        let taken = route("192.168.1.0/24", RouteType::Unicast, 0);
        let free = Prefix { addr: "192.0.2.0".parse().unwrap(), len: 24 };
        let compared =
            Compared { missing: vec![free, taken.to], others: vec![taken.clone()], ..Compared::default() };
        assert_eq!(compared.split(), (vec![free], vec![taken.to]));
    }
}
