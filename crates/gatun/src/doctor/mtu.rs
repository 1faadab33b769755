//! MTUs of interfaces, compared with those of the configuration.

use super::{Finding, Host, REMOTE4};
use gatun_config::Config;
use gatun_netlink::query::{Link, RouteResult, way_to};
use gatun_wire::text::group;
use gatun_wire::vxlan::headers_len;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};

const CHECK: &str = "mtu";
/// Minimum MTU of IPv6 links (RFC 8200 5), bytes.
const MTU6_MIN: u32 = 1280;
/// Remote host for route look-ups; nothing is sent to it.
const REMOTE6: Ipv6Addr = Ipv6Addr::new(0x2620, 0xfe, 0, 0, 0, 0, 0, 0xfe);

pub(super) fn examine(config: &Config, host: &Host) -> Vec<Finding> {
    let mut findings = ladder(config, &host.links);
    if config.ports.iter().all(|port| port.ethernet.is_none()) {
        findings.extend(sides(config, host));
        findings.extend(tunnel(config, host));
    }
    findings
}

/// Findings about the tunnel between the nodes of a cluster. Its packets reach this node by the device of the
/// port, and the others by an interface of the host.
fn tunnel(config: &Config, host: &Host) -> Vec<Finding> {
    let Some(cluster) = &config.cluster else { return Vec::new() };
    let ways = cluster.nodes.iter().filter_map(|node| Some((&node.name[..], by(host, node.tunnel)?)));
    let mut findings = narrow(ways, cluster.tunnel_mtu, &|link| is_of(config, link));
    let is_v6 = cluster.nodes.iter().any(|node| node.tunnel.is_ipv6());
    findings.extend(too_small(largest_packet(config), headers_len(is_v6) as u32, cluster.tunnel_mtu));
    findings
}

/// Findings about interfaces that do not carry the largest packet of the tunnel, each with its first node.
/// `is_port` tells which interfaces are those of ports.
fn narrow<'h>(
    ways: impl Iterator<Item = (&'h str, &'h Link)>,
    tunnel_mtu: u32,
    is_port: &dyn Fn(&Link) -> bool,
) -> Vec<Finding> {
    let mut seen = HashSet::new();
    let is_new = |(_, link): &(&str, &Link)| link.mtu < tunnel_mtu && seen.insert(link.index);
    let finding = |(node, link): (&str, &Link)| {
        let what = format!(
            "{}, by which packets go to the tunnel address of node {node}, has MTU {}, but [cluster] has \
             tunnel_mtu = {tunnel_mtu}: larger packets that have to go to another node are fragmented or \
             lost",
            link.name, link.mtu
        );
        let fix = match is_port(link) {
            true => format!("`mtu = {tunnel_mtu}` in the [[port]] of {}", link.name),
            false => format!("ip link set {} mtu {tunnel_mtu}", link.name),
        };
        Finding::wrong(CHECK, what, format!("{fix}, or a smaller `tunnel_mtu` at all nodes"))
    };
    ways.filter(is_new).map(finding).collect()
}

/// Finding about packets that do not fit the tunnel, with outer headers of this length.
fn too_small(largest: u32, headers: u32, tunnel_mtu: u32) -> Option<Finding> {
    let needed = largest + headers;
    (tunnel_mtu < needed).then(|| {
        Finding::note(
            CHECK,
            format!(
                "packets of more than {} bytes that have to go to another node do not fit the tunnel: they get \
                 Packet Too Big, or are fragmented",
                group(tunnel_mtu.saturating_sub(headers).into())
            ),
            format!("MTU {needed} between the nodes, and tunnel_mtu = {needed} in [cluster]"),
        )
    })
}

/// Largest packet of either side.
fn largest_packet(config: &Config) -> u32 {
    let plan = &config.plan;
    let of64 = plan.nat64.iter().map(|one| one.settings.mtu4.max(one.settings.mtu6));
    of64.chain(plan.nat44.iter().map(|one| one.mtu)).max().unwrap_or_default()
}

