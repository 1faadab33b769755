//! Bindings and sessions (RFC 6146 3.1): the tables, and the insertion and removal of entries.
//!
//! A binding is a ring of [`Session`] records that share their inside and outside transport addresses. One
//! record of the ring is its *primary*: the outside table (public address, port -> record) and the index of
//! bindings (inside transport address -> record) point to it. Most bindings have one session, so the way back
//! costs one array element and one record. Other sessions are found by their session key, which the primary
//! supplies.
//!
//! If an instance filters by address, sessions of one ring with the same remote address are adjacent. The
//! index of peers has one entry for each such group: its last session. The primary is also the last of its
//! group, so a session linked after it splits no group.
//!
//! Flows that share a port ([`overload`]) form rings of another kind.
//!
//! Invariants: a record is in `sessions` iff it is a session; `bindings` and the pool's outside table agree;
//! a port is allocated iff a ring exists for it.

mod close;
mod feed;
mod free;
pub(crate) mod info;
mod notify;
mod open;
mod overload;
mod port_draws;
mod preview;
mod quarantine;
pub(crate) mod restore;
mod standby;

use crate::base::attribution::{DatagramParties, Parties, Party};
use crate::base::build_error::BuildError;
use crate::base::counters::{Count, Traffic};
use crate::base::index::Index;
use crate::base::plan::sharding::Sharding;
use crate::base::plan::{Limits, Plan, Pool4, Transport};
use crate::base::rng::Rng;
use crate::base::time::Instant;
use crate::base::time::Tick;
use crate::tables::entry_counts::EntryCounts;
use crate::tables::event::{EventKind, Events};
use crate::tables::feed::{CountedSessions, Feed};
use crate::tables::inheritance::Inheritance;
use crate::tables::pool4::{Holdings, Pool4State};
use crate::tables::ports::address_map::AddressOwners;
use crate::tables::session::{Endpoint4, Inside, NONE, RecordId, Session, key};
use crate::tables::sizes::{filters_by_address, holds, record_room, records_max};
use crate::tables::standby::Standby;
use crate::tables::subscriber::{SubscriberKey, Subscribers};
use crate::tables::traffic::{Accounts, AddressTraffic, TrafficChange};
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use free::FreeRecords;
use gatun_mem::hash::Hasher64;
use gatun_mem::{Footprint, HugeVec};
use gatun_wire::DropReason;
pub(crate) use notify::Gauges;
use overload::Overload;
use port_draws::PortDraws;
pub(crate) use preview::SessionPreview;
use quarantine::{HELD, Quarantined};

/// Subscriber number of an anchor, which has no subscriber.
const NO_SUBSCRIBER: u32 = u32::MAX;

/// Outside address: its pool, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolAddress {
    pub(crate) pool: usize,
    pub(crate) address_ix: u32,
}

/// Request for a session from inside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionRequest {
    pub(crate) inside: Inside,
    pub(crate) remote: Endpoint4,
    pub(crate) subscriber: SubscriberKey,
    /// Record number of the most likely subscriber.
    pub(crate) known: Option<u32>,
    pub(crate) hashes: Hashes,
    /// Random numbers that choose the ports to try first for a new binding.
    pub(crate) draws: [u32; 2],
    /// Outside address and port to use if they are free: the destination of a held SYN.
    pub(crate) wanted: Option<Endpoint4>,
}

/// Hashes for the look-ups of an opening.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hashes {
    pub(crate) session: u64,
    pub(crate) binding: u64,
    pub(crate) subscriber: u64,
}

/// Limits, addresses and instances that the tables use, and the counts by instance.
pub(crate) struct TableRules {
    pub(crate) limits: Limits,
    pub(crate) addresses: AddressOwners,
    pub(crate) sharding: Option<Arc<Sharding>>,
    pub(crate) pool_of_instance: Vec<usize>,
    pub(crate) gauges: Gauges,
    pub(crate) traffic: TrafficChange,
    /// Indexed by instance.
    pub(crate) entries: Vec<EntryCounts>,
}

