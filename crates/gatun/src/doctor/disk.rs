//! Free disk space for the log, events and spools of collectors.

use super::Finding;
use gatun_config::{Bytes, Config, EventSink};
use rustix::fs::statvfs;
use std::path::Path;

const CHECK: &str = "disk";
/// Free bytes below which a file system counts as full.
const FULL: u64 = 4 << 20;
/// Fraction (1/LOW) of free space below which a file system counts as nearly full.
const LOW: u64 = 20;

pub(super) fn examine(config: &Config) -> Vec<Finding> {
    let log = config.log.iter().map(|log| ("the log", &*log.directory));
    let events = config.events.iter().filter_map(|sink| match sink {
        EventSink::File(path) => Some(("events", path.as_path())),
        EventSink::Stdout => None,
    });
    let spools = config.exports.iter().filter_map(|export| export.spool.as_ref());
    let spools = spools.map(|(path, _)| ("the spool", path.as_path()));
    log.chain(events).chain(spools).filter_map(|(what, path)| room(what, path)).collect()
}

fn room(what: &str, path: &Path) -> Option<Finding> {
    // A file that does not exist yet will be created in its parent's file system.
    let system = path.ancestors().find_map(|place| statvfs(place).ok())?;
    let (free, all) = (system.f_bavail * system.f_frsize, system.f_blocks * system.f_frsize);
    let shown = path.display();
    let what = format!("{what} in {shown} has {} left of {}", Bytes(free), Bytes(all));
    let fix = format!("make room on the file system of {shown}; df {shown}");
    Some(match (free < FULL, free < all / LOW) {
        (true, _) => Finding::wrong(CHECK, format!("{what}: data is lost"), fix),
        (false, true) => Finding::note(CHECK, what, fix),
        (false, false) => Finding::ok(CHECK, what),
    })
}
