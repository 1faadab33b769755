//! Changes of event sinks by a reload: steps that can fail come first and change nothing.

use super::SinkRights;
use super::difference::{CollectorChange, fate};
use crate::Settings;
use crate::collectors::{self, Collectors};
use crate::event_file::EventFile;
use crate::event_log::{Change, Order};
use crate::log_store::LogSender;
use crate::output::Output;
use gatun_config::{EventSink, Export};
use gatun_control::EventTap;
use gatun_export as export;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// Changes the event sinks.
#[derive(Clone)]
pub(crate) struct SinkUpdater {
    pub(super) orders: Sender<Order>,
    pub(super) tap: EventTap,
    pub(super) collectors: Collectors,
    pub(super) store: Option<LogSender>,
    pub(super) means: Arc<SinkRights>,
    pub(super) output: Output,
}

/// Event sinks that are ready to start. Dropping them changes nothing.
pub(crate) struct Prepared {
    lines: Option<Option<EventFile>>,
    sinks: Vec<export::PreparedSink>,
}

/// Reason why an event sink cannot start.
pub(crate) struct Refusal {
    pub(crate) why: String,
    /// True if the sandbox forbids the location.
    pub(crate) needs_restart: bool,
}

impl SinkUpdater {
    /// Checks that the sinks of `new` can start while those of `old` run. Leaves no files.
    ///
    /// # Errors
    /// Returns an error if a sink cannot start.
    pub(crate) fn check(&self, old: &Settings, new: &Settings) -> Result<(), Refusal> {
        for export in starting(old, new) {
            if let Some((directory, _)) = &export.spool {
                let probe = format!("{}.probe", export.name);
                may_make(directory, &probe).map_err(|error| self.no_spool(export, &error))?;
            }
        }
        match &new.events {
            Some(EventSink::File(path)) if old.events != new.events => {
                may_write(path).map_err(|error| self.no_file(path, &error))
            }
            _ => Ok(()),
        }
    }

    /// Creates the sinks of `new` that `old` lacks.
    ///
    /// # Errors
    /// Returns an error if a sink cannot start; nothing has changed.
    pub(crate) fn prepare(&self, old: &Settings, new: &Settings) -> Result<Prepared, Refusal> {
        let mut sinks = Vec::new();
        for export in starting(old, new) {
            let prepared = collectors::prepare(export, &self.means.connect, &self.output);
            sinks.push(prepared.map_err(|error| self.no_spool(export, &error))?);
        }
        let open = |sink: &EventSink| {
            EventFile::open(sink).map_err(|error| match sink {
                EventSink::File(path) => self.no_file(path, &error),
                EventSink::Stdout => self.refusal(format!("[events]: standard output: {error}"), None),
            })
        };
        let lines = match old.events == new.events {
            true => None,
            false => Some(new.events.as_ref().map(open).transpose()?),
        };
        Ok(Prepared { lines, sinks })
    }

    /// Activates the sinks of `new`.
    pub(crate) fn set(&self, new: &Settings, prepared: Prepared) {
        let Prepared { lines, sinks } = prepared;
        let sinks = self.collectors.set(&new.exports, sinks);
        self.tap.set(new.events.is_some());
        // The receiver exists as long as the workers.
        let _ = self.orders.send(Order::Change(Box::new(Change::to(new, lines, sinks))));
        if let Some(store) = &self.store {
            store.configured(&new.control.facts.config.text, &new.plan);
        }
    }

    /// Applies the log's retention settings. Deleted records cannot be restored.
    pub(crate) fn keep(&self, settings: &Settings) {
        if let (Some(store), Some(log)) = (&self.store, &settings.log) {
            store.keep(log);
        }
    }

    fn no_spool(&self, export: &Export, error: &io::Error) -> Refusal {
        let Some((directory, _)) = &export.spool else {
            return self.refusal(format!("[[export]] {}: cannot start: {error}", export.name), None);
        };
        let shown = directory.display();
        let why = format!("[[export]] {}: cannot use its spool {shown}: {error}", export.name);
        let denied = error.kind() == io::ErrorKind::PermissionDenied;
        self.refusal(why, denied.then_some(directory))
    }

    fn no_file(&self, path: &Path, error: &io::Error) -> Refusal {
        let why = format!("[events]: cannot write to {}: {error}", path.display());
        let denied = error.kind() == io::ErrorKind::PermissionDenied;
        self.refusal(why, path.parent().filter(|_| denied))
    }

    /// Creates a refusal. `denied` is the directory in which access was denied.
    fn refusal(&self, why: String, denied: Option<&Path>) -> Refusal {
        match denied.filter(|directory| !self.means.sandbox.knows(directory)) {
            None => Refusal { why, needs_restart: false },
            Some(_) => {
                let why = format!("{why}: the sandbox has no access to this directory");
                Refusal { why, needs_restart: true }
            }
        }
    }
}

/// Collectors that start.
fn starting<'s>(old: &Settings, new: &'s Settings) -> impl Iterator<Item = &'s Export> {
    new.exports.iter().filter(|new| fate(&old.exports, new) == CollectorChange::Starts)
}

/// Checks with a temporary file that a directory, or the parent in which it would be created, is writable.
fn may_make(directory: &Path, probe: &str) -> io::Result<()> {
    let there = directory.ancestors().find(|path| fs::symlink_metadata(path).is_ok());
    let probe = there.unwrap_or(directory).join(probe);
    File::create(&probe)?;
    fs::remove_file(probe)
}

/// Checks that a file can be written or created.
fn may_write(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => OpenOptions::new().append(true).open(path).map(drop),
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        // For a pipe or a device, only opening it shows the result.
        Ok(_) => Ok(()),
        Err(_) => {
            File::create_new(path)?;
            fs::remove_file(path)
        }
    }
}
