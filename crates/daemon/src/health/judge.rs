//! Decision if the routes are announced: withdrawn at once, and back after a time without a fault.

/// Hysteresis of one decision. Times are ms of the caller's clock.
pub(super) struct Judge {
    return_after_ms: u64,
    /// Beginning of the present time without a fault, after a fault.
    well_since: Option<u64>,
    has_been_unfit: bool,
    announces: bool,
}

impl Judge {
    pub(super) fn new(return_after_ms: u32) -> Judge {
        Judge {
            return_after_ms: return_after_ms.into(),
            well_since: None,
            has_been_unfit: false,
            announces: false,
        }
    }

    /// Takes an observation. Returns true if the routes are announced. The first announcement waits for
    /// nothing.
    pub(super) fn judge(&mut self, now_ms: u64, is_unfit: bool) -> bool {
        if is_unfit {
            (self.well_since, self.has_been_unfit, self.announces) = (None, true, false);
        } else if !self.announces {
            let since = *self.well_since.get_or_insert(now_ms);
            self.announces = !self.has_been_unfit || now_ms.saturating_sub(since) >= self.return_after_ms;
        }
        self.announces
    }

    /// Time until withdrawn routes come back, if no fault follows.
    pub(super) fn returns_in_ms(&self, now_ms: u64) -> Option<u64> {
        let since = self.well_since.filter(|_| !self.announces)?;
        Some((since + self.return_after_ms).saturating_sub(now_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_withdrawn_at_once_and_come_back_after_a_time_without_a_fault() {
        let mut judge = Judge::new(3_000);
        assert!(judge.judge(0, false));
        assert!(!judge.judge(100, true));
        assert!(!judge.judge(200, false));
        assert_eq!(judge.returns_in_ms(1_200), Some(2_000));
        // Another fault begins the time again.
        assert!(!judge.judge(3_100, true));
        assert_eq!(judge.returns_in_ms(3_100), None);
        assert!(!judge.judge(3_200, false) && !judge.judge(6_199, false));
        assert!(judge.judge(6_200, false));
        assert_eq!(judge.returns_in_ms(6_200), None);
    }

    #[test]
    fn a_fault_before_the_first_announcement_counts() {
        let mut judge = Judge::new(1_000);
        assert!(!judge.judge(0, true) && !judge.judge(100, false));
        assert!(judge.judge(1_100, false));
    }
}
