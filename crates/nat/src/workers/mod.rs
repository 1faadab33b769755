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

/// Maximum number of workers of a translator.
pub const WORKERS_MAX: usize = 256;

/// First and last of consecutive public addresses, and the number of their worker.
pub type AddressShare = (Ipv4Addr, Ipv4Addr, u16);

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
    /// # Errors
    /// Returns an error if a pool is deterministic or has fewer addresses than there are workers, or if the
    /// static bindings of one subscriber need several workers.
    pub fn new(plan: &Plan, workers: usize, seed: [u64; 4]) -> Result<Shares, BuildError> {
        if !(1..=WORKERS_MAX).contains(&workers) {
            return Err(BuildError(format!("{workers} workers: expected 1 to {WORKERS_MAX}")));
        }
        if workers > 1 {
            check_pools(plan, workers)?;
        }
        let mut addresses = Addresses::new(plan, workers)?;
        let pins = steering::pins(plan, &mut addresses, None)?;
        let steering = Steering::new(plan, workers, addresses, pins, seed)?;
        Self::of(plan, steering, Vec::new())
    }

    /// Same as [`new`](Self::new), with the `seed` and the addresses of as many workers of another process.
    /// An address that stays keeps its worker, as in [`after`](Self::after), so that sessions find their
    /// workers again. If that is impossible, all addresses are distributed again.
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
        let addresses = Addresses::as_before(address_shares, workers);
        let before = Steering::new(plan, workers, addresses, Default::default(), seed)?;
        match Self::after(&before, plan) {
            Ok(shares) => Ok(Shares { moved: Vec::new(), ..shares }),
            Err(_) => Self::new(plan, workers, seed),
        }
    }

    /// Shares `plan` among workers that currently run with `running`. Sessions keep their worker, and workers
    /// keep their addresses. New addresses go to the workers with the fewest. A subscriber moves only if a
    /// static binding pins it to another worker.
    ///
    /// # Errors
    /// Returns the changes that need a restart: a worker would have no address of a pool, or the bindings of
    /// a subscriber would be on two workers.
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
        // The mappings of the first engine are shared with the others, and may be many.
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
                "pool {:?}: deterministic allocation needs a single worker, not {workers}: use one queue",
                pool.name
            )));
        }
    }
    Ok(())
}

/// Returns a worker's share of a plan.
fn share(plan: &Plan, worker: usize, workers: usize, addresses: &Addresses) -> Result<Plan, BuildError> {
    let mut own = plan.clone();
    for number in plan.pools_of_instances() {
        let (Some(pool), Some(whole)) = (own.pools.get_mut(number), plan.pools.get(number)) else { continue };
        pool.ranges = whole.ranges.iter().flat_map(|range| addresses.of_worker(range, worker)).collect();
        if pool.ranges.is_empty() {
            return Err(BuildError(format!(
                "pool {:?}: worker {worker} of {workers} has no address: static bindings pin all \
                 addresses to other workers",
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
