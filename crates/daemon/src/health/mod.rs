//! Health of the daemon, and the routes that tell a routing daemon about it ([announce]).
//!
//! ```text
//!   observe   what the thread looks at: workers, links, routes, pools
//!   tracked   a thread of its own for routes on which the box depends
//!   judge     decides, with hysteresis, if the routes are to be there; knows no clock
//!   tables    which network goes into which table
//!   announce  marker device and the helper that sets the routes
//! ```
//! A thread observes at least every [`TICK`] or [`SLOW_TICK`]. Others read its result, and it never waits
//! for a worker.

mod announce;
mod judge;
mod observe;
mod tables;
mod tracked;

use crate::Event;
use crate::down_devices::DownDevices;
use crate::output::Output;
use crate::ports::Ports;
use crate::privileges::User;
use crate::sandbox::Sandbox;
use crate::{PortSettings, Settings};
use announce::Announcement;
use anyhow::Context as _;
use gatun_api::types::{self, AnnounceState, HealthReason, Part};
use gatun_io_tun::Prefix;
use gatun_worker::Handle;
use judge::Judge;
use observe::{Observed, Observer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracked::Tracking;

/// Longest interval of observations, with [announce] and while the workers start. A sign of life for the
/// helper that sets routes comes with each, four times in `stall` at least.
const TICK: Duration = Duration::from_millis(100);
/// The same without [announce]: nothing depends on it, and an idle daemon uses no processor time.
const SLOW_TICK: Duration = Duration::from_secs(1);
/// Time after which a missing answer is a fault, without [announce].
const STALL_MS: u32 = 3_000;
/// Age of an observation after which the thread counts as hanging.
const AGE_MAX: Duration = Duration::from_secs(5);
/// Time for which a stopping daemon waits until its routes are withdrawn.
const WITHDRAW_MAX: Duration = Duration::from_millis(500);
/// Time for which it goes on translating after that: packets still come until the routers know.
const LINGER: Duration = Duration::from_millis(100);

/// Reason to withdraw all routes if the roles are not valid any more.
const HANGS: &str = "the thread of the cluster hangs: restart gatun";

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Networks to announce, and what other parts of the daemon say about them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wanted {
    networks: Vec<Prefix>,
    /// Roles of this box that are not that of their owner.
    roles: Roles,
    /// Reason to withdraw all routes.
    held: Option<String>,
    /// Time until which the roles are valid. `None`: without an end.
    until: Option<Instant>,
}

impl Wanted {
    /// Reason to withdraw all routes at a time.
    fn reason(&self, now: Instant) -> Option<&str> {
        let is_over = self.until.is_some_and(|until| now >= until);
        self.held.as_deref().or(is_over.then_some(HANGS))
    }
}

/// Networks that other boxes of a pair or a cluster own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roles {
    /// Networks that this box owns, beside those of no list.
    pub(crate) own: Vec<Prefix>,
    /// Networks that this box backs.
    pub(crate) backup: Vec<Prefix>,
    /// Networks that it does not have.
    pub(crate) absent: Vec<Prefix>,
    /// True if others have better ways to the networks of no list: they are announced as backed ones.
    pub(crate) is_worse: bool,
}

/// Orders to the thread, which it obeys at its next observation. Harmless without [announce].
#[derive(Clone, Default)]
pub(crate) struct HealthControl {
    wanted: Arc<Mutex<Wanted>>,
    shown: Arc<Mutex<Shown>>,
    is_broken: Arc<AtomicBool>,
    is_stopping: Arc<AtomicBool>,
}

/// Result of the last observation.
#[derive(Default)]
struct Shown {
    health: types::Health,
    at: Option<Instant>,
    /// All routes are withdrawn because the daemon is stopping.
    is_withdrawn: bool,
}

impl HealthControl {
    /// Announces these networks from now on, after a reload.
    pub(crate) fn set_networks(&self, networks: Vec<Prefix>) {
        lock(&self.wanted).networks = networks;
    }

    /// Announces the networks by these roles. `held` is a reason to announce nothing.
    pub(crate) fn set_roles(&self, roles: Roles, held: Option<String>) {
        let mut wanted = lock(&self.wanted);
        (wanted.roles, wanted.held) = (roles, held);
    }

    /// Reason to withdraw all routes.
    #[cfg(test)]
    pub(crate) fn held(&self) -> Option<String> {
        lock(&self.wanted).held.clone()
    }

    /// The roles are valid until a time, from now on: whoever sets them may hang.
    pub(crate) fn set_until(&self, until: Instant) {
        lock(&self.wanted).until = Some(until);
    }

