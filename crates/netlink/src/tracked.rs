//! Routes that a box depends on: which of them the main table lacks.

use crate::client::Client;
use crate::monitor::{Group, Monitor, Notice};
use crate::prefix::Prefix;
use crate::routes::for_each;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// Time for which a route must be missing: a routing daemon may remove one and set its successor after that.
const CONFIRM: Duration = Duration::from_millis(20);

/// Watch of routes of the main table, by their destinations.
pub struct TrackedRoutes {
    monitor: Monitor,
    client: Client,
    wanted: Vec<Prefix>,
    missing: Vec<Prefix>,
    /// True if the last wait failed: changes may have been missed.
    has_failed: bool,
}

impl TrackedRoutes {
    /// Begins to watch for routes to these destinations. They have to be few: each is compared with each
    /// route.
    ///
    /// # Errors
    /// Returns an error if the kernel sends no notifications, or does not answer.
    pub fn open(wanted: Vec<Prefix>) -> io::Result<TrackedRoutes> {
        // The routes are read after the monitor listens, so that no change is missed.
        let monitor = Monitor::open(&[Group::Link, Group::Ipv4Route, Group::Ipv6Route])?;
        let client = Client::open()?;
        let mut tracked = TrackedRoutes { monitor, client, wanted, missing: Vec::new(), has_failed: false };
        tracked.missing = tracked.look()?;
        Ok(tracked)
    }

    /// Destinations without a unicast route, in the order of [`open`](Self::open).
    pub fn missing(&self) -> &[Prefix] {
        &self.missing
    }

    /// Blocks until other routes are missing, or `waker` is readable. A route that is replaced within 20 ms
    /// is not missing. After an error, it reads the routes again, and returns at once.
    ///
    /// # Errors
    /// Returns an error if the kernel sends no more notifications, or does not answer.
    pub fn wait(&mut self, waker: impl AsFd) -> io::Result<()> {
        let result = match self.has_failed {
            true => self.differs().map(drop),
            false => self.wait_for_change(waker),
        };
        self.has_failed = result.is_err();
        result
    }

    fn wait_for_change(&mut self, waker: impl AsFd) -> io::Result<()> {
        let mut is_woken = false;
        loop {
            let mut may_differ = false;
            while let Some(notice) = self.monitor.next_notice() {
                may_differ |= self.concerns(&notice);
            }
            if may_differ && self.differs()? || is_woken {
                return Ok(());
            }
            is_woken = self.monitor.wait(&waker, None)?;
        }
    }

    /// Reads the routes again. Returns true if others are missing than before.
    fn differs(&mut self) -> io::Result<bool> {
        let mut missing = self.look()?;
        if missing.iter().any(|prefix| !self.missing.contains(prefix)) {
            std::thread::sleep(CONFIRM);
            missing = self.look()?;
        }
        let differs = missing != self.missing;
        self.missing = missing;
        Ok(differs)
    }

    /// Returns true if a watched route may have come or gone.
    fn concerns(&self, notice: &Notice) -> bool {
        match notice {
            Notice::RouteAdded { to } | Notice::RouteRemoved { to, .. } => self.wanted.contains(to),
            // The kernel does not announce the IPv4 routes that it removes with a link.
            Notice::Link(link) => !link.is_up,
            Notice::LinkRemoved(_) | Notice::Lost => true,
            Notice::Addresses => false,
        }
    }

    /// Reads the main table.
    fn look(&mut self) -> io::Result<Vec<Prefix>> {
        let mut missing = self.wanted.clone();
        for v4 in [true, false] {
            if missing.iter().any(|prefix| prefix.addr.is_ipv4() == v4) {
                for_each(&mut self.client, v4, |route| {
                    if route.is_direct() {
                        missing.retain(|prefix| *prefix != route.to);
                    }
                })?;
            }
        }
        Ok(missing)
    }
}
