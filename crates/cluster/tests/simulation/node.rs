//! Node of the simulation: its coordination, and what it has of each shard.

use crate::server::{Client, Server};
use gatun_cluster::coordination::{
    Coordination, CoordinationSettings, Holdings, Order, RelationFacts, SavedRecord,
};
use gatun_cluster::record::{NodeName, Part};
use gatun_cluster::target::Candidate;
use gatun_cluster::{ClusterRules, ClusterTiming};
use gatun_peer::ownership::Timing;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub const SHARDS: u16 = 4;
pub const TIMING: ClusterTiming =
    ClusterTiming { timing: Timing { lease_ms: 400, kernel_ms: 60, drift_ms: 40 }, hold_ms: 1_200 };

/// State of a node in a shard.
#[derive(Clone, Debug, Default)]
pub struct Holding {
    pub has_state: bool,
    /// User of each port, and whether the other holder knows the mapping.
    pub ports: BTreeMap<u8, (u64, bool)>,
    /// Ports of ended mappings that the other holder may translate.
    pub freed: BTreeSet<u8>,
    pub has_dropped: bool,
    pub seat: u64,
    pub relation: u64,
    pub facts: RelationFacts,
    /// Times since when the other holder is connected, and since when this node tells.
    pub connected_ms: Option<u64>,
    pub lost_ms: u64,
    pub told_ms: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct All(pub Vec<Holding>);

impl Holdings for All {
    fn relation(&self, shard: u8, _other: &NodeName) -> RelationFacts {
        self.0[usize::from(shard)].facts
    }

    fn has_state(&self, shard: u8) -> bool {
        self.0[usize::from(shard)].has_state
    }

    fn has_dropped(&self, shard: u8) -> bool {
        self.0[usize::from(shard)].has_dropped
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Runs,
    Stopped,
    Killed,
    Off,
}

pub struct Node {
    pub name: NodeName,
    pub life: Life,
    pub coordination: Coordination,
    pub client: Client,
    pub all: All,
    /// Translations of the kernel, until a time.
    pub kernel: (Vec<BTreeMap<u8, u64>>, u64),
    /// Thousandths by which its clock is fast.
    pub rate: i64,
    /// Records that the state directory has.
    saved: Vec<SavedRecord>,
    rules: ClusterRules,
    count: usize,
    instance: String,
}

pub fn name(number: usize) -> NodeName {
    format!("n{number}").into()
}

impl Node {
    pub fn new(
        server: &Rc<RefCell<Server>>,
        (number, count): (usize, usize),
        rules: ClusterRules,
        rate: i64,
    ) -> Node {
        let saved = vec![SavedRecord::default(); SHARDS.into()];
        let instance = format!("i{number}");
        let coordination = Node::begin((number, count), &instance, rules, 0, &saved);
        Node {
            name: name(number),
            life: Life::Runs,
            coordination,
            client: Client::new(server),
            all: All(vec![Holding::default(); SHARDS.into()]),
            kernel: (vec![], 0),
            rate,
            saved,
            rules,
            count,
            instance,
        }
    }

    /// The same box with another state directory.
    pub fn with_instance(self, instance: &str) -> Node {
        let coordination = Node::begin((0, self.count), instance, self.rules, 0, &self.saved);
        Node { coordination, instance: instance.to_owned(), ..self }
    }

    fn begin(
        (number, count): (usize, usize),
        instance: &str,
        rules: ClusterRules,
        now_ms: u64,
        saved: &[SavedRecord],
    ) -> Coordination {
        let one = |number: usize| Candidate { node: name(number), name: name(number).to_string(), weight: 1 };
        let settings = CoordinationSettings {
            cluster: "c".to_owned(),
            me: name(number),
            nodes: (0..count).map(one).collect(),
            instance: instance.to_owned(),
            shards: SHARDS,
            timing: TIMING,
            moves_max: 2,
            rules,
        };
        Coordination::new(settings, now_ms, saved)
    }

