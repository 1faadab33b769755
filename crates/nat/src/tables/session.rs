//! Session records: one cache line each, with all session data that a packet needs in either direction.
//!
//! ```text
//!   0  inside address (16)          X'
//!  16  remote address (4), inside port (2), remote port (2)      Z, x, z: one word, [`Flow`]
//!  24  outside address (4), outside port (2), address delta (2)  T, t
//!  32  expires (4), next (4), prev (4), subscriber (4)
//!  48  outside address number (4), kind, transport, instance, pool6, state, flags, epoch (2)
//!  60  check (4)
//! ```
//! Flags, from the lowest bit on: the session shares a port; its binding is static; two bits of [`Offload`];
//! two bits of [`Replica`]; the walk of the other member that has confirmed it last.
//! This is layout 2 of [`crate::kept`]. In layout 1, the second flag was a byte of its own at the place of
//! the epoch (decision 0037). `state` is a [`TcpState`], and established for sessions of other protocols; a
//! session that the state feed counts lacks a number of packets instead. A binding (RFC 6146's BIB entry) has
//! no record of its own: it is the ring of the sessions that share inside and outside transport addresses,
//! linked by `next` and `prev`; see [`crate::tables::bib`]. A static binding's ring contains a
//! [`Kind::Anchor`], which is not a session.

use crate::base::attribution::Party;
use crate::base::plan::Transport;
use crate::base::tcp_fsm::{TcpState, TimeoutAction, on_timeout};
use crate::base::time::Tick;
use crate::tables::prefixes::PrefixOwner;
use crate::tables::subscriber::SubscriberKey;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_mem::hash::Hasher64;
use gatun_wire::checksum::Delta;
use gatun_wire::hdr::{ipv4, ipv6};

/// Number of a record. Zero means none: record 0 is never used.
pub(crate) type RecordId = u32;

/// No record.
pub(crate) const NONE: RecordId = 0;

/// Use of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Free = 0,
    Session = 1,
    /// Anchor of a static binding.
    Anchor = 2,
    /// A session that has ended while a fast path or another member may have its flow: it keeps the public
    /// port.
    Quarantined = 3,
}

/// One session, or the anchor of a static binding.
#[derive(Clone, Copy, Debug, zerocopy::FromBytes)]
#[repr(C, align(64))]
pub(crate) struct Session {
    inside_addr: [u8; 16],
    flow: u64,
    outside_addr: u32,
    pub(crate) outside_port: u16,
    address_delta: u16,
    expires: u32,
    pub(crate) next: RecordId,
    pub(crate) prev: RecordId,
    pub(crate) subscriber: u32,
    pub(crate) address_ix: u32,
    kind: u8,
    transport: u8,
    pub(crate) instance: u8,
    pub(crate) pool6: u8,
    pub(crate) state: u8,
    flags: u8,
    /// [`Ownership::epoch`].
    epoch: u16,
    /// Checksum of the record's identity, see [`Session::is_whole`].
    pub(super) check: u32,
}

const _: () = assert!(size_of::<Session>() == 64);

const SHARES_PORT: u8 = 1;
const OF_STATIC: u8 = 2;
const OFFLOAD_AT: u32 = 2;
const REPLICA_AT: u32 = 4;
const WALK: u8 = 1 << 6;

/// State of an established session, of any protocol.
pub(crate) const ESTABLISHED: u8 = TcpState::Established as u8;
/// State of a session that is established for the state feed only after more packets, plus their number.
const COUNTING: u8 = 0x7f;

/// Owner of the translation of an established session's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Offload {
    /// The engine alone.
    #[default]
    Engine = 0,
    /// The session is being offloaded to a fast path, and waits for its packets that are still in the engine.
    Pending = 1,
    /// A fast path; the engine sees only the packets that the fast path passes on.
    Fast = 2,
    /// The session is being removed from a fast path. The port is free only after the removal.
    Draining = 3,
}

/// Relation of a session to the other member of a pair (decision 0102).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Replica {
    /// The other member does not know it.
    #[default]
    None = 0,
    /// The other member may know it: its public port stays reserved until that one has acknowledged the end.
    Told = 1,
    /// The other member translates it. It does not expire here before it has had a packet.
    Standby = 2,
}

/// The owner of a session among engines and fast paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// Generation of the ownership in which the session was opened; 0 if a single engine owns all sessions.
    pub epoch: u16,
    /// State of the offload to a fast path.
    pub offload: Offload,
}

/// Inside transport address of one instance: the key of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inside {
    pub(crate) addr: Ipv6Addr,
    pub(crate) port: u16,
    pub(crate) transport: Transport,
    pub(crate) instance: u8,
}

