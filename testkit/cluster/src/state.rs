//! State of all nodes, of the network and of the coordinator.

use super::scenario::{Bounds, Scenario, TIMING};
use gatun_cluster::policy::Change;
use gatun_cluster::record::{Part, ShardRecord};
use gatun_cluster::transitions::{self, Absence};
use gatun_pair_model::ProcessState;
use gatun_peer::ownership::{Entry, Inbound, Member, Outbound, Port, Range};

/// Ranges of the ports of a shard: one port each.
pub(super) const RANGES: [Range; 3] = [Range::Shared, Range::Of(Member::Second), Range::Of(Member::First)];
pub(super) const PORTS: usize = RANGES.len();

pub(super) const LEASE: u8 = TIMING.timing.lease_ms as u8;
pub(super) const HOLD: u8 = TIMING.hold_ms as u8;
/// Records that a log keeps.
const LOG: usize = 2;

/// Registration of another node, as a node has seen it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    /// Ticks since it was seen to be absent, up to a limit.
    pub(super) absent_for: Option<u8>,
    /// Number of the registration.
    pub(super) number: u8,
}

/// Node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) life: ProcessState,
    /// True if a stopped process goes on, and has not looked at its clock.
    pub(super) is_stale: bool,
    /// Ticks for which the kernel translates without its daemon.
    pub(super) kernel_left: u8,
    /// True if no message passes between it and the coordinator.
    pub(super) is_cut: bool,
    /// True if it knows that it is registered, and has read the map since.
    pub(super) is_read: bool,
    /// True if it believes that it is registered.
    pub(super) is_registered: bool,
    pub(super) lease_left: u8,
    /// Ticks for which the process has to expect that the one before has promised something.
    pub(super) boot_left: u8,
    pub(super) seen: Vec<Seen>,
    /// Number of its processes so far.
    pub(super) process: u8,
    /// Ticks since the operator's word that it is off.
    pub(super) gone_for: Option<u8>,
}

/// Registration of a node at the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Registration {
    pub(super) lease_left: u8,
    /// Number of registrations so far.
    pub(super) number: u8,
}

/// Contents of a record between holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Report {
    Begun { port: u8, user: u8 },
    Ended { port: u8, user: u8 },
    State([Option<u8>; PORTS]),
}

/// Contents of a packet between holders.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Body {
    /// Record, with its sender's epoch.
    Entry(Entry<(u32, Report)>),
    /// All records up to `handled` are handled and answered. The answers are records up to `after`.
    Acknowledged { handled: u64, after: u64 },
    /// Request for a promise, and the promise. `ago` counts ticks since the request.
    Asked { ago: u8 },
    /// `is_owner`: the giver knows the receiver as the owner.
    Promised { ago: u8, is_owner: bool },
}

/// Packet between holders, of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Packet {
    pub(super) from: u8,
    pub(super) to: u8,
    pub(super) connection: u8,
    pub(super) body: Body,
}

/// Write that has not arrived at the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Write {
    pub(super) record: ShardRecord<u8>,
    /// Number of the record that it replaces.
    pub(super) revision: u8,
    /// Node whose registration must be absent, and the number of its last one.
    pub(super) absent: Option<(u8, u8)>,
    pub(super) change: Change,
    pub(super) by: u8,
    /// Users of the ports when it was sent: what follows is no part of it.
    pub(super) users: [Option<u8>; PORTS],
}

/// Node's state of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    /// Record that it has seen, and its number.
    pub(super) known: Option<ShardRecord<u8>>,
    pub(super) revision: u8,
    /// Record that it has written without knowing the result.
    pub(super) pending: Option<ShardRecord<u8>>,
    pub(super) is_settled: bool,
    /// True if it assigns no shared port, because it will release the shard.
    pub(super) gives: bool,
    pub(super) ports: [Port<u8>; PORTS],
    pub(super) out: Outbound<(u32, Report)>,
    pub(super) inbound: Inbound,
    /// Connection to the other holder that it uses.
    pub(super) link: Option<u8>,
    /// Number of the other holder's process that `inbound` belongs to.
    pub(super) peer_process: u8,
    pub(super) hold_left: u8,
    pub(super) promise_left: u8,
    pub(super) promised_claim: u8,
    pub(super) promised_removal: u8,
    /// Translations of its kernel while the process does not run.
    pub(super) kernel: [Option<u8>; PORTS],
}

/// Shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shard {
    pub(super) record: Option<ShardRecord<u8>>,
    pub(super) revision: u8,
    pub(super) holders: Vec<Holder>,
    pub(super) packets: Vec<Packet>,
    pub(super) connection: u8,
    pub(super) writes: Vec<Write>,
    /// User that gets each port next.
    pub(super) next_users: [u8; PORTS],
    /// Mapping that a ready backup has acknowledged, and that nobody has ended.
    pub(super) safe: [Option<u8>; PORTS],
    /// Last user whose mapping somebody has ended, unless somebody keeps it.
    pub(super) ended: [Option<u8>; PORTS],
}

/// State of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) nodes: Vec<Node>,
    pub(super) registrations: Vec<Registration>,
    pub(super) shards: Vec<Shard>,
    /// Pairs of nodes without a connection, the lower one first.
    pub(super) cuts: Vec<(u8, u8)>,
    pub(super) left: Bounds,
    /// True if a planned move has ended a mapping.
    pub(super) has_harmed: bool,
}

/// Way of a write to the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Way {
    Answered,
    Unanswered,
    Late,
}

/// Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Action {
    Assign { shard: u8, node: u8, port: u8, user: u8 },
    End { shard: u8, node: u8, port: u8 },
    Deliver { shard: u8, place: u8, keeps: bool },
    Lose { shard: u8, place: u8 },
    Break { shard: u8, node: u8 },
    Connect { shard: u8, nodes: (u8, u8) },
    Walk { shard: u8, node: u8 },
    Ask { shard: u8, node: u8 },
    Give { shard: u8, node: u8 },
    Keep { shard: u8, node: u8 },
    Drop { shard: u8, node: u8 },
    See { node: u8 },
    Write { shard: u8, node: u8, change: Change, backup: u8, way: Way },
    Arrive { shard: u8, place: u8 },
    Crash { node: u8, life: ProcessState },
    Return { node: u8 },
    Turn { node: u8 },
    Word { node: u8 },
    Cut { nodes: (u8, u8) },
    Heal { nodes: (u8, u8) },
    CutCoordinator { node: u8 },
    HealCoordinator { node: u8 },
    Tick { wrong: Option<WrongClock> },
}

/// Node whose clock differs from time in a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct WrongClock {
    pub node: u8,
    pub is_fast: bool,
}

/// Returns the side of a node, if it has another holder.
pub(super) fn side(node: u8, other: u8) -> Member {
    if node < other { Member::First } else { Member::Second }
}

impl Holder {
    /// Returns a node without any state of a shard.
    pub(super) fn cold() -> Holder {
        Holder {
            known: None,
            revision: 0,
            pending: None,
            is_settled: false,
            gives: false,
            ports: [Port::Free; PORTS],
            out: Outbound::new(LOG),
            inbound: Inbound::default(),
            link: None,
            peer_process: 0,
            hold_left: 0,
            promise_left: 0,
            promised_claim: 0,
            promised_removal: 0,
            kernel: [None; PORTS],
        }
    }

    /// Records that may be in force.
    pub(super) fn records(&self) -> impl Iterator<Item = &ShardRecord<u8>> {
        self.known.iter().chain(&self.pending)
    }

    /// Returns the part of a node, as far as it knows.
    pub(super) fn part(&self, node: u8) -> Part {
        self.known.as_ref().map_or(Part::None, |record| record.part(&node))
    }

    /// Returns the other holder, as far as it knows.
    pub(super) fn other(&self, node: u8) -> Option<u8> {
        self.known.as_ref().and_then(|record| record.other(&node).copied())
    }

    /// Forgets the other holder and everything that was sent to it.
    pub(super) fn forget_peer(&mut self) {
        *self = Holder {
            ports: self.ports.map(|port| port.peer_gone()),
            out: Outbound::new(LOG),
            inbound: Inbound::default(),
            link: None,
            peer_process: 0,
            promise_left: 0,
            promised_claim: 0,
            promised_removal: 0,
            ..self.clone()
        };
    }

    /// Returns whether both holders have each other's whole state, and the other one has acknowledged.
    pub(super) fn is_synced(&self) -> bool {
        let is_known = |port: &Port<u8>| port.user().is_none() || port.is_acknowledged();
        self.link.is_some()
            && !self.out.needs_walk()
            && self.inbound.next() > 1
            && self.ports.iter().all(is_known)
    }
}

impl State {
    /// Returns one shard with all nodes, a state of [`Scenario::slices`].
    pub fn slice(&self, shard: u8) -> State {
        State { shards: vec![self.shard(shard).clone()], ..self.clone() }
    }

    pub(super) fn shard(&self, shard: u8) -> &Shard {
        &self.shards[usize::from(shard)]
    }

    pub(super) fn shard_mut(&mut self, shard: u8) -> &mut Shard {
        &mut self.shards[usize::from(shard)]
    }

