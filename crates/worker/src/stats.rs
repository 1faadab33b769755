//! Counters of a worker: a check on the engine and the backend, which count the same packets independently.

use crate::exchange::ExchangeCounters;
use gatun_nat::Counters;
use gatun_nat::counters::Count;
use gatun_nat::report::{InstanceCounters, InstanceStats, PoolStats};
use gatun_nat::session_file::RestoreProgress;
use std::ops::AddAssign;
use std::sync::Arc;

/// Counters of a worker in packets. A super-packet counts as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// Bursts received.
    pub bursts: u64,
    /// Number of times that it went to sleep because no packets arrived.
    pub idle_waits: u64,
    /// Time of the turns with packets, ns: from the start of the turn to the start of the next one, whatever
    /// was done in it.
    pub busy_ns: u64,
    /// Forwarded packets.
    pub forward: u64,
    /// Packets that were not for the translator and were not sent.
    pub pass: u64,
    /// Answered in place.
    pub reply: u64,
    /// Dropped.
    pub drop: u64,
    /// Packets held by the engine.
    pub held: u64,
    /// Packets sent to another node of a cluster.
    pub redirect: u64,
    /// Part of `redirect`: packets from outside, which routes have led past the owner of their shard.
    pub redirect_outside: u64,
    /// Packets that the engine created and the worker sent.
    pub emitted: u64,
    /// Packets that the engine did not process although it had room again: a defect of the engine.
    pub stalled: u64,
    /// Packets given to other workers and taken from them.
    pub handed: ExchangeCounters,
}

/// All counters of one worker at one moment between two bursts, or the sum over several workers.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Name of the device.
    pub backend_name: String,
    /// Counters of the engine.
    pub engine: Counters,
    /// Counters of each instance, in the order of the plan, with its state.
    pub instances: Vec<InstanceStats>,
    /// Packets of no instance.
    pub unattributed: InstanceCounters,
    /// Pools, in the order of the plan.
    pub pools: Vec<PoolStats>,
    /// Progress of restoring the previous process's sessions.
    pub restore: RestoreProgress,
    /// Packets sent to each node of a cluster, with its name.
    pub redirected: Vec<(Arc<str>, Count)>,
    /// Counters of the worker.
    pub worker: WorkerStats,
    /// Counters of the backend.
    pub backend: gatun_io::Stats,
}

impl Snapshot {
    /// Checks that no packet was lost between backend, worker and engine: each received packet has one fate
    /// or went to another worker. The device accepted each packet to send, or refused or withheld it for a
    /// named reason, or the packet went to another worker.
    pub fn conserved(&self) -> bool {
        let (w, h) = (&self.worker, &self.worker.handed);
        let fates = w.forward + w.pass + w.reply + w.drop + w.held + w.redirect;
        self.engine.conserved()
            && self.engine.rx.packets == fates + self.engine.received_outside()
            && self.backend.rx_packets + h.taken == fates + w.stalled + h.before + h.before_lost
            && self.backend.tx_given() + h.after + h.after_lost
                == w.forward + w.pass + w.reply + w.redirect + w.emitted
    }
}

impl AddAssign<&Snapshot> for Snapshot {
    fn add_assign(&mut self, other: &Snapshot) {
        if self.backend_name.is_empty() {
            self.backend_name.clone_from(&other.backend_name);
        }
        add_counters(&mut self.engine, &other.engine);
        add_each(&mut self.instances, &other.instances, InstanceStats::add);
        add_pools(&mut self.pools, &other.pools);
        add_each(&mut self.redirected, &other.redirected, |a, b| a.1 += b.1);
        self.unattributed.add(&other.unattributed);
        self.restore += other.restore;
        self.backend += &other.backend;
        let (a, b) = (&mut self.worker, &other.worker);
        a.bursts += b.bursts;
        a.idle_waits += b.idle_waits;
        a.busy_ns += b.busy_ns;
        a.forward += b.forward;
        a.pass += b.pass;
        a.reply += b.reply;
        a.drop += b.drop;
        a.held += b.held;
        a.redirect += b.redirect;
        a.redirect_outside += b.redirect_outside;
        a.emitted += b.emitted;
        a.stalled += b.stalled;
        a.handed.add(b.handed);
    }
}

/// Adds the pools of one worker to those of others, in the order of the plan. A new sum has none yet.
pub fn add_pools(sum: &mut Vec<PoolStats>, of_worker: &[PoolStats]) {
    add_each(sum, of_worker, PoolStats::add);
}

/// Adds one list to another element by element. A new sum has no elements yet.
fn add_each<T: Clone>(sum: &mut Vec<T>, other: &[T], add: impl Fn(&mut T, &T)) {
    sum.iter_mut().zip(other).for_each(|(a, b)| add(a, b));
    sum.extend_from_slice(other.get(sum.len()..).unwrap_or_default());
}

fn add_counters(a: &mut Counters, b: &Counters) {
    a.rx += b.rx;
    a.forwarded += b.forwarded;
    a.passed += b.passed;
    a.replied += b.replied;
    a.dropped += b.dropped;
    a.hairpinned += b.hairpinned;
    a.offloaded += b.offloaded;
    a.translated.iter_mut().zip(b.translated).for_each(|(x, y)| *x += y);
    a.drops.iter_mut().flatten().zip(b.drops.iter().flatten()).for_each(|(x, y)| *x += *y);
    a.held += b.held;
    a.redirected += b.redirected;
    a.redirected_to.iter_mut().zip(b.redirected_to).for_each(|(x, y)| *x += y);
    a.echo_replies += b.echo_replies;
    a.icmp_errors_sent += b.icmp_errors_sent;
    a.icmp_errors_limited += b.icmp_errors_limited;
    a.icmp_errors_limited_per_source += b.icmp_errors_limited_per_source;
    a.icmp_errors_suppressed += b.icmp_errors_suppressed;
    a.fragments_made += b.fragments_made;
    a.probes_sent += b.probes_sent;
    a.sessions_cleared += b.sessions_cleared;
    a.path_mtus_learnt += b.path_mtus_learnt;
    a.path_mtus_evicted += b.path_mtus_evicted;
}
