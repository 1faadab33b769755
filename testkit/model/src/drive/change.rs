//! Random changes of a plan, among those that a running engine accepts.

use super::realms;
use super::rng::Rng;
use super::universe::{
    add_static_bindings, exemptions, filterings_of, icmp, inbound_refresh, limits, overload, ranges,
    settings, sources, timeouts,
};
use gatun_nat::Plan;
use gatun_nat::plan::*;

/// A random plan after `plan`, for an engine that was made for `first`.
pub fn changed(first: &Plan, plan: &Plan, seed: u64) -> Plan {
    let r = &mut Rng::new(seed);
    let mut new = plan.clone();
    // A low number changes many parts of the plan, a high one few.
    let odds = r.of(&[2, 4, 12]);
    for n in 0..new.pools.len() {
        pool(r, odds, n, &mut new.pools[n]);
    }
    let filterings = filterings_of(first);
    for n in &mut new.nat64 {
        if r.one_in(odds) {
            (n.filtering, n.inbound_refresh) = (r.of(filterings), inbound_refresh(r, filterings));
            (n.external_tcp, n.icmp_queries) = (!r.one_in(4), !r.one_in(6));
        }
        if r.one_in(odds) {
            (n.wkp_non_global, n.rst_during_fin) = (r.one_in(3), r.one_in(2));
            n.settings = settings(r);
        }
        if r.one_in(odds) {
            n.timeouts = timeouts(r);
        }
        if r.one_in(odds) {
            n.sources = sources(r);
        }
    }
    for n in &mut new.nat44 {
        if r.one_in(odds) {
            (n.filtering, n.inbound_refresh) = (r.of(filterings), inbound_refresh(r, filterings));
            (n.external_tcp, n.icmp_queries) = (!r.one_in(4), !r.one_in(6));
        }
        if r.one_in(odds) {
            n.timeouts = timeouts(r);
            n.mtu = r.of(&[1500, 1280, 576]);
        }
        if r.one_in(odds) {
            n.exempt = exemptions(r);
        }
        if r.one_in(odds) {
            let len = r.of(&[24, 24, 29]);
            n.inside = n.inside.iter().filter_map(|net| Net4::new(net.addr, len)).collect();
        }
    }
    realms::keep_apart(&mut new);
    if r.one_in(odds) {
        new.limits = other_limits(r, first);
    }
    if r.one_in(odds) {
        new.icmp = icmp(r);
        new.events.threshold = r.of(&[10, 50, 80, 90, 100]);
    }
    if r.one_in(odds) {
        let of64 = new.nat64.iter_mut().map(|n| &mut n.static_bindings);
        of64.chain(new.nat44.iter_mut().map(|n| &mut n.static_bindings)).for_each(Vec::clear);
        add_static_bindings(r, &mut new);
    }
    new
}

/// The engine allocates tables once, so limits cannot exceed those it was made for.
fn other_limits(r: &mut Rng, first: &Plan) -> Limits {
    let (made_for, new) = (first.limits, limits(r));
    Limits {
        sessions_max: new.sessions_max.min(made_for.sessions_max),
        subscribers_max: new.subscribers_max.min(made_for.subscribers_max),
        syn_store_max: made_for.syn_store_max,
        fragment_entries_max: made_for.fragment_entries_max,
        fragment_bytes_max: made_for.fragment_bytes_max,
        ..new
    }
}

fn pool(r: &mut Rng, odds: u64, n: usize, pool: &mut Pool4) {
    if r.one_in(odds) {
        pool.pairing = r.of(&[Pairing::Soft, Pairing::Hard]);
        (pool.port_parity, pool.port_class) = (r.one_in(2), !r.one_in(4));
    }
    if r.one_in(odds) {
        pool.overload = overload(r);
    }
    if r.one_in(odds) {
        let ms = r.of(&[0, 1_000, 30_000, 120_000]);
        match &mut pool.allocation {
            Allocation::Random(hold) => *hold = HoldDown { ms, ports_max: r.of(&[1, 4, 40]) },
            Allocation::Blocks(blocks) | Allocation::Deterministic(Deterministic { blocks, .. }) => {
                blocks.per_subscriber = r.of(&[1, 1, 2, 4]);
                blocks.linger_ms = r.of(&[0, 500, 10_000, 120_000]);
                blocks.hold = HoldDown { ms, ports_max: r.of(&[0, 32, 64, 1_000]) };
            }
        }
    }
    // The model does not cover changes of a formula's pool.
    if r.one_in(odds) && !matches!(pool.allocation, Allocation::Deterministic(_)) {
        pool.ranges = ranges(r, n, &pool.allocation);
    }
}
