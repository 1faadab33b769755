//! Part of a node in its cluster: registration, map of the shards, rights, and the next changes of records.
//! Without sockets, threads and clocks.
//!
//! ```text
//!   Store (etcd) --- registration, map, writes ---> Coordination --- rights, orders ---> members, engines
//!                                                        ^
//!   other holders --- promises, facts -------------------'
//! ```
//! Times are ms of a clock that never goes back. Rights count from the moment of a request.

mod broken;
mod division;
mod errors;
mod map;
mod orders;
mod registration;
mod revisions;
mod rights;
mod status;
#[cfg(test)]
mod tests;
mod writes;

pub use orders::ClusterOrder;
pub use revisions::{
    ConfigStep, ConfigurationStatus, NewRevision, RevisionOfNode, RevisionStatus, RunningConfig,
    SavedRevision,
};
pub use rights::{Promise, Rights};
pub use status::{ClusterEvent, NodeStatus, ShardStatus};

use crate::policy::{Facts, Next, next};
use crate::record::{NodeName, Part, ShardRecord};
use crate::revision::ActiveRevision;
use crate::rules::ClusterRules;
use crate::store::{Answer, Call, Request, Store, StoreError};
use crate::target::{Candidate, Target, targets};
use crate::timing::ClusterTiming;
use broken::Broken;
use division::Division;
use errors::Errors;
use map::Map;
use registration::Registration;
use revisions::{ConfigWrite, Revisions};
use std::collections::{HashMap, VecDeque};
use writes::Pending;

/// Properties of a node in its cluster.
#[derive(Clone, Debug)]
pub struct CoordinationSettings {
    /// Name of the cluster: all its keys begin with `/gatun/NAME/`.
    pub cluster: String,
    /// Name of this node.
    pub me: NodeName,
    /// All nodes of the configuration, this one included.
    pub nodes: Vec<Candidate<NodeName>>,
    /// Random number of this box's state directory, as text.
    pub instance: String,
    /// Number of shards.
    pub shards: u16,
    /// Lengths of leases and waits.
    pub timing: ClusterTiming,
    /// Shards of this node that get other holders at one time, at most.
    pub moves_max: usize,
    /// Rules in force: all, except in a proof that one is needed.
    pub rules: ClusterRules,
}

/// Facts about the relation to the other holder of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelationFacts {
    /// The other holder is connected.
    pub is_connected: bool,
    /// It has not been connected for long.
    pub is_away: bool,
    /// Both have acknowledged each other's whole state on the present connection.
    pub is_synced: bool,
    /// This node assigns no shared port, and the other one has acknowledged everything.
    pub is_told: bool,
}

/// Knowledge about a shard's record that outlives a process, if the sessions do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedRecord {
    /// Record, as the node knew it.
    pub record: Option<ShardRecord<NodeName>>,
    /// Record that was written without a known result, and the revision of the one that it replaces.
    pub pending: Option<(ShardRecord<NodeName>, i64)>,
}

/// Knowledge of a node about its own state of the shards.
pub trait Holdings {
    /// Facts about the relation to the other holder.
    fn relation(&self, shard: u8, other: &NodeName) -> RelationFacts;

    /// Returns whether the node has the shard's state: all of it, or a shard that nobody else has.
    fn has_state(&self, shard: u8) -> bool;

    /// Returns whether the node has dropped everything of the shard.
    fn has_dropped(&self, shard: u8) -> bool;
}

/// Task of a node for a shard, besides its rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Nothing.
    #[default]
    Keep,
    /// Assign no shared port, and tell the backup everything.
    Tell,
    /// Drop everything: the node leaves the shard.
    Drop,
}

/// Node's knowledge of a shard.
#[derive(Clone, Debug, Default)]
struct Shard {
    known: Option<ShardRecord<NodeName>>,
    revision: i64,
    pending: Option<Pending>,
    order: Order,
    /// Grows when everything of before has to be dropped.
    seat: u64,
    /// Grows with another holder beside this node: what was sent to the former one counts no more.
    relation: u64,
    /// Promise of the other holder.
    promise_claim_until: u64,
    promise_hold_until: u64,
    /// Own promise to the other holder.
    promised_claim_until: u64,
    promised_hold_until: u64,
}

