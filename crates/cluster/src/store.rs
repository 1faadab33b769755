//! Coordinator of a cluster, as a node uses it: keys and values with revisions, transactions, leases, and
//! a watch.
//!
//! Nothing waits: a request is handed over, and its answer or an error comes later. [`crate::etcd`] is
//! the daemon's coordinator. Simulations have another one, which is slow and loses answers.

use std::fmt;

/// Maximum number of requests without an answer: a write for each of 256 shards, and as many others.
pub const REQUESTS_MAX: usize = 512;

/// Maximum number of answers of watches that the caller has not taken. One more ends the watch.
pub const CHANGES_MAX: usize = 256;

/// Request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number that the answer has.
    pub id: u64,
    /// Contents.
    pub call: Call,
}

/// Contents of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Creates a lease of at least this length, ms.
    Grant(u64),
    /// Renews a lease.
    KeepAlive(i64),
    /// Ends a lease, and deletes its keys.
    Revoke(i64),
    /// Reads all keys that begin with a text. The answer is not older than the request.
    Read(String),
    /// Writes if all comparisons hold.
    Write(Write),
    /// Tells changes of keys that begin with a text, from a revision on, instead of the previous watch. There
    /// are many answers, until an error ends the watch. The previous watch ends with an error, too.
    Watch {
        /// Beginning of the keys.
        prefix: String,
        /// First revision.
        from: i64,
    },
}

/// Transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// Conditions: each key has this revision; 0 if it must not exist.
    pub compares: Vec<(String, i64)>,
    /// Keys to be written.
    pub puts: Vec<Put>,
    /// Keys to be deleted.
    pub deletes: Vec<String>,
}

/// Key to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
    /// Lease with whose end the key is deleted; 0 for none.
    pub lease: i64,
}

/// Key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Key.
    pub key: String,
    /// Value; `None` if the key was deleted.
    pub value: Option<String>,
    /// Revision of the last change.
    pub revision: i64,
}

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Number of the request.
    pub id: u64,
    /// Answer.
    pub answer: Result<Answer, StoreError>,
}

/// Contents of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Number of a lease, and its length, ms.
    Granted(i64, u64),
    /// The lease was renewed.
    Renewed {
        /// Random number of the coordinator.
        store: u64,
        /// Revision of its data.
        revision: i64,
    },
    /// There is no such lease. A write with it was not done.
    NoLease,
    /// The lease has ended.
    Revoked,
    /// Keys, at a revision of the store with this number of the cluster.
    Entries {
        /// Random number of the coordinator: another one has other data.
        store: u64,
        /// Revision.
        revision: i64,
        /// Keys.
        entries: Vec<Entry>,
    },
    /// Whether the transaction was done, and the revision of the store.
    Written(bool, i64),
    /// Changes, up to a revision.
    Changes(i64, Vec<Entry>),
}

/// Reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// It was not done: nobody could be reached, or nobody leads.
    Unreachable(String),
    /// It may have been done or not.
    Unknown(String),
    /// It was refused, and will be refused again: a wrong password, a missing right.
    Refused(String),
    /// It answers, and its data are older than those that it had, or are others: no answer counts.
    Old(String),
    /// The watch has ended: read, and watch again.
    WatchEnded(String),
    /// It was not done: too many requests wait.
    Busy,
    /// It was not done: the client has ended, and does nothing any more.
    Ended,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Unreachable(why) => write!(f, "etcd cannot be reached: {why}"),
            StoreError::Unknown(why) => write!(f, "etcd gave no certain answer: {why}"),
            StoreError::Refused(why) => write!(f, "etcd refuses: {why}"),
            StoreError::Old(why) => write!(f, "etcd {why}"),
            StoreError::WatchEnded(why) => write!(f, "etcd has ended the watch: {why}"),
            StoreError::Busy => write!(f, "too many requests to etcd wait for an answer"),
            StoreError::Ended => write!(f, "the client of etcd has ended: restart gatun"),
        }
    }
}

impl std::error::Error for StoreError {}

/// Coordinator.
pub trait Store {
    /// Hands a request over.
    fn submit(&mut self, request: Request);

    /// Returns the next answer.
    fn poll(&mut self) -> Option<Reply>;
}
