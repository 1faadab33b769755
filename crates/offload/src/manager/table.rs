//! Work on the target: installations, removals, questions, and the take-over of its entries.

use super::Manager;
use super::feeds::{LATER, micros};
use super::rounds::ROUND;
use crate::engine::Engine;
use crate::entries::{Entry, Slot, State, Token, WEIGHT_OF_EARLIER};
use crate::orders::{Order, Report};
use crate::target::{EntryUse, Placement, Refusal, Removal, Target};
use std::time::Duration;

/// Maximum numbers of entries in one turn.
const INSTALLS: usize = 512;
const REMOVALS: usize = 1024;
const CONFIRMATIONS: usize = 1024;
const QUESTIONS: usize = 1024;
/// Number of entries that are considered for an eviction.
const LOOK: usize = 64;
/// Rounds of credits without a packet after which an entry is idle.
const IDLE_ROUNDS: u8 = 2;
/// Rounds of credits after which the packets of an entry are known well enough.
const MEASURED_ROUNDS: u8 = 6;
/// Factor by which a flow has to be busier than the entry that gives it its place: both change places again
/// only if their rates change by as much.
const MUCH_BUSIER: f64 = 4.0;

impl<E: Engine, T: Target> Manager<E, T> {
    /// Takes over the entries that the target has.
    pub(super) fn adopt(&mut self) {
        let Manager { target, entries, adopted, placed, .. } = self;
        target.entries(&mut |place, flow| {
            *placed += 1;
            let entry = Entry {
                id: flow.session,
                place: Some(place),
                life: 0,
                offered_us: 0,
                epoch: flow.epoch,
                path_mtu: flow.path_mtu.unwrap_or(0),
                worker: flow.worker,
                pool6: 0,
                walk: 0,
                idle_rounds: 0,
                rounds: 0,
                packets: 0.0,
                state: State::Installed,
                unwanted: false,
                renew: false,
                is_evicted: false,
                bound: false,
                asked: false,
                active: [false; 2],
            };
            adopted.insert(flow.session.flow, (entries.add(entry), flow.remote6));
        });
    }

    /// Returns whether there is a place for another flow. If not, evicts an entry that is idle, or much less
    /// busy than a flow with `pace` packets a second, if one is found.
    pub(super) fn has_place(&mut self, pace: f64) -> bool {
        if !self.target.is_ready() {
            return false;
        }
        let taken = self.entries.len() - self.removals.len();
        // A target that does not confirm removals makes no room by further ones.
        taken < self.room() as usize || self.unremoved.len() < REMOVALS && self.evict(pace)
    }

    fn evict(&mut self, pace: f64) -> bool {
        let high = self.entries.high();
        let looked = (0..LOOK.min(high)).map(|i| ((self.hand + i) % high) as Slot);
        let entry = |slot: &Slot| self.entries.get(*slot);
        let movable = looked.filter(|slot| entry(slot).state == State::Installed && entry(slot).bound);
        let least_packets = self.packets_in_rounds(pace / MUCH_BUSIER);
        let is_slower = |slot: &Slot| {
            entry(slot).rounds >= MEASURED_ROUNDS && f64::from(entry(slot).packets) < least_packets
        };
        let may_go = movable.filter(|slot| entry(slot).idle_rounds >= IDLE_ROUNDS || is_slower(slot));
        let order = |a: &Slot, b: &Slot| {
            let (a, b) = (entry(a), entry(b));
            a.idle_rounds.cmp(&b.idle_rounds).then(b.packets.total_cmp(&a.packets))
        };
        let found = may_go.max_by(order);
        self.hand = (self.hand + LOOK) % high.max(1);
        if let Some(slot) = found {
            self.status.evicted += 1;
            self.retire(slot);
            self.entries.get_mut(slot).is_evicted = true;
        }
        found.is_some()
    }

    /// [`Entry::packets`] of an entry with this many packets a second.
    fn packets_in_rounds(&self, pace: f64) -> f64 {
        let round_s = ROUND.max(self.paced.1).as_secs_f64();
        round_s * pace / f64::from(1.0 - WEIGHT_OF_EARLIER)
    }

