//! Orders of an operator about the configuration: a new revision, which all nodes check before it is written;
//! a confirmation; a return.

use super::{ConfigWrite, Coordination, Purpose};
use crate::record::NodeName;
use crate::revision::{ActiveRevision, KEPT_MAX, Proposal, ROLL_S, Revision, Stage, TEXT_MAX};
use crate::store::{Answer, Call, Put, Store, StoreError, Write};

/// Longest time for the checks of all nodes, ms.
const CHECKS_MAX_MS: u64 = 15_000;

/// New text of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRevision {
    /// Text.
    pub text: String,
    /// Its SHA-256, hexadecimal.
    pub sha256: String,
    /// Operator.
    pub by: String,
    /// Time, s since 1970.
    pub at_s: u64,
    /// Time within which the operator will confirm it, s; `None` if nobody has to.
    pub confirm_s: Option<u32>,
}

/// Proposal of this node.
#[derive(Debug)]
pub(super) struct OwnProposal {
    /// Number of the order.
    id: u64,
    proposal: Proposal,
    began_ms: u64,
    step: OwnStep,
    /// Revision that is being written.
    next: Option<ActiveRevision>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnStep {
    /// The proposal is to be written.
    New,
    /// It waits for the checks. It has this revision.
    Asked(i64),
    /// The revision is being written.
    Commit,
}

impl Coordination {
    /// Proposes a new revision to all nodes. Returns the number of the order:
    /// [`take_ordered`](Self::take_ordered) has its result.
    ///
    /// # Errors
    /// Says why it cannot be proposed now.
    pub fn propose(&mut self, now_ms: u64, new: NewRevision) -> Result<u64, String> {
        let NewRevision { text, sha256, by, at_s, confirm_s } = new;
        if text.len() > TEXT_MAX {
            return Err(format!(
                "the configuration has {} bytes, and a cluster takes at most {TEXT_MAX}: move mappings to files \
                 (`eam_file`)",
                text.len()
            ));
        }
        self.expect_writable()?;
        self.expect_no_trial()?;
        if let Some((proposal, _)) = &self.revisions.proposed {
            let Revision { by, node, .. } = &proposal.revision;
            return Err(format!("{by} is applying a configuration at node {node}: try again"));
        }
        if self.revisions.own.is_some() {
            return Err("this node is applying another configuration: try again".to_owned());
        }
        self.next_id += 1;
        let revision = Revision { sha256, by, node: self.settings.me.clone(), at_s, text };
        let proposal = Proposal { revision, confirm_s };
        self.revisions.own = Some(OwnProposal {
            id: self.next_id,
            proposal,
            began_ms: now_ms,
            step: OwnStep::New,
            next: None,
        });
        Ok(self.next_id)
    }

    /// Confirms the present trial, or has all nodes return from it. Returns the number of the order.
    ///
    /// # Errors
    /// Says why it cannot be done now.
    pub fn end_trial(
        &mut self,
        now_ms: u64,
        store: &mut dyn Store,
        (is_good, by): (bool, &str),
    ) -> Result<u64, String> {
        self.expect_writable()?;
        let current = self.revisions.current.as_ref().filter(|(current, _, _)| current.stage == Stage::Trial);
        let Some((current, at, _)) = current else {
            return Err("no configuration of the cluster awaits confirmation".to_owned());
        };
        if is_good && !self.have_all(current, *at) {
            let late = self.takers().filter(|node| !self.has(node, current, *at)).map(|node| &**node);
            return Err(format!("revision {} does not run yet at {}", current.number, names(late)));
        }
        let stage = if is_good { Stage::Confirmed } else { Stage::Withdrawn };
        let next = ActiveRevision { stage, by: by.to_owned(), why: String::new(), ..current.clone() };
        let write = self.stage_write(&next, *at);
        Ok(self.submit(now_ms, store, Purpose::EndTrial(Box::new(next)), Call::Write(write)))
    }

