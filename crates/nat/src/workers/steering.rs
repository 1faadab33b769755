//! Steering: the worker of a packet, by its first bytes.

use super::AddressShare;
use super::Addresses;
use crate::base::build_error::BuildError;
use crate::base::plan::Plan;
use crate::path::classify::flow::{self, FlowOwner};
use crate::path::rules::Rules;
use crate::tables::subscriber::SubscriberKey;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_mem::hash::Hasher64;

/// Subscribers that belong to a certain worker.
pub(super) type Pins = BTreeMap<SubscriberKey, u16>;

/// Steering of packets to workers. All workers have the same one.
pub struct Steering {
    workers: u32,
    addresses: Addresses,
    /// Instances of the whole plan, without mappings. The workers have the state.
    rules: Rules,
    pins: Pins,
    hasher: Hasher64,
}

impl Steering {
    /// # Errors
    /// Returns an error if the plan has more instances or prefixes than numbers.
    pub(super) fn new(
        plan: &Plan,
        workers: usize,
        addresses: Addresses,
        pins: Pins,
        seed: [u64; 4],
    ) -> Result<Self, BuildError> {
        let rules = Rules::new(plan, Arc::new([]), &[])?;
        Ok(Steering { workers: workers as u32, addresses, rules, pins, hasher: Hasher64::new(seed) })
    }

    /// Returns the steering for another plan with the same number of workers. Subscribers keep their workers,
    /// except those that static bindings pin.
    ///
    /// # Errors
    /// Changes that need a restart.
    pub(super) fn changed_to(&self, plan: &Plan) -> Result<Self, BuildError> {
        let workers = self.workers as usize;
        let mut addresses = self.addresses.changed_to(plan, workers)?;
        let pins = pins(plan, &mut addresses, Some(&self.addresses))?;
        Ok(Steering { hasher: self.hasher, ..Steering::new(plan, workers, addresses, pins, [0; 4])? })
    }

    /// Returns, by worker, the subscribers that another worker has under another plan.
    pub(super) fn moved_to(&self, new: &Steering) -> Vec<Vec<SubscriberKey>> {
        let mut moved = alloc::vec![Vec::new(); self.workers as usize];
        let both: BTreeSet<&SubscriberKey> = self.pins.keys().chain(new.pins.keys()).collect();
        for &subscriber in both {
            let (from, to) = (self.of_subscriber(subscriber), new.of_subscriber(subscriber));
            if let Some(list) = moved.get_mut(from).filter(|_| from != to) {
                list.push(subscriber);
            }
        }
        moved
    }

    /// Returns the distribution of public addresses, for [`Shares::as_before`](super::Shares::as_before).
    pub fn address_shares(&self) -> Vec<AddressShare> {
        self.addresses.address_shares()
    }

    /// Number of workers.
    pub(super) fn workers(&self) -> usize {
        self.workers as usize
    }

    pub(super) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Returns the worker that has to process a packet from a realm; `None` if any worker may.
    #[inline]
    pub fn owner(&self, packet: &[u8], realm: u8) -> Option<usize> {
        match flow::owner(&self.rules, packet, realm)? {
            FlowOwner::Subscriber(subscriber) => Some(self.of_subscriber(subscriber)),
            FlowOwner::Address(address) => self.addresses.owner(address),
        }
    }

    /// Returns the worker of a translated packet that is to a public address and so returns to the inside.
    #[inline]
    pub fn owner_after(&self, packet: &[u8]) -> Option<usize> {
        if packet.first()? >> 4 != 4 {
            return None;
        }
        self.addresses.owner(flow::destination4(packet)?)
    }

    /// Returns the worker of an instance's inside host, if that worker also has the public address; `None`
    /// otherwise.
    pub fn owner_of_session(&self, instance: u8, inside: Ipv6Addr, outside: Ipv4Addr) -> Option<usize> {
        let owner = self.of_subscriber(self.rules.subscriber(instance, inside)?);
        (self.addresses.owner(outside) == Some(owner)).then_some(owner)
    }

    /// Returns the worker that has a public address.
    pub fn owner_of_address(&self, address: Ipv4Addr) -> Option<usize> {
        self.addresses.owner(address)
    }

    /// Returns the worker of a subscriber.
    pub(super) fn of_subscriber(&self, subscriber: SubscriberKey) -> usize {
        if !self.pins.is_empty()
            && let Some(worker) = self.pins.get(&subscriber)
        {
            return usize::from(*worker);
        }
        let SubscriberKey { prefix, instance } = subscriber;
        let hash = self.hasher.hash4([prefix as u64, (prefix >> 64) as u64, u64::from(instance), 0]);
        (((hash >> 32) * u64::from(self.workers)) >> 32) as usize
    }
}

/// Pins the subscribers with static bindings to the workers of their public addresses. If a subscriber has a
/// second binding, its address goes to the same worker, unless another subscriber has pinned it. An address
/// of running workers stays where it is.
pub(super) fn pins(
    plan: &Plan,
    addresses: &mut Addresses,
    running: Option<&Addresses>,
) -> Result<Pins, BuildError> {
    let of64 = plan.nat64.iter().map(|n| (&n.name, n.subscriber_len, &n.static_bindings));
    let of44 = plan.nat44.iter().map(|n| (&n.name, n.key_len(), &n.static_bindings));
    let mut pins = Pins::new();
    let mut pinned: BTreeMap<Ipv4Addr, u16> = BTreeMap::new();
    for (instance, (name, len, bindings)) in of64.chain(of44).enumerate() {
        for (i, binding) in bindings.iter().enumerate() {
            let outside = binding.outside.0;
            let Some(owner) = addresses.owner(outside) else { continue };
            let worker =
                *pins.entry(SubscriberKey::of(instance as u8, binding.inside.0, len)).or_insert(owner as u16);
            let stays = running.is_some_and(|running| running.owner(outside).is_some());
            let has = pinned.get(&outside).copied().or(stays.then_some(owner as u16));
            match has {
                Some(other) if other != worker => {
                    return Err(BuildError(format!(
                        "{name:?}: static binding {}: the subscriber's other bindings are on another worker \
                         than {outside}: use one public address for all of them, or one queue",
                        i + 1
                    )));
                }
                _ => addresses.give(outside, worker.into()),
            }
            pinned.insert(outside, worker);
        }
    }
    Ok(pins)
}
