//! Connections: so many at a time. Where one more comes, one that is idle makes room: of the source that has most, the
//! one that has been idle longest; one whose request is worked on never does.

use std::future::Future;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Connections at a time.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// Bits of an IPv6 address that one host may have as many of as it likes.
const HOST_BITS: u32 = 64;

/// Source of connections, as far as one can be told from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// A user of this host.
    User(u32),
    /// An IPv4 address, or the network of an IPv6 one.
    Network(IpAddr),
}

impl Source {
    /// The source of a connection from there.
    pub(crate) fn of(from: SocketAddr) -> Source {
        Source::Network(match from.ip().to_canonical() {
            IpAddr::V6(address) => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> HOST_BITS << HOST_BITS))
            }
            address => address,
        })
    }
}

/// A connection as others see it.
struct Connection {
    source: Source,
    /// Whether a request is worked on, or its answer sent.
    busy: AtomicBool,
    /// When it was busy last, ms since the first.
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

/// Those there are.
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

    /// Whether there is room for one more, after an idle one has made some.
    pub(crate) fn make_room(&self) -> bool {
        let mut all = self.all();
        if all.len() < CONNECTIONS_MAX {
            return true;
        }
        let of = |source: Source| all.iter().filter(|one| one.source == source).count();
        let idle = all.iter().enumerate().filter(|(_, one)| !one.busy.load(Ordering::Relaxed));
        // Most of one source, and the smallest time.
        let leaving =
            idle.max_by_key(|(_, one)| (of(one.source), u64::MAX - one.since_ms.load(Ordering::Relaxed)));
        let Some(leaving) = leaving.map(|(at, _)| at) else { return false };
        all.swap_remove(leaving).end();
        true
    }

    /// Begins what a connection does, with its entry in the list, which lasts as long as that is kept.
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

    /// Ends those whose last request came with such a token.
    pub(crate) fn end_where(&self, is_meant: impl Fn(&[u8; 32]) -> bool) {
        for connection in self.all().iter() {
            let token = *connection.token.lock().unwrap_or_else(PoisonError::into_inner);
            if token.is_some_and(|token| is_meant(&token)) {
                connection.end();
            }
        }
    }
}

/// Takes a connection out of the list when its task ends, however that is.
pub(crate) struct Entry {
    connections: Arc<Connections>,
    connection: Arc<Connection>,
}

impl Entry {
    /// A request is worked on, as long as the answer is there.
    pub(crate) fn busy(&self) -> Busy {
        self.connection.busy.store(true, Ordering::Relaxed);
        Busy { connections: Arc::clone(&self.connections), connection: Arc::clone(&self.connection) }
    }

    /// Whether a request is worked on.
    pub(crate) fn activity(&self) -> Activity {
        Activity(Arc::clone(&self.connection))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.connections.all().retain(|other| !Arc::ptr_eq(other, &self.connection));
    }
}

/// Tells whether a request is worked on.
pub(crate) struct Activity(Arc<Connection>);

impl Activity {
    pub(crate) fn is_busy(&self) -> bool {
        self.0.busy.load(Ordering::Relaxed)
    }
}

/// A connection is busy as long as this is there.
pub(crate) struct Busy {
    connections: Arc<Connections>,
    connection: Arc<Connection>,
}

impl Busy {
    /// By whose right the request is worked on.
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
    fn the_source_with_most_connections_makes_room_and_never_one_that_is_busy() {
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
            // The few have been idle longest.
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
    fn hosts_of_a_network_are_one_source_and_ipv4_is_ipv4_however_it_is_written() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::ffff:0:0:2]:2"));
        assert_ne!(of("[2001:db8::1]:1"), of("[2001:db8:0:1::1]:1"));
        assert_eq!(of("[::ffff:192.0.2.1]:1"), of("192.0.2.1:9"));
        assert_ne!(of("192.0.2.1:1"), of("192.0.2.2:1"));
    }
}
