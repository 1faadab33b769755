//! Stateless instances (SIIT) for the kernel, and their packets for the engine's counters.

use gatun_io_fastpath::{
    Counters, FastPathError, Mapping, Network, Reason, Stateless, StatelessPlan, Table, Traffic, Ways,
};
use gatun_nat::Plan;
use gatun_nat::counters::{self, Count};
use gatun_nat::plan::{Net4, Net6, Siit};
use gatun_worker::offload::CreditInstances;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Stateless instances of a plan. `excluded` are those that stay out of the kernel, by number.
fn of_plan(plan: &Plan, excluded: &[u8]) -> StatelessPlan {
    let (left4, left6) = plan.kept_from_siit();
    let (left4, left6) = (left4.iter().map(four).collect(), left6.iter().map(six).collect());
    let numbered = (0..=u8::MAX).zip(&plan.siit);
    let instances = numbered.map(|(number, siit)| instance(plan, siit, excluded.contains(&number))).collect();
    StatelessPlan { instances, left4, left6 }
}

fn instance(plan: &Plan, siit: &Siit, is_excluded: bool) -> Stateless {
    let ways = match plan.is_only_from_ipv6(siit) {
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
pub(super) fn totals(table: &Table, plan: &Plan) -> CreditInstances {
    let stateful = (0..=u8::MAX).take(plan.nat64.len() + plan.nat44.len());
    let stateless = || (0..=u8::MAX).take(plan.siit.len());
    // At the device, and at network interfaces.
    let of_stateful = stateful.map(|n| [table.counters(Some(n)), table.xdp_counters(Some(n))]);
    let of_stateless = stateless().map(|n| [table.stateless_counters(n), table.xdp_stateless_counters(n)]);
    let drops = |counters: [Result<Counters, FastPathError>; 2]| {
        counters.map(|counters| counters.unwrap_or_default().of(Reason::Dropped)).iter().sum()
    };
    let count = |of: Traffic| Count { packets: of.packets, bytes: of.bytes };
    let translated = |n| {
        let traffic = table.stateless_traffic(n).unwrap_or_default();
        counters::Traffic { outbound: count(traffic.from_ipv6), inbound: count(traffic.from_ipv4) }
    };
    CreditInstances {
        stateless: stateless().map(translated).collect(),
        drops: of_stateful.chain(of_stateless).map(drops).collect(),
    }
}
