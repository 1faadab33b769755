//! Netfilter rules that drop packets between a TUN device and other interfaces. Packets of AF_XDP and DPDK
//! bypass netfilter.

use super::{Finding, Host, mtu, steering};
use gatun_config::Config;
use gatun_netlink::netfilter::{Chain, Family, InterfaceMatch, Outcome, Rule, Ruleset};
use rustix::io::Errno;
use std::fs;

const CHECK: &str = "firewall";
/// Longest sequence of nested chains.
const DEPTH_MAX: u32 = 16;
/// Maximum number of private networks to look up.
const NETS_MAX: usize = 64;

pub(super) fn examine(config: &Config, host: &Host) -> Vec<Finding> {
    let devices: Vec<&str> =
        config.ports.iter().filter(|port| port.ethernet.is_none()).map(|port| &*port.device).collect();
    if devices.is_empty() {
        return Vec::new();
    }
    let ruleset = match Ruleset::read() {
        Ok(ruleset) => ruleset,
        Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::PERM | Errno::ACCESS)) => {
            let what = "netfilter rules cannot be read without CAP_NET_ADMIN";
            return vec![Finding::note(CHECK, what, "sudo gatun doctor")];
        }
        // A kernel without nf_tables.
        Err(_) => Ruleset::default(),
    };
    let is44 = config.plan.nat64.is_empty() && config.plan.siit.is_empty();
    let mut findings = Vec::new();
    for device in devices {
        let index = host.links.iter().find(|link| link.name == device).map_or(0, |link| link.index);
        let sides =
            Sides { device: (index, device), inside: inside(config, host), uplink: uplink(config, host) };
        let blocking = |chain: &&Chain| chain.forward && !(is44 && chain.family == Family::Ip6);
        for chain in ruleset.chains.iter().filter(blocking) {
            findings.extend(drops(&ruleset, chain, &sides));
        }
    }
    findings.extend(legacy());
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "no rule of nftables drops all packets from or to the device"));
    }
    findings
}

/// Interface by number and name.
type Interface<'h> = (u32, &'h str);

/// Inside and outside interfaces of connections.
struct Sides<'h> {
    device: Interface<'h>,
    inside: Vec<Interface<'h>>,
    uplink: Option<Interface<'h>>,
}

fn uplink<'h>(config: &Config, host: &'h Host) -> Option<Interface<'h>> {
    mtu::uplink(config, host).map(|link| (link.index, &*link.name))
}

fn inside<'h>(config: &Config, host: &'h Host) -> Vec<Interface<'h>> {
    let six = mtu::inside(config, host).into_iter().map(|link| link.index);
    let nets = config.plan.nat44.iter().flat_map(|nat44| &nat44.inside).take(NETS_MAX);
    let four = nets.flat_map(|net| steering::hosts_of(net, host)).map(|(_, index)| index);
    let all: Vec<u32> = six.chain(four).collect();
    let links = host.links.iter().filter(|link| all.contains(&link.index));
    links.map(|link| (link.index, &*link.name)).collect()
}

/// Note about iptables-legacy rules, which cannot be read over netlink.
fn legacy() -> Option<Finding> {
    let tables = ["ip", "ip6"].map(|family| fs::read_to_string(format!("/proc/net/{family}_tables_names")));
    let has_filter = tables.into_iter().flatten().any(|names| names.lines().any(|name| name == "filter"));
    has_filter.then(|| {
        let what = "this host also has iptables-legacy rules, which are not checked";
        Finding::note(CHECK, what, "iptables-legacy -S FORWARD; ip6tables-legacy -S FORWARD")
    })
}

/// Finding about a chain that drops all connections from or to a device.
fn drops(ruleset: &Ruleset, chain: &Chain, sides: &Sides<'_>) -> Option<Finding> {
    let Sides { device, inside, uplink } = sides;
    let passes = |from, to| passes(ruleset, chain, &Path { from, to, device: *device }, 0);
    let from = passes(Some(*device), *uplink);
    let to = match &inside[..] {
        [] => passes(None, Some(*device)),
        all => all.iter().any(|inside| passes(Some(*inside), Some(*device))),
    };
    let name = device.1;
    let side = match (from, to) {
        (true, true) => return None,
        (false, true) => "from",
        (true, false) => "to",
        (false, false) => "from and to",
    };
    let what = format!(
        "the kernel drops forwarded packets {side} {name}: no rule of the chain '{}' (nftables, table {} {}) accepts them",
        chain.name,
        chain.family.name(),
        chain.table
    );
    let fixes = [(from, "iifname", "-i"), (to, "oifname", "-o")].into_iter().filter(|(passes, ..)| !passes);
    let fix: Vec<String> = fixes
        .map(|(_, matched, flag)| match (chain.family, &*chain.table, &*chain.name) {
            (Family::Ip, "filter", "FORWARD") => format!("iptables -I FORWARD {flag} {name} -j ACCEPT"),
            (Family::Ip6, "filter", "FORWARD") => format!("ip6tables -I FORWARD {flag} {name} -j ACCEPT"),
            (family, table, chain) => {
                format!("nft insert rule {} {table} {chain} {matched} {name} accept", family.name())
            }
        })
        .collect();
    Some(Finding::wrong(CHECK, what, fix.join("; ")))
}

/// Path of a packet through the kernel; an unknown interface is not the device.
struct Path<'h> {
    from: Option<Interface<'h>>,
    to: Option<Interface<'h>>,
    device: Interface<'h>,
}

impl Path<'_> {
    fn fits(&self, of: &InterfaceMatch) -> bool {
        match if of.out { self.to } else { self.from } {
            Some((index, name)) => of.matches(index, name),
            None => !of.is_only(self.device.0, self.device.1),
        }
    }

    fn knows(&self, of: &InterfaceMatch) -> bool {
        if of.out { self.to.is_some() } else { self.from.is_some() }
    }
}

/// True if the first packet of some connection may pass a chain.
fn passes(ruleset: &Ruleset, chain: &Chain, way: &Path<'_>, depth: u32) -> bool {
    let of_chain =
        |rule: &&Rule| rule.family == chain.family && rule.table == chain.table && rule.chain == chain.name;
    for rule in ruleset.rules.iter().filter(of_chain).filter(|rule| !rule.established) {
        if !rule.interfaces.iter().all(|of| way.fits(of)) {
            continue;
        }
        let is_for_all = !rule.other_conditions && rule.interfaces.iter().all(|of| way.knows(of));
        match &rule.outcome {
            Outcome::Accept | Outcome::Unknown => return true,
            Outcome::Drop if is_for_all => return false,
            Outcome::Chain(name) if depth < DEPTH_MAX => {
                let next = ruleset.chains.iter().find(|next| {
                    next.family == chain.family && next.table == chain.table && next.name == *name
                });
                if next.is_some_and(|next| passes(ruleset, next, way, depth + 1)) {
                    return true;
                }
            }
            Outcome::Chain(_) | Outcome::Drop | Outcome::Continue => {}
        }
    }
    // The end of a called chain is no verdict.
    chain.forward && !chain.drops
}
