//! Which worker has which public address.

use crate::build_error::BuildError;
use crate::plan::{Plan, PoolRange};
use alloc::format;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Addresses in a row that one worker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: u32,
    last: u32,
    worker: u16,
}

/// The public addresses of all stateful instances.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    /// The first of all, and how far the last is from it: most addresses are no pool's, at one look.
    first: u32,
    width: u32,
    /// In order.
    spans: Vec<Span>,
}

impl Addresses {
    /// Each worker gets as many in a row of every pool as every other, but for one.
    ///
    /// # Errors
    /// Where a pool has fewer addresses than there are workers.
    pub(super) fn new(plan: &Plan, workers: usize) -> Result<Self, BuildError> {
        let mut spans = Vec::new();
        let mut pools: Vec<usize> = plan.pools_of_instances().collect();
        pools.sort_unstable();
        pools.dedup();
        for pool in pools.into_iter().filter_map(|pool| plan.pools.get(pool)) {
            let rows = rows(&pool.ranges);
            let count: u64 = rows.iter().map(|(first, last)| u64::from(last - first) + 1).sum();
            if count < workers as u64 {
                return Err(BuildError(format!(
                    "pool {:?} has {count} address{} for {workers} workers, and each needs one of its own: \
                     give it more addresses, or the port fewer queues",
                    pool.name,
                    if count == 1 { "" } else { "es" },
                )));
            }
            deal(&rows, count, workers as u64, &mut spans);
        }
        spans.sort_unstable_by_key(|span| span.first);
        let first = spans.first().map_or(0, |span| span.first);
        let width = spans.last().map_or(0, |span| span.last - first);
        Ok(Addresses { first, width, spans })
    }

    /// Whose an address is; `None` where it is in no pool.
    #[inline]
    pub(super) fn owner(&self, address: Ipv4Addr) -> Option<usize> {
        let a = u32::from(address);
        if a.wrapping_sub(self.first) > self.width {
            return None;
        }
        let span = self.spans.get(self.spans.partition_point(|span| span.last < a))?;
        (span.first <= a).then_some(usize::from(span.worker))
    }

    /// Gives an address of a pool to another worker.
    pub(super) fn give(&mut self, address: Ipv4Addr, worker: usize) {
        let a = u32::from(address);
        let at = self.spans.partition_point(|span| span.last < a);
        let Some(old) = self.spans.get(at).copied().filter(|span| span.first <= a) else { return };
        let parts = [
            (a > old.first).then(|| Span { last: a.saturating_sub(1), ..old }),
            Some(Span { first: a, last: a, worker: worker as u16 }),
            (a < old.last).then(|| Span { first: a.saturating_add(1), ..old }),
        ];
        self.spans.splice(at..=at, parts.into_iter().flatten());
    }

    /// What a worker has of a range.
    pub(super) fn of_worker<'a>(
        &'a self,
        range: &'a PoolRange,
        worker: usize,
    ) -> impl Iterator<Item = PoolRange> + 'a {
        let (low, high) = (u32::from(range.first), u32::from(range.last));
        let mine = self.spans.iter().filter(move |span| usize::from(span.worker) == worker);
        mine.filter_map(move |span| {
            let (first, last) = (span.first.max(low), span.last.min(high));
            (first <= last).then(|| PoolRange { first: first.into(), last: last.into(), ..*range })
        })
    }
}

/// Addresses of ranges in order, each once, as rows.
fn rows(ranges: &[PoolRange]) -> Vec<(u32, u32)> {
    let mut all: Vec<(u32, u32)> =
        ranges.iter().map(|r| (u32::from(r.first), u32::from(r.last))).filter(|(a, b)| a <= b).collect();
    all.sort_unstable();
    let mut rows: Vec<(u32, u32)> = Vec::new();
    for (first, last) in all {
        match rows.last_mut() {
            Some(row) if first <= row.1.saturating_add(1) => row.1 = row.1.max(last),
            _ => rows.push((first, last)),
        }
    }
    rows
}

/// Number `n` of `count` goes to worker `n * workers / count`.
fn deal(rows: &[(u32, u32)], count: u64, workers: u64, spans: &mut Vec<Span>) {
    let mut n = 0;
    for &(first, last) in rows {
        let mut at = u64::from(first);
        while at <= u64::from(last) {
            let worker = n * workers / count;
            // The first number of the next worker.
            let end = ((worker + 1) * count).div_ceil(workers);
            let until = (at + (end - n) - 1).min(last.into());
            spans.push(Span { first: at as u32, last: until as u32, worker: worker as u16 });
            n += until - at + 1;
            at = until + 1;
        }
    }
}
