//! Kernel settings that drop packets between interfaces and a TUN device. Ethernet ports bypass the kernel.

use super::Finding;
use gatun_config::{Config, Port};
use std::fs;

/// Value of a setting for an interface.
fn setting(family: &str, device: &str, name: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/sys/net/{family}/conf/{device}/{name}")).ok()?;
    text.trim().parse().ok()
}

pub(super) fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for port in config.ports.iter().filter(|port| port.ethernet.is_none()) {
        findings.extend(forwarding(config, port));
        findings.extend(reverse_path(config, port));
        findings.extend(accept_local(config, port));
    }
    findings
}

/// Finding about IPv6 that is disabled in the kernel or on the device.
fn ipv6_is_off(device: &str) -> Option<Finding> {
    const CHECK: &str = "ipv6";
    if !gatun_netlink::has_ipv6() {
        return Some(Finding::wrong(
            CHECK,
            format!("IPv6 is disabled in this kernel: {device} cannot have IPv6 addresses or routes"),
            "remove ipv6.disable=1 from the kernel's command line (/proc/cmdline) and restart the host",
        ));
    }
    // A device that does not exist yet gets the default.
    let of = [device, "default"].into_iter().find(|of| setting("ipv6", of, "disable_ipv6").is_some())?;
    (setting("ipv6", of, "disable_ipv6") == Some(1)).then(|| {
        Finding::wrong(
            CHECK,
            format!("IPv6 is disabled on {device}: it cannot have IPv6 addresses or routes"),
            format!("sysctl -w net.ipv6.conf.{of}.disable_ipv6=0"),
        )
    })
}

fn forwarding(config: &Config, port: &Port) -> Vec<Finding> {
    const CHECK: &str = "forwarding";
    let has_six = !(config.plan.nat64.is_empty() && config.plan.siit.is_empty());
    let mut families = vec![("IPv4", "ipv4", "net.ipv4.ip_forward")];
    let no_ipv6 = if has_six { ipv6_is_off(&port.device) } else { None };
    if has_six && no_ipv6.is_none() {
        families.push(("IPv6", "ipv6", "net.ipv6.conf.all.forwarding"));
    }
    let mut findings: Vec<Finding> = no_ipv6.into_iter().collect();
    for (name, family, key) in families {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        let all = fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        findings.push(match all.as_deref() {
            Some("0") => Finding::wrong(
                CHECK,
                format!(
                    "the kernel does not forward {name}: packets from other interfaces do not reach {}",
                    port.device
                ),
                format!("sysctl -w {key}=1, and add it to /etc/sysctl.d/gatun.conf"),
            ),
            Some(_) if setting(family, &port.device, "forwarding") == Some(0) => Finding::wrong(
                CHECK,
                format!("the kernel does not forward {name} from {}", port.device),
                format!("sysctl -w net.{family}.conf.{}.forwarding=1", port.device),
            ),
            Some(_) => Finding::ok(CHECK, format!("{name} is forwarded")),
            None => {
                Finding::note(CHECK, format!("cannot read whether {name} is forwarded"), "is /proc mounted?")
            }
        });
    }
    findings
}

/// Finding about a strict reverse path filter (RFC 3704). It drops replies of NAT44: their sources are remote
/// hosts, which are not routed to the TUN device. IPv4 packets of NAT64 and SIIT come from addresses that
/// are.
fn reverse_path(config: &Config, port: &Port) -> Option<Finding> {
    const CHECK: &str = "rp_filter";
    let own =
        setting("ipv4", &port.device, "rp_filter").or_else(|| setting("ipv4", "default", "rp_filter"))?;
    let effective = own.max(setting("ipv4", "all", "rp_filter")?);
    if effective != 1 || config.plan.nat44.is_empty() {
        return Some(Finding::ok(CHECK, format!("{} accepts translated packets ({effective})", port.device)));
    }
    Some(Finding::wrong(
        CHECK,
        format!("{} has a strict reverse path filter: translated replies of NAT44 are dropped", port.device),
        format!(
            "sysctl -w net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.{}.rp_filter=2 (loose: the larger one counts)",
            port.device
        ),
    ))
}

/// Finding about ICMP errors of this host in front of NAT44. They enter the device with an address of this
/// host as source, and return with it (RFC 5508 REQ-4). Without `accept_local`, the kernel drops them there.
fn accept_local(config: &Config, port: &Port) -> Option<Finding> {
    const CHECK: &str = "accept_local";
    if config.plan.nat44.is_empty() {
        return None;
    }
    // A device that does not exist yet gets the default.
    let own = setting("ipv4", &port.device, CHECK).or_else(|| setting("ipv4", "default", CHECK))?;
    if own.max(setting("ipv4", "all", CHECK)?) > 0 {
        return Some(Finding::ok(CHECK, format!("{} accepts ICMP errors of this host", port.device)));
    }
    Some(Finding::note(
        CHECK,
        format!(
            "ICMP errors of this host do not pass {}: hosts of NAT44 do not see it in a traceroute, and do not learn the MTU of its links",
            port.device
        ),
        format!("sysctl -w net.ipv4.conf.{}.accept_local=1 (once gatun runs)", port.device),
    ))
}