    /// Installs flows whose mark is confirmed.
    pub(super) fn install_some(&mut self, clock: &dyn Fn() -> Duration) {
        if !self.target.is_ready() {
            return self.refuse_some();
        }
        let room = self.target.capacity().saturating_sub(self.placed) as usize;
        let n = self.installs.len().min(INSTALLS).min(room);
        if self.paused || self.installs.is_empty() {
            return;
        }
        let (mut flows, mut slots) = (Vec::with_capacity(n), Vec::with_capacity(n));
        // Those that are not wanted any more need no room.
        for _ in 0..self.installs.len().min(INSTALLS) {
            let Some(slot) = self.installs.pop_front() else { break };
            let entry = self.entries.get(slot);
            let (id, worker, pool6) = (entry.id, entry.worker, entry.pool6);
            let is_current = entry.epoch == self.settings.epoch;
            let is_wanted = self.is_wanted(slot);
            match self.flow(id, worker, pool6) {
                Some(_) if is_wanted && flows.len() == n => {
                    self.installs.push_front(slot);
                    break;
                }
                Some(_) if is_wanted && !is_current => self.renew(slot),
                // The limit has become smaller.
                Some(_) if is_wanted && self.staying() + flows.len() >= self.room() as usize => {
                    self.refuse(slot);
                    self.status.refused_full += 1;
                }
                Some(flow) if is_wanted => {
                    self.entries.get_mut(slot).path_mtu = flow.path_mtu.unwrap_or(0);
                    flows.push(flow);
                    slots.push(slot);
                }
                _ => self.drop_marked(slot),
            }
        }
        if flows.is_empty() {
            return;
        }
        let mut placed = Vec::with_capacity(n);
        self.target.install(&flows, &mut placed);
        let now = micros(clock());
        let mut placed = placed.into_iter();
        for slot in slots {
            let result = placed.next().unwrap_or_else(|| Err(Refusal::Other("no answer".to_owned())));
            self.installed(slot, result, now);
        }
    }

    fn installed(&mut self, slot: Slot, result: Result<T::Id, Refusal>, now: u32) {
        match result {
            Ok(place) => {
                self.placed += 1;
                let entry = self.entries.get_mut(slot);
                (entry.state, entry.place) = (State::Installed, Some(place));
                if T::ANSWERS_LATER {
                    self.unconfirmed.push_back(self.entries.token(slot));
                } else {
                    self.confirmed(slot, now);
                }
                return;
            }
            // An earlier session of the same hosts and ports still has its entry.
            Err(Refusal::Exists) if !self.removals.is_empty() || !self.unremoved.is_empty() => {
                return self.installs.push_back(slot);
            }
            Err(refusal) => self.count_refusal(refusal),
        }
        self.refuse(slot);
    }

    /// Counts an entry that translates.
    fn confirmed(&mut self, slot: Slot, now: u32) {
        self.status.installed += 1;
        let waited = u64::from(now.wrapping_sub(self.entries.get(slot).offered_us));
        self.latency.saturating_record(waited);
        self.latency_sum += waited;
    }

