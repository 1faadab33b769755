//! Random walks through the states of a model: long histories, beyond the states that a search can visit.
//!
//! A walk takes one of the possible events after the other, each with the same chance, until none is
//! possible. So it has all faults that its budgets allow, one in the middle of the other. A number stands for
//! the same walk each time.

use super::search::Model;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Most events of a walk.
const EVENTS_MAX: usize = 400;

/// Result of some walks.
#[derive(Clone, Debug)]
pub struct Walked<A> {
    /// Number of walks.
    pub walks: u64,
    /// Number of events, and of states after them.
    pub events: usize,
    /// Length of the longest walk.
    pub longest: usize,
    /// Broken promise, and the history that breaks it.
    pub broken: Option<(&'static str, Vec<A>)>,
}

impl<A> Walked<A> {
    /// Returns the figures as a line.
    pub fn figures(&self) -> String {
        format!("{} walks, {} events, up to {} in a row", self.walks, self.events, self.longest)
    }
}

/// Random numbers (splitmix64).
struct Draws(u64);

impl Draws {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ z >> 31) * n as u128) >> 64) as usize
    }
}

/// Takes some walks, from a number on, until a promise is broken.
pub fn walk<M: Model>(model: &M, first: u64, walks: u64) -> Walked<M::Action> {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let (next, events, longest) = (AtomicU64::new(first), AtomicUsize::new(0), AtomicUsize::new(0));
    let broken = Mutex::new(None);
    let lock = || broken.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while lock().is_none() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= first + walks {
                        break;
                    }
                    let (history, promise) = one(model, number);
                    events.fetch_add(history.len(), Ordering::Relaxed);
                    longest.fetch_max(history.len(), Ordering::Relaxed);
                    if let Some(promise) = promise {
                        lock().get_or_insert((promise, history));
                    }
                }
            });
        }
    });
    Walked {
        walks: next.load(Ordering::Relaxed).min(first + walks) - first,
        events: events.load(Ordering::Relaxed),
        longest: longest.load(Ordering::Relaxed),
        broken: broken.into_inner().unwrap_or_else(PoisonError::into_inner),
    }
}

/// Takes a walk. Returns its events, and the promise that it breaks.
fn one<M: Model>(model: &M, number: u64) -> (Vec<M::Action>, Option<&'static str>) {
    let (mut draws, mut state) = (Draws(number.wrapping_mul(0x2545_f491_4f6c_dd1d)), model.initial());
    let (mut history, mut possible) = (Vec::new(), Vec::new());
    while history.len() < EVENTS_MAX {
        possible.clear();
        model.possible(&state, &mut possible);
        if possible.is_empty() {
            break;
        }
        let action = possible[draws.below(possible.len())];
        state = model.after(&state, action);
        history.push(action);
        if let Some(promise) = model.broken(&state) {
            return (history, Some(promise));
        }
    }
    (history, None)
}
