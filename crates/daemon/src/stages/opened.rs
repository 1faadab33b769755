//! Third: the sandbox.

use super::listening::Listening;
use super::prepared::Prepared;
use super::sandboxed::Sandboxed;
use crate::connector;
use crate::ports::Ports;
use crate::signals;
use gatun_io::Processors;

/// Devices are open, and privileges are dropped.
pub(super) struct Opened {
    pub(super) listening: Listening,
    pub(super) ports: Ports,
    pub(super) processors: Option<Processors>,
}

impl Opened {
    /// Lets Landlock and seccomp hold for this thread, and so for all that start from now on.
    ///
    /// # Errors
    /// If the thread that connects to collectors cannot start, or signals cannot be watched.
    pub(super) fn enter_sandbox(mut self) -> anyhow::Result<Sandboxed> {
        let Prepared { start, .. } = &mut self.listening.prepared;
        let connect = connector::start(&start.sandbox)?;
        let signals = signals::Watched::new()?;
        let in_force = start.sandbox.enter(start.settings.ports.calls());
        start.notes.push(in_force.to_string());
        Ok(Sandboxed { opened: self, connect, signals, in_force })
    }
}