/// Findings about interfaces with a smaller MTU than the configuration assumes: packets are fragmented or
/// lost.
fn sides(config: &Config, host: &Host) -> Vec<Finding> {
    let plan = &config.plan;
    let of64 = plan.nat64.iter().map(|n| (&n.name, n.settings.mtu4, Some(n.settings.mtu6)));
    let of46 = plan.siit.iter().map(|s| (&s.name, s.settings.mtu4, Some(s.settings.mtu6)));
    let of44 = plan.nat44.iter().map(|n| (&n.name, n.mtu, None));
    let (uplink, inside) = (uplink(config, host), inside(config, host));
    let mut findings = Vec::new();
    for (name, mtu4, mtu6) in of64.chain(of46).chain(of44) {
        if let Some(link) = uplink.filter(|link| link.mtu < mtu4) {
            findings.push(Finding::wrong(
                CHECK,
                format!(
                    "{}, the interface to the IPv4 Internet, has MTU {}, but '{name}' has mtu4 = {mtu4}",
                    link.name, link.mtu
                ),
                format!("mtu4 = {} in the section of '{name}' or in [translator]", link.mtu),
            ));
        }
        let Some(mtu6) = mtu6 else { continue };
        // MTUs below IPv6's minimum are reported elsewhere.
        for link in inside.iter().filter(|link| (MTU6_MIN..mtu6).contains(&link.mtu)) {
            findings.push(Finding::wrong(
                CHECK,
                format!(
                    "{}, an interface to IPv6 hosts, has MTU {}, but '{name}' has mtu6 = {mtu6}",
                    link.name, link.mtu
                ),
                format!("mtu6 = {} in the section of '{name}' or in [translator]", link.mtu),
            ));
        }
    }
    findings
}

/// Interface to the IPv4 Internet.
pub(super) fn uplink<'h>(config: &Config, host: &'h Host) -> Option<&'h Link> {
    by(host, IpAddr::V4(REMOTE4[0])).filter(|link| !is_of(config, link))
}

/// Interfaces with global IPv6 addresses, except the one to the IPv6 Internet.
pub(super) fn inside<'h>(config: &Config, host: &'h Host) -> Vec<&'h Link> {
    let is_global =
        |address: &IpAddr| matches!(address, IpAddr::V6(a) if !a.is_unicast_link_local() && !a.is_loopback());
    let six =
        |link: &&Link| host.addresses.iter().any(|(index, p)| *index == link.index && is_global(&p.addr));
    let out = by(host, IpAddr::V6(REMOTE6)).map(|link| link.index);
    let links = host.links.iter().filter(|link| link.is_up && link.name != "lo" && !is_of(config, link));
    links.filter(six).filter(|link| Some(link.index) != out).collect()
}

fn by(host: &Host, remote: IpAddr) -> Option<&Link> {
    match way_to(remote) {
        Ok(RouteResult::By(index)) => host.links.iter().find(|link| link.index == index),
        _ => None,
    }
}

/// Findings about the MTUs of both sides.
fn ladder(config: &Config, links: &[Link]) -> Vec<Finding> {
    let six = config.plan.nat64.iter().map(|n| (&n.name, &n.settings));
    let six = six.chain(config.plan.siit.iter().map(|s| (&s.name, &s.settings)));
    let mut findings = Vec::new();
    for (name, settings) in six {
        let small: Vec<&Link> = links
            .iter()
            .filter(|link| link.is_up && link.name != "lo")
            .filter(|link| {
                link.mtu < MTU6_MIN || (is_of(config, link) && link.mtu < settings.mtu6.min(settings.mtu4))
            })
            .collect();
        for link in &small {
            findings.push(match link.mtu < MTU6_MIN {
                true => Finding::wrong(
                    CHECK,
                    format!("{} has MTU {}; IPv6 needs {MTU6_MIN} (RFC 8200 5)", link.name, link.mtu),
                    format!("ip link set {} mtu {MTU6_MIN}, or more", link.name),
                ),
                false => Finding::wrong(
                    CHECK,
                    format!(
                        "{} has MTU {}, below the {} and {} that '{name}' assumes",
                        link.name, link.mtu, settings.mtu6, settings.mtu4
                    ),
                    format!(
                        "ip link set {} mtu {}, or lower mtu6 and mtu4 of the instance",
                        link.name, settings.mtu6
                    ),
                ),
            });
        }
        if small.is_empty() {
            let what = format!(
                "'{name}': MTU {} on the IPv6 side, {} on the IPv4 side; interfaces {}",
                settings.mtu6,
                settings.mtu4,
                of_each(links)
            );
            findings.push(Finding::ok(CHECK, what));
        }
    }
    findings
}