/// All bindings and sessions of one engine.
pub(crate) struct Tables {
    records: HugeVec<Session>,
    /// Placeholder for a missing record.
    no_record: Session,
    free: FreeRecords,
    sessions: Index,
    bindings: Index,
    /// One entry for each binding and remote address, only if an instance filters by address.
    peers: Option<Index>,
    overload: Option<Overload>,
    pub(crate) pools: Vec<Pool4State>,
    addresses: AddressOwners,
    /// Division among the shards of a cluster.
    pub(crate) sharding: Option<Arc<Sharding>>,
    pool_of_instance: Vec<usize>,
    pub(crate) subscribers: Subscribers,
    pub(crate) address_traffic: AddressTraffic,
    hasher: Hasher64,
    rng: Rng,
    draws: PortDraws,
    limits: Limits,
    sessions_made_for: u32,
    pub(crate) events: Events,
    /// The state feed, if there is a consumer.
    feed: Option<Box<Feed>>,
    /// Sessions that packets of the current burst have established by their number.
    counted: CountedSessions,
    quarantined: Quarantined,
    pub(crate) standby: Standby,
    /// Sessions of another process that are not restored yet.
    pub(crate) inheritance: Option<Box<Inheritance>>,
    gauges: Gauges,
    /// Indexed by instance.
    entries: Vec<EntryCounts>,
    /// Start time of the current burst or sweep.
    pub(crate) now: Instant,
}

impl Tables {
    pub(crate) fn new(
        plan: &Plan,
        hasher: Hasher64,
        mut rng: Rng,
        filters_by_address: bool,
        records: Option<HugeVec<Session>>,
    ) -> Result<Self, BuildError> {
        let stateful = plan.is_stateful();
        let records_max = records_max(plan);
        let subscribers_max = if stateful { plan.limits.subscribers_max } else { 0 };
        let pools = if stateful {
            let state = |(at, p): (usize, &Pool4)| {
                Pool4State::new(p, holds(plan, at)).map_err(|e| BuildError(format!("pool {:?}: {e}", p.name)))
            };
            plan.pools.iter().enumerate().map(state).collect::<Result<Vec<_>, _>>()?
        } else {
            Vec::new()
        };
        let records_len = record_room(plan);
        if records_len > HELD as usize {
            return Err(BuildError(format!("more than {HELD} sessions and static bindings")));
        }
        let bindings_max = (records_len - 1) as u32;
        let pool_of_instance: Vec<usize> = plan.pools_of_instances().collect();
        let rooms: Vec<u32> = pools.iter().map(Pool4State::room).collect();
        Ok(Tables {
            records: match records.filter(|records| records.len() == records_len) {
                Some(records) => records,
                None => HugeVec::new(records_len)?,
            },
            no_record: Session::EMPTY,
            free: FreeRecords::new(),
            sessions: Index::with_capacity(records_max)?,
            bindings: Index::with_capacity(bindings_max)?,
            peers: if filters_by_address { Some(Index::with_capacity(records_max)?) } else { None },
            overload: Overload::new(plan, records_max)?,
            addresses: AddressOwners::new(pools.iter().map(Pool4State::map))?,
            sharding: plan.sharding.clone(),
            pools,
            address_traffic: AddressTraffic::new(&rooms, &pool_of_instance)?,
            pool_of_instance,
            subscribers: Subscribers::new(subscribers_max, hasher)?,
            hasher,
            draws: PortDraws::new(&mut rng),
            rng,
            limits: plan.limits,
            sessions_made_for: if stateful { plan.limits.sessions_max } else { 0 },
            events: Events::new(&plan.events, hasher.hash4([0; 4]))?,
            feed: None,
            counted: CountedSessions::default(),
            quarantined: Quarantined::default(),
            standby: Standby::default(),
            inheritance: None,
            gauges: Gauges::new(plan),
            entries: vec![EntryCounts::default(); plan.pools_of_instances().count()],
            now: Instant::default(),
        })
    }

    /// Memory use of the records of [`Tables::new`] that are not in a file.
    pub(crate) fn record_footprint(plan: &Plan) -> Footprint {
        HugeVec::<Session>::footprint(record_room(plan))
    }

    /// Memory use of the records' indexes of [`Tables::new`].
    pub(crate) fn index_footprint(plan: &Plan) -> Footprint {
        let records_max = records_max(plan);
        let bindings_max = (record_room(plan) - 1) as u32;
        let indexes = if filters_by_address(plan) { 2 } else { 1 };
        Index::footprint(bindings_max)
            + Index::footprint(records_max) * indexes
            + Overload::footprint(plan, records_max)
    }

