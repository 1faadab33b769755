//! The model: the rules of a stateful translator, written so that they are obviously right. State is a few
//! vectors, every query searches them, and every packet is built anew.
//!
//! If the rules leave the translator a choice (a port, an identification, the moment at which a dead session
//! is swept), the model does not predict it. It reads what the engine did ([`Observed`]) and reported
//! ([`Model::hear`]: every universe enables all events), checks that the rules allow it, and continues from
//! there. So its state is exact at any time, and so are the events it expects.
//!
//! The model does not cover super-packets, RFC 4884 extensions and stateless instances; nor changes of a
//! running engine's prefixes, formulas and instances, nor packets that arrive while a change settles.

mod addresses;
mod bib;
mod blocks;
mod datagrams;
mod ends;
mod events;
mod filter;
mod from_inside;
mod from_outside;
mod icmp;
mod own;
mod pieces;
mod ports;
mod query;
mod realms;
mod reload;
mod rules;
mod shared;
mod subscribers;
mod sweep;
mod syns;
mod time;

use crate::coverage::Coverage;
use crate::wire::{L4, parse};
use addresses::v4;
use bib::Binding;
use ends::{ICMP, TCP, UDP};
use events::{EventContent, GaugeStates};
use gatun_nat::counters::Counters;
use gatun_nat::{Plan, Verdict};
use gatun_wire::DropReason;
use rules::{Kind, Rules};
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::rc::Rc;
use subscribers::Subscriber;
use syns::HeldSyn;
use time::Clock;

/// A packet with its realm (decision 0051), where it comes from or goes to. Realm 0 is the one that no
/// instance names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealmPacket {
    /// The realm.
    pub realm: u8,
    /// The packet.
    pub bytes: Vec<u8>,
}

/// The engine's result for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Its verdict.
    pub verdict: Verdict,
    /// Realm that the packet's buffer goes to.
    pub realm: u8,
    /// Bytes of that buffer.
    pub bytes: Vec<u8>,
    /// Other packets that the engine sent.
    pub emitted: Vec<RealmPacket>,
}

impl Observed {
    /// All packets that left.
    pub fn sent(&self) -> impl Iterator<Item = RealmPacket> + '_ {
        let first = matches!(self.verdict, Verdict::Forward | Verdict::Reply(_))
            .then(|| RealmPacket { realm: self.realm, bytes: self.bytes.clone() });
        first.into_iter().chain(self.emitted.iter().cloned())
    }
}

/// The model's expected result for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The verdict.
    pub verdict: Verdict,
    /// Realm that the packet goes to, if it is sent.
    pub realm: Option<u8>,
    /// The packet, if it is forwarded or answered.
    pub bytes: Option<Vec<u8>>,
    /// Other packets to send.
    pub emitted: Vec<RealmPacket>,
}

impl Expected {
    fn explains(&self, seen: &Observed) -> bool {
        self.verdict == seen.verdict
            && self.realm.is_none_or(|realm| realm == seen.realm)
            && self.bytes.as_ref().is_none_or(|b| *b == seen.bytes)
            && self.emitted == seen.emitted
    }
}

/// Result of a handler.
#[derive(Debug)]
enum Fate {
    /// One packet or its fragments, to a realm.
    Forward { packets: Vec<Vec<u8>>, realm: u8, hairpinned: bool },
    /// An echo reply.
    Echo(Vec<u8>),
    /// Held, and counted so.
    Held,
    /// The packet is not for the translator: it passes unchanged to a realm.
    Passed { realm: u8 },
    /// Dropped, perhaps with an answer.
    Refused(DropReason),
    /// Dropped without an answer, after the first of two translations.
    Lost(DropReason),
}

type Result<T> = std::result::Result<T, DropReason>;

/// Direction by which packets are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    SixToFour = 0,
    FourToSix = 1,
    FourToFour = 2,
}

/// The model of one engine.
#[derive(Clone)]
pub struct Model {
    plan: Rc<Plan>,
    rules: Rc<Vec<Rules>>,
    clock: Clock,
    /// Engine time, milliseconds.
    now: u64,
    bindings: Vec<Binding>,
    subscribers: Vec<Subscriber>,
    pools: Vec<ports::Pool>,
    syns: Vec<HeldSyn>,
    followed: datagrams::Followed,
    /// Available ICMP errors, in thousandths.
    error_tokens: u64,
    error_tokens_at: u64,
    /// Time up to which each source has used its rate of errors, nanoseconds.
    error_sources: BTreeMap<own::ErrorSource, u64>,
    counters: Counters,
    /// Size that fits the receiver of a hairpinned packet that was too big.
    turned_mtu: Option<u32>,
    emitted: Vec<RealmPacket>,
    /// Events of the engine that the model has not reached yet.
    events: VecDeque<EventContent>,
    /// The first wrong event, or the first choice that no rule allows.
    misheard: Option<String>,
    high: GaugeStates,
    /// Remaining work of the last change; `settled` counts what it had ended when it was done.
    settling: Option<reload::Settling>,
    settled: (u64, u64),
    /// Coverage of the history.
    pub coverage: Coverage,
}

