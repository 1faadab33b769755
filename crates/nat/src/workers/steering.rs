//! Whose a packet is, by its first bytes.

use super::Addresses;
use super::Dealt;
use crate::base::build_error::BuildError;
use crate::base::plan::{Net4, Plan};
use crate::tables::pool6::Owners;
use crate::tables::subscriber::SubscriberKey;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_mem::hash::Hasher64;
use gatun_wire::hdr::{ipv4, ipv6};
use gatun_wire::proto::{TCP, UDP};
use gatun_wire::{Ipv4View, Ipv6View, L4};

/// Subscribers that are a certain worker's.
pub(super) type Pins = BTreeMap<SubscriberKey, u16>;

/// The inside of a NAT44 instance.
struct Inside44 {
    realm: u8,
    networks: Vec<Net4>,
    instance: u8,
    /// Of the address as it stands in keys.
    subscriber_len: u8,
}

/// Finds the worker of a packet. All workers have the same one.
pub struct Steering {
    workers: u32,
    addresses: Addresses,
    prefixes: Owners,
    /// By NAT64 instance.
    subscriber_len: Vec<u8>,
    inside: Vec<Inside44>,
    pins: Pins,
    hasher: Hasher64,
}

impl Steering {
    pub(super) fn new(plan: &Plan, workers: usize, addresses: Addresses, pins: Pins, seed: [u64; 4]) -> Self {
        let first44 = plan.nat64.len();
        let inside = plan.nat44.iter().enumerate().map(|(i, nat)| Inside44 {
            realm: nat.realm,
            networks: nat.inside.clone(),
            instance: (first44 + i) as u8,
            subscriber_len: nat.key_len(),
        });
        Steering {
            workers: workers as u32,
            addresses,
            prefixes: Owners::of_plans(&plan.nat64),
            subscriber_len: plan.nat64.iter().map(|nat| nat.subscriber_len).collect(),
            inside: inside.collect(),
            pins,
            hasher: Hasher64::new(seed),
        }
    }

    /// How packets find workers by another plan, who stay as many: subscribers are where they were, but for those that
    /// static bindings pin.
    ///
    /// # Errors
    /// What only a restart can do.
    pub(super) fn changed_to(&self, plan: &Plan) -> Result<Self, BuildError> {
        let workers = self.workers as usize;
        let mut addresses = self.addresses.changed_to(plan, workers)?;
        let pins = pins(plan, &mut addresses, Some(&self.addresses))?;
        Ok(Steering { hasher: self.hasher, ..Steering::new(plan, workers, addresses, pins, [0; 4]) })
    }

    /// By worker, the subscribers that another one has by another plan.
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

    /// How public addresses are dealt out: what [`Shares::as_before`](super::Shares::as_before) goes on from.
    pub fn dealt(&self) -> Vec<Dealt> {
        self.addresses.dealt()
    }

    /// Workers.
    pub(super) fn workers(&self) -> usize {
        self.workers as usize
    }

    pub(super) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The worker that has to have a packet which was received from a realm; `None` where any may.
    #[inline]
    pub fn owner(&self, packet: &[u8], realm: u8) -> Option<usize> {
        match packet.first()? >> 4 {
            6 => self.owner_of_six(packet, realm),
            4 => self.owner_of_four(packet, realm),
            _ => None,
        }
    }

    /// The worker that a translated packet is for: one to a public address, on its way back in.
    #[inline]
    pub fn owner_after(&self, packet: &[u8]) -> Option<usize> {
        if packet.first()? >> 4 != 4 {
            return None;
        }
        self.addresses.owner(destination4(packet)?)
    }

    /// The worker that can have a session of an instance's inside host behind a public address; `None` where that
    /// address is another worker's than the host.
    pub fn owner_of_session(&self, instance: u8, inside: Ipv6Addr, outside: Ipv4Addr) -> Option<usize> {
        let number = usize::from(instance);
        let of44 =
            || self.inside.get(number.checked_sub(self.subscriber_len.len())?).map(|i| i.subscriber_len);
        let len = self.subscriber_len.get(number).copied().or_else(of44)?;
        let owner = self.of_subscriber(SubscriberKey::of(instance, inside, len));
        (self.addresses.owner(outside) == Some(owner)).then_some(owner)
    }

