//! The engine: bursts in, verdicts out.
//!
//! A burst goes through in passes: ask for the index lines, ask for the records, then parse, decide and
//! rewrite one by one. What the first passes found is only a hint of where to look; the last one looks,
//! because an earlier packet of the burst may have changed the tables. Nothing parsed is kept from one
//! pass to the next: reading a header again is cheaper than storing it.

use crate::Counters;
use crate::EventReader;
use crate::Instant;
use crate::Plan;
use crate::Reply;
use crate::Verdict;
use crate::base::build_error::BuildError;
use crate::base::counters::{Count, Direction};
use crate::base::emit::{Emit, Emitted};
use crate::base::plan::{IcmpPolicy, Limits};
use crate::base::rng::Rng;
use crate::base::step::Step;
use crate::base::tally::{Slot, Tally};
use crate::base::time::Steady;
use crate::lifecycle::kept::{Keep, Progress, Spent};
use crate::lifecycle::sweep::Sweep;
use crate::path::icmp_reply;
use crate::path::look_ahead::{self, Hint, Openings, SessionHint};
use crate::path::nat44::Nat44;
use crate::path::nat64::Nat64;
use crate::path::plain::Opened;
use crate::path::shared::Shared;
use crate::path::siit::SiitState;
use crate::path::stateful::Instances;
use crate::path::super_packet::{Scratch, has_to_be_cut};
use crate::tables::bib::{Opening, Tables, filters_by_address};
use crate::tables::fragment::Fragments;
use crate::tables::icmp_limit::IcmpLimit;
use crate::tables::ident::Idents;
use crate::tables::path_mtu::{Before, Paths};
use crate::tables::pool4::Pool4State;
use crate::tables::pool6::Owners;
use crate::tables::session::NONE;
use crate::tables::subscriber::Subscribers;
use crate::tables::syn_store::SynStore;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use gatun_mem::hash::Hasher64;
use gatun_wire::icmp_error::Message;
use gatun_wire::{DropReason, Packet, Settings, Whole, icmp_error};

/// Packets that [`Nat::process`] takes at a time.
pub const BURST: usize = 64;

/// One translator: state and counters. One per core, nothing shared.
pub struct Nat {
    pub(crate) core: Core,
    sweep: Sweep,
    pub(crate) clock: Steady,
    hints: Box<[Hint; BURST]>,
    openings: Box<Openings>,
    /// How often the plan has changed.
    pub(crate) generation: u64,
    /// What became of sessions that were inherited, and what is left of that.
    pub(crate) progress: Progress,
    pub(crate) spent: Option<Spent>,
}

/// All of an engine but what one burst needs.
pub(crate) struct Core {
    pub(crate) shared: Shared,
    pub(crate) nat64: Vec<Nat64>,
    pub(crate) nat44: Vec<Nat44>,
    pub(crate) owners: Owners,
    /// Whether realms or sources choose instances ([`Plan::is_ruled`]).
    pub(crate) ruled: bool,
    pub(crate) siit: Arc<[SiitState]>,
    /// For packets of no instance.
    pub(crate) settings: Settings,
    pub(crate) scratch: Scratch,
}

/// What exists at a moment: gauges beside the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Sessions.
    pub sessions: usize,
    /// Bindings (BIB entries), static ones too.
    pub bindings: usize,
    /// Subscribers with state.
    pub subscribers: usize,
    /// Unsolicited SYNs that wait.
    pub held_syns: usize,
}

impl Nat {
    /// An engine for `plan`; all memory is allocated here. `seed` keys the hashes and the choice of
    /// ports: it must not be guessable.
    ///
    /// # Errors
    /// Where the plan contradicts itself, or memory is short.
    pub fn new(plan: &Plan, seed: [u64; 4]) -> Result<Self, BuildError> {
        Self::build(plan, seed, SiitState::all(plan)?, None)
    }

