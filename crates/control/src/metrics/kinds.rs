//! Metrics by kind.

use super::read::engine_counter;
use super::{Kind, Metric, Samples, View};
use crate::engine_counters::EngineCounter;

pub(super) const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    read: fn(&View<'_>, &mut Samples<'_>),
    help: &'static str,
) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help, read }
}

pub(super) const fn engine(of: EngineCounter) -> Metric {
    counter(of.name, &[], engine_counter, of.help)
}

pub(super) const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    read: fn(&View<'_>, &mut Samples<'_>),
    help: &'static str,
) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help, read }
}

pub(super) const fn histogram(
    name: &'static str,
    read: fn(&View<'_>, &mut Samples<'_>),
    help: &'static str,
) -> Metric {
    Metric { name, kind: Kind::Histogram, labels: &["le"], help, read }
}
