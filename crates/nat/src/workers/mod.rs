//! Several workers for one translator: what each of them has, and whose a packet is.
//!
//! Workers share nothing, so that none waits for another. Each has public addresses of its own, and the
//! subscribers that a keyed hash gives it; their ports come from its addresses alone. So whoever receives a packet
//! can tell, by its first bytes, the one worker that has its session:
//!
//! ```text
//!   from inside     hash(instance, subscriber prefix of the source)        -> worker
//!   from outside    public address it is sent to                           -> worker
//!   ICMP errors from inside: by the packet that they quote; routers send them
//!   anything else   needs no state: whoever has it
//! ```
//! A hairpin between two workers' subscribers leaves the first as any packet to a remote host, and comes to the
//! second as from outside. A static binding pins its subscriber to the worker of its public address.

mod addresses;
mod steering;

use crate::base::build_error::BuildError;
use crate::base::plan::{Allocation, Limits, Plan, StaticBinding};
use crate::lifecycle::reconfigure::Refused;
use crate::tables::subscriber::SubscriberKey;
use addresses::Addresses;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

pub use steering::Steering;

/// At most so many workers share a translator.
pub const WORKERS_MAX: usize = 256;

/// First and last of public addresses in a row, and the number of the worker that has them.
pub type Dealt = (Ipv4Addr, Ipv4Addr, u16);

/// A plan for each worker, and how packets find them.
pub struct Shares {
    /// What each worker's engine is built from: the first one's by [`Nat::new`](crate::Nat::new), the others as its
    /// [`sibling`](crate::Nat::sibling)s, with whom it shares the mappings that their plans leave out.
    pub plans: Vec<Plan>,
    /// Steering of packets.
    pub steering: Steering,
    /// By worker, subscribers that it had by the plan before, and that another one has now; in order.
    pub moved: Vec<Vec<SubscriberKey>>,
}

impl Shares {
    /// `plan`, shared among `workers`; `seed` keys the hash of subscribers and must not be guessable.
    ///
    /// Tables are shared out evenly, with an eighth more for each worker, as hashes do not fall evenly.
    ///
    /// # Errors
    /// If a pool has fewer addresses than there are workers, or is deterministic; where one subscriber's static
    /// bindings cannot all be one worker's.
    pub fn new(plan: &Plan, workers: usize, seed: [u64; 4]) -> Result<Shares, BuildError> {
        if !(1..=WORKERS_MAX).contains(&workers) {
            return Err(BuildError(format!("{workers} workers: 1 to {WORKERS_MAX} can share a translator")));
        }
        if workers > 1 {
            check_pools(plan, workers)?;
        }
        let mut addresses = Addresses::new(plan, workers)?;
        let pins = steering::pins(plan, &mut addresses, None)?;
        let steering = Steering::new(plan, workers, addresses, pins, seed)?;
        Self::of(plan, steering, Vec::new())
    }

    /// As [`new`](Self::new), by the `seed` and with the addresses that as many workers had in another process: an address
    /// that stays is its worker's, as in [`after`](Self::after), so that sessions find their workers again. Where that
    /// cannot be, all are dealt out anew.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn as_before(
        plan: &Plan,
        workers: usize,
        seed: [u64; 4],
        dealt: &[Dealt],
    ) -> Result<Shares, BuildError> {
        if dealt.is_empty() {
            return Self::new(plan, workers, seed);
        }
        let addresses = Addresses::as_dealt(dealt, workers);
        let before = Steering::new(plan, workers, addresses, Default::default(), seed)?;
        match Self::after(&before, plan) {
            Ok(shares) => Ok(Shares { moved: Vec::new(), ..shares }),
            Err(_) => Self::new(plan, workers, seed),
        }
    }

    /// `plan`, shared among workers that run by `running`. Who has a session keeps its worker, and a worker its
    /// addresses; new ones go to those who have the fewest. Only a subscriber that static bindings bind elsewhere moves.
    ///
    /// # Errors
    /// What workers that run cannot do: where one would have no address of a pool, or a subscriber's bindings would be
    /// two workers'.
    pub fn after(running: &Steering, plan: &Plan) -> Result<Shares, Refused> {
        let restart = |error: BuildError| Refused::Restart(vec![error.0]);
        if running.workers() > 1 {
            check_pools(plan, running.workers()).map_err(restart)?;
        }
        let steering = running.changed_to(plan).map_err(restart)?;
        let moved = running.moved_to(&steering);
        Self::of(plan, steering, moved).map_err(restart)
    }

    fn of(plan: &Plan, steering: Steering, moved: Vec<Vec<SubscriberKey>>) -> Result<Shares, BuildError> {
        let workers = steering.workers();
        // The first engine's mappings are the others' too, and may be many.
        let mut rest = plan.clone();
        rest.siit.iter_mut().for_each(|siit| siit.eamt = Vec::new());
        let whole = |worker| if worker == 0 { plan } else { &rest };
        let plans = (0..workers).map(|worker| share(whole(worker), worker, workers, steering.addresses()));
        let plans = plans.collect::<Result<Vec<_>, _>>()?;
        Ok(Shares { plans, steering, moved })
    }
}

fn check_pools(plan: &Plan, workers: usize) -> Result<(), BuildError> {
    for pool in plan.pools_of_instances().filter_map(|pool| plan.pools.get(pool)) {
        if matches!(pool.allocation, Allocation::Deterministic(_)) {
            return Err(BuildError(format!(
                "pool {:?}: deterministic ports belong to one worker, not {workers}: a formula chooses their addresses",
                pool.name
            )));
        }
    }
    Ok(())
}

/// A worker's share of a plan.
fn share(plan: &Plan, worker: usize, workers: usize, addresses: &Addresses) -> Result<Plan, BuildError> {
    let mut own = plan.clone();
    for number in plan.pools_of_instances() {
        let (Some(pool), Some(whole)) = (own.pools.get_mut(number), plan.pools.get(number)) else { continue };
        pool.ranges = whole.ranges.iter().flat_map(|range| addresses.of_worker(range, worker)).collect();
        if pool.ranges.is_empty() {
            return Err(BuildError(format!(
                "pool {:?}: worker {worker} of {workers} has no address of it: static bindings pin all of its \
                 addresses to others",
                pool.name
            )));
        }
    }
    if workers > 1 {
        let pools = plan.pools_of_instances().filter_map(|number| plan.pools.get(number));
        own.pooled = pools.flat_map(|pool| &pool.ranges).map(|range| (range.first, range.last)).collect();
    }
    let mine = |b: &StaticBinding| addresses.owner(b.outside.0) == Some(worker);
    own.nat64.iter_mut().for_each(|nat| nat.static_bindings.retain(mine));
    own.nat44.iter_mut().for_each(|nat| nat.static_bindings.retain(mine));
    own.limits = share_of_limits(&plan.limits, workers as u32);
    own.icmp.rate = plan.icmp.rate.div_ceil(workers as u32);
    Ok(own)
}

fn share_of_limits(all: &Limits, workers: u32) -> Limits {
    let part = |n: u32| match (workers, n.div_ceil(workers)) {
        (1, _) => n,
        (_, part) => part.saturating_add(part / 8).min(n),
    };
    Limits {
        sessions_max: part(all.sessions_max),
        subscribers_max: part(all.subscribers_max),
        syn_store_max: part(all.syn_store_max),
        path_mtus_max: part(all.path_mtus_max),
        fragment_entries_max: part(all.fragment_entries_max),
        fragment_bytes_max: part(all.fragment_bytes_max),
        ..*all
    }
}

#[cfg(test)]
mod tests;
