//! Routes to the networks that a plan translates.

use crate::network::Network;
use gatun_nat::Plan;
use gatun_nat::plan::{Net4, Net6};
use std::net::Ipv4Addr;

/// See [`crate::Config::routes`]. Adjacent networks are joined: a million mappings of hosts in a few networks
/// give a few routes.
pub(crate) fn auto_routes(plan: &Plan) -> Vec<Network> {
    let prefixes = plan.nat64.iter().flat_map(|i| &i.pool6).chain(plan.siit.iter().flat_map(|i| &i.pool6));
    let own6 = plan.own6.map(|addr| Net6 { addr, len: 128 });
    let mut six: Vec<Net6> = prefixes.map(|p| Net6 { addr: p.address(), len: p.len() }).chain(own6).collect();
    six.sort_unstable();
    // In this order a network follows the one that contains it.
    six.dedup_by(|next, kept| kept.contains(next.addr));

    let of_pools = plan.pools.iter().flat_map(|pool| &pool.ranges).map(|r| (r.first, r.last));
    let of_mappings = plan.siit.iter().flat_map(|i| &i.eamt).map(|eam| range_of(eam.v4));
    let own4 = plan.own4.map(|addr| (addr, addr));
    let four = join_ranges(of_pools.chain(of_mappings).chain(own4).collect());
    let four = four.into_iter().flat_map(|(first, last)| Net4::covering(first, last));
    six.into_iter().map(Network::V6).chain(four.map(Network::V4)).collect()
}

/// See [`crate::Config::mapped_hosts`].
pub(crate) fn mapped_hosts(plan: &Plan) -> Vec<Net4> {
    let instances = plan.siit.iter().filter(|instance| !instance.pool6.is_empty());
    let ranges = join_ranges(instances.flat_map(|i| &i.eamt).map(|eam| range_of(eam.v4)).collect());
    ranges.into_iter().flat_map(|(first, last)| Net4::covering(first, last)).collect()
}

fn range_of(net: Net4) -> (Ipv4Addr, Ipv4Addr) {
    let hosts = u32::MAX.checked_shr(net.len.into()).unwrap_or(0);
    (net.addr, Ipv4Addr::from(u32::from(net.addr) | hosts))
}

/// Joins ranges of addresses into as few as possible, in order.
fn join_ranges(mut ranges: Vec<(Ipv4Addr, Ipv4Addr)>) -> Vec<(Ipv4Addr, Ipv4Addr)> {
    ranges.sort_unstable();
    ranges.dedup_by(|next, kept| {
        let joins = u64::from(u32::from(next.0)) <= u64::from(u32::from(kept.1)) + 1;
        if joins {
            kept.1 = kept.1.max(next.1);
        }
        joins
    });
    ranges
}
