//! Holder of a port at a time: collects the port's whole history and selects holdings that overlap the time.
//!
//! "Nobody" requires proof. If records may be missing (a damaged file, lost events, a killed daemon), the
//! holder is unknown until a later record of the port or a start without state.

use crate::hash::Hash;
use crate::history::{End, Gap, History, Holding, Unknown};
use crate::journal::State;
use crate::mark::Mark;
use crate::plan::{ByConfiguration, PlanInForce};
use crate::reader::{Part, Reader, Source};
use crate::receipt::Slots;
use crate::record::{IRREGULAR, Key, Record};
use crate::store::retired;
use crate::time::{Span, rfc3339};
use gatun_nat::plan::Transport;
use gatun_wire::text::counted;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Range before and after the time in which other holders are reported as well, in case the asker's clock is
/// wrong.
const NEAR_MS: u64 = 60_000;

const ENDS: &str = "the log ends before that time";

/// Outcome of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A holder was found.
    Who,
    /// Proven: nobody had the port.
    Nobody,
    /// The log cannot tell; `unknown` has the reasons.
    Unknown,
}

/// Evidence for a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Record of a port block.
    Block,
    /// Record of a binding.
    Binding,
    /// Configuration.
    Configuration,
    /// Address mapping (SIIT).
    Mapping,
}

/// Answer to a question.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Outcome.
    pub outcome: Outcome,
    /// Reasons why there may be a holder, or another one.
    pub unknown: Vec<String>,
    /// Public address.
    pub address: Ipv4Addr,
    /// Public port.
    pub port: u16,
    /// Time of the question, RFC 3339; it covers `precision_ms`.
    pub at: String,
    /// Precision of the time, milliseconds.
    pub precision_ms: u64,
    /// Configuration of that time.
    pub configuration: Option<InForce>,
    /// Pool of the address in that configuration.
    pub pool: Option<String>,
    /// Holders of the port; several if protocols differ or the time is not precise enough.
    pub holders: Vec<Holder>,
    /// Holders that got or released the port within a minute of the time.
    pub near: Vec<Holder>,
    /// Doubts about the answer.
    pub caveats: Vec<String>,
}

/// Configuration of a past time.
#[derive(Clone, Debug)]
pub struct InForce {
    /// SHA-256 of its text.
    pub hash: Hash,
    /// Its first moment.
    pub since: String,
}

/// Holder of a port for a time.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Evidence.
    pub by: Evidence,
    /// Protocols.
    pub protocols: Vec<Transport>,
    /// Instance.
    pub instance: Option<String>,
    /// Pool.
    pub pool: Option<String>,
    /// Prefix of the subscriber, for a block.
    pub subscriber: Option<String>,
    /// Inside address, for a binding.
    pub inside: Option<IpAddr>,
    /// Inside port, for a binding; for a mapping, the public one.
    pub inside_port: Option<u16>,
    /// First and last public port.
    pub ports: (u16, u16),
    /// Beginning; none if it is before the log or the record was lost.
    pub from: Option<String>,
    /// End; none if there is no record of it.
    pub to: Option<String>,
    /// Knowledge about the end without a record.
    pub end: Option<String>,
    /// True if it had the port for the whole time of the question.
    pub certain: bool,
    /// True if it had the port at some moment of that time.
    known: bool,
}

/// Configurations and running times of daemons, from all marks.
#[derive(Default)]
struct Times<'a> {
    configs: Vec<(u64, Hash, &'a PlanInForce)>,
    starts: Vec<u64>,
    stops: Vec<u64>,
    losses: Vec<(u64, u64)>,
}

impl<'a> Times<'a> {
    fn of(reader: &'a Reader) -> Times<'a> {
        let mut times = Times::default();
        for mark in reader.parts.iter().flat_map(|part| &part.marks) {
            match mark {
                Mark::Config { at_ms, hash, plan } => times.configs.push((*at_ms, *hash, plan)),
                Mark::Start { at_ms, .. } => times.starts.push(*at_ms),
                Mark::Stop { at_ms } => times.stops.push(*at_ms),
                Mark::Lost { at_ms, events } => times.losses.push((*at_ms, *events)),
                _ => {}
            }
        }
        times
    }

    fn config(&self, at_ms: u64) -> Option<&(u64, Hash, &'a PlanInForce)> {
        self.configs.iter().rev().find(|(since, ..)| *since <= at_ms)
    }

    /// Returns true if a daemon was running, by starts and clean stops.
    fn ran(&self, at_ms: u64) -> bool {
        let last = |times: &[u64]| times.iter().copied().filter(|ms| *ms <= at_ms).max();
        last(&self.starts) >= last(&self.stops) && last(&self.starts).is_some()
    }
}

/// Question.
#[derive(Clone, Copy, Debug)]
struct Question {
    address: Ipv4Addr,
    port: u16,
    at: Span,
    transport: Option<Transport>,
}

impl Question {
    fn asks_for(&self, transport: usize) -> bool {
        self.transport.is_none_or(|asked| asked as usize == transport)
    }

