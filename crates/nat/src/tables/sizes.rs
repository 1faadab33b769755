//! Sizes of the tables for a plan, and other choices that depend on it.

use crate::base::plan::{Filtering, Plan};

/// Number of static bindings that can be added while an engine runs, in addition to this many records.
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

/// Number of records in a table, including record zero and those of static bindings added later.
pub(crate) fn record_room(plan: &Plan) -> usize {
    let records_max = records_max(plan);
    let used = if plan.is_stateful() { records_max.saturating_add(room_for_statics(records_max)) } else { 0 };
    used as usize + 1
}

/// Returns whether sessions are also found by their remote address.
pub(crate) fn filters_by_address(plan: &Plan) -> bool {
    let of64 = plan.nat64.iter().map(|n| n.filtering);
    let mut all = of64.chain(plan.nat44.iter().map(|n| n.filtering));
    all.any(|filtering| filtering == Filtering::AddressDependent)
}

/// Returns whether returned ports and blocks of a pool are held down. They are not if its instances filter by
/// address (RFC 6888 REQ-8 C).
pub(crate) fn holds(plan: &Plan, pool: usize) -> bool {
    let of64 = plan.nat64.iter().map(|n| (n.pool, n.filtering));
    let mut users = of64.chain(plan.nat44.iter().map(|n| (n.pool, n.filtering)));
    users.any(|user| user == (pool, Filtering::EndpointIndependent))
}
