//! Changes of open ports while packets are translated. TUN devices are not included: the kernel has their
//! routes and addresses (`net_helper::Routes`).

use super::port_settings::PortSettings;
use gatun_worker::Handle;
use std::io;

#[cfg(any(feature = "xdp", feature = "dpdk"))]
use super::ethernet::live::{LiveEthernet, NextEthernet};

/// Changeable parts of open ports.
#[derive(Default)]
pub(super) struct LivePorts {
    /// Ethernet ports.
    #[cfg(any(feature = "xdp", feature = "dpdk"))]
    pub(super) ethernet: Option<LiveEthernet>,
}

/// Prepared changes.
#[derive(Default)]
pub(super) struct NextPorts {
    #[cfg(any(feature = "xdp", feature = "dpdk"))]
    ethernet: Option<NextEthernet>,
}

#[cfg(any(feature = "xdp", feature = "dpdk"))]
impl LivePorts {
    /// Prepares new settings of the ports.
    ///
    /// # Errors
    /// Returns an error if settings contradict each other. The error names the correction.
    pub(super) fn prepare(&self, old: &PortSettings, new: &PortSettings) -> anyhow::Result<NextPorts> {
        let next = self.ethernet.as_ref().map(|live| live.prepare(old, new)).transpose()?;
        Ok(NextPorts { ethernet: next.flatten() })
    }

    /// Admits packets that are translated once the engines have changed.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses; then nothing has changed.
    pub(super) fn begin(&self, next: &NextPorts) -> io::Result<()> {
        self.both(next).map_or(Ok(()), |(live, next)| live.begin(next))
    }

    /// Restores the previous state, if the engines did not change.
    pub(super) fn undo(&self, next: &NextPorts) {
        self.both(next).into_iter().for_each(|(live, next)| live.undo(next));
    }

    /// Completes the change. Returns log lines about failures.
    pub(super) fn finish(&self, next: NextPorts, workers: &[Handle]) -> Vec<String> {
        match (&self.ethernet, next.ethernet) {
            (Some(live), Some(next)) => live.finish(next, workers),
            _ => Vec::new(),
        }
    }

    fn both<'a>(&'a self, next: &'a NextPorts) -> Option<(&'a LiveEthernet, &'a NextEthernet)> {
        self.ethernet.as_ref().zip(next.ethernet.as_ref())
    }
}

// Without a backend for Ethernet, no port can change.
#[cfg(not(any(feature = "xdp", feature = "dpdk")))]
impl LivePorts {
    pub(super) fn prepare(&self, _: &PortSettings, _: &PortSettings) -> anyhow::Result<NextPorts> {
        Ok(NextPorts::default())
    }

    pub(super) fn begin(&self, _: &NextPorts) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn undo(&self, _: &NextPorts) {}

    pub(super) fn finish(&self, _: NextPorts, _: &[Handle]) -> Vec<String> {
        Vec::new()
    }
}
