//! Requests to switches: changes in the order of their queue, and counters.

use super::{BATCH, Phase, Sent, State, Switches};
use crate::flow::{Direction, key};
use crate::link::{Link, Request, Write};
use std::time::Duration;

/// Maximum number of flows whose counters are read by one request.
const COUNTED: usize = BATCH / 2;
/// Maximum number of them whose counters are read for the first time.
const FIRST_COUNTED: usize = COUNTED * 3 / 4;
/// Minimum duration of a round over all counters.
const ROUND: Duration = Duration::from_secs(2);
/// Maximum number of flows of a round per second.
const COUNTED_PER_SECOND: u64 = 50_000;
/// Maximum number of flows that one turn looks at for a request.
const LOOK: usize = 8192;
/// Minimum time between two requests of a kind, unless the next one is full. A request costs controller and
/// switch as much as some tens of changes, and without a pace each new flow would have requests of its own.
pub(super) const PACE: Duration = Duration::from_millis(5);

/// Requests of a kind.
#[derive(Default)]
pub(super) struct Paced {
    /// Time of the last one.
    last: Option<Duration>,
}

impl Paced {
    /// Returns whether the next request may be sent. It would have `waiting` changes or counters.
    fn is_due(&self, now: Duration, pace: Duration, waiting: usize) -> bool {
        waiting >= BATCH || self.last.is_none_or(|last| now.saturating_sub(last) >= pace)
    }
}

impl<L: Link> Switches<L> {
    /// Sends the next changes, if the switch has answered the last ones.
    pub(super) fn write_some(&mut self, k: usize) {
        let switch = &mut self.switches[k];
        let waiting = switch.strays.len() + 2 * (switch.queue.len() + switch.changed.len());
        if switch.phase != Phase::Ready
            || !switch.sent.is_empty()
            || !switch.writes.is_due(self.now, self.pace, waiting)
        {
            return;
        }
        let mut writes = Vec::new();
        while writes.len() + 2 <= BATCH
            && let Some(stray) = switch.strays.pop_front()
        {
            writes.push(Write::Delete(stray));
            switch.sent.push(Sent::Stray);
        }
        self.end_moves(k, &mut writes);
        while writes.len() + 2 <= BATCH
            && let Some((slot, life)) = self.switches[k].queue.pop_front()
        {
            self.write_flow(k, slot, life, &mut writes);
        }
        while writes.len() + 2 <= BATCH
            && let Some((slot, life)) = self.switches[k].changed.pop_front()
        {
            self.modify_flow(k, (slot, life), &mut writes);
        }
        let switch = &mut self.switches[k];
        if !writes.is_empty() {
            switch.writes.last = Some(self.now);
            switch.link.send(switch.connection, Request::Write(writes));
        }
    }

    fn write_flow(&mut self, k: usize, slot: u32, life: u32, writes: &mut Vec<Write>) {
        let place = &self.flows[slot as usize];
        let Some(occupant) = place.occupant.as_ref().filter(|_| place.life == life) else { return };
        let flow = occupant.flow;
        match occupant.states[k] {
            State::InsertQueued if !self.switches[k].counters.are_known(slot) => {
                self.switches[k].unread.push_back((slot, life));
            }
            State::InsertQueued => {
                self.begin_move(slot, k);
                writes.extend(self.entries_of(slot, k).into_iter().flatten().map(Write::Insert));
                self.switches[k].sent.push(Sent::Insert(slot));
                self.set_state(slot, k, State::InsertSent);
            }
            State::DeleteQueued => {
                writes.extend(Direction::ALL.map(|direction| Write::Delete(key(&flow, direction))));
                self.switches[k].sent.push(Sent::Delete(slot));
                self.set_state(slot, k, State::DeleteSent);
            }
            _ => {}
        }
    }

    fn modify_flow(&mut self, k: usize, (slot, life): (u32, u32), writes: &mut Vec<Write>) {
        let place = &self.flows[slot as usize];
        let Some(occupant) = place.occupant.as_ref().filter(|_| place.life == life) else { return };
        if occupant.states[k] == State::Present {
            writes.extend(self.entries_of(slot, k).into_iter().flatten().map(Write::Modify));
            self.switches[k].sent.push(Sent::Modify);
        }
    }

    /// Requests counters: of deleted flows first, then of those that are read for the first time, and then
    /// those that are due.
    pub(super) fn count_some(&mut self, k: usize) {
        let switch = &mut self.switches[k];
        let waiting = 2 * (switch.uncounted.len() + switch.unread.len());
        if switch.phase != Phase::Ready
            || switch.is_counting
            || !switch.counts.is_due(self.now, self.pace, waiting)
        {
            return;
        }
        let n = switch.uncounted.len().min(COUNTED);
        switch.last_counted = switch.uncounted.drain(..n).collect();
        let mut slots = switch.last_counted.clone();
        // An entry of nobody uses the counter of its slot until it is deleted.
        let has_strays = !switch.strays.is_empty() || switch.sent.iter().any(|s| matches!(s, Sent::Stray));
        if !has_strays {
            let n = switch.unread.len().min(FIRST_COUNTED.min(COUNTED - n));
            switch.first_counted = switch.unread.drain(..n).collect();
            slots.extend(switch.first_counted.iter().map(|(slot, _)| slot));
        }
        self.count_due(k, &mut slots);
        let switch = &mut self.switches[k];
        if !slots.is_empty() {
            switch.is_counting = true;
            switch.counts.last = Some(self.now);
            switch.link.send(switch.connection, Request::Count(slots));
        }
    }

    /// Adds flows of the present round whose turn has come.
    fn count_due(&mut self, k: usize, slots: &mut Vec<u32>) {
        let high = self.flows.len();
        let pace = ROUND.max(Duration::from_secs(high as u64 / COUNTED_PER_SECOND));
        let (mut at, mut began) = self.switches[k].round;
        let passed = self.now.saturating_sub(began);
        if at >= high && passed >= pace {
            (at, began) = (0, self.now);
            self.switches[k].rounds += 1;
        }
        let part = self.now.saturating_sub(began).as_secs_f64() / pace.as_secs_f64();
        let due = ((high as f64 * part.min(1.0)).ceil() as usize).min(at.saturating_add(LOOK));
        while at < due && slots.len() < COUNTED {
            if self.state(at as u32, k) == State::Present {
                slots.push(at as u32);
            }
            at += 1;
        }
        self.switches[k].round = (at, began);
    }
}
