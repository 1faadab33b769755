//! Coordinator in virtual time, and a node's way to it.

use gatun_cluster::store::{Answer, Call, Entry, Reply, Request, Store, StoreError, Write};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Coordinator.
#[derive(Default)]
pub struct Server {
    pub now_ms: u64,
    revision: i64,
    keys: BTreeMap<String, (String, i64, i64)>,
    leases: HashMap<i64, (u64, u64)>,
    changes: Vec<(i64, Entry)>,
    pub is_away: bool,
}

impl Server {
    pub fn value(&self, key: &str) -> Option<&str> {
        self.keys.get(key).map(|(value, _, _)| value.as_str())
    }

    fn change(&mut self, key: &str, value: Option<(String, i64)>) {
        let text = value.as_ref().map(|(text, _)| text.clone());
        match value {
            Some((text, lease)) => drop(self.keys.insert(key.to_owned(), (text, self.revision, lease))),
            None => drop(self.keys.remove(key)),
        }
        let entry = Entry { key: key.to_owned(), value: text, revision: self.revision };
        self.changes.push((self.revision, entry));
    }

    /// Ends leases. A coordinator that is away ends none: its clock stands.
    pub fn turn(&mut self, now_ms: u64) {
        let passed_ms = now_ms - self.now_ms;
        self.now_ms = now_ms;
        if self.is_away {
            self.leases.values_mut().for_each(|(end, _)| *end += passed_ms);
            return;
        }
        let now = self.now_ms;
        let over: Vec<i64> =
            self.leases.iter().filter(|(_, (end, _))| *end <= now).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|lease| {
            self.end(lease);
        });
    }

    fn end(&mut self, lease: i64) -> bool {
        if self.leases.remove(&lease).is_none() {
            return false;
        }
        let keys: Vec<String> =
            self.keys.iter().filter(|(_, (_, _, of))| *of == lease).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.revision += 1;
            self.change(&key, None);
        }
        true
    }

    pub fn call(&mut self, call: &Call) -> Answer {
        match call {
            Call::Grant(ttl_ms) => {
                self.revision += 1;
                let id = self.revision;
                self.leases.insert(id, (self.now_ms + ttl_ms, *ttl_ms));
                Answer::Granted(id, *ttl_ms)
            }
            Call::KeepAlive(lease) => match self.leases.get_mut(lease) {
                Some((end, ttl_ms)) => {
                    *end = self.now_ms + *ttl_ms;
                    Answer::Renewed { store: 1, revision: self.revision }
                }
                None => Answer::NoLease,
            },
            Call::Revoke(lease) => {
                if self.end(*lease) {
                    Answer::Revoked
                } else {
                    Answer::NoLease
                }
            }
            Call::Read(prefix) => {
                let all = self.keys.iter().filter(|(key, _)| key.starts_with(prefix.as_str()));
                let entry = |(key, (value, revision, _)): (&String, &(String, i64, i64))| Entry {
                    key: key.clone(),
                    value: Some(value.clone()),
                    revision: *revision,
                };
                Answer::Entries { store: 1, revision: self.revision, entries: all.map(entry).collect() }
            }
            Call::Write(write) => self.write(write),
            Call::Watch { .. } => Answer::Changes(self.revision, vec![]),
        }
    }

    fn write(&mut self, write: &Write) -> Answer {
        let revision = |key: &String| self.keys.get(key).map_or(0, |(_, revision, _)| *revision);
        let leases = write.puts.iter().all(|put| put.lease == 0 || self.leases.contains_key(&put.lease));
        if write.compares.iter().any(|(key, wanted)| revision(key) != *wanted) {
            return Answer::Written(false, self.revision);
        }
        if !leases {
            return Answer::NoLease;
        }
        self.revision += 1;
        for put in &write.puts {
            self.change(&put.key, Some((put.value.clone(), put.lease)));
        }
        write.deletes.iter().for_each(|key| self.change(key, None));
        Answer::Written(true, self.revision)
    }
}

/// Way of a request or an answer.
struct OnTheWay<T> {
    at_ms: u64,
    what: T,
}

/// A node's way to the coordinator.
pub struct Client {
    server: Rc<RefCell<Server>>,
    requests: Vec<OnTheWay<Request>>,
    replies: Vec<OnTheWay<Reply>>,
    /// Number of the watch, and the next revision.
    watch: Option<(u64, String, i64)>,
    /// True while nothing passes.
    pub is_cut: bool,
    /// Time of each way, ms.
    pub delay_ms: u64,
    /// The next answer is lost, and the caller is told late that there is none.
    pub loses_next: bool,
}

/// Time after which a client gives up, ms.
const PATIENCE_MS: u64 = 400;

impl Client {
    pub fn new(server: &Rc<RefCell<Server>>) -> Client {
        let (requests, replies) = (vec![], vec![]);
        let server = Rc::clone(server);
        Client { server, requests, replies, watch: None, is_cut: false, delay_ms: 2, loses_next: false }
    }

    /// Lets requests arrive.
    pub fn turn(&mut self, now_ms: u64) {
        let is_away = self.is_cut || self.server.borrow().is_away;
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.requests).into_iter().partition(|one| one.at_ms <= now_ms);
        self.requests = later;
        for OnTheWay { what: Request { id, call }, .. } in due {
            if let Call::Watch { prefix, from } = call {
                self.watch = Some((id, prefix, from));
                continue;
            }
            let answer = match is_away {
                true => Err(StoreError::Unknown("no answer in time".to_owned())),
                false => Ok(self.server.borrow_mut().call(&call)),
            };
            let is_lost = std::mem::take(&mut self.loses_next) || is_away;
            let answer =
                if is_lost { Err(StoreError::Unknown("no answer in time".to_owned())) } else { answer };
            let at_ms = now_ms + if is_lost { PATIENCE_MS } else { self.delay_ms };
            self.replies.push(OnTheWay { at_ms, what: Reply { id, answer } });
        }
        if let Some((id, prefix, from)) = self.watch.clone() {
            if is_away {
                self.watch = None;
                let answer = Err(StoreError::WatchEnded("cut off".to_owned()));
                self.replies.push(OnTheWay { at_ms: now_ms + PATIENCE_MS, what: Reply { id, answer } });
                return;
            }
            let server = self.server.borrow();
            let new = server.changes.iter().filter(|(revision, _)| *revision >= from);
            let entries: Vec<Entry> = new
                .filter(|(_, entry)| entry.key.starts_with(&prefix))
                .map(|(_, entry)| entry.clone())
                .collect();
            let revision = server.revision;
            if !entries.is_empty() {
                let answer = Ok(Answer::Changes(revision, entries));
                // A stream keeps its order, whatever the way takes.
                let before = self.replies.iter().filter(|one| one.what.id == id).map(|one| one.at_ms).max();
                let at_ms = (now_ms + self.delay_ms).max(before.unwrap_or(0));
                self.replies.push(OnTheWay { at_ms, what: Reply { id, answer } });
                self.watch = Some((id, prefix, revision + 1));
            }
        }
        self.replies.sort_by_key(|one| one.at_ms);
    }
}

impl Store for Client {
    fn submit(&mut self, request: Request) {
        let at_ms = self.server.borrow().now_ms + self.delay_ms;
        self.requests.push(OnTheWay { at_ms, what: request });
    }

    fn poll(&mut self) -> Option<Reply> {
        let now_ms = self.server.borrow().now_ms;
        let is_due = self.replies.first().is_some_and(|one| one.at_ms <= now_ms);
        is_due.then(|| self.replies.remove(0).what)
    }
}
