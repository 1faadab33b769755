//! Settings of the ports, whatever their backend. Knows nothing that is open.

#[cfg(feature = "dpdk")]
mod dpdk;
#[cfg(any(feature = "xdp", feature = "dpdk"))]
mod hosts;
#[cfg(feature = "xdp")]
mod xdp;

use crate::privileges::Rights;
use crate::sandbox::Calls;
use gatun_io::Processors;
use gatun_io_tun::TunConfig;

#[cfg(feature = "dpdk")]
pub use dpdk::DpdkPorts;
#[cfg(any(feature = "xdp", feature = "dpdk"))]
pub(crate) use hosts::Hosts;
#[cfg(feature = "xdp")]
pub use xdp::XdpPorts;

/// Requested configuration.
#[derive(Clone)]
pub enum PortSettings {
    /// TUN devices, each with one queue a worker.
    Tun(Vec<TunConfig>),
    /// Network interfaces through AF_XDP.
    #[cfg(feature = "xdp")]
    Xdp(XdpPorts),
    /// Devices of DPDK.
    #[cfg(feature = "dpdk")]
    Dpdk(DpdkPorts),
}

impl PortSettings {
    /// Queues, each of which gets a worker.
    pub fn workers(&self) -> usize {
        match self {
            PortSettings::Tun(devices) => devices.iter().map(|device| device.queues).sum(),
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(ports) => ports.config.queues as usize,
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(ports) => ports.config.queues.into(),
        }
    }

    /// Memory of the packets that they are read into, bytes. DPDK has its own.
    pub fn memory_bytes(&self) -> u64 {
        match self {
            PortSettings::Tun(_) => self.workers() as u64 * gatun_io_tun::QUEUE_BYTES,
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(ports) => self.workers() as u64 * gatun_io_xdp::queue_bytes(&ports.config),
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(_) => 0,
        }
    }

    /// Processors of the workers, and for the rest. None: they are where the system puts them, or where DPDK has put them.
    ///
    /// # Errors
    /// Says what to write instead.
    pub(crate) fn processors(&self, cores: &[u16]) -> anyhow::Result<Option<Processors>> {
        let takes_them_itself = match self {
            PortSettings::Tun(_) => false,
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(_) => false,
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(_) => true,
        };
        if takes_them_itself || cores.is_empty() {
            return Ok(None);
        }
        Ok(Some(Processors::divide(cores, self.workers())?))
    }

    /// Capabilities that opening them needs.
    pub(crate) fn rights(&self) -> Rights {
        match self {
            PortSettings::Tun(_) => Rights::Tun,
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(_) => Rights::Xdp,
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(_) => Rights::All,
        }
    }

    /// System calls of the threads that move packets, and of all others that begin later.
    pub(crate) fn calls(&self) -> Calls {
        match self {
            PortSettings::Tun(_) => Calls::Daemon,
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(_) => Calls::Daemon,
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(_) => Calls::Dpdk,
        }
    }

    /// The TUN devices.
    pub(crate) fn devices(&self) -> &[TunConfig] {
        match self {
            PortSettings::Tun(devices) => devices,
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(_) => &[],
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(_) => &[],
        }
    }

    /// The hosts that ports on Ethernets are.
    #[cfg(any(feature = "xdp", feature = "dpdk"))]
    pub(crate) fn hosts(&self) -> Option<&Hosts> {
        match self {
            PortSettings::Tun(_) => None,
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(ports) => Some(&ports.hosts),
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(ports) => Some(&ports.hosts),
        }
    }

    /// Changes that open ports on Ethernets allow, as text.
    #[cfg(any(feature = "xdp", feature = "dpdk"))]
    pub(crate) fn changes(old: &PortSettings, new: &PortSettings) -> Vec<String> {
        match (old.hosts(), new.hosts()) {
            (Some(old), Some(new)) => hosts::changes(old, new),
            _ => Vec::new(),
        }
    }

    /// No port is on an Ethernet.
    #[cfg(not(any(feature = "xdp", feature = "dpdk")))]
    pub(crate) fn changes(_: &PortSettings, _: &PortSettings) -> Vec<String> {
        Vec::new()
    }

    /// Differences that need a restart, beside settings of TUN devices.
    pub(crate) fn differ(old: &PortSettings, new: &PortSettings) -> Vec<String> {
        match (old, new) {
            (PortSettings::Tun(old), PortSettings::Tun(new)) if old.len() == new.len() => Vec::new(),
            (PortSettings::Tun(_), PortSettings::Tun(_)) => vec!["the number of ports".to_owned()],
            #[cfg(feature = "xdp")]
            (PortSettings::Xdp(old), PortSettings::Xdp(new)) => xdp::differ(old, new),
            #[cfg(feature = "dpdk")]
            (PortSettings::Dpdk(old), PortSettings::Dpdk(new)) => dpdk::differ(old, new),
            #[cfg(any(feature = "xdp", feature = "dpdk"))]
            _ => vec!["ports of another backend".to_owned()],
        }
    }
}
