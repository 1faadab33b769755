//! `[announce]`: routes that tell a routing daemon what this box translates.

use crate::network::{self, Network};
use crate::problem::Problems;
use crate::reader::Table;
use crate::value;
use toml::Spanned;

/// Shortest time, ms, after which a worker counts as stalled: a busy machine must not look like a dead one.
const STALL_MIN_MS: u32 = 200;

/// Tracked routes: each is compared with each route of the kernel.
const TRACKED_MAX: usize = 32;

/// Settings of announced routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announce {
    /// Name of the marker device.
    pub device: String,
    /// Table of the networks that this box owns.
    pub table: u32,
    /// Table of the networks that this box backs.
    pub backup_table: u32,
    /// Time in ms without an answer of a worker, or of the daemon, after which the routes are withdrawn.
    pub stall_ms: u32,
    /// Time in ms for which the daemon must be healthy before withdrawn routes come back.
    pub return_after_ms: u32,
    /// Interfaces of the kernel, beside the ports, without which packets go nowhere.
    pub links: Vec<String>,
    /// Destinations to which the kernel's main table must have a route, at most 32.
    pub tracked_routes: Vec<Network>,
    /// True if an exhausted pool withdraws the routes.
    pub withdraw_exhausted: bool,
    /// The networks: those of [`crate::Config::routes`].
    pub networks: Vec<Network>,
}

pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> Announce {
    let stall_ms = table.get("stall", problems, value::duration_ms).unwrap_or(1_000);
    if stall_ms < STALL_MIN_MS {
        let what = format!("`stall` is below {STALL_MIN_MS} ms");
        problems.error(table.span_of("stall"), what, "write `stall = \"200ms\"` or more");
    }
    let own = table.integer("table", problems).unwrap_or(186);
    let backup_table = table.integer("backup_table", problems).unwrap_or(187);
    if own == backup_table {
        let what = "`table` and `backup_table` are the same";
        problems.error(table.span_of("backup_table"), what, "write two numbers, for example 186 and 187");
    }
    // 253 to 255 are the kernel's default, main and local tables.
    for (name, number) in [("table", own), ("backup_table", backup_table)] {
        if (253..=255).contains(&number) {
            let what = format!("`{name}` is a table that the kernel forwards by");
            problems.error(table.span_of(name), what, table.example(name));
        }
    }
    let tracked = table.list("tracked_routes", problems, network::network);
    if tracked.len() > TRACKED_MAX {
        let what = format!("`tracked_routes` has {} networks", tracked.len());
        problems.error(table.span_of("tracked_routes"), what, format!("write at most {TRACKED_MAX}"));
    }
    Announce {
        device: table.get("device", problems, value::interface).unwrap_or_else(|| "gatun-routes".into()),
        table: own,
        backup_table,
        stall_ms,
        return_after_ms: table.get("return_after", problems, value::duration_ms).unwrap_or(3_000),
        links: table.list("links", problems, value::interface).into_iter().map(Spanned::into_inner).collect(),
        tracked_routes: tracked.into_iter().map(Spanned::into_inner).collect(),
        withdraw_exhausted: table.flag("withdraw_exhausted", problems).unwrap_or(false),
        networks: Vec::new(),
    }
}
