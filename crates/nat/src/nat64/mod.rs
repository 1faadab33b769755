//! Stateful NAT64 (RFC 6146): what is decided for IPv6 and IPv4 packets of one instance.
//!
//! - [`six_to_four`] and [`four_to_six`]: queries (TCP, UDP, echo), in the RFC's three steps: filter and
//!   update, compute the outgoing tuple, translate.
//! - [`icmp`]: ICMP errors, which find a binding by the packet inside them and change no state.
//! - [`hairpin`]: from inside to inside (RFC 6146 3.8).
//! - [`fragments`]: datagrams in pieces (RFC 6146 3.4).

pub(crate) mod filter;
pub(crate) mod four_to_six;
pub(crate) mod fragments;
pub(crate) mod hairpin;
pub(crate) mod icmp;
pub(crate) mod six_to_four;

use crate::bib::Tables;
use crate::plan::{self, Filtering, IcmpErrorSource, Net6, Timeouts, Transport};
use crate::session::{Inside, RecordId, Session, Tick};
use crate::special;
use crate::subscriber::SubscriberKey;
use crate::tcp_fsm::{self, Lifetime, OnTimeout, Segment, Side};
use crate::time::Instant;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::rfc7915::address_delta_6to4;
use gatun_wire::{DropReason, Ipv6View, L4, Ports, Prefix64, Settings, To4, To6};

/// One instance, made ready from its plan.
pub(crate) struct Nat64 {
    /// Its number among the instances: part of every key.
    pub(crate) index: u8,
    pub(crate) pool6: Vec<Prefix64>,
    /// The prefixes of all instances: no source lies in one.
    pool6_of_all: Vec<Prefix64>,
    sources: Vec<Net6>,
    filtering: Filtering,
    external_tcp: bool,
    wkp_non_global: bool,
    icmp_error_source: IcmpErrorSource,
    pub(crate) inbound_refresh: bool,
    rst_during_fin: bool,
    icmp_queries: bool,
    subscriber_len: u8,
    timeouts: Timeouts,
    pub(crate) settings: Settings,
}

/// A query as state sees it: protocol, ports (identifiers), and the TCP segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub(crate) transport: Transport,
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
    /// The flags byte of TCP; zero else.
    pub(crate) flags: u8,
    /// An echo reply, which opens nothing.
    pub(crate) is_reply: bool,
}

impl Query {
    /// The query that a transport header is, of a packet from inside (`outbound`) or from outside.
    /// An echo message has one identifier: it is the inside's port (RFC 6146 3.5.3).
    #[inline]
    pub(crate) fn of(l4: L4, outbound: bool) -> Option<Query> {
        let query = |transport, src_port, dst_port, flags, is_reply| {
            Some(Query { transport, src_port, dst_port, flags, is_reply })
        };
        match l4 {
            L4::Tcp { src_port, dst_port, flags } => query(Transport::Tcp, src_port, dst_port, flags, false),
            L4::Udp { src_port, dst_port, .. } => query(Transport::Udp, src_port, dst_port, 0, false),
            L4::Echo { request, id } if outbound => query(Transport::Icmp, id, 0, 0, !request),
            L4::Echo { request, id } => query(Transport::Icmp, 0, id, 0, !request),
            _ => None,
        }
    }
}

/// A packet from inside. It goes by value to what is not inlined: a reference would put it in memory for
/// every packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct From6 {
    pub(crate) view: Ipv6View,
    pub(crate) l4: L4,
    /// Number of the instance.
    pub(crate) instance: u8,
    /// Number of the instance's prefix that the destination lies in.
    pub(crate) pool6: u8,
}

impl Nat64 {
    /// Instance number `index` of `all`.
    pub(crate) fn new(index: u8, plan: &plan::Nat64, all: &[plan::Nat64]) -> Self {
        Nat64 {
            index,
            pool6: plan.pool6.clone(),
            pool6_of_all: all.iter().flat_map(|n| n.pool6.iter().copied()).collect(),
            sources: plan.sources.clone(),
            filtering: plan.filtering,
            external_tcp: plan.external_tcp,
            wkp_non_global: plan.wkp_non_global,
            icmp_error_source: plan.icmp_error_source,
            inbound_refresh: plan.inbound_refresh,
            rst_during_fin: plan.rst_during_fin,
            icmp_queries: plan.icmp_queries,
            subscriber_len: plan.subscriber_len,
            timeouts: plan.timeouts,
            settings: plan.settings,
        }
    }

