//! Counts of an instance's sessions and bindings that were created and have ended.

use core::ops::AddAssign;

/// Number of sessions or bindings that were created, and number of them that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryCount {
    /// Number created since the engine was built.
    pub created: u64,
    /// Number of these that have ended.
    pub ended: u64,
}

impl EntryCount {
    /// Current number.
    pub fn now(&self) -> u64 {
        self.created - self.ended
    }
}

impl AddAssign for EntryCount {
    fn add_assign(&mut self, other: EntryCount) {
        self.created += other.created;
        self.ended += other.ended;
    }
}

/// Counts of an instance's sessions and bindings, by transport in the order of
/// [`Transport`](crate::base::plan::Transport).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryCounts {
    /// Sessions.
    pub sessions: [EntryCount; 3],
    /// Bindings, including static ones of the configuration.
    pub bindings: [EntryCount; 3],
}

impl EntryCounts {
    /// Adds the counts of another worker.
    pub(crate) fn add(&mut self, other: &EntryCounts) {
        self.sessions.iter_mut().zip(other.sessions).for_each(|(a, b)| *a += b);
        self.bindings.iter_mut().zip(other.bindings).for_each(|(a, b)| *a += b);
    }
}