    /// Capacity of the tables: sessions, subscribers and static bindings.
    pub(crate) fn made_for(&self) -> [u32; 3] {
        let records = u32::try_from(self.records.len()).unwrap_or(u32::MAX).saturating_sub(1);
        [self.sessions_made_for, self.subscribers.made_for(), records.saturating_sub(self.sessions_made_for)]
    }

    /// Replaces limits, addresses and instances; returns the previous ones.
    pub(crate) fn swap_rules(&mut self, rules: &mut TableRules) {
        core::mem::swap(&mut self.limits, &mut rules.limits);
        core::mem::swap(&mut self.addresses, &mut rules.addresses);
        core::mem::swap(&mut self.sharding, &mut rules.sharding);
        core::mem::swap(&mut self.pool_of_instance, &mut rules.pool_of_instance);
        rules.traffic.apply(&mut self.address_traffic);
        core::mem::swap(&mut self.gauges, &mut rules.gauges);
        // Counts carry over, because the numbers of instances stay the same.
        rules.entries.iter_mut().zip(&self.entries).for_each(|(new, old)| *new = *old);
        core::mem::swap(&mut self.entries, &mut rules.entries);
        self.subscribers.set_max(self.limits.subscribers_max);
    }

    /// Returns the record `id`, as [`get_mut`](Self::get_mut) does, with the counters of its packets.
    #[inline(always)]
    pub(crate) fn with_accounts(&mut self, id: RecordId) -> (&mut Session, Accounts<'_>) {
        let Tables { records, no_record, subscribers, address_traffic, counted, .. } = self;
        let session = records.get_mut(id as usize).unwrap_or(no_record);
        (session, Accounts { id, subscribers, addresses: address_traffic, counted })
    }

    /// Stores the inside hosts of a datagram, so that its later fragments find them.
    pub(crate) fn keep_parties(&self, parties: Parties) -> DatagramParties {
        let mark = |party: Option<Party>| self.subscribers.mark(party?.subscriber);
        DatagramParties { parties, marks: [mark(parties.sender), mark(parties.receiver)] }
    }

    /// Returns the stored inside hosts of a datagram. If a subscriber no longer exists, its host has none,
    /// even if another subscriber has the number now.
    pub(crate) fn kept_parties(&self, kept: &DatagramParties) -> Parties {
        let [sender, receiver] = kept.marks;
        let current = |party: Option<Party>, mark: Option<u32>| {
            let party = party?;
            let is_same = self.subscribers.mark(party.subscriber) == mark;
            Some(Party { subscriber: if is_same { party.subscriber } else { NO_SUBSCRIBER }, ..party })
        };
        Parties {
            sender: current(kept.parties.sender, sender),
            receiver: current(kept.parties.receiver, receiver),
        }
    }

    /// Counts packets for the pool of an instance.
    pub(crate) fn count_pooled(&mut self, instance: usize, traffic: Traffic) {
        let pool = self.pool_of_instance.get(instance).and_then(|&pool| self.pools.get_mut(pool));
        pool.into_iter().for_each(|pool| *pool.traffic_mut() += traffic);
    }

    /// Counts a packet of the slow path for its inside hosts, their public addresses and pools.
    pub(crate) fn count_for(&mut self, parties: &Parties, bytes: usize) {
        let (one, none) = (Count::one(bytes), Count::default());
        let sent = parties.sender.map(|of| (of, Traffic { outbound: one, inbound: none }));
        let got = parties.receiver.map(|of| (of, Traffic { outbound: none, inbound: one }));
        for (of, traffic) in sent.into_iter().chain(got) {
            // A static binding without a session has no subscriber.
            if of.subscriber != NO_SUBSCRIBER {
                *self.subscribers.traffic_mut(of.subscriber) += traffic;
            }
            *self.address_traffic.of(of) += traffic;
            self.count_pooled(of.instance.into(), traffic);
        }
    }

    pub(crate) fn hasher(&self) -> &Hasher64 {
        &self.hasher
    }

