//! Counts of an instance's sessions and bindings that have begun and ended.

use core::ops::AddAssign;

/// Number of sessions or bindings that have begun, and number of them that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lived {
    /// Number begun since the engine was built.
    pub begun: u64,
    /// Number of these that have ended.
    pub ended: u64,
}

impl Lived {
    /// Current number.
    pub fn now(&self) -> u64 {
        self.begun - self.ended
    }
}

impl AddAssign for Lived {
    fn add_assign(&mut self, other: Lived) {
        self.begun += other.begun;
        self.ended += other.ended;
    }
}

/// Counts of an instance's sessions and bindings, by transport in the order of
/// [`Transport`](crate::base::plan::Transport).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lives {
    /// Sessions.
    pub sessions: [Lived; 3],
    /// Bindings, including static ones of the configuration.
    pub bindings: [Lived; 3],
}

impl Lives {
    /// Adds the counts of another worker.
    pub(crate) fn add(&mut self, other: &Lives) {
        self.sessions.iter_mut().zip(other.sessions).for_each(|(a, b)| *a += b);
        self.bindings.iter_mut().zip(other.bindings).for_each(|(a, b)| *a += b);
    }
}
