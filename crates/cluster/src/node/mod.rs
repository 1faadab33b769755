//! Node of a cluster: ties its part in the cluster ([`Coordination`]), its relations to the other nodes
//! ([`Member`]) and the engines of its workers together. Without sockets, threads and clocks.
//!
//! ```text
//!   Store <--> Coordination --(records, rights, orders)--> shards --(links, rights, fences, passes)--> engines
//!                  ^  ^                                       |                                         ^
//!                  |  '---(synced, told, dropped)-------------+--(relations)--> members <--(sessions)---'
//!                  '------(promises)---------------------------------------------'
//! ```
//! Times are ms of the workers' clock. What has changed in a shard is done in this order:
//!
//! 1. Member and engines stop using what is over: the relation, rights, the link, fences.
//! 2. A pass drops what the node has, forgets what the other holder knew, or ends what it does not know.
//! 3. The engines get the new rights, and the member the new relation.

mod configuration;
mod facts;
mod keeper;
mod places;
mod promises;
mod saved;
mod shard;
mod status;

pub use places::Places;
pub use saved::{SavedNode, SavedShard};
pub use status::{ClusterStatus, HeldShard, MemberStatus};

use crate::coordination::{ClusterEvent, ClusterOrder, Coordination, CoordinationSettings};
use crate::record::NodeName;
use crate::store::Store;
use facts::Facts;
use gatun_peer::member::{AddressRange, Engines, Member, SharedSettings};
use gatun_peer::ownership::{Member as Side, Rules};
use gatun_peer::wire::{ConfigKey, Exchange, Settings};
use keeper::ShardRequests;
use saved::HeldStore;
use shard::ShardState;

/// Properties of a node.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Part of the node in its cluster.
    pub coordination: CoordinationSettings,
    /// Public addresses, each with the number of its shard.
    pub addresses: Vec<AddressRange>,
    /// Ports at each end of an address's ports that only one of two holders ever assigns.
    pub own_ports: u16,
    /// Time without the other holder after which the lifetimes of its sessions begin, ms.
    pub away_ms: u64,
    /// Time after which sessions of the other holder that contradict own ones are tried again, ms.
    pub again_ms: u64,
}

/// Engines of a node's workers. Each member has a slot of its own, by its number; the slot after the last
/// member is the node's.
pub trait NodeEngines {
    /// Engines, as a slot sees them.
    fn of(&mut self, slot: usize) -> &mut dyn Engines;

    /// Gives the records of a shard to a slot.
    fn assign(&mut self, shard: u8, slot: Option<usize>);

    /// Tells where each shard is translated, when that has changed.
    fn places(&mut self, places: &Places);
}

/// Another node.
struct Other {
    name: NodeName,
    me: Side,
    member: Member,
    /// Time of the next request for promises.
    ask_ms: u64,
}

/// Node of a cluster.
pub struct Node {
    coordination: Coordination,
    addresses: Vec<AddressRange>,
    own_ports: u16,
    away_ms: u64,
    others: Vec<Other>,
    shards: Vec<ShardState>,
    keeper: ShardRequests,
    places: Option<Places>,
    held: HeldStore,
    /// Time of the next look at records and rights.
    look_ms: u64,
    /// Grows with each change of what this node has.
    version: u64,
    /// Version and coordination's version of the latest standing to be saved.
    taken: (u64, u64),
}

/// Time between two looks at records and rights, ms.
const LOOK_MS: u64 = 5;

/// Side of a node towards another one: which range of ports is its own.
pub fn side(me: &NodeName, other: &NodeName) -> Side {
    if me < other { Side::First } else { Side::Second }
}

/// Returns the settings of the exchange with another node.
pub fn exchange_settings(me: &NodeName, other: &NodeName, process: u64, keys: Vec<ConfigKey>) -> Settings {
    Settings::of_node(side(me, other), me, process, keys)
}

