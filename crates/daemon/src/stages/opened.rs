//! Third: devices, with no more privileges than they need.

use super::listening::Listening;
use super::prepared::Prepared;
use crate::ports::Ports;
use crate::privileges;
use anyhow::Context as _;
use gatun_io::Processors;
use gatun_io_tun::OnKill;

/// Devices are open, and privileges are dropped.
pub(super) struct Opened {
    pub(super) listening: Listening,
    pub(super) ports: Ports,
    pub(super) processors: Option<Processors>,
}

impl Opened {
    /// Opens devices, starts the threads that watch them, and drops all privileges but those of these
    /// threads.
    ///
    /// # Errors
    /// Each says what to do about it.
    pub(super) fn new(mut listening: Listening) -> anyhow::Result<Opened> {
        let Prepared { start, session_store, .. } = &listening.prepared;
        // Sessions go on in the next process; so do packets, then.
        let killed = if session_store.is_some() { OnKill::Stays } else { OnKill::Goes };
        let processors = start.settings.ports.processors(&start.settings.cores)?;
        if let Some(processors) = &processors {
            // Before other threads start: these stay where this one does.
            processors.others.pin_thread().context("the processors of the daemon's other threads")?;
        }
        let ports = Ports::open(&start.settings.ports, killed, (start.user, &start.sandbox), &start.sender)?;
        // While there are devices to be looked at, and the right to read netfilter's rules.
        let start = &mut listening.prepared.start;
        start.notes.extend(start.look.take().map(|look| look()).unwrap_or_default());
        privileges::drop_all(start.user.as_ref())?;
        Ok(Opened { listening, ports, processors })
    }
}
