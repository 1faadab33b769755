//! Credits of packets that a fast path has translated for stateless instances, or dropped.

use gatun_nat::counters::{Count, Traffic};
use gatun_worker::Handle;
use gatun_worker::jobs::JobTicket;
use gatun_worker::offload::CreditInstances;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

/// Interval of crediting packets of instances.
const CREDIT_EVERY: Duration = Duration::from_secs(1);

/// Totals of instances, as far as the engines have counted them.
#[derive(Default)]
pub(crate) struct InstanceCredits {
    credited: CreditInstances,
    at: Option<Instant>,
    /// Credit that a worker has not counted yet.
    crediting: Option<(JobTicket, Receiver<()>)>,
}

impl InstanceCredits {
    /// Begins with these totals: they are not credited.
    pub(crate) fn begin(&mut self, totals: CreditInstances) {
        self.credited = totals;
    }

    /// Returns whether it is time to credit.
    pub(crate) fn is_due(&self) -> bool {
        self.at.is_none_or(|at| at.elapsed() >= CREDIT_EVERY)
    }

    /// Credits what has come to the last totals. If an earlier credit has not been counted yet, or the worker
    /// has too much to do, nothing happens: the next call credits both.
    pub(crate) fn credit(&mut self, workers: &[Handle], totals: impl FnOnce() -> CreditInstances) {
        self.at = Some(Instant::now());
        if self.is_busy() {
            return;
        }
        let totals = totals();
        let more = since(&totals, &self.credited);
        // The first worker's engine counts the packets of instances.
        let Some(worker) = workers.first().filter(|_| has_any(&more)) else { return };
        let (done, is_done) = sync_channel(1);
        let submitted = worker.submit(more, move |_| {
            let _ = done.send(());
        });
        if let Ok(ticket) = submitted {
            self.crediting = Some((ticket, is_done));
            self.credited = totals;
        }
    }

    /// Returns whether a worker has not counted the last credit yet.
    pub(crate) fn is_busy(&self) -> bool {
        self.crediting.as_ref().is_some_and(|(_, done)| done.try_recv() == Err(TryRecvError::Empty))
    }

    /// Packets that were credited to stateless instances.
    #[cfg(feature = "dpdk")]
    pub(crate) fn packets(&self) -> u64 {
        self.credited.stateless.iter().map(|traffic| traffic.total().packets).sum()
    }
}

fn has_any(more: &CreditInstances) -> bool {
    more.drops.iter().any(|packets| *packets > 0)
        || more.stateless.iter().any(|traffic| traffic.total().packets > 0)
}

/// Packets that have come to earlier totals.
fn since(totals: &CreditInstances, before: &CreditInstances) -> CreditInstances {
    let translated = totals.stateless.iter().enumerate().map(|(n, now)| {
        let before = before.stateless.get(n).copied().unwrap_or_default();
        Traffic {
            outbound: difference(now.outbound, before.outbound),
            inbound: difference(now.inbound, before.inbound),
        }
    });
    let dropped = totals.drops.iter().enumerate();
    let dropped = dropped.map(|(n, now)| now.saturating_sub(before.drops.get(n).copied().unwrap_or(0)));
    CreditInstances { stateless: translated.collect(), drops: dropped.collect() }
}

fn difference(now: Count, before: Count) -> Count {
    Count {
        packets: now.packets.saturating_sub(before.packets),
        bytes: now.bytes.saturating_sub(before.bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packets_since_the_last_totals_are_credited() {
        let count = |packets| Count { packets, bytes: packets * 100 };
        let of = |packets| Traffic { outbound: count(packets), inbound: count(1) };
        let before = CreditInstances { stateless: vec![of(5)], drops: vec![2, 0] };
        let now = CreditInstances { stateless: vec![of(9), of(3)], drops: vec![2, 4, 1] };
        let more = since(&now, &before);
        assert_eq!(more.drops, [0, 4, 1]);
        let outbound: Vec<_> = more.stateless.iter().map(|traffic| traffic.outbound.packets).collect();
        let inbound: Vec<_> = more.stateless.iter().map(|traffic| traffic.inbound.packets).collect();
        assert_eq!((outbound, inbound), (vec![4, 3], vec![0, 1]));
    }
}
