//! Marker device, and the routes to it.

use super::tables::divide;
use super::{Wanted, reason};
use crate::Event;
use crate::killed::once_released;
use crate::net_helper::{AnnouncedRoutes, RoutesReport, for_routes};
use crate::output::Output;
use crate::privileges::User;
use crate::sandbox::Sandbox;
use anyhow::Context as _;
use gatun_api::types::{AnnounceRole, AnnouncedTable, HealthReason, Part};
use gatun_config::Announce;
use gatun_io_tun::{MarkerDevice, Prefix, TunError};
use gatun_wire::text::counted;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Longest time that a killed process may take to release its device.
const LET_GO_MAX: Duration = Duration::from_secs(2);

/// Announced routes. Without the marker device, the kernel has none.
pub(super) struct Announcement {
    marker: Option<MarkerDevice>,
    routes: AnnouncedRoutes,
    tables: [u32; 2],
    /// Routes that the helper was told.
    told: [Vec<Prefix>; 2],
    /// Routes that it has set.
    set: [usize; 2],
    error: Option<String>,
    has_lapsed: bool,
}

impl Announcement {
    pub(super) fn open(
        settings: &Announce,
        (user, sandbox): (Option<User>, &Sandbox),
        (events, notes): (&Sender<Event>, &mut Vec<String>),
    ) -> anyhow::Result<Announcement> {
        let marker = create(&settings.device).context("cannot create the device")?;
        let tables = [settings.table, settings.backup_table];
        let task = (&marker.name[..], &tables[..], settings.stall_ms);
        let (routes, said) = for_routes(task, (user, sandbox), events)?;
        notes.push(format!(
            "routes to announce: device {}, tables {} and {}",
            marker.name, tables[0], tables[1]
        ));
        notes.push(said);
        let (told, set) = Default::default();
        Ok(Announcement { marker: Some(marker), routes, tables, told, set, error: None, has_lapsed: false })
    }

    /// Returns the fault of the helper, if it has one.
    pub(super) fn fault(&mut self) -> Option<HealthReason> {
        while let Some(report) = self.routes.next_report() {
            match report {
                RoutesReport::Set(routes, error) => {
                    self.set = std::array::from_fn(|table| routes.get(table).copied().unwrap_or(0));
                    self.error = error;
                }
                RoutesReport::Lapsed => {
                    (self.told, self.set) = Default::default();
                    self.has_lapsed = true;
                }
            }
        }
        if self.routes.state.trouble().is_some() {
            // Nobody else could withdraw the routes.
            self.marker = None;
            (self.told, self.set) = Default::default();
            return Some(reason(Part::Announce, "the network helper has ended: restart gatun"));
        }
        self.routes.alive();
        let lapsed = "the routes were withdrawn, because the daemon gave no sign of life";
        std::mem::take(&mut self.has_lapsed).then(|| reason(Part::Announce, lapsed))
    }

    /// Sets the routes; `None`: withdraws them.
    pub(super) fn set(&mut self, wanted: Option<&Wanted>, output: &Output) {
        let next = wanted.map(|wanted| divide(&wanted.networks, &wanted.roles)).unwrap_or_default();
        if next == self.told || self.marker.is_none() {
            return;
        }
        if let Err(error) = self.routes.set(&next) {
            // The next observation finds its end.
            self.error = Some(error.to_string());
            return;
        }
        let counts = next.each_ref().map(|routes| counted(routes.len() as u64, "route"));
        match wanted {
            Some(_) => output.log(&format!(
                "announce: {} in table {}, {} in table {}",
                counts[0], self.tables[0], counts[1], self.tables[1]
            )),
            None => output.error("announce: all routes are withdrawn"),
        }
        self.told = next;
    }

    pub(super) fn is_announced(&self) -> bool {
        let is_told = self.told.iter().any(|routes| !routes.is_empty());
        is_told && self.set.iter().any(|routes| *routes > 0)
    }

    pub(super) fn error(&self) -> Option<String> {
        self.error.clone()
    }

    /// Tables for the API.
    pub(super) fn tables(&self) -> Vec<AnnouncedTable> {
        let of = |role, number: usize| AnnouncedTable {
            table: self.tables[number],
            role,
            routes: self.set[number] as u64,
        };
        vec![of(AnnounceRole::Own, 0), of(AnnounceRole::Backup, 1)]
    }
}

/// Creates the marker device, which a killed process may still have.
fn create(name: &str) -> Result<MarkerDevice, TunError> {
    let is_taken = |error: &TunError| {
        matches!(error, TunError::Taken(_) | TunError::SecondInstance(_) | TunError::Busy(_))
    };
    once_released(LET_GO_MAX, is_taken, || MarkerDevice::create(name))
}
