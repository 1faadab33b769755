//! SIGTERM and SIGINT stop, SIGUSR1 reports.

use super::Event;
use anyhow::Context as _;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::sync::mpsc::Sender;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Stop,
    Report,
}

/// Sends an event for each signal from now on, from a thread of its own.
pub(super) fn watch(events: Sender<Event>) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGUSR1]).context("signals cannot be watched")?;
    let body = move || {
        for signal in signals.forever() {
            let signal = if signal == SIGUSR1 { Signal::Report } else { Signal::Stop };
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(body).context("no thread for signals")?;
    Ok(())
}
