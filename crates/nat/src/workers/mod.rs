//! Several workers for one translator: the state of each, and the worker of a packet.
//!
//! Workers share nothing, so none waits for another. Each has public addresses of its own, and the
//! subscribers that a keyed hash assigns to it. The subscribers' ports come from its addresses only. So the
//! first bytes of a packet determine the one worker that has its session:
//!
//! ```text
//!   from inside     hash(instance, subscriber prefix of the source)        -> worker
//!   from outside    public address it is sent to                           -> worker
//!   ICMP errors from inside: by the packet that they quote, because routers send them
//!   anything else   needs no state: any worker
//! ```
//! A hairpin between subscribers of two workers leaves the first worker as a packet to a remote host, and
//! arrives at the second as a packet from outside. A static binding pins its subscriber to the worker of its
//! public address.

mod steering;

use crate::base::build_error::BuildError;
use crate::base::plan::sharding::Parts;
use crate::base::plan::{Allocation, Limits, Plan, Pool4, StaticBinding};
use crate::base::shards::SHARDS_MAX;
use crate::lifecycle::reconfigure::Refused;
use crate::tables::subscriber::SubscriberKey;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

pub use crate::base::plan::sharding::{AddressShare, Sharding};
pub use steering::Steering;

/// Maximum number of workers of a translator.
pub const WORKERS_MAX: usize = 256;

/// Plan of each worker, and the steering of packets to workers.
pub struct Shares {
    /// Plans of the workers' engines. The first engine is built by [`Nat::new`](crate::Nat::new), the others
    /// as its [`sibling`](crate::Nat::sibling)s. These share its mappings, which their plans leave out.
    pub plans: Vec<Plan>,
    /// Steering of packets.
    pub steering: Steering,
    /// Indexed by worker: subscribers that it had under the previous plan and that another worker has now,
    /// in order.
    pub moved: Vec<Vec<SubscriberKey>>,
}

impl Shares {
    /// Shares `plan` among `workers`. `seed` keys the hash of subscribers and must not be guessable.
    ///
    /// Tables are divided evenly, with an eighth more for each worker, because hashes are not exactly even.
    ///
    /// A node of a cluster shares the shards of the plan. They divide subscribers and addresses alike at all
    /// nodes, which have the same plan and the same `seed`, whatever the number of their workers.
    ///
    /// # Errors
    /// Returns an error if a pool is deterministic or has fewer addresses than there are workers or shards,
    /// or if the static bindings of one subscriber need several of them.
    pub fn new(plan: &Plan, workers: usize, seed: [u64; 4]) -> Result<Shares, BuildError> {
        let parts = parts(plan, workers)?;
        check_pools(plan, parts)?;
        let steering = Steering::new(plan, workers, Sharding::new(plan, parts, seed)?)?;
        Self::of(plan, steering, Vec::new())
    }

    /// Same as [`new`](Self::new), with the `seed` and the addresses of as many workers of another process.
    /// An address that stays keeps its worker, as in [`after`](Self::after), so that sessions find their
    /// workers again. If that is impossible, all addresses are distributed again.
    ///
    /// In a cluster, the addresses are those of the shards, at this node or at another one, and the number of
    /// workers does not matter. They are never distributed again, because other nodes have them.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub fn as_before(
        plan: &Plan,
        workers: usize,
        seed: [u64; 4],
        address_shares: &[AddressShare],
    ) -> Result<Shares, BuildError> {
        if address_shares.is_empty() {
            return Self::new(plan, workers, seed);
        }
        let parts = parts(plan, workers)?;
        let before = Steering::new(plan, workers, Sharding::as_before(parts, seed, address_shares))?;
        match (Self::changed(&before, plan), parts) {
            (Ok(shares), _) => Ok(Shares { moved: Vec::new(), ..shares }),
            (Err(_), Parts::Workers(_)) => Self::new(plan, workers, seed),
            (Err(why), Parts::Shards(_)) => Err(why),
        }
    }

    /// Shares `plan` among workers that currently run with `running`. Sessions keep their worker, and workers
    /// keep their addresses. New addresses go to the workers with the fewest. A subscriber moves only if a
    /// static binding pins it to another worker. In a cluster, the same holds for its shards.
    ///
    /// # Errors
    /// Returns the changes that need a restart: a worker would have no address of a pool, or the bindings of
    /// a subscriber would be on two workers.
    pub fn after(running: &Steering, plan: &Plan) -> Result<Shares, Refused> {
        Self::changed(running, plan).map_err(|error| Refused::Restart(vec![error.0]))
    }

    fn changed(running: &Steering, plan: &Plan) -> Result<Shares, BuildError> {
        let parts = parts(plan, running.workers())?;
        if parts != running.sharding().parts {
            return Err(BuildError("the number of shards changes".into()));
        }
        check_pools(plan, parts)?;
        let steering = running.changed_to(plan)?;
        let moved = running.moved_to(&steering);
        Self::of(plan, steering, moved)
    }

    fn of(plan: &Plan, steering: Steering, moved: Vec<Vec<SubscriberKey>>) -> Result<Shares, BuildError> {
        // The mappings of the first engine are shared with the others, and may be many.
        let mut rest = plan.clone();
        rest.siit.iter_mut().for_each(|siit| siit.eamt = Vec::new());
        let whole = |worker| if worker == 0 { plan } else { &rest };
        let plans = (0..steering.workers()).map(|worker| share(whole(worker), worker, &steering));
        let plans = plans.collect::<Result<Vec<_>, _>>()?;
        Ok(Shares { plans, steering, moved })
    }
}

