//! Flows that found the table full, with the time: an engine offers each again after a number of packets.
//! The packets of at least a second are its rate; a burst is none.

use gatun_nat::feed::SessionId;
use std::collections::HashMap;
use std::time::Duration;

/// Flows of a generation. The older of two generations is forgotten.
const KEPT: usize = 16_384;
/// Shortest time that a rate is computed from.
const MEASURED_MIN: Duration = Duration::from_secs(1);

/// Packets of a flow since a refusal.
#[derive(Clone, Copy)]
struct Refusal {
    at: Duration,
    packets: u32,
}

/// Refused flows, the latest ones.
#[derive(Default)]
pub(crate) struct Refusals {
    recent: HashMap<(u8, SessionId), Refusal>,
    earlier: HashMap<(u8, SessionId), Refusal>,
}

impl Refusals {
    /// Takes note of a refusal. Packets since an earlier one go on counting.
    pub(crate) fn add(&mut self, worker: u8, id: SessionId, now: Duration) {
        let refusal = self.remove(worker, id).unwrap_or(Refusal { at: now, packets: 0 });
        self.insert(worker, id, refusal);
    }

    /// Adds packets of a flow. Returns its packets a second since the refusal, and forgets that, if the
    /// time was long enough.
    pub(crate) fn pace(&mut self, worker: u8, id: SessionId, packets: u8, now: Duration) -> Option<f64> {
        if self.recent.is_empty() && self.earlier.is_empty() {
            return None;
        }
        let mut refusal = self.remove(worker, id)?;
        refusal.packets = refusal.packets.saturating_add(packets.into());
        let since = now.saturating_sub(refusal.at);
        // The offer of a walk comes at any time between two offers of the engine.
        if since < MEASURED_MIN || packets == 0 {
            self.insert(worker, id, refusal);
            return None;
        }
        Some(f64::from(refusal.packets) / since.as_secs_f64())
    }

    /// Forgets a flow that got a place.
    pub(crate) fn forget(&mut self, worker: u8, id: SessionId) {
        self.remove(worker, id);
    }

    fn insert(&mut self, worker: u8, id: SessionId, refusal: Refusal) {
        if self.recent.len() >= KEPT {
            self.earlier = std::mem::take(&mut self.recent);
        }
        self.recent.insert((worker, id), refusal);
    }

    fn remove(&mut self, worker: u8, id: SessionId) -> Option<Refusal> {
        // Each look-up hashes 50 bytes, even in an empty map, and usually both are.
        let of = |map: &mut HashMap<_, _>| if map.is_empty() { None } else { map.remove(&(worker, id)) };
        of(&mut self.recent).or_else(|| of(&mut self.earlier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_nat::feed::Flow;
    use gatun_nat::plan::Transport;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn id(record: u32) -> SessionId {
        let (inside, outside, remote) = (Ipv6Addr::LOCALHOST, Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST);
        let flow = Flow {
            inside: (inside, 1),
            outside: (outside, 2),
            remote: (remote, 3),
            transport: Transport::Udp,
            instance: 0,
        };
        SessionId { record, flow }
    }

    #[test]
    fn a_rate_is_that_of_a_second_or_more_and_a_burst_or_a_walk_is_none() {
        let mut refusals = Refusals::default();
        let at = |ms: u64| Duration::from_millis(10_000 + ms);
        refusals.add(0, id(1), at(0));
        assert_eq!(refusals.pace(1, id(1), 128, at(3_000)), None, "of another worker");
        // A burst: the flow is refused again, and its packets count.
        for ms in [0, 1, 2] {
            assert_eq!(refusals.pace(0, id(1), 128, at(ms)), None);
            refusals.add(0, id(1), at(ms));
        }
        assert_eq!(refusals.pace(0, id(1), 0, at(1_500)), None, "of a walk");
        refusals.add(0, id(1), at(1_500));
        assert_eq!(refusals.pace(0, id(1), 128, at(4_000)), Some(128.0));
        assert_eq!(refusals.pace(0, id(1), 128, at(4_000)), None, "it is forgotten");
        refusals.add(0, id(1), at(5_000));
        assert_eq!(refusals.pace(0, id(1), 128, at(6_000)), Some(128.0));
    }

    #[test]
    fn old_refusals_are_forgotten() {
        let mut refusals = Refusals::default();
        let second = Duration::from_secs(1);
        (0..2 * KEPT as u32).for_each(|record| refusals.add(0, id(record), second));
        assert_eq!(refusals.pace(0, id(1), 100, 2 * second), Some(100.0));
        refusals.add(0, id(2 * KEPT as u32), second);
        refusals.add(0, id(2 * KEPT as u32 + 1), second);
        assert_eq!(refusals.pace(0, id(0), 100, 2 * second), None);
        assert!(refusals.recent.len() + refusals.earlier.len() <= 2 * KEPT);
    }
}
