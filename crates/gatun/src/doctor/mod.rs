//! `gatun doctor`: problems of this machine that keep packets from being translated, and how to fix them.
//!
//! ```text
//!   announce  announced routes, and their use by BIRD
//!   cluster   the node of a cluster: etcd, other nodes, shards, ways of packets
//!   daemon    the running daemon, its log and collectors
//!   kernel    forwarding, reverse path filters
//!   firewall  netfilter's rules for forwarded packets
//!   paths     routes to the translator; devices and offloads
//!   peer      the pair of boxes: connection, configurations, ways of packets
//!   sample    packets counted for a second, for the checks of a pair and of a cluster
//!   steering  policy rules of NAT44
//!   mtu       MTUs on both sides
//!   disk      free space for the log, events and spools
//!   system    devices, huge pages, process limits
//!   fastpath  the kernel's support of the fast path
//!   dns64     answers of a name server for the translation prefix
//! ```
//! The checks change nothing. They send DNS queries, ask BIRD, and connect to a collector that is silent.

mod announce;
mod cluster;
mod daemon;
mod disk;
mod dns64;
mod fastpath;
mod firewall;
mod kernel;
mod mtu;
mod paths;
mod peer;
mod sample;
mod steering;
mod system;

use gatun_api::client::Client;
use gatun_config::Config;
use gatun_netlink::Prefix;
use gatun_netlink::query::{Link, interface_addresses, links};
use serde::Serialize;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Correct.
    Ok,
    /// Worth knowing, possibly intended.
    Note,
    /// Packets are lost, or something does not work.
    Wrong,
}

/// Finding of a check.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    /// Name of the check.
    pub(crate) check: &'static str,
    /// Result.
    pub(crate) state: State,
    /// Description.
    pub(crate) what: String,
    /// Remedy: a command or a setting.
    pub(crate) fix: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, what: impl Into<String>) -> Finding {
        Finding { check, state: State::Ok, what: what.into(), fix: None }
    }

    pub(crate) fn note(check: &'static str, what: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { check, state: State::Note, what: what.into(), fix: Some(fix.into()) }
    }

    pub(crate) fn wrong(check: &'static str, what: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { check, state: State::Wrong, what: what.into(), fix: Some(fix.into()) }
    }
}

/// Subject of the checks.
pub(crate) struct Subject {
    /// Client of the daemon.
    pub(crate) client: Client,
    /// Configuration of a file or of the daemon.
    pub(crate) config: Option<Config>,
    /// Name server to check for DNS64.
    pub(crate) dns64: Option<IpAddr>,
}

/// Interfaces of this network namespace.
struct Host {
    links: Vec<Link>,
    /// Addresses, with the numbers of their interfaces.
    addresses: Vec<(u32, Prefix)>,
}

impl Host {
    fn read() -> io::Result<Host> {
        Ok(Host { links: links()?, addresses: interface_addresses()? })
    }

    /// Name of an interface.
    fn name(&self, index: u32) -> String {
        let found = self.links.iter().find(|link| link.index == index);
        found.map_or_else(|| format!("interface {index}"), |link| link.name.clone())
    }
}

/// Remote hosts for route look-ups; nothing is sent to them.
const REMOTE4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(9, 9, 9, 9), Ipv4Addr::new(1, 1, 1, 1), Ipv4Addr::new(8, 8, 8, 8)];

/// Runs the checks that take milliseconds and need neither a daemon nor the network, for the log of a
/// starting daemon. `runs` is true if a daemon runs.
pub(crate) fn quick(config: &Config, runs: bool) -> Vec<Finding> {
    let mut findings = kernel::examine(config);
    match Host::read() {
        Ok(host) => {
            findings.extend(firewall::examine(config, &host));
            findings.extend(paths::examine(config, &host, runs));
            findings.extend(steering::examine(config, &host));
            findings.extend(mtu::examine(config, &host));
        }
        Err(error) => {
            let what = format!("cannot read the kernel's interfaces: {error}");
            findings.push(Finding::wrong("routes", what, "is this a container without netlink?"));
        }
    }
    findings.extend(disk::examine(config));
    findings.extend(fastpath::examine(config));
    findings
}

/// Runs all checks.
pub(crate) fn examine(subject: &Subject) -> Vec<Finding> {
    let (mut findings, pid) = daemon::examine(&subject.client, subject.config.as_ref());
    let Some(config) = &subject.config else {
        let what = "no configuration: most checks were skipped";
        findings.push(Finding::note("configuration", what, "gatun doctor FILE, or start the daemon"));
        findings.extend(system::examine(None, pid));
        return findings;
    };
    findings.extend(quick(config, pid.is_some()));
    findings.extend(system::examine(Some(config), pid));
    findings.extend(announce::examine(&subject.client, config));
    findings.extend(peer::examine(&subject.client, config));
    findings.extend(cluster::examine(&subject.client, config));
    findings.extend(dns64::examine(config, subject.dns64));
    findings
}
