//! What ports on Ethernets have in common, whatever their backend.

pub(super) mod live;

use super::seed;
use anyhow::anyhow;
use gatun_config::{Config, Device, Network, Port, host};
use gatun_ether::{Ether, Limits, Problem};
use gatun_io::Backend;
use gatun_io_ether::{EthernetHandover, Frames};
use std::io;
use std::net::IpAddr;

/// One for each worker.
pub(super) type Backends = Vec<Box<dyn Backend>>;

/// What a configuration says of the hosts that the ports are.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Hosts {
    pub(super) ports: Vec<Port>,
    /// What is the engine's.
    pub(super) networks: Vec<Network>,
    /// The smallest MTU that the engine counts on, bytes.
    mtu: u32,
}

impl Hosts {
    pub(super) fn of(config: &Config) -> Hosts {
        Hosts { ports: config.ports.clone(), networks: config.routes(), mtu: engine_mtu(config) }
    }

    /// Addresses that are the translator's own.
    #[cfg(feature = "xdp")]
    pub(super) fn addresses(&self, device: impl Fn(&Port) -> Device) -> impl Iterator<Item = IpAddr> {
        let settings = host(&self.ports, &self.networks, device, 1, 0);
        settings.ports.into_iter().flat_map(|port| port.addresses).map(|address| address.addr)
    }

    /// The manners of each worker. `device` is what is behind a port; `own` is told of each address that is the
    /// translator's own.
    ///
    /// # Errors
    /// What does not fit together, with what to write instead.
    pub(super) fn ethers(
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
    pub(super) fn small_mtu(&self, device: &str, mtu: u32) -> Option<String> {
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

/// A backend for each worker, with what lets other manners take over; `devices` as [`gatun_io_ether::backends`] has them.
pub(super) fn backends<F: Frames + 'static>(
    workers: Vec<F>,
    devices: &[(&str, bool)],
    ethers: Vec<Ether>,
) -> io::Result<(Backends, Vec<EthernetHandover>)> {
    let backends = gatun_io_ether::backends(workers, devices, ethers)?;
    let both = backends.into_iter().map(|backend| {
        let handover = backend.handover();
        (Box::new(backend) as Box<dyn Backend>, handover)
    });
    Ok(both.unzip())
}
