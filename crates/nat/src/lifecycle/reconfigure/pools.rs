//! Differences between two pools of the same name: addresses, ports, and how they are given out.

use super::difference::Difference;
use crate::base::plan::{Allocation, Deterministic, Pool4, PoolRange};
use crate::tables::pool4::DeterministicMap;
use crate::tables::pool4::change::same_kind;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::text::{counted, group};

/// Maximum number of ranges that are shown. Further ranges are counted.
const SHOWN_MAX: usize = 4;
/// Maximum number of subscribers of a formula that are compared.
const COMPARED_MAX: u64 = 1 << 22;

/// Consecutive addresses, both ends included.
type Run = (u32, u32);

/// Differences between a pool and its former state.
pub(super) struct PoolDifference<'p> {
    old: &'p Pool4,
    new: &'p Pool4,
    added: Vec<Run>,
    removed: Vec<Run>,
    /// Addresses in both pools with different ports.
    changed: Vec<Run>,
}

impl<'p> PoolDifference<'p> {
    pub(super) fn of(old: &'p Pool4, new: &'p Pool4) -> Self {
        let (mut added, mut removed, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        for run @ (first, _) in pieces(&[&old.ranges, &new.ranges]) {
            let (before, after) = (ports_at(&old.ranges, first), ports_at(&new.ranges, first));
            match (before.is_empty(), after.is_empty()) {
                (true, false) => join(&mut added, run),
                (false, true) => join(&mut removed, run),
                (false, false) if before != after => join(&mut changed, run),
                _ => {}
            }
        }
        PoolDifference { old, new, added, removed, changed }
    }

    pub(super) fn note(&self, d: &mut Difference, name: &str) {
        let at = format!("pool {name:?}");
        let Pool4 { name: _, ranges: _, pairing, port_parity, port_class, allocation, overload } = self.new;
        if !self.added.is_empty() {
            d.change(format!("{at}: added {}", show(&self.added)));
        }
        if !self.removed.is_empty() {
            d.change(format!("{at}: removed {}", show(&self.removed)));
            d.end(format!("{at}: all sessions and bindings of {}", show(&self.removed)));
        }
        if !self.changed.is_empty() {
            d.change(format!("{at}: changed ports of {}", show(&self.changed)));
            d.end(format!("{at}: sessions and bindings at removed ports of {}", show(&self.changed)));
        }
        d.note(&format!("{at}: pairing"), self.old.pairing, *pairing);
        d.note(&format!("{at}: port_parity"), self.old.port_parity, *port_parity);
        d.note(&format!("{at}: port_class"), self.old.port_class, *port_class);
        d.note(&format!("{at}: overload"), &self.old.overload, overload);
        if !same_kind(&self.old.allocation, allocation) {
            d.restart(format!(
                "{at}: kind of allocation, block size or protocols of blocks: all its tables depend on them"
            ));
            return;
        }
        match (&self.old.allocation, allocation) {
            (Allocation::Random(a), Allocation::Random(b)) => {
                d.note_keys(&format!("{at}: "), a, b);
            }
            (Allocation::Blocks(a), Allocation::Blocks(b)) => {
                d.note_keys(&format!("{at}: "), a, b);
            }
            (Allocation::Deterministic(a), Allocation::Deterministic(b)) => self.formula(d, &at, a, b),
            _ => {}
        }
    }

    /// Notes the subscribers whose block changes with the formula.
    fn formula(&self, d: &mut Difference, at: &str, old: &Deterministic, new: &Deterministic) {
        d.note(&format!("{at}: inside networks"), &old.inside, &new.inside);
        d.note_keys(&format!("{at}: "), &old.blocks, &new.blocks);
        d.note(&format!("{at}: overflow blocks"), old.overflow_per_address, new.overflow_per_address);
        if old.subscriber_len != new.subscriber_len {
            d.restart(format!("{at}: subscriber length: the formula depends on it"));
        }
        let (Ok(Some(before)), Ok(Some(after))) =
            (DeterministicMap::new(self.old), DeterministicMap::new(self.new))
        else {
            return;
        };
        let (mut moved, mut all) = (0u64, 0u64);
        for subscriber in subscribers(old) {
            all += 1;
            moved += u64::from(before.forward(subscriber) != after.forward(subscriber));
        }
        if moved > 0 {
            let of = if all == COMPARED_MAX { "at least " } else { "" };
            d.end(format!(
                "{at}: the sessions of {of}{} of {}, with another block by the formula",
                group(moved),
                counted(all, "subscriber")
            ));
        }
    }
}

/// Iterates over the first addresses of the subscribers of a formula.
fn subscribers(plan: &Deterministic) -> impl Iterator<Item = Ipv6Addr> + '_ {
    let each = |net: &crate::base::plan::Net6| {
        let ipv4 = net.len >= 96 && net.addr.to_ipv4_mapped().is_some();
        let len = if ipv4 { 128 } else { plan.subscriber_len };
        let step = 1u128.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0);
        let count = 1u64.checked_shl(u32::from(len.saturating_sub(net.len))).unwrap_or(u64::MAX);
        let first = u128::from(net.addr);
        (0..count).map(move |n| Ipv6Addr::from(first.wrapping_add(step.wrapping_mul(n.into()))))
    };
    plan.inside.iter().flat_map(each).take(COMPARED_MAX as usize)
}