    /// The prefix number `pool6`; a session of a prefix that is gone uses the first.
    #[inline]
    pub(crate) fn prefix(&self, pool6: u8) -> &Prefix64 {
        let prefix = self.pool6.get(usize::from(pool6)).or(self.pool6.first());
        prefix.unwrap_or(&Prefix64::WELL_KNOWN)
    }

    /// Which of the instance's prefixes an address lies in: the longest one.
    #[inline]
    pub(crate) fn prefix_of(&self, address: Ipv6Addr) -> Option<u8> {
        let mut best: Option<(u8, u8)> = None;
        for (i, p) in self.pool6.iter().enumerate() {
            if p.contains(address) && best.is_none_or(|(_, len)| p.len() > len) {
                best = Some((i as u8, p.len()));
            }
        }
        best.map(|(i, _)| i)
    }

    /// The unit that quotas and pairing count by.
    #[inline]
    pub(crate) fn subscriber(&self, inside: Ipv6Addr) -> SubscriberKey {
        let host_bits = u128::MAX.checked_shr(u32::from(self.subscriber_len)).unwrap_or(0);
        SubscriberKey { prefix: u128::from(inside) & !host_bits, instance: self.index }
    }

    /// Whether an IPv6 source may use this instance.
    #[inline]
    pub(crate) fn check_source(&self, src: Ipv6Addr) -> Result<(), DropReason> {
        self.check_origin(src)?;
        if !self.sources.is_empty() && !self.sources.iter().any(|n| n.contains(src)) {
            return Err(DropReason::SourceNotAllowed);
        }
        Ok(())
    }

    /// Whether a packet may come from an IPv6 address at all. Errors come from routers too, which no list
    /// of sources names.
    #[inline]
    fn check_origin(&self, src: Ipv6Addr) -> Result<(), DropReason> {
        // RFC 6146 3.5: a source inside a prefix is a packet that already went round.
        if self.pool6_of_all.iter().any(|p| p.contains(src)) {
            return Err(DropReason::SourceInPool6);
        }
        if special::illegal_source6(src) {
            return Err(DropReason::SourceMartian);
        }
        Ok(())
    }

    /// Whether an IPv4 address may stand behind the prefix `pool6` (RFC 6052 3.1).
    fn check_embedded(&self, pool6: u8, v4: Ipv4Addr) -> Result<(), DropReason> {
        if !self.wkp_non_global && special::well_known_non_global(self.prefix(pool6), v4) {
            return Err(DropReason::WellKnownNonGlobal);
        }
        Ok(())
    }

    /// How long a session lives from now on, by its protocol.
    #[inline]
    fn lifetime_ms(&self, transport: Transport, lifetime: Lifetime) -> Option<u32> {
        match (transport, lifetime) {
            (_, Lifetime::Keep) => None,
            (Transport::Udp | Transport::Icmp, _) | (Transport::Tcp, Lifetime::Established) => {
                Some(self.established_ms(transport))
            }
            (Transport::Tcp, Lifetime::Transitory) => Some(self.timeouts.tcp_transitory_ms),
            (Transport::Tcp, Lifetime::IncomingSyn) => Some(self.timeouts.tcp_incoming_syn_ms),
        }
    }

    /// How long a session lives that nothing is known of but that it is in use.
    #[inline]
    pub(crate) fn established_ms(&self, transport: Transport) -> u32 {
        match transport {
            Transport::Tcp => self.timeouts.tcp_established_ms,
            Transport::Udp => self.timeouts.udp_ms,
            Transport::Icmp => self.timeouts.icmp_ms,
        }
    }

    /// What a packet does to its session: RFC 6146 3.5.1 for UDP, 3.5.2.2 for TCP, 3.5.3 for ICMP.
    #[inline(always)]
    fn update(&self, session: &mut Session, side: Side, query: &Query, now: Instant) {
        let lifetime = if query.transport == Transport::Tcp {
            self.update_tcp(session, side, query.flags)
        } else if side == Side::V6 || self.inbound_refresh {
            Lifetime::Established
        } else {
            Lifetime::Keep
        };
        if let Some(ms) = self.lifetime_ms(query.transport, lifetime) {
            session.live_until(Tick::after(now, ms));
        }
    }

