//! Steps of this node: check a proposal, apply a revision, confirm it, return.

use super::{ConfigWrite, Coordination};
use crate::revision::{ActiveRevision, Check, FollowStep, Report, Stage, Standing, follow, in_one_line};
use crate::store::Store;

/// Time until a confirmed revision that a node could not apply is tried again, ms.
const RETRY_MS: u64 = 10_000;

/// Configuration that the process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunningConfig {
    /// SHA-256 of the text, hexadecimal.
    pub sha256: String,
    /// True if it is rolled back unless it is confirmed.
    pub is_unconfirmed: bool,
}

/// Knowledge about revisions that outlives a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedRevision {
    /// Number of the revision in the configuration file; 0 if it is unknown.
    pub file: u64,
    /// Largest number that the node has seen.
    pub seen: u64,
}

/// Work for the process that runs the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigStep {
    /// Check whether a reload could apply this text.
    Check(String),
    /// Apply the text of a revision.
    Apply {
        /// Number.
        number: u64,
        /// Text.
        text: String,
        /// Its SHA-256, hexadecimal.
        sha256: String,
        /// Time after which it is rolled back, ms; `None` if it is confirmed.
        trial_ms: Option<u64>,
    },
    /// Confirm the trial of a revision.
    Confirm(u64),
    /// Return from the trial of a revision.
    RollBack(u64),
}

/// Work without a result.
#[derive(Debug)]
pub(super) struct Work {
    what: Job,
    is_taken: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Job {
    /// Check of the proposal with this revision.
    Check(i64),
    Step(FollowStep),
}

impl Coordination {
    /// Knowledge of the previous process about revisions.
    pub fn set_saved_revision(&mut self, saved: SavedRevision) {
        self.revisions.standing = Standing { file: saved.file, seen: saved.seen, ..Standing::default() };
    }

    /// Returns what the next process needs to know about revisions.
    pub fn saved_revision(&self) -> SavedRevision {
        let Standing { file, seen, .. } = self.revisions.standing;
        SavedRevision { file, seen }
    }

    /// Tells which configuration the process runs.
    pub fn set_running_config(&mut self, running: RunningConfig) {
        self.revisions.running = Some(running);
    }

    /// Takes the next step. The caller executes it, and tells the result by
    /// [`config_done`](Self::config_done).
    pub fn take_config_step(&mut self) -> Option<ConfigStep> {
        let work = self.revisions.work.as_mut().filter(|work| !work.is_taken)?;
        work.is_taken = true;
        let step = match &work.what {
            Job::Check(at) => {
                let proposed = self.revisions.proposed.as_ref().filter(|(_, revision)| revision == at);
                proposed.map(|(proposal, _)| ConfigStep::Check(proposal.revision.text.clone()))
            }
            Job::Step(FollowStep::Apply(number, trial_ms)) => {
                self.revisions.texts.get(number).map(|revision| ConfigStep::Apply {
                    number: *number,
                    text: revision.text.clone(),
                    sha256: revision.sha256.clone(),
                    trial_ms: *trial_ms,
                })
            }
            Job::Step(FollowStep::Confirm(number)) => Some(ConfigStep::Confirm(*number)),
            Job::Step(FollowStep::RollBack(number)) => Some(ConfigStep::RollBack(*number)),
            Job::Step(_) => None,
        };
        if step.is_none() {
            // The proposal has ended meanwhile.
            self.revisions.work = None;
        }
        step
    }

