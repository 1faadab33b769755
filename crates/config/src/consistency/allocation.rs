//! Fit of a pool's blocks to its ports, and of a formula to its subscribers.

use super::realms::Realms;
use crate::memory::PoolSize;
use crate::problem::Problems;
use crate::sections::Sections;
use gatun_nat::plan::{Allocation, Net4, Pool4};
use gatun_nat::pool4::{DeterministicMap, Pool4State};
use gatun_wire::text::{counted, group};
use toml::Spanned;

/// Percentage of ports in whole blocks below which a warning reports the waste.
const IN_BLOCKS_MIN: u64 = 95;

/// Completes formulas with values of their instances, and checks the pools of stateful instances.
pub(super) fn check(
    read: &Sections,
    pool_of: &[Option<usize>],
    pools: &mut [Pool4],
    realms: &Realms,
    problems: &mut Problems,
) {
    check_formulas(read, pool_of, realms, problems);
    for (at, (raw, pool)) in read.pools.iter().zip(pools).enumerate().filter(|(_, (raw, _))| !raw.broken) {
        // A formula sees inside IPv4 addresses as ::ffff:a.b.c.d.
        let of64 = read.nat64.iter().map(|i| i.subscriber_len);
        let lens = of64.chain(read.nat44.iter().map(|i| 96 + i.subscriber_len)).zip(pool_of);
        let lens: Vec<u8> = lens.filter(|(_, pool)| **pool == Some(at)).map(|(len, _)| len).collect();
        if let Allocation::Deterministic(d) = &mut pool.allocation {
            d.subscriber_len = lens.first().copied().unwrap_or(d.subscriber_len);
        }
        match pool.allocation {
            Allocation::Random(_) => continue,
            Allocation::Deterministic(_) if lens.is_empty() => continue,
            Allocation::Blocks(_) | Allocation::Deterministic(_) => {
                check_blocks(&raw.allocation, pool, problems)
            }
        }
    }
}

fn check_blocks(written: &Spanned<Allocation>, pool: &Pool4, problems: &mut Problems) {
    let usable = match Pool4State::ports_of(pool) {
        Ok(ports) => ports,
        // The ranges or the size were reported already.
        Err(_) => return,
    };
    let all = PoolSize::of(pool).ports;
    if usable == 0 {
        let instead = "write a smaller `size`, or `ports` that begin and end at multiples of it";
        problems.error(written.span(), "the pool's ports do not fill a block", instead);
        return;
    }
    if usable * 100 < all * IN_BLOCKS_MIN {
        let lost = all - usable;
        let what =
            format!("{} of {} are in no whole block and are not used", group(lost), counted(all, "port"));
        let instead = "let `ports` begin and end at multiples of `size`, or write a smaller `size`";
        problems.warn(written.span(), what, instead);
    }
    if let Err(error) = DeterministicMap::new(pool) {
        let instead =
            "give the pool more addresses, name fewer subscribers in `inside`, or write a smaller `size`";
        problems.error(written.span(), error.to_string(), instead);
    }
}

/// Checks that hosts of different realms do not share a formula. A formula knows a subscriber by its address
/// alone: two subscribers with the same address would get the same block, and neither could be identified by
/// it.
fn check_formulas(read: &Sections, pool_of: &[Option<usize>], realms: &Realms, problems: &mut Problems) {
    let of64 = read.nat64.iter().zip(&realms.nat64).map(|(i, realm)| (None, realm, &i.span));
    let of44 = read.nat44.iter().zip(&realms.nat44).map(|(i, realm)| (Some(&i.inside[..]), realm, &i.span));
    let by_formula = |pool: Option<usize>| {
        let raw = pool.and_then(|pool| read.pools.get(pool));
        pool.filter(|_| {
            raw.is_some_and(|raw| matches!(raw.allocation.get_ref(), Allocation::Deterministic(_)))
        })
    };
    let mut before = Vec::new();
    for ((inside, realm, span), pool) in of64.chain(of44).zip(pool_of) {
        let Some(pool) = by_formula(*pool) else { continue };
        let meets =
            |(other, of, used): &(_, _, usize)| *used == pool && *of != realm && overlap(inside, *other);
        if before.iter().any(meets) {
            let what = "the pool's formula identifies hosts by address only, but hosts of another \
                        instance with other `ports` may have the same addresses";
            let instead = "give each instance its own pool, or write `allocation = \"blocks\"`";
            problems.error(span.clone(), what, instead);
        }
        before.push((inside, realm, pool));
    }
}

/// Returns true if hosts of two realms may have the same addresses: IPv6 hosts may have any, IPv4 hosts those
/// of their inside networks.
fn overlap(a: Option<&[Spanned<Net4>]>, b: Option<&[Spanned<Net4>]>) -> bool {
    let same = |a: &Net4, b: &Net4| a.contains(b.addr) || b.contains(a.addr);
    match (a, b) {
        (Some(a), Some(b)) => a.iter().any(|a| b.iter().any(|b| same(a.get_ref(), b.get_ref()))),
        (None, None) => true,
        _ => false,
    }
}
