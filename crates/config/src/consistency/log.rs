//! Contents of the log, and the events that the engine must make for all sinks.

use crate::problem::Problems;
use crate::sections::events::Events;
use crate::sections::export::{Export, RawExport};
use crate::sections::log::{Log, RawLog};
use gatun_nat::plan::{Allocation, EventPlan, Plan};
use gatun_nat::{EventKind, EventKinds};

/// Contents of the log: bindings too, if ports are allocated one by one.
pub(super) fn build(raw: &RawLog, plan: &Plan, problems: &mut Problems) -> Log {
    let RawLog { directory, retention_ms, size_max, bindings, bindings_span } = raw;
    let mut used = plan.pools_of_instances().filter_map(|pool| plan.pools.get(pool));
    let random = used.find(|pool| matches!(pool.allocation, Allocation::Random(_)));
    if let (Some(false), Some(pool)) = (bindings, random) {
        let what = format!(
            "pool \"{}\" allocates single ports: without bindings the log cannot identify their owners",
            pool.name
        );
        problems.warn(
            bindings_span.clone(),
            what,
            "remove `bindings`, or give the pool `allocation = \"blocks\"`",
        );
    }
    Log {
        directory: directory.clone(),
        retention_ms: *retention_ms,
        size_max: *size_max,
        bindings: bindings.unwrap_or(random.is_some()),
    }
}

/// The collectors, each with a name.
pub(super) fn exports(raw: Vec<RawExport>, problems: &mut Problems) -> Vec<Export> {
    let names = super::names("export", raw.iter().map(|raw| (&raw.name, raw.span.clone())), problems);
    let named = |(raw, name): (RawExport, String)| raw.export.map(|export| Export { name, ..export });
    raw.into_iter().zip(names).filter_map(named).collect()
}

/// Events that the engine makes: the union for all sinks.
pub(super) fn events(configured: Option<&Events>, exports: &[Export], log: Option<&Log>) -> EventPlan {
    let configured = configured.map(|events| events.plan).unwrap_or_default();
    let of_log = match log {
        None => EventKinds::NONE,
        Some(log) => {
            use EventKind::*;
            let blocks = EventKinds::NONE.with(BlockAssigned).with(BlockReleased).with(BlockKept);
            let bindings = EventKinds::NONE.with(BindingCreated).with(BindingDeleted).with(BindingKept);
            if log.bindings { blocks.and(bindings) } else { blocks }
        }
    };
    let kinds = exports.iter().fold(configured.kinds.and(of_log), |kinds, export| kinds.and(export.kinds));
    let destinations = configured.destinations || exports.iter().any(|export| export.destinations);
    EventPlan { kinds, destinations, ..configured }
}
