//! Fence of a pair: what a box that was stopped may not do.
//!
//! The operator's word gives everything to the other member, which then assigns the ports that this one had.
//! A process that was stopped meanwhile, or a host that was suspended, must not go on with them. So the
//! engines translate and assign only for some time after the last turn of the member, which renews it. After
//! a longer pause, the member first asks the other one: its greeting says whether the word was given.

use super::engines::{Engines, for_all};
use super::{Member, Work};
use gatun_nat::standby::{Fence, PeerAction, PeerCommand};
use gatun_nat::{Instant, ShardSet};

/// Time for which a member waits for the other one after a pause, ms. One that cannot be reached by then
/// counts as dead, as it would without the pause.
const ASK_MS: u64 = 2_000;
/// Time without an end.
const NEVER: u64 = u64::MAX;

/// Fence of the engines, and the last turn.
#[derive(Debug, Default)]
pub(super) struct StopFence {
    /// Time of the last turn, ms.
    turned_ms: Option<u64>,
    /// Since when the member asks the other one, ms.
    asks_since_ms: Option<u64>,
    /// Time until which the engines may translate and assign, as they know it, ms.
    told_ms: Option<u64>,
}

impl Member {
    /// Time by the clock of the engines until which they translate without another turn, ms.
    pub fn translates_until_ms(&self) -> u64 {
        self.fence.told_ms.unwrap_or(NEVER)
    }

    fn has_fence(&self) -> bool {
        self.settings.fence_ms > 0 && self.shared.is_none()
    }

    /// Asks the other member after a pause, and notes its answer.
    pub(super) fn note_turn(&mut self, now_ms: u64) {
        if !self.has_fence() {
            return;
        }
        let last_ms = self.fence.turned_ms.replace(now_ms).unwrap_or(now_ms);
        let pause_ms = now_ms.saturating_sub(last_ms);
        if pause_ms >= self.settings.fence_ms.into() && self.own.is_settled && !self.own.is_peer_gone {
            self.fence.asks_since_ms = Some(now_ms);
            // The other member closes a silent connection. A new one begins with its greeting.
            self.exchange.close(now_ms);
            self.wants_close = Some(format!("this box was stopped for {pause_ms} ms, and asks its peer"));
        }
        if let Some(since_ms) = self.fence.asks_since_ms {
            let has_answered = self.exchange.is_open() || self.exchange.refusal_since(since_ms).is_some();
            if has_answered || now_ms.saturating_sub(since_ms) >= ASK_MS {
                self.fence.asks_since_ms = None;
            }
        }
    }

    /// Time until which the engines may translate and assign from now on, ms.
    fn fence_until_ms(&self, now_ms: u64) -> u64 {
        if self.own.is_declared_gone || self.fence.asks_since_ms.is_some() {
            0
        } else if self.own.is_peer_gone {
            NEVER
        } else {
            now_ms + u64::from(self.settings.fence_ms)
        }
    }

    /// Time until the fence has to be renewed, ms.
    pub(super) fn fence_due_in_ms(&self, now_ms: u64) -> u64 {
        if !self.has_fence() {
            return NEVER;
        }
        let fence_ms = u64::from(self.settings.fence_ms);
        match (self.fence.told_ms, self.fence_until_ms(now_ms)) {
            (Some(told_ms), until_ms) if told_ms == until_ms => NEVER,
            (None | Some(0 | NEVER), _) | (_, 0 | NEVER) => 0,
            (Some(told_ms), _) => told_ms.saturating_sub(now_ms).saturating_sub(fence_ms * 2 / 3),
        }
    }

    /// Renews the fence of the engines. Returns false if it is not time.
    pub(super) fn begin_fence(&mut self, now_ms: u64, engines: &mut dyn Engines) -> bool {
        if self.fence_due_in_ms(now_ms) > 0 {
            return false;
        }
        let until_ms = self.fence_until_ms(now_ms);
        let until = (until_ms != NEVER).then_some(Instant(until_ms));
        let fence = Fence { assign: until, translate: until };
        let command = PeerCommand::new(PeerAction::Until(ShardSet::ALL, fence));
        self.fence.told_ms = Some(until_ms);
        let requests = for_all(&*engines, &[command]);
        self.submit(engines, Work::Fence, requests);
        true
    }
}
