//! SIGTERM and SIGINT stop, SIGUSR1 reports, SIGHUP reads the configuration again.

use super::Event;
use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::sync::mpsc::Sender;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Stop,
    Report,
    Reload,
}

/// Sends an event for each signal from now on, from a thread of its own.
pub(super) fn watch(events: Sender<Event>) -> anyhow::Result<()> {
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP]).context("signals cannot be watched")?;
    let body = move || {
        for signal in signals.forever() {
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
    std::thread::Builder::new().name("signals".into()).spawn(body).context("no thread for signals")?;
    Ok(())
}