    fn owner_of_six(&self, packet: &[u8], realm: u8) -> Option<usize> {
        let header = packet.first_chunk::<{ ipv6::LEN }>()?;
        let address = |at: usize| header.get(at..)?.first_chunk::<16>().map(|b| Ipv6Addr::from(*b));
        let (source, destination) = (address(8)?, address(24)?);
        let inside = match header.get(6)? {
            &TCP | &UDP => source,
            // An error is about a packet to the inside host, which may come from a router on its way.
            _ => quoted_destination6(packet).unwrap_or(source),
        };
        let (_, owner) = self.prefixes.of_packet(inside, destination, realm)?;
        let len = *self.subscriber_len.get(usize::from(owner.instance))?;
        Some(self.of_subscriber(SubscriberKey::of(owner.instance, inside, len)))
    }

    fn owner_of_four(&self, packet: &[u8], realm: u8) -> Option<usize> {
        let header = packet.first_chunk::<{ ipv4::LEN }>()?;
        let destination = destination4(header)?;
        let source = Ipv4Addr::from(*header.get(12..)?.first_chunk::<4>()?);
        let Some(inside) = self.inside44(source, realm) else { return self.addresses.owner(destination) };
        let quoted = match header.get(9)? {
            &TCP | &UDP => None,
            _ => quoted_destination4(packet),
        };
        if let Some(quoted) = quoted {
            // About a packet to an inside host; or, from a router that has an inside address, about one that
            // had left with a public one.
            return match self.inside44(quoted, realm) {
                Some(inside) => Some(self.of_subscriber(inside.key(quoted))),
                None => self.addresses.owner(destination),
            };
        }
        Some(self.of_subscriber(inside.key(source)))
    }

    fn inside44(&self, address: Ipv4Addr, realm: u8) -> Option<&Inside44> {
        let has = |inside: &&Inside44| {
            inside.realm == realm && inside.networks.iter().any(|net| net.contains(address))
        };
        self.inside.iter().find(has)
    }

    /// The worker of a subscriber.
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

impl Inside44 {
    fn key(&self, address: Ipv4Addr) -> SubscriberKey {
        SubscriberKey::of(self.instance, address.to_ipv6_mapped(), self.subscriber_len)
    }
}

#[inline]
fn destination4(packet: &[u8]) -> Option<Ipv4Addr> {
    packet.get(16..)?.first_chunk::<4>().map(|b| Ipv4Addr::from(*b))
}

/// Where the packet that an ICMPv6 error quotes was sent to.
fn quoted_destination6(packet: &[u8]) -> Option<Ipv6Addr> {
    let view = Ipv6View::parse(packet).ok()?;
    let L4::IcmpError { .. } = view.l4(packet).ok()? else { return None };
    let quoted = packet.get(usize::from(view.l4_offset) + 8..)?;
    quoted.get(24..)?.first_chunk::<16>().map(|b| Ipv6Addr::from(*b))
}

/// Where the packet that an ICMPv4 error quotes was sent to.
fn quoted_destination4(packet: &[u8]) -> Option<Ipv4Addr> {
    let view = Ipv4View::parse(packet).ok()?;
    let L4::IcmpError { .. } = view.l4(packet).ok()? else { return None };
    destination4(packet.get(usize::from(view.l4_offset) + 8..)?)
}

/// Pins the subscribers that have static bindings to the workers of their public addresses; an address that a second
/// binding of a subscriber wants goes to its worker too, unless another subscriber has pinned it. One that workers run
/// with stays where it is.
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
                        "{name:?}: static binding {}: its subscriber's other bindings and {outside}'s are two \
                         workers': put them on one address, or give the port one queue",
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
