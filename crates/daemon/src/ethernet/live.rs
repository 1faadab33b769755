//! Changes of open Ethernet ports while packets are translated: addresses, routes, neighbours and networks.
//!
//! ```text
//!   prepare    creates new settings for each worker                 nothing has changed
//!   begin      the XDP program takes additional packets             can be undone
//!   (engines change)
//!   finish     workers use the new settings; the program leaves packets to the kernel
//! ```

use crate::ANSWER_MAX;
use crate::port_settings::PortSettings;
use gatun_config::{Device, Port};
use gatun_ether::Ether;
use gatun_io_ether::EthernetHandover;
use gatun_worker::Handle;
use std::io;
use std::time::{Duration, Instant};

#[cfg(feature = "xdp")]
use crate::port_settings::XdpPorts;
#[cfg(feature = "xdp")]
use gatun_io_xdp::{RuleChange, RuleUpdates};

/// Interval at which a worker is asked if it uses its new settings.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Changeable parts of open Ethernet ports.
pub(crate) struct LiveEthernet {
    /// Device of each port, by its name in the configuration.
    pub(crate) devices: Vec<(String, Device)>,
    /// Handover to each worker.
    pub(crate) handovers: Vec<EthernetHandover>,
    /// Channel to the thread that owns the XDP program.
    #[cfg(feature = "xdp")]
    pub(crate) program: Option<RuleUpdates>,
}

/// New settings of the ports for each worker.
pub(crate) struct NextEthernet {
    ethers: Vec<Ether>,
    #[cfg(feature = "xdp")]
    program: Program,
}

/// Changes of the XDP program's prefixes.
#[cfg(feature = "xdp")]
#[derive(Default)]
struct Program {
    more: RuleChange,
    less: RuleChange,
    undone: RuleChange,
}

impl LiveEthernet {
    /// Creates new settings. `None` if nothing differs.
    ///
    /// # Errors
    /// Returns an error if settings contradict each other. The error names the correction.
    pub(crate) fn prepare(
        &self,
        old: &PortSettings,
        new: &PortSettings,
    ) -> anyhow::Result<Option<NextEthernet>> {
        let (Some(old_hosts), Some(new_hosts)) = (old.hosts(), new.hosts()) else { return Ok(None) };
        #[cfg(feature = "xdp")]
        let program = self.program(old, new);
        #[cfg(feature = "xdp")]
        let is_same = program.more.is_empty() && program.less.is_empty();
        #[cfg(not(feature = "xdp"))]
        let is_same = true;
        if is_same && old_hosts.ports == new_hosts.ports && old_hosts.networks == new_hosts.networks {
            return Ok(None);
        }
        let ethers = new_hosts.ethers(self.handovers.len(), |port| self.device(port), |_| Ok(()))?;
        Ok(Some(NextEthernet {
            ethers,
            #[cfg(feature = "xdp")]
            program,
        }))
    }

    fn device(&self, port: &Port) -> Device {
        let unknown = Device { number: u8::MAX, mac: Default::default(), mtu: 0 };
        let found = self.devices.iter().find(|(name, _)| *name == port.device);
        found.map_or(unknown, |(_, device)| Device { ..*device })
    }

    #[cfg(feature = "xdp")]
    fn program(&self, old: &PortSettings, new: &PortSettings) -> Program {
        let (PortSettings::Xdp(old), PortSettings::Xdp(new)) = (old, new) else { return Program::default() };
        let taken = |ports: &XdpPorts| ports.taken(|port| self.device(port));
        let (old, new) = (taken(old), taken(new));
        let (more, less) = RuleChange::between(&old, &new);
        Program { undone: more.undone(&old), more, less }
    }

    /// Admits packets that are translated once the engines have changed.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses. Then nothing has changed.
    pub(crate) fn begin(&self, next: &NextEthernet) -> io::Result<()> {
        #[cfg(feature = "xdp")]
        if let Some(program) = self.program.as_ref().filter(|_| !next.program.more.is_empty()) {
            return program.change(next.program.more.clone(), ANSWER_MAX).inspect_err(|_| self.undo(next));
        }
        let _ = next;
        Ok(())
    }

    /// Restores the state before [`begin`](Self::begin), if the engines did not change.
    pub(crate) fn undo(&self, next: &NextEthernet) {
        #[cfg(feature = "xdp")]
        if let Some(program) = self.program.as_ref().filter(|_| !next.program.undone.is_empty()) {
            // The first refusal was reported. Otherwise the engine gets packets that it does not know.
            let _ = program.change(next.program.undone.clone(), ANSWER_MAX);
        }
        let _ = next;
    }

    /// Completes the change after the engines have changed. Returns log lines about failures.
    pub(crate) fn finish(&self, next: NextEthernet, workers: &[Handle]) -> Vec<String> {
        let mut said = Vec::new();
        for (ether, handover) in next.ethers.into_iter().zip(&self.handovers) {
            handover.put(Box::new(ether));
        }
        let until = Instant::now() + ANSWER_MAX;
        for (number, (handover, worker)) in self.handovers.iter().zip(workers).enumerate() {
            while !handover.is_over() && Instant::now() < until {
                // A request wakes the worker, which uses new settings before its next burst.
                let _ = worker.settling(ANSWER_MAX);
                std::thread::sleep(LOOK_EVERY);
            }
            if !handover.is_over() {
                said.push(format!("worker {number} does not answer; its ports change once it does"));
            }
        }
        #[cfg(feature = "xdp")]
        if let Some(program) = self.program.as_ref().filter(|_| !next.program.less.is_empty())
            && let Err(error) = program.change(next.program.less, ANSWER_MAX)
        {
            said.push(format!("the XDP program still takes packets that are no longer translated: {error}"));
        }
        said
    }
}
