//! Settings of the ports, for all backends. Contains nothing that is open.

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
    /// TUN devices, each with one queue per worker.
    Tun(Vec<TunConfig>),
    /// Network interfaces through AF_XDP.
    #[cfg(feature = "xdp")]
    Xdp(XdpPorts),
    /// DPDK devices.
    #[cfg(feature = "dpdk")]
    Dpdk(DpdkPorts),
}

impl PortSettings {
    /// Number of queues, each of which has a worker.
    pub fn workers(&self) -> usize {
        match self {
            PortSettings::Tun(devices) => devices.iter().map(|device| device.queues).sum(),
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(ports) => ports.config.queues as usize,
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(ports) => ports.config.queues.into(),
        }
    }

    /// Memory in bytes for packets.
    pub fn memory_bytes(&self) -> u64 {
        match self {
            PortSettings::Tun(_) => self.workers() as u64 * gatun_io_tun::QUEUE_BYTES,
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(ports) => self.workers() as u64 * gatun_io_xdp::queue_bytes(&ports.config),
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(ports) => gatun_io_dpdk::memory_bytes(&ports.config),
        }
    }

    /// True if packets are on huge pages if enough are free.
    pub(crate) fn wants_huge_pages(&self) -> bool {
        match self {
            PortSettings::Tun(_) => false,
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(_) => false,
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(ports) => ports.config.eal.huge_pages != gatun_io_dpdk::HugePages::Never,
        }
    }

    /// Processors of the workers and of other threads. `None` if the system or DPDK assigns them.
    ///
    /// # Errors
    /// Returns an error if the processors do not fit. The error says what to write.
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

    /// Rights needed to open the ports.
    pub(crate) fn rights(&self) -> Rights {
        match self {
            PortSettings::Tun(_) => Rights::Tun,
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(_) => Rights::Xdp,
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(_) => Rights::All,
        }
    }

    /// System calls of worker threads and of all threads that start later.
    pub(crate) fn calls(&self) -> Calls {
        match self {
            PortSettings::Tun(_) => Calls::Daemon,
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(_) => Calls::Daemon,
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(_) => Calls::Dpdk,
        }
    }

    /// TUN devices.
    pub(crate) fn devices(&self) -> &[TunConfig] {
        match self {
            PortSettings::Tun(devices) => devices,
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(_) => &[],
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(_) => &[],
        }
    }

    /// Host settings of Ethernet ports.
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

    /// Lists changes that open Ethernet ports allow.
    #[cfg(any(feature = "xdp", feature = "dpdk"))]
    pub(crate) fn changes(old: &PortSettings, new: &PortSettings) -> Vec<String> {
        match (old.hosts(), new.hosts()) {
            (Some(old), Some(new)) => hosts::changes(old, new),
            _ => Vec::new(),
        }
    }

    /// Without a backend for Ethernet, no port can change.
    #[cfg(not(any(feature = "xdp", feature = "dpdk")))]
    pub(crate) fn changes(_: &PortSettings, _: &PortSettings) -> Vec<String> {
        Vec::new()
    }

    /// Lists differences that need a restart, except settings of TUN devices.
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
