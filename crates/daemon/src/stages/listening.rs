//! Stage 2: the API's sockets are open; the process keeps only the privileges that devices need.

use super::opened::Opened;
use super::prepared::Prepared;
use crate::control::Sockets;
use crate::ports::Ports;
use crate::privileges;
use anyhow::Context as _;
use gatun_io_tun::OnKill;

/// Process with open API sockets and the privileges that devices need.
pub(super) struct Listening {
    pub(super) prepared: Prepared,
    pub(super) sockets: Sockets,
}

impl Listening {
    /// Opens devices, starts the threads that watch them, and drops the privileges of all other threads.
    ///
    /// # Errors
    /// Returns an error that says what to do, if a device cannot be opened or privileges cannot be dropped.
    pub(super) fn open(mut self) -> anyhow::Result<Opened> {
        let Prepared { start, session_store, .. } = &self.prepared;
        // If the next process restores sessions, packets must reach it too.
        let killed = if session_store.is_some() { OnKill::Stays } else { OnKill::Goes };
        let processors = start.settings.ports.processors(&start.settings.cores)?;
        if let Some(processors) = &processors {
            // Before other threads start, because they inherit the processors.
            processors.others.pin_thread().context("cannot pin the daemon's other threads")?;
        }
        let ports = Ports::open(&start.settings.ports, killed, (start.user, &start.sandbox), &start.sender)?;
        // The check needs the devices, and the right to read netfilter's rules.
        let start = &mut self.prepared.start;
        start.notes.extend(start.look.take().map(|look| look()).unwrap_or_default());
        privileges::drop_all(start.user.as_ref())?;
        Ok(Opened { listening: self, ports, processors })
    }
}
