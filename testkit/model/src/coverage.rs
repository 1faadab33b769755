//! Coverage of histories: states and steps of the TCP machine, and named marks, so that a test can demand
//! all of them. Drop reasons are in the counters already.

use crate::tcp::{Segment, State};
use std::collections::BTreeMap;
use std::fmt;

/// Counts of covered states, steps and marks.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// State, side, segment, next state.
    steps: BTreeMap<(State, bool, Segment, State), u64>,
    opened: BTreeMap<State, u64>,
    timeouts: BTreeMap<State, u64>,
    /// Named marks.
    marks: BTreeMap<&'static str, u64>,
}

impl Coverage {
    /// Counts a segment of a session.
    pub fn tcp_step(&mut self, state: State, from_inside: bool, segment: Segment, next: State) {
        *self.steps.entry((state, from_inside, segment, next)).or_default() += 1;
    }

    /// Counts a new session.
    pub fn tcp_open(&mut self, state: State) {
        *self.opened.entry(state).or_default() += 1;
    }

    /// Counts the end of a lifetime.
    pub fn tcp_timeout(&mut self, state: State) {
        *self.timeouts.entry(state).or_default() += 1;
    }

    /// Counts a named mark.
    pub fn mark(&mut self, what: &'static str) {
        *self.marks.entry(what).or_default() += 1;
    }

    /// Returns true if a mark was counted.
    pub fn marked(&self, what: &'static str) -> bool {
        self.marks.contains_key(what)
    }

    /// Returns true if a session in this state has received this segment from this side.
    pub fn saw(&self, state: State, from_inside: bool, segment: Segment) -> bool {
        self.steps.keys().any(|k| (k.0, k.1, k.2) == (state, from_inside, segment))
    }

    /// Returns true if a session began in this state.
    pub fn opened(&self, state: State) -> bool {
        self.opened.contains_key(&state)
    }

    /// Adds the coverage of another history.
    pub fn add(&mut self, other: &Coverage) {
        for (k, n) in &other.steps {
            *self.steps.entry(*k).or_default() += n;
        }
        for (k, n) in &other.opened {
            *self.opened.entry(*k).or_default() += n;
        }
        for (k, n) in &other.timeouts {
            *self.timeouts.entry(*k).or_default() += n;
        }
        for (k, n) in &other.marks {
            *self.marks.entry(k).or_default() += n;
        }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((state, inside, segment, next), n) in &self.steps {
            let side = if *inside { "V6" } else { "V4" };
            writeln!(f, "  {n:>10}  {state:?}: {side} {segment:?} -> {next:?}")?;
        }
        for (state, n) in &self.opened {
            writeln!(f, "  {n:>10}  CLOSED -> {state:?}")?;
        }
        for (state, n) in &self.timeouts {
            writeln!(f, "  {n:>10}  {state:?}: lifetime over")?;
        }
        for (what, n) in &self.marks {
            writeln!(f, "  {n:>10}  {what}")?;
        }
        Ok(())
    }
}