/// Part of a node in its cluster.
pub struct Coordination {
    settings: CoordinationSettings,
    began_ms: u64,
    map: Map,
    registration: Registration,
    division: Division,
    broken: Broken,
    revisions: Revisions,
    shards: Vec<Shard>,
    /// Grows with each change of a record, or of one that was written.
    version: u64,
    targets: Vec<Target<NodeName>>,
    /// Candidates that the targets were computed from.
    candidates: Vec<Candidate<NodeName>>,
    /// Requests without an answer, with the time of each.
    waiting: HashMap<u64, (u64, Purpose)>,
    next_id: u64,
    errors: Errors,
    /// Orders that wait for the map, with their numbers.
    orders: VecDeque<(u64, ClusterOrder)>,
    /// Results of orders that the caller has not taken.
    ordered: VecDeque<(u64, Result<(), String>)>,
    events: VecDeque<ClusterEvent>,
}

/// Meaning of a request.
#[derive(Clone, Debug)]
enum Purpose {
    Read,
    Watch,
    Grant,
    Register,
    KeepAlive(i64),
    Division,
    Broken,
    Config(ConfigWrite),
    /// Word of an operator about the present trial: its next stage.
    EndTrial(Box<ActiveRevision>),
    Write(u8),
    Order(String),
}

