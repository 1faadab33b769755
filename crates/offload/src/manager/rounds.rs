//! Rounds over all entries: credits once a second, and comparisons after a change of the settings.

use super::{Manager, Walk, Worker};
use crate::engine::Engine;
use crate::entries::{Entry, Slot, State};
use crate::orders::{Order, Report};
use crate::target::Target;
use std::time::Duration;

/// Duration of a round of credits.
pub(super) const ROUND: Duration = Duration::from_secs(1);
/// Minimum and maximum number of entries of one part of a round. Each part wakes the workers.
const CREDITS: (usize, usize) = (512, 8192);
/// Maximum number of entries that are compared with the settings in one turn.
const AUDITED: usize = 4096;

impl<E: Engine, T: Target> Manager<E, T> {
    /// Takes the use of some entries. A round over all takes a second, or longer if that is too much for the
    /// turns in it.
    pub(super) fn credit_some(&mut self, now: Duration) {
        let (at, began, last) = self.round;
        let high = self.entries.high();
        if at >= high {
            if now.saturating_sub(began) >= ROUND || high == 0 {
                self.round = (0, now, now);
                self.readings = [self.target.readings(), self.readings[0]];
                if self.has_read() {
                    self.paced = (now, now.saturating_sub(self.paced.0));
                }
            }
            return;
        }
        let part = now.saturating_sub(last).as_secs_f64() / ROUND.as_secs_f64();
        let n = ((high as f64 * part).ceil() as usize).min(CREDITS.1);
        if n < CREDITS.0.min(high - at) {
            return;
        }
        let end = high.min(at + n);
        let can_credit = |slot: &Slot| {
            let entry = self.entries.get(*slot);
            let has_room = |worker: &Worker<E>| worker.orders.has_room();
            let is_open = self.workers.get(usize::from(entry.worker)).is_some_and(has_room);
            entry.state == State::Installed && entry.bound && is_open
        };
        let slots = (at as Slot..end as Slot).filter(can_credit).collect();
        let has_read = self.has_read();
        for (slot, used) in self.use_of(slots) {
            let Some(used) = used else {
                self.retire(slot);
                continue;
            };
            let report = self.taken(slot, &used);
            self.report(slot, Report { seen: [None, None], ..report });
            self.entries.get_mut(slot).pace(report.traffic.total().packets, has_read);
            if used.is_closing {
                self.retire(slot);
            } else {
                self.set_path_mtu(slot);
            }
        }
        if end == high {
            self.status.round_ms = now.saturating_sub(began).as_millis() as u64;
        }
        self.round = (end, began, now);
    }

    /// Returns whether the use of all entries has become known since the last round.
    fn has_read(&self) -> bool {
        let [now, before] = self.readings;
        now.is_none() || now != before
    }

    /// Forgets old path MTUs once a second, and tells the target the smallest one.
    pub(super) fn set_smallest_path(&mut self, now: Duration) {
        if now.saturating_sub(self.paths_at) < ROUND {
            return;
        }
        self.paths_at = now;
        self.paths.expire(now);
        let smallest = self.paths.smallest();
        if smallest != self.smallest_path {
            self.smallest_path = smallest;
            self.target.set_smallest_path(smallest);
        }
    }

    /// Tells the target the path MTU of an entry, if it has changed.
    fn set_path_mtu(&mut self, slot: Slot) {
        let Entry { worker, id, place, path_mtu, .. } = self.entries.get(slot);
        let known = self.path_mtu(*worker, &id.flow);
        if known.unwrap_or(0) != *path_mtu
            && let Some(place) = *place
        {
            self.target.set_path_mtu(place, known);
            self.entries.get_mut(slot).path_mtu = known.unwrap_or(0);
        }
    }

    /// Compares some entries with the settings and with the walks.
    pub(super) fn audit_some(&mut self) {
        let Some(at) = self.audit else { return };
        let end = self.entries.high().min(at + AUDITED);
        for slot in at as Slot..end as Slot {
            self.audit_one(slot);
        }
        self.audit = (end < self.entries.high()).then_some(end);
        self.excluded_at = self.status.removed + (self.removals.len() + self.unremoved.len()) as u64;
    }

    fn audit_one(&mut self, slot: Slot) {
        let entry = self.entries.get(slot);
        if matches!(entry.state, State::Free | State::Removing) {
            return;
        }
        let flow = entry.id.flow;
        if !entry.bound {
            let is_over = self.workers.iter().all(|worker| worker.walk == Walk::Over || worker.ended);
            if is_over && self.rules.reconcile {
                self.adopted.remove(&flow);
                self.status.adopted_removed += 1;
                self.retire(slot);
            }
            return;
        }
        let worker = &self.workers[usize::from(entry.worker)];
        // A marked session stays in the engine until its release, so the walk should have found it.
        let is_missing = worker.walk == Walk::Over && entry.walk != worker.walks && !worker.ended;
        let is_installed = entry.state == State::Installed;
        let ending = self.removals.len() + self.unremoved.len();
        let is_excess = is_installed && self.entries.len() - ending > self.limit() as usize;
        if worker.ended && entry.state == State::Marking {
            // No answer will come.
            self.marking -= 1;
            self.entries.free(slot);
        } else if !self.allows(&flow) || is_excess {
            self.retire(slot);
        } else if is_installed && entry.epoch != self.settings.epoch {
            self.retire(slot);
            self.entries.get_mut(slot).renew = true;
        } else if is_missing && is_installed {
            self.entries.get_mut(slot).walk = worker.walks;
            self.order(slot, Order::Mark(self.settings.epoch));
        }
    }
}
