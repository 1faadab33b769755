//! The model: what a stateful translator has to do, written so that it can be seen to be right. State is a
//! few vectors, every question is a search through them, every packet is made anew.
//!
//! Where the rules leave the translator a choice (which port, which identification, when exactly a dead
//! session is swept away), the model does not foresee it. It looks at what the engine did ([`Seen`]), checks
//! that the rules allow it, and goes on from there. Where something cannot be seen at once (is a binding
//! whose time is up gone already?), it tries one answer after the other (`Guesses`) until one of them
//! explains what was seen; if none does, the engine is wrong, or the model is.
//!
//! Not in the model: datagrams in pieces (the driver leaves them out), NAT44, port blocks and hold-down, rates of
//! new sessions, `inbound_refresh = false`, super-packets, RFC 4884 extensions.

mod addresses;
mod bib;
mod filter;
mod four_to_six;
mod guesses;
mod icmp;
mod own;
mod ports;
mod six_to_four;
mod sweep;
mod syns;
pub mod tcp;
mod time;

use crate::coverage::Coverage;
use bib::Binding;
use gatun_nat::counters::Counters;
use gatun_nat::{Plan, Verdict};
use gatun_wire::DropReason;
use guesses::Guesses;
use std::net::Ipv4Addr;
use std::rc::Rc;
use syns::HeldSyn;
use time::Clock;

/// What the engine did with a packet.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its verdict.
    pub verdict: Verdict,
    /// The packet's buffer afterwards.
    pub bytes: Vec<u8>,
    /// What it sent besides.
    pub emitted: Vec<Vec<u8>>,
    /// What there is after it, where it was a burst of its own.
    pub occupancy: Option<gatun_nat::Occupancy>,
}

/// What the model says has to be done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The verdict.
    pub verdict: Verdict,
    /// The packet, where it was forwarded or answered.
    pub bytes: Option<Vec<u8>>,
    /// What is to be sent besides.
    pub emitted: Vec<Vec<u8>>,
}

impl Said {
    fn explains(&self, seen: &Seen) -> bool {
        self.verdict == seen.verdict
            && self.bytes.as_ref().is_none_or(|b| *b == seen.bytes)
            && self.emitted == seen.emitted
    }
}

/// What a handler made of a packet.
#[derive(Debug)]
enum Fate {
    /// One packet, or the pieces of one.
    Forward { packets: Vec<Vec<u8>>, hairpinned: bool },
    /// An echo reply.
    Echo(Vec<u8>),
    /// Kept.
    Held,
    /// Dropped, and perhaps answered.
    Refused(DropReason),
    /// Dropped without an answer after half of it was translated.
    Lost(DropReason),
}

type Result<T> = std::result::Result<T, DropReason>;

/// The six directions of inside and outside do not matter here; two do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Out = 0,
    Back = 1,
}

/// The model of one engine.
#[derive(Clone)]
pub struct Model {
    plan: Rc<Plan>,
    clock: Clock,
    /// Engine time, milliseconds.
    now: u64,
    bindings: Vec<Binding>,
    /// Instance, subscriber's prefix, and its public address: several may be, where the engine may or may not
    /// have forgotten that it had one before.
    paired: Vec<(usize, u128, Vec<Ipv4Addr>)>,
    syns: Vec<HeldSyn>,
    /// Thousandths of ICMP errors that may be sent.
    error_tokens: u64,
    error_tokens_at: u64,
    counters: Counters,
    guesses: Guesses,
    emitted: Vec<Vec<u8>>,
    /// What the history has reached.
    pub coverage: Coverage,
}

impl Model {
    /// The model of an engine built from `plan`.
    pub fn new(plan: &Plan) -> Self {
        let mut model = Model {
            plan: Rc::new(plan.clone()),
            clock: Clock::default(),
            now: 0,
            bindings: Vec::new(),
            paired: Vec::new(),
            syns: Vec::new(),
            error_tokens: u64::from(plan.icmp.burst) * 1000,
            error_tokens_at: 0,
            counters: Counters::default(),
            guesses: Guesses::default(),
            emitted: Vec::new(),
            coverage: Coverage::default(),
        };
        model.add_static_bindings();
        model
    }

    /// The engine was told the time.
    pub fn at(&mut self, given_ms: u64) {
        self.now = self.clock.at(given_ms);
    }