    /// Returns whether packets get lost here because of workers, links or routes, or did so lately, or will
    /// because the daemon is stopping.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed) || self.is_stopping.load(Ordering::Relaxed)
    }

    /// Withdraws all routes before the workers stop, so that packets take other ways, and waits until the
    /// routers know. Without [announce], it returns at once.
    pub(crate) fn withdraw(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        if lock(&self.shown).health.announce == AnnounceState::Off {
            return;
        }
        let end = Instant::now() + WITHDRAW_MAX;
        while !lock(&self.shown).is_withdrawn && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(LINGER);
    }

    /// State for the API. A thread that does not observe is no good sign.
    pub(crate) fn state(&self) -> types::Health {
        let shown = lock(&self.shown);
        let mut health = shown.health.clone();
        let age = shown.at.map_or(Duration::MAX, |at| at.elapsed());
        if age > AGE_MAX {
            health.healthy = false;
            health
                .reasons
                .push(reason(Part::Workers, "nothing is observed: the daemon hangs, or is starting"));
        }
        health
    }
}

fn reason(part: Part, what: impl Into<String>) -> HealthReason {
    HealthReason { part, what: what.into(), withdraws: true }
}

/// Networks of a configuration.
pub(crate) fn networks(settings: &Settings) -> Vec<Prefix> {
    let networks = settings.announce.iter().flat_map(|announce| &announce.networks);
    networks.map(|network| tables::prefix(*network)).collect()
}

/// Lists differences that need a restart.
pub(crate) fn differ(old: &Settings, new: &Settings) -> Vec<String> {
    let fixed = |settings: &Settings| {
        let announce = settings.announce.clone();
        announce.map(|announce| gatun_config::Announce { networks: Vec::new(), ..announce })
    };
    let differ = fixed(old) != fixed(new);
    if differ { vec!["[announce]".to_owned()] } else { Vec::new() }
}

/// Open parts of the observation, before the workers run.
pub(crate) struct Health {
    control: HealthControl,
    announcement: Option<Announcement>,
    links: Vec<gatun_netlink::Device>,
    tracking: Option<Tracking>,
    down: DownDevices,
    stall_ms: u32,
    return_after_ms: u32,
    withdraw_exhausted: bool,
}

impl Health {
    /// Opens the marker device, and starts the helper that sets routes to it, if the configuration has
    /// [announce]. Adds lines for the log.
    ///
    /// # Errors
    /// Returns an error that says what to do, if the device cannot be created or the helper cannot start.
    pub(crate) fn open(
        settings: &Settings,
        ports: &Ports,
        (user, sandbox): (Option<User>, &Sandbox),
        (events, notes): (&Sender<Event>, &mut Vec<String>),
    ) -> anyhow::Result<Health> {
        let announce = settings.announce.as_ref();
        let announcement = announce
            .map(|announce| Announcement::open(announce, (user, sandbox), (events, notes)))
            .transpose()
            .context("[announce]")?;
        let mut links = kernel_links(&settings.ports, ports);
        links.extend(announce.iter().flat_map(|announce| announce.links.clone()));
        let links = links.iter().map(|name| gatun_netlink::Device::open(name)).collect::<Result<_, _>>();
        let tracked = announce.map(|announce| &announce.tracked_routes).filter(|tracked| !tracked.is_empty());
        let tracked = tracked.map(|tracked| tracked.iter().map(|network| tables::prefix(*network)).collect());
        let control = HealthControl::default();
        control.set_networks(networks(settings));
        Ok(Health {
            control,
            announcement,
            links: links.context("cannot open a netlink socket")?,
            tracking: tracked.map(Tracking::open).transpose()?,
            down: ports.down.clone(),
            stall_ms: announce.map_or(STALL_MS, |announce| announce.stall_ms),
            return_after_ms: announce.map_or(0, |announce| announce.return_after_ms),
            withdraw_exhausted: announce.is_some_and(|announce| announce.withdraw_exhausted),
        })
    }

    /// Orders and state, for other threads.
    pub(crate) fn control(&self) -> HealthControl {
        self.control.clone()
    }

    /// Starts the thread. Returns the orders to it.
    ///
    /// # Errors
    /// Returns an error if the thread cannot start.
    pub(crate) fn start(self, workers: Vec<Handle>, output: Output) -> anyhow::Result<HealthControl> {
        let control = self.control();
        let routes = self.tracking.map(Tracking::start).transpose()?.unwrap_or_default();
        let observer = Observer::new(workers, (self.links, self.down, routes), self.stall_ms);
        let watch = Watch {
            control: self.control,
            observer,
            judge: Judge::new(self.return_after_ms),
            soundness: Judge::new(self.return_after_ms),
            tick: TICK.min(Duration::from_millis(self.stall_ms.into()) / 4),
            announcement: self.announcement,
            withdraw_exhausted: self.withdraw_exhausted,
            output,
            logged: Vec::new(),
        };
        let thread = std::thread::Builder::new().name("health".into()).spawn(move || watch.run());
        thread.map(|_| control).context("cannot start the thread that observes the daemon's health")
    }
}

