//! Validation of settings. Reports all problems at once.

use crate::address::{is_host4, is_host6, is_link_local};
use crate::frame::TAGS_MAX;
use crate::{Limits, PortSettings, Prefix, Problem, Route, Settings, Tag};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

/// Smallest MTU of a link (RFC 791 3.2, RFC 8200 5), and the largest packet.
const MTU_MIN_V4: u32 = 68;
const MTU_MIN_V6: u32 = 1280;
const MTU_MAX: u32 = 65_535;
/// Ports and devices are numbered in one byte.
const PORTS_MAX: usize = 255;

pub(crate) fn check(settings: &Settings, limits: &Limits) -> Result<(), Vec<Problem>> {
    let mut problems = Problems { port: "", found: Vec::new() };
    problems.check_limits(limits, settings);
    if settings.ports.is_empty() || settings.ports.len() > PORTS_MAX {
        problems.add(format!("{} ports", settings.ports.len()), "configure 1 to 255 ports");
    }
    for (i, port) in settings.ports.iter().enumerate() {
        problems.port = &port.name;
        problems.check_link(port);
        problems.check_tags(port, settings.ports.get(..i).unwrap_or_default());
        problems.check_addresses(port);
        problems.check_routes(port);
        problems.check_neighbours(port);
    }
    problems.check_overlaps(settings);
    for prefix in settings.engine.iter().filter(|p| !p.is_valid()) {
        problems.port = "";
        problems.bad_length(prefix);
    }
    if problems.found.is_empty() { Ok(()) } else { Err(problems.found) }
}

struct Problems<'s> {
    port: &'s str,
    found: Vec<Problem>,
}

impl<'s> Problems<'s> {
    fn add(&mut self, what: impl Into<String>, fix: impl Into<String>) {
        self.found.push(Problem { port: self.port.to_owned(), what: what.into(), fix: fix.into() });
    }

    fn bad_length(&mut self, prefix: &Prefix) {
        let max = if prefix.addr.is_ipv4() { 32 } else { 128 };
        self.add(
            format!("invalid prefix length in {prefix}"),
            format!("write {}/{max} or less", prefix.addr),
        );
    }

    fn check_limits(&mut self, limits: &Limits, settings: &Settings) {
        let gateways = settings.ports.iter().flat_map(|p| &p.routes).filter(|r| r.via.is_some()).count();
        let fixed: usize = settings.ports.iter().map(|p| p.neighbours.len()).sum();
        let least = (gateways + fixed) as u64 + 1;
        if u64::from(limits.neighbours_max) < least || limits.neighbours_max > 1 << 20 {
            let what = format!("neighbours_max is {}", limits.neighbours_max);
            self.add(what, format!("with these routes, write {least} to 1048576"));
        }
        if limits.unresolved_max == 0 {
            self.add("unresolved_max is 0, so no neighbour can be resolved", "write at least 1");
        }
        if limits.waiting_per_neighbour_max > limits.waiting_max {
            self.add(
                "waiting_per_neighbour_max is larger than waiting_max",
                "lower waiting_per_neighbour_max to at most waiting_max",
            );
        }
    }

    fn check_link(&mut self, port: &PortSettings) {
        if !port.mac.is_unicast() {
            self.add(
                format!("{} is not the MAC address of a device", port.mac),
                "write the device's own MAC as `ip link` shows it; its first byte is even",
            );
        }
        let six = has_ipv6(port);
        let least = if six { MTU_MIN_V6 } else { MTU_MIN_V4 };
        if !(least..=MTU_MAX).contains(&port.mtu) {
            let why = if six { " (IPv6 needs 1280, RFC 8200 5)" } else { "" };
            self.add(format!("invalid MTU {}", port.mtu), format!("write {least} to {MTU_MAX}{why}"));
        }
    }

