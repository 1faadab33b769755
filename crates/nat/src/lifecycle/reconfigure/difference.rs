//! Differences between two plans as messages for operators: changes, sessions that end, and changes that need
//! a restart.

use super::describe::{Describe, Keys};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Differences between two plans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Changes.
    pub changes: Vec<String>,
    /// Sessions and bindings that end with the change.
    pub ends: Vec<String>,
    /// Changes that need a restart. If there is any, nothing is changed.
    pub restarts: Vec<String>,
}

impl Difference {
    /// Returns whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.restarts.is_empty()
    }

    pub(super) fn change(&mut self, what: impl Into<String>) {
        self.changes.push(what.into());
    }

    pub(super) fn end(&mut self, what: impl Into<String>) {
        self.ends.push(what.into());
    }

    pub(super) fn restart(&mut self, what: impl Into<String>) {
        self.restarts.push(what.into());
    }

    /// Compares a single value. Returns whether it changes.
    pub(super) fn note<T: Describe>(&mut self, what: &str, old: T, new: T) -> bool {
        let differs = old != new;
        if differs {
            self.change(format!("{what}: {} -> {}", old.describe(), new.describe()));
        }
        differs
    }

    /// Compares a value of several keys, and notes each key that differs. Returns whether any does.
    pub(super) fn note_keys<T: Keys>(&mut self, what: &str, old: &T, new: &T) -> bool {
        for ((key, old), (_, new)) in old.keys().into_iter().zip(new.keys()) {
            self.note(&format!("{what}{key}"), old, new);
        }
        old != new
    }

    /// Compares a value that determines the size of a table: a change needs a restart.
    pub(super) fn fixed<T: Describe>(&mut self, what: &str, old: T, new: T) {
        if old != new {
            self.restart(format!(
                "{what}: {} -> {}: its tables are created only at start-up",
                old.describe(),
                new.describe()
            ));
        }
    }

    /// Compares a list, and notes the numbers of added and removed items.
    pub(super) fn list<T: Ord>(&mut self, what: &str, old: &[T], new: &[T]) -> (usize, usize) {
        let (a, b): (BTreeSet<&T>, BTreeSet<&T>) = (old.iter().collect(), new.iter().collect());
        let (gone, come) = (a.difference(&b).count(), b.difference(&a).count());
        if gone + come > 0 {
            self.change(format!("{what}: {come} added, {gone} removed"));
        } else if old != new {
            self.change(format!("{what}: reordered"));
        }
        (come, gone)
    }
}
