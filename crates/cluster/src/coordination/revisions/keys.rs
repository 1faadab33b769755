//! Keys of the configuration.

use crate::coordination::Coordination;
use crate::record::NodeName;
use crate::revision::{ActiveRevision, Stage};
use crate::store::{Entry, Put, Write};
use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;

/// Kinds of keys.
const CONFIG: &str = "config";
const CHECKS: &str = "checks";
const APPLIED: &str = "applied";
/// Names of keys of the configuration.
const CURRENT: &str = "current";
const PROPOSED: &str = "proposed";
const REVISION: &str = "revision";
const OUTCOME: &str = "outcome";

impl Coordination {
    pub(super) fn current_key(&self) -> String {
        self.key(CONFIG, CURRENT)
    }

    pub(super) fn proposed_key(&self) -> String {
        self.key(CONFIG, PROPOSED)
    }

    pub(super) fn revision_key(&self, number: u64) -> String {
        self.key(CONFIG, &format!("{REVISION}/{number:010}"))
    }

    fn outcome_key(&self, number: u64) -> String {
        self.key(CONFIG, &format!("{OUTCOME}/{number:010}"))
    }

    pub(super) fn check_key(&self) -> String {
        self.key(CHECKS, &self.settings.me)
    }

    pub(super) fn applied_key(&self) -> String {
        self.key(APPLIED, &self.settings.me)
    }

    /// Write that replaces the present revision by its next stage.
    pub(super) fn stage_write(&self, next: &ActiveRevision, at: i64) -> Write {
        let (key, what) = (self.current_key(), next.stage.name());
        let outcome = match next.why.is_empty() {
            true => format!("{what} by {}", next.by),
            false => format!("{what} by {}: {}", next.by, next.why),
        };
        let put = |key: String, value: String| Put { key, value, lease: 0 };
        let outcome = put(self.outcome_key(next.number), outcome);
        let mut compares = vec![(key.clone(), at)];
        compares.extend(self.division_unchanged());
        Write { compares, puts: vec![put(key, next.to_string()), outcome], deletes: Vec::new() }
    }

    /// Keys of a revision that is not kept.
    pub(super) fn keys_of_revision(&self, number: u64) -> [String; 2] {
        [self.revision_key(number), self.outcome_key(number)]
    }

    /// Forgets keys that are read again.
    pub(in crate::coordination) fn revisions_read(&mut self, entries: &[Entry]) {
        let current = self.current_key();
        let known = &mut self.revisions;
        if !entries.iter().any(|entry| entry.key == current) {
            known.current = None;
        }
        known.proposed = None;
        known.texts.clear();
        known.outcomes.clear();
        known.checks.clear();
        known.reports.clear();
    }

    /// Learns a key, if it is one of the configuration.
    pub(in crate::coordination) fn revision_changed(
        &mut self,
        now_ms: u64,
        kind: &str,
        name: &str,
        entry: &Entry,
    ) {
        let value = entry.value.as_deref();
        match (kind, name.split_once('/')) {
            (CONFIG, None) if name == CURRENT => self.current_changed(now_ms, value, entry.revision),
            (CONFIG, None) if name == PROPOSED => {
                self.revisions.proposed =
                    self.read_value(now_ms, name, value).map(|proposal| (proposal, entry.revision));
            }
            (CONFIG, Some((REVISION, number))) => {
                let Ok(number) = number.parse() else { return };
                let revision = self.read_value(now_ms, name, value);
                set_of_revision(&mut self.revisions.texts, number, revision);
            }
            (CONFIG, Some((OUTCOME, number))) => {
                let Ok(number) = number.parse() else { return };
                set_of_revision(&mut self.revisions.outcomes, number, value.map(str::to_owned));
            }
            (CHECKS, None) => {
                let check = self.read_value(now_ms, kind, value);
                set_of_node(&mut self.revisions.checks, name, check);
            }
            (APPLIED, None) => {
                let report = self.read_value(now_ms, kind, value);
                set_of_node(&mut self.revisions.reports, name, report);
            }
            _ => {}
        }
    }

    fn read_value<T: FromStr>(&mut self, now_ms: u64, name: &str, value: Option<&str>) -> Option<T> {
        let read = value?.parse().ok();
        if read.is_none() {
            self.note(now_ms, format!("configuration: the key {name:?} at etcd cannot be read"));
        }
        read
    }

    fn current_changed(&mut self, now_ms: u64, value: Option<&str>, revision: i64) {
        if self.revisions.current.as_ref().is_some_and(|(_, at, _)| *at >= revision) {
            return;
        }
        let Some(current) = self.read_value::<ActiveRevision>(now_ms, CURRENT, value) else {
            if value.is_none() {
                self.revisions.current = None;
            }
            return;
        };
        self.learn_current(now_ms, current, revision);
    }

    /// Learns the present revision. The time of a trial counts from the first look at it.
    pub(super) fn learn_current(&mut self, now_ms: u64, current: ActiveRevision, revision: i64) {
        let known = self.revisions.current.as_ref();
        let is_same =
            known.is_some_and(|(known, _, _)| (known.number, known.stage) == (current.number, current.stage));
        let since_ms = known.filter(|_| is_same).map_or(now_ms, |(_, _, since_ms)| *since_ms);
        if !is_same {
            self.revisions.fault = None;
            self.tell_current(now_ms, &current);
        }
        self.revisions.current = Some((current, revision, since_ms));
    }

    fn tell_current(&mut self, now_ms: u64, current: &ActiveRevision) {
        let ActiveRevision { number, before, by, why, .. } = current;
        let reason = if why.is_empty() { String::new() } else { format!(": {why}") };
        let what = match current.stage {
            Stage::Trial => format!("on trial by {by}"),
            Stage::Confirmed => format!("confirmed by {by}"),
            Stage::Withdrawn if *before == 0 => format!("withdrawn by {by}{reason}"),
            Stage::Withdrawn => format!("withdrawn by {by}, in favour of {before}{reason}"),
        };
        self.note(now_ms, format!("configuration revision {number}: {what}"));
    }
}

/// Keeps what a key of a revision has; without a value, nothing.
fn set_of_revision<T>(known: &mut BTreeMap<u64, T>, number: u64, value: Option<T>) {
    match value {
        Some(value) => drop(known.insert(number, value)),
        None => drop(known.remove(&number)),
    }
}

/// Keeps what a key of a node has; without a value, nothing.
fn set_of_node<T>(known: &mut HashMap<NodeName, T>, node: &str, value: Option<T>) {
    match value {
        Some(value) => drop(known.insert(node.into(), value)),
        None => drop(known.remove(node)),
    }
}