impl Node {
    /// Creates the node of a process that has just started. `exchanges` has one for each other node; `saved`
    /// is the standing of the process whose sessions the engines have inherited, `None` if they have none.
    /// Before the first packet, the engines must have fences that forbid everything.
    pub fn new(
        settings: NodeSettings,
        exchanges: Vec<(NodeName, Exchange)>,
        saved: Option<SavedNode>,
        now_ms: u64,
    ) -> Node {
        let NodeSettings { coordination: of, addresses, own_ports, away_ms, again_ms } = settings;
        let SavedNode { shards: mut saved, seen } = saved.unwrap_or_default();
        saved.resize(of.shards.into(), SavedShard::default());
        let records: Vec<_> = saved.iter().map(SavedShard::record).collect();
        let me = of.me.clone();
        let other = |(name, exchange): (NodeName, Exchange)| {
            let (me, addresses) = (side(&me, &name), addresses.clone());
            let settings = SharedSettings { me, addresses, again_ms, rules: Rules::default() };
            Other { name, me, member: Member::of_node(settings, exchange), ask_ms: 0 }
        };
        let mut others: Vec<Other> = exchanges.into_iter().map(other).collect();
        let number = |name: &NodeName| others.iter().position(|other| other.name == *name);
        let shards: Vec<ShardState> =
            saved.iter().map(|saved| ShardState::new(now_ms, &of, saved, &number)).collect();
        for (shard, state) in (0..=u8::MAX).zip(&shards) {
            if let Some(number) = state.assigned.filter(|_| state.is_unsure) {
                others[number].member.is_unsure_of(shard);
            }
        }
        let mut coordination = Coordination::new(of, now_ms, &records);
        coordination.set_seen(seen);
        Node {
            coordination,
            addresses,
            own_ports,
            away_ms,
            others,
            shards,
            keeper: ShardRequests::default(),
            places: None,
            held: HeldStore::default(),
            look_ms: 0,
            version: 1,
            taken: (0, 0),
        }
    }

    /// Numbers of the shards, of which there are up to 256.
    fn numbers(&self) -> impl Iterator<Item = u8> + use<> {
        (0..=u8::MAX).take(self.shards.len())
    }

    /// Names of the other nodes, in the order of their numbers.
    pub fn names(&self) -> impl Iterator<Item = &NodeName> {
        self.others.iter().map(|other| &other.name)
    }

    /// Member of another node. The caller carries bytes between it and its link.
    pub fn member(&mut self, number: usize) -> &mut Member {
        &mut self.others[number].member
    }

    /// Members of all other nodes, in the order of their numbers.
    pub fn members_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.others.iter_mut().map(|other| &mut other.member)
    }

    /// Does what is due. Returns the time until the next turn, ms, if nothing is received before.
    pub fn turn(&mut self, now_ms: u64, engines: &mut dyn NodeEngines, store: &mut dyn Store) -> u64 {
        self.held.release(store);
        self.assign_first(engines);
        self.promises(now_ms);
        let own = self.others.len();
        let is_done = self.keeper_turn(now_ms, engines.of(own));
        if is_done || now_ms >= self.look_ms {
            self.look(now_ms, engines, store);
            self.look_ms = now_ms + LOOK_MS;
        }
        let mut wait_ms = self.look_ms.saturating_sub(now_ms);
        for (number, other) in self.others.iter_mut().enumerate() {
            wait_ms = wait_ms.min(other.member.turn(now_ms, engines.of(number)));
        }
        self.keeper_begins(now_ms, engines);
        wait_ms
    }

    /// Looks at records and rights.
    fn look(&mut self, now_ms: u64, engines: &mut dyn NodeEngines, store: &mut dyn Store) {
        let facts = Facts::new(now_ms, self);
        let version = (self.coordination.version(), self.version);
        let mut store = self.held.around(store, version != self.taken);
        self.coordination.turn(now_ms, &mut store, &facts);
        for shard in self.numbers() {
            self.follow(now_ms, shard, engines);
        }
        self.tell_places(now_ms, engines);
    }

    /// Has the node take part only if its division is that of the cluster.
    pub fn set_division(&mut self, own: String) {
        self.coordination.set_division(own);
    }

    /// Tells the other nodes whether packets get lost at this one.
    pub fn set_broken(&mut self, is_broken: bool) {
        self.coordination.set_broken(is_broken);
    }

    /// Uses other addresses, after a reload.
    pub fn set_addresses(&mut self, addresses: Vec<AddressRange>, own_ports: u16) {
        self.others.iter_mut().for_each(|other| other.member.set_ranges(addresses.clone()));
        (self.addresses, self.own_ports) = (addresses, own_ports);
        self.plan_changed();
    }

    /// Takes the events since the last call, at most 1,000.
    pub fn take_events(&mut self) -> Vec<ClusterEvent> {
        self.coordination.take_events()
    }

    /// Takes the results of orders, by their numbers.
    pub fn take_ordered(&mut self) -> Vec<(u64, Result<(), String>)> {
        self.coordination.take_ordered()
    }

    /// Passes an order of the operator to all nodes. Returns its number.
    ///
    /// # Errors
    /// Says why it cannot be given now.
    pub fn order(&mut self, now_ms: u64, order: &ClusterOrder, store: &mut dyn Store) -> Result<u64, String> {
        if let ClusterOrder::Gone(node) = order
            && self.others.iter().any(|other| other.name == *node && other.member.exchange.is_open())
        {
            return Err(format!("{node:?} is connected, so it is not off"));
        }
        self.coordination.order(now_ms, store, order)
    }
}
