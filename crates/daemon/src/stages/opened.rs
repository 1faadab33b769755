//! Stage 3: devices are open, and privileges are dropped.

use super::listening::Listening;
use super::prepared::Prepared;
use crate::fastpath::{self, FastPathDirectory, OpenedFastPath};
use crate::health::Health;
use crate::ports::Ports;
use crate::privileges;
use anyhow::Context as _;
use gatun_io::Processors;
use gatun_io_tun::KillBehaviour;

/// Process with open devices and without privileges.
pub(super) struct Opened {
    pub(super) listening: Listening,
    pub(super) ports: Ports,
    pub(super) processors: Option<Processors>,
    pub(super) fastpath: OpenedFastPath,
    pub(super) health: Health,
}

impl Opened {
    /// Opens devices, starts the threads that watch them, and drops the privileges of all other threads.
    ///
    /// # Errors
    /// Returns an error that says what to do, if a device cannot be opened or privileges cannot be dropped.
    pub(super) fn new(mut listening: Listening) -> anyhow::Result<Opened> {
        let Prepared { start, session_store, .. } = &listening.prepared;
        // If the next process restores sessions, packets must reach it too.
        let killed = if session_store.is_some() { KillBehaviour::Stays } else { KillBehaviour::Goes };
        let processors = start.settings.ports.processors(&start.settings.cores)?;
        if let Some(processors) = &processors {
            // Before other threads start, because they inherit the processors.
            processors.others.pin_thread().context("cannot pin the daemon's other threads")?;
        }
        let ports = Ports::open(&start.settings.ports, killed, (start.user, &start.sandbox), &start.sender)?;
        let Prepared { start, session_store, fastpath: (directory, fits), .. } = &mut listening.prepared;
        let (kept, user) = ((session_store.is_some(), *fits), start.user.as_ref());
        let directory = std::mem::replace(directory, FastPathDirectory::Unwanted);
        let mut notes = Vec::new();
        let device = ports.names.first();
        let mut fastpath = fastpath::open(&start.settings, device, directory, kept, user, &mut notes);
        fastpath.start_helper((start.user, &start.sandbox), &start.sender);
        // The check needs the devices, and the right to read netfilter's rules.
        let start = &mut listening.prepared.start;
        start.notes.extend(notes.into_iter().chain(fastpath.notes()));
        let rights = (start.user, &start.sandbox);
        let health = Health::open(&start.settings, &ports, rights, (&start.sender, &mut start.notes))?;
        start.notes.extend(start.look.take().map(|look| look()).unwrap_or_default());
        privileges::drop_all(start.user.as_ref())?;
        listening.boxes.reread()?;
        Ok(Opened { listening, ports, processors, fastpath, health })
    }
}
