//! Helper of a daemon that announces routes: it sets routes to the marker device in tables of their own, from
//! which a routing daemon takes them. If the daemon is silent for too long, the helper withdraws them.

use super::channel::Channel;
use super::client::{self, HelperState, Reply};
use super::messages::{self, NETWORK};
use super::protocol::{PREFIXES_MAX, PREFIXES_PER_MESSAGE, Report, Request, decode, encode};
use crate::Event;
use crate::privileges::User;
use crate::sandbox::Sandbox;
use anyhow::{Context as _, bail};
use gatun_io_tun::Prefix;
use gatun_netlink::{Device, Existing, Group, Monitor, Notice};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, sync_channel};
use std::time::{Duration, Instant};

/// Reports that wait for the daemon.
const REPORTS_MAX: usize = 16;

/// The daemon's side.
pub(crate) struct AnnouncedRoutes {
    channel: Arc<Channel>,
    replies: Receiver<Reply>,
    pub(crate) state: HelperState,
}

/// Report of the helper.
pub(crate) enum RoutesReport {
    /// Numbers of routes in each table, and the first error.
    Set(Vec<usize>, Option<String>),
    /// All routes are withdrawn, because the daemon was silent.
    Lapsed,
}

/// Starts a helper for routes to an open marker device. Returns it with a line for the log.
///
/// # Errors
/// Returns an error if the helper cannot start or cannot drop its rights.
pub(crate) fn for_routes(
    (device, tables, lease_ms): (&str, &[u32], u32),
    (user, sandbox): (Option<User>, &Sandbox),
    events: &Sender<Event>,
) -> anyhow::Result<(AnnouncedRoutes, String)> {
    let tell = |channel: &Channel| {
        channel.send(&Request::Announce { device: device.to_owned(), tables: tables.to_vec(), lease_ms })
    };
    let (sender, replies) = sync_channel(REPORTS_MAX);
    let started = client::start(tell, (user, sandbox), events, (&NETWORK, Some(sender)))?;
    Ok((AnnouncedRoutes { channel: started.channel, replies, state: started.state }, started.said))
}

impl AnnouncedRoutes {
    /// Sets the routes of all tables.
    ///
    /// # Errors
    /// Returns an error if the helper has ended.
    pub(crate) fn set(&self, tables: &[Vec<Prefix>]) -> io::Result<()> {
        for (device, routes) in tables.iter().enumerate() {
            for part in routes.chunks(PREFIXES_PER_MESSAGE) {
                let prefixes = encode(part);
                self.channel.send(&Request::Prefixes { device, routes: true, prefixes })?;
            }
        }
        self.channel.send(&Request::SetRoutes)
    }

    /// Says that the daemon runs. A helper that does not read is no reason to wait.
    pub(crate) fn alive(&self) {
        self.channel.try_send(&Request::Alive);
    }

    /// Returns the next report that has arrived.
    pub(crate) fn next_report(&self) -> Option<RoutesReport> {
        loop {
            match self.replies.try_recv().ok()?.0 {
                Report::RoutesSet { routes, error } => return Some(RoutesReport::Set(routes, error)),
                Report::Lapsed => return Some(RoutesReport::Lapsed),
                _ => {}
            }
        }
    }
}

/// The helper's side.
pub(super) struct RouteAnnouncer {
    device: Device,
    index: u32,
    monitor: Monitor,
    lease: Duration,
    tables: Vec<Table>,
}

struct Table {
    number: u32,
    /// Routes that are set.
    present: BTreeSet<Prefix>,
    /// Routes of the messages since the last change.
    next: BTreeSet<Prefix>,
}

impl RouteAnnouncer {
    pub(super) fn new(device: &str, tables: Vec<u32>, lease_ms: u32) -> anyhow::Result<RouteAnnouncer> {
        // Error messages need it, and its file may be out of reach later.
        gatun_netlink::has_ipv6();
        let monitor = Monitor::open(&[Group::Link]).context("cannot watch the marker device")?;
        let name = device;
        let device = Device::open(name).context("cannot open a netlink socket")?;
        let index = device.index().with_context(|| format!("device {name}"))?;
        let table = |number| Table { number, present: BTreeSet::new(), next: BTreeSet::new() };
        Ok(RouteAnnouncer {
            device,
            index,
            monitor,
            lease: Duration::from_millis(lease_ms.into()),
            tables: tables.into_iter().map(table).collect(),
        })
    }