/// Remote address and both ports in the order of a packet from inside, as one word. It distinguishes the
/// sessions of an inside address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow(pub(crate) u64);

impl Flow {
    #[inline]
    pub(crate) fn new(inside_port: u16, remote: Endpoint4) -> Flow {
        let address = u64::from(u32::from(remote.0));
        Flow(address << 32 | u64::from(inside_port) << 16 | u64::from(remote.1))
    }

    #[inline]
    pub(crate) fn inside_port(self) -> u16 {
        (self.0 >> 16) as u16
    }

    #[inline]
    pub(crate) fn remote(self) -> Endpoint4 {
        (Ipv4Addr::from((self.0 >> 32) as u32), self.0 as u16)
    }
}

/// An IPv4 transport address: `(T, t)` outside or `(Z, z)` of a remote host.
pub(crate) type Endpoint4 = (Ipv4Addr, u16);

impl Session {
    /// Index of the 64-bit word that contains the kind. If this word is zero, the record is free.
    pub(crate) const KIND_WORD: usize = core::mem::offset_of!(Session, kind) / 8;

    /// Placeholder for a missing record.
    pub(crate) const EMPTY: Session = Session {
        inside_addr: [0; 16],
        flow: 0,
        outside_addr: 0,
        outside_port: 0,
        address_delta: 0,
        expires: 0,
        next: NONE,
        prev: NONE,
        subscriber: 0,
        address_ix: 0,
        kind: Kind::Free as u8,
        transport: 0,
        instance: 0,
        pool6: 0,
        state: 0,
        flags: 0,
        epoch: 0,
        check: 0,
    };

