//! Distribution of public addresses among workers or shards.

use super::{AddressShare, Parts};
use crate::base::build_error::BuildError;
use crate::base::plan::{Plan, Pool4, PoolRange};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use gatun_wire::text::counted;

/// Consecutive addresses of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: u32,
    last: u32,
    part: u16,
}

/// Public addresses of all stateful instances, with their parts.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    /// First address of all, and the distance of the last from it: one comparison excludes most addresses.
    first: u32,
    width: u32,
    /// Spans in the order of their addresses.
    spans: Vec<Span>,
}

impl Addresses {
    /// Distributes the addresses of every pool in consecutive runs. The shares of two parts differ by at most
    /// one address.
    ///
    /// # Errors
    /// Returns an error if a pool has fewer addresses than there are parts.
    pub(super) fn new(plan: &Plan, parts: Parts) -> Result<Self, BuildError> {
        let (number, mut spans) = (parts.count() as u64, Vec::new());
        for pool in pools_in_use(plan) {
            let rows = rows(&pool.ranges);
            let count: u64 = rows.iter().map(|(first, last)| u64::from(last - first) + 1).sum();
            if count < number {
                return Err(BuildError(format!(
                    "pool {:?} has {} for {}, and each needs its own: add addresses to the pool, or use {}",
                    pool.name,
                    counted(count, "address"),
                    counted(number, parts.name()),
                    parts.help(),
                )));
            }
            deal(&rows, count, number, &mut spans);
        }
        Ok(Self::of(spans))
    }

    fn of(mut spans: Vec<Span>) -> Self {
        spans.sort_unstable_by_key(|span| span.first);
        let first = spans.first().map_or(0, |span| span.first);
        let width = spans.last().map_or(0, |span| span.last - first);
        Addresses { first, width, spans }
    }

    /// Restores an earlier distribution. Ignores entries of parts that do not exist, and entries that
    /// overlap an earlier one.
    pub(super) fn as_before(address_shares: &[AddressShare], parts: Parts) -> Self {
        let mut all: Vec<AddressShare> = address_shares.to_vec();
        all.retain(|(first, last, part)| first <= last && usize::from(*part) < parts.count());
        all.sort_unstable();
        let mut spans: Vec<Span> = Vec::new();
        for (first, last, part) in all {
            let (first, last) = (u32::from(first), u32::from(last));
            if spans.last().is_none_or(|before| before.last < first) {
                spans.push(Span { first, last, part });
            }
        }
        Self::of(spans)
    }

    /// Returns the distribution.
    pub(super) fn address_shares(&self) -> Vec<AddressShare> {
        self.spans.iter().map(|span| (span.first.into(), span.last.into(), span.part)).collect()
    }

    /// Distributes the addresses of another plan. An address that stays keeps its part. New ones go to the
    /// parts with the fewest addresses of their pool.
    ///
    /// # Errors
    /// Returns an error if a part would have no address of a pool.
    pub(super) fn changed_to(&self, plan: &Plan, parts: Parts) -> Result<Self, BuildError> {
        let mut spans = Vec::new();
        for pool in pools_in_use(plan) {
            let (mut counts, mut new) = (vec![0u64; parts.count()], Vec::new());
            for (first, last, part) in rows(&pool.ranges).into_iter().flat_map(|row| self.parts(row)) {
                let Some(part) = part else {
                    new.push((first, last));
                    continue;
                };
                spans.push(Span { first, last, part });
                if let Some(count) = counts.get_mut(usize::from(part)) {
                    *count += u64::from(last - first) + 1;
                }
            }
            let room = deal_new(&new, &counts, &mut spans);
            if let Some(part) = counts.iter().zip(room).position(|(has, gets)| has + gets == 0) {
                return Err(BuildError(format!(
                    "pool {:?}: {} {part} of {} would have no address: keep one of its addresses, \
                     add as many addresses as you remove, or {}",
                    pool.name,
                    parts.name(),
                    parts.count(),
                    parts.restart(),
                )));
            }
        }
        Ok(Self::of(spans))
    }

    /// Cuts a run of addresses where its part changes. `None` means that it has none.
    fn parts(&self, (first, last): (u32, u32)) -> Vec<(u32, u32, Option<u16>)> {
        let (mut at, mut parts) = (u64::from(first), Vec::new());
        let from = self.spans.partition_point(|span| span.last < first);
        let after = self.spans.get(from..).unwrap_or_default().iter().take_while(|span| span.first <= last);
        for span in after {
            if u64::from(span.first) > at {
                parts.push((at as u32, span.first.saturating_sub(1), None));
                at = span.first.into();
            }
            parts.push((at as u32, span.last.min(last), Some(span.part)));
            at = u64::from(span.last) + 1;
        }
        if at <= u64::from(last) {
            parts.push((at as u32, last, None));
        }
        parts
    }