    /// Tells the result of a step. The caller has told the running configuration after it.
    pub fn config_done(&mut self, now_ms: u64, result: Result<(), String>) {
        let Some(work) = self.revisions.work.take() else { return };
        let revisions = &mut self.revisions;
        let why = result.as_ref().err().cloned();
        let event = match (work.what, result) {
            (Job::Check(proposal), result) => {
                let why = result.err().map(|why| in_one_line(&why)).unwrap_or_default();
                revisions.checked = Some(Check { proposal, why });
                return;
            }
            (Job::Step(FollowStep::Apply(number, Some(_))), Ok(())) => {
                let sha256 = revisions.texts.get(&number).map(|revision| revision.sha256.clone());
                revisions.trial_sha256 = sha256.unwrap_or_default();
                revisions.standing.trial = Some(number);
                format!("runs configuration revision {number} on trial")
            }
            (Job::Step(FollowStep::Apply(number, Some(_))), Err(why)) => {
                revisions.standing.given_up = Some((number, why));
                format!("cannot apply configuration revision {number}")
            }
            (Job::Step(FollowStep::Apply(number, None)), Ok(())) => {
                (revisions.standing.file, revisions.fault) = (number, None);
                format!("runs configuration revision {number}")
            }
            (Job::Step(FollowStep::Confirm(number)), Ok(())) => {
                (revisions.standing.file, revisions.standing.trial) = (number, None);
                revisions.fault = None;
                format!("has configuration revision {number} in its file")
            }
            (Job::Step(FollowStep::RollBack(number)), Ok(())) => {
                revisions.standing.trial = None;
                format!("has returned from configuration revision {number}")
            }
            (Job::Step(step), Err(why)) => {
                revisions.fault = Some((why, now_ms + RETRY_MS));
                match step {
                    FollowStep::Confirm(number) => format!("cannot keep configuration revision {number}"),
                    FollowStep::RollBack(number) => {
                        format!("cannot return from configuration revision {number}")
                    }
                    _ => "cannot apply the cluster's configuration".to_owned(),
                }
            }
            (Job::Step(_), Ok(())) => return,
        };
        let why = why.map(|why| format!(": {}", in_one_line(&why))).unwrap_or_default();
        self.note(now_ms, format!("node {} {event}{why}", self.settings.me));
    }

    /// A trial may end without a word of the cluster: its time is over, or an operator of this node has
    /// confirmed it.
    pub(super) fn note_end_of_trial(&mut self, now_ms: u64) {
        let revisions = &mut self.revisions;
        let (Some(running), Some(number)) = (&revisions.running, revisions.standing.trial) else { return };
        if running.is_unconfirmed || revisions.work.is_some() {
            return;
        }
        revisions.standing.trial = None;
        if running.sha256 == revisions.trial_sha256 {
            revisions.standing.file = number;
            return;
        }
        revisions.standing.given_up = Some((number, "the time for its confirmation is over".to_owned()));
        self.note(
            now_ms,
            format!("node {} has returned from configuration revision {number}", self.settings.me),
        );
    }

    /// Chooses the next work. Returns the stage that this node gives to the present revision, and why.
    pub(super) fn choose_work(&mut self, now_ms: u64) -> Option<(Stage, String)> {
        let is_proposed =
            |at: &i64| self.revisions.checked.as_ref().is_none_or(|check| check.proposal != *at);
        let proposed = self.revisions.proposed.as_ref().map(|(_, at)| *at).filter(is_proposed);
        if self.revisions.work.is_none()
            && let Some(at) = proposed
        {
            self.revisions.work = Some(Work { what: Job::Check(at), is_taken: false });
        }
        let (current, at, since_ms) = self.revisions.current.clone()?;
        self.adopt(&current);
        let step = follow(&current, &self.revisions.standing, self.is_turn(&current, at), now_ms - since_ms);
        match step {
            FollowStep::Nothing if current.stage == Stage::Trial && !current.needs_word => {
                return self.have_all(&current, at).then(|| (Stage::Confirmed, String::new()));
            }
            FollowStep::Nothing => {}
            FollowStep::KeepNewer => {
                let (number, seen) = (current.number, self.revisions.standing.seen);
                self.note(
                    now_ms,
                    format!("etcd has configuration revision {number}, this node has seen {seen}: it keeps its own"),
                );
            }
            FollowStep::Withdraw(why) => return Some((Stage::Withdrawn, why)),
            step => self.begin_step(now_ms, step),
        }
        self.revisions.standing.seen = self.revisions.standing.seen.max(current.number);
        None
    }

    /// The text of the file may be that of a revision already.
    fn adopt(&mut self, current: &ActiveRevision) {
        let revisions = &mut self.revisions;
        let target = current.target();
        let Some(running) = revisions.running.as_ref().filter(|running| !running.is_unconfirmed) else {
            return;
        };
        let is_it = revisions.texts.get(&target).is_some_and(|revision| revision.sha256 == running.sha256);
        if is_it && revisions.work.is_none() && current.number >= revisions.standing.seen {
            (revisions.standing.file, revisions.fault) = (target, None);
        }
    }

