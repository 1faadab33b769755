//! State of the kernel fast path for the API, published by the manager's thread.

use super::attachment::{AttachmentWatch, interfaces};
use super::opening::hook_name;
use super::target::KernelTarget;
use crate::offload::{InstallRate, SharedState};
use gatun_api::types::{self, Counter, FastPathInstance, FastPathState};
use gatun_io_fastpath::{Counters, FastPathError, Places, Reason, Table};
use gatun_nat::Plan;
use gatun_offload::Status;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// State that the thread writes and the API reads.
#[derive(Clone)]
pub(super) struct Shared(SharedState<types::FastPath>);

impl Shared {
    fn new(state: types::FastPath) -> Shared {
        Shared(SharedState::new(state))
    }

    pub(super) fn off() -> Shared {
        Shared::new(types::FastPath::default())
    }

    pub(super) fn unavailable(why: String) -> Shared {
        let state = FastPathState::Unavailable;
        Shared::new(types::FastPath { state, why: Some(why), ..types::FastPath::default() })
    }

    pub(super) fn on(device: &str, places: &Places, adopted: u64) -> Shared {
        let (hook, xdp) = (hook_name(places.hook).to_owned(), interfaces(places));
        let (state, device) = (FastPathState::On, device.to_owned());
        Shared::new(types::FastPath { state, device, hook, xdp, adopted, ..types::FastPath::default() })
    }

    /// The state. The lease continues to run if the thread does not write.
    pub(super) fn get(&self) -> types::FastPath {
        let (mut state, age) = self.0.with_age();
        let had_lease = state.lease_ms > 0;
        state.lease_ms = state.lease_ms.saturating_sub(age.as_millis() as u64);
        if had_lease && state.lease_ms == 0 && state.state == FastPathState::On {
            let why = "its manager does not renew the lease: the machine is overloaded, or this is a defect";
            (state.state, state.why) = (FastPathState::Unavailable, Some(why.to_owned()));
        }
        state
    }

    fn change(&self, change: impl FnOnce(&mut types::FastPath)) {
        self.0.change(change);
    }

    pub(super) fn set_unavailable(&self, why: &str) {
        self.change(|state| {
            (state.state, state.why) = (FastPathState::Unavailable, Some(why.to_owned()));
        });
    }
}

/// Publishes the state.
pub(super) struct Watch {
    shared: Shared,
    plan: Arc<Plan>,
    /// Stateless instances that stay out of the kernel, by number.
    pub(super) excluded_siit: Vec<u8>,
    /// Settings in force.
    pub(super) settings: gatun_offload::Settings,
    published: Option<Instant>,
    rate: InstallRate,
    attachment: AttachmentWatch,
    /// Packets that the program has passed to the device.
    passed: u64,
    /// Reason why the kernel must not translate with the present settings.
    broken: Option<String>,
    /// Error of the kernel about stateless instances, which the engines have meanwhile.
    error: Option<String>,
    /// True if the program is to be at network interfaces, too.
    has_xdp: bool,
}

impl Watch {
    pub(super) fn new(
        shared: Shared,
        (plan, excluded_siit): (Arc<Plan>, Vec<u8>),
        settings: gatun_offload::Settings,
        attachment: AttachmentWatch,
    ) -> Watch {
        let has_xdp = !shared.get().xdp.is_empty();
        Watch {
            shared,
            plan,
            excluded_siit,
            settings,
            published: None,
            rate: InstallRate::new(),
            attachment,
            passed: 0,
            broken: None,
            error: None,
            has_xdp,
        }
    }

    /// Plan in force.
    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// True if there are stateless instances.
    pub(super) fn has_siit(&self) -> bool {
        !self.plan.siit.is_empty()
    }

    /// Notes another plan, and settings that have been applied.
    pub(super) fn set(&mut self, settings: gatun_offload::Settings, plan: Arc<Plan>, excluded_siit: Vec<u8>) {
        (self.settings, self.plan, self.excluded_siit, self.published) =
            (settings, plan, excluded_siit, None);
    }

    /// Notes whether the kernel must not translate with the present settings, and why.
    pub(super) fn set_broken(&mut self, why: Option<String>) {
        self.broken = why;
    }

    /// Notes the result of giving the kernel the stateless instances.
    pub(super) fn set_error(&mut self, error: Option<String>) {
        self.error = error;
    }

