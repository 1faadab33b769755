//! Who had a port at a time: the port's whole history is gathered, and what overlaps the time is the answer.

use crate::error::LogError;
use crate::hash::Hash;
use crate::mark::Mark;
use crate::plan::{ByConfiguration, PlanInForce};
use crate::reader::Reader;
use crate::record::{IRREGULAR, Key, Record};
use crate::time::{Span, rfc3339};
use gatun_nat::plan::Transport;
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Changes of the holder so long before or after the time are told too: who asks may have a clock that is wrong.
const NEAR_MS: u64 = 60_000;

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The public address.
    pub address: Ipv4Addr,
    /// The public port.
    pub port: u16,
    /// The time that was asked for, RFC 3339; it stands for all of `precision_ms` from then on.
    pub at: String,
    /// As fine as the time was given, milliseconds.
    pub precision_ms: u64,
    /// The configuration that was in force then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<InForce>,
    /// The pool of the address, by that configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Who had the port; more than one where protocols differ, or the time is not fine enough.
    pub holders: Vec<Holder>,
    /// Who got it or gave it back within a minute of the time.
    pub near: Vec<Holder>,
    /// What makes the answer less than certain.
    pub caveats: Vec<String>,
}

/// A configuration that was in force.
#[derive(Clone, Debug, Serialize)]
pub struct InForce {
    /// SHA-256 of its text.
    pub hash: Hash,
    /// Since when.
    pub since: String,
}

/// Somebody who had a port for a time.
#[derive(Clone, Debug, Serialize)]
pub struct Holder {
    /// How that is known: from a record of a `block` or a `binding`, or by the `configuration` alone.
    pub by: &'static str,
    /// Which protocols.
    pub protocols: Vec<&'static str>,
    /// The instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The subscriber's prefix, of a block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscriber: Option<String>,
    /// The inside address, of a binding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<IpAddr>,
    /// The inside port, of a binding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside_port: Option<u16>,
    /// First and last public port.
    pub ports: (u16, u16),
    /// Since when; nothing where the log does not reach back so far, or has lost the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Until when; nothing where it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// What is known of the end, where that is no record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Whether it had the port at the time for certain.
    pub certain: bool,
}

/// How a holding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Nothing tells of an end; the last sign of life of the daemon was then.
    Open(u64),
    At(u64),
    /// Between the two, as the daemon ended without saying so, or the record was lost.
    Between(u64, u64),
}

#[derive(Clone, Copy, Debug)]
struct Holding {
    record: Record,
    from_ms: Option<u64>,
    end: End,
}

/// The history of some ports, in the order of events.
#[derive(Default)]
struct History {
    open: Vec<Holding>,
    /// What was open when a daemon before ended, so far as none after it has told that it goes on.
    before: Vec<Holding>,
    ended: Vec<Holding>,
    /// The last time that anything tells of.
    last_ms: u64,
    stopped_ms: Option<u64>,
}

impl History {
    fn mark(&mut self, mark: &Mark) {
        match mark {
            Mark::Start { at_ms, keeps_state, .. } => {
                let end =
                    self.stopped_ms.take().map_or(End::Between(self.last_ms.min(*at_ms), *at_ms), End::At);
                // What the daemon before has not told of may have waited in memory all its life: this one may still.
                self.before.extend(self.open.drain(..).map(|holding| Holding { end, ..holding }));
                if !keeps_state {
                    self.ended.append(&mut self.before);
                }
            }
            Mark::Stop { at_ms } => self.stopped_ms = Some(*at_ms),
            _ => {}
        }
    }

