//! Restore of sessions of another process under the engine's rules, as soon as a packet needs them.
//!
//! A packet without a live session may belong to one that is not restored yet. Before it takes the slow path,
//! Gatun restores all sessions of every subscriber that the packet names, so that bindings, quotas, pairing
//! and blocks are the same as before. Meanwhile no one else gets their ports
//! ([`Reservations`](crate::tables::ports::reserved::Reservations)).

mod endpoints;

use super::rules::{Instance, Rules};
use super::state::Core;
use crate::base::time::Instant;
use crate::tables::bib::restore::Restoring;
use crate::tables::inheritance::{Inheritance, InheritedId, SessionFinder};
use crate::tables::restore_error::RestoreError;
use crate::tables::session_file::{Offload, Replica, SavedSession};
use crate::tables::subscriber::SubscriberKey;
use alloc::vec::Vec;
use core::net::IpAddr;
use endpoints::Ends;

/// Number of sessions that are restored together, so that their cache lines arrive meanwhile.
pub(crate) const GROUP: usize = 16;

/// Restores a session of another engine as if it had continued.
///
/// # Errors
/// Returns the reason why the session cannot be restored; nothing has changed then.
pub(crate) fn one(core: &mut Core, now: Instant, saved: &SavedSession) -> Result<(), RestoreError> {
    let restoring = restoring(&core.rules, now, saved)?;
    core.state.tables.now = now;
    core.state.tables.restore(&restoring).map(drop)
}

/// Converts a saved session to one of its instance.
///
/// # Errors
/// Returns an error if its lifetime is over, or if no instance serves it.
pub(crate) fn restoring(
    rules: &Rules,
    now: Instant,
    saved: &SavedSession,
) -> Result<Restoring, RestoreError> {
    // A fast path may have gone on with its flow meanwhile, and keeps its port until it has been asked.
    let is_marked = saved.ownership.offload != Offload::Engine && !saved.shares_port;
    // The other member of a pair translates it, or keeps the port of an ended one until it has heard of it.
    let is_standby = saved.replica == Replica::Standby && !saved.shares_port;
    let is_known = saved.replica == Replica::Told && !saved.shares_port;
    let is_held = is_marked || is_known || saved.quarantined && saved.replica != Replica::None;
    let is_over = saved.expires_ms == 0 && !is_marked && !is_standby;
    if is_over && !is_held {
        return Err(RestoreError::Expired);
    }
    let instance = rules.get(saved.instance).ok_or(RestoreError::NotServed)?;
    let is_served = serves(instance, saved);
    if !is_served && !is_held {
        return Err(RestoreError::NotServed);
    }
    let policy = instance.policy();
    let mut record = saved.record_of(policy.instance, now);
    // The other member still has it: its port waits until that one has heard of the end.
    if saved.quarantined || !is_served || is_over {
        record.quarantine();
    } else {
        instance.mark(&mut record, saved.pool6);
    }
    Ok(Restoring { record, subscriber: policy.subscriber(saved.inside.0) })
}

/// Returns whether an instance serves a session's inside host and prefix.
fn serves(instance: Instance<'_>, saved: &SavedSession) -> bool {
    let inside = saved.inside.0;
    match instance {
        Instance::Nat64(nat) => nat.accepts(inside) && nat.is_served(saved.pool6),
        Instance::Nat44(nat) => inside.to_ipv4_mapped().is_some_and(|inside| nat.serves(inside)),
    }
}

/// Returns the finder for an engine's sessions among those of other processes.
pub(crate) fn finder(core: &Core) -> SessionFinder<'_> {
    SessionFinder { subscriber_lens: core.rules.subscriber_lens(), hasher: core.state.tables.hasher() }
}

/// Restores all sessions of all subscribers that a packet names.
#[cold]
pub(crate) fn for_packet(core: &mut Core, now: Instant, packet: &[u8]) {
    let Some(mut inheritance) = core.state.tables.inheritance.take() else { return };
    let ends = Ends::of(packet);
    let mut found = Vec::new();
    let (rules, finder) = (&core.rules, finder(core));
    for address in ends.addresses() {
        each_subscriber(rules, address, |subscriber| {
            inheritance.of_subscriber(subscriber, finder, &mut found);
        });
    }
    let embedded = |address| rules.prefixes.of(address).and_then(|(prefix, _)| prefix.extract(address));
    let tables = &core.state.tables;
    for outside in ends.public(embedded).filter(|outside| tables.locate(outside.0).is_some()) {
        for (instance, inside) in inheritance.owners_at(outside) {
            if let Some(subscriber) = rules.subscriber(instance, inside) {
                inheritance.of_subscriber(subscriber, finder, &mut found);
            }
        }
    }
    these(core, &mut inheritance, now, &mut found);
    core.state.tables.inheritance = Some(inheritance);
}

/// Calls `tell` with the subscribers that an inside address may belong to, over all instances.
fn each_subscriber(rules: &Rules, address: IpAddr, mut tell: impl FnMut(SubscriberKey)) {
    match address {
        IpAddr::V6(address) => rules.nat64.iter().for_each(|nat| tell(nat.policy.subscriber(address))),
        IpAddr::V4(address) => {
            let address = address.to_ipv6_mapped();
            rules.nat44.iter().for_each(|nat| tell(nat.policy.subscriber(address)));
        }
    }
}

/// Restores some sessions. The lines that a group of them will touch are prefetched together.
pub(crate) fn these(
    core: &mut Core,
    inheritance: &mut Inheritance,
    now: Instant,
    found: &mut Vec<InheritedId>,
) {
    let Core { rules, state, .. } = core;
    let mut group = Vec::with_capacity(GROUP);
    for ids in found.chunks(GROUP) {
        for &id in ids {
            let restoring = inheritance.session(id, now).and_then(|saved| restoring(rules, now, &saved));
            if let Ok(restoring) = &restoring {
                state.tables.prefetch_restore(restoring);
            }
            group.push((id, restoring));
        }
        for (id, restoring) in group.drain(..) {
            let became = restoring.and_then(|restoring| state.tables.restore(&restoring));
            if became.is_err_and(|why| why != RestoreError::Exists) {
                // A reader that got the event of its beginning would otherwise never see its end.
                inheritance.record(id).iter().for_each(|record| state.tables.notify_not_back(record));
            }
            inheritance.settle(id, became.map(drop));
        }
    }
    found.clear();
}
