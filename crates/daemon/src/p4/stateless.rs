//! Stateless instances (SIIT) in the switches, and their packets for the engine's counters.

use super::entries::HostView;
use crate::offload::InstanceCredits;
use gatun_nat::Plan;
use gatun_nat::counters::Traffic;
use gatun_p4_controller::connection::{Connection, StaticEntry};
use gatun_p4_controller::stateless::{StatelessEntries, StatelessView};
use gatun_p4_controller::{Phase, Switches};
use gatun_worker::Handle;
use gatun_worker::offload::CreditInstances;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time to wait for switches and a worker before another plan is applied.
const WAIT_MAX: Duration = Duration::from_millis(1500);
const WAIT_STEP: Duration = Duration::from_millis(1);

/// Stateless instances that the switches are to have.
pub(super) struct Stateless {
    plan: Arc<Plan>,
    /// Instances that stay with Gatun, by number.
    excluded: Vec<u8>,
    /// The engines are to have all stateless packets: the plan changes, the switches are off, or a packet
    /// trace runs.
    pub(super) is_paused: bool,
    pub(super) is_off: bool,
    pub(super) is_traced: bool,
    smallest_path: Option<u16>,
    entries: StatelessEntries,
    credits: InstanceCredits,
}

impl Stateless {
    pub(super) fn new(plan: &Arc<Plan>, excluded: &[u8]) -> Stateless {
        Stateless {
            plan: Arc::clone(plan),
            excluded: excluded.to_vec(),
            is_paused: false,
            is_off: false,
            is_traced: false,
            smallest_path: None,
            entries: StatelessEntries::default(),
            credits: InstanceCredits::default(),
        }
    }

    /// Returns whether there are stateless instances.
    pub(super) fn has_any(&self) -> bool {
        !self.plan.siit.is_empty()
    }

    /// Applies another plan.
    pub(super) fn set(&mut self, plan: Arc<Plan>, excluded: Vec<u8>, is_off: bool) {
        (self.plan, self.excluded, self.is_off, self.is_paused) = (plan, excluded, is_off, false);
    }

    /// Takes note of the smallest path MTU. Returns whether it changes the entries.
    pub(super) fn set_smallest_path(&mut self, mtu: Option<u16>) -> bool {
        let has_changed = mtu != self.smallest_path && self.has_any();
        self.smallest_path = mtu;
        has_changed
    }

    /// Computes the entries.
    pub(super) fn refresh(&mut self, view: &HostView) {
        // The program knows no address realms.
        let has_realms = view.settings.ports.iter().any(|port| port.realms != [0; 2]);
        let mappings = self.plan.siit.iter().map(|siit| siit.eamt.len()).sum();
        if self.is_paused || self.is_off || self.is_traced || has_realms {
            self.entries = StatelessEntries { left: mappings, ..StatelessEntries::default() };
            return;
        }
        let addresses = view.settings.ports.iter().flat_map(|port| &port.addresses);
        let host: Vec<IpAddr> = addresses.map(|address| address.addr).collect();
        let entries = StatelessView {
            plan: &self.plan,
            excluded: &self.excluded,
            host: &host,
            mtu: view.mtu(),
            smallest_path: self.smallest_path,
        };
        self.entries = entries.entries();
    }

    pub(super) fn entries(&self) -> &[StaticEntry] {
        &self.entries.entries
    }

    /// Mappings in the switches, and those that stay with Gatun.
    pub(super) fn mappings(&self) -> (u64, u64) {
        (self.entries.mappings as u64, self.entries.left as u64)
    }

    /// Packets that were credited.
    pub(super) fn packets(&self) -> u64 {
        self.credits.packets()
    }

    /// Credits packets, if it is time.
    pub(super) fn credit(&mut self, target: &Switches<Connection>, workers: &[Handle]) {
        if self.has_any() && self.credits.is_due() {
            self.credits.credit(workers, || totals(target));
        }
    }

    /// Credits all packets that the switches have counted, before the numbers of instances change.
    pub(super) fn credit_all(&mut self, target: &Switches<Connection>, workers: &[Handle]) {
        wait(|| !self.credits.is_busy());
        self.credits.credit(workers, || totals(target));
        wait(|| !self.credits.is_busy());
    }
}

fn wait(is: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while !is() {
        if begin.elapsed() > WAIT_MAX {
            return false;
        }
        std::thread::sleep(WAIT_STEP);
    }
    true
}

/// Waits until each switch in use has the entries that were last set. Returns the names of others.
pub(super) fn wait_written(target: &Switches<Connection>) -> Vec<String> {
    let waiting = || {
        let in_use = |phase: Phase| matches!(phase, Phase::Ready | Phase::Reading);
        let late = target
            .status()
            .enumerate()
            .filter(|(number, status)| in_use(status.phase) && !target.link(*number).has_entries());
        late.map(|(_, status)| status.name.clone()).collect::<Vec<_>>()
    };
    wait(|| waiting().is_empty());
    waiting()
}

/// Packets of each stateless instance in all switches, since the start of the process.
fn totals(target: &Switches<Connection>) -> CreditInstances {
    let mut stateless: Vec<Traffic> = Vec::new();
    for number in 0..target.status().count() {
        for (instance, [from_ipv6, from_ipv4]) in target.link(number).stateless_counts().iter().enumerate() {
            stateless.resize(stateless.len().max(instance + 1), Traffic::default());
            stateless[instance].outbound += *from_ipv6;
            stateless[instance].inbound += *from_ipv4;
        }
    }
    CreditInstances { stateless, drops: Vec::new() }
}