    fn count_refusal(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Exists => self.status.refused_exists += 1,
            Refusal::Full => {
                self.status.refused_full += 1;
                self.full = Some((self.placed, self.now));
            }
            Refusal::Crowded => self.status.refused_crowded += 1,
            Refusal::Other(reason) => {
                self.status.refused_other += 1;
                self.status.last_refusal = reason;
            }
        }
    }

    /// Asks the target for the results of installations.
    pub(super) fn confirm_some(&mut self, clock: &dyn Fn() -> Duration) {
        let n = self.unconfirmed.len().min(CONFIRMATIONS);
        if n == 0 {
            return;
        }
        let is_placed = |token: &Token| {
            let place = self.entries.of(*token)?.place?;
            Some((*token, place))
        };
        let asked: Vec<_> = self.unconfirmed.drain(..n).collect::<Vec<_>>();
        let (tokens, places): (Vec<Token>, Vec<T::Id>) = asked.iter().filter_map(is_placed).unzip();
        let mut placed = Vec::with_capacity(n);
        self.target.placed(&places, &mut placed);
        let now = micros(clock());
        for (token, placement) in tokens.into_iter().zip(placed) {
            let slot = token.slot;
            match placement {
                Placement::Installed => self.confirmed(slot, now),
                Placement::Waiting => self.unconfirmed.push_back(token),
                Placement::Refused(..) if self.entries.get(slot).state != State::Installed => {}
                Placement::Refused(refusal, used) => {
                    let report = self.taken(slot, &used);
                    self.report(slot, report);
                    self.placed -= 1;
                    self.count_refusal(refusal);
                    self.refuse(slot);
                }
            }
        }
    }

    /// Releases sessions that wait for a target that takes no flows.
    fn refuse_some(&mut self) {
        for _ in 0..self.installs.len().min(INSTALLS) {
            let Some(slot) = self.installs.pop_front() else { break };
            if self.is_wanted(slot) {
                self.status.refused_unready += 1;
                self.refuse(slot);
            } else {
                self.drop_marked(slot);
            }
        }
    }

    /// Number of entries in the target that are not to be removed.
    fn staying(&self) -> usize {
        (self.placed as usize).saturating_sub(self.removals.len() + self.unremoved.len())
    }

    /// Releases a session that has no place.
    fn refuse(&mut self, slot: Slot) {
        self.order(slot, Order::Release(Report::default()));
        self.order(slot, Order::Count(LATER));
        self.entries.free(slot);
    }

    /// Removes entries, and then releases their sessions. Asks again for some whose removal is not confirmed.
    pub(super) fn remove_some(&mut self) {
        let new = self.removals.len().min(REMOVALS);
        let earlier = self.unremoved.len().min(REMOVALS);
        if new + earlier == 0 {
            return;
        }
        let slots: Vec<Slot> = self.removals.drain(..new).chain(self.unremoved.drain(..earlier)).collect();
        let places: Vec<T::Id> = slots.iter().filter_map(|&slot| self.entries.get(slot).place).collect();
        let mut removals = Vec::with_capacity(slots.len());
        self.target.remove(&places, &mut removals);
        removals.resize(slots.len(), Removal::Missing);
        for (slot, removal) in slots.into_iter().zip(removals) {
            match removal {
                Removal::Waiting => self.unremoved.push_back(slot),
                Removal::Removed(used) => self.removed(slot, Some(used)),
                Removal::Missing => self.removed(slot, None),
            }
        }
    }

    fn removed(&mut self, slot: Slot, used: Option<EntryUse>) {
        self.placed -= 1;
        self.status.removed += 1;
        self.status.vanished += u64::from(used.is_none());
        let Entry { bound, renew, is_evicted, .. } = *self.entries.get(slot);
        if bound {
            let mut report = self.taken(slot, &used.unwrap_or_default());
            if !self.rules.credit_removed {
                report.traffic = Default::default();
            }
            if !self.rules.report_last {
                report.seen = [None, None];
            }
            if renew {
                self.report(slot, report);
                return self.renew(slot);
            }
            self.order(slot, Order::Release(report));
            if is_evicted {
                self.order(slot, Order::Count(LATER));
            }
        } else if let Some(used) = used {
            self.status.uncredited_packets += used.traffic.total().packets;
        }
        self.entries.free(slot);
    }

    /// Marks a session again, with the present epoch, and installs it then.
    fn renew(&mut self, slot: Slot) {
        let entry = self.entries.get_mut(slot);
        (entry.state, entry.place, entry.active) = (State::Marking, None, [false; 2]);
        (entry.epoch, entry.renew) = (self.settings.epoch, true);
        self.marking += 1;
        self.order(slot, Order::Mark(self.settings.epoch));
    }

    /// Takes note of an entry's use. Returns what its engine does not know.
    pub(super) fn taken(&mut self, slot: Slot, used: &EntryUse) -> Report {
        let entry = self.entries.get_mut(slot);
        let packets = [used.traffic.outbound.packets, used.traffic.inbound.packets];
        for (active, packets) in entry.active.iter_mut().zip(packets) {
            *active |= packets > 0;
        }
        let ms = |ago: Duration| u32::try_from(ago.as_millis()).unwrap_or(u32::MAX);
        let [out, back] = entry.active;
        let [out_ago, back_ago] = used.seen_ago.map(ms);
        Report { traffic: used.traffic, seen: [out.then_some(out_ago), back.then_some(back_ago)] }
    }

    /// Answers questions of the engines: by the last packets of an entry, or by its removal.
    pub(super) fn answer_questions(&mut self) {
        let n = self.asked.len().min(QUESTIONS);
        if n == 0 {
            return;
        }
        // An entry that is being removed has no answer now. Its session may get another entry, and the engine
        // asks again: so what leaves the queue counts as not asked.
        let is_asked = |slot: &Slot| {
            let entry = self.entries.get_mut(*slot);
            std::mem::take(&mut entry.asked) && entry.state == State::Installed
        };
        let slots: Vec<Slot> = self.asked.drain(..n).filter(is_asked).collect();
        for (slot, used) in self.use_of(slots) {
            let Some(used) = used else {
                self.retire(slot);
                continue;
            };
            let report = self.taken(slot, &used);
            if used.is_closing || self.rules.ask_target && !self.extends(slot) {
                // What it was used for goes along with the release.
                self.report(slot, Report { seen: [None, None], ..report });
                self.retire(slot);
                continue;
            }
            self.entries.get_mut(slot).active = [false; 2];
            self.status.seen += 1;
            let seen = if self.rules.ask_target { report.seen } else { [Some(0), Some(0)] };
            self.order(slot, Order::Report(Report { seen, ..report }));
        }
    }

    /// Returns whether packets since the last answer extend the lifetime of a session.
    fn extends(&self, slot: Slot) -> bool {
        let entry = self.entries.get(slot);
        let instance = self.settings.instances.get(usize::from(entry.id.flow.instance));
        let [out, back] = entry.active;
        out || back && instance.is_some_and(|instance| instance.inbound_refresh)
    }

    /// Takes the use of installed entries.
    pub(super) fn use_of(&mut self, slots: Vec<Slot>) -> Vec<(Slot, Option<EntryUse>)> {
        let places: Vec<T::Id> = slots.iter().filter_map(|&slot| self.entries.get(slot).place).collect();
        let mut used = Vec::with_capacity(places.len());
        self.target.take_use(&places, &mut used);
        used.resize(slots.len(), None);
        slots.into_iter().zip(used).collect()
    }
}