    pub(super) fn holder(&self, shard: u8, node: u8) -> &Holder {
        &self.shard(shard).holders[usize::from(node)]
    }

    pub(super) fn holder_mut(&mut self, shard: u8, node: u8) -> &mut Holder {
        &mut self.shard_mut(shard).holders[usize::from(node)]
    }

    pub(super) fn node(&self, node: u8) -> &Node {
        &self.nodes[usize::from(node)]
    }

    pub(super) fn node_mut(&mut self, node: u8) -> &mut Node {
        &mut self.nodes[usize::from(node)]
    }

    /// Returns whether a process runs and knows the time.
    pub(super) fn acts(&self, node: u8) -> bool {
        self.node(node).life == ProcessState::Alive && !self.node(node).is_stale
    }

    /// Returns whether a node has the time for which it may translate.
    pub(super) fn has_hold(&self, scenario: &Scenario, shard: u8, node: u8) -> bool {
        let holder = self.holder(shard, node);
        holder.is_settled && holder.part(node) != Part::None && (holder.hold_left > 0 || !scenario.rules.hold)
    }

    /// Returns whether a node has the right to shared ports, in each record that may be in force.
    pub(super) fn has_right(&self, scenario: &Scenario, shard: u8, node: u8) -> bool {
        let holder = self.holder(shard, node);
        let has_time = self.node(node).lease_left > 0 || holder.promise_left > 0;
        let may = |record: &ShardRecord<u8>| {
            record.part(&node) == Part::Owner
                && (has_time || !transitions::needs_right(&scenario.rules, record))
        };
        holder.known.is_some() && holder.records().all(may)
    }

    /// Returns whether a node may assign a port.
    pub(super) fn may_assign(&self, scenario: &Scenario, shard: u8, node: u8, port: usize) -> bool {
        let holder = self.holder(shard, node);
        let is_lowered = |record: &ShardRecord<u8>| match (record.part(&node), record.other(&node)) {
            (Part::None, _) => false,
            // It has all ranges as long as it is alone.
            (_, None) => true,
            (Part::Owner, Some(_)) if !scenario.rules.lower_first && record.phase() != Some(READY) => true,
            (_, Some(other)) => RANGES[port] == Range::Of(side(node, *other)),
        };
        let may = match RANGES[port] {
            Range::Shared => self.has_right(scenario, shard, node) && !holder.gives,
            Range::Of(_) => holder.known.is_some() && holder.records().all(is_lowered),
        };
        may && self.has_hold(scenario, shard, node) && self.acts(node)
    }

    /// Returns the users whose packets a node translates: its process, or its kernel.
    pub(super) fn translations(&self, scenario: &Scenario, shard: u8, node: u8) -> [Option<u8>; PORTS] {
        let (one, holder) = (self.node(node), self.holder(shard, node));
        if one.life != ProcessState::Alive {
            return if one.kernel_left > 0 { holder.kernel } else { [None; PORTS] };
        }
        self.users(scenario, shard, node)
    }

    /// Returns the users whose packets a running process translates.
    pub(super) fn users(&self, scenario: &Scenario, shard: u8, node: u8) -> [Option<u8>; PORTS] {
        let holder = self.holder(shard, node);
        let users = holder.ports.map(|port| port.user());
        if !self.node(node).is_stale {
            return if self.has_hold(scenario, shard, node) { users } else { [None; PORTS] };
        }
        // The engine has the end of the right that the process had when it was stopped.
        let is_owner = holder.part(node) == Part::Owner;
        let has_time =
            self.has_hold(scenario, shard, node) && (!is_owner || self.has_right(scenario, shard, node));
        if has_time || !scenario.rules.fence { users } else { [None; PORTS] }
    }

    /// Returns what a node knows about another one that it may replace in a shard.
    pub(super) fn absence(&self, shard: u8, node: u8, of: u8) -> Absence {
        let holder = self.holder(shard, node);
        let has_promised = holder.other(node) == Some(of);
        let time = |left: u8| if has_promised { u32::from(left) } else { 0 };
        Absence {
            absent_ms: self.node(node).seen[usize::from(of)].absent_for.map(u32::from),
            promised_claim_ms: time(holder.promised_claim).max(self.node(node).boot_left.into()),
            promised_removal_ms: time(holder.promised_removal),
            gone_ms: self.node(of).gone_for.map(u32::from),
        }
    }

    pub(super) fn is_between(&self, one: u8, other: u8) -> bool {
        !self.cuts.contains(&(one.min(other), one.max(other)))
    }
}

/// Phase of a backup that has everything.
pub(super) const READY: gatun_cluster::record::Phase = gatun_cluster::record::Phase::Ready;