impl Model {
    /// Makes the model of an engine built from `plan`, with all events on, with destinations.
    pub fn new(plan: &Plan) -> Self {
        let pools = plan.pools.len();
        let mut model = Model {
            plan: Rc::new(plan.clone()),
            rules: Rc::new(rules::all(plan)),
            clock: Clock::default(),
            now: 0,
            bindings: Vec::new(),
            subscribers: Vec::new(),
            pools: ports::pools(plan),
            syns: Vec::new(),
            followed: datagrams::Followed::new(plan.limits.fragment_entries_max as usize),
            error_tokens: u64::from(plan.icmp.burst) * 1000,
            error_tokens_at: 0,
            error_sources: BTreeMap::new(),
            counters: Counters::default(),
            turned_mtu: None,
            emitted: Vec::new(),
            events: VecDeque::new(),
            misheard: None,
            high: GaugeStates::none(pools),
            settling: None,
            settled: (0, 0),
            coverage: Coverage::default(),
        };
        model.add_static_bindings();
        model
    }

    /// Sets the time that the engine got.
    pub fn at(&mut self, given_ms: u64) {
        self.now = self.clock.at(given_ms);
    }

    /// Handles one packet of a burst, and compares with the engine's result.
    ///
    /// # Errors
    /// Returns the expected result if it differs.
    pub fn packet(
        &mut self,
        in_realm: &RealmPacket,
        seen: &Observed,
    ) -> std::result::Result<(), Box<Expected>> {
        let said = self.handle(in_realm, seen);
        if said.explains(seen) { Ok(()) } else { Err(Box::new(said)) }
    }

    fn handle(&mut self, in_realm: &RealmPacket, seen: &Observed) -> Expected {
        let RealmPacket { realm, bytes: packet } = in_realm;
        self.emitted.clear();
        self.counters.rx.add(packet.len());
        let way = self.way(packet, *realm);
        let fate = match packet.first().map(|b| b >> 4) {
            None => Err(DropReason::ShortL3),
            Some(4) => self.four(packet, *realm, seen),
            Some(6) => self.six(packet, *realm, seen),
            Some(_) => Err(DropReason::BadVersion),
        };
        let said = self.settle(way, in_realm, fate.unwrap_or_else(Fate::Refused), seen);
        Expected { emitted: std::mem::take(&mut self.emitted), ..said }
    }

    /// Handles an IPv4 packet: from a NAT44 host, to a pool, or neither.
    fn four(&mut self, packet: &[u8], realm: u8, seen: &Observed) -> Result<Fate> {
        let h = parse::parse4(packet, false)?;
        let (src, dst) = (v4(h.src), v4(h.dst));
        let l4 = parse::l4(&h, false)?;
        let to_own = (Some(dst), self.inside44(realm, src).is_some());
        if Some(dst) == self.plan.own4
            && let Some(fate) = self.for_itself(packet, &h, l4, to_own, seen)
        {
            return fate;
        }
        let ports = match l4 {
            L4::Tcp { src, dst, .. } | L4::Udp { src, dst, .. } => Some((src, dst)),
            _ => None,
        };
        if let Some(instance) = self.inside44(realm, src) {
            // Only the first fragment of a datagram has ports; exemptions by port are handled with it.
            if self.is_exempt(instance, dst, h.proto, ports.map(|p| p.1).filter(|_| h.is_whole())) {
                let among_them = self.serves44(instance, dst);
                return Ok(Fate::Passed { realm: if among_them { realm } else { 0 } });
            }
            return self.out_of_four(packet, &h, l4, instance, seen);
        }
        self.mark_choice(realm, (h.src, h.dst));
        if let Some(pool) = self.pool_of(dst) {
            return self.arrive(packet, &h, l4, pool, seen);
        }
        // Replies from exempt destinations come from realm 0, and never go out as an inside host's packets.
        match self.host44(dst) {
            Some(n) if realm == 0 && self.is_listed(n, src, h.proto, ports.map(|p| p.0)) => {
                Ok(Fate::Passed { realm: self.realm_of(n) })
            }
            _ => Err(DropReason::NotInPool),
        }
    }