    fn begin_step(&mut self, now_ms: u64, step: FollowStep) {
        let waits = self.revisions.fault.as_ref().is_some_and(|(_, again_ms)| now_ms < *again_ms);
        if self.revisions.work.is_some() || waits {
            return;
        }
        if let FollowStep::Apply(number, _) = &step
            && !self.revisions.texts.contains_key(number)
        {
            let why = format!("etcd has no text of configuration revision {number}");
            self.note(now_ms, why.clone());
            self.revisions.fault = Some((why, now_ms + RETRY_MS));
            return;
        }
        self.revisions.work = Some(Work { what: Job::Step(step), is_taken: false });
    }

    pub(super) fn has(&self, node: &str, current: &ActiveRevision, at: i64) -> bool {
        let report = self.revisions.reports.get(node);
        report
            .is_some_and(|report| (report.at, report.number) == (at, current.number) && report.why.is_empty())
    }

    /// Returns whether all nodes before this one have a revision.
    fn is_turn(&self, current: &ActiveRevision, at: i64) -> bool {
        let me = &self.settings.me;
        self.takers().filter(|node| *node < me).all(|node| self.has(node, current, at))
    }

    /// Returns whether all nodes have a revision.
    pub(super) fn have_all(&self, current: &ActiveRevision, at: i64) -> bool {
        self.map.is_registered(&self.settings.me) && self.takers().all(|node| self.has(node, current, at))
    }

    /// Gives the present revision another stage.
    pub(super) fn write_stage(&mut self, now_ms: u64, store: &mut dyn Store, (stage, why): (Stage, String)) {
        let Some((current, at, _)) = &self.revisions.current else { return };
        if !self.may_ask(now_ms, ConfigWrite::Stage) {
            return;
        }
        let by = format!("node {}", self.settings.me);
        let write = self.stage_write(&ActiveRevision { stage, by, why, ..current.clone() }, *at);
        self.ask_config(now_ms, store, ConfigWrite::Stage, write);
    }

    /// Tells the others whether this node can take the proposal.
    pub(super) fn keep_check(&mut self, now_ms: u64, store: &mut dyn Store) {
        let Some(check) = self.revisions.checked.clone() else { return };
        let is_asked = self.revisions.proposed.as_ref().is_some_and(|(_, at)| *at == check.proposal);
        let is_told = self.revisions.checks.get(&self.settings.me) == Some(&check);
        if is_asked && !is_told && self.may_ask(now_ms, ConfigWrite::Check) {
            let put = (self.check_key(), check.to_string());
            self.put_own(now_ms, store, ConfigWrite::Check, put);
        }
    }

    /// Report of this node.
    pub(super) fn report(&self) -> Report {
        let revisions = &self.revisions;
        let Standing { file, trial, given_up, .. } = &revisions.standing;
        let current = revisions.current.as_ref();
        let given_up = given_up.as_ref().filter(|(number, _)| {
            current.is_some_and(|(current, _, _)| current.number == *number && current.stage == Stage::Trial)
        });
        let fault = revisions.fault.as_ref().map(|(why, _)| why);
        Report {
            at: current.map_or(0, |(_, at, _)| *at),
            number: trial.unwrap_or(*file),
            is_trial: trial.is_some(),
            sha256: revisions.running.as_ref().map(|running| running.sha256.clone()).unwrap_or_default(),
            why: given_up.map(|(_, why)| why).or(fault).map(|why| in_one_line(why)).unwrap_or_default(),
        }
    }

    /// Tells the others what this node runs.
    pub(super) fn keep_report(&mut self, now_ms: u64, store: &mut dyn Store) {
        if self.revisions.current.is_none() || !self.may_ask(now_ms, ConfigWrite::Report) {
            return;
        }
        let report = self.report();
        if self.revisions.reports.get(&self.settings.me) != Some(&report) {
            let put = (self.applied_key(), report.to_string());
            self.put_own(now_ms, store, ConfigWrite::Report, put);
        }
    }
}
