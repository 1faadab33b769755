//! Routes to the translator, and devices.

use super::{Finding, Host};
use gatun_config::{Config, DeviceMode, Network, Port, Routes};
use gatun_netlink::Prefix;
use gatun_netlink::query::{Link, RouteResult, way_to};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of networks to look up; the others are assumed to be routed alike.
const TRIED_MAX: usize = 64;
/// Flag of a TUN device in sysfs: virtio-net headers, needed for offloads.
const TUN_VNET_HDR: u32 = 0x4000;

pub(super) fn examine(config: &Config, host: &Host, runs: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for port in &config.ports {
        if port.ethernet.is_some() {
            findings.extend(ethernet(port, &host.links));
            continue;
        }
        match host.links.iter().find(|link| link.name == port.device) {
            Some(link) => {
                findings.extend(device(port, link));
                findings.extend(routed_here(config, port, link, host));
            }
            None => findings.push(absent(port, runs)),
        }
    }
    findings.extend(not_the_hosts_own(config, host));
    findings
}

fn absent(port: &Port, runs: bool) -> Finding {
    let what = format!("device {} does not exist", port.device);
    match (runs, port.mode) {
        (true, _) => Finding::wrong("device", what, "it was removed: restart the daemon"),
        (false, DeviceMode::Create) => Finding::note("device", what, "the daemon creates it at start"),
        (false, DeviceMode::Attach) => {
            let fix = format!("ip tuntap add dev {} mode tun, or mode = \"create\"", port.device);
            Finding::wrong("device", what, fix)
        }
    }
}

fn device(port: &Port, link: &Link) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !link.is_up {
        let fix = format!("ip link set {} up", link.name);
        findings.push(Finding::wrong("device", format!("{} is down", link.name), fix));
    }
    if port.mode == DeviceMode::Create && link.mtu != port.mtu {
        let what = format!("{} has MTU {}, the configuration {}", link.name, link.mtu, port.mtu);
        findings.push(Finding::wrong("mtu", what, format!("ip link set {} mtu {}", link.name, port.mtu)));
    }
    findings.extend(offload(port));
    if port.udp_gro {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        findings.push(udp_gro(port, release.trim()));
    }
    findings
}

/// Finding about kernels that corrupt datagrams when they segment them (decision 0013).
fn udp_gro(port: &Port, release: &str) -> Finding {
    const CHECK: &str = "udp_gro";
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let version = [0; 3].map(|_| numbers.next().unwrap_or(0));
    if version < [6, 2, 0] {
        let what = format!("{}: Linux {release} does not support UDP GRO", port.device);
        return Finding::wrong(CHECK, what, "use Linux 6.2 or later, or remove udp_gro from its [[port]]");
    }
    if ([7, 0, 0]..[7, 1, 5]).contains(&version) {
        let what = format!(
            "{}: Linux {release} may corrupt lengths and checksums of datagrams when it segments them",
            port.device
        );
        return Finding::wrong(CHECK, what, "set udp_gro = false in its [[port]], or use another kernel");
    }
    Finding::ok(CHECK, format!("{} uses UDP GRO", port.device))
}

/// Finding about offloads, which most of the speed of a TUN device depends on.
fn offload(port: &Port) -> Option<Finding> {
    const CHECK: &str = "offload";
    if !port.offload {
        let fix = "set offload = true in its [[port]], unless offloads cause problems";
        return Some(Finding::note(CHECK, format!("offloads of {} are off: slow", port.device), fix));
    }
    let flags = fs::read_to_string(format!("/sys/class/net/{}/tun_flags", port.device)).ok()?;
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).ok()?;
    if flags & TUN_VNET_HDR != 0 {
        return Some(Finding::ok(CHECK, format!("{} uses offloads (segments of up to 64 KB)", port.device)));
    }
    let fix = format!("ip tuntap add dev {} mode tun vnet_hdr multi_queue", port.device);
    Some(Finding::wrong(CHECK, format!("{} was created without vnet_hdr: slow", port.device), fix))
}

