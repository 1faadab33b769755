//! Thread that watches the routes on which this box depends.

use super::lock;
use anyhow::Context as _;
use gatun_io::Waker;
use gatun_netlink::{Prefix, TrackedRoutes};
use std::fmt::Display;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time until the routes are read again after an error.
const AGAIN: Duration = Duration::from_secs(1);

/// Faults of the tracked routes, for the thread that observes.
#[derive(Clone, Default)]
pub(super) struct RouteFaults(Arc<Mutex<Vec<String>>>);

impl RouteFaults {
    /// Descriptions of the faults.
    pub(super) fn all(&self) -> Vec<String> {
        lock(&self.0).clone()
    }

    fn set(&self, missing: &[Prefix]) {
        *lock(&self.0) = missing.iter().map(|to| format!("the main table has no route to {to}")).collect();
    }

    fn fail(&self, error: &dyn Display) {
        *lock(&self.0) = vec![format!("the routes of the kernel cannot be read: {error}")];
    }
}

/// The routes, before the thread runs.
pub(super) struct Tracking {
    routes: TrackedRoutes,
    faults: RouteFaults,
}

impl Tracking {
    /// Opens the sockets, and reads the routes.
    pub(super) fn open(networks: Vec<Prefix>) -> anyhow::Result<Tracking> {
        let routes = TrackedRoutes::open(networks).context("cannot watch the routes of the kernel")?;
        let faults = RouteFaults::default();
        faults.set(routes.missing());
        Ok(Tracking { routes, faults })
    }

    /// Starts the thread.
    pub(super) fn start(self) -> anyhow::Result<RouteFaults> {
        let Tracking { mut routes, faults } = self;
        // Nobody wakes the thread: it ends with the daemon.
        let waker = Waker::new().context("cannot watch the routes of the kernel")?;
        let shared = faults.clone();
        let body = move || {
            loop {
                match routes.wait(&waker) {
                    Ok(()) => faults.set(routes.missing()),
                    Err(error) => {
                        faults.fail(&error);
                        std::thread::sleep(AGAIN);
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("routes".into()).spawn(body);
        thread.map(drop).context("cannot start the thread that watches the routes of the kernel")?;
        Ok(shared)
    }
}