    fn record(&mut self, record: Record) {
        let at_ms = record.at_ms;
        let same = self.open.iter().position(|holding| holding.record.is_same_place(&record));
        let same = same.map(|at| self.open.remove(at));
        if !record.kind.begins() {
            let begun = match same {
                Some(begun) if begun.record.is_same_holder(&record) => begun,
                other => {
                    self.end_untold(other, at_ms);
                    Holding { record, from_ms: None, end: End::Open(0) }
                }
            };
            self.ended.push(Holding { end: End::At(at_ms), ..begun });
            return;
        }
        self.end_untold(same, at_ms);
        let goes_on = |old: &Holding| {
            record.kind.goes_on() && old.record.is_same_place(&record) && old.record.is_same_holder(&record)
        };
        // The latest, where the same place was the same holder's before.
        let begun = self.before.iter().rposition(goes_on).map(|at| self.before.remove(at));
        let begun = begun.unwrap_or(Holding { record, from_ms: Some(at_ms), end: End::Open(0) });
        self.open.push(Holding { end: End::Open(0), ..begun });
    }

    /// Somebody else has what `lost` had, or has given it back, and no record tells of its end.
    fn end_untold(&mut self, lost: Option<Holding>, at_ms: u64) {
        let between =
            |lost: Holding| Holding { end: End::Between(lost.record.at_ms.min(at_ms), at_ms), ..lost };
        self.ended.extend(lost.map(between));
    }

    /// All holdings; those that nothing ends are open, or ended with the daemon.
    fn all(mut self) -> Vec<Holding> {
        let end = self.stopped_ms.map_or(End::Open(self.last_ms), End::At);
        self.ended.append(&mut self.before);
        self.ended.extend(self.open.into_iter().map(|holding| Holding { end, ..holding }));
        self.ended
    }
}

/// What all marks say of configurations and of when the daemon ran.
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

    /// Whether a daemon ran, by its starts and clean ends.
    fn ran(&self, at_ms: u64) -> bool {
        let last = |times: &[u64]| times.iter().copied().filter(|ms| *ms <= at_ms).max();
        last(&self.starts) >= last(&self.stops) && last(&self.starts).is_some()
    }
}

impl Reader {
    /// Who had a public address and port at a time.
    pub fn who(&self, address: Ipv4Addr, port: u16, at: Span) -> Answer {
        let keys: Vec<Key> = (0..=IRREGULAR).map(|class| Key::for_port(class, address, port)).collect();
        let (mut history, mut caveats) = (History::default(), Vec::new());
        for part in &self.parts {
            let is_start = |mark: &&Mark| matches!(mark, Mark::Start { .. });
            part.marks.iter().filter(is_start).for_each(|mark| history.mark(mark));
            match self.find(part, &keys) {
                Ok(found) => {
                    let records = found.records.into_iter();
                    records.filter(|r| r.has_port(port)).for_each(|r| history.record(r));
                    caveats.extend(found.damage.map(|what| format!("{}: {what}", part.name())));
                }
                Err(error @ LogError::Damaged { .. }) => {
                    caveats.push(format!("the log was changed: {error}"))
                }
                Err(error) => caveats.push(format!("a part of the log cannot be read: {error}")),
            }
            part.marks.iter().filter(|mark| !is_start(mark)).for_each(|mark| history.mark(mark));
            history.last_ms = history.last_ms.max(part.last_ms());
        }
        caveats.extend(self.faults.iter().map(|fault| format!("the log was changed: {fault}")));
        let last_ms = history.last_ms;
        self.answer((address, port), at, history.all(), last_ms, caveats)
    }

