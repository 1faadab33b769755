//! Flows that found the table full, with the time: an engine offers each again after a number of packets, so
//! the time between two offers is its rate.

use gatun_nat::feed::SessionId;
use std::collections::HashMap;
use std::time::Duration;

/// Flows of a generation. The older of two generations is forgotten.
const KEPT: usize = 16_384;

/// Refused flows, the latest ones.
#[derive(Default)]
pub(crate) struct Refusals {
    recent: HashMap<(u8, SessionId), Duration>,
    earlier: HashMap<(u8, SessionId), Duration>,
}

impl Refusals {
    /// Takes note of a refusal.
    pub(crate) fn add(&mut self, worker: u8, id: SessionId, now: Duration) {
        if self.recent.len() >= KEPT {
            self.earlier = std::mem::take(&mut self.recent);
        }
        self.recent.insert((worker, id), now);
    }

    /// Forgets the last refusal of a flow. Returns the time since then, if it is known.
    pub(crate) fn take(&mut self, worker: u8, id: SessionId, now: Duration) -> Option<Duration> {
        if self.recent.is_empty() && self.earlier.is_empty() {
            return None;
        }
        let at = self.recent.remove(&(worker, id)).or_else(|| self.earlier.remove(&(worker, id)))?;
        Some(now.saturating_sub(at))
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
    fn the_time_since_the_last_refusal_is_known_once_and_old_refusals_are_forgotten() {
        let mut refusals = Refusals::default();
        let second = Duration::from_secs(1);
        refusals.add(0, id(1), second);
        assert_eq!(refusals.take(1, id(1), 3 * second), None, "of another worker");
        assert_eq!(refusals.take(0, id(1), 3 * second), Some(2 * second));
        assert_eq!(refusals.take(0, id(1), 3 * second), None);
        refusals.add(0, id(0), second);
        (1..2 * KEPT as u32).for_each(|record| refusals.add(0, id(record), second));
        assert_eq!(refusals.take(0, id(1), second), Some(Duration::ZERO));
        refusals.add(0, id(2 * KEPT as u32), second);
        assert_eq!(refusals.take(0, id(0), second), None);
        assert!(refusals.recent.len() + refusals.earlier.len() <= 2 * KEPT);
    }
}
