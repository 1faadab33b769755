//! Signals: SIGTERM and SIGINT stop the daemon, SIGUSR1 prints counters, SIGHUP reloads the configuration.

use super::Event;
use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::sync::mpsc::Sender;

/// Request by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Stop,
    Report,
    Reload,
}

/// Signals that wait until a thread listens.
pub(super) struct Watched(Signals);

impl Watched {
    /// Starts to collect signals. It creates a pair of sockets, which the sandbox forbids.
    ///
    /// # Errors
    /// Returns an error if signals cannot be watched.
    pub(super) fn new() -> anyhow::Result<Watched> {
        let signals = Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP]).context("cannot watch signals")?;
        Ok(Watched(signals))
    }

    /// Starts the thread that sends an event for each signal.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub(super) fn listen(mut self, events: Sender<Event>) -> anyhow::Result<()> {
        let body = move || {
            for signal in self.0.forever() {
                let signal = match signal {
                    SIGUSR1 => Signal::Report,
                    SIGHUP => Signal::Reload,
                    _ => Signal::Stop,
                };
                if events.send(Event::Signal(signal)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(body)
            .context("cannot start the signal thread")?;
        Ok(())
    }
}
