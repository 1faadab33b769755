//! Whoever hears of events: the file of JSON lines, the log's store, collectors. Started together, ended together.

use super::Settings;
use super::collectors;
use super::event_log::{EventLog, Shared, TimeOfDay};
use super::log_store::{LogSender, LogStore};
use super::outlet::Output;
use gatun_control::{EventTap, LogFigures};
use gatun_export::Sink;
use gatun_nat::Nat;
use gatun_worker::Clock;
use std::sync::Arc;
use std::time::Duration;

/// How long the end of the daemon waits for the last records to be on disk.
const LAST_WRITES_MAX: Duration = Duration::from_secs(2);

/// All that the configuration names.
pub(super) struct Hearers {
    store: Option<LogStore>,
    sinks: Arc<Vec<Sink>>,
    /// None where nobody wants to hear.
    log: Option<EventLog>,
    /// Whether events are written as lines, so that the API can tell them too.
    has_lines: bool,
}

impl Hearers {
    /// Starts them with the rings of `engines`. `goes_on`: sessions of a process before have been taken over.
    ///
    /// # Errors
    /// Where a file cannot be opened or a spool cannot be used.
    pub(super) fn start(
        settings: &Settings,
        engines: &mut [Nat],
        clock: Clock,
        goes_on: bool,
        output: &Output,
    ) -> anyhow::Result<Hearers> {
        let text = &settings.control.facts.config.text;
        let store =
            settings.log.as_ref().map(|log| LogStore::start(log, (text, &settings.plan), goes_on, output));
        let store = store.transpose()?;
        let sinks = Arc::new(collectors::start(&settings.exports, output)?);
        let has_lines = settings.events.is_some();
        let log = match has_lines || store.is_some() || !sinks.is_empty() {
            true => {
                let readers = engines.iter_mut().filter_map(Nat::take_events).collect();
                let sender = store.as_ref().map(LogStore::sender);
                let times = TimeOfDay::of(clock);
                Some(EventLog::start(settings, readers, times, sender, Arc::clone(&sinks), output)?)
            }
            false => None,
        };
        Ok(Hearers { store, sinks, log, has_lines })
    }

    /// Where the log's store is told what else it is to know, if there is one.
    pub(super) fn log_sender(&self) -> Option<LogSender> {
        self.store.as_ref().map(LogStore::sender)
    }

    /// The names that events are told with.
    pub(super) fn names(&self) -> Option<Shared> {
        self.log.as_ref().map(EventLog::names)
    }

    /// Where the API gets events from.
    pub(super) fn tap(&self) -> Option<EventTap> {
        self.log.as_ref().filter(|_| self.has_lines).map(EventLog::tap)
    }

    /// What metrics tell of the log and of collectors.
    pub(super) fn figures(&self) -> Box<dyn Fn() -> LogFigures + Send + Sync> {
        let (sinks, store) = (Arc::clone(&self.sinks), self.log_sender());
        Box::new(move || LogFigures {
            exports: collectors::figures(&sinks),
            store: store.as_ref().map(LogSender::figures),
        })
    }

    /// Writes what is left, as long as that does not take too long.
    pub(super) fn finish(self, output: &Output) {
        if let Some(log) = self.log {
            log.finish();
        }
        self.sinks.iter().for_each(|sink| sink.finish(LAST_WRITES_MAX));
        if let Some(store) = self.store {
            store.finish(output, LAST_WRITES_MAX);
        }
    }
}
