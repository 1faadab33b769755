//! Promises of the model.

use super::possible::possible;
use super::scenario::{Bounds, Scenario, TIMING};
use super::state::{Action, PORTS, State, Way};
use gatun_cluster::policy::{Facts, Next, next};
use gatun_cluster::record::{Part, ShardRecord};
use gatun_cluster::target::Target;
use gatun_pair_model::ProcessState;
use gatun_pair_model::search::{Budgets, Model};

const ONE_USER: &str = "no port has two users at one time";
const NONE_LOST: &str = "no mapping is lost that a ready backup has acknowledged";
const NO_HARM: &str = "no move of a shard ends a mapping";
const HAS_OWNER: &str = "without further faults, a node gets the right to the shared range";

impl Model for Scenario {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State::initial(self)
    }

    fn possible(&self, state: &State, actions: &mut Vec<Action>) {
        possible(self, state, actions);
    }

    fn after(&self, state: &State, action: Action) -> State {
        let mut next = state.clone();
        next.act(self, action);
        next
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        [
            (ONE_USER, state.has_two_users(self)),
            (NONE_LOST, state.has_lost(self)),
            (NO_HARM, state.has_harmed),
            (HAS_OWNER, !state.gets_owner(self)),
        ]
        .into_iter()
        .find_map(|(promise, is_broken)| is_broken.then_some(promise))
    }

    fn canonical(&self, state: &State, bytes: &mut Vec<u8>) {
        bytes.push(state.has_harmed.into());
        state.canonical(bytes);
    }

    fn budgets(&self, state: &State) -> Budgets {
        let Bounds { ports, writes, late, crashes, cuts, breaks, connects, losses, promises, words, drift } =
            state.left;
        [ports, writes, late, crashes, cuts, breaks, connects, losses, promises, words, drift, 0]
    }
}

/// Returns the lines of a history, with the records and the users of the ports after each action.
pub fn explain(scenario: &Scenario, actions: &[Action]) -> Vec<String> {
    let mut state = State::initial(scenario);
    let mut lines = vec![];
    for action in actions {
        state.act(scenario, *action);
        let mut line = format!("{action:?}");
        for shard in &state.shards {
            line += &format!("\n        record {}", shard.record.as_ref().map_or("none".into(), shown));
            for (node, holder) in shard.holders.iter().enumerate() {
                let known = holder.known.as_ref().map_or("none".into(), shown);
                let times = [holder.hold_left, holder.promise_left, state.nodes[node].lease_left];
                line += &format!("\n        {node}: {known}; {times:?} {:?}", holder.ports);
            }
        }
        lines.push(line);
    }
    lines
}

fn shown(record: &ShardRecord<u8>) -> String {
    let backup = record.backup.as_ref().map_or(String::new(), |backup| {
        format!(" {}@{} {}", backup.seat.node, backup.seat.since, backup.phase.name())
    });
    format!("{} {}@{}{backup}", record.epoch, record.owner.node, record.owner.since)
}

impl State {
    fn has_two_users(&self, scenario: &Scenario) -> bool {
        (0..self.shards.len() as u8).any(|shard| {
            let users: Vec<_> =
                (0..scenario.nodes).map(|node| self.translations(scenario, shard, node)).collect();
            (0..PORTS).any(|port| {
                let mut of_port = users.iter().filter_map(|users| users[port]);
                of_port.next().is_some_and(|first| of_port.any(|other| other != first))
            })
        })
    }

    fn has_lost(&self, scenario: &Scenario) -> bool {
        (0..self.shards.len() as u8).any(|shard| {
            let safe = &self.shard(shard).safe;
            (0..PORTS).any(|port| {
                safe[port]
                    .is_some_and(|user| !(0..scenario.nodes).any(|node| self.has(shard, node, port, user)))
            })
        })
    }

    /// Returns whether a node has a mapping, in its memory or on its disk.
    pub(super) fn has(&self, shard: u8, node: u8, port: usize, user: u8) -> bool {
        self.node(node).life != ProcessState::Off && self.holder(shard, node).ports[port].user() == Some(user)
    }

    /// Plays on without faults: everything that is cut is whole again, processes that are down stay down.
    /// Returns whether a node of each shard gets a right.
    fn gets_owner(&self, scenario: &Scenario) -> bool {
        let mut state = self.clone();
        let bounds = &mut state.left;
        (bounds.ports, bounds.crashes, bounds.cuts, bounds.late) = (0, 0, 0, 0);
        (bounds.breaks, bounds.losses, bounds.promises, bounds.words, bounds.drift) = (0, 0, 0, 0, 0);
        (bounds.writes, bounds.connects) = (u8::MAX, u8::MAX);
        state.cuts.clear();
        state.nodes.iter_mut().for_each(|node| node.is_cut = false);
        for _ in 0..ROUNDS {
            if (0..state.shards.len() as u8).all(|shard| state.has_owner(scenario, shard)) {
                return true;
            }
            state.play_on(scenario);
        }
        false
    }

