//! Pacing: computes when the next packets are due.

/// A steady rate. Packets that could not be sent in time are sent later, up to a bound: an interrupted
/// generator does not flood.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Packets a second; infinite for the maximum rate.
    rate: f64,
    begin_ns: u64,
    /// Packets since `begin_ns`.
    sent: u64,
}

/// Longest delay that is made up for, ns.
const ARREARS_MAX_NS: u64 = 10_000_000;

impl Pace {
    /// `packets_per_second` from `now_ns` on; `None` is the maximum rate.
    pub fn new(packets_per_second: Option<f64>, now_ns: u64) -> Pace {
        Pace { rate: packets_per_second.unwrap_or(f64::INFINITY), begin_ns: now_ns, sent: 0 }
    }

    /// Number of packets due at `now_ns`, at most `max`.
    pub fn due(&mut self, now_ns: u64, max: usize) -> usize {
        if self.rate.is_infinite() {
            return max;
        }
        let owed = |elapsed_ns: u64| (elapsed_ns as f64 * self.rate / 1e9) as u64;
        let elapsed_ns = now_ns.saturating_sub(self.begin_ns);
        let bound = owed(elapsed_ns.saturating_sub(ARREARS_MAX_NS));
        self.sent = self.sent.max(bound);
        owed(elapsed_ns).saturating_sub(self.sent).min(max as u64) as usize
    }

    /// Records that packets were sent.
    pub fn sent(&mut self, packets: usize) {
        self.sent += packets as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_steady_and_catches_up_after_a_pause_within_bounds() {
        let mut pace = Pace::new(Some(1_000_000.0), 5_000);
        let mut sent = 0;
        for now_us in 0..1_000 {
            let due = pace.due(5_000 + 1_000 * now_us, 64);
            pace.sent(due);
            sent += due;
        }
        assert_eq!(sent, 999);
        // Ten seconds later: ten milliseconds' worth, in bursts.
        let mut burst = 0;
        loop {
            let due = pace.due(10_001_000_000, 64);
            if due == 0 {
                break;
            }
            pace.sent(due);
            burst += due;
        }
        assert_eq!(burst, 10_000);
        assert_eq!(Pace::new(None, 0).due(0, 32), 32);
    }
}