    /// One packet of a burst, and what the engine did with it.
    ///
    /// # Errors
    /// What it should have done.
    pub fn packet(&mut self, packet: &[u8], seen: &Seen) -> std::result::Result<(), Box<Said>> {
        if !self.is_unsure() && !self.is_hairpin(packet) {
            let said = self.handle(packet, seen);
            return if said.explains(seen) { Ok(()) } else { Err(Box::new(said)) };
        }
        let before = self.clone();
        let mut first = None;
        let mut guesses = Guesses::default();
        loop {
            *self = before.clone();
            self.guesses = guesses;
            let said = self.handle(packet, seen);
            if said.explains(seen) && seen.occupancy.is_none_or(|there| self.occupancy_is_right(&there)) {
                return Ok(());
            }
            guesses = std::mem::take(&mut self.guesses);
            first.get_or_insert(said);
            if !guesses.next() {
                return Err(Box::new(first.unwrap_or_else(|| unreachable!("a guess was made"))));
            }
        }
    }

    /// Whether anything is there of which the model cannot know if the engine still has it.
    pub fn is_unsure(&self) -> bool {
        self.bindings.iter().any(|b| b.outside.is_none() || b.sessions.iter().any(|s| self.is_over(s)))
            || self.syns.iter().any(|s| s.ends <= self.now)
    }

    /// Whether a packet is from inside to an outside address of ours: where it ends on the way, it does not show
    /// which port its first half was given.
    fn is_hairpin(&self, packet: &[u8]) -> bool {
        let Some(octets) = packet.get(24..40) else { return false };
        let octets: [u8; 16] = octets.try_into().unwrap_or_default();
        let Some((instance, prefix)) = self.owner6(octets.into()) else { return false };
        let prefix = &self.plan.nat64[instance].pool6[prefix];
        packet[0] >> 4 == 6
            && addresses::extract(prefix, octets.into()).is_some_and(|a| self.owner4_address(a).is_some())
    }

    fn handle(&mut self, packet: &[u8], seen: &Seen) -> Said {
        self.emitted.clear();
        self.bindings.retain(|b| b.fixed || !b.sessions.is_empty());
        self.counters.rx.add(packet.len());
        let way = if packet.first().is_some_and(|b| b >> 4 == 4) { Way::Back } else { Way::Out };
        let fate = match packet.first().map(|b| b >> 4) {
            None => Err(DropReason::ShortL3),
            Some(4) => self.four_to_six(packet, seen),
            Some(6) => self.six_to_four(packet, seen),
            Some(_) => Err(DropReason::BadVersion),
        };
        let said = self.settle(way, packet, fate.unwrap_or_else(Fate::Refused), seen);
        Said { emitted: std::mem::take(&mut self.emitted), ..said }
    }

    /// Counts a fate, and answers what is to be answered.
    fn settle(&mut self, way: Way, packet: &[u8], fate: Fate, seen: &Seen) -> Said {
        let plain = |verdict, bytes| Said { verdict, bytes, emitted: Vec::new() };
        match fate {
            Fate::Forward { mut packets, hairpinned } => {
                self.count_forwarded(way, packet.len(), hairpinned);
                self.counters.fragments_made += packets.len() as u64 - 1;
                let first = packets.remove(0);
                // The pieces follow their first one, before what was released because of it.
                packets.append(&mut self.emitted);
                self.emitted = packets;
                plain(Verdict::Forward, Some(first))
            }
            Fate::Echo(reply) => {
                self.counters.replied.add(packet.len());
                self.counters.echo_replies += 1;
                plain(Verdict::Reply(gatun_nat::Reply::Echo), Some(reply))
            }
            Fate::Held => {
                self.counters.held += 1;
                plain(Verdict::Held, None)
            }
            Fate::Lost(reason) => {
                self.count_dropped(way, reason, packet.len());
                plain(Verdict::Drop(reason), None)
            }
            Fate::Refused(reason) => match self.answer(way, reason, packet, seen) {
                Some(error) => {
                    self.counters.replied.add(packet.len());
                    self.counters.drops[way as usize][reason as usize].add(packet.len());
                    self.counters.icmp_errors_sent += 1;
                    plain(Verdict::Reply(gatun_nat::Reply::Error(reason)), Some(error))
                }
                None => {
                    self.count_dropped(way, reason, packet.len());
                    plain(Verdict::Drop(reason), Some(packet.to_vec()))
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

    /// The counters as they should be.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
