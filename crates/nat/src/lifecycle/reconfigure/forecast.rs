//! Number of sessions that a change would end, counted before it is applied, some records at a time. The
//! rules are those by which `transition.rs` ends them. Counting changes nothing.

use super::{Change, Source, TablesChange};
use crate::base::plan::Transport;
use crate::path::rules::Rules;
use crate::tables::bib::Tables;
use crate::tables::session::{RecordId, Session};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Inside end of an instance: protocol, address and port.
type InsideEnd = (u8, Transport, (Ipv6Addr, u16));

/// Count of sessions that a change would end, record by record.
#[derive(Debug)]
pub struct Forecast {
    /// Number of sessions that would end, so far.
    pub sessions: u64,
    /// Number of subscribers of these sessions.
    pub subscribers: u64,
    next: RecordId,
    /// A bit for each number of a subscriber that was counted.
    met: Vec<u64>,
    /// Removed static bindings with their public ends, and new ones by their inside and by their public
    /// ends.
    gone: Vec<(InsideEnd, (Ipv4Addr, u16))>,
    come_inside: Vec<InsideEnd>,
    come_outside: Vec<(Ipv4Addr, u16, Transport)>,
}

impl Forecast {
    /// Begins the count for a change. It allocates the memory for the count.
    pub fn new(change: &Change) -> Forecast {
        let transition = &change.transition;
        let subscribers = change.tables.subscribers_made_for as usize;
        let new = || transition.statics_new.iter();
        let mut forecast = Forecast {
            sessions: 0,
            subscribers: 0,
            next: 1,
            met: alloc::vec![0; subscribers / 64 + 1],
            gone: transition
                .statics_gone
                .iter()
                .map(|(i, b)| ((*i, b.transport, b.inside), b.outside))
                .collect(),
            come_inside: new().map(|(i, b)| (*i, b.transport, b.inside)).collect(),
            come_outside: new().map(|(_, b)| (b.outside.0, b.outside.1, b.transport)).collect(),
        };
        forecast.gone.sort_unstable();
        forecast.come_inside.sort_unstable();
        forecast.come_outside.sort_unstable();
        forecast
    }

    /// Looks at no more than `budget` records of the engine that the change was prepared for. Returns whether
    /// the count is complete. It counts no further if the engine has changed since.
    pub(crate) fn count(&mut self, change: &Change, tables: &Tables, generation: u64, budget: usize) -> bool {
        if change.generation != generation || !change.transition.may_end_any() {
            return true;
        }
        for _ in 0..budget {
            if self.next >= tables.high() {
                return true;
            }
            let session = tables.get(self.next);
            self.next += 1;
            if session.is_session() && self.ends(change, tables, &change.rules, session) {
                self.sessions += 1;
                self.meet(session.subscriber);
            }
        }
        false
    }

    fn meet(&mut self, subscriber: u32) {
        let bit = 1 << (subscriber % 64);
        if let Some(word) = self.met.get_mut(subscriber as usize / 64)
            && *word & bit == 0
        {
            *word |= bit;
            self.subscribers += 1;
        }
    }

    fn ends(&self, change: &Change, tables: &Tables, rules: &Rules, session: &Session) -> bool {
        let transition = &change.transition;
        let may_stay = match session.is_of_static() {
            true => !self.loses_static(session),
            false => change.tables.may_stay(tables, session),
        };
        !may_stay
            || transition.ends_by_rules(tables, rules, session).is_some_and(|(all, this)| all || this)
            || self.is_in_the_way(tables, session)
    }

    fn loses_static(&self, session: &Session) -> bool {
        let inside = (session.inside_addr(), session.inside_port());
        let key = ((session.instance, session.transport(), inside), session.outside());
        self.gone.binary_search(&key).is_ok()
    }

    /// Returns whether a new static binding has its inside end, its port, or a port of its block.
    fn is_in_the_way(&self, tables: &Tables, session: &Session) -> bool {
        if self.come_inside.is_empty() {
            return false;
        }
        let (transport, (address, port)) = (session.transport(), session.outside());
        let inside = (session.inside_addr(), session.inside_port());
        if self.come_inside.binary_search(&(session.instance, transport, inside)).is_ok() {
            return true;
        }
        let Some(pool) = tables.pools.get(tables.pool_of(session.instance)) else { return false };
        let (first, last, transports) = pool.extent(transport, port);
        let from = self.come_outside.partition_point(|&(a, p, _)| (a, p) < (address, first));
        let near = self.come_outside.iter().skip(from).take_while(|&&(a, p, _)| a == address && p <= last);
        near.filter(|(_, _, of)| transports.get(*of as usize) == Some(&true)).any(|&(_, at, of)| {
            let exactly = (at, of) == (port, transport);
            exactly || (!session.is_of_static() && pool.in_the_way(of, session.address_ix, at).is_some())
        })
    }
}

impl TablesChange {
    /// Returns whether a subscriber's session may keep its address and port.
    fn may_stay(&self, tables: &Tables, session: &Session) -> bool {
        let number = tables.pool_of(session.instance);
        let kept = self.pools.iter().find_map(|source| match source {
            Source::Kept(before, change) if *before == number => Some(change),
            _ => None,
        });
        let (Some(change), Some(pool)) = (kept, tables.pools.get(number)) else { return true };
        let prefix = tables.subscribers.get(session.subscriber).map_or(0, |s| s.key().prefix);
        let place = (session.transport(), session.address_ix, session.outside().1);
        pool.would_keep(change, place, prefix)
    }
}