    fn check_tags(&mut self, port: &PortSettings, before: &[PortSettings]) {
        if port.tags.len() > TAGS_MAX {
            self.add(format!("{} VLAN tags", port.tags.len()), "write at most two, the outer one first");
        }
        for tag in &port.tags {
            if !(1..=4094).contains(&tag.vlan) {
                self.add(format!("invalid VLAN {}", tag.vlan), "write 1 to 4094");
            }
            if ![Tag::CUSTOMER, Tag::SERVICE].contains(&tag.kind) {
                self.add(
                    format!("unknown VLAN tag type 0x{:04x}", tag.kind),
                    "write 0x8100 (802.1Q) or 0x88a8 (802.1ad)",
                );
            }
        }
        if let Some(other) = before.iter().find(|p| p.device == port.device && p.tags == port.tags) {
            self.add(
                format!("the same device and VLAN as port \"{}\"", other.name),
                "write another `vlan`, or merge the two ports",
            );
        }
        if let Some(other) = before.iter().find(|p| p.device == port.device && p.mac != port.mac) {
            self.add(
                format!("the MAC differs from that of port \"{}\" on the same device", other.name),
                format!("write {}", other.mac),
            );
        }
    }

    fn check_addresses(&mut self, port: &PortSettings) {
        for prefix in port.addresses.iter().chain(&port.answers).filter(|p| !p.is_valid()) {
            self.bad_length(prefix);
        }
        for own in port.addresses.iter().filter(|p| p.is_valid()) {
            let host = match own.addr {
                IpAddr::V4(a) => is_host4(a) && !is_edge(own),
                IpAddr::V6(a) => is_host6(a),
            };
            if !host {
                self.add(
                    format!("{own} is not a valid host address"),
                    "write a unicast address that is neither the first nor the last of its network",
                );
            }
        }
        for answered in port.answers.iter().filter(|p| p.is_valid()) {
            // A network without other hosts: answering for all of it excludes nobody.
            let whole = |own: &&Prefix| own.is_valid() && !is_host(own) && answered.len <= own.len;
            if let Some(own) = port.addresses.iter().filter(whole).find(|own| answered.contains(own.addr)) {
                self.add(
                    format!("{answered} in `answers` covers all neighbours of {}", own.addr),
                    "list only addresses of the translator",
                );
            }
        }
        for (i, own) in port.addresses.iter().enumerate() {
            if port.addresses.iter().take(i).any(|o| o.addr == own.addr) {
                self.add(format!("{} is listed twice", own.addr), "remove one of them");
            }
        }
    }

    fn check_routes(&mut self, port: &PortSettings) {
        for route in &port.routes {
            if !route.to.is_valid() {
                self.bad_length(&route.to);
            }
            if let Some(via) = route.via {
                self.check_gateway(port, route, via);
            }
            if route.to.addr.is_ipv4() && !port.addresses.iter().any(|p| p.addr.is_ipv4()) {
                self.add(
                    format!("a route to {} on a port without an IPv4 address", route.to),
                    "give the port an IPv4 address; ARP needs one as its sender",
                );
            }
        }
    }

    fn check_neighbours(&mut self, port: &PortSettings) {
        for (i, neighbour) in port.neighbours.iter().enumerate() {
            let addr = neighbour.addr;
            if !neighbour.mac.is_unicast() {
                self.add(
                    format!("{} is not the MAC address of a neighbour", neighbour.mac),
                    format!("write the unicast MAC of {addr}; its first byte is even"),
                );
            }
            let link_local = matches!(addr, IpAddr::V6(a) if is_link_local(a));
            let on_link = |p: &Prefix| p.is_valid() && p.contains(addr);
            let by_route = |r: &Route| r.via == Some(addr) || r.via.is_none() && on_link(&r.to);
            if !link_local && !port.addresses.iter().any(on_link) && !port.routes.iter().any(by_route) {
                self.add(
                    format!("the neighbour {addr} is not on this port's link"),
                    "give the port an address whose prefix contains it",
                );
            }
            if port.addresses.iter().any(|p| p.addr == addr) {
                self.add(format!("{addr} is this port's own address"), "write the neighbour's");
            }
            if port.neighbours.iter().take(i).any(|other| other.addr == addr) {
                self.add(format!("the neighbour {addr} is listed twice"), "remove one of them");
            }
        }
    }