    /// Publishes the state, if the last time is `every` ago.
    pub(super) fn publish(
        &mut self,
        status: impl FnOnce() -> Status,
        target: &KernelTarget,
        every: Duration,
    ) {
        if self.published.is_some_and(|published| published.elapsed() < every) {
            return;
        }
        self.published = Some(Instant::now());
        let status = status();
        let rate = self.rate.of(&status);
        let instances = self.instances(target);
        self.attachment.look(self.passed, self.settings.enabled);
        let why = self.broken.clone().or(self.attachment.why());
        let lease_ms = target.lease_left().as_millis() as u64;
        let refused = Some(&status.last_refusal).filter(|why| !why.is_empty()).cloned();
        self.shared.change(|state| {
            state.state = match &why {
                _ if !self.settings.enabled => FastPathState::Off,
                Some(_) => FastPathState::Unavailable,
                None => FastPathState::On,
            };
            state.why = why;
            (state.hook, state.xdp) = (self.attachment.hook().to_owned(), self.attachment.interfaces());
            state.attached_again = self.attachment.attached_again();
            state.lease_ms = lease_ms;
            (state.sessions, state.sessions_max) = (status.entries.into(), status.capacity.into());
            (state.installed, state.installed_per_second) = (status.installed, rate);
            state.removed = status.removed + status.evicted;
            state.refused_full = status.refused_full + status.refused_crowded;
            state.refused_other = status.refused_exists + status.refused_other;
            state.error = self.error.clone().or(refused).or(self.attachment.helper_trouble());
            (state.waiting_records, state.lost_records) =
                (status.waiting_records as u64, status.lost_records);
            state.adopted = status.adopted;
            state.install_p99_us = status.latency.p99;
            if let Some(instances) = instances {
                state.instances = instances;
            }
        });
    }

    /// Packets by instance. `None` if the kernel does not tell.
    fn instances(&mut self, target: &KernelTarget) -> Option<Vec<FastPathInstance>> {
        let names = self.plan.nat64.iter().map(|nat64| &nat64.name);
        let names = names.chain(self.plan.nat44.iter().map(|nat44| &nat44.name));
        let numbered = (0..=u8::MAX).zip(names).map(|(number, name)| (Some(number), name.clone()));
        let all = numbered.chain([(None, String::new())]).map(|(number, name)| {
            let xdp = self.of_xdp(&target.table, |table| table.xdp_counters(number))?;
            Ok(instance(name, &target.table.counters(number)?, &xdp))
        });
        let siit = (0..=u8::MAX).zip(&self.plan.siit).map(|(number, siit)| {
            let xdp = self.of_xdp(&target.table, |table| table.xdp_stateless_counters(number))?;
            Ok(instance(siit.name.clone(), &target.table.stateless_counters(number)?, &xdp))
        });
        let all: Result<Vec<_>, FastPathError> = all.chain(siit).collect();
        let all = all.inspect_err(|error| self.error = Some(error.to_string())).ok()?;
        let passed = all.iter().flat_map(|instance| &instance.passed).map(|reason| reason.value);
        self.passed = passed.sum();
        Some(all)
    }

    /// Counters of the network interfaces; none if the program is not there.
    fn of_xdp(
        &self,
        table: &Table,
        read: impl FnOnce(&Table) -> Result<Counters, FastPathError>,
    ) -> Result<Counters, FastPathError> {
        if self.has_xdp { read(table) } else { Ok(Counters::default()) }
    }
}

/// Packets of an instance by reason.
fn instance(name: String, device: &Counters, xdp: &Counters) -> FastPathInstance {
    let both = |reason| device.of(reason) + xdp.of(reason);
    FastPathInstance {
        name,
        translated: both(Reason::Hit),
        dropped: both(Reason::Dropped),
        moved_late: both(Reason::MovedLate),
        passed: passed(device).filter(|counter| !is_of_xdp(&counter.name)).collect(),
        xdp_translated: xdp.of(Reason::Hit),
        xdp_passed: passed(xdp).collect(),
    }
}

/// Packets that were passed on, by reason.
fn passed(counters: &Counters) -> impl Iterator<Item = Counter> {
    let is_passed = |reason: &Reason| !matches!(reason, Reason::Hit | Reason::Dropped | Reason::MovedLate);
    Reason::ALL.into_iter().filter(is_passed).map(|reason| Counter {
        name: reason.name().to_owned(),
        value: counters.of(reason),
        help: help(reason).to_owned(),
    })
}

/// Returns true if the device's program never passes a packet for this reason.
fn is_of_xdp(name: &str) -> bool {
    [Reason::NoNextHop, Reason::Neighbour].iter().any(|reason| reason.name() == name)
}

/// Meaning of a reason for which packets are passed to the device.
fn help(reason: Reason) -> &'static str {
    match reason {
        Reason::Hit | Reason::Dropped | Reason::MovedLate => "",
        Reason::NoEntry => "No session in the kernel has its addresses and ports.",
        Reason::LeaseOver => "The lease has expired: the daemon has not renewed it.",
        Reason::OtherEpoch => "Another daemon owns the session.",
        Reason::Pending => "Gatun may still have earlier packets of the session.",
        Reason::Closing => "An earlier packet was a FIN or RST.",
        Reason::NotPlain => "Neither TCP nor UDP behind a header of fixed length.",
        Reason::Fragment => "A fragment.",
        Reason::HopLimit => "The TTL or hop limit expires.",
        Reason::TcpFlags => "A SYN, FIN or RST.",
        Reason::NoChecksum => "UDP without a checksum, or a checksum that a device is to complete.",
        Reason::SuperDatagram => "Several UDP datagrams in one packet.",
        Reason::TooLarge => "Larger than the MTU of the next hop or of the path.",
        Reason::Refused => "The kernel refused to make room for the new header.",
        Reason::NoNextHop => "The kernel knows no next hop for it at an interface with the XDP program.",
        Reason::Neighbour => "Once a second for each interface, so that the kernel verifies its neighbours.",
    }
}
