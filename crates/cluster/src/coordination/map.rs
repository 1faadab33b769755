//! Copy of the cluster's keys.

use super::broken::KIND;
use super::{Coordination, Purpose, Shard};
use crate::record::{NodeName, Part, ShardRecord};
use crate::store::{Answer, Call, Entry, Store, StoreError};
use std::collections::HashMap;

/// Node, as the keys tell.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Revision of the registration; `None` if it is absent.
    registered: Option<i64>,
    /// Time since when it was seen to be absent.
    absent_since: Option<u64>,
    /// Revision of the name's last use, and its number.
    name_revision: i64,
    number: u64,
    instance: String,
    is_drained: bool,
    /// Time since when it says that packets get lost there.
    broken_since: Option<u64>,
    /// Registration that the operator's word is about, and the time at which it was seen.
    gone: Option<(u64, u64)>,
}

/// Copy of the cluster's keys.
#[derive(Debug, Default)]
pub(super) struct Map {
    nodes: HashMap<NodeName, Seen>,
    /// Number of the store, and the latest revision.
    store: Option<u64>,
    pub(super) revision: i64,
    /// True if changes are watched, and all before them are known.
    pub(super) is_live: bool,
    /// Watch that counts.
    watch: Option<u64>,
    is_asked: bool,
    again_ms: u64,
}

/// Time until the map is read again after a failure, ms.
const AGAIN_MS: u64 = 100;

impl Map {
    fn seen(&self, node: &NodeName) -> Option<&Seen> {
        self.nodes.get(node)
    }

    /// Returns whether a node is registered.
    pub(super) fn is_registered(&self, node: &NodeName) -> bool {
        self.seen(node).is_some_and(|seen| seen.registered.is_some())
    }

    /// Returns whether a node has ever registered.
    pub(super) fn has_registered(&self, node: &NodeName) -> bool {
        self.seen(node).is_some_and(|seen| seen.number > 0)
    }

    pub(super) fn is_drained(&self, node: &NodeName) -> bool {
        self.seen(node).is_some_and(|seen| seen.is_drained)
    }

    pub(super) fn broken_since(&self, node: &NodeName) -> Option<u64> {
        self.seen(node)?.broken_since
    }

    /// Time since a node was seen to be absent. A node that has never registered is absent since the first
    /// look.
    pub(super) fn absent_ms(&self, now_ms: u64, node: &NodeName) -> Option<u32> {
        let since = self.seen(node).and_then(|seen| seen.absent_since)?;
        Some(u32::try_from(now_ms.saturating_sub(since)).unwrap_or(u32::MAX))
    }

    /// Time since the operator's word about the last registration of a node.
    pub(super) fn gone_ms(&self, now_ms: u64, node: &NodeName) -> Option<u32> {
        let seen = self.seen(node)?;
        let (_, at_ms) = seen.gone.filter(|(number, _)| *number == seen.number)?;
        Some(u32::try_from(now_ms.saturating_sub(at_ms)).unwrap_or(u32::MAX))
    }

    /// Revisions of a node's registration and of its name, 0 for none; its instance and its number.
    pub(super) fn registration(&self, node: &NodeName) -> (i64, i64, &str, u64) {
        let none = (0, 0, "", 0);
        self.seen(node).map_or(none, |seen| {
            (seen.registered.unwrap_or(0), seen.name_revision, seen.instance.as_str(), seen.number)
        })
    }

    /// All nodes that keys or records name.
    pub(super) fn names(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.keys()
    }

    /// Returns whether a watch counts.
    pub(super) fn is_watched_by(&self, id: u64) -> bool {
        self.watch == Some(id)
    }

    /// Starts to count the absence of a node that records name.
    fn mention(&mut self, now_ms: u64, node: &NodeName) {
        let seen = self.nodes.entry(node.clone()).or_default();
        if seen.registered.is_none() {
            seen.absent_since.get_or_insert(now_ms);
        }
    }

