//! Collectors of the configuration, each with its own thread. A reload adds, changes and removes them while
//! others run.

use super::output::Output;
use gatun_config::{Export, ExportFormat, ExportTarget};
use gatun_control::ExportFigures;
use gatun_export::{
    CollectorAddress, Connect, Format, PreparedSink, Sink, SinkSettings, SpoolSettings, ThreadEnd,
};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Running collectors.
#[derive(Clone, Default)]
pub(super) struct Collectors(Arc<Mutex<CollectorList>>);

#[derive(Default)]
struct CollectorList {
    sinks: Arc<Vec<Sink>>,
    /// Removed collectors that still send waiting events, by name.
    going: Vec<(String, ThreadEnd)>,
}

/// Creates the thread of a collector, which does not start yet.
///
/// # Errors
/// Returns an error if its spool cannot be used. A missing collector is not an error.
pub(super) fn prepare(export: &Export, connect: &Connect, output: &Output) -> io::Result<PreparedSink> {
    let output = output.clone();
    Sink::prepare(settings(export), Arc::clone(connect), move |line| output.log(line))
}

impl Collectors {
    /// Sets the collectors to `exports`: starts those in `prepared` and continues others with the same name.
    /// Returns all.
    pub(super) fn set(&self, exports: &[Export], mut prepared: Vec<PreparedSink>) -> Arc<Vec<Sink>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.going.retain(|(_, ended)| !ended.wait(Duration::ZERO));
        let before = std::mem::take(&mut known.sinks);
        let goes_on = |sink: &&Sink| {
            let is_named = exports.iter().any(|export| export.name == sink.name());
            is_named && prepared.iter().all(|new| new.name() != sink.name())
        };
        let gone = before.iter().filter(|sink| !goes_on(sink));
        known.going.extend(gone.map(|sink| (sink.name().to_owned(), sink.ended())));
        let mut sinks = Vec::new();
        for export in exports {
            if let Some(at) = prepared.iter().position(|new| new.name() == export.name) {
                // Ending collectors with this name may still use its spool.
                let after = known.going.iter().filter(|(name, _)| *name == export.name);
                let after = after.map(|(_, ended)| ended.clone()).collect();
                sinks.push(prepared.swap_remove(at).begin(after));
            } else if let Some(sink) = before.iter().find(|sink| sink.name() == export.name) {
                sinks.push(sink.with(export.kinds, export.queue_max.into()));
            }
        }
        known.sinks = Arc::new(sinks);
        Arc::clone(&known.sinks)
    }

    fn all(&self) -> Arc<Vec<Sink>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner).sinks)
    }

    /// Counters of each collector, for metrics.
    pub(super) fn figures(&self) -> Vec<ExportFigures> {
        self.all().iter().map(figures).collect()
    }

    /// Makes all collectors send or spool waiting events, and waits at most this long.
    pub(super) fn finish(&self, patience: Duration) {
        let sinks = self.all();
        sinks.iter().for_each(Sink::end);
        sinks.iter().for_each(|sink| sink.finish(patience));
        let going = std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).going);
        for (_, ended) in going {
            ended.wait(patience);
        }
    }
}

fn settings(export: &Export) -> SinkSettings {
    let target = match &export.target {
        ExportTarget::Udp(address) => CollectorAddress::Udp(*address),
        ExportTarget::Tcp(address) => CollectorAddress::Tcp(*address),
        ExportTarget::Unix(path) => CollectorAddress::Unix(path.clone()),
    };
    let format = match export.format {
        ExportFormat::Ipfix => {
            Format::Ipfix { domain: export.domain, templates_ms: export.templates_ms.into() }
        }
        ExportFormat::Syslog => Format::Syslog,
        ExportFormat::Json => Format::Json,
    };
    let spool = export.spool.clone();
    SinkSettings {
        name: export.name.clone(),
        target,
        format,
        kinds: export.kinds,
        destinations: export.destinations,
        queue_max: export.queue_max.into(),
        spool: spool.map(|(directory, len_max)| SpoolSettings { directory, len_max }),
    }
}

fn figures(sink: &Sink) -> ExportFigures {
    let counters = sink.counters();
    ExportFigures {
        name: sink.name().to_owned(),
        sent: counters.sent,
        lost: counters.lost,
        waiting: counters.waiting,
        spooled_bytes: counters.spooled_bytes,
        is_connected: counters.is_connected,
    }
}
