//! Lengths of leases and waits.
//!
//! Each side measures a duration with its own clock. A right counts from the moment at which it was asked
//! for; the duty to respect it counts from the moment at which it was granted, and lasts longer by a margin.

use super::rules::Rules;

/// Lengths of leases and waits, ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// Length of an owner's lease, and of a backup's promise.
    pub lease_ms: u32,
    /// Time for which the kernel translates after its daemon's last renewal.
    pub kernel_ms: u32,
    /// Greatest difference between two clocks over the length of a lease.
    pub drift_ms: u32,
}

impl Timing {
    /// Remaining time of a right that was asked for `ago_ms` ago.
    pub fn left_ms(&self, ago_ms: u32) -> u32 {
        self.lease_ms.saturating_sub(ago_ms)
    }

    /// Additional time for which a right is respected after its end: the clocks may differ, and the kernel of
    /// an owner that hangs translates until its own lease has ended.
    pub fn margin_ms(&self, rules: &Rules) -> u32 {
        if rules.margin { self.kernel_ms + self.drift_ms } else { 0 }
    }

    /// Time for which a promise binds the member that has given it.
    pub fn promise_ms(&self, rules: &Rules) -> u32 {
        self.lease_ms + self.margin_ms(rules)
    }

    /// Time between the operator's word that a member is gone and the use of its ports.
    pub fn word_ms(&self, rules: &Rules) -> u32 {
        if rules.wait_for_kernel { self.kernel_ms + self.drift_ms } else { 0 }
    }

    /// Returns whether the coordinator may grant another epoch, by the time since the owner's lease ended.
    pub fn may_grant(&self, rules: &Rules, expired_for_ms: Option<u32>) -> bool {
        expired_for_ms.is_some_and(|ms| ms >= self.margin_ms(rules))
            || !rules.margin && expired_for_ms.is_some()
    }
}
