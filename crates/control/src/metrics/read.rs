//! Readers of values, shared by metrics.

use super::{Samples, Subscribers, View};
use crate::engine_counters;
use crate::subscriber_totals::Measure;
use crate::{ExportFigures, StoreFigures};
use gatun_nat::counters::{Count, Direction};
use gatun_nat::plan::Transport;
use gatun_nat::pool4::BlockUsage;
use gatun_nat::report::{InstanceStats, PoolStats};
use gatun_worker::Snapshot;

pub(super) const DIRECTIONS: [(Direction, &str); 3] =
    [(Direction::SixToFour, "v6>v4"), (Direction::FourToSix, "v4>v6"), (Direction::FourToFour, "v4>v4")];

pub(super) fn fates(snapshot: &Snapshot) -> [(&'static str, Count); 7] {
    let e = &snapshot.engine;
    [
        ("received", e.rx),
        ("forwarded", e.forwarded),
        ("echo_replied", e.echoes()),
        ("passed", e.passed),
        ("rejected", e.rejected()),
        ("dropped_silently", e.dropped),
        ("redirected", e.redirected),
    ]
}

/// Routes of each table.
pub(super) fn announced(v: &View<'_>, s: &mut Samples<'_>) {
    for table in &v.scrape.health.tables {
        s.add(&[&table.table.to_string(), &table.role.to_string()], table.routes);
    }
}

pub(super) fn by_worker(v: &View<'_>, s: &mut Samples<'_>, of: impl Fn(&Snapshot) -> u64) {
    v.workers().for_each(|(worker, snapshot)| s.add(&[&worker], of(snapshot)));
}

/// Packets or bytes sent to each other node of a cluster.
pub(super) fn by_node(v: &View<'_>, s: &mut Samples<'_>, of: fn(Count) -> u64) {
    v.workers().for_each(|(worker, snapshot)| {
        snapshot.redirected.iter().for_each(|(node, count)| s.add(&[&worker, node], of(*count)));
    });
}

pub(super) fn by_instance(v: &View<'_>, mut each: impl FnMut([&str; 2], &InstanceStats)) {
    v.total.instances.iter().for_each(|stats| each([stats.kind.name(), &stats.name], stats));
}

pub(super) fn by_pool(v: &View<'_>, s: &mut Samples<'_>, of: impl Fn(&PoolStats) -> u64) {
    v.total.pools.iter().for_each(|stats| s.add(&[&stats.name], of(stats)));
}

pub(super) fn by_pool_protocol(v: &View<'_>, s: &mut Samples<'_>, of: impl Fn(&PoolStats, usize) -> u64) {
    for stats in &v.total.pools {
        Transport::ALL.into_iter().for_each(|t| s.add(&[&stats.name, t.name()], of(stats, t as usize)));
    }
}

/// Packets or bytes of each pool in both directions.
pub(super) fn by_pool_way(v: &View<'_>, s: &mut Samples<'_>, of: fn(Count) -> u64) {
    for stats in &v.total.pools {
        s.add(&[&stats.name, "outbound"], of(stats.counters.traffic.outbound));
        s.add(&[&stats.name, "inbound"], of(stats.counters.traffic.inbound));
    }
}

pub(super) fn by_pool_blocks(v: &View<'_>, s: &mut Samples<'_>, of: impl Fn(&BlockUsage) -> u64) {
    for stats in &v.total.pools {
        stats.blocks.iter().for_each(|blocks| s.add(&[&stats.name], of(blocks)));
    }
}

pub(super) fn by_protocol(v: &View<'_>, s: &mut Samples<'_>, of: impl Fn(&InstanceStats, usize) -> u64) {
    by_instance(v, |[kind, name], stats| {
        for transport in Transport::ALL.into_iter().filter(|_| kind != "siit") {
            s.add(&[kind, name, transport.name()], of(stats, transport as usize));
        }
    });
}

/// Packets or bytes of each instance in both directions.
pub(super) fn by_way(v: &View<'_>, s: &mut Samples<'_>, of: fn(Count) -> u64) {
    by_instance(v, |[kind, name], stats| {
        s.add(&[kind, name, "outbound"], of(stats.counters.outbound));
        s.add(&[kind, name, "inbound"], of(stats.counters.inbound));
    });
}

pub(super) fn by_export(v: &View<'_>, s: &mut Samples<'_>, of: impl Fn(&ExportFigures) -> u64) {
    v.scrape.figures.exports.iter().for_each(|export| s.add(&[&export.name], of(export)));
}

pub(super) fn of_log(v: &View<'_>, s: &mut Samples<'_>, of: impl Fn(&StoreFigures) -> u64) {
    v.scrape.figures.store.iter().for_each(|store| s.add(&[], of(store)));
}

pub(super) fn engine_counter(v: &View<'_>, s: &mut Samples<'_>) {
    let name = s.name.trim_start_matches("gatun_").trim_end_matches("_total").to_owned();
    let found = engine_counters::ALL.iter().find(|counter| counter.name == name);
    found.into_iter().for_each(|counter| s.add(&[], (counter.value)(&v.total.engine)));
}

pub(super) fn distribution(v: &View<'_>, s: &mut Samples<'_>, measure: Measure) {
    if let Some(subscribers) = &v.scrape.subscribers {
        s.distribution(&subscribers.totals.distributions[measure as usize]);
    }
}

pub(super) fn top(v: &View<'_>, s: &mut Samples<'_>, measure: Measure) {
    let Some(Subscribers { names, totals }) = &v.scrape.subscribers else { return };
    for stats in &totals.top[measure as usize] {
        let who = names.subscriber(stats);
        s.add(&[&who.instance.0, &who.subscriber], measure.of(stats));
    }
}

/// Packets at the kernel fast path.
pub(super) fn of_fastpath(v: &View<'_>, s: &mut Samples<'_>) {
    for instance in &v.scrape.fastpath.instances {
        s.add(&[&instance.name, "hit"], instance.translated);
        s.add(&[&instance.name, "dropped"], instance.dropped);
        instance.passed.iter().for_each(|reason| s.add(&[&instance.name, &reason.name], reason.value));
    }
}

/// Packets at the network interfaces of the kernel fast path.
pub(super) fn of_fastpath_xdp(v: &View<'_>, s: &mut Samples<'_>) {
    let fastpath = &v.scrape.fastpath;
    for instance in fastpath.instances.iter().filter(|_| !fastpath.xdp.is_empty()) {
        s.add(&[&instance.name, "hit"], instance.xdp_translated);
        instance.xdp_passed.iter().for_each(|reason| s.add(&[&instance.name, &reason.name], reason.value));
    }
}

/// Milliseconds as seconds.
pub(super) fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// Seconds with their sign.
pub(super) fn signed_seconds(ms: i64) -> String {
    let sign = if ms < 0 { "-" } else { "" };
    format!("{sign}{}", seconds(ms.unsigned_abs()))
}

/// Sessions that were not given to the kernel.
pub(super) fn refused_by_kernel(v: &View<'_>, s: &mut Samples<'_>) {
    s.add(&["full"], v.scrape.fastpath.refused_full);
    s.add(&["other"], v.scrape.fastpath.refused_other);
}
