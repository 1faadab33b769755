//! Stage 3: devices are open, and privileges are dropped.

use super::listening::Listening;
use super::prepared::Prepared;
use super::sandboxed::Sandboxed;
use crate::connector;
use crate::ports::Ports;
use crate::signals;
use gatun_io::Processors;

/// Process with open devices and without privileges.
pub(super) struct Opened {
    pub(super) listening: Listening,
    pub(super) ports: Ports,
    pub(super) processors: Option<Processors>,
}

impl Opened {
    /// Restricts this thread by Landlock and seccomp, and with it all threads that start later.
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
