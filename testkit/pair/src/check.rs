//! Promises, and the search for states that break one.

use super::act::possible;
use super::scenario::{ProcessState, Scenario};
use super::state::{Action, PLACES, PORTS, State};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Result of a check.
#[derive(Clone, Debug)]
pub struct Checked<A> {
    /// Number of different states.
    pub states: usize,
    /// Number of actions that were tried.
    pub steps: usize,
    /// Length of the longest history.
    pub depth: usize,
    /// True if every state within the bounds was visited.
    pub is_complete: bool,
    /// Duration.
    pub took: Duration,
    /// Broken promise, and the shortest history that breaks it.
    pub broken: Option<(&'static str, Vec<A>)>,
}

impl<A> Checked<A> {
    /// Returns the figures as a line.
    pub fn figures(&self) -> String {
        format!(
            "{} states ({}), {} steps, up to {} events in a row, {:.1} s",
            self.states,
            if self.is_complete { "all" } else { "not all" },
            self.steps,
            self.depth,
            self.took.as_secs_f64()
        )
    }
}

const ONE_USER: &str = "no port has two users at one time";
const NONE_LOST: &str = "no acknowledged mapping is lost";
const HAS_OWNER: &str = "without further faults, a member gets the right to the shared range";

impl Model for Scenario {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::initial(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        possible(self, state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        next.act(self, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Scenario>> {
        vec![
            Property::always(ONE_USER, |scenario: &Scenario, state: &State| !state.has_two_users(scenario)),
            Property::always(NONE_LOST, |scenario: &Scenario, state: &State| !state.has_lost(scenario)),
            Property::always(HAS_OWNER, |scenario: &Scenario, state: &State| state.gets_owner(scenario)),
        ]
    }
}

/// Visits the states of a model, at most about `states_max`, until a promise is broken.
pub fn check<M>(model: M, states_max: usize) -> Checked<M::Action>
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let begin = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let checker = model
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::Any)
        .target_state_count(states_max)
        .spawn_bfs()
        .join();
    let broken = checker.discoveries().into_iter().min_by_key(|(_, path)| path.clone().into_actions().len());
    Checked {
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        is_complete: checker.state_count() < states_max && broken.is_none(),
        took: begin.elapsed(),
        broken: broken.map(|(promise, path)| (promise, path.into_actions())),
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
