//! Stateless instances (SIIT) for the kernel, and their packets for the engine's counters.

use gatun_io_fastpath::{
    Counters, FastPathError, Mapping, Network, Reason, Stateless, StatelessPlan, StatelessTraffic, Table,
    Traffic, Ways,
};
use gatun_nat::Plan;
use gatun_nat::counters::{self, Count};
use gatun_nat::plan::{Hairpin, Net4, Net6, PoolRange, Siit};
use gatun_worker::offload::CreditInstances;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Stateless instances of a plan. `excluded` are those that stay out of the kernel, by number.
fn of_plan(plan: &Plan, excluded: &[u8]) -> StatelessPlan {
    let host4 = |address| Network { address, len: 32 };
    let own6_in_ipv4 = plan.own6.into_iter().flat_map(|own6| {
        plan.siit.iter().flat_map(|siit| &siit.pool6).filter_map(move |prefix| prefix.extract(own6))
    });
    let mut left4: Vec<_> = plan.own4.into_iter().chain(own6_in_ipv4).map(host4).collect();
    left4.extend(plan.pools.iter().flat_map(|pool| &pool.ranges).flat_map(networks));
    left4.extend(plan.nat44.iter().flat_map(|nat44| &nat44.inside).map(four));
    left4.extend(plan.siit.iter().flat_map(|siit| &siit.denylist4).map(four));
    let mut left6: Vec<_> = plan.own6.into_iter().map(|address| Network { address, len: 128 }).collect();
    left6.extend(plan.siit.iter().flat_map(|siit| &siit.denylist6).map(six));
    let prefixes = plan.nat64.iter().flat_map(|nat64| &nat64.pool6);
    left6.extend(prefixes.map(|prefix| Network { address: prefix.address(), len: prefix.len() }));
    let numbered = (0..=u8::MAX).zip(&plan.siit);
    let instances = numbered.map(|(number, siit)| instance(plan, siit, excluded.contains(&number))).collect();
    StatelessPlan { instances, left4, left6 }
}

fn instance(plan: &Plan, siit: &Siit, is_excluded: bool) -> Stateless {
    let own4 = |own: Ipv4Addr| siit.eamt.iter().any(|eam| eam.v4.contains(own));
    let own6 = |own: Ipv6Addr| siit.eamt.iter().any(|eam| eam.v6.contains(own));
    let is_mapped = plan.own4.is_some_and(own4) || plan.own6.is_some_and(own6);
    let ways = match siit.hairpin == Hairpin::Simple || is_mapped {
        _ if is_excluded => Ways::None,
        true => Ways::FromIpv6,
        false => Ways::Both,
    };
    Stateless {
        ways,
        settings: siit.settings,
        pool6: siit.pool6.clone(),
        mappings: siit.eamt.iter().map(|eam| Mapping { v4: four(&eam.v4), v6: six(&eam.v6) }).collect(),
        well_known_non_global: siit.wkp_non_global,
    }
}

fn four(net: &Net4) -> Network<Ipv4Addr> {
    Network { address: net.addr, len: net.len }
}

fn six(net: &Net6) -> Network<Ipv6Addr> {
    Network { address: net.addr, len: net.len }
}

/// Networks that together have the addresses of a range.
fn networks(range: &PoolRange) -> Vec<Network<Ipv4Addr>> {
    let (mut first, last) = (u64::from(u32::from(range.first)), u64::from(u32::from(range.last)));
    let mut all = Vec::new();
    while first <= last {
        let fits = (last - first + 1).ilog2();
        let host_bits = if first == 0 { fits } else { fits.min(first.trailing_zeros()) };
        all.push(Network { address: Ipv4Addr::from(first as u32), len: 32 - host_bits as u8 });
        first += 1 << host_bits;
    }
    all
}

/// Gives the kernel the stateless instances of a plan, in place of its former ones.
///
/// # Errors
/// Returns an error if there are too many mappings, or if the kernel refuses. The engine has all stateless
/// packets then.
pub(super) fn set(table: &mut Table, plan: &Plan, excluded: &[u8]) -> Result<(), FastPathError> {
    table.set_stateless(&of_plan(plan, excluded)).map(drop)
}

/// Takes all stateless instances from the kernel.
pub(super) fn clear(table: &mut Table) {
    // If the kernel refuses, the program has none, either.
    let _ = table.set_stateless(&StatelessPlan::default());
}

