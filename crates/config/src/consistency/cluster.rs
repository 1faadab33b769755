//! Consistency of the cluster with pools, instances, own addresses and fast paths.

use super::peer::check_overload;
use crate::config::Config;
use crate::problem::Problems;
use crate::sections::cluster::{Cluster, RawCluster};
use gatun_nat::plan::{Allocation, Pool4};
use gatun_nat::redirect::Tunnel;
use gatun_nat::workers::Shares;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

/// Largest default number of shards.
const SHARDS: u64 = 64;

/// Checks the section, and divides the plan into its shards. `None` if the section has no effect.
pub(super) fn check(
    config: &mut Config,
    raw: RawCluster,
    own4_span: Option<Range<usize>>,
    problems: &mut Problems,
) -> Option<Cluster> {
    let span = &raw.span;
    if config.peer.is_some() {
        let what = "[cluster] and [peer]: a box is a node of a cluster, or a member of a pair";
        problems.error(span.clone(), what, "remove one of the two sections");
    }
    for (is_on, name) in [
        (config.offload.is_some(), "[[offload]]"),
        (config.fastpath.kernel, "[fastpath] with `kernel = \"auto\"`"),
    ] {
        if is_on {
            let what = format!(
                "[cluster] and {name}: packets outside of the daemon would not follow a shard to its next owner"
            );
            problems.error(span.clone(), what, "remove one of the two sections");
        }
    }
    if !config.plan.is_stateful() {
        let what = "[cluster] has no effect: stateless instances have no sessions";
        problems.warn(span.clone(), what, "remove the section");
        return None;
    }
    if raw.cluster.tunnel_mtu < Tunnel::MTU_MIN {
        let min = Tunnel::MTU_MIN;
        let what =
            format!("`tunnel_mtu` is below {min}: an IPv6 packet of 1,280 bytes would not fit the tunnel");
        problems.error(raw.mtu_span.clone(), what, format!("write `tunnel_mtu = {min}` or more"));
    }
    check_overload(config, "[cluster]", span, problems);
    check_addresses(config, &raw, own4_span, problems);
    let shards = shards(config, &raw, problems)?;
    config.plan.shards = Some(shards);
    if problems.errors() == 0
        && let Err(error) = Shares::new(&config.plan, config.workers(), [0; 4])
    {
        let instead = "write fewer `shards`, or give each subscriber's static bindings one address";
        problems.error(raw.shards_span.clone(), error.0, instead);
    }
    Some(Cluster { shards, ..raw.cluster })
}

/// Pools of instances.
fn pools(config: &Config) -> impl Iterator<Item = &Pool4> {
    let mut numbers: Vec<usize> = config.plan.pools_of_instances().collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().filter_map(|number| config.plan.pools.get(number))
}

/// Returns the pool that has an address.
fn pool_of(config: &Config, address: Ipv4Addr) -> Option<&Pool4> {
    let has = |pool: &&Pool4| pool.ranges.iter().any(|r| r.first <= address && address <= r.last);
    config.plan.pools.iter().find(has)
}

/// Checks that own addresses and tunnel addresses are in no pool: packets to them would go to the node that
/// has their shard.
fn check_addresses(
    config: &Config,
    raw: &RawCluster,
    own4_span: Option<Range<usize>>,
    problems: &mut Problems,
) {
    let instead = "write an address that is in no pool";
    if let Some(own) = config.plan.own4
        && let Some(pool) = pool_of(config, own)
    {
        let is_written = own4_span.is_some();
        let what = match is_written {
            true => format!(
                "`own4` is in the pool \"{}\": in a cluster, its packets would go to another node",
                pool.name
            ),
            false => format!(
                "[translator] has no `own4`, so it would be {own} of the pool \"{}\": in a cluster, its packets \
                 would go to another node",
                pool.name
            ),
        };
        let instead = "write `own4` in [translator], with an address that is in no pool";
        problems.error(own4_span.unwrap_or_else(|| raw.span.clone()), what, instead);
    }
    let own6 = config.plan.own6;
    let prefixes = config.plan.nat64.iter().flat_map(|nat64| &nat64.pool6);
    let embedded = own6.and_then(|own| prefixes.clone().find_map(|prefix| prefix.extract(own)));
    if let (Some(own), Some(inside)) = (own6, embedded)
        && let Some(pool) = pool_of(config, inside).filter(|_| config.plan.own4 != Some(inside))
    {
        let what = format!("`own6` {own} has {inside} of the pool \"{}\" in it", pool.name);
        problems.error(raw.span.clone(), what, instead);
    }
    for (node, span) in raw.cluster.nodes.iter().zip(&raw.tunnel_spans) {
        let taken = match node.tunnel {
            IpAddr::V4(four) => pool_of(config, four).map(|pool| format!("in the pool \"{}\"", pool.name)),
            IpAddr::V6(six) => prefixes
                .clone()
                .find(|prefix| prefix.contains(six))
                .map(|prefix| format!("in `pool6` {}/{}", prefix.address(), prefix.len())),
        };
        let own = [config.plan.own4.map(IpAddr::from), own6.map(IpAddr::from)];
        let taken = taken.or_else(|| own.contains(&Some(node.tunnel)).then(|| "an own address".to_owned()));
        if let Some(taken) = taken {
            problems.error(span.clone(), format!("`tunnel`: {} is {taken}", node.tunnel), instead);
        }
    }
}

/// Returns the number of shards. `None` if it is impossible.
fn shards(config: &Config, raw: &RawCluster, problems: &mut Problems) -> Option<u16> {
    for pool in pools(config) {
        if matches!(pool.allocation, Allocation::Deterministic(_)) {
            let what = format!(
                "pool \"{}\": deterministic allocation selects addresses by subscriber, and so do the shards",
                pool.name
            );
            problems.error(raw.span.clone(), what, "write `allocation = \"blocks\"` in [[pool]]");
        }
    }
    let counts = pools(config).map(|pool| (addresses(pool), &pool.name));
    let (addresses, name) = counts.min()?;
    let default = || 1 << SHARDS.min(addresses.max(1)).ilog2();
    let shards = raw.shards.unwrap_or_else(default);
    let workers = config.workers();
    if u64::from(shards) > addresses {
        let what = format!(
            "`shards` is {shards}, and the pool \"{name}\" has {addresses} address{}: each shard needs one",
            if addresses == 1 { "" } else { "es" }
        );
        let instead = format!("write `shards = {}` or less, or add addresses", default());
        problems.error(raw.shards_span.clone(), what, instead);
        return None;
    }
    if (shards as usize) < workers {
        let what = format!("{shards} shards for {workers} workers: each worker needs one");
        let instead = format!("write `shards = {}` or more, or fewer `queues`", workers.next_power_of_two());
        problems.error(raw.shards_span.clone(), what, instead);
        return None;
    }
    u16::try_from(shards).ok()
}

/// Number of different addresses of a pool.
fn addresses(pool: &Pool4) -> u64 {
    let mut ranges: Vec<(u32, u32)> = pool.ranges.iter().map(|r| (r.first.into(), r.last.into())).collect();
    ranges.sort_unstable();
    let (mut count, mut next) = (0, 0);
    for (first, last) in ranges {
        let (first, end) = (u64::from(first).max(next), u64::from(last) + 1);
        count += end.saturating_sub(first);
        next = next.max(end);
    }
    count
}