    /// Returns the part that has an address; `None` if it is in no pool.
    #[inline]
    pub(super) fn owner(&self, address: Ipv4Addr) -> Option<usize> {
        let a = u32::from(address);
        if a.wrapping_sub(self.first) > self.width {
            return None;
        }
        let span = self.spans.get(self.spans.partition_point(|span| span.last < a))?;
        (span.first <= a).then_some(usize::from(span.part))
    }

    /// Gives an address of a pool to a part. The spans of a distribution do not depend on how it came about.
    pub(super) fn give(&mut self, address: Ipv4Addr, part: usize) {
        let a = u32::from(address);
        let at = self.spans.partition_point(|span| span.last < a);
        let holder = self.spans.get(at).copied().filter(|span| span.first <= a);
        let Some(old) = holder.filter(|span| usize::from(span.part) != part) else { return };
        let parts = [
            (a > old.first).then(|| Span { last: a.saturating_sub(1), ..old }),
            Some(Span { first: a, last: a, part: part as u16 }),
            (a < old.last).then(|| Span { first: a.saturating_add(1), ..old }),
        ];
        self.spans.splice(at..=at, parts.into_iter().flatten());
    }

    /// Returns the pieces of a range that certain parts have.
    pub(super) fn cut<'a>(
        &'a self,
        range: &'a PoolRange,
        has: impl Fn(usize) -> bool + 'a,
    ) -> impl Iterator<Item = PoolRange> + 'a {
        let (low, high) = (u32::from(range.first), u32::from(range.last));
        let mine = self.spans.iter().filter(move |span| has(usize::from(span.part)));
        mine.filter_map(move |span| {
            let (first, last) = (span.first.max(low), span.last.min(high));
            (first <= last).then(|| PoolRange { first: first.into(), last: last.into(), ..*range })
        })
    }
}

/// Iterates over the pools that instances use, each once.
fn pools_in_use(plan: &Plan) -> impl Iterator<Item = &Pool4> {
    let mut pools: Vec<usize> = plan.pools_of_instances().collect();
    pools.sort_unstable();
    pools.dedup();
    pools.into_iter().filter_map(|pool| plan.pools.get(pool))
}

/// Distributes new addresses to parts that have `counts` already, as evenly as possible. Returns the number
/// that each part gets.
fn deal_new(rows: &[(u32, u32)], counts: &[u64], spans: &mut Vec<Span>) -> Vec<u64> {
    let new: u64 = rows.iter().map(|(first, last)| u64::from(last - first) + 1).sum();
    let needed = |level: u64| counts.iter().map(|&has| level.saturating_sub(has)).sum::<u64>();
    // The highest level that all parts can reach.
    let (mut level, mut too_high) = (0, counts.iter().max().unwrap_or(&0) + new + 1);
    while level + 1 < too_high {
        let middle = level + (too_high - level) / 2;
        if needed(middle) <= new { level = middle } else { too_high = middle }
    }
    let mut rest = new - needed(level);
    let mut gets: Vec<u64> = counts.iter().map(|&has| level.saturating_sub(has)).collect();
    for (more, _) in gets.iter_mut().zip(counts).filter(|(_, has)| **has <= level) {
        let one = rest.min(1);
        *more += one;
        rest -= one;
    }
    let mut left = (0u16..).zip(gets.iter().copied()).filter(|(_, n)| *n > 0);
    let mut next = left.next();
    for &(first, last) in rows {
        let mut at = u64::from(first);
        while at <= u64::from(last)
            && let Some((part, n)) = next
        {
            let until = (at + n - 1).min(last.into());
            spans.push(Span { first: at as u32, last: until as u32, part });
            let n = n - (until - at + 1);
            next = if n > 0 { Some((part, n)) } else { left.next() };
            at = until + 1;
        }
    }
    gets
}

/// Returns the addresses of ranges as sorted, disjoint runs.
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

/// Distributes runs of addresses: number `n` of `count` goes to part `n * parts / count`.
fn deal(rows: &[(u32, u32)], count: u64, parts: u64, spans: &mut Vec<Span>) {
    let mut n = 0;
    for &(first, last) in rows {
        let mut at = u64::from(first);
        while at <= u64::from(last) {
            let part = n * parts / count;
            // The first number of the next part.
            let end = ((part + 1) * count).div_ceil(parts);
            let until = (at + (end - n) - 1).min(last.into());
            spans.push(Span { first: at as u32, last: until as u32, part: part as u16 });
            n += until - at + 1;
            at = until + 1;
        }
    }
}