    /// Creates a record for `inside` with the outside end `outside` and the remote end `remote`.
    pub(crate) fn new(
        kind: Kind,
        inside: &Inside,
        outside: Endpoint4,
        address_ix: u32,
        remote: Endpoint4,
        subscriber: u32,
    ) -> Self {
        Session {
            inside_addr: inside.addr.octets(),
            flow: Flow::new(inside.port, remote).0,
            outside_addr: u32::from(outside.0),
            outside_port: outside.1,
            address_delta: 0,
            expires: 0,
            next: NONE,
            prev: NONE,
            subscriber,
            address_ix,
            kind: kind as u8,
            state: ESTABLISHED,
            transport: inside.transport as u8,
            instance: inside.instance,
            pool6: 0,
            flags: if kind == Kind::Anchor { OF_STATIC } else { 0 },
            epoch: 0,
            check: 0,
        }
    }

    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.kind == Kind::Free as u8
    }

    #[inline]
    pub(crate) fn is_session(&self) -> bool {
        self.kind == Kind::Session as u8
    }

    #[inline]
    pub(crate) fn is_anchor(&self) -> bool {
        self.kind == Kind::Anchor as u8
    }

    /// Sets whether it is one of the flows that share an outside port, which belong to no binding.
    pub(crate) fn set_overloaded(&mut self, overloaded: bool) {
        self.set_flag(SHARES_PORT, overloaded);
    }

    /// Returns whether it is one of the flows that share an outside port.
    #[inline]
    pub(crate) fn is_overloaded(&self) -> bool {
        self.flags & SHARES_PORT != 0
    }

    /// Returns whether its binding is a static one of the configuration.
    pub(crate) fn is_of_static(&self) -> bool {
        self.flags & OF_STATIC != 0
    }

    pub(crate) fn set_of_static(&mut self, of_static: bool) {
        self.set_flag(OF_STATIC, of_static);
    }

    #[inline]
    fn set_flag(&mut self, flag: u8, is_set: bool) {
        self.flags = self.flags & !flag | if is_set { flag } else { 0 };
    }

    /// Owner of the translation of its packets.
    pub(crate) fn ownership(&self) -> Ownership {
        let offload = match self.flags >> OFFLOAD_AT & 3 {
            0 => Offload::Engine,
            1 => Offload::Pending,
            2 => Offload::Fast,
            _ => Offload::Draining,
        };
        Ownership { epoch: self.epoch, offload }
    }

    pub(crate) fn set_ownership(&mut self, ownership: Ownership) {
        self.epoch = ownership.epoch;
        self.flags = self.flags & !(3 << OFFLOAD_AT) | (ownership.offload as u8) << OFFLOAD_AT;
    }

    /// Returns whether a fast path may have its flow.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.flags >> OFFLOAD_AT & 3 != Offload::Engine as u8
    }

    /// Relation to the other member.
    pub(crate) fn replica(&self) -> Replica {
        match self.flags >> REPLICA_AT & 3 {
            0 => Replica::None,
            1 => Replica::Told,
            _ => Replica::Standby,
        }
    }

    pub(crate) fn set_replica(&mut self, replica: Replica) {
        self.flags = self.flags & !(3 << REPLICA_AT) | (replica as u8) << REPLICA_AT;
    }

    /// Returns whether the other member may know it.
    #[inline]
    pub(crate) fn is_replicated(&self) -> bool {
        self.flags >> REPLICA_AT & 3 != Replica::None as u8
    }

    /// Returns whether only the other member has had packets of it.
    #[inline]
    pub(crate) fn is_standby(&self) -> bool {
        self.flags >> REPLICA_AT & 3 == Replica::Standby as u8
    }

    /// It has ended here: the other member has to hear of it, whoever began it.
    pub(crate) fn note_end(&mut self) {
        if self.is_standby() {
            self.set_replica(Replica::Told);
        }
    }

    /// Returns whether it only keeps the port of a session that the other member has: this member has another
    /// binding of the same inside end.
    pub(crate) fn is_reservation(&self) -> bool {
        self.is_quarantined() && self.is_standby()
    }

    /// Returns whether the walk with this parity has confirmed it.
    pub(crate) fn is_of_walk(&self, walk: bool) -> bool {
        (self.flags & WALK != 0) == walk
    }

    pub(crate) fn set_walk(&mut self, walk: bool) {
        self.set_flag(WALK, walk);
    }

    /// Returns whether it has ended, and keeps its public port for a fast path.
    #[inline]
    pub(crate) fn is_quarantined(&self) -> bool {
        self.kind == Kind::Quarantined as u8
    }

    /// Returns whether the next process has to know of it.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_session() || self.is_quarantined()
    }

    /// Ends it, but for its public port.
    pub(crate) fn quarantine(&mut self) {
        self.kind = Kind::Quarantined as u8;
    }

    #[inline]
    pub(crate) fn is_established(&self) -> bool {
        self.state == ESTABLISHED
    }

    /// State of a session that is established by `packets` more packets.
    pub(crate) const fn established_after(packets: u8) -> u8 {
        if packets == 0 { ESTABLISHED } else { COUNTING.saturating_add(packets) }
    }

    /// Makes it established by `packets` more packets.
    pub(crate) fn count_packets(&mut self, packets: u8) {
        self.state = Session::established_after(packets);
    }

    /// Returns whether it is established by more packets.
    #[inline(always)]
    pub(crate) fn is_counting(&self) -> bool {
        self.state > COUNTING
    }

    /// Counts a packet, if the session is counting. Returns whether the packet establishes the session.
    #[inline(always)]
    pub(crate) fn count_packet(&mut self) -> bool {
        if !self.is_counting() {
            return false;
        }
        self.state -= 1;
        if self.is_counting() {
            return false;
        }
        self.state = ESTABLISHED;
        true
    }

    /// Converts a record of layout 1 to the current layout.
    pub(crate) fn of_layout_1(self) -> Session {
        let [of_static, _spare] = self.epoch.to_ne_bytes();
        let shares_port = self.flags;
        let mut record = Session { flags: 0, epoch: 0, ..self };
        record.set_overloaded(shares_port != 0);
        record.set_of_static(of_static != 0);
        record
    }

    /// Returns the record as stored at `id`, as a ring of its own.
    #[inline]
    pub(crate) fn sealed(&self, id: RecordId) -> Self {
        Session { next: id, prev: id, check: self.sum(), ..*self }
    }

    /// Returns whether the record was written to the table completely. A process may have been killed
    /// half-way.
    pub(crate) fn is_whole(&self) -> bool {
        self.check == self.sum()
    }

    #[inline]
    fn sum(&self) -> u32 {
        let inside = u128::from_ne_bytes(self.inside_addr);
        let outside = u64::from(self.outside_addr) << 32 | u64::from(self.outside_port) << 16;
        let whose = u64::from(self.transport) << 8 | u64::from(self.instance);
        let all = inside as u64
            ^ ((inside >> 64) as u64).rotate_left(17)
            ^ self.flow.rotate_left(31)
            ^ (outside | whose).rotate_left(47);
        (all.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }

    #[inline]
    pub(crate) fn transport(&self) -> Transport {
        match self.transport {
            0 => Transport::Tcp,
            1 => Transport::Udp,
            _ => Transport::Icmp,
        }
    }

    /// State of a TCP session.
    #[inline]
    pub(crate) fn tcp_state(&self) -> TcpState {
        if self.is_counting() {
            return TcpState::Established;
        }
        TcpState::from_u8(self.state).unwrap_or(TcpState::Trans)
    }

    /// Returns whether it gets a probe before it is deleted at its timeout (RFC 6146 3.5.2.2).
    pub(crate) fn waits_for_probe(&self) -> bool {
        self.transport() == Transport::Tcp && on_timeout(self.tcp_state()) == TimeoutAction::Probe
    }

    /// Returns whether it can stay after its expiry: until its probe, until a fast path answers, or because
    /// another member has its packets.
    pub(crate) fn outlives_its_time(&self) -> bool {
        self.is_marked() || self.is_standby() || self.waits_for_probe()
    }

    /// Identity of the counters for its packets.
    #[inline(always)]
    pub(crate) fn party(&self) -> Party {
        Party { subscriber: self.subscriber, address_ix: self.address_ix, instance: self.instance }
    }

    #[inline]
    pub(crate) fn inside_addr(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.inside_addr)
    }

    #[inline]
    pub(crate) fn inside(&self) -> Inside {
        Inside {
            addr: self.inside_addr(),
            port: self.inside_port(),
            transport: self.transport(),
            instance: self.instance,
        }
    }

    #[inline]
    pub(crate) fn outside(&self) -> Endpoint4 {
        (Ipv4Addr::from(self.outside_addr), self.outside_port)
    }

    #[inline]
    pub(crate) fn remote(&self) -> Endpoint4 {
        Flow(self.flow).remote()
    }

    #[inline]
    pub(crate) fn inside_port(&self) -> u16 {
        Flow(self.flow).inside_port()
    }

    /// Returns whether this is the session of an IPv6 packet, by the packet's source and the values that the
    /// look-ahead has read.
    #[inline(always)]
    pub(crate) fn is_of(&self, packet: &[u8], flow: Flow, transport: Transport, owner: PrefixOwner) -> bool {
        let source = packet.get(ipv6::ADDRESSES..).and_then(|b| b.first_chunk::<16>());
        source.is_some_and(|source| self.is_from(u128::from_ne_bytes(*source), flow, transport, owner))
    }

    /// Same as [`is_of`](Self::is_of), for an IPv4 packet.
    #[inline(always)]
    pub(crate) fn is_of44(
        &self,
        packet: &[u8],
        flow: Flow,
        transport: Transport,
        owner: PrefixOwner,
    ) -> bool {
        // One read covers both ends: a slice of the rest would have its length checked again.
        let source = packet.first_chunk::<{ ipv4::ADDRESSES + 4 }>().and_then(|b| b.last_chunk::<4>());
        source.is_some_and(|source| {
            let mapped = 0xffff << 32 | u128::from(u32::from_be_bytes(*source));
            self.is_from(mapped.to_be(), flow, transport, owner)
        })
    }

    #[inline(always)]
    fn is_from(&self, source: u128, flow: Flow, transport: Transport, owner: PrefixOwner) -> bool {
        let what = [self.kind, self.transport, self.instance, self.pool6];
        (source == u128::from_ne_bytes(self.inside_addr))
            & (self.flow == flow.0)
            & (what == [Kind::Session as u8, transport as u8, owner.instance, owner.pool6])
    }

    /// Returns whether this is the session of a packet from `remote` to `outside`.
    #[inline(always)]
    pub(crate) fn is_at(&self, outside: Endpoint4, remote: Endpoint4, transport: Transport) -> bool {
        self.is_remote(remote)
            & (self.outside() == outside)
            & ([self.kind, self.transport] == [Kind::Session as u8, transport as u8])
    }

    /// Returns whether this is the session of `inside` with `remote`.
    #[inline]
    pub(crate) fn is(&self, inside: &Inside, remote: Endpoint4) -> bool {
        self.is_session() && self.is_remote(remote) && self.is_inside(inside)
    }

    #[inline]
    pub(crate) fn is_remote(&self, remote: Endpoint4) -> bool {
        // The ports between them belong to the binding.
        const REMOTE: u64 = 0xffff_ffff_0000_ffff;
        (self.flow ^ Flow::new(0, remote).0) & REMOTE == 0
    }

    /// Returns whether this record belongs to the binding of `inside`.
    #[inline]
    pub(crate) fn is_inside(&self, inside: &Inside) -> bool {
        (self.inside_addr == inside.addr.octets())
            & (self.inside_port() == inside.port)
            & (self.transport == inside.transport as u8)
            & (self.instance == inside.instance)
    }

    /// Checksum change of the addresses from inside form to outside form. Its inverse converts back.
    #[inline]
    pub(crate) fn address_delta(&self) -> Delta {
        Delta(self.address_delta)
    }

    pub(crate) fn set_pool6(&mut self, pool6: u8, delta: Delta) {
        self.pool6 = pool6;
        self.address_delta = delta.0;
    }

    #[inline]
    pub(crate) fn expires(&self) -> Tick {
        Tick(self.expires)
    }

    /// Shortens the life to `end` if that is earlier.
    pub(crate) fn live_no_longer_than(&mut self, end: Tick) {
        if !self.expires().has_come(end) {
            self.expires = end.0;
        }
    }

    /// Sets the end of life. It writes the line only if the value changes.
    #[inline]
    pub(crate) fn live_until(&mut self, tick: Tick) {
        if self.expires != tick.0 {
            self.expires = tick.0;
        }
    }
}

