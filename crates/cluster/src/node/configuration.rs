//! Configuration of the cluster, as the node's part in it has it.

use super::Node;
use crate::coordination::{ConfigStep, NewRevision, RevisionStatus, RunningConfig, SavedRevision};
use crate::store::Store;

impl Node {
    /// Knowledge of the previous process about revisions.
    pub fn set_saved_revision(&mut self, saved: SavedRevision) {
        self.coordination.set_saved_revision(saved);
    }

    /// Returns what the next process needs to know about revisions.
    pub fn saved_revision(&self) -> SavedRevision {
        self.coordination.saved_revision()
    }

    /// Tells which configuration the process runs.
    pub fn set_running_config(&mut self, running: RunningConfig) {
        self.coordination.set_running_config(running);
    }

    /// Takes the next step. The caller executes it, and tells the result by
    /// [`config_done`](Self::config_done).
    pub fn take_config_step(&mut self) -> Option<ConfigStep> {
        self.coordination.take_config_step()
    }

    /// Tells the result of a step. The caller has told the running configuration after it.
    pub fn config_done(&mut self, now_ms: u64, result: Result<(), String>) {
        self.coordination.config_done(now_ms, result);
    }

    /// Proposes a new revision to all nodes. Returns the number of the order.
    ///
    /// # Errors
    /// Says why it cannot be proposed now.
    pub fn propose(&mut self, now_ms: u64, new: NewRevision) -> Result<u64, String> {
        self.coordination.propose(now_ms, new)
    }

    /// Confirms the present trial, or has all nodes return from it. Returns the number of the order.
    ///
    /// # Errors
    /// Says why it cannot be done now.
    pub fn end_trial(
        &mut self,
        store: &mut dyn Store,
        now_ms: u64,
        word: (bool, &str),
    ) -> Result<u64, String> {
        self.coordination.end_trial(now_ms, store, word)
    }

    /// Returns the revisions that are kept, the latest first.
    pub fn revisions(&self) -> Vec<RevisionStatus> {
        self.coordination.revisions()
    }
}