/// Returns what a plan is divided among.
///
/// # Errors
/// The number of shards is no power of two or too large, or a worker would have none.
fn parts(plan: &Plan, workers: usize) -> Result<Parts, BuildError> {
    let parts = match plan.shards {
        None => Parts::Workers(u16::try_from(workers).unwrap_or(u16::MAX)),
        Some(shards) if shards.is_power_of_two() && usize::from(shards) <= SHARDS_MAX => {
            Parts::Shards(shards)
        }
        Some(shards) => {
            let why = format!("{shards} shards: expected a power of two from 1 to {SHARDS_MAX}");
            return Err(BuildError(why));
        }
    };
    let max = WORKERS_MAX.min(parts.count());
    if !(1..=max).contains(&workers) {
        let max = if plan.shards.is_some() { max } else { WORKERS_MAX };
        return Err(BuildError(format!("{workers} workers: expected 1 to {max}")));
    }
    Ok(parts)
}

fn check_pools(plan: &Plan, parts: Parts) -> Result<(), BuildError> {
    let pools = plan.pools_of_instances().filter_map(|pool| plan.pools.get(pool));
    let deterministic = |pool: &&Pool4| matches!(pool.allocation, Allocation::Deterministic(_));
    let Some(pool) = pools.into_iter().find(deterministic) else { return Ok(()) };
    match parts {
        Parts::Workers(1) => Ok(()),
        Parts::Workers(workers) => Err(BuildError(format!(
            "pool {:?}: deterministic allocation needs a single worker, not {workers}: use one queue",
            pool.name
        ))),
        Parts::Shards(_) => Err(BuildError(format!(
            "pool {:?}: deterministic allocation selects addresses by subscriber, and so do the shards of a \
             cluster: use port blocks",
            pool.name
        ))),
    }
}

/// Returns a worker's share of a plan.
fn share(plan: &Plan, worker: usize, steering: &Steering) -> Result<Plan, BuildError> {
    let (workers, sharding) = (steering.workers(), steering.sharding());
    let mut own = plan.clone();
    for number in plan.pools_of_instances() {
        let (Some(pool), Some(whole)) = (own.pools.get_mut(number), plan.pools.get(number)) else { continue };
        let of_part = |has: &dyn Fn(usize) -> bool| -> Vec<_> {
            whole.ranges.iter().flat_map(|range| sharding.cut(range, has)).collect()
        };
        pool.ranges = of_part(&|part| steering.worker_of(part) == worker);
        let is_mine = |part: &usize| steering.worker_of(*part) == worker;
        if let Some(part) = (0..sharding.parts.count())
            .filter(is_mine)
            .find(|part| of_part(&|other| other == *part).is_empty())
        {
            return Err(BuildError(format!(
                "pool {:?}: {} {part} of {} has no address: static bindings pin all addresses to other {}s",
                pool.name,
                sharding.parts.name(),
                sharding.parts.count(),
                sharding.parts.name(),
            )));
        }
    }
    if workers > 1 {
        let pools = plan.pools_of_instances().filter_map(|number| plan.pools.get(number));
        own.pooled = pools.flat_map(|pool| &pool.ranges).map(|range| (range.first, range.last)).collect();
    }
    let mine = |b: &StaticBinding| steering.owner_of_address(b.outside.0) == Some(worker);
    own.nat64.iter_mut().for_each(|nat| nat.static_bindings.retain(mine));
    own.nat44.iter_mut().for_each(|nat| nat.static_bindings.retain(mine));
    own.limits = share_of_limits(&plan.limits, workers as u32);
    own.icmp.rate = plan.icmp.rate.div_ceil(workers as u32);
    own.sharding = steering.is_sharded().then(|| Arc::clone(sharding));
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