/// Keyed hashes of the look-ups, distinguished by their last word.
pub(crate) mod key {
    use super::*;

    const SESSION: u64 = 1 << 32;
    const BINDING: u64 = 2 << 32;
    const PEER: u64 = 3 << 32;
    const SUBSCRIBER: u64 = 4 << 32;
    const PAIR: u64 = 5 << 32;
    const FLOW: u64 = 6 << 32;

    #[inline(always)]
    fn hash(hasher: &Hasher64, inside: &Inside, remote: Endpoint4, what: u64) -> u64 {
        let addr = u128::from_ne_bytes(inside.addr.octets());
        let tail = what | u64::from(inside.instance) << 8 | inside.transport as u64;
        hasher.hash4([addr as u64, (addr >> 64) as u64, Flow::new(inside.port, remote).0, tail])
    }

    /// Hash of a session: inside and remote transport addresses.
    #[inline]
    pub(crate) fn session(hasher: &Hasher64, inside: &Inside, remote: Endpoint4) -> u64 {
        hash(hasher, inside, remote, SESSION)
    }

    /// Hash of a binding: the inside transport address.
    #[inline]
    pub(crate) fn binding(hasher: &Hasher64, inside: &Inside) -> u64 {
        hash(hasher, inside, (Ipv4Addr::UNSPECIFIED, 0), BINDING)
    }

