//! Sessions of another process, put back: those that a packet asks for at once, the others little by little.
//!
//! A packet without a live session may belong to one that is not back yet. Before it goes the general way, all sessions
//! of every subscriber that it names are put back, whole, so that bindings, quotas, pairing and blocks are as they
//! were. Nobody else is given their ports meanwhile ([`SpokenFor`](super::inheritance::SpokenFor)).

use super::ends::Ends;
use super::inheritance::{Finder, Found, HeirId, Inheritance, Progress};
use crate::base::time::Instant;
use crate::engine::{Core, Nat};
use crate::tables::bib::restore::NotRestored;
use crate::tables::subscriber::SubscriberKey;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;

/// Sessions that are put back together: their cache lines come meanwhile.
const GROUP: usize = 16;
/// What one costs of a budget, in records that are looked at.
const COST: usize = 8;

/// What is over with an inheritance: it is freed where it is dropped, which takes its time.
pub struct Spent(#[allow(dead_code)] Box<Inheritance>);

impl Nat {
    /// Finds the engine's sessions in what other processes left.
    pub fn finder(&self) -> Finder<'_> {
        self.core.finder()
    }

    /// Gives the engine the sessions of other processes, the latest one's first: from now on they are as good as its own.
    /// [`put_back`](Self::put_back) is to be called until it has them all.
    pub fn inherit(&mut self, now: Instant, found: Vec<Found>) {
        let inheritance = Inheritance::new(found, self.clock.at(now));
        self.core.shared.tables.inheritance = Some(Box::new(inheritance));
    }

    /// Whether sessions of other processes are still to be put back.
    #[inline]
    pub fn is_inheriting(&self) -> bool {
        self.core.shared.tables.inheritance.is_some()
    }

    /// Puts some of them back, about as many as `budget` looks at records allow. Says whether it has them all.
    ///
    /// Where somebody reads events, he is given time to: those of what goes on, and of what does not, are not lost for being
    /// many.
    pub fn put_back(&mut self, now: Instant, budget: usize) -> bool {
        let Some(mut inheritance) = self.core.shared.tables.inheritance.take() else { return true };
        let now = self.clock.at(now);
        self.core.shared.tables.now = now;
        match self.core.put_back_some(&mut inheritance, now, budget) {
            true => {
                self.progress = inheritance.progress();
                self.spent = Some(Spent(inheritance));
                true
            }
            false => {
                self.core.shared.tables.inheritance = Some(inheritance);
                false
            }
        }
    }

    /// How far that is.
    pub fn progress(&self) -> Progress {
        self.core.shared.tables.inheritance.as_ref().map_or(self.progress, |all| all.progress())
    }

    /// What is over with the last inheritance, for another thread to drop.
    pub fn take_spent(&mut self) -> Option<Spent> {
        self.spent.take()
    }
}

impl Core {
    fn put_back_some(&mut self, inheritance: &mut Inheritance, now: Instant, mut budget: usize) -> bool {
        let mut heirs = Vec::with_capacity(GROUP);
        while budget > 0 && self.shared.tables.events.has_room_for(2 * GROUP) {
            let looked_at = budget.min(GROUP * COST);
            let is_last = inheritance.walk(looked_at, GROUP, &mut heirs);
            budget -= looked_at;
            self.put_back_these(inheritance, now, &mut heirs);
            if is_last {
                return true;
            }
        }
        false
    }

    /// Puts back all sessions of everybody whom a packet names.
    #[cold]
    pub(crate) fn put_back_for(&mut self, now: Instant, packet: &[u8]) {
        let Some(mut inheritance) = self.shared.tables.inheritance.take() else { return };
        let ends = Ends::of(packet);
        let mut heirs = Vec::new();
        let finder = self.finder();
        for address in ends.addresses() {
            self.each_subscriber(address, |whose| inheritance.of_subscriber(whose, finder, &mut heirs));
        }
        let embedded = |address| self.owners.of(address).and_then(|(prefix, _)| prefix.extract(address));
        for outside in ends.public(embedded).filter(|outside| self.shared.tables.locate(outside.0).is_some())
        {
            for (instance, inside) in inheritance.owners_at(outside) {
                if let Some(of) = finder.nats.get(instance) {
                    inheritance.of_subscriber(of.policy().subscriber(inside), finder, &mut heirs);
                }
            }
        }
        self.put_back_these(&mut inheritance, now, &mut heirs);
        self.shared.tables.inheritance = Some(inheritance);
    }

    fn finder(&self) -> Finder<'_> {
        Finder { nats: self.instances(), hasher: self.shared.tables.hasher() }
    }

    /// Whoever an inside address may be, of all instances.
    fn each_subscriber(&self, address: IpAddr, mut tell: impl FnMut(SubscriberKey)) {
        match address {
            IpAddr::V6(address) => self.nat64.iter().for_each(|nat| tell(nat.policy.subscriber(address))),
            IpAddr::V4(address) => {
                let address = address.to_ipv6_mapped();
                self.nat44.iter().for_each(|nat| tell(nat.policy.subscriber(address)));
            }
        }
    }

    /// What a group of them will touch is asked for together.
    fn put_back_these(&mut self, inheritance: &mut Inheritance, now: Instant, heirs: &mut Vec<HeirId>) {
        let mut group = Vec::with_capacity(GROUP);
        for heirs in heirs.chunks(GROUP) {
            for &id in heirs {
                let restoring = inheritance.session(id, now).and_then(|saved| self.restoring(now, &saved));
                restoring.iter().for_each(|restoring| self.shared.tables.prefetch_restore(restoring));
                group.push((id, restoring));
            }
            for (id, restoring) in group.drain(..) {
                let became = restoring.and_then(|restoring| self.shared.tables.restore(&restoring));
                if became.is_err_and(|why| why != NotRestored::There) {
                    // Whoever has been told of its beginning would have it for ever.
                    inheritance.record(id).iter().for_each(|record| self.shared.tables.tell_not_back(record));
                }
                inheritance.settle(id, became.map(drop));
            }
        }
        heirs.clear();
    }
}
