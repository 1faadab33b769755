//! Ethernet ports as hosts: their addresses, routes and networks.

use crate::seed;
use anyhow::anyhow;
#[cfg(feature = "dpdk")]
use gatun_config::switch_device;
use gatun_config::{Config, Device, Network, Port, host};
use gatun_ether::{Ether, Limits, Problem};
use std::io;
use std::net::IpAddr;

/// Host settings of Ethernet ports, from a configuration.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Hosts {
    pub(crate) ports: Vec<Port>,
    /// Networks of the engine.
    pub(crate) networks: Vec<Network>,
    /// Smallest MTU that the engine relies on, bytes.
    mtu: u32,
}

impl Hosts {
    pub(crate) fn of(config: &Config) -> Hosts {
        Hosts { ports: config.ports.clone(), networks: config.routes(), mtu: engine_mtu(config) }
    }

    /// Addresses of the translator itself.
    #[cfg(feature = "xdp")]
    pub(crate) fn addresses(&self, device: impl Fn(&Port) -> Device) -> impl Iterator<Item = IpAddr> {
        let settings = host(&self.ports, &self.networks, device, 1, 0);
        settings.ports.into_iter().flat_map(|port| port.addresses).map(|address| address.addr)
    }

    /// Creates each worker's `Ether`. `device` gives the device of a port; `own` is called with each address
    /// of the translator itself.
    ///
    /// # Errors
    /// Returns an error if settings contradict each other. The error names the correction.
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

    /// Ports of P4 switches. `device` gives the device of a port.
    #[cfg(feature = "dpdk")]
    pub(crate) fn switch_ports(&self, device: impl Fn(&Port) -> Device) -> Vec<gatun_io_ether::SwitchPort> {
        let ports = self.ports.iter().filter_map(|port| {
            let number = port.ethernet.as_ref()?.switch_port?;
            let behind = device(port).number;
            Some(gatun_io_ether::SwitchPort {
                device: switch_device(&self.ports, port)?,
                behind,
                port: number,
            })
        });
        let mut all: Vec<gatun_io_ether::SwitchPort> = ports.collect();
        all.dedup();
        all
    }

    /// Warns if the port drops larger packets without an ICMP error.
    pub(crate) fn small_mtu(&self, device: &str, mtu: u32) -> Option<String> {
        let Hosts { mtu: engine_mtu, .. } = self;
        (mtu < *engine_mtu).then(|| {
            format!(
                "warning: {device} has an MTU of {mtu}, but the configuration relies on {engine_mtu}: write `mtu4 = {mtu}` in [translator]"
            )
        })
    }
}

/// Smallest MTU of a link in the configuration.
fn engine_mtu(config: &Config) -> u32 {
    let plan = &config.plan;
    let settings = plan.nat64.iter().map(|i| &i.settings).chain(plan.siit.iter().map(|i| &i.settings));
    let mtus = settings.map(|settings| settings.mtu4.min(settings.mtu6));
    mtus.chain(plan.nat44.iter().map(|i| i.mtu)).min().unwrap_or(0)
}

/// Lists changes of open ports.
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

/// Returns true if ports differ in settings that need a restart.
pub(super) fn needs_restart(old: &Hosts, new: &Hosts) -> bool {
    !old.ports.iter().map(Port::fixed).eq(new.ports.iter().map(Port::fixed))
}