    /// As [`new`](Self::new), with its sessions in a file, so that they outlive the process.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn keeping(plan: &Plan, seed: [u64; 4], keep: Option<Keep>) -> Result<Self, BuildError> {
        Self::build(plan, seed, SiitState::all(plan)?, keep)
    }

    /// Another worker's engine for the plan that this one was built from. It has state of its own and shares
    /// what never changes: a million mappings are in memory once.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn sibling(&self, plan: &Plan, seed: [u64; 4], keep: Option<Keep>) -> Result<Self, BuildError> {
        Self::build(plan, seed, Arc::clone(&self.core.siit), keep)
    }

    /// Makes this the engine of worker number `worker` (from 0) of `workers` that translate for the same
    /// addresses: their IPv4 identifications are then disjoint (RFC 6864). For up to 256 workers, and before
    /// the first packet.
    pub fn set_worker(&mut self, worker: usize, workers: usize) {
        self.core.shared.idents.share(worker, workers);
    }

    fn build(
        plan: &Plan,
        seed: [u64; 4],
        siit: Arc<[SiitState]>,
        keep: Option<Keep>,
    ) -> Result<Self, BuildError> {
        check_counts(plan)?;
        let filters = filters_by_address(plan);
        let mut rng = Rng::new([seed[3], seed[0], seed[1], seed[2]]);
        let hasher = Hasher64::new(seed);
        let mut tables = Tables::new(plan, hasher, Rng::new(seed), filters, keep.map(|keep| keep.records))?;
        let of64 = plan.nat64.iter().enumerate().map(|(i, n)| Nat64::new(i as u8, n, &plan.nat64));
        let nat64: Vec<Nat64> = of64.collect::<Result<_, _>>()?;
        let first44 = nat64.len();
        let nat44: Vec<Nat44> =
            plan.nat44.iter().enumerate().map(|(i, n)| Nat44::new((first44 + i) as u8, n)).collect();
        add_static_bindings(plan, &mut tables)?;
        let stateful = plan.is_stateful();
        let shared = Shared {
            own4: plan.own4,
            own6: plan.own6,
            pooled: plan.pooled.clone(),
            tables,
            paths: Paths::new(plan.limits.path_mtus_max, hasher)?,
            syns: SynStore::new(if stateful { plan.limits.syn_store_max } else { 0 }, hasher)?,
            fragments: Fragments::new(&fragment_limits(plan), seed)?,
            idents: Idents::new(&mut rng),
            icmp_limit: IcmpLimit::new(&plan.icmp, hasher)?,
            suppressed: suppressed(&plan.icmp),
            quota_codes: quota_codes(&plan.icmp),
            turned_mtu: 0,
            counters: Counters::default(),
            tally: Tally::new(plan),
            emit: Emit::new(),
        };
        Ok(Nat {
            core: Core {
                shared,
                owners: Owners::new(&nat64, &plan.nat64),
                ruled: plan.is_ruled(),
                nat64,
                nat44,
                siit,
                settings: settings(plan),
                scratch: Scratch::new(),
            },
            sweep: Sweep::default(),
            clock: Steady::default(),
            hints: Box::new([Hint::None; BURST]),
            openings: Box::default(),
            generation: 0,
            progress: Progress::default(),
            spent: None,
        })
    }

    /// Translates up to [`BURST`] packets in place and says what became of each. Returns how many of
    /// them it processed: fewer than given only where the buffers for emitted packets are used up;
    /// send the emitted ones and call again with the rest.
    pub fn process(&mut self, now: Instant, burst: &mut [Packet<'_>], verdicts: &mut [Verdict]) -> usize {
        let n = burst.len().min(verdicts.len()).min(BURST);
        let now = self.clock.at(now);
        let Nat { core, hints, openings, .. } = self;
        let (Some(burst), Some(hints)) = (burst.get_mut(..n), hints.get_mut(..n)) else { return 0 };
        core.shared.tables.now = now;
        openings.clear();
        if look_ahead::look(core, burst, hints) {
            look_ahead::openings(core, burst, hints, openings);
        }
        match core.ruled {
            false => core.translate::<false>(now, burst, hints, openings, verdicts),
            true => core.translate::<true>(now, burst, hints, openings, verdicts),
        }
    }

    /// Ends what is due, looking at no more than `budget` records. Call it again and again, bursts or
    /// not. Returns how many milliseconds it may be left alone at most.
    pub fn expire(&mut self, now: Instant, budget: usize) -> u32 {
        let now = self.clock.at(now);
        self.core.shared.tables.now = now;
        let Core { nat64, nat44, shared, .. } = &mut self.core;
        self.sweep.run(Instances { nat64, nat44 }, shared, now, budget)
    }

    /// Gives every packet emitted since the last call to `send`, in order of `after`.
    pub fn drain_emitted(&mut self, send: impl FnMut(Emitted<'_>)) {
        self.core.shared.emit.drain(send);
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.core.shared.counters
    }

    /// Where events come out; once.
    pub fn take_events(&mut self) -> Option<EventReader> {
        self.core.shared.tables.events.take_reader()
    }

    /// Events that were lost because nobody read them in time.
    pub fn events_lost(&self) -> u64 {
        self.core.shared.tables.events.lost()
    }

    /// The pools, in the order of the plan.
    pub fn pools(&self) -> &[Pool4State] {
        &self.core.shared.tables.pools
    }

    /// Subscribers that have state: their sessions, ports and blocks.
    pub fn subscribers(&self) -> &Subscribers {
        &self.core.shared.tables.subscribers
    }

    /// What exists now.
    pub fn occupancy(&self) -> Occupancy {
        let shared = &self.core.shared;
        Occupancy {
            sessions: shared.tables.session_count(),
            bindings: shared.tables.binding_count(),
            subscribers: shared.tables.subscribers.len(),
            held_syns: shared.syns.len(),
        }
    }
}

impl Core {
    /// The last pass: each packet to its counted fate. Returns how many it got to. `RULED` as in the look-ahead: the
    /// short way leaves realms alone where there is one.
    #[inline(never)]
    pub(crate) fn translate<const RULED: bool>(
        &mut self,
        now: Instant,
        burst: &mut [Packet<'_>],
        hints: &[Hint],
        openings: &mut Openings,
        verdicts: &mut [Verdict],
    ) -> usize {
        let mut rx = Count::default();
        for ((packet, hint), verdict) in burst.iter_mut().zip(hints).zip(verdicts) {
            if !self.shared.emit.has_room() {
                break;
            }
            let bytes = packet.len();
            let done = match hint {
                // Without a record there is no session that might go on.
                Hint::Session(SessionHint { record: NONE, .. })
                | Hint::Session44(SessionHint { record: NONE, .. })
                | Hint::None => None,
                Hint::Session(hint) => {
                    self.plain_outbound(now, packet, hint).then(|| Slot::outbound(hint.owner.instance))
                }
                Hint::Session44(hint) => {
                    self.plain_outbound44(now, packet, hint).then(|| Slot::outbound(hint.owner.instance))
                }
                Hint::Binding(hint) => self.plain_inbound(now, packet, hint).map(Slot::inbound),
                Hint::Stateless6(hint) => {
                    self.plain_stateless6(now, packet, hint).then(|| Slot::stateless6(hint.instance))
                }
                Hint::Stateless4(hint) => {
                    self.plain_stateless4(packet, hint).then(|| Slot::stateless4(hint.instance))
                }
            };
            *verdict = match done {
                Some(slot) => {
                    if RULED {
                        packet.realm = self.realm_of(slot);
                    }
                    self.shared.tally.add(slot, bytes);
                    Verdict::Forward
                }
                None => {
                    let number = rx.packets as usize;
                    self.shared.emit.after = number;
                    let opening = openings.take(number, &self.shared.tables);
                    self.not_at_once::<RULED>(now, packet, hint, opening, bytes)
                }
            };
            rx.add(bytes);
        }
        self.shared.tally.end_burst(&mut self.shared.counters);
        self.shared.counters.end_burst(rx);
        rx.packets as usize
    }

    /// The instances that have state.
    pub(crate) fn instances(&self) -> Instances<'_> {
        Instances { nat64: &self.nat64, nat44: &self.nat44 }
    }

    /// A packet of no live session: it opens one, or goes the general way.
    #[inline(never)]
    fn not_at_once<const RULED: bool>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        hint: &Hint,
        opening: Option<&Opening>,
        bytes: usize,
    ) -> Verdict {
        if self.shared.tables.inheritance.is_some() {
            self.put_back_for(now, packet.bytes());
            return self.general(now, packet, bytes);
        }
        let (direction, instance, opened) = match (hint, opening) {
            (Hint::Session(hint), Some(opening)) => {
                (Direction::SixToFour, hint.owner.instance, self.plain_opening(now, packet, hint, opening))
            }
            (Hint::Session44(hint), Some(opening)) => {
                (Direction::FourToFour, hint.owner.instance, self.plain_opening44(now, packet, hint, opening))
            }
            _ => return self.general(now, packet, bytes),
        };
        self.shared.tally.is_from(Tally::stateful(instance));
        match opened {
            Opened::Yes => {
                if RULED {
                    packet.realm = 0;
                }
                self.shared.tally.add(Slot::outbound(instance), bytes);
                Verdict::Forward
            }
            Opened::Refused(reason) => self.refuse(now, packet, direction, reason, bytes),
            Opened::General => self.general(now, packet, bytes),
        }
    }

    /// Any packet, to its counted fate.
    #[inline(never)]
    fn general(&mut self, now: Instant, packet: &mut Packet<'_>, bytes: usize) -> Verdict {
        let direction = self.direction(packet);
        self.shared.tally.of_nobody();
        let before = Before::of(packet, &self.shared.paths);
        // Whoever writes a packet for a host in a realm says so; what is left as it was goes back where it came from.
        let realm = core::mem::take(&mut packet.realm);
        let done = match self.dispatch(now, packet, realm) {
            Err(reason) if has_to_be_cut(packet, reason) => self.one_by_one(now, packet, realm),
            Ok(step) => Ok(self.on_its_path(now, packet, before, step)),
            Err(reason) => Err(reason),
        };
        match done {
            Ok(step) => {
                if step == Step::Echo {
                    packet.realm = realm;
                }
                self.done(packet, direction, step, bytes)
            }
            Err(reason) => {
                packet.realm = realm;
                self.refuse(now, packet, direction, reason, bytes)
            }
        }
    }

    /// The realm of what the short way has made.
    fn realm_of(&self, slot: Slot) -> u8 {
        let instances = Instances { nat64: &self.nat64, nat44: &self.nat44 };
        let instance = slot.inside_of().and_then(|number| instances.get(number));
        instance.map_or(0, |instance| instance.policy().realm)
    }

    /// What an instance did with a packet, counted.
    fn done(&mut self, packet: &mut Packet<'_>, direction: Direction, step: Step, bytes: usize) -> Verdict {
        let Shared { counters, tally, emit, .. } = &mut self.shared;
        match step {
            Step::Forward { whole, hairpinned } => {
                if let Whole::Split(max) = whole {
                    match emit.cut(packet, max) {
                        Ok(pieces) => counters.fragments_made += pieces,
                        Err(reason) => return self.drop(direction, reason, bytes),
                    }
                }
                counters.add_translated(direction, bytes, hairpinned);
                tally.translated(bytes, hairpinned);
                Verdict::Forward
            }
            Step::Pass => {
                counters.passed.add(bytes);
                tally.passed(bytes);
                Verdict::Pass
            }
            // Whoever holds it has counted it.
            Step::Held => Verdict::Held,
            Step::Echo => {
                counters.replied.add(bytes);
                counters.echo_replies += 1;
                tally.echo(bytes);
                Verdict::Reply(Reply::Echo)
            }
            Step::Lost(reason) => self.drop(direction, reason, bytes),
        }
    }

    fn drop(&mut self, direction: Direction, reason: DropReason, bytes: usize) -> Verdict {
        self.shared.counters.dropped.add(bytes);
        self.shared.count_drop(self.shared.tally.whose(), direction, reason, bytes);
        Verdict::Drop(reason)
    }

    /// A packet that is dropped, and answered where its reason has an answer.
    #[cold]
    fn refuse(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        direction: Direction,
        reason: DropReason,
        bytes: usize,
    ) -> Verdict {
        if !self.answer(now, packet, direction, reason) {
            return self.drop(direction, reason, bytes);
        }
        let counters = &mut self.shared.counters;
        counters.replied.add(bytes);
        counters.icmp_errors_sent += 1;
        self.shared.count_drop(self.shared.tally.whose(), direction, reason, bytes);
        Verdict::Reply(Reply::Error(reason))
    }

    /// The ICMP error that a reason causes, whether or not it may be sent.
    pub(crate) fn message(
        &self,
        packet: &Packet<'_>,
        direction: Direction,
        reason: DropReason,
    ) -> Option<Message> {
        let (settings, bytes) = (self.settings_of(packet), packet.bytes());
        let mut message = match direction {
            Direction::FourToFour => icmp_reply::for_nat44(reason, bytes, self.mtu44(packet), &settings),
            Direction::SixToFour => icmp_reply::for_ipv6(reason, bytes, &settings),
            Direction::FourToSix => icmp_reply::for_ipv4(reason, bytes, &settings),
        }?;
        if icmp_reply::is_quota(reason) {
            message.code = self.shared.quota_codes.get(direction as usize).copied().unwrap_or(message.code);
        }
        Some(message)
    }

    /// Whether an error may answer the packet at all, and is not switched off.
    pub(crate) fn may_answer(&self, packet: &[u8], direction: Direction, reason: DropReason) -> bool {
        let allowed = match direction {
            Direction::SixToFour => icmp_reply::may_answer6(packet),
            Direction::FourToSix | Direction::FourToFour => icmp_reply::may_answer4(packet),
        };
        allowed && !self.shared.is_suppressed(reason)
    }

    /// Makes the packet the ICMP error that its reason causes; says whether there is one to be sent.
    fn answer(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        direction: Direction,
        reason: DropReason,
    ) -> bool {
        let turned_mtu = core::mem::take(&mut self.shared.turned_mtu);
        let Some(mut message) = self.message(packet, direction, reason) else { return false };
        if turned_mtu > 0 {
            message.word = turned_mtu;
        }
        let allowed = self.may_answer(packet.bytes(), direction, reason);
        let (settings, source) = (self.settings_of(packet), self.error_source(packet));
        let sh = &mut self.shared;
        if !allowed {
            sh.counters.icmp_errors_suppressed += 1;
            return false;
        }
        if !sh.may_send_error(now, source, icmp_reply::is_too_big(reason)) {
            return false;
        }
        let (own4, own6) = icmp_reply::sources(reason, packet.bytes(), (sh.own4, sh.own6));
        let made = match (direction, own6, own4) {
            (Direction::SixToFour, Some(own6), _) => icmp_error::error6(packet, own6, message).is_ok(),
            (Direction::FourToSix | Direction::FourToFour, _, Some(own4)) => {
                let id = sh.idents.next(u64::from(u32::from(own4)) << 32);
                icmp_error::error4(packet, own4, message, id, settings.icmp4_error_max).is_ok()
            }
            // Nobody to speak for.
            _ => false,
        };
        sh.counters.icmp_errors_suppressed += u64::from(!made);
        made
    }
}

