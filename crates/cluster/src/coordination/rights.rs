//! Rights of the node, and promises between holders.

use super::{Coordination, Order, Shard};
use crate::record::{NodeName, Part, ShardRecord};
use crate::transitions::{Absence, needs_right};

/// Rights of the node to a shard. Times are ends, ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Part of the node.
    pub part: Part,
    /// End of the right to assign shared ports; 0 for none.
    pub assign_until: u64,
    /// End of the time in which mappings go on that the backup does not know; 0 for none. It ends with the
    /// lease or the promise also while the node assigns nothing because of a release.
    pub keep_until: u64,
    /// End of the time in which the node translates; 0 for none.
    pub translate_until: u64,
    /// True if somebody may claim the shard when the right to assign ends: mappings that the backup does not
    /// know have to end with it.
    pub can_be_claimed: bool,
}

/// Promise about a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The giver knows the receiver as the owner, and does not claim.
    pub is_to_owner: bool,
}

impl Shard {
    /// Records that may be in force.
    fn records(&self) -> impl Iterator<Item = &ShardRecord<NodeName>> {
        self.known.iter().chain(self.pending.iter().map(|pending| &pending.record))
    }
}

impl Coordination {
    /// Returns the rights of the node to a shard.
    pub fn rights(&self, shard: u8) -> Rights {
        let one = &self.shards[usize::from(shard)];
        let me = &self.settings.me;
        let part = one.known.as_ref().map_or(Part::None, |record| record.part(me));
        let none = Rights { part, assign_until: 0, keep_until: 0, translate_until: 0, can_be_claimed: false };
        if part == Part::None {
            return none;
        }
        let hold_ms = u64::from(self.settings.timing.hold_ms);
        let sign = self.sign_ms().map_or(0, |at| at + hold_ms);
        let translate_until = match self.settings.rules.hold {
            true => sign.max(one.promise_hold_until),
            false => u64::MAX,
        };
        let can_be_claimed = one.records().any(|record| needs_right(&self.settings.rules, record));
        let owns = one.records().all(|record| record.part(me) == Part::Owner);
        let keep_until = match part == Part::Owner && can_be_claimed {
            true => self.lease_until().max(one.promise_claim_until).min(translate_until),
            false => translate_until,
        };
        let assign_until = if owns && one.order != Order::Tell { keep_until } else { 0 };
        Rights { part, assign_until, keep_until, translate_until, can_be_claimed }
    }

    pub(super) fn has_time(&self, now_ms: u64, shard: u8) -> bool {
        let one = &self.shards[usize::from(shard)];
        self.lease_until().max(one.promise_claim_until) > now_ms
    }

    /// Makes a promise to another holder that has asked. `None` if this node does not know it as one.
    pub fn promise(&mut self, now_ms: u64, shard: u8, to: &NodeName) -> Option<Promise> {
        let (rules, timing) = (self.settings.rules, self.settings.timing);
        let me = self.settings.me.clone();
        let one = self.shards.get_mut(usize::from(shard))?;
        one.known.as_ref()?;
        if !one.records().all(|record| record.other(&me) == Some(to)) {
            return None;
        }
        one.promised_hold_until = now_ms + u64::from(timing.promised_removal_ms(&rules));
        let is_owner = one.records().all(|record| record.part(to) == Part::Owner);
        let is_to_owner = is_owner || !rules.promise_to_owner;
        if is_to_owner {
            one.promised_claim_until = now_ms + u64::from(timing.promised_claim_ms(&rules));
        }
        Some(Promise { is_to_owner })
    }

    /// Uses a promise of another holder that was asked for at a time.
    pub fn promised(&mut self, asked_ms: u64, shard: u8, from: &NodeName, promise: Promise) {
        let timing = self.settings.timing;
        let me = self.settings.me.clone();
        let Some(one) = self.shards.get_mut(usize::from(shard)) else { return };
        if one.known.as_ref().and_then(|record| record.other(&me)) != Some(from) {
            return;
        }
        let hold_until = asked_ms + u64::from(timing.hold_ms);
        one.promise_hold_until = one.promise_hold_until.max(hold_until);
        if promise.is_to_owner {
            let until = asked_ms + u64::from(timing.timing.lease_ms);
            one.promise_claim_until = one.promise_claim_until.max(until);
        }
    }

    pub(super) fn gone_ms(&self, now_ms: u64, node: &NodeName) -> Option<u32> {
        self.map.gone_ms(now_ms, node)
    }

    /// Returns what the node knows about another one that it may replace.
    pub(super) fn absence(&self, now_ms: u64, shard: u8, node: &NodeName) -> Absence {
        let (rules, timing) = (&self.settings.rules, self.settings.timing);
        let one = &self.shards[usize::from(shard)];
        let is_other = one.known.as_ref().and_then(|record| record.other(&self.settings.me)) == Some(node);
        let left = |until: u64| u32::try_from(until.saturating_sub(now_ms)).unwrap_or(u32::MAX);
        // The process before this one may have promised.
        let since_start = |ms: u32| self.began_ms + u64::from(ms);
        let promised = |until: u64, ms: u32| left(until.max(since_start(ms)));
        Absence {
            absent_ms: self.map.absent_ms(now_ms, node),
            promised_claim_ms: if is_other {
                promised(one.promised_claim_until, timing.promised_claim_ms(rules))
            } else {
                0
            },
            promised_removal_ms: if is_other {
                promised(one.promised_hold_until, timing.promised_removal_ms(rules))
            } else {
                0
            },
            gone_ms: self.map.gone_ms(now_ms, node),
        }
    }
}
