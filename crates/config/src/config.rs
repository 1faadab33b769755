//! Loaded, consistent configuration.

use crate::memory::Memory;
use crate::network::Network;
use crate::problem::MappingFile;
use crate::routes;
use crate::sections::announce::Announce;
use crate::sections::api::Api;
use crate::sections::cluster::Cluster;
use crate::sections::dpdk::Dpdk;
use crate::sections::events::EventSink;
use crate::sections::export::Export;
use crate::sections::fastpath::FastPath;
use crate::sections::log::Log;
use crate::sections::offload::Offload;
use crate::sections::peer::Peer;
use crate::sections::port::Port;
use crate::sections::state::StateDir;
use gatun_nat::plan::{Net4, Net6};
use gatun_nat::workers::Shares;
use gatun_nat::{EventKinds, Plan};
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

/// Loaded, consistent configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Plan of the engine.
    pub plan: Plan,
    /// Ports that packets are received from and sent to; at least one.
    pub ports: Vec<Port>,
    /// Processors of the workers, one for each; if empty, the backend's default.
    pub cores: Vec<u16>,
    /// DPDK's environment, for ports on DPDK devices.
    pub dpdk: Dpdk,
    /// Destination of events as JSON lines.
    pub events: Option<EventSink>,
    /// Kinds of events in JSON lines; the plan has those of all event sinks.
    pub json_kinds: EventKinds,
    /// True if session events contain the remote endpoint.
    pub json_destinations: bool,
    /// Collectors of events.
    pub exports: Vec<Export>,
    /// Log on disk of public port owners, if one is kept.
    pub log: Option<Log>,
    /// Sockets of the API.
    pub api: Api,
    /// Address of the metrics on TCP.
    pub metrics: Option<SocketAddr>,
    /// Directory of sessions that outlive the process.
    pub state: StateDir,
    /// Kernel fast path. `kernel` is false if the ports or instances have no use for it.
    pub fastpath: FastPath,
    /// P4 switches.
    pub offload: Option<Offload>,
    /// Announced routes.
    pub announce: Option<Announce>,
    /// The other box of a pair. `None` also without a stateful instance.
    pub peer: Option<Peer>,
    /// Cluster that this box is a node of. `None` also without a stateful instance.
    pub cluster: Option<Cluster>,
    /// Mapping files that were read, by their names in `eam_file`.
    pub mapping_files: Vec<MappingFile>,
    /// The text of the configuration; empty if it is longer than 40 MiB.
    pub text: String,
    /// SHA-256 of the text and of the files that it names, in hexadecimal.
    pub revision: String,
}

impl Config {
    /// The networks whose packets have to reach a port with `routes = "auto"`: translation prefixes, pools,
    /// the IPv4 side of mappings, and the translator's own addresses, each once. In a cluster also the tunnel
    /// address of this node.
    pub fn routes(&self) -> Vec<Network> {
        let mut routes = routes::auto_routes(&self.plan);
        routes.extend(self.cluster.as_ref().and_then(Cluster::own).map(|node| match node.tunnel {
            IpAddr::V4(addr) => Network::V4(Net4 { addr, len: 32 }),
            IpAddr::V6(addr) => Network::V6(Net6 { addr, len: 128 }),
        }));
        routes
    }

    /// Chooses the node of the cluster that this box is: `given`, the one of the file, or the one with the
    /// host's name. Without a cluster, `given` must be `None`.
    ///
    /// # Errors
    /// There is no such node.
    pub fn choose_node(&mut self, given: Option<&str>, host: &str) -> Result<(), String> {
        match (&mut self.cluster, given) {
            (Some(cluster), given) => cluster.choose_own(given, host)?,
            (None, Some(name)) => {
                return Err(format!("--node {name}: the configuration has no [cluster] that has an effect"));
            }
            (None, None) => return Ok(()),
        }
        let networks = self.routes();
        self.announce.iter_mut().for_each(|announce| announce.networks.clone_from(&networks));
        Ok(())
    }

    /// The IPv4 side of mappings whose hosts reach all IPv4 destinations through a prefix, as behind a CLAT
    /// (RFC 6877). Adjacent networks are joined.
    pub fn mapped_hosts(&self) -> Vec<Net4> {
        routes::mapped_hosts(&self.plan)
    }

    /// The interfaces of Ethernet ports, in the order of their numbers: several ports may share one.
    pub fn devices(&self) -> Vec<&str> {
        let mut devices: Vec<&str> = Vec::new();
        for port in self.ports.iter().filter(|port| port.ethernet.is_some()) {
            if !devices.contains(&&port.device[..]) {
                devices.push(&port.device);
            }
        }
        devices
    }

    /// The number of an Ethernet port's interface.
    pub fn device_number(&self, device: &str) -> u8 {
        let number = self.devices().iter().position(|name| *name == device).unwrap_or(0);
        u8::try_from(number).unwrap_or(u8::MAX)
    }

    /// Number of workers that share state: one for each queue of the port, or one if it does not say.
    pub fn workers(&self) -> usize {
        self.ports.first().and_then(|port| port.queues).map_or(1, usize::from)
    }

    /// Plan of the first worker; the plans of the others are not larger.
    pub fn plan_of_worker(&self) -> Cow<'_, Plan> {
        if !self.plan.is_stateful() || self.workers() == 1 {
            return Cow::Borrowed(&self.plan);
        }
        let shares = Shares::new(&self.plan, self.workers(), [0; 4]).ok();
        let first = shares.and_then(|shares| shares.plans.into_iter().next());
        first.map_or(Cow::Borrowed(&self.plan), Cow::Owned)
    }

    /// Memory of a worker's tables when they are full.
    pub fn memory(&self) -> Memory {
        Memory::of(&self.plan_of_worker())
    }
}
