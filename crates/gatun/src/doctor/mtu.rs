//! MTUs of interfaces, compared with those of the configuration.

use super::{Finding, Host, REMOTE4};
use gatun_config::Config;
use gatun_netlink::query::{Link, RouteResult, way_to};
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
    }
    findings
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
