//! `gatun doctor`: what of this machine keeps packets from being translated, and what to do about it.
//!
//! ```text
//!   daemon    does one answer, and is what it tells in order
//!   kernel    forwarding, reverse path filters
//!   firewall  netfilter's rules for forwarded packets
//!   paths     routes to what has to be translated; the device and its offloads
//!   steering  policy rules of NAT44
//!   mtu       MTUs on both sides
//!   disk      room for the log, events and spools
//!   system    devices, huge pages, limits of the process
//!   dns64     does a name server lead IPv6 hosts to the translation prefix
//! ```
//! Nothing is changed, and nothing is sent but the DNS questions and a connection to a silent collector.

mod daemon;
mod disk;
mod dns64;
mod firewall;
mod kernel;
mod mtu;
mod paths;
mod steering;
mod system;

use gatun_api::client::Client;
use gatun_config::Config;
use gatun_netlink::Prefix;
use gatun_netlink::query::{Link, interface_addresses, links};
use serde::Serialize;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// As it has to be.
    Ok,
    /// Worth knowing; it may be meant.
    Note,
    /// Packets are lost by it, or something does not work.
    Wrong,
}

/// What a check has found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    /// Which check.
    pub(crate) check: &'static str,
    /// How it came out.
    pub(crate) state: State,
    /// What there is.
    pub(crate) what: String,
    /// What to do: a command, or a setting.
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

/// What is looked at.
pub(crate) struct Patient {
    /// Where a daemon would answer.
    pub(crate) client: Client,
    /// The configuration: of a file, or the running one.
    pub(crate) config: Option<Config>,
    /// A name server that has to be a DNS64.
    pub(crate) dns64: Option<IpAddr>,
}

/// Interfaces of this network namespace.
struct Host {
    links: Vec<Link>,
    /// Their addresses, each behind the number of its interface.
    addresses: Vec<(u32, Prefix)>,
}

impl Host {
    fn read() -> io::Result<Host> {
        Ok(Host { links: links()?, addresses: interface_addresses()? })
    }

    /// The interface's name.
    fn name(&self, index: u32) -> String {
        let found = self.links.iter().find(|link| link.index == index);
        found.map_or_else(|| format!("interface {index}"), |link| link.name.clone())
    }
}

/// Remote hosts that stand for the Internet: nothing is sent to them.
const REMOTE4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(9, 9, 9, 9), Ipv4Addr::new(1, 1, 1, 1), Ipv4Addr::new(8, 8, 8, 8)];

/// What can be looked at in a few milliseconds, and needs neither a daemon nor the network: for the log of a daemon that
/// starts. `runs`: whether one does.
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
            let what = format!("the kernel does not tell of its interfaces: {error}");
            findings.push(Finding::wrong("routes", what, "is this a container without netlink?"));
        }
    }
    findings.extend(disk::examine(config));
    findings
}

/// All checks.
pub(crate) fn examine(patient: &Patient) -> Vec<Finding> {
    let (mut findings, pid) = daemon::examine(&patient.client, patient.config.as_ref());
    let Some(config) = &patient.config else {
        let what = "no configuration: most checks need one";
        findings.push(Finding::note("configuration", what, "gatun doctor FILE, or start the daemon"));
        findings.extend(system::examine(None, pid));
        return findings;
    };
    findings.extend(quick(config, pid.is_some()));
    findings.extend(system::examine(Some(config), pid));
    findings.extend(dns64::examine(config, patient.dns64));
    findings
}