    /// Hash of two outside addresses and a protocol.
    pub(crate) fn pair(hasher: &Hasher64, outside: Ipv4Addr, remote: Ipv4Addr, transport: Transport) -> u64 {
        let addresses = u64::from(u32::from(outside)) << 32 | u64::from(u32::from(remote));
        hasher.hash4([addresses, 0, 0, PAIR | transport as u64])
    }

    /// Hash of a flow of a shared port: outside and remote transport addresses.
    pub(crate) fn flow(
        hasher: &Hasher64,
        outside: Endpoint4,
        remote: Endpoint4,
        transport: Transport,
    ) -> u64 {
        let outside = Flow::new(0, outside).0;
        hasher.hash4([outside, 0, Flow::new(0, remote).0, FLOW | transport as u64])
    }

    /// Hash of a subscriber, which selects its first address of a pool.
    pub(crate) fn subscriber(hasher: &Hasher64, subscriber: SubscriberKey) -> u64 {
        let tail = SUBSCRIBER | u64::from(subscriber.instance);
        hasher.hash4([subscriber.prefix as u64, (subscriber.prefix >> 64) as u64, 0, tail])
    }

    /// Hash of a binding's peer address, whatever its port, for address-dependent filtering.
    #[inline]
    pub(crate) fn peer(hasher: &Hasher64, inside: &Inside, remote: Ipv4Addr) -> u64 {
        hash(hasher, inside, (remote, 0), PEER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Instant;

    #[test]
    fn a_lifetime_is_never_shorter_than_configured() {
        for now in [0u64, 1, 63, 64, 65, 1_000_003, (1 << 38) - 65, (1 << 38) - 1, 1 << 38, (1 << 38) + 1] {
            for lifetime in [1u32, 64, 2_000, 300_000] {
                let end = Tick::after(Instant(now), lifetime);
                let last = Instant(now + u64::from(lifetime) - 1);
                assert!(!end.has_come(Tick::at(last)), "still alive a millisecond before");
                assert!(end.has_come(Tick::at(Instant(now + u64::from(lifetime) + 64))));
                assert!(
                    (lifetime..lifetime + 64).contains(&end.left_ms(Instant(now))),
                    "the reported lifetime is not longer than the real one"
                );
                assert_eq!(end.left_ms(Instant(now + u64::from(lifetime) + 64)), 0);
            }
        }
    }
}
