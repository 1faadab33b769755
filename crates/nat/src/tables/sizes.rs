//! Sizes of the tables that a plan asks for, and what else of it decides how they are made.

use crate::base::plan::{Filtering, Plan};

/// Static bindings that may come while an engine runs, beside so many records.
fn room_for_statics(records_max: u32) -> u32 {
    (records_max / 4).clamp(256, 65_536)
}

/// Records that sessions and static bindings need.
pub(crate) fn records_max(plan: &Plan) -> u32 {
    let of64 = plan.nat64.iter().map(|n| n.static_bindings.len());
    let statics: usize = of64.chain(plan.nat44.iter().map(|n| n.static_bindings.len())).sum();
    let sessions_max = if plan.is_stateful() { plan.limits.sessions_max } else { 0 };
    sessions_max.saturating_add(statics as u32)
}

/// How many records a table has: with number zero's, and those of static bindings yet to come.
pub(crate) fn record_room(plan: &Plan) -> usize {
    let records_max = records_max(plan);
    let used = if plan.is_stateful() { records_max.saturating_add(room_for_statics(records_max)) } else { 0 };
    used as usize + 1
}

/// Whether sessions are looked for by their remote address too.
pub(crate) fn filters_by_address(plan: &Plan) -> bool {
    let of64 = plan.nat64.iter().map(|n| n.filtering);
    let mut all = of64.chain(plan.nat44.iter().map(|n| n.filtering));
    all.any(|filtering| filtering == Filtering::AddressDependent)
}

/// Whether what is given back to a pool is held down: not where its instances filter by address (RFC 6888
/// REQ-8 C).
pub(crate) fn holds(plan: &Plan, pool: usize) -> bool {
    let of64 = plan.nat64.iter().map(|n| (n.pool, n.filtering));
    let mut users = of64.chain(plan.nat44.iter().map(|n| (n.pool, n.filtering)));
    users.any(|user| user == (pool, Filtering::EndpointIndependent))
}