    /// Returns true if a range overlaps the time of the question.
    fn meets(&self, from_ms: u64, to_ms: u64) -> bool {
        from_ms <= self.at.last_ms() && to_ms > self.at.from_ms
    }
}

impl Reader {
    /// Finds the holders of a public address and port at a time, for one transport or all.
    pub fn who(&self, address: Ipv4Addr, port: u16, at: Span, transport: Option<Transport>) -> Answer {
        let question = Question { address, port, at, transport };
        let keys: Vec<Key> = (0..=IRREGULAR).map(|class| Key::for_port(class, address, port)).collect();
        let (mut history, mut caveats) = (History::default(), Vec::new());
        for (n, part) in self.parts.iter().enumerate() {
            for mark in &part.marks {
                if let Mark::Start { at_ms, keeps_state, .. } = mark {
                    history.start(*at_ms, *keeps_state);
                }
            }
            let (mut gaps, mut records) = (self.gaps(n, history.last_ms), Vec::new());
            match self.find(part, &keys) {
                Ok(found) => {
                    records = found.records;
                    gaps.extend(found.damage.map(|_| self.whole_part(n, history.last_ms)));
                }
                Err(error) => {
                    caveats.push(format!("cannot read a part of the log: {error}"));
                    gaps.push(self.whole_part(n, history.last_ms));
                }
            }
            gaps.sort_by_key(|gap| gap.to_ms);
            let mut gaps = gaps.into_iter().peekable();
            for record in records.into_iter().filter(|r| r.has_port(port)) {
                while let Some(gap) = gaps.next_if(|gap| gap.to_ms <= record.at_ms) {
                    history.gap(&gap);
                }
                history.record(record);
            }
            gaps.for_each(|gap| history.gap(&gap));
            for mark in &part.marks {
                if let Mark::Stop { at_ms } = mark {
                    history.stopped_ms = Some(*at_ms);
                }
            }
            history.last_ms = history.last_ms.max(part.last_ms());
        }
        if let Some(gap) = self.cut_end(history.last_ms) {
            history.gap(&gap);
        }
        caveats.extend(self.faults.iter().map(|fault| format!("the log was changed: {fault}")));
        self.answer(question, history, caveats)
    }

    /// Gap of a part that is damaged or missing as a whole.
    fn whole_part(&self, n: usize, before_ms: u64) -> Gap {
        let (name, times) =
            self.parts.get(n).map_or((String::new(), None), |part| (part.name(), part.times_ms()));
        let after = self.parts.iter().skip(n + 1).find_map(Part::times_ms).map_or(u64::MAX, |times| times.0);
        // The tail of a segment has its times; entries of a salvaged part may be missing.
        let is_sealed = self.parts.get(n).is_some_and(|part| matches!(part.source, Source::Sealed(..)));
        let (from_ms, to_ms) = times.filter(|_| is_sealed).unwrap_or((before_ms, after));
        let missing = self.parts.get(n).is_some_and(|part| matches!(part.source, Source::Missing(_)));
        let what = if missing { "missing" } else { "damaged" };
        Gap { from_ms, to_ms, why: format!("{name} is {what}; {}", unanswered(from_ms, to_ms)) }
    }