    pub(in crate::coordination) fn trial_ended(
        &mut self,
        now_ms: u64,
        id: u64,
        next: ActiveRevision,
        answer: Result<Answer, StoreError>,
    ) {
        let result = match answer {
            Ok(Answer::Written(true, at)) => {
                self.learn_current(now_ms, next, at);
                Ok(())
            }
            Ok(_) => Err("not done: the trial has ended meanwhile, see `gatun cluster revisions`".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        self.end_order(id, result);
    }

    fn expect_writable(&self) -> Result<(), String> {
        match self.may_write() && self.revisions.running.is_some() {
            true => Ok(()),
            false => Err("this node is not registered at etcd: try again, or ask another node".to_owned()),
        }
    }

    fn expect_no_trial(&self) -> Result<(), String> {
        match &self.revisions.current {
            Some((current, _, _)) if current.stage == Stage::Trial && current.needs_word => Err(format!(
                "configuration revision {} awaits confirmation: `gatun cluster confirm` or `gatun cluster rollback`",
                current.number
            )),
            Some((current, _, _)) if current.stage == Stage::Trial => {
                Err(format!("the nodes are applying configuration revision {}: try again", current.number))
            }
            _ => Ok(()),
        }
    }

    /// Goes on with the proposal of this node.
    pub(super) fn keep_proposal(&mut self, now_ms: u64, store: &mut dyn Store) {
        let Some(own) = &self.revisions.own else { return };
        match own.step {
            OwnStep::New if self.may_ask(now_ms, ConfigWrite::Propose) => {
                let write = self.proposal_write(&own.proposal);
                self.ask_config(now_ms, store, ConfigWrite::Propose, write);
            }
            OwnStep::New if now_ms >= own.began_ms + CHECKS_MAX_MS => {
                self.end_proposal(now_ms, Err("etcd has not answered".to_owned()));
            }
            OwnStep::Asked(at) => self.count_checks(now_ms, store, at),
            OwnStep::New | OwnStep::Commit => {}
        }
    }

    fn proposal_write(&self, proposal: &Proposal) -> Write {
        let key = self.proposed_key();
        let at = self.revisions.current.as_ref().map_or(0, |(_, at, _)| *at);
        let mut compares = vec![(key.clone(), 0), (self.current_key(), at)];
        compares.extend(self.division_unchanged());
        let put = Put { key, value: proposal.to_string(), lease: self.lease().unwrap_or(0) };
        Write { compares, puts: vec![put], deletes: Vec::new() }
    }

    fn count_checks(&mut self, now_ms: u64, store: &mut dyn Store, at: i64) {
        let Some(own) = &self.revisions.own else { return };
        let is_known = self.map.revision >= at && self.map.is_live;
        if is_known && self.revisions.proposed.as_ref().is_none_or(|(_, known)| *known != at) {
            self.end_proposal(now_ms, Err("this node has lost its lease at etcd: try again".to_owned()));
            return;
        }
        let result = |node: &NodeName| {
            let check = self.revisions.checks.get(node).filter(|check| check.proposal == at);
            (node.clone(), check.map(|check| check.why.clone()))
        };
        let results: Vec<(NodeName, Option<String>)> = self.takers().map(result).collect();
        let refused = |(node, why): &(NodeName, Option<String>)| {
            let why = why.as_ref().filter(|why| !why.is_empty())?;
            Some(format!("node {node}: {why}"))
        };
        let refusals: Vec<String> = results.iter().filter_map(refused).collect();
        let late = results.iter().filter(|(_, why)| why.is_none()).map(|(node, _)| &**node);
        let late = (late.clone().count() > 0).then(|| names(late));
        if refusals.is_empty() && late.is_none() {
            let (next, write) = self.commit_write(&own.proposal, at);
            if self.may_ask(now_ms, ConfigWrite::Commit)
                && let Some(own) = &mut self.revisions.own
            {
                (own.step, own.next) = (OwnStep::Commit, Some(next));
                self.ask_config(now_ms, store, ConfigWrite::Commit, write);
            }
            return;
        }
        let is_late = now_ms >= own.began_ms + CHECKS_MAX_MS;
        if late.is_some() && !is_late {
            return;
        }
        let late = late.map(|late| format!("no answer of {late} within {} s", CHECKS_MAX_MS / 1_000));
        let why: Vec<String> = refusals.into_iter().chain(late).collect();
        let delete = Write {
            compares: vec![(self.proposed_key(), at)],
            deletes: vec![self.proposed_key()],
            ..Write::default()
        };
        self.ask_config(now_ms, store, ConfigWrite::TakeBack, delete);
        self.end_proposal(now_ms, Err(why.join("\n")));
    }

    /// Write of the revision that all nodes can take.
    fn commit_write(&self, proposal: &Proposal, at: i64) -> (ActiveRevision, Write) {
        let revisions = &self.revisions;
        let current = revisions.current.as_ref();
        let known = current.map_or(0, |(current, _, _)| current.number).max(revisions.standing.seen);
        let reported = revisions.reports.values().map(|report| report.number).max().unwrap_or(0);
        let kept = revisions.texts.keys().next_back().copied().unwrap_or(0);
        let number = known.max(reported).max(kept) + 1;
        let before = current.map_or(0, |(current, _, _)| current.target());
        let next = ActiveRevision {
            number,
            before,
            stage: Stage::Trial,
            seconds: proposal.confirm_s.unwrap_or(ROLL_S),
            needs_word: proposal.confirm_s.is_some(),
            by: proposal.revision.by.clone(),
            why: String::new(),
        };
        let mut write = self.stage_write(&next, current.map_or(0, |(_, at, _)| *at));
        write.compares.push((self.proposed_key(), at));
        let value = proposal.revision.to_string();
        write.puts.push(Put { key: self.revision_key(number), value, lease: 0 });
        let old = self.superfluous(before, proposal.revision.text.len());
        write.deletes = old.into_iter().flat_map(|number| self.keys_of_revision(number)).collect();
        write.deletes.push(self.proposed_key());
        (next, write)
    }

    /// Numbers of revisions that are not kept beside a new one of this length.
    fn superfluous(&self, before: u64, len: usize) -> Vec<u64> {
        let (mut count, mut bytes) = (1, len);
        let (count_max, bytes_max) = KEPT_MAX;
        // The previous one is always kept: it is counted first.
        let texts = self.revisions.texts.iter().rev();
        let (first, others): (Vec<_>, Vec<_>) = texts.partition(|(number, _)| **number == before);
        let mut is_over = |(number, revision): (&u64, &Revision)| {
            count += 1;
            bytes += revision.text.len();
            (*number != before && (count > count_max || bytes > bytes_max)).then_some(*number)
        };
        first.into_iter().chain(others).filter_map(&mut is_over).collect()
    }

    pub(super) fn proposal_answered(
        &mut self,
        now_ms: u64,
        kind: ConfigWrite,
        answer: &Result<Answer, StoreError>,
    ) {
        let Some(own) = &mut self.revisions.own else { return };
        match (kind, answer) {
            (ConfigWrite::Propose, Ok(Answer::Written(true, at))) => {
                own.step = OwnStep::Asked(*at);
                self.revisions.proposed = Some((own.proposal.clone(), *at));
            }
            (ConfigWrite::Commit, Ok(Answer::Written(true, at))) => {
                // Whoever asks for the state after the answer finds the revision.
                if let Some(next) = own.next.take() {
                    self.revisions.texts.insert(next.number, own.proposal.revision.clone());
                    self.revisions.proposed = None;
                    self.learn_current(now_ms, next, *at);
                }
                self.end_proposal(now_ms, Ok(()));
            }
            (_, Ok(_)) => {
                let why = "another configuration is being applied at this moment: try again";
                self.end_proposal(now_ms, Err(why.to_owned()));
            }
            (_, Err(error)) => {
                let unknown = match error {
                    StoreError::Unknown(_) => "; `gatun cluster revisions` tells whether it was done",
                    _ => "",
                };
                self.end_proposal(now_ms, Err(format!("{error}{unknown}")));
            }
        }
    }

    pub(super) fn end_proposal(&mut self, now_ms: u64, result: Result<(), String>) {
        let Some(own) = self.revisions.own.take() else { return };
        if let Err(why) = &result {
            let why = crate::revision::in_one_line(why);
            self.note(now_ms, format!("a configuration of {} was refused: {why}", own.proposal.revision.by));
        }
        self.end_order(own.id, result);
    }
}

/// Names of nodes, in words.
fn names<'n>(nodes: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = nodes.collect();
    format!("{} {}", if names.len() == 1 { "node" } else { "nodes" }, names.join(", "))
}
