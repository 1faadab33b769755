//! Division of subscribers and public addresses among the workers of a translator, or among the shards of a
//! cluster. A subscriber's ports come from addresses of its own part only.

mod addresses;

use super::{Plan, PoolRange, StaticBinding};
use crate::base::build_error::BuildError;
use crate::base::subscriber_key::SubscriberKey;
use addresses::Addresses;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv4Addr;
use gatun_mem::hash::Hasher64;

/// First and last of consecutive public addresses, and the number of their worker or shard.
pub type AddressShare = (Ipv4Addr, Ipv4Addr, u16);

/// Subscribers that belong to a certain part.
type Pins = BTreeMap<SubscriberKey, u16>;

/// Parts of a division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// Workers of one translator.
    Workers(u16),
    /// Shards of a cluster. All nodes divide alike.
    Shards(u16),
}

impl Parts {
    /// Number of parts.
    pub(crate) fn count(self) -> usize {
        match self {
            Parts::Workers(count) | Parts::Shards(count) => count.into(),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Parts::Workers(_) => "worker",
            Parts::Shards(_) => "shard",
        }
    }

    /// Advice for a pool that has too few addresses.
    fn help(self) -> &'static str {
        match self {
            Parts::Workers(_) => "fewer queues",
            Parts::Shards(_) => "fewer shards",
        }
    }

    fn restart(self) -> &'static str {
        match self {
            Parts::Workers(_) => "restart to redistribute them",
            Parts::Shards(_) => "begin the cluster again",
        }
    }
}

/// Division of subscribers and public addresses.
pub struct Sharding {
    pub(crate) parts: Parts,
    /// Number of parts, for the multiplication with a hash.
    count: u32,
    addresses: Addresses,
    pins: Pins,
    hasher: Hasher64,
}

impl fmt::Debug for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharding").field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl Sharding {
    /// Divides the addresses of every pool, and the subscribers by a hash with the key `seed`.
    ///
    /// # Errors
    /// Returns an error if a pool has fewer addresses than there are parts, or if the static bindings of one
    /// subscriber need several parts.
    pub(crate) fn new(plan: &Plan, parts: Parts, seed: [u64; 4]) -> Result<Sharding, BuildError> {
        let mut addresses = Addresses::new(plan, parts)?;
        let pins = pins(plan, parts, &mut addresses, None)?;
        Ok(Self::of(parts, addresses, pins, hasher(parts, seed)))
    }

    /// Restores the division of another process, without its plan. Ignores entries of parts that do not
    /// exist, and entries that overlap an earlier one.
    pub(crate) fn as_before(parts: Parts, seed: [u64; 4], address_shares: &[AddressShare]) -> Sharding {
        let addresses = Addresses::as_before(address_shares, parts);
        Self::of(parts, addresses, Pins::new(), hasher(parts, seed))
    }

    fn of(parts: Parts, addresses: Addresses, pins: Pins, hasher: Hasher64) -> Sharding {
        Sharding { parts, count: parts.count() as u32, addresses, pins, hasher }
    }

    /// Returns the division for another plan. Addresses and subscribers keep their parts, except subscribers
    /// that static bindings pin. New addresses go to the parts with the fewest.
    ///
    /// # Errors
    /// A part would have no address of a pool, or the bindings of a subscriber would be in two parts.
    pub(crate) fn changed_to(&self, plan: &Plan) -> Result<Sharding, BuildError> {
        let mut addresses = self.addresses.changed_to(plan, self.parts)?;
        let pins = pins(plan, self.parts, &mut addresses, Some(&self.addresses))?;
        Ok(Self::of(self.parts, addresses, pins, self.hasher))
    }

    /// Returns the subscribers that are in another part under another division, with their parts here.
    pub(crate) fn moved_to<'a>(
        &'a self,
        new: &'a Sharding,
    ) -> impl Iterator<Item = (SubscriberKey, usize)> + 'a {
        let both: BTreeSet<SubscriberKey> = self.pins.keys().chain(new.pins.keys()).copied().collect();
        both.into_iter().filter_map(|subscriber| {
            let from = self.of_subscriber(subscriber);
            (from != new.of_subscriber(subscriber)).then_some((subscriber, from))
        })
    }

    /// Returns the distribution of public addresses.
    pub(crate) fn address_shares(&self) -> Vec<AddressShare> {
        self.addresses.address_shares()
    }

    /// Returns the pieces of a range that certain parts have.
    pub(crate) fn cut<'a>(
        &'a self,
        range: &'a PoolRange,
        has: impl Fn(usize) -> bool + 'a,
    ) -> impl Iterator<Item = PoolRange> + 'a {
        self.addresses.cut(range, has)
    }

    /// Returns the part that has a public address; `None` if it is in no pool.
    #[inline]
    pub(crate) fn of_address(&self, address: Ipv4Addr) -> Option<usize> {
        self.addresses.owner(address)
    }

    /// Returns the part of a subscriber.
    #[inline]
    pub(crate) fn of_subscriber(&self, subscriber: SubscriberKey) -> usize {
        if !self.pins.is_empty()
            && let Some(part) = self.pins.get(&subscriber)
        {
            return usize::from(*part);
        }
        let SubscriberKey { prefix, instance } = subscriber;
        let hash = self.hasher.hash4([prefix as u64, (prefix >> 64) as u64, u64::from(instance), 0]);
        (((hash >> 32) * u64::from(self.count)) >> 32) as usize
    }
}