    /// Gaps recorded in a part itself.
    fn gaps(&self, n: usize, before_ms: u64) -> Vec<Gap> {
        let Some(part) = self.parts.get(n) else { return Vec::new() };
        let lost = |mark: &Mark| match mark {
            Mark::Lost { at_ms, events } => {
                let (from_ms, to_ms) = (at_ms.saturating_sub(NEAR_MS), *at_ms);
                let why = format!(
                    "{} of that time lost; {}",
                    counted(*events, "event"),
                    unanswered(from_ms, to_ms)
                );
                Some(Gap { from_ms, to_ms, why })
            }
            _ => None,
        };
        let mut gaps: Vec<Gap> = part.marks.iter().filter_map(lost).collect();
        if let Source::Journal(name, scan) = &part.source
            && let State::Damaged(_) = scan.state
        {
            let (records, marks) = scan.broken_after;
            let times = |records: &[Record], marks: &[Mark]| -> Vec<u64> {
                records.iter().map(|r| r.at_ms).chain(marks.iter().map(Mark::at_ms)).collect()
            };
            let (before, after) = (scan.records.split_at(records), scan.marks.split_at(marks));
            let from_ms = times(before.0, after.0).into_iter().max().unwrap_or(before_ms);
            let to_ms = times(before.1, after.1).into_iter().min().unwrap_or(u64::MAX);
            let why = format!("{name} is damaged; {}", unanswered(from_ms, to_ms));
            gaps.push(Gap { from_ms, to_ms, why });
        }
        gaps
    }

    /// Gap after the last entry, if receipts show that there was more.
    fn cut_end(&self, last_ms: u64) -> Option<Gap> {
        let receipt = self.receipts.first()?.as_ref().and_then(Slots::last).filter(|last| last.len > 0)?;
        let has_it = |part: &Part| match &part.source {
            Source::Journal(_, scan) => {
                scan.number == receipt.number && scan.has(receipt.len, receipt.digest)
            }
            Source::Sealed(_, segment) => segment.tail.number == receipt.number,
            Source::Salvaged(..) | Source::Missing(_) => part.number >= receipt.number,
        };
        let why = format!("the end of the log was cut off; {}", unanswered(last_ms, u64::MAX));
        (!self.parts.iter().any(has_it)).then_some(Gap { from_ms: last_ms, to_ms: u64::MAX, why })
    }

    /// Time from which the log is complete.
    fn begins_ms(&self) -> Option<u64> {
        let first = self.parts.iter().rev().find_map(|part| retired(&part.marks));
        match first {
            Some(first) => self.parts.iter().filter(|part| part.number >= first).find_map(|part| {
                let is_carried = matches!(part.source, Source::Sealed(crate::segment::FileKind::Carried, _));
                part.times_ms().filter(|_| !is_carried).map(|times| times.0)
            }),
            None => self.parts.iter().flat_map(|part| &part.marks).find_map(|mark| match mark {
                Mark::Start { at_ms, .. } => Some(*at_ms),
                _ => None,
            }),
        }
    }

    fn answer(&self, question: Question, history: History, mut caveats: Vec<String>) -> Answer {
        let Question { address, port, at, .. } = question;
        let (last_ms, times) = (history.last_ms, Times::of(self));
        let (holdings, unknown) = history.all();
        let (mut holders, mut near) = (Vec::new(), Vec::new());
        for holding in holdings.iter().filter(|holding| {
            Transport::of_bits(holding.record.transports)
                .any(|transport| question.asks_for(transport as usize))
        }) {
            let holder = || holder_of(holding, at, last_ms, &times);
            match overlap(holding, at) {
                Overlap::At => holders.push(holder()),
                Overlap::Near => near.push(holder()),
                Overlap::No => {}
            }
        }
        let in_force = times.config(at.last_ms());
        let ran = times.ran(at.from_ms);
        if let Some((since, _, plan)) = in_force.filter(|_| ran) {
            let next = times.configs.iter().map(|c| c.0).filter(|ms| *ms > at.last_ms()).min();
            holders.extend(by_plan(question, plan, (*since, next), &holders));
        }
        caveats.extend(doubts(&times, &holdings, at, ran));
        let mut reasons = self.reasons(question, &unknown, last_ms);
        if let Some((.., plan)) = in_force.filter(|_| holders.is_empty()) {
            reasons.extend(plan.by_prefix(address));
        }
        reasons.dedup();
        let outcome = match holders.iter().any(|holder| holder.known) {
            true => Outcome::Who,
            false if holders.is_empty() && reasons.is_empty() => Outcome::Nobody,
            false => Outcome::Unknown,
        };
        if outcome == Outcome::Who {
            // Another holder is possible. A daemon that is still writing is no reason for doubt.
            let is_old = at.from_ms > last_ms.saturating_add(NEAR_MS);
            caveats.extend(reasons.drain(..).filter(|why| is_old || !why.starts_with(ENDS)));
        }
        Answer {
            outcome,
            unknown: reasons,
            address,
            port,
            at: rfc3339(at.from_ms),
            precision_ms: at.precision_ms,
            configuration: in_force.map(|(since, hash, _)| InForce { hash: *hash, since: rfc3339(*since) }),
            pool: in_force
                .and_then(|(.., plan)| plan.pool_of(address, port))
                .map(|(_, pool)| pool.name.clone()),
            holders,
            near,
            caveats,
        }
    }