    fn node_changed(&mut self, now_ms: u64, kind: &str, name: &str, entry: &Entry) {
        let seen = self.nodes.entry(name.into()).or_default();
        let field = |key: &str| {
            let fields = entry.value.as_deref().unwrap_or("").split_ascii_whitespace();
            fields
                .filter_map(|field| field.split_once('='))
                .find(|(one, _)| *one == key)
                .map(|(_, text)| text)
        };
        let number = || field("number").and_then(|text| text.parse().ok()).unwrap_or(0);
        match kind {
            "nodes" => {
                seen.registered = entry.value.is_some().then_some(entry.revision);
                match seen.registered {
                    Some(_) => seen.absent_since = None,
                    None => drop(seen.absent_since.get_or_insert(now_ms)),
                }
            }
            "names" => {
                if seen.number != number() && seen.registered.is_none() {
                    // It has registered and vanished in between.
                    seen.absent_since = Some(now_ms);
                }
                (seen.name_revision, seen.number) = (entry.revision, number());
                seen.instance = field("instance").unwrap_or("").to_owned();
            }
            KIND => {
                seen.broken_since = entry.value.as_ref().map(|_| seen.broken_since.unwrap_or(now_ms));
            }
            "drains" => seen.is_drained = entry.value.is_some(),
            "gone" => seen.gone = entry.value.as_ref().map(|_| (number(), now_ms)),
            _ => {}
        }
    }
}

impl Coordination {
    /// Beginning of all keys of the cluster.
    pub(super) fn prefix(&self) -> String {
        format!("/gatun/{}/", self.settings.cluster)
    }

    /// Returns the key of a node or a shard.
    pub(super) fn key(&self, kind: &str, name: &str) -> String {
        format!("{}{kind}/{name}", self.prefix())
    }

    /// Reads the map if it is not known, and watches it.
    pub(super) fn keep_map(&mut self, now_ms: u64, store: &mut dyn Store) {
        if !self.map.is_asked && !self.map.is_live && now_ms >= self.map.again_ms {
            self.map.is_asked = true;
            let prefix = self.prefix();
            self.submit(now_ms, store, Purpose::Read, Call::Read(prefix));
        }
        if self.map.is_live && self.map.watch.is_none() {
            let (prefix, from) = (self.prefix(), self.map.revision + 1);
            let id = self.submit(now_ms, store, Purpose::Watch, Call::Watch { prefix, from });
            self.map.watch = Some(id);
        }
    }

    /// Sets what a former process knew about the store: its number, and the latest revision.
    pub fn set_seen(&mut self, seen: Option<(u64, i64)>) {
        if let Some((store, revision)) = seen {
            (self.map.store, self.map.revision) = (Some(store), revision);
        }
    }

    /// Number of the store, and the latest revision that this node knows.
    pub fn seen(&self) -> Option<(u64, i64)> {
        Some((self.map.store?, self.map.revision))
    }

    /// Returns whether an answer of the store is none of data that are older than those of a revision.
    pub(super) fn is_present(&self, (store, revision): (u64, i64), known: i64) -> bool {
        self.map.store == Some(store) && revision >= known
    }

    /// Has the map read again.
    pub(super) fn read_again(&mut self, now_ms: u64, after_ms: u64) {
        (self.map.is_live, self.map.watch) = (false, None);
        self.map.again_ms = now_ms + after_ms;
    }

    pub(super) fn map_read(&mut self, now_ms: u64, answer: Result<Answer, StoreError>) {
        self.map.is_asked = false;
        let Ok(Answer::Entries { store, revision, entries }) = answer else {
            self.read_again(now_ms, AGAIN_MS);
            return;
        };
        let is_other = self.map.store.is_some_and(|known| known != store);
        if is_other || revision < self.map.revision {
            let known = self.map.revision;
            let what = match is_other {
                true => "is another one".to_owned(),
                false => format!("has lost data: it had revision {known}"),
            };
            let error = StoreError::Old(format!("{what}; this node keeps the shards that it knows"));
            if let Some(error) = self.errors.answered(now_ms, &Purpose::Read, &Err(error)) {
                self.note(now_ms, error.to_string());
            }
            self.read_again(now_ms, AGAIN_MS * 10);
            return;
        }
        self.map.store = Some(store);
        let missing: Vec<NodeName> = self.map.names().cloned().collect();
        let prefix = self.prefix();
        let has = |kind: &str, name: &str| {
            entries.iter().any(|entry| entry.key.strip_prefix(&prefix) == Some(&format!("{kind}/{name}")))
        };
        for name in missing {
            for kind in ["nodes", "drains", "gone", KIND].into_iter().filter(|kind| !has(kind, &name)) {
                let gone = Entry { key: String::new(), value: None, revision };
                self.map.node_changed(now_ms, kind, &name, &gone);
            }
        }
        self.division_read(&entries);
        self.revisions_read(&entries);
        // Names first: they tell whether an absence is the same one.
        let (names, others): (Vec<_>, Vec<_>) =
            entries.iter().partition(|entry| entry.key.starts_with(&format!("{prefix}names/")));
        names.into_iter().chain(others).for_each(|entry| self.changed(now_ms, entry));
        self.map.revision = revision;
        self.map.is_live = true;
        self.registration_read(revision);
    }

