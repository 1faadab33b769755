//! Division of the public ports, which all nodes of a cluster must have in common: records say only who has
//! a shard, and not what it is.
//!
//! The first node writes its division to a key of the cluster. A node with another one does not register and
//! writes no record. Registrations and records are written only while the key is as this node knows it.

use super::{Coordination, Purpose};
use crate::store::{Answer, Call, Entry, Put, Store, StoreError, Write};

/// Name of the key.
const KEY: &str = "division";
/// Time until the next try, ms.
const AGAIN_MS: u64 = 100;
/// Characters of a value that a message has.
const SHOWN_MAX: usize = 120;

/// Division of this node and of the cluster, a line `NAME=VALUE` for each part.
#[derive(Debug, Default)]
pub(super) struct Division {
    /// `None` if nothing is checked.
    own: Option<String>,
    /// That of the cluster, and the revision of its key. `None` if there is no such key.
    seen: Option<(String, i64)>,
    is_asked: bool,
    again_ms: u64,
    /// True if an event has told the present difference.
    is_told: bool,
}

impl Coordination {
    /// Has the node take part only if its division is that of the cluster: a line `NAME=VALUE` for each part.
    pub fn set_division(&mut self, own: String) {
        self.division.own = Some(own);
    }

    /// Returns how the division of the cluster differs from that of this node, and what to do.
    pub fn difference(&self) -> Option<String> {
        let (own, seen) = (self.division.own.as_ref()?, self.division.seen.as_ref()?);
        let parts = (own != &seen.0).then(|| differing(own, &seen.0))?;
        Some(format!(
            "this node has another division than the cluster: {parts}. Write what etcd has, or stop all \
             nodes, delete {} at etcd, and start them with one file",
            self.division_key()
        ))
    }

    fn division_key(&self) -> String {
        format!("{}{KEY}", self.prefix())
    }

    /// Condition of a write: nobody has changed the division.
    pub(super) fn division_unchanged(&self) -> Option<(String, i64)> {
        self.division.own.as_ref()?;
        Some((self.division_key(), self.division.seen.as_ref().map_or(0, |(_, revision)| *revision)))
    }

    /// Returns whether the cluster has the division of this node.
    pub(super) fn has_division(&self) -> bool {
        let Division { own, seen, .. } = &self.division;
        own.as_ref().is_none_or(|own| seen.as_ref().is_some_and(|(text, _)| text == own))
    }

    /// Writes the division if there is none, and tells a difference.
    pub(super) fn keep_division(&mut self, now_ms: u64, store: &mut dyn Store) {
        if let Some(why) = self.difference() {
            if !std::mem::replace(&mut self.division.is_told, true) {
                self.note(now_ms, why);
            }
            return;
        }
        self.division.is_told = false;
        let one = &self.division;
        let Some(own) = one.own.clone().filter(|_| one.seen.is_none()) else { return };
        if self.map.is_live && !one.is_asked && now_ms >= one.again_ms {
            let key = self.division_key();
            let put = Put { key: key.clone(), value: own, lease: 0 };
            let write = Write { compares: vec![(key, 0)], puts: vec![put], deletes: Vec::new() };
            self.division.is_asked = true;
            self.submit(now_ms, store, Purpose::Division, Call::Write(write));
        }
    }

    /// The write of the division was answered. The map tells its result.
    pub(super) fn division_answered(&mut self, now_ms: u64, answer: &Result<Answer, StoreError>) {
        self.division.is_asked = false;
        self.division.again_ms = now_ms + AGAIN_MS;
        let after_ms = if answer.is_ok() { 0 } else { AGAIN_MS };
        self.read_again(now_ms, after_ms);
    }

    /// Learns a key of the cluster. Returns whether it is that of the division.
    pub(super) fn division_changed(&mut self, entry: &Entry) -> bool {
        let is_it = entry.key == self.division_key();
        if is_it {
            self.division.seen = entry.value.clone().map(|text| (text, entry.revision));
        }
        is_it
    }

    /// Learns from all keys of the cluster.
    pub(super) fn division_read(&mut self, entries: &[Entry]) {
        let key = self.division_key();
        if !entries.iter().any(|entry| entry.key == key) {
            self.division.seen = None;
        }
    }
}

/// Names the parts that differ, with both values.
fn differing(own: &str, seen: &str) -> String {
    fn part<'t>(text: &'t str, name: &str) -> Option<&'t str> {
        text.lines().filter_map(|line| line.split_once('=')).find(|part| part.0 == name).map(|part| part.1)
    }
    let names = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.split_once('=')).map(|part| part.0.to_owned()).collect()
    };
    let mut all = names(own);
    all.extend(names(seen).into_iter().filter(|name| !names(own).contains(name)));
    let differs = all.iter().filter(|name| part(own, name) != part(seen, name));
    let shown = |value: Option<&str>| match value {
        Some(value) if value.chars().count() > SHOWN_MAX => {
            format!("{}...", value.chars().take(SHOWN_MAX).collect::<String>())
        }
        Some(value) => value.to_owned(),
        None => "nothing".to_owned(),
    };
    let told: Vec<String> = differs
        .map(|name| {
            format!("{name}: etcd has {}, this node {}", shown(part(seen, name)), shown(part(own, name)))
        })
        .collect();
    match told.is_empty() {
        true => "the key at etcd cannot be read".to_owned(),
        false => told.join("; "),
    }
}
