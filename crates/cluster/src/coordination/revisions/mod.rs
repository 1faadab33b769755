//! Configuration revisions of the cluster, and the part of this node in them (decision 0113).
//!
//! ```text
//!   operator --- propose ---> proposed --- each node checks ---> checks --- all can take it ---> current
//!   current --- in the order of names ---> steps of this node ---> applied --- all have it ---> confirmed
//! ```

mod keys;
mod own;
mod proposal;
mod status;

pub use own::{ConfigStep, RunningConfig, SavedRevision};
pub use proposal::NewRevision;
pub use status::{ConfigurationStatus, RevisionOfNode, RevisionStatus};

use super::{Coordination, Purpose};
use crate::record::NodeName;
use crate::revision::{ActiveRevision, Check, Proposal, Report, Revision, Standing};
use crate::store::{Answer, Call, Put, Store, StoreError, Write};
use own::Work;
use proposal::OwnProposal;
use std::collections::{BTreeMap, HashMap};

/// Time until the next try, ms.
const AGAIN_MS: u64 = 100;

/// Revisions, as the keys tell, and the work of this node.
#[derive(Debug, Default)]
pub(super) struct Revisions {
    /// Present revision, the revision of its key, and the time at which this node saw it.
    current: Option<(ActiveRevision, i64, u64)>,
    texts: BTreeMap<u64, Revision>,
    /// Outcome of each.
    outcomes: BTreeMap<u64, String>,
    proposed: Option<(Proposal, i64)>,
    checks: HashMap<NodeName, Check>,
    reports: HashMap<NodeName, Report>,
    /// Configuration of this process. `None` before it can be changed.
    running: Option<RunningConfig>,
    standing: Standing,
    /// SHA-256 of the text on trial.
    trial_sha256: String,
    /// Reason why this node does not run what it should, and the time of the next try.
    fault: Option<(String, u64)>,
    /// Own check of a proposal.
    checked: Option<Check>,
    work: Option<Work>,
    own: Option<OwnProposal>,
    /// Kinds of writes that wait for an answer, and the time of each one's next try.
    asked: Vec<ConfigWrite>,
    again_ms: HashMap<ConfigWrite, u64>,
}

/// Kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ConfigWrite {
    Propose,
    TakeBack,
    Commit,
    Check,
    Report,
    /// The stage of the present revision changes, by this node.
    Stage,
}

impl Coordination {
    /// Does what is due for the configuration.
    pub(super) fn keep_revisions(&mut self, now_ms: u64, store: &mut dyn Store) {
        if self.revisions.running.is_none() {
            return;
        }
        self.keep_proposal(now_ms, store);
        self.note_end_of_trial(now_ms);
        let stage = self.choose_work(now_ms);
        if let Some((next, why)) = stage {
            self.write_stage(now_ms, store, (next, why));
        }
        self.keep_check(now_ms, store);
        self.keep_report(now_ms, store);
    }

    /// Nodes that have to take a revision: those of the configuration that are registered.
    fn takers(&self) -> impl Iterator<Item = &NodeName> {
        let nodes = self.settings.nodes.iter().map(|one| &one.node);
        nodes.filter(|node| self.map.is_registered(node))
    }

    /// Returns whether a kind of write may be tried now.
    fn may_ask(&self, now_ms: u64, kind: ConfigWrite) -> bool {
        let again_ms = self.revisions.again_ms.get(&kind).copied().unwrap_or(0);
        self.may_write() && !self.revisions.asked.contains(&kind) && now_ms >= again_ms
    }

    fn ask_config(&mut self, now_ms: u64, store: &mut dyn Store, kind: ConfigWrite, write: Write) {
        self.revisions.asked.push(kind);
        self.revisions.again_ms.insert(kind, now_ms + AGAIN_MS);
        self.submit(now_ms, store, Purpose::Config(kind), Call::Write(write));
    }

    /// Writes a key of this node under its lease, or without one.
    fn put_own(
        &mut self,
        now_ms: u64,
        store: &mut dyn Store,
        kind: ConfigWrite,
        (key, value): (String, String),
    ) {
        let lease = if kind == ConfigWrite::Check { self.lease().unwrap_or(0) } else { 0 };
        let write = Write { puts: vec![Put { key, value, lease }], ..Write::default() };
        self.ask_config(now_ms, store, kind, write);
    }

    /// A write was answered.
    pub(super) fn config_answered(
        &mut self,
        now_ms: u64,
        kind: ConfigWrite,
        answer: &Result<Answer, StoreError>,
    ) {
        self.revisions.asked.retain(|one| *one != kind);
        self.revisions.again_ms.insert(kind, now_ms + AGAIN_MS);
        // The watch tells the results of the others.
        if matches!(kind, ConfigWrite::Propose | ConfigWrite::Commit) {
            self.proposal_answered(now_ms, kind, answer);
        }
    }
}
