//! Steering: the worker and the shard of a packet, by its first bytes.

use super::AddressShare;
use crate::base::build_error::BuildError;
use crate::base::plan::Plan;
use crate::base::plan::sharding::{Parts, Sharding};
use crate::path::classify::flow;
use crate::path::rules::Rules;
use crate::tables::subscriber::SubscriberKey;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Steering of packets to workers. All workers have the same one.
pub struct Steering {
    workers: usize,
    /// Division among the workers or, in a cluster, among its shards.
    sharding: Arc<Sharding>,
    /// Instances of the whole plan, without mappings. The workers have the state.
    rules: Rules,
}

impl Steering {
    /// # Errors
    /// Returns an error if the plan has more instances or prefixes than numbers.
    pub(super) fn new(plan: &Plan, workers: usize, sharding: Sharding) -> Result<Self, BuildError> {
        let rules = Rules::new(plan, Arc::new([]), &[])?;
        Ok(Steering { workers, sharding: Arc::new(sharding), rules })
    }

    /// Returns the steering for another plan with the same number of workers. Subscribers keep their workers,
    /// except those that static bindings pin.
    ///
    /// # Errors
    /// Changes that need a restart.
    pub(super) fn changed_to(&self, plan: &Plan) -> Result<Self, BuildError> {
        Steering::new(plan, self.workers, self.sharding.changed_to(plan)?)
    }

    /// Returns, by worker, the subscribers that another worker or shard has under another plan.
    pub(super) fn moved_to(&self, new: &Steering) -> Vec<Vec<SubscriberKey>> {
        let mut moved = alloc::vec![Vec::new(); self.workers];
        for (subscriber, from) in self.sharding.moved_to(&new.sharding) {
            moved.get_mut(self.worker_of(from)).into_iter().for_each(|list| list.push(subscriber));
        }
        moved
    }

    /// Returns the distribution of public addresses among the workers or, in a cluster, among its shards, for
    /// [`Shares::as_before`](super::Shares::as_before).
    pub fn address_shares(&self) -> Vec<AddressShare> {
        self.sharding.address_shares()
    }

    /// Number of workers.
    pub(super) fn workers(&self) -> usize {
        self.workers
    }

    pub(super) fn sharding(&self) -> &Arc<Sharding> {
        &self.sharding
    }

    /// Returns whether the steering is that of a cluster's node.
    pub fn is_sharded(&self) -> bool {
        matches!(self.sharding.parts, Parts::Shards(_))
    }

    /// Number of shards: 1 without a cluster.
    pub fn shards(&self) -> usize {
        if self.is_sharded() { self.sharding.parts.count() } else { 1 }
    }

    /// Returns the worker of a part of the division: shard `n` of `shards` belongs to worker
    /// `n * workers / shards`.
    pub fn worker_of(&self, part: usize) -> usize {
        match self.sharding.parts {
            Parts::Workers(_) => part,
            Parts::Shards(shards) => part * self.workers / usize::from(shards),
        }
    }

    fn shard(&self, part: usize) -> u8 {
        if self.is_sharded() { part as u8 } else { 0 }
    }

    /// Returns the shard of a public address: 0 without a cluster. `None` if the address is in no pool.
    pub fn shard_of_address(&self, address: Ipv4Addr) -> Option<u8> {
        self.sharding.of_address(address).map(|part| self.shard(part))
    }

    /// Returns the runs of public addresses that a shard has; all, without a cluster.
    pub fn addresses_of_shard(&self, shard: u8) -> Vec<(Ipv4Addr, Ipv4Addr)> {
        let all = self.address_shares().into_iter();
        let mine = all.filter(|(_, _, part)| self.shard(usize::from(*part)) == shard);
        mine.map(|(first, last, _)| (first, last)).collect()
    }

    /// Returns the shard of an inside host: 0 without a cluster. `None` if its instance does not exist.
    pub fn shard_of_subscriber(&self, instance: u8, inside: Ipv6Addr) -> Option<u8> {
        let subscriber = self.rules.subscriber(instance, inside)?;
        Some(self.shard(self.sharding.of_subscriber(subscriber)))
    }

    /// Returns the worker or, in a cluster, the shard that a packet from a realm belongs to; `None` if it
    /// needs no state.
    #[inline]
    pub fn part_of(&self, packet: &[u8], realm: u8) -> Option<usize> {
        self.part_and_side(packet, realm).map(|(part, _)| part)
    }

    /// Same as [`part_of`](Self::part_of), with true for a packet from outside, to a public address.
    #[inline]
    pub fn part_and_side(&self, packet: &[u8], realm: u8) -> Option<(usize, bool)> {
        let owner = flow::owner(&self.rules, packet, realm)?;
        Some((owner.part(&self.sharding)?, owner.is_outside()))
    }

    /// Returns the worker that has to process a packet from a realm; `None` if any worker may.
    pub fn owner(&self, packet: &[u8], realm: u8) -> Option<usize> {
        Some(self.worker_of(self.part_of(packet, realm)?))
    }

    /// Returns the worker of a translated packet that is to a public address and so returns to the inside.
    #[inline]
    pub fn owner_after(&self, packet: &[u8]) -> Option<usize> {
        if packet.first()? >> 4 != 4 {
            return None;
        }
        self.owner_of_address(flow::destination4(packet)?)
    }

    /// Returns the shard of such a packet: 0 without a cluster.
    pub fn shard_after(&self, packet: &[u8]) -> Option<u8> {
        self.shard_of_address(flow::destination4(packet)?)
    }

    /// Returns the worker of an instance's inside host, if that worker also has the public address; `None`
    /// otherwise. In a cluster, both have to be in the same shard.
    pub fn owner_of_session(&self, instance: u8, inside: Ipv6Addr, outside: Ipv4Addr) -> Option<usize> {
        let part = self.sharding.of_subscriber(self.rules.subscriber(instance, inside)?);
        (self.sharding.of_address(outside) == Some(part)).then(|| self.worker_of(part))
    }

    /// Returns the worker that has a public address.
    pub fn owner_of_address(&self, address: Ipv4Addr) -> Option<usize> {
        Some(self.worker_of(self.sharding.of_address(address)?))
    }
}