impl Coordination {
    /// Creates the part of a process that has just started. `saved` has the records of the process whose
    /// sessions it has inherited; nothing if it has none.
    pub fn new(settings: CoordinationSettings, now_ms: u64, saved: &[SavedRecord]) -> Coordination {
        let mut shards = vec![Shard::default(); settings.shards.into()];
        for (shard, saved) in shards.iter_mut().zip(saved) {
            shard.known.clone_from(&saved.record);
            shard.pending = saved.pending.clone().map(|(record, base)| Pending::of_before(record, base));
        }
        Coordination {
            shards,
            version: 1,
            settings,
            began_ms: now_ms,
            map: Map::default(),
            registration: Registration::default(),
            division: Division::default(),
            broken: Broken::default(),
            revisions: Revisions::default(),
            targets: Vec::new(),
            candidates: Vec::new(),
            waiting: HashMap::new(),
            next_id: 0,
            errors: Errors::default(),
            orders: VecDeque::new(),
            ordered: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Does what is due. Returns the time until the next turn, ms, if no answer comes before.
    pub fn turn(&mut self, now_ms: u64, store: &mut dyn Store, holdings: &dyn Holdings) -> u64 {
        while let Some(reply) = store.poll() {
            self.answered(now_ms, reply.id, reply.answer);
        }
        self.errors.forget(now_ms, self.settings.timing.timing.lease_ms);
        self.keep_map(now_ms, store);
        self.keep_orders(now_ms, store);
        self.keep_division(now_ms, store);
        self.keep_registered(now_ms, store);
        self.keep_broken(now_ms, store);
        self.keep_revisions(now_ms, store);
        self.aim(now_ms);
        for shard in 0..self.shards.len() {
            self.go_on(now_ms, store, holdings, shard as u8);
        }
        u64::from(self.settings.timing.timing.lease_ms / 16).max(1)
    }

    fn submit(&mut self, now_ms: u64, store: &mut dyn Store, asked: Purpose, call: Call) -> u64 {
        self.next_id += 1;
        self.submit_as(now_ms, store, self.next_id, asked, call);
        self.next_id
    }

    fn submit_as(&mut self, now_ms: u64, store: &mut dyn Store, id: u64, asked: Purpose, call: Call) {
        self.waiting.insert(id, (now_ms, asked));
        store.submit(Request { id, call });
    }

    fn answered(&mut self, now_ms: u64, id: u64, answer: Result<Answer, StoreError>) {
        let is_watch = matches!(self.waiting.get(&id), Some((_, Purpose::Watch)));
        let is_change = matches!(answer, Ok(Answer::Changes(..)));
        let Some((asked_ms, asked)) = (match is_watch && is_change {
            true => self.waiting.get(&id).cloned(),
            false => self.waiting.remove(&id),
        }) else {
            return;
        };
        if is_watch && !self.map.is_watched_by(id) {
            // Another watch has replaced it.
            self.waiting.remove(&id);
            return;
        }
        // Whoever gave an order hears of its error.
        let is_order = matches!(asked, Purpose::Order(_) | Purpose::EndTrial(_));
        if !is_order && let Some(error) = self.errors.answered(now_ms, &asked, &answer) {
            self.note(now_ms, error.to_string());
        }
        match asked {
            Purpose::Read => self.map_read(now_ms, answer),
            Purpose::Watch => self.map_changed(now_ms, answer),
            Purpose::Grant | Purpose::Register | Purpose::KeepAlive(_) => {
                self.registration_answered(now_ms, asked_ms, &asked, answer);
            }
            Purpose::Division => self.division_answered(now_ms, &answer),
            Purpose::Broken => self.broken_answered(now_ms, &answer),
            Purpose::EndTrial(next) => self.trial_ended(now_ms, id, *next, answer),
            Purpose::Config(kind) => self.config_answered(now_ms, kind, &answer),
            Purpose::Write(shard) => self.written(now_ms, shard, id, answer),
            Purpose::Order(text) => self.ordered(now_ms, id, &text, answer),
        }
    }

    /// Computes the nodes that should have each shard: those that are not drained, have not lost their hold,
    /// and have not been broken for long. If all are, nothing moves.
    fn aim(&mut self, now_ms: u64) {
        let takes_part = |one: &&Candidate<NodeName>| {
            let absence = self.map.absent_ms(now_ms, &one.node);
            let removal_ms = self.settings.timing.removal_ms(&self.settings.rules);
            let is_lost =
                absence.is_some_and(|ms| ms >= removal_ms) || self.gone_ms(now_ms, &one.node).is_some();
            let is_away = is_lost || self.is_long_broken(now_ms, &one.node);
            self.map.has_registered(&one.node) && !self.map.is_drained(&one.node) && !is_away
        };
        let candidates: Vec<_> = self.settings.nodes.iter().filter(takes_part).cloned().collect();
        if candidates != self.candidates {
            self.targets = targets(&candidates, self.settings.shards);
            self.candidates = candidates;
        }
    }

    /// Makes the next change of a shard, if there is one.
    fn go_on(&mut self, now_ms: u64, store: &mut dyn Store, holdings: &dyn Holdings, shard: u8) {
        let place = usize::from(shard);
        // Nothing else is done before the result of a write is known.
        if self.shards[place].pending.is_some() {
            self.settle(now_ms, store, shard);
            return;
        }
        if !self.may_write() {
            // No release follows now, and packets go on.
            if self.shards[place].order == Order::Tell {
                self.shards[place].order = Order::Keep;
            }
            return;
        }
        let (rules, timing) = (self.settings.rules, self.settings.timing);
        let me = self.settings.me.clone();
        let record = self.shards[place].known.clone();
        let other = record.as_ref().and_then(|record| record.other(&me).cloned());
        let relation = other.as_ref().map(|other| holdings.relation(shard, other)).unwrap_or_default();
        let absent = other.clone().or_else(|| record.as_ref().map(|record| record.owner.node.clone()));
        let is_here = |node: &NodeName| self.map.is_registered(node) && self.knows(node);
        let facts = Facts {
            me: &me,
            target: self.targets.get(place),
            absence: absent.map(|node| self.absence(now_ms, shard, &node)).unwrap_or_default(),
            is_other_here: relation.is_connected && other.as_ref().is_some_and(is_here),
            is_other_away: relation.is_away,
            is_synced: relation.is_synced,
            has_right: self.has_time(now_ms, shard),
            has_state: holdings.has_state(shard),
            is_told: relation.is_told,
            has_dropped: holdings.has_dropped(shard),
            may_move: self.moves() < self.settings.moves_max,
        };
        let order = match next((&rules, &timing), record.as_ref(), &facts, &is_here) {
            Next::Nothing => Order::Keep,
            Next::Tell => Order::Tell,
            Next::Drop => Order::Drop,
            Next::Write(change, record) => {
                self.write(now_ms, store, shard, (change, record));
                return;
            }
        };
        self.shards[place].order = order;
    }

    /// Number of own shards that are getting another holder.
    fn moves(&self) -> usize {
        let moves = |shard: &&Shard| {
            let record = shard.pending.as_ref().map(|pending| &pending.record).or(shard.known.as_ref());
            record.is_some_and(|record| {
                record.part(&self.settings.me) == Part::Owner
                    && record.phase() != Some(crate::record::Phase::Ready)
            })
        };
        self.shards.iter().filter(moves).count()
    }

    /// Returns what the next process needs to know about a shard's record.
    pub fn saved(&self, shard: u8) -> SavedRecord {
        let one = &self.shards[usize::from(shard)];
        let pending = one.pending.as_ref().map(|pending| (pending.record.clone(), pending.base));
        SavedRecord { record: one.known.clone(), pending }
    }

    /// Returns the record of a shard, as the node knows it.
    pub fn record(&self, shard: u8) -> Option<&ShardRecord<NodeName>> {
        self.shards.get(usize::from(shard))?.known.as_ref()
    }

    /// Number that grows when [`saved`](Self::saved) changes for some shard.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Properties of the node in its cluster.
    pub fn settings(&self) -> &CoordinationSettings {
        &self.settings
    }

    fn knows(&self, node: &NodeName) -> bool {
        self.settings.nodes.iter().any(|one| one.node == *node)
    }
}