/// Nodes of a cluster may have different processors, and need the same hash.
fn hasher(parts: Parts, seed: [u64; 4]) -> Hasher64 {
    match parts {
        Parts::Workers(_) => Hasher64::new(seed),
        Parts::Shards(_) => Hasher64::portable(seed),
    }
}

/// Static bindings of an instance, with the prefix length of its subscribers.
type Statics<'p> = (&'p String, u8, &'p [StaticBinding]);

fn statics(plan: &Plan) -> impl Iterator<Item = Statics<'_>> {
    let of64 = plan.nat64.iter().map(|n| (&n.name, n.subscriber_len, &*n.static_bindings));
    of64.chain(plan.nat44.iter().map(|n| (&n.name, n.key_len(), &*n.static_bindings)))
}

/// Pins the subscribers with static bindings to the parts of their public addresses. If a subscriber has a
/// second binding, its address goes to the same part, unless another subscriber has pinned it. An address of
/// a running division stays where it is.
fn pins(
    plan: &Plan,
    parts: Parts,
    addresses: &mut Addresses,
    running: Option<&Addresses>,
) -> Result<Pins, BuildError> {
    let mut pins = Pins::new();
    let mut pinned: BTreeMap<Ipv4Addr, u16> = BTreeMap::new();
    for (instance, (name, len, bindings)) in statics(plan).enumerate() {
        for (i, binding) in bindings.iter().enumerate() {
            let outside = binding.outside.0;
            let Some(owner) = addresses.owner(outside) else { continue };
            let key = SubscriberKey::of(instance as u8, binding.inside.0, len);
            let part = *pins.entry(key).or_insert(owner as u16);
            let stays = running.is_some_and(|running| running.owner(outside).is_some());
            let has = pinned.get(&outside).copied().or(stays.then_some(owner as u16));
            match has {
                Some(other) if other != part => {
                    return Err(BuildError(format!(
                        "{name:?}: static binding {}: the subscriber's other bindings are on another {} than \
                         {outside}: use one public address for all of them, or {}",
                        i + 1,
                        parts.name(),
                        if matches!(parts, Parts::Workers(_)) {
                            "one queue"
                        } else {
                            "addresses of one shard"
                        },
                    )));
                }
                _ => addresses.give(outside, part.into()),
            }
            pinned.insert(outside, part);
        }
    }
    Ok(pins)
}