    /// Returns the record `id`; record zero is always free.
    #[inline]
    pub(crate) fn get(&self, id: RecordId) -> &Session {
        self.records.get(id as usize).or(self.records.first()).unwrap_or(&self.no_record)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: RecordId) -> &mut Session {
        let id = if (id as usize) < self.records.len() { id as usize } else { 0 };
        self.records.get_mut(id).unwrap_or(&mut self.no_record)
    }

    /// Current number of sessions, without the anchors of static bindings.
    pub(crate) fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Current number of bindings.
    pub(crate) fn binding_count(&self) -> usize {
        self.bindings.len()
    }

    /// Sessions and bindings of one instance.
    pub(crate) fn entries(&self, instance: usize) -> EntryCounts {
        self.entries.get(instance).copied().unwrap_or_default()
    }

    /// Number of subscribers with state, over all instances that use a pool.
    pub(crate) fn subscribers_of(&self, pool: usize) -> u32 {
        let users = (0..=u8::MAX).zip(&self.pool_of_instance).filter(|(_, used)| **used == pool);
        users.map(|(instance, _)| self.subscribers.of_instance(instance)).sum()
    }

    /// Upper bound of the numbers of records in use: a sweep looks at the records from 1 to below it.
    pub(crate) fn high(&self) -> RecordId {
        self.free.high()
    }

    #[inline]
    pub(crate) fn session_hash(&self, inside: &Inside, remote: Endpoint4) -> u64 {
        key::session(&self.hasher, inside, remote)
    }

    /// Hash of two outside addresses and a protocol, which selects the IPv4 identification (RFC 6864 4).
    #[inline]
    pub(crate) fn pair_hash(&self, outside: Ipv4Addr, remote: Ipv4Addr, transport: Transport) -> u64 {
        key::pair(&self.hasher, outside, remote, transport)
    }

