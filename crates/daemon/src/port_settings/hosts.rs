//! Ports on Ethernets as hosts: their addresses, routes and networks.

use crate::seed;
use anyhow::anyhow;
use gatun_config::{Config, Device, Network, Port, host};
use gatun_ether::{Ether, Limits, Problem};
use std::io;
use std::net::IpAddr;

/// Ports as hosts, from a configuration.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Hosts {
    pub(crate) ports: Vec<Port>,
    /// Networks of the engine.
    pub(crate) networks: Vec<Network>,
    /// The smallest MTU that the engine counts on, bytes.
    mtu: u32,
}

impl Hosts {
    pub(crate) fn of(config: &Config) -> Hosts {
        Hosts { ports: config.ports.clone(), networks: config.routes(), mtu: engine_mtu(config) }
    }

    /// Addresses that are the translator's own.
    #[cfg(feature = "xdp")]
    pub(crate) fn addresses(&self, device: impl Fn(&Port) -> Device) -> impl Iterator<Item = IpAddr> {
        let settings = host(&self.ports, &self.networks, device, 1, 0);
        settings.ports.into_iter().flat_map(|port| port.addresses).map(|address| address.addr)
    }

    /// The manners of each worker. `device` is what is behind a port; `own` is told of each address that is the
    /// translator's own.
    ///
    /// # Errors
    /// Settings that contradict each other, with the fix.
    pub(crate) fn ethers(
        &self,
        workers: usize,
        device: impl Fn(&Port) -> Device,
        mut own: impl FnMut(IpAddr) -> io::Result<()>,
    ) -> anyhow::Result<Vec<Ether>> {
        let mut ethers = Vec::new();
        for worker in 0..workers {
            let settings = host(&self.ports, &self.networks, &device, workers, worker);
            for address in settings.ports.iter().flat_map(|port| &port.addresses) {
                own(address.addr)?;
            }
            let problems = |problems: Vec<Problem>| {
                anyhow!("{}", problems.iter().map(|p| p.to_string()).collect::<Vec<_>>().join("; "))
            };
            ethers.push(Ether::new(&settings, &Limits::default(), seed()?).map_err(problems)?);
        }
        Ok(ethers)
    }

    /// Larger packets would be dropped at the port, and nobody told.
    pub(crate) fn small_mtu(&self, device: &str, mtu: u32) -> Option<String> {
        let Hosts { mtu: engine_mtu, .. } = self;
        (mtu < *engine_mtu).then(|| {
            format!(
                "warning: {device} has an MTU of {mtu}, and the configuration counts on {engine_mtu}: write `mtu4 = {mtu}` in [translator]"
            )
        })
    }
}

/// The smallest of the links' MTUs that the configuration names.
fn engine_mtu(config: &Config) -> u32 {
    let plan = &config.plan;
    let settings = plan.nat64.iter().map(|i| &i.settings).chain(plan.siit.iter().map(|i| &i.settings));
    let mtus = settings.map(|settings| settings.mtu4.min(settings.mtu6));
    mtus.chain(plan.nat44.iter().map(|i| i.mtu)).min().unwrap_or(0)
}

/// Changes of open ports, as text.
pub(super) fn changes(old: &Hosts, new: &Hosts) -> Vec<String> {
    let mut changes = Vec::new();
    for (old, new) in old.ports.iter().zip(&new.ports) {
        let (Some(old_link), Some(new_link)) = (&old.ethernet, &new.ethernet) else { continue };
        let differences = [
            ("addresses", old.addresses != new.addresses),
            ("routes", old_link.routes != new_link.routes),
            ("neighbours", old_link.neighbours != new_link.neighbours),
            ("answers", old_link.answers != new_link.answers),
        ];
        let what: Vec<&str> = differences.iter().filter(|(_, is)| *is).map(|(what, _)| *what).collect();
        if !what.is_empty() {
            changes.push(format!("port {}: its {}", new.name, what.join(", ")));
        }
    }
    changes
}

/// Whether ports differ in what needs a restart.
pub(super) fn needs_restart(old: &Hosts, new: &Hosts) -> bool {
    !old.ports.iter().map(Port::fixed).eq(new.ports.iter().map(Port::fixed))
}
