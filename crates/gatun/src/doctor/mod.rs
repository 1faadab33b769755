//! `gatun doctor`: what of this machine keeps packets from being translated, and what to do about it.
//!
//! ```text
//!   daemon    does one answer, and is what it tells in order
//!   kernel    forwarding, reverse path filters
//!   paths     where the kernel sends what has to be translated; MTUs and offloads on the way
//!   system    devices, huge pages, limits of the process
//!   dns64     does a name server lead IPv6 hosts to the translation prefix
//! ```
//! Nothing is changed, and nothing is sent but the DNS questions.

mod daemon;
mod dns64;
mod kernel;
mod paths;
mod system;

use gatun_api::client::Client;
use gatun_config::Config;
use serde::Serialize;
use std::net::IpAddr;

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

/// All checks.
pub(crate) fn examine(patient: &Patient) -> Vec<Finding> {
    let (mut findings, pid) = daemon::examine(&patient.client);
    let Some(config) = &patient.config else {
        let what = "no configuration: most checks need one";
        findings.push(Finding::note("configuration", what, "gatun doctor FILE, or start the daemon"));
        findings.extend(system::examine(None, pid));
        return findings;
    };
    findings.extend(kernel::examine(config));
    findings.extend(paths::examine(config, pid.is_some()));
    findings.extend(system::examine(Some(config), pid));
    findings.extend(dns64::examine(config, patient.dns64));
    findings
}