/// Findings about routes to the device.
fn routed_here(config: &Config, port: &Port, link: &Link, host: &Host) -> Vec<Finding> {
    const CHECK: &str = "routes";
    let networks = match &port.routes {
        Routes::Auto => config.routes(),
        Routes::List(list) => list.clone(),
    };
    let mut findings = Vec::new();
    for network in networks.iter().take(TRIED_MAX) {
        let (elsewhere, fix) = match way_to(one_of(network)) {
            Ok(RouteResult::By(index)) if index == link.index => continue,
            // Reported below.
            Ok(RouteResult::Host) => continue,
            // The other route may be the only one to a LAN, so no command that replaces it is suggested.
            Ok(RouteResult::By(index)) => (
                format!("goes to {}", host.name(index)),
                format!(
                    "find the route with ip route get {}; remove it, or the network from the configuration",
                    one_of(network)
                ),
            ),
            Ok(RouteResult::Nowhere) => {
                ("goes nowhere".to_owned(), format!("ip route add {network} dev {}", link.name))
            }
            Err(error) => (
                format!("has no readable route: {error}"),
                format!("ip route add {network} dev {}", link.name),
            ),
        };
        findings.push(Finding::wrong(
            CHECK,
            format!("traffic to {network} {elsewhere}, not to {}", link.name),
            fix,
        ));
    }
    if findings.is_empty() && !networks.is_empty() {
        findings.push(Finding::ok(CHECK, format!("prefixes and pools are routed to {}", link.name)));
    }
    findings
}

/// Address in a network that is not its broadcast address.
pub(super) fn one_of(network: &Network) -> IpAddr {
    match network {
        Network::V4(net) if net.len < 31 => Ipv4Addr::from(u32::from(net.addr) | 1).into(),
        Network::V4(net) => net.addr.into(),
        Network::V6(net) => Ipv6Addr::from(u128::from(net.addr) | u128::from(net.len < 128)).into(),
    }
}

/// Public addresses that also belong to this host: packets to them are not translated.
fn not_the_hosts_own(config: &Config, host: &Host) -> Vec<Finding> {
    let first_ones = config.plan.pools.iter().flat_map(|pool| {
        let all = pool.ranges.iter().flat_map(|range| u32::from(range.first)..=u32::from(range.last));
        all.take(TRIED_MAX).map(|address| (Ipv4Addr::from(address), &pool.name))
    });
    let own =
        first_ones.filter(|(address, _)| way_to((*address).into()).is_ok_and(|way| way == RouteResult::Host));
    own.map(|(address, pool)| {
        Finding::wrong(
            "pool",
            format!(
                "{address} of pool '{pool}' is an address of this host: packets to it are not translated"
            ),
            free(address, host),
        )
    })
    .collect()
}

/// Remedy for an address of both the host and a pool. It never suggests to delete the host's only address.
fn free(address: Ipv4Addr, host: &Host) -> String {
    let is4 = |(_, prefix): &&(u32, Prefix)| prefix.addr.is_ipv4();
    let Some((index, prefix)) = host.addresses.iter().find(|(_, prefix)| prefix.addr == address) else {
        return "remove it from the pool".to_owned();
    };
    let name = host.name(*index);
    let is_alone = !host.addresses.iter().filter(is4).any(|(of, other)| of == index && other.addr != address);
    match is_alone && name != "lo" {
        true => format!(
            "remove it from the pool: {name} has no other IPv4 address. Ask the provider for another one for the pool or for {name}"
        ),
        false => format!("remove it from the pool, or: ip address del {prefix} dev {name}"),
    }
}

fn ethernet(port: &Port, links: &[Link]) -> Vec<Finding> {
    let is_dpdk = port.ethernet.as_ref().is_some_and(|e| e.driver == gatun_config::Driver::Dpdk);
    match links.iter().find(|link| link.name == port.device) {
        _ if is_dpdk => Vec::new(),
        None => {
            let what = format!("interface {} does not exist", port.device);
            vec![Finding::wrong(
                "device",
                what,
                "list interfaces with ip link, and correct `device` of its [[port]]",
            )]
        }
        Some(link) if !link.is_up => {
            let fix = format!("ip link set {} up", link.name);
            vec![Finding::wrong("device", format!("{} is down", link.name), fix)]
        }
        Some(link) => vec![Finding::ok("device", format!("{} exists, MTU {}", link.name, link.mtu))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn kernels_that_corrupt_datagrams_are_detected_by_version() {
        let text = "[[port]]\nudp_gro = true\n[[siit]]\npool6 = \"2001:db8::/96\"\n";
        let (config, _) = gatun_config::load_str(text, "t.toml").unwrap();
        let state = |release: &str| udp_gro(&config.ports[0], release).state;
        for spoils in ["7.0.0", "7.0.0-14-generic", "7.0-rc1", "7.0.9", "7.1.0", "7.1.4"] {
            assert_eq!(state(spoils), State::Wrong, "{spoils}");
        }
        for too_old in ["6.1.0-18-amd64", "5.15.0", ""] {
            assert_eq!(state(too_old), State::Wrong, "{too_old}");
        }
        for sound in ["6.2.0", "6.18.44", "7.1.5", "7.1.5-rc", "7.2.0", "8.0"] {
            assert_eq!(state(sound), State::Ok, "{sound}");
        }
    }
}
