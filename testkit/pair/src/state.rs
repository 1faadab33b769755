//! State of all members, of the network and of the coordinator.

use super::scenario::{Bounds, ProcessState, Scenario, TIMING};
use gatun_peer::ownership::{
    Authority, Entry, Epoch, Inbound, Member, Outbound, Port, Range, Revision, Standing,
};

/// Ranges of the ports of a shard: one port each. The last place of a table of users is the static mapping.
pub(super) const RANGES: [Range; 3] = [Range::Shared, Range::Of(Member::Second), Range::Of(Member::First)];
pub(super) const PORTS: usize = RANGES.len();
/// Ports and the static mapping.
pub(super) const PLACES: usize = PORTS + 1;

/// Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) life: ProcessState,
    /// Ticks for which the kernel translates without its daemon.
    pub(super) kernel_left: u8,
    /// True if no message passes between it and the coordinator.
    pub(super) is_cut: bool,
}

/// Contents of a record between members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Record {
    pub(super) epoch: Epoch,
    pub(super) revision: u64,
    pub(super) change: Change,
}

/// Change that a record reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Change {
    Begun {
        port: u8,
        user: u8,
    },
    Ended {
        port: u8,
        user: u8,
    },
    State([Option<u8>; PORTS]),
    /// Another epoch or revision.
    Note,
}

/// Contents of a packet between members.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Body {
    Entry(Entry<Record>),
    /// All records up to `handled` are handled and answered. The answers are records up to `after`.
    Acknowledged {
        handled: u64,
        after: u64,
    },
    /// Request for a promise, and the promise. `ago` counts ticks since the request.
    Asked {
        ago: u8,
    },
    Promised {
        ago: u8,
    },
}

/// Packet between members, of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Packet {
    pub(super) connection: u8,
    pub(super) body: Body,
}

/// Message between a member and the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Message {
    pub(super) side: u8,
    pub(super) kind: MessageKind,
    pub(super) epoch: Epoch,
    /// Ticks since the request.
    pub(super) ago: u8,
}

/// Kind of a message between a member and the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum MessageKind {
    Renew,
    Claim,
    Granted,
}

/// One member's state of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Side {
    pub(super) epoch: Epoch,
    pub(super) is_settled: bool,
    pub(super) peer_is_gone: bool,
    /// Ticks until the operator's word takes effect.
    pub(super) word_left: Option<u8>,
    pub(super) revision: Revision,
    pub(super) ports: [Port<u8>; PORTS],
    pub(super) out: Outbound<Record>,
    pub(super) inbound: Inbound,
    /// Connection that it uses.
    pub(super) link: Option<u8>,
    /// Number of its processes so far, and of the other member's one that `inbound` belongs to.
    pub(super) process: u8,
    pub(super) peer_process: u8,
    pub(super) lease_left: u8,
    pub(super) promise_left: u8,
    pub(super) promised_left: u8,
    /// Translations of its kernel while the process does not run.
    pub(super) kernel: [Option<u8>; PLACES],
}

/// Coordinator's state of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Coordinator {
    pub(super) epoch: Epoch,
    pub(super) lease_left: u8,
    /// Ticks since the lease has ended, up to a limit.
    pub(super) expired_for: Option<u8>,
}

/// Shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shard {
    pub(super) sides: [Side; 2],
    /// Packets to each member.
    pub(super) queues: [Vec<Packet>; 2],
    /// True if no packet passes between the members.
    pub(super) is_cut: bool,
    /// Number of the latest connection.
    pub(super) connection: u8,
    pub(super) coordinator: Coordinator,
    pub(super) messages: Vec<Message>,
    /// User that gets each port next.
    pub(super) next_users: [u8; PORTS],
    /// Mapping that a member knows to be acknowledged, and that nobody has ended.
    pub(super) safe: [Option<u8>; PORTS],
}

/// State of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) nodes: Vec<Node>,
    pub(super) shards: Vec<Shard>,
    pub(super) left: Bounds,
}

/// Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Action {
    Assign { shard: u8, side: u8, port: u8, user: u8 },
    End { shard: u8, side: u8, port: u8 },
    Deliver { shard: u8, to: u8, place: u8, keeps: bool },
    Lose { shard: u8, to: u8, place: u8 },
    Break { shard: u8, side: u8 },
    Connect { shard: u8 },
    Walk { shard: u8, side: u8 },
    Release { shard: u8, side: u8 },
    Word { shard: u8, side: u8 },
    Reload { node: u8 },
    Crash { node: u8, life: ProcessState },
    Return { node: u8 },
    Cut { shard: u8 },
    CutCoordinator { node: u8 },
    Heal { shard: u8 },
    HealCoordinator { node: u8 },
    Renew { shard: u8, side: u8 },
    Claim { shard: u8, side: u8 },
    Ask { shard: u8, side: u8 },
    DeliverMessage { shard: u8, place: u8 },
    LoseMessage { shard: u8, place: u8 },
    Tick { wrong: Option<WrongClock> },
}

