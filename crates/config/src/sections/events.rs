//! `[events]`: kinds and destination of events.

use crate::problem::Problems;
use crate::reader::Table;
use crate::value::{self, Invalid};
use gatun_nat::plan::EventPlan;
use gatun_nat::{EventKind, EventKinds};
use std::path::PathBuf;

/// Destination of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventSink {
    /// Standard output.
    Stdout,
    /// A file, to which lines are appended.
    File(PathBuf),
}

/// The section.
pub(crate) struct Events {
    pub(crate) sink: EventSink,
    pub(crate) plan: EventPlan,
}

pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> Option<Events> {
    let d = EventPlan::default();
    let sink = table.require("file", problems, |v| match value::text(v)? {
        "stdout" => Ok(EventSink::Stdout),
        name if name.starts_with('/') && !name.contains('\0') => Ok(EventSink::File(name.into())),
        name => {
            let what = format!("\"{}\" is neither \"stdout\" nor an absolute path", value::shorten(name));
            Err(Invalid::new(what))
        }
    });
    let ring_len = table.integer("ring", problems).unwrap_or(d.ring_len);
    let plan = EventPlan {
        kinds: kinds(table, problems),
        ring_len,
        state_ring_len: d.state_ring_len.max(ring_len),
        destinations: table.flag("destinations", problems).unwrap_or(d.destinations),
        threshold: table.integer("threshold", problems).map_or(d.threshold, |n| n as u8),
    };
    Some(Events { sink: sink?, plan })
}

/// Reads the kinds of events of a section.
pub(crate) fn kinds(table: &Table<'_>, problems: &mut Problems) -> EventKinds {
    let names: Vec<_> = EventKind::ALL.iter().map(|kind| (kind.name(), *kind)).collect();
    let kinds = table.list("kinds", problems, |v| value::choice(v, &names));
    match table.node("kinds") {
        None => EventKinds::FEW,
        Some(_) => kinds.iter().fold(EventKinds::NONE, |set, kind| set.with(*kind.get_ref())),
    }
}
