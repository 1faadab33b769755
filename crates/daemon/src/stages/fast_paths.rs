//! Managers of sessions outside the engines: of the kernel's table, and of P4 switches.

use super::Start;
use crate::control::FastPathStates;
use crate::fastpath::{FastPathManager, OpenedFastPath, Progress};
use crate::offload_orders::OffloadOrders;
use crate::output::Output;
use crate::p4::P4Manager;
use crate::peer::SharedFence;
use crate::ports::Ports;
use gatun_worker::Handle;
use std::sync::Arc;

/// The managers. At most one has sessions.
pub(super) struct FastPaths {
    kernel: FastPathManager,
    p4: P4Manager,
}

impl FastPaths {
    /// Starts the threads that the configuration wants. `fits`: the sessions of the previous process go on.
    /// `fence`: the time until which this box translates.
    ///
    /// # Errors
    /// Returns an error if a thread cannot start, or a file cannot be read.
    pub(super) fn start(
        start: &Start,
        (opened, ports): (OpenedFastPath, &Ports),
        (fits, fence): (bool, &SharedFence),
    ) -> anyhow::Result<FastPaths> {
        let Start { settings, sandbox, sender, .. } = start;
        let kernel = FastPathManager::start(opened, settings, fence.clone(), (sandbox, sender))?;
        Ok(FastPaths { kernel, p4: P4Manager::start(settings, ports, (fits, sandbox, sender))? })
    }

    /// Waits until entries of nobody have left the switches, before the first packet.
    pub(super) fn wait_cleared(&self, output: &Output) {
        self.p4.wait_cleared().iter().for_each(|line| output.error(line));
    }

    /// Passes the running workers to the threads.
    pub(super) fn begin(&self, workers: &[Handle]) {
        self.kernel.begin(workers.to_vec());
        self.p4.begin(workers.to_vec());
    }

    /// Orders to the manager that is on.
    pub(super) fn orders(&self) -> OffloadOrders {
        match (self.kernel.orders(), self.p4.orders()) {
            (Some(orders), _) => OffloadOrders::Kernel(orders),
            (None, Some(orders)) => OffloadOrders::P4(orders),
            (None, None) => OffloadOrders::None,
        }
    }

    /// State for the API.
    pub(super) fn shown(&self) -> FastPathStates {
        FastPathStates {
            kernel: Arc::new(self.kernel.status()),
            p4: Arc::new(self.p4.status()),
            orders: self.orders(),
        }
    }

    /// Progress of workers that share the kernel's table.
    pub(super) fn progress(&self) -> Option<&Progress> {
        self.kernel.progress()
    }

    /// Number of shares of the identifications behind those of the workers.
    pub(super) fn idents(&self) -> usize {
        usize::from(self.progress().is_some()) + self.p4.idents()
    }

    /// Ends the managers, while the workers still run.
    ///
    /// # Errors
    /// Returns an error that says what to do, if the kernel's program cannot be detached.
    pub(super) fn stop(&self) -> Result<(), String> {
        self.p4.stop();
        self.kernel.stop()
    }
}
