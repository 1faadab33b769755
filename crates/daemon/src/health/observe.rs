//! Observation of workers, links, routes and pools, without waiting for any of them.

use super::reason;
use super::tracked::RouteFaults;
use crate::down_devices::DownDevices;
use gatun_api::types::{HealthReason, Part};
use gatun_nat::report::PoolStats;
use gatun_netlink::Device;
use gatun_worker::{Handle, Snapshot, add_pools};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// Interval of questions to a worker, ms.
const ASK_EVERY_MS: u64 = 250;

/// Result of an observation.
pub(super) struct Observed {
    /// True until each worker has answered once.
    pub(super) is_starting: bool,
    /// Faults of workers, links and routes.
    pub(super) reasons: Vec<HealthReason>,
    /// Names of pools without a free port.
    pub(super) exhausted: Vec<String>,
}

/// Observer of the daemon.
pub(super) struct Observer {
    workers: Vec<Probe>,
    links: Vec<Device>,
    down: DownDevices,
    routes: RouteFaults,
    stall_ms: u64,
    last_ms: u64,
}

/// Question to a worker, which is asked again some time after its answer.
struct Probe {
    handle: Handle,
    asked_ms: u64,
    answer: Option<Receiver<Snapshot>>,
    pools: Option<Vec<PoolStats>>,
}

impl Observer {
    pub(super) fn new(
        workers: Vec<Handle>,
        (links, down, routes): (Vec<Device>, DownDevices, RouteFaults),
        stall_ms: u32,
    ) -> Observer {
        let probe = |handle| Probe { handle, asked_ms: 0, answer: None, pools: None };
        let workers = workers.into_iter().map(probe).collect();
        Observer { workers, links, down, routes, stall_ms: stall_ms.into(), last_ms: 0 }
    }

    pub(super) fn observe(&mut self, now_ms: u64) -> Observed {
        let mut reasons = Vec::new();
        let stood_ms = now_ms.saturating_sub(self.last_ms);
        self.last_ms = now_ms;
        if stood_ms >= self.stall_ms {
            reasons.push(reason(Part::Workers, "the daemon stood still"));
        }
        for (number, worker) in self.workers.iter_mut().enumerate() {
            if stood_ms >= self.stall_ms {
                // The workers stood still, too.
                worker.asked_ms = now_ms;
            }
            if worker.is_silent(now_ms, self.stall_ms) {
                reasons.push(reason(Part::Workers, format!("worker {number} does not answer")));
            }
        }
        let faults = self.links.iter_mut().filter_map(link_fault);
        let named = self.down.names().into_iter().map(|name| format!("device {name} has no link"));
        let faults = faults.chain(named).chain(self.routes.all());
        reasons.extend(faults.map(|what| reason(Part::Ports, what)));
        let is_starting = self.workers.iter().any(|worker| worker.pools.is_none());
        Observed { is_starting, reasons, exhausted: self.exhausted() }
    }

    fn exhausted(&self) -> Vec<String> {
        // Each worker has a share of each pool.
        let mut all = Vec::new();
        self.workers.iter().flat_map(|worker| &worker.pools).for_each(|pools| add_pools(&mut all, pools));
        all.iter().filter(|pool| is_exhausted(pool)).map(|pool| pool.name.to_string()).collect()
    }
}

/// Returns true if the pool has no port for a new TCP or UDP session of another subscriber.
fn is_exhausted(pool: &PoolStats) -> bool {
    let is_full = |used: u64, total: u64| total > 0 && used >= total;
    let [tcp, udp, _] = pool.ports;
    is_full(tcp.used, tcp.total)
        || is_full(udp.used, udp.total)
        || pool.blocks.is_some_and(|blocks| is_full(blocks.owned + blocks.held, blocks.total))
}

impl Probe {
    /// Takes the answer, or asks. Returns true if an answer is missing for too long.
    fn is_silent(&mut self, now_ms: u64, stall_ms: u64) -> bool {
        match self.answer.as_ref().map(Receiver::try_recv) {
            Some(Ok(snapshot)) => (self.answer, self.pools) = (None, Some(snapshot.pools)),
            Some(Err(TryRecvError::Empty)) => return now_ms.saturating_sub(self.asked_ms) >= stall_ms,
            // The worker has ended.
            Some(Err(TryRecvError::Disconnected)) => return true,
            None => {}
        }
        if self.pools.is_none() || now_ms.saturating_sub(self.asked_ms) >= ASK_EVERY_MS {
            let (sender, answer) = channel();
            self.handle.request_snapshot(move |snapshot| drop(sender.send(snapshot)));
            (self.asked_ms, self.answer) = (now_ms, Some(answer));
        }
        false
    }
}

/// Returns the fault of an interface, if it has one.
fn link_fault(device: &mut Device) -> Option<String> {
    let link = device.index().and_then(|index| device.link(index));
    let name = device.name();
    match link {
        Ok(link) if link.is_running => None,
        Ok(link) if link.is_up => Some(format!("interface {name} has no carrier")),
        Ok(_) => Some(format!("interface {name} is down")),
        Err(_) => Some(format!("interface {name} does not exist")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_nat::pool4::{BlockUsage, PoolCounters, Usage};

    #[test]
    fn a_pool_is_exhausted_without_a_free_port_or_block() {
        let usage = |used| Usage { used, total: 10 };
        let free = PoolStats {
            name: "p".into(),
            addresses: 1,
            ports: [usage(9), usage(0), usage(10)],
            ports_held: 0,
            blocks: None,
            subscribers: 0,
            counters: PoolCounters::default(),
        };
        assert!(!is_exhausted(&free));
        assert!(!is_exhausted(&PoolStats { ports: [Usage { used: 0, total: 0 }; 3], ..free.clone() }));
        assert!(is_exhausted(&PoolStats { ports: [usage(0), usage(10), usage(0)], ..free.clone() }));
        let blocks = BlockUsage { total: 4, owned: 3, held: 1, lingering: 0 };
        assert!(is_exhausted(&PoolStats { blocks: Some(blocks), ..free.clone() }));
        assert!(!is_exhausted(&PoolStats { blocks: Some(BlockUsage { held: 0, ..blocks }), ..free }));
    }
}
