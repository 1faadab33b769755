//! Number of subscribers that fill the session table.

use gatun_nat::plan::Limits;

/// Number of subscribers that fill the session table if each opens all sessions that it may.
pub fn subscribers_that_fill(limits: &Limits) -> u64 {
    let each = u64::from(limits.sessions_per_subscriber.max(1));
    let few = u64::from(limits.sessions_reserved_below.max(1)).min(each);
    let for_all = u64::from(limits.sessions_for_all());
    let reserved = u64::from(limits.sessions_max).saturating_sub(for_all);
    let first = for_all.div_ceil(each);
    // If the last full subscriber has few sessions, it continues in the reserve.
    let of_last = for_all - first.saturating_sub(1) * each;
    let goes_on = if first == 0 { 0 } else { few.saturating_sub(of_last) };
    first + reserved.saturating_sub(goes_on).div_ceil(few)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulation: subscribers open what they may, one after the other.
    fn by_trying(limits: &Limits) -> u64 {
        let (mut all, mut subscribers) = (0, 0);
        while all < limits.sessions_max {
            subscribers += 1;
            let mut own = 0;
            while all < limits.sessions_max
                && own < limits.sessions_per_subscriber
                && (all < limits.sessions_for_all() || own < limits.sessions_reserved_below)
            {
                (own, all) = (own + 1, all + 1);
            }
        }
        subscribers
    }

    #[test]
    fn the_number_equals_a_simulation() {
        for sessions_max in [1, 2, 7, 64, 100, 333] {
            for sessions_reserved in [0, 1, 25, 50, 90, 100] {
                for sessions_reserved_below in [1, 3, 64] {
                    for sessions_per_subscriber in [1, 5, 50, 1000] {
                        let limits = Limits {
                            sessions_max,
                            sessions_reserved,
                            sessions_reserved_below,
                            sessions_per_subscriber,
                            ..Limits::default()
                        };
                        assert_eq!(subscribers_that_fill(&limits), by_trying(&limits), "{limits:?}");
                    }
                }
            }
        }
        assert_eq!(subscribers_that_fill(&Limits::default()), 12 + 1024);
    }
}
