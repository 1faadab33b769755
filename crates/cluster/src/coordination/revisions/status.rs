//! State of the configuration, for operators and metrics.

use super::Coordination;
use crate::record::NodeName;
use crate::revision::{ActiveRevision, Report, Stage};

/// Configuration of a node, as far as this one knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionOfNode {
    /// Name.
    pub node: NodeName,
    /// Its latest report.
    pub report: Report,
    /// True if it does not run the text that it should.
    pub differs: bool,
}

/// Revision that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionStatus {
    /// Number.
    pub number: u64,
    /// SHA-256 of the text, hexadecimal.
    pub sha256: String,
    /// Operator.
    pub by: String,
    /// Node that the operator asked.
    pub node: NodeName,
    /// Time, s since 1970.
    pub at_s: u64,
    /// Text.
    pub text: String,
    /// Outcome; empty if there is none yet.
    pub outcome: String,
}

/// Configuration of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigurationStatus {
    /// Present revision. `None` before the first one.
    pub current: Option<ActiveRevision>,
    /// Time that is left of its trial, s.
    pub seconds_left: Option<u64>,
    /// Revision that this node runs; 0 if it is unknown.
    pub own: u64,
    /// Nodes that have told what they run, by name.
    pub nodes: Vec<RevisionOfNode>,
}

impl Coordination {
    /// Returns the state of the configuration.
    pub fn configuration(&self, now_ms: u64) -> ConfigurationStatus {
        let revisions = &self.revisions;
        let current = revisions.current.as_ref();
        let left = |(current, _, since_ms): &(ActiveRevision, i64, u64)| {
            let left_ms = (since_ms + u64::from(current.seconds) * 1_000).saturating_sub(now_ms);
            (current.stage == Stage::Trial).then(|| left_ms.div_ceil(1_000))
        };
        let mut reports = revisions.reports.clone();
        let own = self.report();
        let number = own.number;
        if revisions.running.is_some() && current.is_some() {
            // The others know it a moment later.
            reports.insert(self.settings.me.clone(), own);
        }
        let wanted = current.map_or(0, |(current, _, _)| current.target());
        let text = revisions.texts.get(&wanted);
        let differs = |report: &Report| {
            let is_text = text.is_none_or(|text| text.sha256 == report.sha256);
            wanted != 0 && (report.number != wanted || !is_text || !report.why.is_empty())
        };
        let of =
            |(node, report): (NodeName, Report)| RevisionOfNode { node, differs: differs(&report), report };
        let mut nodes: Vec<RevisionOfNode> = reports.into_iter().map(of).collect();
        nodes.sort_by(|one, other| one.node.cmp(&other.node));
        ConfigurationStatus {
            current: current.map(|(current, _, _)| current.clone()),
            seconds_left: current.and_then(left),
            own: number,
            nodes,
        }
    }

    /// Returns the revisions that are kept, the latest first.
    pub fn revisions(&self) -> Vec<RevisionStatus> {
        let one = |(number, revision): (&u64, &crate::revision::Revision)| RevisionStatus {
            number: *number,
            sha256: revision.sha256.clone(),
            by: revision.by.clone(),
            node: revision.node.clone(),
            at_s: revision.at_s,
            text: revision.text.clone(),
            outcome: self.revisions.outcomes.get(number).cloned().unwrap_or_default(),
        };
        self.revisions.texts.iter().rev().map(one).collect()
    }
}