/// Reasons whose errors are not sent.
pub(crate) fn suppressed(icmp: &IcmpPolicy) -> [bool; DropReason::COUNT] {
    let mut suppressed = [false; DropReason::COUNT];
    for reason in &icmp.suppressed {
        if let Some(suppressed) = suppressed.get_mut(*reason as usize) {
            *suppressed = true;
        }
    }
    suppressed
}

/// By direction.
pub(crate) fn quota_codes(icmp: &IcmpPolicy) -> [u8; Direction::COUNT] {
    [icmp.quota_code6, icmp.quota_code4, icmp.quota_code4]
}

/// How packets of no instance are translated.
pub(crate) fn settings(plan: &Plan) -> Settings {
    let of64 = plan.nat64.first().map(|n| n.settings);
    of64.or_else(|| plan.siit.first().map(|s| s.settings)).unwrap_or_default()
}

/// Records name instances and prefixes by one byte.
pub(crate) fn check_counts(plan: &Plan) -> Result<(), BuildError> {
    const MAX: usize = 255;
    if plan.nat64.len() + plan.nat44.len() > MAX || plan.nat64.iter().any(|n| n.pool6.len() > MAX) {
        return Err(BuildError(format!(
            "at most {MAX} nat64 and nat44 instances, and {MAX} prefixes for each"
        )));
    }
    Ok(())
}

/// Reserves what the configuration binds.
fn add_static_bindings(plan: &Plan, tables: &mut Tables) -> Result<(), BuildError> {
    let of64 = plan.nat64.iter().map(|n| ("nat64", &n.name, &n.static_bindings));
    let of44 = plan.nat44.iter().map(|n| ("nat44", &n.name, &n.static_bindings));
    for (instance, (kind, name, bindings)) in of64.chain(of44).enumerate() {
        for (i, b) in bindings.iter().enumerate() {
            tables.add_binding(instance as u8, b).map_err(|why| {
                BuildError(format!("{kind} {name:?}: static binding {}: {}", i + 1, why.help()))
            })?;
        }
    }
    Ok(())
}

/// What follows fragments needs no memory where no instance has state.
fn fragment_limits(plan: &Plan) -> Limits {
    if !plan.is_stateful() {
        return Limits { fragment_entries_max: 0, fragment_bytes_max: 0, ..plan.limits };
    }
    plan.limits
}

#[cfg(test)]
mod tests;
