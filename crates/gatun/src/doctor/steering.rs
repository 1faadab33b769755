//! Policy rules of NAT44 on a TUN device. They send packets of inside hosts to the device, whatever the
//! destination; without them, packets leave untranslated through the uplink.

use super::paths::one_of;
use super::{Finding, Host, REMOTE4};
use gatun_config::{Config, Network};
use gatun_nat::Plan;
use gatun_nat::plan::Net4;
use gatun_netlink::Prefix;
use gatun_netlink::query::{RouteResult, way_of_forwarded, way_to};
use std::net::{IpAddr, Ipv4Addr};

const CHECK: &str = "steering";
/// Maximum number of networks to look up.
const TRIED_MAX: usize = 64;

pub(super) fn examine(config: &Config, host: &Host) -> Vec<Finding> {
    let of_device = |name: &str| host.links.iter().find(|link| link.name == name);
    let tuns = config.ports.iter().filter(|port| port.ethernet.is_none());
    let devices: Vec<_> = tuns.filter_map(|port| of_device(&port.device)).collect();
    let Some(first) = devices.first() else { return Vec::new() };
    let mut findings = Vec::new();
    for nat44 in &config.plan.nat44 {
        let is_exempt = |remote: &&Ipv4Addr| {
            nat44.exempt.iter().any(|exempt| exempt.net.contains(**remote)) || is_ours(&config.plan, **remote)
        };
        let Some(&remote) = REMOTE4.iter().find(|remote| !is_exempt(remote)) else { continue };
        for net in nat44.inside.iter().take(TRIED_MAX) {
            let shown = Network::V4(*net);
            for (from, by) in hosts_of(net, host) {
                let elsewhere = match way_of_forwarded(from.into(), by, remote.into()) {
                    Ok(RouteResult::By(out)) if devices.iter().any(|device| device.index == out) => continue,
                    Ok(RouteResult::By(out)) => format!("leaves by {}, untranslated", host.name(out)),
                    Ok(RouteResult::Nowhere) => "goes nowhere".to_owned(),
                    // Packets that end here or are not let in are reported by other checks.
                    Ok(RouteResult::Host) | Err(_) => continue,
                };
                let what = format!(
                    "traffic of {shown} ('{}') from {} {elsewhere}: no policy rule sends it to {}",
                    nat44.name,
                    host.name(by),
                    first.name
                );
                let fix = format!(
                    "ip rule add priority 100 iif {0} lookup main; ip rule add priority 101 from {shown} lookup 4464; ip route add default dev {0} table 4464",
                    first.name
                );
                findings.push(Finding::wrong(CHECK, what, fix));
            }
        }
    }
    if findings.is_empty() && !config.plan.nat44.is_empty() {
        findings.push(Finding::ok(CHECK, format!("traffic of inside hosts is sent to {}", first.name)));
    }
    findings
}

/// True if an address belongs to an inside network or a pool.
fn is_ours(plan: &Plan, address: Ipv4Addr) -> bool {
    let inside = plan.nat44.iter().flat_map(|nat44| &nat44.inside).any(|net| net.contains(address));
    let mut ranges = plan.pools.iter().flat_map(|pool| &pool.ranges);
    inside || ranges.any(|range| (range.first..=range.last).contains(&address))
}

/// Interfaces to a private network, each with the address of a host behind it.
pub(super) fn hosts_of(net: &Net4, host: &Host) -> Vec<(Ipv4Addr, u32)> {
    let of_link = |(index, prefix): &(u32, Prefix)| match prefix.addr {
        IpAddr::V4(own) if net.contains(own) && prefix.len < 31 => Some((beside(own, prefix.len), *index)),
        _ => None,
    };
    let linked: Vec<_> = host.addresses.iter().filter_map(of_link).collect();
    if !linked.is_empty() {
        return linked;
    }
    // Behind another router.
    match (one_of(&Network::V4(*net)), way_to(one_of(&Network::V4(*net)))) {
        (IpAddr::V4(inside), Ok(RouteResult::By(index))) => vec![(inside, index)],
        _ => Vec::new(),
    }
}

/// Address of another host in the network of `own`.
fn beside(own: Ipv4Addr, len: u8) -> Ipv4Addr {
    let (own, hosts) = (u32::from(own), u32::MAX.checked_shr(len.into()).unwrap_or(0));
    let is_host = |address: &u32| address & hosts != 0 && address & hosts != hosts;
    let beside = [own.wrapping_add(1), own.wrapping_sub(1)].into_iter().find(is_host);
    beside.unwrap_or(own).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_is_not_the_network_or_broadcast_address() {
        let beside = |own: &str, len| beside(own.parse().unwrap(), len).to_string();
        assert_eq!(beside("100.64.0.1", 24), "100.64.0.2");
        assert_eq!(beside("100.64.0.254", 24), "100.64.0.253");
        assert_eq!(beside("10.0.0.2", 30), "10.0.0.1");
    }
}
