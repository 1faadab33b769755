//! MTUs: those of the interfaces beside those that the configuration takes both sides to have.

use super::{Finding, Host, REMOTE4};
use gatun_config::Config;
use gatun_netlink::query::{Link, Way, way_to};
use std::net::{IpAddr, Ipv6Addr};

const CHECK: &str = "mtu";
/// The lowest MTU of a link that carries IPv6 (RFC 8200 5), bytes.
const MTU6_MIN: u32 = 1280;
/// A remote host that stands for the IPv6 Internet: nothing is sent to it.
const REMOTE6: Ipv6Addr = Ipv6Addr::new(0x2620, 0xfe, 0, 0, 0, 0, 0, 0xfe);

pub(super) fn examine(config: &Config, host: &Host) -> Vec<Finding> {
    let mut findings = ladder(config, &host.links);
    if config.ports.iter().all(|port| port.ethernet.is_none()) {
        findings.extend(sides(config, host));
    }
    findings
}

/// Interfaces that carry less than the configuration takes their side to: what fits into that has to be cut, or is lost
/// where it must not be.
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
                    "{} leads to the IPv4 Internet with an MTU of {}, and '{name}' has mtu4 = {mtu4}",
                    link.name, link.mtu
                ),
                format!("mtu4 = {} in the section of '{name}' or in [translator]", link.mtu),
            ));
        }
        let Some(mtu6) = mtu6 else { continue };
        // Too small for IPv6 is told of elsewhere.
        for link in inside.iter().filter(|link| (MTU6_MIN..mtu6).contains(&link.mtu)) {
            findings.push(Finding::wrong(
                CHECK,
                format!(
                    "{} leads to IPv6 hosts with an MTU of {}, and '{name}' has mtu6 = {mtu6}",
                    link.name, link.mtu
                ),
                format!("mtu6 = {} in the section of '{name}' or in [translator]", link.mtu),
            ));
        }
    }
    findings
}

/// The interface of the way to the IPv4 Internet.
pub(super) fn uplink<'h>(config: &Config, host: &'h Host) -> Option<&'h Link> {
    by(host, IpAddr::V4(REMOTE4[0])).filter(|link| !is_of(config, link))
}

/// Interfaces with global IPv6 addresses, but for the one of the way to the IPv6 Internet.
pub(super) fn inside<'h>(config: &Config, host: &'h Host) -> Vec<&'h Link> {
    let is_global = |address: &IpAddr| matches!(address, IpAddr::V6(a) if a.segments()[0] & 0xffc0 != 0xfe80 && !a.is_loopback());
    let six =
        |link: &&Link| host.addresses.iter().any(|(index, p)| *index == link.index && is_global(&p.addr));
    let out = by(host, IpAddr::V6(REMOTE6)).map(|link| link.index);
    let links = host.links.iter().filter(|link| link.is_up && link.name != "lo" && !is_of(config, link));
    links.filter(six).filter(|link| Some(link.index) != out).collect()
}

fn by(host: &Host, remote: IpAddr) -> Option<&Link> {
    match way_to(remote) {
        Ok(Way::By(index)) => host.links.iter().find(|link| link.index == index),
        _ => None,
    }
}

/// What fits from one side to the other.
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
                    format!("{} has an MTU of {}: IPv6 needs {MTU6_MIN} (RFC 8200 5)", link.name, link.mtu),
                    format!("ip link set {} mtu {MTU6_MIN}, or more", link.name),
                ),
                false => Finding::wrong(
                    CHECK,
                    format!(
                        "{} has an MTU of {}, below the {} and {} that '{name}' takes its sides to have",
                        link.name, link.mtu, settings.mtu6, settings.mtu4
                    ),
                    format!("ip link set {} mtu {}, or set the instance's mtus", link.name, settings.mtu6),
                ),
            });
        }
        if small.is_empty() {
            let what = format!(
                "'{name}': IPv6 side {} bytes, IPv4 side {}; interfaces {}",
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
