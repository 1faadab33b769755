//! Sessions, bindings and port blocks, read between two bursts. A read returns some at a time, by positions
//! that stay valid while the entries exist.
//!
//! ```text
//!   sessions            by the number of their record
//!   bindings, blocks    by pool, public address, transport and port
//! ```
//! A walk returns an entry once if it exists throughout the walk, and at most once if it begins or ends
//! meanwhile. Nothing is allocated here: results go into a list of the caller, and a full list ends the
//! slice.

use super::report::{self, SubscriberStats};
use crate::base::plan::{Net4, Net6, Transport};
use crate::path::state::Core;
use crate::tables::bib::{PoolAddress, Tables, info};

pub use crate::tables::bib::info::{BindingInfo, SessionInfo};

use crate::tables::session::Session;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Unit of a slice's budget: the look at a record or a port.
pub(crate) const LOOK: usize = 1;
/// Additional cost of a session that is returned.
const TOLD: usize = 3;
/// Additional cost of a binding or a block, which is in other cache lines.
const FOUND: usize = 8;

/// Filter for sessions or bindings. A record matches if it meets every condition; an empty filter matches
/// all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Number of the instance.
    pub instance: Option<u8>,
    /// Number of the pool.
    pub pool: Option<usize>,
    /// Protocol.
    pub transport: Option<Transport>,
    /// Network of the inside address; IPv4 networks are written as ::ffff:a.b.c.d.
    pub inside: Option<Net6>,
    /// Inside port (ICMP: identifier).
    pub inside_port: Option<u16>,
    /// Network of the public address.
    pub outside: Option<Net4>,
    /// Public port (ICMP: identifier).
    pub outside_port: Option<u16>,
    /// Network of the remote address. If bindings are cleared, it matches a binding with any such session.
    pub remote: Option<Net4>,
    /// Remote port.
    pub remote_port: Option<u16>,
}

impl Selection {
    /// Returns whether the filter has only conditions on bindings, and none on remote hosts.
    pub fn is_of_bindings(&self) -> bool {
        self.remote.is_none() && self.remote_port.is_none()
    }

    fn has_end(&self, inside: (Ipv6Addr, u16), outside: (Ipv4Addr, u16)) -> bool {
        self.inside_port.is_none_or(|port| port == inside.1)
            && self.outside_port.is_none_or(|port| port == outside.1)
            && self.outside.is_none_or(|net| net.contains(outside.0))
            && self.inside.is_none_or(|net| net.contains(inside.0))
    }

    fn has_owner(&self, instance: u8, pool: usize, transport: Transport) -> bool {
        self.instance.is_none_or(|number| number == instance)
            && self.pool.is_none_or(|number| number == pool)
            && self.transport.is_none_or(|wanted| wanted == transport)
    }

    /// Returns whether a subscriber of this instance and inside network matches. It also matches if the
    /// filter has only an address or a part of its network.
    pub fn has_subscriber(&self, instance: u8, network: Net6) -> bool {
        let of = |wanted: Net6| wanted.contains(network.addr) || network.contains(wanted.addr);
        self.instance.is_none_or(|number| number == instance) && self.inside.is_none_or(of)
    }

    /// Returns whether a record in use matches.
    pub(crate) fn has(&self, record: &Session, pool: usize) -> bool {
        let (remote, remote_port) = record.remote();
        self.has_owner(record.instance, pool, record.transport())
            && self.has_end((record.inside_addr(), record.inside_port()), record.outside())
            && self.remote_port.is_none_or(|port| port == remote_port)
            && self.remote.is_none_or(|net| net.contains(remote))
    }
}

/// Port block of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// Number of the pool.
    pub pool: usize,
    /// Owner: the number of the instance, and the inside network.
    pub owner: (u8, Net6),
    /// Public address.
    pub outside: Ipv4Addr,
    /// First and last port.
    pub ports: (u16, u16),
    /// Protocols of the block, in the order of [`Transport`].
    pub transports: [bool; 3],
}

/// Position of a walk over the sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCursor {
    /// Number of the next record, minus one.
    pub next: u32,
    /// True if there are no further records.
    pub done: bool,
}

/// Position of a walk over bindings or blocks: the next place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCursor {
    /// Number of the pool.
    pub pool: usize,
    /// Index of its address, counted from 0.
    pub address: u32,
    /// Protocol, in the order of [`Transport`].
    pub transport: u8,
    /// Port.
    pub port: u16,
    /// True if the walk is complete.
    pub done: bool,
}

impl PortCursor {
    fn next_transport(&mut self) {
        (self.transport, self.port) = (self.transport + 1, 0);
    }

    fn next_address(&mut self) {
        (self.address, self.transport, self.port) = (self.address + 1, 0, 0);
    }

    fn next_pool(&mut self) {
        *self = PortCursor { pool: self.pool + 1, ..PortCursor::default() };
    }

    /// Continues after a port.
    fn pass(&mut self, port: u16) {
        match port.checked_add(1) {
            Some(next) => self.port = next,
            None => self.next_transport(),
        }
    }
}

/// Returns whether a list with preallocated capacity has room.
fn has_room<T>(list: &Vec<T>) -> bool {
    list.len() < list.capacity()
}

