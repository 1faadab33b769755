//! Consistency of the pair with pools, instances and fast paths.

use crate::config::Config;
use crate::keys::PairMode;
use crate::problem::Problems;
use crate::sections::peer::Peer;
use std::ops::Range;

/// Checks the section. `None` if it has no effect.
pub(super) fn check(
    config: &Config,
    peer: Peer,
    span: &Range<usize>,
    problems: &mut Problems,
) -> Option<Peer> {
    if config.offload.is_some() {
        let what = "[peer] and [[offload]]: a switch goes on without its daemon for an unlimited time, so \
                    the other box could never use its ports";
        problems.error(span.clone(), what, "remove one of the two sections");
    }
    if !config.plan.is_stateful() {
        let what = "[peer] has no effect: stateless instances have no sessions";
        problems.warn(span.clone(), what, "remove the section");
        return None;
    }
    check_overload(config, "[peer]", span, problems);
    let needed = 2 * config.workers() as u64;
    for pool in config.plan.pools.iter().filter(|_| peer.mode == PairMode::ActiveActive) {
        let ranges = pool.ranges.iter();
        let addresses: u64 = ranges.map(|r| u64::from(u32::from(r.last) - u32::from(r.first)) + 1).sum();
        if addresses < needed {
            let what = format!(
                "pool \"{}\" has fewer than {needed} addresses: in mode \"active-active\", each worker of \
                 each box needs one",
                pool.name
            );
            problems.error(span.clone(), what, "add addresses, or write `mode = \"active-standby\"`");
        }
    }
    Some(peer)
}

/// Refuses pools whose flows share ports: the other boxes do not get to know these flows, and would assign
/// their ports to other subscribers.
pub(super) fn check_overload(config: &Config, section: &str, span: &Range<usize>, problems: &mut Problems) {
    for pool in config.plan.pools.iter().filter(|pool| !pool.overload.is_empty()) {
        let what = format!(
            "{section} and `overload` in pool \"{}\": flows that share a port are not told to other boxes, \
             which would assign the port to another subscriber",
            pool.name
        );
        problems.error(span.clone(), what, "remove `overload` from the pool");
    }
}