    /// RFC 6888 REQ-6: destinations that a NAT44 instance's hosts reach untranslated.
    fn is_exempt(&self, instance: usize, remote: Ipv4Addr, proto: u8, port: Option<u16>) -> bool {
        self.is_listed(instance, remote, proto, port) || self.serves44(instance, remote)
    }

    /// Returns true if the configuration lists the exemption.
    fn is_listed(&self, instance: usize, remote: Ipv4Addr, proto: u8, port: Option<u16>) -> bool {
        self.nat44(instance).exempt.iter().any(|e| {
            let protos = [6, 17, 1];
            e.net.contains(remote)
                && e.transport.is_none_or(|t| protos[t as usize] == proto)
                && e.ports.is_none_or(|(first, last)| port.is_some_and(|p| first <= p && p <= last))
        })
    }

    /// Direction of a packet's counters. One from outside without binding counts for the first user of its
    /// pool.
    fn way(&self, packet: &[u8], realm: u8) -> Way {
        if packet.first().is_none_or(|b| b >> 4 != 4) {
            return Way::SixToFour;
        }
        let Ok(h) = parse::parse4(packet, false) else { return Way::FourToSix };
        let (src, dst) = (v4(h.src), v4(h.dst));
        if self.inside44(realm, src).or(self.host44(dst)).is_some() {
            return Way::FourToFour;
        }
        let Some(pool) = self.pool_of(dst) else { return Way::FourToSix };
        let knocks = match parse::l4(&h, false) {
            Ok(L4::Tcp { dst, .. }) => Some((TCP, dst)),
            Ok(L4::Udp { dst, .. }) => Some((UDP, dst)),
            Ok(L4::Echo { id, .. }) => Some((ICMP, id)),
            _ => None,
        };
        let bound = knocks.and_then(|(t, port)| self.binding_outside(t, (dst, port)));
        let instance = bound.map(|b| self.bindings[b].instance).or_else(|| self.users_of(pool).next());
        match instance.map(|i| self.kind(i)) {
            Some(Kind::Four) => Way::FourToFour,
            _ => Way::FourToSix,
        }
    }

    /// Counts a fate, and answers the packet if an answer is due.
    fn settle(&mut self, way: Way, in_realm: &RealmPacket, fate: Fate, seen: &Observed) -> Expected {
        let RealmPacket { realm: from, bytes: packet } = in_realm;
        let plain = |verdict, bytes| Expected { verdict, realm: None, bytes, emitted: Vec::new() };
        let sent = |verdict, realm, bytes| Expected { realm: Some(realm), ..plain(verdict, Some(bytes)) };
        match fate {
            Fate::Forward { mut packets, realm, hairpinned } => {
                self.count_forwarded(way, packet.len(), hairpinned);
                self.counters.fragments_made += packets.len() as u64 - 1;
                let first = packets.remove(0);
                // Choice: packets released because of it precede its further fragments.
                self.emitted.extend(packets.drain(..).map(|bytes| RealmPacket { realm, bytes }));
                self.mark_crossing(*from, realm, hairpinned);
                sent(Verdict::Forward, realm, first)
            }
            Fate::Echo(reply) => {
                self.counters.replied.add(packet.len());
                self.counters.echo_replies += 1;
                sent(Verdict::Reply(gatun_nat::Reply::Echo), *from, reply)
            }
            Fate::Passed { realm } => {
                self.counters.passed.add(packet.len());
                sent(Verdict::Pass, realm, packet.clone())
            }
            Fate::Held => plain(Verdict::Held, None),
            Fate::Lost(reason) => {
                self.count_dropped(way, reason, packet.len());
                plain(Verdict::Drop(reason), None)
            }
            Fate::Refused(reason) => match self.answer(way, reason, in_realm, seen) {
                Some(error) => {
                    self.counters.replied.add(packet.len());
                    self.counters.drops[way as usize][reason as usize].add(packet.len());
                    self.counters.icmp_errors_sent += 1;
                    sent(Verdict::Reply(gatun_nat::Reply::Error(reason)), *from, error)
                }
                None => {
                    self.count_dropped(way, reason, packet.len());
                    plain(Verdict::Drop(reason), Some(packet.clone()))
                }
            },
        }
    }

    fn count_forwarded(&mut self, way: Way, bytes: usize, hairpinned: bool) {
        self.counters.forwarded.add(bytes);
        self.counters.translated[way as usize].add(bytes);
        if hairpinned {
            self.counters.hairpinned.add(bytes);
        }
    }

    fn count_dropped(&mut self, way: Way, reason: DropReason, bytes: usize) {
        self.counters.dropped.add(bytes);
        self.counters.drops[way as usize][reason as usize].add(bytes);
    }

    /// Expected counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