    /// Reasons why a holder may not be in the log.
    fn reasons(&self, question: Question, unknown: &[Unknown], last_ms: u64) -> Vec<String> {
        let at = question.at;
        let mut reasons: Vec<String> = unknown
            .iter()
            .filter(|u| question.asks_for(u.transport) && question.meets(u.from_ms, u.to_ms))
            .map(|u| u.why.clone())
            .collect();
        match self.begins_ms() {
            None => reasons.push("the log is empty".to_owned()),
            Some(begins_ms) if at.from_ms < begins_ms => {
                reasons.push(format!("the log begins at {}, after that time", rfc3339(begins_ms)));
            }
            Some(_) => {}
        }
        if at.last_ms() > last_ms {
            reasons.push(format!("{ENDS}, at {}", rfc3339(last_ms)));
        }
        reasons
    }
}

fn unanswered(from_ms: u64, to_ms: u64) -> String {
    match (from_ms, to_ms) {
        (0, to_ms) => format!("the time before {} cannot be answered", rfc3339(to_ms)),
        (from_ms, u64::MAX) => format!("the time after {} cannot be answered", rfc3339(from_ms)),
        _ => format!("{} to {} cannot be answered", rfc3339(from_ms), rfc3339(to_ms)),
    }
}

/// Holders that a configuration in force determines, and the reasons why there may be one if there are none.
pub fn planned(
    plan: &PlanInForce,
    address: Ipv4Addr,
    port: u16,
    transport: Option<Transport>,
) -> (Vec<Holder>, Vec<String>) {
    let question = Question { address, port, transport, at: Span { from_ms: 0, precision_ms: 1 } };
    let mut holders = by_plan(question, plan, (0, None), &[]);
    holders.iter_mut().for_each(|holder| holder.from = None);
    let unknown = plan.by_prefix(address).filter(|_| holders.is_empty());
    (holders, unknown.into_iter().collect())
}

/// Holders determined by a configuration of this time.
fn by_plan(
    question: Question,
    plan: &PlanInForce,
    (since, next): (u64, Option<u64>),
    holders: &[Holder],
) -> Vec<Holder> {
    let known = holders.iter().any(|h| h.certain && h.by == Evidence::Binding);
    let owners = plan.owners(question.address, question.port).into_iter();
    owners
        // If bindings are logged, a static binding has a record as well.
        .filter(|owner| !(known && owner.inside_port.is_some()))
        .filter(|owner| Transport::of_bits(owner.transports).any(|t| question.asks_for(t as usize)))
        .map(|owner| by_configuration(&owner, plan, since, next))
        .chain(plan.mapped(question.address).map(|mapped| Holder {
            by: Evidence::Mapping,
            protocols: protocols(7),
            instance: Some(mapped.instance),
            pool: None,
            subscriber: (mapped.len < 128).then(|| prefix(mapped.inside, mapped.len)),
            inside: (mapped.len >= 128).then(|| address(mapped.inside)),
            inside_port: (mapped.len >= 128).then_some(question.port),
            ports: (0, u16::MAX),
            from: Some(rfc3339(since)),
            to: next.map(rfc3339),
            end: next.is_none().then(|| "the configuration is still in force".to_owned()),
            certain: true,
            known: true,
        }))
        .collect()
}

enum Overlap {
    At,
    Near,
    No,
}

fn overlap(holding: &Holding, at: Span) -> Overlap {
    let from = holding.possible_from_ms;
    let to = match holding.end {
        End::Open(_) => u64::MAX,
        End::At(ms) | End::Between(_, ms) => ms,
    };
    // A port assigned and released in the same millisecond was held in it.
    let to = to.max(from.saturating_add(1));
    if from <= at.last_ms() && to > at.from_ms {
        return Overlap::At;
    }
    let is_near = from <= at.last_ms().saturating_add(NEAR_MS) && to.saturating_add(NEAR_MS) > at.from_ms;
    if is_near { Overlap::Near } else { Overlap::No }
}

/// Doubts about an answer.
fn doubts(times: &Times<'_>, holdings: &[Holding], at: Span, ran: bool) -> Vec<String> {
    let mut doubts = Vec::new();
    if !ran {
        doubts.push("according to this log, no translator was running at that time".to_owned());
    }
    let since =
        holdings.iter().filter(|h| matches!(overlap(h, at), Overlap::At)).filter_map(|h| h.from_ms).min();
    let since = since.unwrap_or(at.from_ms.saturating_sub(NEAR_MS));
    let until = at.last_ms().saturating_add(NEAR_MS);
    let lost: u64 = times.losses.iter().filter(|(ms, _)| (since..=until).contains(ms)).map(|(_, n)| n).sum();
    if lost > 0 {
        doubts.push(format!("{} of that time lost before they could be written", counted(lost, "event")));
    }
    doubts
}

fn protocols(bits: u8) -> Vec<Transport> {
    Transport::of_bits(bits).collect()
}

fn address(inside: Ipv6Addr) -> IpAddr {
    inside.to_ipv4_mapped().map_or(IpAddr::V6(inside), IpAddr::V4)
}

fn prefix(inside: Ipv6Addr, len: u8) -> String {
    match address(inside) {
        IpAddr::V4(v4) => format!("{v4}/{}", len.min(32)),
        IpAddr::V6(v6) => format!("{v6}/{len}"),
    }
}

fn holder_of(holding: &Holding, at: Span, last_ms: u64, times: &Times<'_>) -> Holder {
    let Holding { record: r, from_ms, known_from_ms, end, doubt, .. } = holding;
    let plan = times.config(r.at_ms).map(|(.., plan)| *plan);
    let instance = plan.and_then(|plan| plan.instances.get(usize::from(r.instance)));
    let pool = plan.and_then(|plan| plan.pools.get(usize::from(r.pool)));
    let len = instance.map_or(128, |i| i.subscriber_len);
    // A shared port belongs to its subscriber, not to one inside port.
    let is_binding = !r.kind.is_block() && r.inside_port != 0;
    let (certain_to, to, end_text) = match *end {
        End::At(ms) => (ms, Some(ms), None),
        End::Between(a, b) => {
            let end_text = format!("between {} and {}: no record of the end", rfc3339(a), rfc3339(b));
            (a, None, Some(end_text))
        }
        // A running daemon writes a sign of life every minute.
        End::Open(last) => (
            last_ms.saturating_add(NEAR_MS).saturating_add(1),
            None,
            Some(format!("open when the log was last written, {}", rfc3339(last))),
        ),
    };
    let is_sure = doubt.is_none_or(|(from, to)| from > at.last_ms() || to <= at.from_ms);
    Holder {
        by: if r.kind.is_block() { Evidence::Block } else { Evidence::Binding },
        protocols: protocols(r.transports),
        instance: instance.map(|i| i.name.clone()),
        pool: pool.map(|p| p.name.clone()),
        subscriber: (!is_binding).then(|| prefix(r.inside, len)),
        inside: is_binding.then(|| address(r.inside)),
        inside_port: is_binding.then_some(r.inside_port),
        ports: (r.first, r.last),
        from: from_ms.map(rfc3339),
        to: to.map(rfc3339),
        end: end_text,
        certain: is_sure && *known_from_ms <= at.from_ms && certain_to > at.last_ms(),
        known: is_sure && *known_from_ms <= at.last_ms() && certain_to.max(known_from_ms + 1) > at.from_ms,
    }
}

fn by_configuration(owner: &ByConfiguration, plan: &PlanInForce, since: u64, next: Option<u64>) -> Holder {
    let instance = plan.instances.get(usize::from(owner.instance));
    let len = match plan.pools.get(usize::from(owner.pool)).map(|pool| &pool.allocation) {
        Some(crate::plan::AllocationInForce::Deterministic { subscriber_len, .. }) => *subscriber_len,
        _ => instance.map_or(128, |i| i.subscriber_len),
    };
    let is_binding = owner.inside_port.is_some();
    Holder {
        by: Evidence::Configuration,
        protocols: protocols(owner.transports),
        instance: instance.map(|i| i.name.clone()),
        pool: plan.pools.get(usize::from(owner.pool)).map(|pool| pool.name.clone()),
        subscriber: (!is_binding).then(|| prefix(owner.inside, len)),
        inside: is_binding.then(|| address(owner.inside)),
        inside_port: owner.inside_port,
        ports: owner.ports,
        from: Some(rfc3339(since)),
        to: next.map(rfc3339),
        end: next.is_none().then(|| "the configuration is still in force".to_owned()),
        certain: true,
        known: true,
    }
}