    fn update_tcp(&self, session: &mut Session, side: Side, flags: u8) -> Lifetime {
        let state = session.tcp_state();
        let (next, lifetime) =
            tcp_fsm::step(state, side, tcp_fsm::classify_existing(flags), self.rst_during_fin);
        if next != state {
            session.state = next as u8;
        }
        lifetime
    }

    /// The first state of a session that a packet from `side` opened.
    fn begin(&self, session: &mut Session, side: Side, transport: Transport, now: Instant) {
        let lifetime = if transport == Transport::Tcp {
            let (state, lifetime) = tcp_fsm::open(side);
            session.state = state as u8;
            lifetime
        } else {
            Lifetime::Established
        };
        if let Some(ms) = self.lifetime_ms(transport, lifetime) {
            session.live_until(Tick::after(now, ms));
        }
    }

    /// Whether a session whose time is up lives on for this packet's sake; ends it where not.
    ///
    /// The sweep comes round only now and then, so a packet may find a session first. An established
    /// connection goes to TRANS then, as if the sweep had come: this packet is the sign of life that
    /// the probe of RFC 6146 3.5.2.2 asks for.
    #[cold]
    fn outlive(&self, tables: &mut Tables, id: RecordId, now: Instant) -> bool {
        let session = tables.get_mut(id);
        if session.transport() == Transport::Tcp
            && tcp_fsm::on_timeout(session.tcp_state()) == OnTimeout::Probe
        {
            self.after_probe(session, now);
            return true;
        }
        tables.close(id);
        false
    }

    /// RFC 6146 3.5.2.2: an established connection whose time is up goes to TRANS.
    pub(crate) fn after_probe(&self, session: &mut Session, now: Instant) {
        let (state, lifetime) = tcp_fsm::after_probe();
        session.state = state as u8;
        if let Some(ms) = self.lifetime_ms(Transport::Tcp, lifetime) {
            session.live_until(Tick::after(now, ms));
        }
    }

    /// A session that a look-up found, if it is still alive at `now`.
    #[inline(always)]
    fn alive(&self, tables: &mut Tables, found: Option<RecordId>, now: Instant) -> Option<RecordId> {
        let id = found?;
        if !tables.get(id).expires().has_come(Tick::at(now)) || self.outlive(tables, id, now) {
            return Some(id);
        }
        None
    }

    /// Whether a TCP packet without a session may open one.
    fn may_open(query: &Query) -> Result<bool, DropReason> {
        match query.transport {
            Transport::Tcp => Ok(tcp_fsm::classify(query.flags)? == Segment::Syn),
            Transport::Icmp => Ok(!query.is_reply),
            Transport::Udp => Ok(true),
        }
    }
}

/// The IPv4 form of a packet of this session, whose transport the caller knows.
#[inline(always)]
pub(crate) fn outbound_of(session: &Session, transport: Transport) -> To4 {
    let (src, src_port) = session.outside();
    let (dst, dst_port) = session.remote();
    let ports = match transport {
        Transport::Icmp => Ports::EchoId(src_port),
        _ => Ports::Set { src: src_port, dst: dst_port },
    };
    To4 { src, dst, ports, addresses: session.address_delta() }
}

/// The IPv6 form of a packet to this session's inside, as [`outbound_of`].
#[inline(always)]
pub(crate) fn inbound_of(session: &Session, transport: Transport, prefix: &Prefix64) -> To6 {
    let (remote, remote_port) = session.remote();
    let ports = match transport {
        Transport::Icmp => Ports::EchoId(session.inside_port()),
        _ => Ports::Set { src: remote_port, dst: session.inside_port() },
    };
    To6 {
        src: prefix.embed(remote),
        dst: session.inside_addr(),
        ports,
        addresses: session.address_delta().inverse(),
    }
}

/// Remembers the prefix that the inside uses towards this session's remote address, and what the change
/// of addresses does to checksums.
pub(crate) fn set_prefix(session: &mut Session, pool6: u8, prefix: &Prefix64) {
    let (remote, _) = session.remote();
    let delta =
        address_delta_6to4((session.inside_addr(), prefix.embed(remote)), (session.outside().0, remote));
    session.set_pool6(pool6, delta);
}

/// The inside transport address that sent a packet.
#[inline]
pub(crate) fn inside_of(nat: &Nat64, addr: Ipv6Addr, port: u16, transport: Transport) -> Inside {
    Inside { addr, port, transport, instance: nat.index }
}