    fn answer(
        &self,
        (address, port): (Ipv4Addr, u16),
        at: Span,
        holdings: Vec<Holding>,
        last_ms: u64,
        mut caveats: Vec<String>,
    ) -> Answer {
        let times = Times::of(self);
        let (mut holders, mut near) = (Vec::new(), Vec::new());
        for holding in &holdings {
            let told = || tell(holding, at, &times);
            match overlap(holding, at) {
                Overlap::At => holders.push(told()),
                Overlap::Near => near.push(told()),
                Overlap::No => {}
            }
        }
        let in_force = times.config(at.last_ms());
        let ran = times.ran(at.from_ms);
        if let Some((since, _, plan)) = in_force.filter(|_| ran) {
            let next = times.configs.iter().map(|c| c.0).filter(|ms| *ms > at.last_ms()).min();
            let known = holders.iter().any(|h| h.certain && h.by == "binding");
            // A static binding has its record too, where bindings are logged.
            let owners =
                plan.owners(address, port).into_iter().filter(|o| !(known && o.inside_port.is_some()));
            holders.extend(owners.map(|owner| by_configuration(&owner, plan, *since, next)));
        }
        caveats.extend(doubts(&times, &holdings, at, last_ms, ran));
        Answer {
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
}

enum Overlap {
    At,
    Near,
    No,
}

fn overlap(holding: &Holding, at: Span) -> Overlap {
    let from = holding.from_ms.unwrap_or(0);
    let to = match holding.end {
        End::Open(_) => u64::MAX,
        End::At(ms) | End::Between(_, ms) => ms,
    };
    // What was given and taken back in the same millisecond was held in it.
    let to = to.max(from.saturating_add(1));
    if from <= at.last_ms() && to > at.from_ms && holding.from_ms.is_some() {
        return Overlap::At;
    }
    // Only its end is known: that it began before is certain, how long before is not.
    if holding.from_ms.is_none() && to > at.from_ms {
        return Overlap::At;
    }
    let is_near = from <= at.last_ms().saturating_add(NEAR_MS) && to.saturating_add(NEAR_MS) > at.from_ms;
    if is_near { Overlap::Near } else { Overlap::No }
}

/// What makes an answer less than certain.
fn doubts(times: &Times<'_>, holdings: &[Holding], at: Span, last_ms: u64, ran: bool) -> Vec<String> {
    let mut doubts = Vec::new();
    if !ran {
        doubts.push("by this log no translator ran at that time".to_owned());
    }
    // A daemon that runs gives a sign of life every minute.
    if at.from_ms > last_ms.saturating_add(NEAR_MS) {
        doubts.push(format!("the log ends before that time, at {}", rfc3339(last_ms)));
    }
    let since =
        holdings.iter().filter(|h| matches!(overlap(h, at), Overlap::At)).filter_map(|h| h.from_ms).min();
    let since = since.unwrap_or(at.from_ms.saturating_sub(NEAR_MS));
    let until = at.last_ms().saturating_add(NEAR_MS);
    let lost: u64 = times.losses.iter().filter(|(ms, _)| (since..=until).contains(ms)).map(|(_, n)| n).sum();
    if lost > 0 {
        doubts.push(format!("{lost} events of that time were lost before they could be written"));
    }
    doubts
}

fn protocols(bits: u8) -> Vec<&'static str> {
    Transport::of_bits(bits).map(Transport::name).collect()
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

fn tell(holding: &Holding, at: Span, times: &Times<'_>) -> Holder {
    let Holding { record: r, from_ms, end } = holding;
    let plan = times.config(r.at_ms).map(|(.., plan)| *plan);
    let instance = plan.and_then(|plan| plan.instances.get(usize::from(r.instance)));
    let pool = plan.and_then(|plan| plan.pools.get(usize::from(r.pool)));
    let len = instance.map_or(128, |i| i.subscriber_len);
    // A port that flows share is its subscriber's, and no one inside port's.
    let is_binding = !r.kind.is_block() && r.inside_port != 0;
    let (certain_to, to, said) = match *end {
        End::At(ms) => (ms, Some(ms), None),
        End::Between(a, b) => {
            let said = format!("between {} and {}: no record tells", rfc3339(a), rfc3339(b));
            (a, None, Some(said))
        }
        End::Open(last) => {
            (u64::MAX, None, Some(format!("open when the log was last written, {}", rfc3339(last))))
        }
    };
    Holder {
        by: if r.kind.is_block() { "block" } else { "binding" },
        protocols: protocols(r.transports),
        instance: instance.map(|i| i.name.clone()),
        pool: pool.map(|p| p.name.clone()),
        subscriber: (!is_binding).then(|| prefix(r.inside, len)),
        inside: is_binding.then(|| address(r.inside)),
        inside_port: is_binding.then_some(r.inside_port),
        ports: (r.first, r.last),
        from: from_ms.map(rfc3339),
        to: to.map(rfc3339),
        end: said,
        certain: from_ms.is_some_and(|from| from <= at.from_ms) && certain_to > at.last_ms(),
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
        by: "configuration",
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
    }
}
