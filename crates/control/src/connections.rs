//! Bounded number of connections. When the limit is reached, a new connection closes an idle one: the one
//! idle longest of the source with most connections. A connection with a request in progress is never closed.

use std::future::Future;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Connections at a time.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// Host bits of an IPv6 address: one host may use any number of addresses in such a network.
const HOST_BITS: u32 = 64;

/// Source of connections, as fine as sources can be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// A user of this host.
    User(u32),
    /// An IPv4 address, or the network of an IPv6 one.
    Network(IpAddr),
}

impl Source {
    /// Returns the source of a connection from this address.
    pub(crate) fn of(from: SocketAddr) -> Source {
        Source::Network(match from.ip().to_canonical() {
            IpAddr::V6(address) => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> HOST_BITS << HOST_BITS))
            }
            address => address,
        })
    }
}

/// A connection in the list.
struct Connection {
    source: Source,
    /// True while a request is in progress or its answer is being sent.
    busy: AtomicBool,
    /// Time when it was busy last, ms since the first.
    since_ms: AtomicU64,
    /// The hash of the token of its last request.
    token: Mutex<Option<[u8; 32]>>,
    task: OnceLock<AbortHandle>,
}

impl Connection {
    fn end(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

/// All connections.
pub(crate) struct Connections {
    began: Instant,
    all: Mutex<Vec<Arc<Connection>>>,
}

impl Default for Connections {
    fn default() -> Self {
        Connections { began: Instant::now(), all: Mutex::new(Vec::with_capacity(CONNECTIONS_MAX)) }
    }
}

impl Connections {
    fn all(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns true if there is room for one more, after closing an idle one if needed.
    pub(crate) fn make_room(&self) -> bool {
        let mut all = self.all();
        if all.len() < CONNECTIONS_MAX {
            return true;
        }
        let of = |source: Source| all.iter().filter(|one| one.source == source).count();
        let idle = all.iter().enumerate().filter(|(_, one)| !one.busy.load(Ordering::Relaxed));
        // The source with most connections, and its smallest time.
        let leaving =
            idle.max_by_key(|(_, one)| (of(one.source), u64::MAX - one.since_ms.load(Ordering::Relaxed)));
        let Some(leaving) = leaving.map(|(at, _)| at) else { return false };
        all.swap_remove(leaving).end();
        true
    }

    /// Starts a connection's task; its entry stays in the list as long as the task keeps it.
    pub(crate) fn take_in<F>(self: &Arc<Self>, source: Source, talk: impl FnOnce(Entry) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let connection = Arc::new(Connection {
            source,
            busy: AtomicBool::new(false),
            since_ms: AtomicU64::new(self.now_ms()),
            token: Mutex::default(),
            task: OnceLock::new(),
        });
        self.all().push(Arc::clone(&connection));
        let entry = Entry { connections: Arc::clone(self), connection: Arc::clone(&connection) };
        let task = tokio::spawn(talk(entry));
        let _ = connection.task.set(task.abort_handle());
    }

    /// Ends connections whose last request came with a matching token.
    pub(crate) fn end_where(&self, is_meant: impl Fn(&[u8; 32]) -> bool) {
        for connection in self.all().iter() {
            let token = *connection.token.lock().unwrap_or_else(PoisonError::into_inner);
            if token.is_some_and(|token| is_meant(&token)) {
                connection.end();
            }
        }
    }
}

/// Takes a connection out of the list when its task ends for any reason.
pub(crate) struct Entry {
    connections: Arc<Connections>,
    connection: Arc<Connection>,
}

impl Entry {
    /// Marks a request as in progress until the returned value is dropped.
    pub(crate) fn busy(&self) -> Busy {
        self.connection.busy.store(true, Ordering::Relaxed);
        Busy { connections: Arc::clone(&self.connections), connection: Arc::clone(&self.connection) }
    }

    /// Returns a handle that tells if a request is in progress.
    pub(crate) fn activity(&self) -> Activity {
        Activity(Arc::clone(&self.connection))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.connections.all().retain(|other| !Arc::ptr_eq(other, &self.connection));
    }
}

/// Tells if a request is in progress.
pub(crate) struct Activity(Arc<Connection>);

impl Activity {
    pub(crate) fn is_busy(&self) -> bool {
        self.0.busy.load(Ordering::Relaxed)
    }
}

/// Keeps a connection busy until dropped.
pub(crate) struct Busy {
    connections: Arc<Connections>,
    connection: Arc<Connection>,
}

impl Busy {
    /// Records the token of the request.
    pub(crate) fn by_token(&self, hash: [u8; 32]) {
        *self.connection.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(hash);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.connection.since_ms.store(self.connections.now_ms(), Ordering::Relaxed);
        self.connection.busy.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(connections: &Connections) -> Vec<Source> {
        connections.all().iter().map(|one| one.source).collect()
    }

    #[test]
    fn the_source_with_most_connections_loses_an_idle_one() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let connections = Arc::new(Connections::default());
            let (few, many) = (Source::User(1), Source::User(2));
            let take_in = |source| {
                connections.take_in(source, |entry| async move {
                    std::future::pending::<()>().await;
                    drop(entry);
                });
            };
            // The source with few connections has been idle longest.
            (0..4).for_each(|_| take_in(few));
            (4..CONNECTIONS_MAX).for_each(|_| take_in(many));
            for _ in 0..CONNECTIONS_MAX {
                assert!(connections.make_room());
                take_in(many);
            }
            assert_eq!(sources(&connections).iter().filter(|source| **source == few).count(), 4);
            connections.all().iter().for_each(|one| one.busy.store(true, Ordering::Relaxed));
            assert!(!connections.make_room());
            tokio::task::yield_now().await;
            assert_eq!(connections.all().len(), CONNECTIONS_MAX);
        });
    }

    #[test]
    fn a_network_is_one_source_and_mapped_ipv4_is_ipv4() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::ffff:0:0:2]:2"));
        assert_ne!(of("[2001:db8::1]:1"), of("[2001:db8:0:1::1]:1"));
        assert_eq!(of("[::ffff:192.0.2.1]:1"), of("192.0.2.1:9"));
        assert_ne!(of("192.0.2.1:1"), of("192.0.2.2:1"));
    }
}