    /// Time of its own clock.
    pub fn now(&self, now_ms: u64) -> u64 {
        (now_ms as i64 + now_ms as i64 * self.rate / 1_000) as u64
    }

    /// Users whose packets the running process translates. `can_act` is the time after which the engine's
    /// fences count.
    pub fn translated(&self, now_ms: u64, shard: u8) -> BTreeMap<u8, u64> {
        let rights = self.coordination.rights(shard);
        let now = self.now(now_ms);
        let holding = &self.all.0[usize::from(shard)];
        if rights.translate_until <= now || !holding.has_state {
            return BTreeMap::new();
        }
        // The engine stops an owner whose right has ended, until it has ended what the backup does not know.
        let only_known = rights.part == Part::Owner && rights.can_be_claimed && rights.assign_until <= now;
        let ports = holding.ports.iter().filter(|(_, (_, is_known))| *is_known || !only_known);
        ports.map(|(port, (user, _))| (*port, *user)).collect()
    }

    pub fn turn(&mut self, now_ms: u64) {
        if self.life != Life::Runs {
            return;
        }
        self.client.turn(now_ms);
        let now = self.now(now_ms);
        self.coordination.turn(now, &mut self.client, &self.all);
        for shard in 0..SHARDS as u8 {
            self.follow(now, shard);
        }
    }

    /// Does what the coordination wants.
    fn follow(&mut self, now: u64, shard: u8) {
        let status = self.coordination.shard(shard);
        let rights = self.coordination.rights(shard);
        let holding = &mut self.all.0[usize::from(shard)];
        if holding.seat != status.seat {
            *holding = Holding { seat: status.seat, relation: status.relation, ..Holding::default() };
        }
        if holding.relation != status.relation {
            holding.relation = status.relation;
            (holding.connected_ms, holding.lost_ms, holding.told_ms) = (None, now, None);
            holding.freed.clear();
            holding.ports.values_mut().for_each(|(_, is_known)| *is_known = false);
        }
        self.saved[usize::from(shard)] = self.coordination.saved(shard);
        let is_alone = status.record.as_ref().is_some_and(|record| record.backup.is_none());
        if rights.part == Part::Owner && is_alone {
            holding.has_state = true;
        }
        if status.order == Order::Drop {
            *holding = Holding {
                has_dropped: true,
                seat: status.seat,
                relation: status.relation,
                ..Holding::default()
            };
        }
        holding.told_ms = match status.order {
            Order::Tell => holding.told_ms.or(Some(now)),
            _ => None,
        };
        if rights.part == Part::Owner && rights.can_be_claimed && rights.assign_until <= now {
            holding.ports.retain(|_, (_, is_known)| *is_known);
        }
    }

    pub fn end(&mut self, now_ms: u64, life: Life) {
        let kernel = (0..SHARDS as u8).map(|shard| self.translated(now_ms, shard)).collect();
        self.kernel = (kernel, now_ms + u64::from(TIMING.timing.kernel_ms));
        self.life = life;
        if life == Life::Off {
            self.all = All(vec![Holding::default(); SHARDS.into()]);
            self.saved = vec![SavedRecord::default(); SHARDS.into()];
        }
    }

    pub fn come_back(&mut self, server: &Rc<RefCell<Server>>, number: usize, now_ms: u64) {
        let was = std::mem::replace(&mut self.life, Life::Runs);
        self.kernel = (vec![], 0);
        if matches!(was, Life::Killed | Life::Off) {
            let now = self.now(now_ms);
            self.client = Client::new(server);
            self.coordination =
                Node::begin((number, self.count), &self.instance, self.rules, now, &self.saved);
            for holding in &mut self.all.0 {
                (holding.seat, holding.relation) = (0, 0);
                (holding.connected_ms, holding.lost_ms, holding.facts) =
                    (None, now, RelationFacts::default());
            }
        }
    }
}
