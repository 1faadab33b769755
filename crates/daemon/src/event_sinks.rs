//! Event sinks: the JSON file, the log of ports, collectors. They start and end together; a reload changes
//! them (`update`).

pub(crate) mod difference;
mod update;

use super::Settings;
use super::collectors::{self, Collectors};
use super::event_log::{self, Change, EventLog, TimeOfDay};
use super::log_queries::LogQueries;
use super::log_store::LogStore;
use super::output::Output;
use super::sandbox::Sandbox;
use anyhow::Context as _;
use gatun_control::{Auditor, EventTap, LogFigures};
use gatun_export::Connect;
use gatun_nat::Nat;
use gatun_worker::Clock;
use std::sync::Arc;
use std::time::Duration;

pub(super) use update::{Prepared, Refusal, SinkUpdater};

/// Time limit at shutdown for writing the last records to disk.
const LAST_WRITES_MAX: Duration = Duration::from_secs(2);

/// Rights of the event sinks.
pub(super) struct SinkRights {
    /// Connects to collectors.
    pub(super) connect: Connect,
    /// Sandbox, which determines accessible files.
    pub(super) sandbox: Sandbox,
}

/// Event sinks that the configuration names.
pub(super) struct EventSinks {
    store: Option<LogStore>,
    queries: Option<LogQueries>,
    collectors: Collectors,
    log: EventLog,
    tap: EventTap,
    sink_updater: SinkUpdater,
}

impl EventSinks {
    /// Starts the sinks with the event rings of `engines`. `goes_on` is true if sessions of a previous
    /// process were restored.
    ///
    /// # Errors
    /// Returns an error if a file cannot be opened or a spool cannot be used.
    pub(super) fn start(
        settings: &Settings,
        engines: &mut [Nat],
        (clock, goes_on): (Clock, bool),
        means: SinkRights,
        output: &Output,
    ) -> anyhow::Result<EventSinks> {
        let text = &settings.control.facts.config.text;
        let store =
            settings.log.as_ref().map(|log| LogStore::start(log, (text, &settings.plan), goes_on, output));
        let store = store.transpose()?;
        let queries = store.as_ref().zip(settings.log.as_ref());
        let queries = queries.map(|(store, log)| LogQueries::start(&log.directory, store.sender(), output));
        let queries = queries.transpose()?;
        let prepare = |export| {
            let prepared = collectors::prepare(export, &means.connect, output);
            prepared.with_context(|| {
                let spool =
                    export.spool.as_ref().map_or(String::new(), |(path, _)| format!(" {}", path.display()));
                format!("[[export]] {}: cannot use its spool{spool}", export.name)
            })
        };
        let prepared = settings.exports.iter().map(prepare).collect::<anyhow::Result<_>>()?;
        let lines = settings.events.as_ref().map(event_log::open).transpose()?;
        let collectors = Collectors::default();
        let begin = Change::to(settings, Some(lines), collectors.set(&settings.exports, prepared));
        let readers = engines.iter_mut().filter_map(Nat::take_events).collect();
        let sender = store.as_ref().map(LogStore::sender);
        let tap = EventTap::new(settings.events.is_some());
        let times = TimeOfDay::of(clock);
        let log = EventLog::start(begin, readers, times, sender.clone(), tap.clone(), output)?;
        let sink_updater = SinkUpdater {
            orders: log.orders(),
            tap: tap.clone(),
            collectors: collectors.clone(),
            store: sender,
            means: Arc::new(means),
            output: output.clone(),
        };
        Ok(EventSinks { store, queries, collectors, log, tap, sink_updater })
    }

    /// Updater of the sinks for reloads.
    pub(super) fn sink_updater(&self) -> SinkUpdater {
        self.sink_updater.clone()
    }

    /// Event source of the API.
    pub(super) fn tap(&self) -> EventTap {
        self.tap.clone()
    }

    /// Metrics of the log and of collectors.
    pub(super) fn figures(&self) -> Box<dyn Fn() -> LogFigures + Send + Sync> {
        let (collectors, store) = (self.collectors.clone(), self.store.as_ref().map(LogStore::sender));
        Box::new(move || LogFigures {
            exports: collectors.figures(),
            store: store.as_ref().map(|store| store.figures()),
        })
    }

    /// Log reader of the API.
    pub(super) fn auditor(&self) -> Option<Auditor> {
        self.queries.as_ref().map(LogQueries::auditor)
    }

    /// Writes remaining events, within a time limit.
    pub(super) fn finish(self, output: &Output) {
        self.log.finish();
        self.collectors.finish(LAST_WRITES_MAX);
        if let Some(store) = self.store {
            store.finish(output, LAST_WRITES_MAX);
        }
        // The sinks report in the log what they have written last.
        output.settle();
    }
}
