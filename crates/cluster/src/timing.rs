//! Lengths of leases and waits of a cluster.

use crate::rules::ClusterRules;
use gatun_peer::ownership::{Rules, Timing};

/// Lengths of leases and waits, ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClusterTiming {
    /// Lease of a node's registration, lease of its kernel, and difference of clocks over a hold.
    pub timing: Timing,
    /// Time for which a holder translates after the last sign of the coordinator or of the other holder.
    pub hold_ms: u32,
}

impl ClusterTiming {
    /// Additional time for which a right is respected after its end.
    pub fn margin_ms(&self, rules: &ClusterRules) -> u32 {
        self.timing.margin_ms(&Rules { margin: rules.margin, ..Rules::default() })
    }

    /// Time of a registration's absence after which its node neither assigns shared ports nor translates
    /// mappings that its backup does not know.
    pub fn claim_ms(&self, rules: &ClusterRules) -> u32 {
        self.margin_ms(rules)
    }

    /// Time of a registration's absence after which its node translates nothing.
    pub fn removal_ms(&self, rules: &ClusterRules) -> u32 {
        let hold = if rules.hold { self.hold_ms } else { 0 };
        hold + self.margin_ms(rules)
    }

    /// Time for which a promise keeps its giver from a claim.
    pub fn promised_claim_ms(&self, rules: &ClusterRules) -> u32 {
        self.timing.lease_ms + self.margin_ms(rules)
    }

    /// Time for which a promise keeps its giver from a removal.
    pub fn promised_removal_ms(&self, rules: &ClusterRules) -> u32 {
        self.hold_ms + self.margin_ms(rules)
    }
}
