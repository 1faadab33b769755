//! Search for states that break a promise, the shortest histories first.
//!
//! States with the same future are visited once. [`Model::canonical`] leaves out what only tells the
//! history of a state: how many records and connections there were, and which of two users came first. A
//! state with the same future as a visited one, and with no more faults left, is not visited again: all that
//! can happen from there can happen from the other one. So after a fault that is healed, nothing is new.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Debug;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Numbers of events that are left.
pub type Budgets = [u8; 12];

/// Model whose states can be visited.
pub trait Model: Sync {
    /// State.
    type State: Clone + Hash + Send;
    /// Event.
    type Action: Copy + Debug + Send + Sync;

    /// Returns the first state.
    fn initial(&self) -> Self::State;

    /// Adds the events that are possible in a state. With more events left, no fewer ones are possible.
    fn possible(&self, state: &Self::State, actions: &mut Vec<Self::Action>);

    /// Returns the state after an event.
    fn after(&self, state: &Self::State, action: Self::Action) -> Self::State;

    /// Returns the promise that a state breaks, whatever budgets it has.
    fn broken(&self, state: &Self::State) -> Option<&'static str>;

    /// Appends everything that decides the future of a state, except for its budgets.
    fn canonical(&self, state: &Self::State, bytes: &mut Vec<u8>);

    /// Returns the budgets of a state.
    fn budgets(&self, state: &Self::State) -> Budgets;
}

/// Result of a check.
#[derive(Clone, Debug)]
pub struct Checked<A> {
    /// Number of visited states.
    pub states: usize,
    /// Number of visited states with different futures; the others differ in the budgets alone.
    pub futures: usize,
    /// Number of actions that were tried.
    pub steps: usize,
    /// Length of the longest history.
    pub depth: usize,
    /// True if every state within the bounds was visited, or one with the same future.
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
            "{} states ({}), {} without budgets, {} steps, up to {} events in a row, {:.1} s",
            self.states,
            if self.is_complete { "all" } else { "not all" },
            self.futures,
            self.steps,
            self.depth,
            self.took.as_secs_f64()
        )
    }
}

/// Visits the states of a model, at most about `states_max`, until a promise is broken.
pub fn check<M: Model>(model: &M, states_max: usize) -> Checked<M::Action> {
    Search::new(model).run(states_max, &|_| {})
}

/// Hasher of keys that are hashes.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

/// Budgets of the visited states with one future. None of them has no more of everything than another.
enum StateList {
    One(Budgets),
    Some(Vec<Budgets>),
}

fn covers(one: &Budgets, other: &Budgets) -> bool {
    one.iter().zip(other).all(|(one, other)| one >= other)
}

impl StateList {
    fn covers(&self, new: &Budgets) -> bool {
        match self {
            StateList::One(old) => covers(old, new),
            StateList::Some(all) => all.iter().any(|old| covers(old, new)),
        }
    }

    /// Adds the budgets of a state, unless a visited one has as much of everything.
    fn add(&mut self, new: Budgets) -> bool {
        if self.covers(&new) {
            return false;
        }
        match self {
            StateList::One(old) if covers(&new, old) => *old = new,
            StateList::One(old) => *self = StateList::Some(vec![*old, new]),
            StateList::Some(all) => {
                all.retain(|old| !covers(&new, old));
                all.push(new);
            }
        }
        true
    }
}

type Part = HashMap<u64, StateList, BuildHasherDefault<KeyHasher>>;
/// Parts of the visited states, so that threads seldom wait for each other.
const PARTS: usize = 64;
/// States that a thread takes at once.
const CHUNK: usize = 64;

/// Place of a state: the thread that found it, and a number there.
#[derive(Clone, Copy)]
struct Place(u8, u32);

/// Events of a thread, with the place of the state before each.
type Trace<A> = Vec<(Place, A)>;

/// States that are visited next, each with its place.
type Chunk<S> = Vec<(S, Place)>;

/// Gets each visited state.
pub type Each<'e, S> = &'e (dyn Fn(&S) + Sync);