/// Member whose clock differs from time in a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct WrongClock {
    pub shard: u8,
    pub side: u8,
    pub is_fast: bool,
}

/// Returns the member of a side.
pub(super) fn member(side: u8) -> Member {
    if side == 0 { Member::First } else { Member::Second }
}

impl Side {
    /// Returns a member without any state.
    pub(super) fn cold(scenario: &Scenario, process: u8) -> Side {
        Side {
            epoch: Epoch { number: 0, owner: Member::First },
            is_settled: false,
            peer_is_gone: false,
            word_left: None,
            revision: Revision::new(0),
            ports: [Port::Free; PORTS],
            out: Outbound::new(scenario.log.into()),
            inbound: Inbound::default(),
            link: None,
            process,
            peer_process: 0,
            lease_left: 0,
            promise_left: 0,
            promised_left: 0,
            kernel: [None; PLACES],
        }
    }

    /// Returns what the member knows, as the rules want it.
    pub(super) fn standing(&self, scenario: &Scenario, side: u8) -> Standing {
        let authority = if scenario.is_cluster {
            Authority::Cluster {
                is_leased: self.lease_left > 0,
                is_promised: self.promise_left > 0,
                has_promised: self.promised_left > 0,
            }
        } else {
            Authority::Pair
        };
        Standing {
            me: member(side),
            epoch: self.epoch,
            is_settled: self.is_settled,
            peer_is_gone: self.peer_is_gone,
            authority,
        }
    }

    /// Returns the users whose packets a running process translates.
    pub(super) fn translations(&self, scenario: &Scenario, side: u8) -> [Option<u8>; PLACES] {
        let standing = self.standing(scenario, side);
        let mut users = [None; PLACES];
        if standing.may_act(&scenario.rules) {
            for (user, port) in users.iter_mut().zip(&self.ports) {
                *user = port.user();
            }
        }
        if self.revision.may_begin(&scenario.rules, &standing) {
            users[PORTS] = Some(self.revision.own() as u8);
        }
        users
    }
}

impl State {
    /// Returns the state after a regular start of all nodes.
    pub(super) fn initial(scenario: &Scenario) -> State {
        let node = Node { life: ProcessState::Alive, kernel_left: 0, is_cut: false };
        let lease = TIMING.lease_ms as u8;
        let shard = Shard {
            sides: [Side::cold(scenario, 1), Side::cold(scenario, 1)],
            queues: [vec![], vec![]],
            is_cut: false,
            connection: 0,
            coordinator: Coordinator {
                epoch: Epoch { number: 1, owner: Member::First },
                lease_left: lease,
                expired_for: None,
            },
            messages: vec![],
            next_users: [0; PORTS],
            safe: [None; PORTS],
        };
        let mut state = State {
            nodes: vec![node; scenario.nodes.into()],
            shards: vec![shard; scenario.shards.len()],
            left: scenario.bounds,
        };
        for shard in 0..scenario.shards.len() as u8 {
            state.connect(scenario, shard);
            for from in 0..2 {
                state.walk(scenario, shard, from);
            }
            while let Some(to) = (0..2).find(|to| !state.shard(shard).queues[usize::from(*to)].is_empty()) {
                state.deliver(scenario, shard, to, 0, false);
            }
            if scenario.is_cluster {
                state.shard_mut(shard).sides[0].lease_left = lease;
            }
        }
        state
    }

    /// Returns one shard with its two nodes, a state of [`Scenario::slice`].
    pub fn slice(&self, scenario: &Scenario, shard: u8) -> State {
        let nodes = [0, 1].map(|side| self.nodes[usize::from(scenario.node(shard, side))]);
        State { nodes: nodes.to_vec(), shards: vec![self.shard(shard).clone()], left: self.left }
    }

    pub(super) fn shard(&self, shard: u8) -> &Shard {
        &self.shards[usize::from(shard)]
    }

    pub(super) fn shard_mut(&mut self, shard: u8) -> &mut Shard {
        &mut self.shards[usize::from(shard)]
    }

    pub(super) fn side(&self, shard: u8, side: u8) -> &Side {
        &self.shard(shard).sides[usize::from(side)]
    }

    pub(super) fn side_mut(&mut self, shard: u8, side: u8) -> &mut Side {
        &mut self.shard_mut(shard).sides[usize::from(side)]
    }

    pub(super) fn life(&self, scenario: &Scenario, shard: u8, side: u8) -> ProcessState {
        self.nodes[usize::from(scenario.node(shard, side))].life
    }

    pub(super) fn is_alive(&self, scenario: &Scenario, shard: u8, side: u8) -> bool {
        self.life(scenario, shard, side) == ProcessState::Alive
    }
}

impl Scenario {
    /// Returns the node of a member.
    pub(super) fn node(&self, shard: u8, side: u8) -> u8 {
        self.shards[usize::from(shard)][usize::from(side)]
    }
}