/// Names of the kernel's interfaces that packets pass.
fn kernel_links(settings: &PortSettings, ports: &Ports) -> Vec<String> {
    match settings {
        PortSettings::Tun(_) => ports.names.clone(),
        #[cfg(feature = "xdp")]
        PortSettings::Xdp(_) => {
            let hosts = settings.hosts().into_iter().flat_map(|hosts| &hosts.ports);
            let mut names: Vec<String> = hosts.map(|port| port.device.clone()).collect();
            names.dedup();
            names
        }
        #[cfg(feature = "dpdk")]
        PortSettings::Dpdk(_) => Vec::new(),
    }
}

/// The thread.
struct Watch {
    control: HealthControl,
    observer: Observer,
    judge: Judge,
    /// The same about workers, links and routes alone.
    soundness: Judge,
    tick: Duration,
    announcement: Option<Announcement>,
    withdraw_exhausted: bool,
    output: Output,
    /// Reasons that the log has.
    logged: Vec<HealthReason>,
}

impl Watch {
    fn run(mut self) {
        let begin = Instant::now();
        loop {
            let now_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
            let is_starting = self.turn(now_ms);
            let is_slow = self.announcement.is_none() && !is_starting;
            std::thread::sleep(if is_slow { SLOW_TICK } else { self.tick });
        }
    }

    /// Observes and decides. Returns true while the workers start.
    fn turn(&mut self, now_ms: u64) -> bool {
        let Observed { is_starting, mut reasons, exhausted } = self.observer.observe(now_ms);
        if !is_starting {
            let is_sound = self.soundness.judge(now_ms, !reasons.is_empty());
            self.control.is_broken.store(!is_sound, Ordering::Relaxed);
        }
        let wanted = lock(&self.control.wanted).clone();
        reasons.extend(wanted.reason(Instant::now()).map(|held| reason(Part::Peer, held)));
        reasons.extend(self.announcement.iter_mut().filter_map(Announcement::fault));
        let pools = exhausted.iter().map(|pool| HealthReason {
            withdraws: self.withdraw_exhausted,
            ..reason(Part::Pools, format!("pool {pool} has no free port"))
        });
        reasons.extend(pools);
        let is_unfit = reasons.iter().any(|reason| reason.withdraws);
        let is_stopping = self.control.is_stopping.load(Ordering::Relaxed);
        let announces = !is_starting && self.judge.judge(now_ms, is_unfit) && !is_stopping;
        if is_starting && reasons.is_empty() {
            reasons.push(reason(Part::Workers, "the workers are starting"));
        } else {
            self.log(&reasons);
        }
        reasons.extend(is_stopping.then(|| reason(Part::Workers, "gatun is stopping")));
        let mut health = types::Health {
            healthy: !reasons.iter().any(|reason| reason.withdraws),
            reasons,
            returns_in_ms: self.judge.returns_in_ms(now_ms).filter(|_| self.announcement.is_some()),
            ..types::Health::default()
        };
        if let Some(announcement) = &mut self.announcement {
            announcement.set(announces.then_some(&wanted), &self.output);
            health.tables = announcement.tables();
            health.error = announcement.error();
            health.announce = match announcement.is_announced() {
                true => AnnounceState::Announced,
                false => AnnounceState::Withdrawn,
            };
        }
        *lock(&self.control.shown) = Shown { health, at: Some(Instant::now()), is_withdrawn: is_stopping };
        is_starting
    }

    /// Logs reasons that begin or end.
    fn log(&mut self, reasons: &[HealthReason]) {
        for new in reasons.iter().filter(|reason| !self.logged.contains(reason)) {
            self.output.error(&format!("health: {}", new.what));
        }
        if reasons.is_empty() && !self.logged.is_empty() {
            self.output.log("health: the daemon is healthy again");
        }
        self.logged = reasons.to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_that_are_not_renewed_withdraw_the_routes() {
        let control = HealthControl::default();
        let begin = Instant::now();
        let after = |ms| begin + Duration::from_millis(ms);
        let reason = |ms| lock(&control.wanted).reason(after(ms)).map(str::to_owned);
        assert_eq!(reason(60_000), None);
        control.set_until(after(2_000));
        assert_eq!((reason(1_999), reason(2_000)), (None, Some(HANGS.to_owned())));
        control.set_until(after(3_000));
        assert_eq!(reason(2_500), None);
        control.set_roles(Roles::default(), Some("drained".to_owned()));
        assert_eq!(reason(2_500).as_deref(), Some("drained"));
    }
}