/// Packets that the kernel has translated for stateless instances, and dropped for all.
#[derive(Clone, Default)]
pub(super) struct Credits {
    /// Totals of each stateless instance when they were last read.
    translated: Vec<StatelessTraffic>,
    /// Total of each instance.
    dropped: Vec<u64>,
}

impl Credits {
    /// Begins with what the table has counted so far.
    pub(super) fn new(table: &Table, plan: &Plan) -> Credits {
        let mut credits = Credits::default();
        credits.take(table, plan);
        credits
    }

    /// Packets since the last call, if there are any.
    pub(super) fn take(&mut self, table: &Table, plan: &Plan) -> Option<CreditInstances> {
        let stateful = (0..=u8::MAX).take(plan.nat64.len() + plan.nat44.len());
        let stateless = || (0..=u8::MAX).take(plan.siit.len());
        // At the device, and at network interfaces.
        let of_stateful = stateful.map(|n| [table.counters(Some(n)), table.xdp_counters(Some(n))]);
        let of_stateless =
            stateless().map(|n| [table.stateless_counters(n), table.xdp_stateless_counters(n)]);
        let drops = |counters: [Result<Counters, FastPathError>; 2]| {
            counters.map(|counters| counters.unwrap_or_default().of(Reason::Dropped)).iter().sum()
        };
        let now = Credits {
            translated: stateless().map(|n| table.stateless_traffic(n).unwrap_or_default()).collect(),
            dropped: of_stateful.chain(of_stateless).map(drops).collect(),
        };
        let before = std::mem::replace(self, now);
        let more = self.since(&before);
        let has_any = more.drops.iter().any(|packets| *packets > 0)
            || more.stateless.iter().any(|traffic| traffic.total().packets > 0);
        has_any.then_some(more)
    }

    fn since(&self, before: &Credits) -> CreditInstances {
        let zero = StatelessTraffic::default();
        let translated = self.translated.iter().enumerate().map(|(n, now)| {
            let before = before.translated.get(n).unwrap_or(&zero);
            counters::Traffic {
                outbound: difference(&now.from_ipv6, &before.from_ipv6),
                inbound: difference(&now.from_ipv4, &before.from_ipv4),
            }
        });
        let dropped = self.dropped.iter().enumerate();
        let dropped = dropped.map(|(n, now)| now.saturating_sub(before.dropped.get(n).copied().unwrap_or(0)));
        CreditInstances { stateless: translated.collect(), drops: dropped.collect() }
    }
}

fn difference(now: &Traffic, before: &Traffic) -> Count {
    Count {
        packets: now.packets.saturating_sub(before.packets),
        bytes: now.bytes.saturating_sub(before.bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packets_since_the_last_call_are_credited() {
        let traffic = |packets| Traffic { packets, bytes: packets * 100 };
        let of = |packets| StatelessTraffic { from_ipv6: traffic(packets), from_ipv4: traffic(1) };
        let before = Credits { translated: vec![of(5)], dropped: vec![2, 0] };
        let now = Credits { translated: vec![of(9), of(3)], dropped: vec![2, 4, 1] };
        let more = now.since(&before);
        assert_eq!(more.drops, [0, 4, 1]);
        let outbound: Vec<_> = more.stateless.iter().map(|traffic| traffic.outbound.packets).collect();
        let inbound: Vec<_> = more.stateless.iter().map(|traffic| traffic.inbound.packets).collect();
        assert_eq!((outbound, inbound), (vec![4, 3], vec![0, 1]));
    }

    #[test]
    fn a_range_is_made_of_networks() {
        let of = |first: &str, last: &str| {
            let (first, last) = (first.parse().unwrap(), last.parse().unwrap());
            let range = PoolRange { first, last, ports: (1, 2), transports: [true; 3] };
            networks(&range).iter().map(|net| format!("{}/{}", net.address, net.len)).collect::<Vec<_>>()
        };
        assert_eq!(of("192.0.2.1", "192.0.2.1"), ["192.0.2.1/32"]);
        assert_eq!(
            of("192.0.2.1", "192.0.2.6"),
            ["192.0.2.1/32", "192.0.2.2/31", "192.0.2.4/31", "192.0.2.6/32"]
        );
        assert_eq!(of("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
    }
}
