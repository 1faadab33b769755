//! Changes of open ports while packets are translated. TUN devices have no part in it: their routes and
//! addresses are the kernel's (`net_helper::Routes`).

use super::port_settings::PortSettings;
use gatun_worker::Handle;
use std::io;

#[cfg(any(feature = "xdp", feature = "dpdk"))]
use super::ethernet::live::{LiveEthernet, NextEthernet};

/// Open ports, as far as they can change.
#[derive(Default)]
pub(super) struct LivePorts {
    /// Those on Ethernets.
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
    /// # Errors
    /// Settings that contradict each other, with the fix.
    pub(super) fn prepare(&self, old: &PortSettings, new: &PortSettings) -> anyhow::Result<NextPorts> {
        let next = self.ethernet.as_ref().map(|live| live.prepare(old, new)).transpose()?;
        Ok(NextPorts { ethernet: next.flatten() })
    }

    /// Lets packets in that are to be translated once the engines have changed.
    ///
    /// # Errors
    /// If this fails; then nothing has changed.
    pub(super) fn begin(&self, next: &NextPorts) -> io::Result<()> {
        self.both(next).map_or(Ok(()), |(live, next)| live.begin(next))
    }

    /// As it was before, where the engines did not change.
    pub(super) fn undo(&self, next: &NextPorts) {
        self.both(next).into_iter().for_each(|(live, next)| live.undo(next));
    }

    /// Lets ports become that. Returns what did not go as it should, to be told.
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

/// No port is on an Ethernet.
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