/// Search of the states of a model.
pub struct Search<'m, M: Model> {
    model: &'m M,
    merges: bool,
    parts: Vec<Mutex<Part>>,
    states: AtomicUsize,
    futures: AtomicUsize,
    steps: AtomicUsize,
    is_over: AtomicBool,
    /// The first broken promise.
    broken: Mutex<Option<(&'static str, Place)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'m, M: Model> Search<'m, M> {
    /// Creates a search that visits no state whose future was visited.
    pub fn new(model: &'m M) -> Search<'m, M> {
        Search::of(model, true)
    }

    /// Creates a search that visits each state, whatever future it has.
    pub fn of_all(model: &'m M) -> Search<'m, M> {
        Search::of(model, false)
    }

    /// Returns whether the search has visited a state, or one from which as much can happen.
    pub fn covers(&self, state: &M::State) -> bool {
        let (key, budgets) = self.key(state, &mut Vec::new());
        lock(self.part(key)).get(&key).is_some_and(|visited| visited.covers(&budgets))
    }

    fn of(model: &'m M, merges: bool) -> Search<'m, M> {
        Search {
            model,
            merges,
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            states: AtomicUsize::new(0),
            futures: AtomicUsize::new(0),
            steps: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            broken: Mutex::new(None),
        }
    }

    /// Visits at most about `states_max` states, until a promise is broken. `each` gets all of them.
    pub fn run(&self, states_max: usize, each: Each<'_, M::State>) -> Checked<M::Action> {
        let begin = Instant::now();
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get()).min(255);
        let mut traces: Vec<Trace<M::Action>> = (0..threads).map(|_| Vec::new()).collect();
        let first = self.model.initial();
        let is_new = self.visit(&first, &mut Vec::new());
        each(&first);
        // No thread has a state of this number.
        let root = Place(u8::MAX, 0);
        let mut level: Vec<Chunk<M::State>> = vec![vec![(first, root)]];
        if let Some(promise) = is_new.and_then(|is_new_future| self.broken_by(&level[0][0].0, is_new_future))
        {
            *lock(&self.broken) = Some((promise, root));
        }
        let mut depth = 0;
        while !level.is_empty() && !self.is_over.load(Ordering::Relaxed) && lock(&self.broken).is_none() {
            depth += 1;
            level = self.level(level, &mut traces, (states_max, each));
        }
        let broken = lock(&self.broken).take();
        let history = |mut place: Place| {
            let mut actions = Vec::new();
            while place.0 != u8::MAX {
                let (before, action) = traces[usize::from(place.0)][place.1 as usize];
                actions.push(action);
                place = before;
            }
            actions.reverse();
            actions
        };
        Checked {
            states: self.states.load(Ordering::Relaxed),
            futures: self.futures.load(Ordering::Relaxed),
            steps: self.steps.load(Ordering::Relaxed),
            depth,
            is_complete: level.is_empty() && broken.is_none(),
            took: begin.elapsed(),
            broken: broken.map(|(promise, place)| (promise, history(place))),
        }
    }

    /// Visits the states after those of a level, which all have histories of the same length.
    fn level(
        &self,
        level: Vec<Chunk<M::State>>,
        traces: &mut [Trace<M::Action>],
        (states_max, each): (usize, Each<'_, M::State>),
    ) -> Vec<Chunk<M::State>> {
        let (level, next) = (Mutex::new(level), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for (thread, trace) in (0u8..).zip(traces) {
                let (level, next) = (&level, &next);
                scope.spawn(move || {
                    let mut found = Vec::new();
                    while !self.is_over.load(Ordering::Relaxed) {
                        let Some(chunk) = lock(level).pop() else { break };
                        self.chunk(chunk, (thread, trace), &mut found, each);
                        while found.len() >= CHUNK {
                            lock(next).push(found.split_off(found.len() - CHUNK));
                        }
                        if self.states.load(Ordering::Relaxed) >= states_max {
                            self.is_over.store(true, Ordering::Relaxed);
                        }
                    }
                    if !found.is_empty() {
                        lock(next).push(found);
                    }
                });
            }
        });
        let mut next = next.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Those that were left when the search ended.
        next.append(&mut lock(&level));
        next
    }

    /// Visits the states after some states.
    fn chunk(
        &self,
        chunk: Chunk<M::State>,
        (thread, trace): (u8, &mut Trace<M::Action>),
        found: &mut Chunk<M::State>,
        each: Each<'_, M::State>,
    ) {
        let (mut actions, mut bytes) = (Vec::new(), Vec::new());
        for (state, place) in chunk {
            actions.clear();
            self.model.possible(&state, &mut actions);
            self.steps.fetch_add(actions.len(), Ordering::Relaxed);
            for action in &actions {
                let after = self.model.after(&state, *action);
                let Some(is_new_future) = self.visit(&after, &mut bytes) else { continue };
                each(&after);
                let here = Place(thread, trace.len() as u32);
                trace.push((place, *action));
                if let Some(promise) = self.broken_by(&after, is_new_future) {
                    lock(&self.broken).get_or_insert((promise, here));
                    self.is_over.store(true, Ordering::Relaxed);
                }
                found.push((after, here));
            }
        }
    }

    /// Hash of a state, and the budgets that do not count in it.
    fn key(&self, state: &M::State, bytes: &mut Vec<u8>) -> (u64, Budgets) {
        let mut hasher = DefaultHasher::new();
        if !self.merges {
            state.hash(&mut hasher);
            return (hasher.finish(), Budgets::default());
        }
        bytes.clear();
        self.model.canonical(state, bytes);
        hasher.write(bytes);
        (hasher.finish(), self.model.budgets(state))
    }

    fn part(&self, key: u64) -> &Mutex<Part> {
        &self.parts[(key >> 32) as usize % PARTS]
    }

    /// Notes that a state is visited. Returns `None` if that is needless, else whether its future is new.
    fn visit(&self, state: &M::State, bytes: &mut Vec<u8>) -> Option<bool> {
        let (key, budgets) = self.key(state, bytes);
        let mut part = lock(self.part(key));
        let is_new_future = match part.get_mut(&key) {
            Some(visited) => {
                if !visited.add(budgets) {
                    return None;
                }
                false
            }
            None => {
                part.insert(key, StateList::One(budgets));
                true
            }
        };
        self.futures.fetch_add(usize::from(is_new_future), Ordering::Relaxed);
        self.states.fetch_add(1, Ordering::Relaxed);
        Some(is_new_future)
    }

    fn broken_by(&self, state: &M::State, is_new_future: bool) -> Option<&'static str> {
        if is_new_future { self.model.broken(state) } else { None }
    }
}