    fn has_owner(&self, scenario: &Scenario, shard: u8) -> bool {
        let is_alive = |node: u8| self.node(node).life == ProcessState::Alive;
        let record = self.shard(shard).record.as_ref();
        let holders =
            record.map(|record| [Some(record.owner.node), record.other(&record.owner.node).copied()]);
        let is_down = |node: Option<u8>| node.is_some_and(|node| !is_alive(node));
        // Both holders are down: they may keep each other going, and only the operator knows better.
        let waits = holders.is_some_and(|both| both.into_iter().all(is_down));
        waits
            || (0..scenario.nodes).all(|node| !is_alive(node))
            || (0..scenario.nodes).any(|node| {
                let is_owner = record.is_some_and(|record| record.part(&node) == Part::Owner);
                let may_act = self.acts(node) && self.has_hold(scenario, shard, node);
                is_owner
                    && may_act
                    && self.has_right(scenario, shard, node)
                    && !self.holder(shard, node).gives
            })
    }

    /// Handles everything on its way, lets each node do what its policy says, and then lets a tick pass.
    fn play_on(&mut self, scenario: &Scenario) {
        for node in 0..scenario.nodes {
            for action in [Action::Turn { node }, Action::See { node }] {
                self.act_if_possible(scenario, action);
            }
        }
        for _ in 0..STEPS {
            let mut actions = vec![];
            possible(scenario, self, &mut actions);
            match actions.into_iter().find(is_work) {
                Some(action) => self.act(scenario, action),
                None => break,
            }
        }
        for shard in 0..self.shards.len() as u8 {
            for node in 0..scenario.nodes {
                self.follow_policy(scenario, shard, node);
            }
        }
        self.act(scenario, Action::Tick { wrong: None });
    }

    fn act_if_possible(&mut self, scenario: &Scenario, action: Action) {
        let mut actions = vec![];
        possible(scenario, self, &mut actions);
        if actions.contains(&action) {
            self.act(scenario, action);
        }
    }

    fn follow_policy(&mut self, scenario: &Scenario, shard: u8, node: u8) {
        let alive: Vec<u8> =
            (0..scenario.nodes).filter(|node| self.node(*node).life == ProcessState::Alive).collect();
        let Some(first) = alive.first().copied().filter(|_| self.acts(node) && self.node(node).is_read)
        else {
            return;
        };
        let holder = self.holder(shard, node);
        let target = Target { first, second: alive.get(1).copied() };
        let Some(owner) = holder.known.as_ref().map(|record| record.owner.node) else { return };
        let other = holder.other(node);
        let facts = Facts {
            me: &node,
            target: Some(&target),
            absence: self.absence(shard, node, other.unwrap_or(owner)),
            is_other_here: other.is_some_and(|other| alive.contains(&other)),
            is_other_away: other.is_some_and(|other| !alive.contains(&other)),
            is_synced: holder.is_synced(),
            has_right: self.has_time(shard, node),
            has_state: holder.is_settled,
            is_told: holder.gives && holder.is_synced(),
            has_dropped: !holder.is_settled,
            may_move: true,
        };
        let record = holder.known.clone();
        let by = (&scenario.rules, &TIMING);
        match next(by, record.as_ref(), &facts, &|node| alive.contains(node)) {
            Next::Nothing => self.holder_mut(shard, node).gives = false,
            Next::Tell => self.act(scenario, Action::Give { shard, node }),
            Next::Drop => self.act(scenario, Action::Drop { shard, node }),
            Next::Write(change, record) => {
                let backup = record.backup.map_or(0, |backup| backup.seat.node);
                self.act(scenario, Action::Write { shard, node, change, backup, way: Way::Answered });
            }
        }
    }
}

/// Ticks within which a node has to get a right: a hold, a move, and their margins.
const ROUNDS: usize = 24;
/// Actions within a tick.
const STEPS: usize = 60;

/// Returns whether an action is no fault, takes no time, and is not repeated without end.
fn is_work(action: &Action) -> bool {
    matches!(
        action,
        Action::Deliver { keeps: false, .. }
            | Action::Break { .. }
            | Action::Connect { .. }
            | Action::Walk { .. }
            | Action::Arrive { .. }
    )
}