/// Returns an address that moves from one pool to another, and their names.
pub(super) fn moved<'p>(old: &'p [Pool4], new: &'p [Pool4]) -> Option<(Ipv4Addr, &'p str, &'p str)> {
    let all: Vec<&Vec<PoolRange>> = old.iter().chain(new).map(|pool| &pool.ranges).collect();
    let of = |pools: &'p [Pool4], address| {
        let mut holders = pools.iter().filter(|pool| !ports_at(&pool.ranges, address).is_empty());
        holders.next().map(|pool| pool.name.as_str())
    };
    pieces(&all).into_iter().find_map(|(first, _)| match (of(old, first), of(new, first)) {
        (Some(from), Some(to)) if from != to => Some((Ipv4Addr::from(first), from, to)),
        _ => None,
    })
}

/// Cuts the address space at the ends of all ranges.
fn pieces(all: &[&Vec<PoolRange>]) -> Vec<Run> {
    let mut cuts = BTreeSet::new();
    for range in all.iter().flat_map(|ranges| ranges.iter()) {
        cuts.insert(u64::from(u32::from(range.first)));
        cuts.insert(u64::from(u32::from(range.last)) + 1);
    }
    let cuts: Vec<u64> = cuts.into_iter().collect();
    // Both fit: an end is at most 2^32.
    cuts.iter().zip(cuts.iter().skip(1)).map(|(&first, &end)| (first as u32, (end - 1) as u32)).collect()
}

/// Returns the ports of an address, with their protocols, in order.
fn ports_at(ranges: &[PoolRange], address: u32) -> Vec<((u16, u16), [bool; 3])> {
    let here = |r: &&PoolRange| (u32::from(r.first)..=u32::from(r.last)).contains(&address);
    let mut ports: Vec<_> = ranges.iter().filter(here).map(|r| (r.ports, r.transports)).collect();
    ports.sort_unstable();
    ports
}

fn join(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if last.1.checked_add(1) == Some(run.0) => last.1 = run.1,
        _ => runs.push(run),
    }
}

fn show(runs: &[Run]) -> String {
    let addresses: u64 = runs.iter().map(|(first, last)| u64::from(last - first) + 1).sum();
    let mut text = String::new();
    for (n, &(first, last)) in runs.iter().take(SHOWN_MAX).enumerate() {
        let comma = if n > 0 { ", " } else { "" };
        let (first, last) = (Ipv4Addr::from(first), Ipv4Addr::from(last));
        // Writing to a string does not fail.
        let _ = match first == last {
            true => write!(text, "{comma}{first}"),
            false => write!(text, "{comma}{first}-{last}"),
        };
    }
    if runs.len() > SHOWN_MAX {
        let _ = write!(text, " and {}", counted((runs.len() - SHOWN_MAX) as u64, "more range"));
    }
    let _ = write!(text, " ({})", counted(addresses, "address"));
    text
}
