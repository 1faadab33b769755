//! Settings of the kernel that drop packets between its interfaces and a TUN device. Interfaces on an Ethernet do
//! without the kernel.

use super::Finding;
use gatun_config::{Config, Port};
use std::fs;

/// The values of a setting for all interfaces and for one: what counts is not always the larger one.
fn setting(family: &str, device: &str, name: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/sys/net/{family}/conf/{device}/{name}")).ok()?;
    text.trim().parse().ok()
}

pub(super) fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for port in config.ports.iter().filter(|port| port.ethernet.is_none()) {
        findings.extend(forwarding(config, port));
        findings.extend(reverse_path(config, port));
    }
    findings
}

/// An IPv6 that is switched off, for all of the kernel or for the device alone, takes no route to it.
fn ipv6_is_off(device: &str) -> Option<Finding> {
    const CHECK: &str = "ipv6";
    if !gatun_netlink::has_ipv6() {
        return Some(Finding::wrong(
            CHECK,
            format!("IPv6 is off in this kernel: {device} can have no IPv6 address and no IPv6 route"),
            "remove ipv6.disable=1 from the kernel's command line (/proc/cmdline) and restart the host",
        ));
    }
    // A device that is not there yet takes the default.
    let of = [device, "default"].into_iter().find(|of| setting("ipv6", of, "disable_ipv6").is_some())?;
    (setting("ipv6", of, "disable_ipv6") == Some(1)).then(|| {
        Finding::wrong(
            CHECK,
            format!("IPv6 is off on {device}: it can have no IPv6 address and no IPv6 route"),
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
                    "the kernel does not forward {name}: no packet gets to {} from another interface",
                    port.device
                ),
                format!("sysctl -w {key}=1, and write it to /etc/sysctl.d/gatun.conf"),
            ),
            Some(_) if setting(family, &port.device, "forwarding") == Some(0) => Finding::wrong(
                CHECK,
                format!("the kernel does not forward {name} that {} gives it", port.device),
                format!("sysctl -w net.{family}.conf.{}.forwarding=1", port.device),
            ),
            Some(_) => Finding::ok(CHECK, format!("{name} is forwarded")),
            None => Finding::note(
                CHECK,
                format!("whether {name} is forwarded cannot be read"),
                "is /proc mounted?",
            ),
        });
    }
    findings
}

/// A strict reverse path filter (RFC 3704) drops what NAT44 gives back: its source is a remote host, whose route leads
/// elsewhere than to the TUN device. What NAT64 and SIIT send as IPv4 comes from addresses that are routed there.
fn reverse_path(config: &Config, port: &Port) -> Option<Finding> {
    const CHECK: &str = "rp_filter";
    let own =
        setting("ipv4", &port.device, "rp_filter").or_else(|| setting("ipv4", "default", "rp_filter"))?;
    let effective = own.max(setting("ipv4", "all", "rp_filter")?);
    if effective != 1 || config.plan.nat44.is_empty() {
        return Some(Finding::ok(CHECK, format!("{} takes what is translated ({effective})", port.device)));
    }
    Some(Finding::wrong(
        CHECK,
        format!(
            "{} has a strict reverse path filter: what NAT44 translates from outside is dropped",
            port.device
        ),
        format!(
            "sysctl -w net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.{}.rp_filter=2 (loose: the larger one counts)",
            port.device
        ),
    ))
}
