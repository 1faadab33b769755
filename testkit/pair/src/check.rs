//! Promises of the model.

use super::act::possible;
use super::scenario::{Bounds, ProcessState, Scenario};
use super::search::{Budgets, Model};
use super::state::{Action, PLACES, PORTS, State};

const ONE_USER: &str = "no port has two users at one time";
const NONE_LOST: &str = "no acknowledged mapping is lost";
const HAS_OWNER: &str = "without further faults, a member gets the right to the shared range";

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
            (HAS_OWNER, !state.gets_owner(self)),
        ]
        .into_iter()
        .find_map(|(promise, is_broken)| is_broken.then_some(promise))
    }

    fn canonical(&self, state: &State, bytes: &mut Vec<u8>) {
        state.canonical(self, bytes);
    }

    fn budgets(&self, state: &State) -> Budgets {
        let Bounds { ports, changes, grants: _, crashes, cuts, breaks, connects, losses, promises, drift } =
            state.left;
        [ports, changes, crashes, cuts, breaks, connects, losses, promises, drift, 0, 0, 0]
    }
}

/// Returns the lines of a history, with the users of the ports after each action.
pub fn explain(scenario: &Scenario, actions: &[Action]) -> Vec<String> {
    let mut state = State::initial(scenario);
    let mut lines = vec![];
    for action in actions {
        state.act(scenario, *action);
        let sides = state.shards.iter().flat_map(|shard| &shard.sides);
        let ports: Vec<String> =
            sides.map(|side| format!("{} {:?}", side.epoch.number, side.ports)).collect();
        lines.push(format!("{action:?}\n        {}", ports.join("\n        ")));
    }
    lines
}

impl State {
    /// Users whose packets a member translates: its process, or its kernel while the process does not run.
    fn translations(&self, scenario: &Scenario, shard: u8, side: u8) -> [Option<u8>; PLACES] {
        let member = self.side(shard, side);
        if self.is_alive(scenario, shard, side) {
            return member.translations(scenario, side);
        }
        let node = &self.nodes[usize::from(scenario.node(shard, side))];
        if node.kernel_left > 0 { member.kernel } else { [None; PLACES] }
    }

    fn has_two_users(&self, scenario: &Scenario) -> bool {
        (0..self.shards.len() as u8).any(|shard| {
            let [first, second] = [0, 1].map(|side| self.translations(scenario, shard, side));
            first.iter().zip(&second).any(|(one, other)| one.is_some() && other.is_some() && one != other)
        })
    }

    fn has_lost(&self, scenario: &Scenario) -> bool {
        (0..self.shards.len() as u8).any(|shard| {
            let has = |side: u8, port: usize, user: u8| {
                self.life(scenario, shard, side) != ProcessState::Off
                    && self.side(shard, side).ports[port].user() == Some(user)
            };
            let safe = &self.shard(shard).safe;
            (0..PORTS).any(|port| safe[port].is_some_and(|user| !has(0, port, user) && !has(1, port, user)))
        })
    }

    /// Plays on without faults: everything that is cut is whole again, processes that are down stay down, and
    /// the operator says so. Returns whether a member of each shard gets a right, if one has the state.
    fn gets_owner(&self, scenario: &Scenario) -> bool {
        let mut state = self.clone();
        let bounds = &mut state.left;
        (bounds.ports, bounds.changes, bounds.crashes, bounds.cuts) = (0, 0, 0, 0);
        (bounds.breaks, bounds.losses, bounds.promises, bounds.drift) = (0, 0, 0, 0);
        (bounds.grants, bounds.connects) = (u8::MAX, u8::MAX);
        state.nodes.iter_mut().for_each(|node| node.is_cut = false);
        state.shards.iter_mut().for_each(|shard| shard.is_cut = false);
        for _ in 0..ROUNDS {
            if (0..state.shards.len() as u8).all(|shard| state.has_owner(scenario, shard)) {
                return true;
            }
            state.play_on(scenario);
        }
        false
    }

    fn has_owner(&self, scenario: &Scenario, shard: u8) -> bool {
        let is_alive = |side: &u8| self.is_alive(scenario, shard, *side);
        let mut alive = [0, 1].into_iter().filter(is_alive).peekable();
        let standings = || {
            [0, 1].into_iter().filter(is_alive).map(|side| self.side(shard, side).standing(scenario, side))
        };
        // A process that is stopped or killed keeps its state, and only it may end the wait of a cold one.
        let keeps = [0, 1].iter().any(|side| {
            matches!(self.life(scenario, shard, *side), ProcessState::Stopped | ProcessState::Killed)
        });
        let waits = keeps && (!scenario.is_cluster || standings().all(|standing| !standing.is_settled));
        alive.peek().is_none()
            || waits
            || standings().any(|standing| standing.is_settled && standing.has_right(&scenario.rules))
    }

    /// Handles everything on its way, and then lets a tick pass.
    fn play_on(&mut self, scenario: &Scenario) {
        for _ in 0..STEPS {
            let mut actions = vec![];
            possible(scenario, self, &mut actions);
            let next = actions.into_iter().find(|action| !is_wait(action));
            match next {
                Some(action) => self.act(scenario, action),
                None => break,
            }
        }
        self.act(scenario, Action::Tick { wrong: None });
    }
}

/// Ticks within which a member has to get a right: a lease, a promise, and their margins.
const ROUNDS: usize = 16;
/// Actions within a tick.
const STEPS: usize = 60;

fn is_wait(action: &Action) -> bool {
    matches!(action, Action::Tick { .. } | Action::Return { .. })
}
