//! Universes whose instances differ by port and source (decision 0051), with hosts of equal addresses.

use super::rng::Rng;
use gatun_nat::Plan;
use gatun_nat::plan::{Nat44, Nat64, Net4, Net6};
use gatun_wire::Prefix64;
use std::net::Ipv6Addr;

/// First prefix; its embedded 8.8.8.0/24 also lies in the second prefix, `NESTED`.
const OUTER: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2001, 0xdb8, 0x100, 0, 0, 0, 0, 0), 40);
const NESTED: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2001, 0xdb8, 0x108, 0x808, 0, 0, 0, 0), 64);

/// Numbers of NAT64 and of NAT44 instances.
pub(super) fn instances(r: &mut Rng) -> (u64, u64) {
    r.of(&[(2, 0), (3, 0), (0, 2), (0, 3), (1, 2), (2, 1), (2, 2), (3, 3)])
}

/// Realm of each instance of a kind.
fn realms(r: &mut Rng) -> [u8; 3] {
    r.of(&[[1, 2, 3], [1, 2, 3], [0, 1, 2], [0, 1, 2], [1, 1, 2], [0, 0, 1], [0, 0, 0]])
}

/// Gives instances realms, and most instances of different realms the same addresses.
pub(super) fn add(r: &mut Rng, plan: &mut Plan) {
    for (n, realm) in plan.nat44.iter_mut().zip(realms(r)) {
        n.realm = realm;
    }
    for (n, realm) in plan.nat64.iter_mut().zip(realms(r)) {
        n.realm = realm;
    }
    if let [first, others @ ..] = &mut plan.nat44[..] {
        for n in others.iter_mut().filter(|n| n.realm != first.realm) {
            if !r.one_in(4) {
                n.inside.clone_from(&first.inside);
            }
        }
    }
    if let [first, others @ ..] = &mut plan.nat64[..] {
        let nested = r.one_in(4);
        if nested {
            first.pool6 = prefix(OUTER);
        }
        for n in others {
            if nested && n.realm != first.realm {
                n.pool6 = prefix(NESTED);
            } else if !r.one_in(4) {
                n.pool6.clone_from(&first.pool6);
            }
        }
    }
    keep_apart(plan);
}

fn prefix((address, len): (Ipv6Addr, u8)) -> Vec<Prefix64> {
    Prefix64::new(address, len).into_iter().collect()
}

/// Removes what no configuration can have: exemptions of addresses in two realms, and sources that two
/// instances of one prefix both serve.
pub(super) fn keep_apart(plan: &mut Plan) {
    let all = plan.nat44.clone();
    for n in &mut plan.nat44 {
        if all.iter().any(|other| other.realm != n.realm && overlap(n, other)) {
            n.exempt.clear();
        }
    }
    let all = plan.nat64.clone();
    for (at, n) in plan.nat64.iter_mut().enumerate() {
        let is_rival = |a: &Nat64, b: &Nat64| {
            a.realm == b.realm && a.name != b.name && a.pool6.iter().any(|prefix| b.pool6.contains(prefix))
        };
        let rivals = |a: &Nat64| all.iter().any(|b| is_rival(a, b));
        let mut sharers = all.iter().enumerate().filter(|(_, a)| a.realm == n.realm && rivals(a));
        let Some(rank) = sharers.clone().position(|(other, _)| other == at) else { continue };
        // Each of three instances serves one subscriber. If only two share the prefix, the third subscriber
        // may be served by none.
        let also = (rank == 0 && sharers.nth(2).is_none() && n.sources.is_empty()).then_some(2);
        n.sources = [Some(rank as u16), also].into_iter().flatten().filter_map(subscriber).collect();
    }
}

fn overlap(a: &Nat44, b: &Nat44) -> bool {
    let meet = |a: &Net4, b: &Net4| a.contains(b.addr) || b.contains(a.addr);
    a.inside.iter().any(|a| b.inside.iter().any(|b| meet(a, b)))
}

/// A subscriber's network, by number.
fn subscriber(n: u16) -> Option<Net6> {
    Net6::new(Ipv6Addr::new(0x2001, 0xbeef, 0, n, 0, 0, 0, 0), 64)
}