/// Adds sessions to `found`, up to its capacity, and looks at about `budget` records.
pub(crate) fn sessions(
    tables: &Tables,
    at: &mut SessionCursor,
    which: &Selection,
    mut budget: usize,
    found: &mut Vec<SessionInfo>,
) {
    while budget > 0 && has_room(found) {
        let id = at.next.saturating_add(1);
        if id >= tables.high() {
            at.done = true;
            return;
        }
        budget = budget.saturating_sub(LOOK);
        at.next = id;
        let record = tables.get(id);
        if record.is_session() && which.has(record, tables.pool_of(record.instance)) {
            budget = budget.saturating_sub(TOLD);
            found.push(info::session(tables, record));
        }
    }
}

/// Adds bindings to `found`, in the order of their public addresses and ports. Otherwise the same as
/// [`sessions`].
pub(crate) fn bindings(
    tables: &Tables,
    at: &mut PortCursor,
    which: &Selection,
    mut budget: usize,
    found: &mut Vec<BindingInfo>,
) {
    while budget > 0 && has_room(found) && !at.done {
        budget = budget.saturating_sub(LOOK);
        let Some((place, transport)) = address(tables, at, which) else { continue };
        let pool = tables.pools.get(place.pool);
        let used = pool.and_then(|pool| pool.next_used(transport, place.address_ix, at.port));
        // A shared port with several inside ends is found by its public port.
        let Some(port) = used.filter(|&port| which.outside_port.is_none_or(|wanted| wanted >= port)) else {
            at.next_transport();
            continue;
        };
        at.pass(port);
        budget = budget.saturating_sub(FOUND);
        let Some(primary) = tables.binding_at(place, transport, port) else { continue };
        let binding = info::binding(tables, primary);
        budget = budget.saturating_sub(binding.sessions as usize);
        if which.has_owner(binding.instance, binding.pool, transport)
            && which.has_end(binding.inside, binding.outside)
        {
            found.push(binding);
        }
    }
}

/// Adds the port blocks of subscribers to `found`, in the order of their ports. Of `which`, it applies inside
/// and outside addresses, instance and pool. Otherwise the same as [`sessions`].
pub(crate) fn blocks(
    core: &Core,
    at: &mut PortCursor,
    which: &Selection,
    mut budget: usize,
    found: &mut Vec<BlockInfo>,
) {
    let tables = &core.state.tables;
    while budget > 0 && has_room(found) && !at.done {
        budget = budget.saturating_sub(LOOK);
        let Some((place, transport)) = address(tables, at, which) else { continue };
        let Some(pool) = tables.pools.get(place.pool).filter(|pool| pool.block_usage().is_some()) else {
            at.next_pool();
            continue;
        };
        let (first, last, transports) = pool.extent(transport, at.port);
        at.pass(last);
        // A block for several transports is returned with its first transport.
        let is_first = transports.iter().position(|&is| is) == Some(transport as usize);
        let owner = pool.block_owner(transport, place.address_ix, first).filter(|_| is_first);
        let Some(owner) = owner.and_then(|owner| tables.subscribers.get(owner)).map(|s| s.key()) else {
            continue;
        };
        budget = budget.saturating_sub(FOUND);
        let outside = pool.address(place.address_ix);
        let has_port = which.outside_port.is_none_or(|port| (first..=last).contains(&port));
        let owner = (
            owner.instance,
            Net6 { addr: Ipv6Addr::from(owner.prefix), len: report::subscriber_len(core, owner.instance) },
        );
        if which.transport.is_none_or(|t| *t.of(&transports))
            && has_port
            && which.has_subscriber(owner.0, owner.1)
        {
            found.push(BlockInfo { pool: place.pool, owner, outside, ports: (first, last), transports });
        }
    }
}

/// Adds subscribers with state to `found`, by number from `next` on. Of `which`, it applies inside address,
/// instance and pool. Returns the next number, or `None` at the end. Otherwise the same as [`sessions`].
pub(crate) fn subscribers(
    core: &Core,
    mut next: u32,
    which: &Selection,
    mut budget: usize,
    found: &mut Vec<SubscriberStats>,
) -> Option<u32> {
    let tables = &core.state.tables;
    while budget > 0 && has_room(found) {
        if next >= tables.subscribers.high() {
            return None;
        }
        budget = budget.saturating_sub(LOOK);
        if let Some(stats) = report::subscribers(core, next..next + 1).next() {
            budget = budget.saturating_sub(TOLD);
            let network = Net6 { addr: stats.inside, len: stats.inside_len };
            if which.has_subscriber(stats.instance, network)
                && which.pool.is_none_or(|number| number == tables.pool_of(stats.instance))
            {
                found.push(stats);
            }
        }
        next += 1;
    }
    Some(next)
}

/// Returns the public address and the transport at a cursor if they can match. Returns `None` if the cursor
/// had to move on, or is at the end.
fn address(tables: &Tables, at: &mut PortCursor, which: &Selection) -> Option<(PoolAddress, Transport)> {
    let pools = &tables.pools;
    let Some(pool) = pools.get(at.pool) else {
        at.done = true;
        return None;
    };
    if at.address >= pool.addresses() || which.pool.is_some_and(|number| number != at.pool) {
        at.next_pool();
        return None;
    }
    let place = PoolAddress { pool: at.pool, address_ix: pool.nth(at.address) };
    let address = pool.address(place.address_ix);
    if which.outside.is_some_and(|net| !net.contains(address)) {
        at.next_address();
        return None;
    }
    let Some(&transport) = Transport::ALL.get(usize::from(at.transport)) else {
        at.next_address();
        return None;
    };
    // Skips ahead to the requested port.
    if let Some(port) = which.outside_port.filter(|&port| at.port < port) {
        at.port = port;
    }
    Some((place, transport))
}