    /// Sets routes until the daemon ends.
    pub(super) fn serve(mut self, channel: &Channel) -> anyhow::Result<()> {
        let mut heard = Instant::now();
        loop {
            let is_empty = self.tables.iter().all(|table| table.present.is_empty());
            let wait = (!is_empty).then(|| self.lease.saturating_sub(heard.elapsed()));
            let is_asked =
                self.monitor.wait(channel, wait).context("the kernel sends no more notifications")?;
            while let Some(notice) = self.monitor.next_notice() {
                self.handle(&notice, channel)?;
            }
            if is_asked {
                let Some((request, _)) = channel.receive()? else { return Ok(()) };
                heard = Instant::now();
                self.obey(request, channel)?;
            } else if !is_empty && heard.elapsed() >= self.lease {
                // If this fails, the device is gone, and with it the routes.
                let _ = self.change();
                channel.send(&Report::Lapsed)?;
            }
        }
    }

    fn obey(&mut self, request: Request, channel: &Channel) -> anyhow::Result<()> {
        match request {
            Request::Alive => Ok(()),
            Request::Prefixes { device, routes: true, prefixes } => {
                let table = self.tables.get_mut(device).context("unknown number of a table")?;
                table.next.extend(decode(&prefixes).context("a prefix length is too large")?);
                if table.next.len() > PREFIXES_MAX {
                    bail!("more than {PREFIXES_MAX} routes in a table");
                }
                Ok(())
            }
            Request::SetRoutes => self.set(channel),
            _ => bail!("unexpected message after Start"),
        }
    }

    fn set(&mut self, channel: &Channel) -> anyhow::Result<()> {
        let error = self.change().err().map(|error| messages::shortened(error.to_string()));
        let routes = self.tables.iter().map(|table| table.present.len()).collect();
        Ok(channel.send(&Report::RoutesSet { routes, error })?)
    }

    /// Changes the tables to the routes in `next`. New routes are set before others are removed, so that a
    /// route that changes its table is never missing.
    fn change(&mut self) -> Result<(), gatun_netlink::DeviceError> {
        let mut result = Ok(());
        let device = &mut self.device;
        for table in &mut self.tables {
            device.use_table(table.number);
            let new: Vec<Prefix> = table.next.difference(&table.present).copied().collect();
            match device.add_routes(self.index, &new, Existing::Keep) {
                Ok(_) => table.present.extend(&new),
                Err(error) => result = result.and(Err(error)),
            }
        }
        for table in &mut self.tables {
            device.use_table(table.number);
            let old: Vec<Prefix> = table.present.difference(&table.next).copied().collect();
            match device.remove_routes(self.index, &old) {
                Ok(()) => table.present.retain(|route| table.next.contains(route)),
                Err(error) => result = result.and(Err(error)),
            }
            table.next.clear();
        }
        result
    }

    /// Sets the routes again if somebody has set the link down: the kernel has then removed them.
    fn handle(&mut self, notice: &Notice, channel: &Channel) -> anyhow::Result<()> {
        if !matches!(notice, Notice::Link(link) if link.index == self.index && !link.is_up) {
            return Ok(());
        }
        let next: Vec<_> = self.tables.iter().map(|table| table.present.clone()).collect();
        let present: usize = next.iter().map(BTreeSet::len).sum();
        for (table, next) in self.tables.iter_mut().zip(next) {
            table.present.clear();
            table.next = next;
        }
        let done = self.device.set_up(self.index).and_then(|()| self.change());
        let line = match done {
            Ok(()) => messages::announced_again(present),
            Err(error) => error.to_string(),
        };
        Ok(channel.send(&Report::Line(messages::shortened(line)))?)
    }
}