    /// Prefetches the first cache line of a look-up of this hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.sessions.prefetch(hash);
    }

    /// Returns the record that a look-up of this hash most likely finds.
    #[inline(always)]
    pub(crate) fn candidate(&self, hash: u64) -> RecordId {
        self.sessions.candidate(hash).unwrap_or(NONE)
    }

    /// Hashes for a session of `inside` that may be opened; `session` is the hash of the session.
    #[inline]
    pub(crate) fn request_hashes(&self, inside: &Inside, subscriber: SubscriberKey, session: u64) -> Hashes {
        let binding = key::binding(&self.hasher, inside);
        Hashes { session, binding, subscriber: self.subscribers.hash(subscriber) }
    }

    /// Request for a session that may be opened; `session` is its hash.
    #[inline(always)]
    pub(crate) fn session_request(
        &self,
        inside: Inside,
        remote: Endpoint4,
        subscriber: SubscriberKey,
        session: u64,
    ) -> SessionRequest {
        let hashes = self.request_hashes(&inside, subscriber, session);
        let draws = self.draws.of(hashes.binding);
        SessionRequest { inside, remote, subscriber, known: None, hashes, draws, wanted: None }
    }

    /// Prefetches the index line of the binding that such a session may have.
    #[inline]
    pub(crate) fn prefetch_binding_of(&self, hashes: &Hashes) {
        self.bindings.prefetch(hashes.binding);
    }

    /// Prefetches the line that tells if the most likely port is free, for a known subscriber.
    #[inline]
    pub(crate) fn prefetch_port(&self, o: &SessionRequest) {
        if let Some((pool, holdings)) = self.allocates(o) {
            pool.prefetch_port(o.inside.transport, holdings, o.inside.port, o.draws);
        }
    }

    /// Prefetches that port's place in the outside table, once the line of
    /// [`prefetch_port`](Self::prefetch_port) is there.
    #[inline]
    pub(crate) fn prefetch_outside(&self, o: &SessionRequest) {
        if let Some((pool, holdings)) = self.allocates(o) {
            pool.prefetch_outside(o.inside.transport, holdings, o.inside.port, o.draws);
        }
    }

    /// Returns the source of a subscriber's next port.
    #[inline]
    fn allocates(&self, o: &SessionRequest) -> Option<(&Pool4State, &Holdings)> {
        let subscriber = self.subscribers.get(o.known?)?;
        Some((self.pools.get(self.pool_of(o.inside.instance))?, &subscriber.holdings))
    }

    /// Prefetches the lines that the end of a session touches.
    pub(crate) fn prefetch_end(&self, id: RecordId) {
        let session = self.get(id);
        let inside = session.inside();
        self.sessions.prefetch(self.session_hash(&inside, session.remote()));
        self.bindings.prefetch(key::binding(&self.hasher, &inside));
        self.prefetch_release(session);
    }

    /// Prefetches the lines that the release of a record's port touches.
    pub(crate) fn prefetch_release(&self, session: &Session) {
        self.subscribers.prefetch(session.subscriber);
        let place = PoolAddress { pool: self.pool_of(session.instance), address_ix: session.address_ix };
        if let Some(pool) = self.pools.get(place.pool) {
            pool.prefetch_release(session.transport(), place.address_ix, session.outside_port);
        }
    }

    /// Returns whether the counters of all subscribers may exceed a processor's own cache.
    #[inline]
    pub(crate) fn has_many_subscribers(&self) -> bool {
        self.subscribers.len() > 4096
    }

    /// Prefetches the counters of the subscriber of a record's session.
    #[inline]
    pub(crate) fn prefetch_accounts(&self, id: RecordId) {
        self.subscribers.prefetch_traffic(self.get(id).subscriber);
    }

    /// Prefetches a record.
    #[inline]
    pub(crate) fn prefetch_record(&self, id: RecordId) {
        gatun_mem::prefetch_read(&self.records, id as usize);
    }

    #[inline(always)]
    pub(crate) fn find_session(&self, hash: u64, inside: Inside, remote: Endpoint4) -> Option<RecordId> {
        self.sessions.find(hash, move |id| self.get(id).is(&inside, remote))
    }

    /// Returns the primary record of the binding of `inside`.
    pub(crate) fn binding_of(&self, inside: &Inside) -> Option<RecordId> {
        self.binding_by(key::binding(&self.hasher, inside), inside)
    }

    /// Same as [`binding_of`](Self::binding_of), with a known hash.
    #[inline]
    fn binding_by(&self, hash: u64, inside: &Inside) -> Option<RecordId> {
        self.bindings.find(hash, |id| !self.get(id).is_free() && self.get(id).is_inside(inside))
    }

    /// Returns pool and number of an IPv4 address, if it is in a pool.
    #[inline(always)]
    pub(crate) fn locate(&self, address: Ipv4Addr) -> Option<PoolAddress> {
        self.addresses.find(address).map(|(pool, address_ix)| PoolAddress { pool, address_ix })
    }

    /// Same as [`locate`](Self::locate), for the destination of a packet from inside that returns to the
    /// inside here. In a cluster, another node may have the address.
    #[inline(always)]
    pub(crate) fn locate_hairpin(&self, address: Ipv4Addr) -> Option<PoolAddress> {
        self.locate(address).filter(|_| !self.is_elsewhere(address))
    }

    /// Returns the primary record of the binding at an outside address and port.
    #[inline]
    pub(crate) fn binding_at(&self, place: PoolAddress, transport: Transport, port: u16) -> Option<RecordId> {
        let id = self.pools.get(place.pool)?.binding(transport, place.address_ix, port);
        // None, or held by quarantined records.
        (id != NONE && id & HELD == 0).then_some(id)
    }

    /// Prefetches the outside table's line.
    #[inline]
    pub(crate) fn prefetch_binding(&self, place: PoolAddress, transport: Transport, port: u16) {
        if let Some(pool) = self.pools.get(place.pool) {
            pool.prefetch_binding(transport, place.address_ix, port);
        }
    }

    /// Returns whether a port of a pool address belongs to the pool; other ports may be the host's own.
    pub(crate) fn covers(&self, place: PoolAddress, transport: Transport, port: u16) -> bool {
        self.pools.get(place.pool).is_some_and(|p| p.covers(transport, place.address_ix, port))
    }

    /// Returns the session with `remote` of the binding whose primary record is `primary`.
    #[inline(always)]
    pub(crate) fn session_of_binding(&self, primary: RecordId, remote: Endpoint4) -> Option<RecordId> {
        let first = self.get(primary);
        if first.is_session() && first.is_remote(remote) {
            return Some(primary);
        }
        self.further_session(primary, remote)
    }

    /// Same as [`session_of_binding`](Self::session_of_binding), for a binding that has several sessions.
    /// With shared ports, the session may be a flow of the same inside end: it has sent to `remote`, and
    /// RFC 4787 5 filters by the two ends.
    #[inline(never)]
    fn further_session(&self, primary: RecordId, remote: Endpoint4) -> Option<RecordId> {
        let first = self.get(primary);
        if first.next == primary && self.overload.is_none() {
            return None;
        }
        if first.is_overloaded() {
            return self.find_flow(first.outside(), remote, first.transport());
        }
        let inside = first.inside();
        self.find_session(self.session_hash(&inside, remote), inside, remote)
    }

    /// Returns the time at which a session's binding would end without the session: with the last of its
    /// other sessions. Returns `None` if the binding would not end because it is static, or if it has no
    /// other session. If there are many sessions, it looks at the newest ones only, so the returned time may
    /// be too early.
    pub(crate) fn end_without(&self, id: RecordId) -> Option<Tick> {
        const LOOKED_AT: usize = 32;
        if self.get(id).is_of_static() {
            return None;
        }
        let (mut at, mut end): (RecordId, Option<Tick>) = (self.get(id).next, None);
        for _ in 0..LOOKED_AT {
            let record = self.get(at);
            if at == id {
                break;
            }
            if !record.is_quarantined() {
                end = Some(end.map_or(record.expires(), |end| end.later(record.expires())));
            }
            at = record.next;
        }
        end
    }

    /// Finds a session of the binding of `inside` with `remote`, whatever the port. Filtering by address uses
    /// it.
    pub(crate) fn find_peer(&self, inside: &Inside, remote: Ipv4Addr) -> Option<RecordId> {
        let peers = self.peers.as_ref()?;
        peers.find(key::peer(&self.hasher, inside, remote), |id| {
            let s = self.get(id);
            s.is_session() && s.remote().0 == remote && s.is_inside(inside)
        })
    }

    pub(crate) fn pool_of(&self, instance: u8) -> usize {
        self.pool_of_instance.get(usize::from(instance)).copied().unwrap_or(0)
    }

    /// Ends port blocks that have lingered, and the hold-down of returned ports and blocks, at most `budget`
    /// of each. Returns whether any still waits.
    pub(crate) fn expire_ports(&mut self, budget: usize) -> bool {
        let mut waiting = false;
        for (number, pool) in self.pools.iter_mut().enumerate() {
            let ends = feed::end_budget(&mut self.events, &mut self.feed, self.now, budget);
            waiting |= ends < budget;
            for _ in 0..ends {
                let Some(owner) = pool.lingered(self.now) else { break };
                // A subscriber with a block keeps its record.
                if let Some(s) = self.subscribers.get_mut(owner)
                    && let Some(block) = pool.end_lingering(self.now, &mut s.holdings)
                {
                    let address = pool.address(block.address_ix);
                    feed::block(&mut self.feed, EventKind::BlockReleased, s.key(), address, &block);
                    if self.events.wants(EventKind::BlockReleased) {
                        let event = notify::block(EventKind::BlockReleased, number, s.key(), address, &block);
                        self.events.push(event);
                    }
                }
                self.subscribers.release_if_idle(owner);
            }
            waiting |= pool.expire(self.now, budget);
        }
        waiting
    }

    /// Checks if another session fits. There are more records than sessions: the rest is for static bindings
    /// added while the engine runs, or remains from a higher limit.
    fn room(&self) -> Result<(), DropReason> {
        if self.sessions.len() >= self.limits.sessions_max as usize || !self.free.is_some(&self.records) {
            return Err(DropReason::SessionTableFull);
        }
        Ok(())
    }

    /// Checks if there is room for another session of a subscriber with this many. The last part of the table
    /// is reserved, so that a few greedy subscribers do not lock out all others.
    fn room_for(&self, sessions: u32) -> Result<(), DropReason> {
        let limits = &self.limits;
        if sessions < limits.sessions_reserved_below
            || self.sessions.len() < limits.sessions_for_all() as usize
        {
            return Ok(());
        }
        Err(DropReason::SessionTableReserved)
    }

    /// Puts a record into a ring and into all tables. If `primary` is none, the record is a new binding whose
    /// port is already allocated. A number with [`HELD`] is that of a quarantined record of the same inside
    /// end. On `Err`, the port of a new binding has been released.
    fn insert(
        &mut self,
        record: &Session,
        primary: Option<RecordId>,
        hashes: Hashes,
    ) -> Result<RecordId, DropReason> {
        let id = self.free.take(&self.records).ok_or(DropReason::SessionTableFull)?;
        *self.get_mut(id) = record.sealed(id);
        if let Some(s) = self.subscribers.get_mut(record.subscriber) {
            s.sessions += 1;
        }
        // Quarantined records of an inside end that gets its binding back.
        let held = primary.filter(|&primary| primary & HELD != 0);
        let new_binding = primary.is_none() || held.is_some();
        match primary {
            Some(primary) if held.is_none() => self.link_into_ring(id, primary),
            _ => self.point_outside(record, id),
        }
        if let Some(held) = held {
            self.link_after(id, held & !HELD);
        }
        self.notify_created(record, new_binding);
        if let Err(reason) = self.enter(id, record, new_binding, hashes) {
            self.unlink(id, primary.is_some());
            return Err(reason);
        }
        self.check_fuller(record);
        Ok(id)
    }

    /// Enters a linked record into the indexes.
    fn enter(
        &mut self,
        id: RecordId,
        record: &Session,
        new_binding: bool,
        hashes: Hashes,
    ) -> Result<(), DropReason> {
        if record.is_session() {
            self.sessions.insert(hashes.session, id).map_err(|_| DropReason::SessionTableFull)?;
            if record.is_overloaded() {
                return self.enter_flow(id, record, new_binding).map_err(|_| DropReason::SessionTableFull);
            }
            self.enter_peer(id, record)?;
        }
        if new_binding {
            self.bindings.insert(hashes.binding, id).map_err(|_| DropReason::SessionTableFull)?;
        }
        Ok(())
    }

    /// Enters a session that is its binding's first one with its remote address.
    fn enter_peer(&mut self, id: RecordId, record: &Session) -> Result<(), DropReason> {
        if self.peers.is_none() {
            return Ok(());
        }
        let (inside, remote) = (record.inside(), record.remote().0);
        if self.find_peer(&inside, remote).is_none()
            && let Some(peers) = &mut self.peers
        {
            let hash = key::peer(&self.hasher, &inside, remote);
            peers.insert(hash, id).map_err(|_| DropReason::SessionTableFull)?;
        }
        Ok(())
    }

    /// Links `id` before the last session with the same remote address if there is one, otherwise after the
    /// primary. A session replaces an anchor as primary.
    fn link_into_ring(&mut self, id: RecordId, primary: RecordId) {
        let record = *self.get(id);
        let peer = || self.find_peer(&record.inside(), record.remote().0);
        let last = if record.is_overloaded() { None } else { peer() };
        let (prev, next) = match last {
            Some(last) => (self.get(last).prev, last),
            None => (primary, self.get(primary).next),
        };
        // Quarantined records stay directly behind the primary.
        let leads = last.is_none() && self.get(next).is_quarantined();
        let follows = self.get(self.get(primary).next).is_quarantined();
        self.get_mut(prev).next = id;
        self.get_mut(next).prev = id;
        let of_static = self.get(primary).is_of_static();
        let new = self.get_mut(id);
        new.prev = prev;
        new.next = next;
        new.set_of_static(of_static);
        let is_behind_anchor = self.get(primary).is_anchor() && record.is_session();
        if leads || is_behind_anchor && !(follows && last.is_some()) {
            // The primary is the last of its group. Otherwise a record linked after it later would split the
            // group.
            self.make_primary(primary, last.unwrap_or(id));
        }
    }

    /// Points the pool's outside table at the address and port of `of` to the record `to`.
    fn point_outside(&mut self, of: &Session, to: RecordId) {
        let pool = self.pool_of(of.instance);
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.set_binding(of.transport(), of.address_ix, of.outside_port, to);
        }
    }

    fn make_primary(&mut self, old: RecordId, new: RecordId) {
        let hash = key::binding(&self.hasher, &self.get(old).inside());
        self.bindings.replace(hash, old, new);
        let record = *self.get(new);
        self.point_outside(&record, new);
    }
}