    fn check_gateway(&mut self, port: &PortSettings, route: &Route, via: IpAddr) {
        if via.is_ipv4() != route.to.addr.is_ipv4() {
            self.add(
                format!("the route to {} has the next hop {via} of another family", route.to),
                "write a next hop of the same family",
            );
            return;
        }
        if port.addresses.iter().any(|p| p.addr == via) {
            self.add(format!("{via} is this port's own address"), "write the router's");
        }
        if let Some(answered) = port.answers.iter().find(|p| p.is_valid() && p.contains(via)) {
            self.add(
                format!("the next hop {via} is in {answered}, which this port answers for"),
                "remove the router's address from `answers`",
            );
        }
        let link_local = matches!(via, IpAddr::V6(a) if is_link_local(a));
        if !link_local && !port.addresses.iter().any(|p| p.is_valid() && p.contains(via)) {
            self.add(
                format!("the next hop {via} is not on this port's link"),
                "give the port an address whose prefix contains it, or write the router's address on this link",
            );
        }
    }

    /// Checks for a prefix reached by two ports, and for a host address of two ports.
    fn check_overlaps(&mut self, settings: &'s Settings) {
        let all = || settings.ports.iter().enumerate();
        for (i, port) in all() {
            self.port = &port.name;
            for (_, other) in all().take(i) {
                for own in &port.addresses {
                    let local = matches!(own.addr, IpAddr::V6(a) if is_link_local(a));
                    let apart = port.realm_of(own.addr) != other.realm_of(own.addr);
                    if !local && !apart && other.addresses.iter().any(|o| o.addr == own.addr) {
                        self.add(
                            format!("{} is also an address of port \"{}\"", own.addr, other.name),
                            "give each port its own address",
                        );
                    }
                }
                let meet = |to: &Prefix| port.realm_of(to.addr) == other.realm_of(to.addr);
                for to in routed(port).filter(meet).filter(|to| routed(other).any(|o| same(o, *to))) {
                    self.add(
                        format!("{} is also reached by port \"{}\"", to, other.name),
                        "remove it from one of the ports, or make one prefix longer",
                    );
                }
            }
            for (j, route) in port.routes.iter().enumerate() {
                if port.routes.iter().take(j).any(|r| same(r.to, route.to)) {
                    self.add(format!("two routes to {}", route.to), "remove one of them");
                }
            }
        }
    }
}

/// Checks whether a port uses IPv6 at all.
pub(crate) fn has_ipv6(port: &PortSettings) -> bool {
    let routes = port.routes.iter().map(|r| &r.to);
    port.addresses.iter().chain(&port.answers).chain(routes).any(|p| p.addr.is_ipv6())
}

/// All prefixes that a port reaches.
fn routed(port: &PortSettings) -> impl Iterator<Item = Prefix> {
    let local = |p: &Prefix| matches!(p.addr, IpAddr::V6(a) if is_link_local(a));
    let links = port.addresses.iter().copied().filter(move |p| !local(p));
    links.chain(port.routes.iter().map(|r| r.to))
}

fn same(a: Prefix, b: Prefix) -> bool {
    a.len == b.len && a.is_valid() && b.is_valid() && a.contains(b.addr)
}

/// Checks whether a prefix contains a single address.
fn is_host(prefix: &Prefix) -> bool {
    *prefix == Prefix::host(prefix.addr)
}

/// Checks whether an IPv4 address is the first or last of its network, if the network has such addresses (RFC
/// 3021).
fn is_edge(prefix: &Prefix) -> bool {
    let IpAddr::V4(a) = prefix.addr else { return false };
    let host = u32::MAX.checked_shr(u32::from(prefix.len)).unwrap_or(0);
    let of = u32::from(a) & host;
    host > 1 && (of == 0 || of == host)
}