    pub(super) fn map_changed(&mut self, now_ms: u64, answer: Result<Answer, StoreError>) {
        match answer {
            Ok(Answer::Changes(revision, entries)) => {
                entries.iter().for_each(|entry| self.changed(now_ms, entry));
                self.map.revision = self.map.revision.max(revision);
            }
            _ => self.read_again(now_ms, AGAIN_MS),
        }
    }

    fn changed(&mut self, now_ms: u64, entry: &Entry) {
        if self.division_changed(entry) {
            return;
        }
        let prefix = self.prefix();
        let Some((kind, name)) = entry.key.strip_prefix(&prefix).and_then(|rest| rest.split_once('/')) else {
            return;
        };
        match (kind, name.parse::<u8>()) {
            ("shards", Ok(shard)) if usize::from(shard) < self.shards.len() => {
                self.record_changed(now_ms, shard, entry);
            }
            // A shard that this node has not is no node.
            ("nodes" | "names" | "drains" | "gone" | KIND, _) => {
                self.map.node_changed(now_ms, kind, name, entry)
            }
            _ => self.revision_changed(now_ms, kind, name, entry),
        }
    }

    fn record_changed(&mut self, now_ms: u64, shard: u8, entry: &Entry) {
        let Some(text) = &entry.value else {
            self.note(
                now_ms,
                format!("shard {shard}: its record was deleted; this node keeps what it knows"),
            );
            return;
        };
        let record: ShardRecord<NodeName> = match text.parse() {
            Ok(record) => record,
            Err(error) => {
                self.note(now_ms, format!("shard {shard}: {error}"));
                return;
            }
        };
        let known = &self.shards[usize::from(shard)];
        if entry.revision <= known.revision {
            return;
        }
        if known.known.as_ref().is_some_and(|known| known.epoch > record.epoch) {
            self.note(now_ms, format!("shard {shard}: etcd has an older record: {text}"));
            return;
        }
        let holders = [Some(&record.owner), record.backup.as_ref().map(|backup| &backup.seat)];
        for node in holders.into_iter().flatten().map(|seat| &seat.node) {
            self.map.mention(now_ms, node);
            if !self.knows(node) {
                self.note(now_ms, format!("shard {shard}: {node:?} is no node of this configuration"));
            }
        }
        self.learn(shard, record, entry.revision);
    }

    /// Learns the record of a shard.
    pub(super) fn learn(&mut self, shard: u8, record: ShardRecord<NodeName>, revision: i64) {
        let me = self.settings.me.clone();
        let rules = self.settings.rules;
        self.version += 1;
        let one = &mut self.shards[usize::from(shard)];
        let seat = |record: &ShardRecord<NodeName>, node: &NodeName| match record.part(node) {
            Part::None => None,
            _ => Some((node.clone(), if rules.since { record.since(node) } else { None })),
        };
        let other = |record: &ShardRecord<NodeName>| {
            record.other(&me).cloned().and_then(|other| seat(record, &other))
        };
        let before = one.known.as_ref();
        let has_moved = before.and_then(|before| seat(before, &me)) != seat(&record, &me);
        let has_other = before.and_then(other) != other(&record);
        if has_moved || has_other {
            *one = Shard {
                seat: one.seat + u64::from(has_moved),
                relation: one.relation + 1,
                pending: one.pending.take(),
                ..Shard::default()
            };
        }
        if one.pending.as_ref().is_some_and(|pending| pending.base < revision) {
            one.pending = None;
        }
        (one.known, one.revision, one.order) = (Some(record), revision, super::Order::Keep);
    }
}
