//! Report of the differences between two plans, in an operator's words: what changes, what ends by it, and
//! what only a restart can do.

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
    /// What a running engine cannot do: where there is any of this, nothing is changed.
    pub restarts: Vec<String>,
}

impl Difference {
    /// Returns whether there is none.
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

    /// A value of its own; says whether it changes.
    pub(super) fn note<T: Describe>(&mut self, what: &str, old: T, new: T) -> bool {
        let differs = old != new;
        if differs {
            self.change(format!("{what}: {} -> {}", old.describe(), new.describe()));
        }
        differs
    }

    /// A value of several keys: notes each that differs; says whether any does.
    pub(super) fn note_keys<T: Keys>(&mut self, what: &str, old: &T, new: &T) -> bool {
        for ((key, old), (_, new)) in old.keys().into_iter().zip(new.keys()) {
            self.note(&format!("{what}{key}"), old, new);
        }
        old != new
    }

    /// A value that tables are made for.
    pub(super) fn fixed<T: Describe>(&mut self, what: &str, old: T, new: T) {
        if old != new {
            self.restart(format!(
                "{what}: {} -> {}: its tables are made at the start",
                old.describe(),
                new.describe()
            ));
        }
    }

    /// A list; only how many come and go is said.
    pub(super) fn list<T: Ord>(&mut self, what: &str, old: &[T], new: &[T]) -> (usize, usize) {
        let (a, b): (BTreeSet<&T>, BTreeSet<&T>) = (old.iter().collect(), new.iter().collect());
        let (gone, come) = (a.difference(&b).count(), b.difference(&a).count());
        if gone + come > 0 {
            self.change(format!("{what}: {come} added, {gone} removed"));
        } else if old != new {
            self.change(format!("{what}: in another order"));
        }
        (come, gone)
    }
}