fn is_of(config: &Config, link: &Link) -> bool {
    config.ports.iter().any(|port| port.device == link.name)
}

fn of_each(links: &[Link]) -> String {
    let up = links.iter().filter(|link| link.is_up && link.name != "lo");
    up.map(|link| format!("{} {}", link.name, link.mtu)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    fn link(index: u32, name: &str, mtu: u32) -> Link {
        Link {
            index,
            name: name.to_owned(),
            mtu,
            is_up: true,
            is_running: true,
            is_ethernet: true,
            mac: None,
            is_software: false,
            is_tun: false,
            alias: None,
        }
    }

    #[test]
    fn an_interface_that_does_not_carry_the_tunnel_is_found_once() {
        let (small, large) = (link(1, "eth1", 1_500), link(2, "eth2", 1_600));
        let ways = || [("a", &large), ("b", &small), ("c", &small)].into_iter();
        let found = narrow(ways(), 1_600, &|_| false);
        let [finding] = &found[..] else { panic!("{found:?}") };
        assert_eq!(finding.state, State::Wrong);
        assert!(
            finding
                .what
                .starts_with("eth1, by which packets go to the tunnel address of node b, has MTU 1500")
        );
        assert!(finding.fix.as_ref().unwrap().starts_with("ip link set eth1 mtu 1600"), "{finding:?}");
        assert!(narrow(ways(), 1_500, &|_| false).is_empty());
        // Somebody who sets the MTU of a port's device by hand differs from the configuration.
        let fix = narrow(ways(), 1_600, &|link| link.name == "eth1")[0].fix.clone().unwrap();
        assert!(fix.starts_with("`mtu = 1600` in the [[port]] of eth1"), "{fix}");
    }

    #[test]
    fn packets_that_do_not_fit_the_tunnel_are_noted() {
        let finding = too_small(1_500, headers_len(false) as u32, 1_500).unwrap();
        assert_eq!(finding.state, State::Note);
        assert!(finding.what.starts_with("packets of more than 1,450 bytes"), "{}", finding.what);
        assert!(finding.fix.unwrap().ends_with("tunnel_mtu = 1550 in [cluster]"));
        assert!(too_small(1_500, headers_len(true) as u32, 1_569).is_some());
        assert!(too_small(1_500, headers_len(true) as u32, 1_570).is_none());
        // It is looked for.
        let text = "[translator]\nown4 = \"10.9.9.9\"\n[[pool]]\nprefixes = \"192.0.2.0/28\"\n\
                    [[nat64]]\npool6 = \"2001:db8:64::/96\"\n[cluster]\netcd = \"http://10.0.9.1:2379\"\n\
                    [[cluster.nodes]]\nname = \"a\"\npeer = \"10.0.9.1:7465\"\ntunnel = \"10.0.8.1\"\n\
                    [[cluster.nodes]]\nname = \"b\"\npeer = \"10.0.9.2:7465\"\ntunnel = \"10.0.8.2\"\n";
        let config = gatun_config::load_str(text, "test").map_err(|report| report.to_string()).unwrap().0;
        let found = tunnel(&config, &Host { links: Vec::new(), addresses: Vec::new() });
        assert!(found.len() == 1 && found[0].what.contains("do not fit the tunnel"), "{found:?}");
    }

    #[test]
    fn the_largest_packet_is_that_of_any_instance() {
        let text = "[[nat64]]\npool6 = \"2001:db8:64::/96\"\nmtu4 = 1400\nmtu6 = 1600\n[[pool]]\nprefixes = \"192.0.2.1\"\n";
        assert_eq!(largest_packet(&gatun_config::load_str(text, "test").unwrap().0), 1_600);
    }
}
