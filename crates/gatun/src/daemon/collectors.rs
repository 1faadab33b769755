//! Collectors that the configuration names, each with a thread of its own.

use super::outlet::Output;
use anyhow::Context as _;
use gatun_config::{Export, ExportFormat, ExportTarget};
use gatun_control::ExportFigures;
use gatun_export::{Format, Settings, Sink, SpoolSettings, Target};

/// Starts a thread for each collector.
///
/// # Errors
/// Where a spool cannot be used. That a collector is away is none.
pub(super) fn start(exports: &[Export], output: &Output) -> anyhow::Result<Vec<Sink>> {
    let start = |export: &Export| {
        let output = output.clone();
        let sink = Sink::start(settings(export), move |line| output.log(line));
        sink.with_context(|| format!("[[export]] {}: its spool cannot be used", export.name))
    };
    exports.iter().map(start).collect()
}

fn settings(export: &Export) -> Settings {
    let target = match &export.target {
        ExportTarget::Udp(address) => Target::Udp(*address),
        ExportTarget::Tcp(address) => Target::Tcp(*address),
        ExportTarget::Unix(path) => Target::Unix(path.clone()),
    };
    let format = match export.format {
        ExportFormat::Ipfix => {
            Format::Ipfix { domain: export.domain, templates_ms: export.templates_ms.into() }
        }
        ExportFormat::Syslog => Format::Syslog,
        ExportFormat::Json => Format::Json,
    };
    let spool = export.spool.clone();
    Settings {
        name: export.name.clone(),
        target,
        format,
        kinds: export.kinds,
        destinations: export.destinations,
        queue_max: export.queue_max.into(),
        spool: spool.map(|(directory, len_max)| SpoolSettings { directory, len_max }),
    }
}

/// What became of events, for metrics.
pub(super) fn figures(sinks: &[Sink]) -> Vec<ExportFigures> {
    let figures = |sink: &Sink| {
        let counters = sink.counters();
        ExportFigures {
            name: sink.name().to_owned(),
            sent: counters.sent,
            lost: counters.lost,
            waiting: counters.waiting,
            spooled_bytes: counters.spooled_bytes,
            is_connected: counters.is_connected,
        }
    };
    sinks.iter().map(figures).collect()
}
