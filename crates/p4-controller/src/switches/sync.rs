//! Reconciliation: reads what a switch has after each connection, and writes the difference.

use super::{FoundFlow, Phase, Slot, State, Switches};
use crate::flow::{Direction, key};
use crate::link::{FlowEntry, Found, Link};
use gatun_offload::OffloadedFlow;

/// Maximum number of entries that belong to nobody. A switch with more gets no flows.
const STRAYS_MAX: usize = 4_194_304;

impl<L: Link> Switches<L> {
    pub(super) fn connected(&mut self, k: usize, connection: u64, is_empty: bool, capacity: u32) {
        let switch = &mut self.switches[k];
        (switch.connection, switch.capacity) = (connection, capacity);
        switch.status.connections += 1;
        switch.strays.clear();
        switch.found.clear();
        if is_empty {
            switch.counters.begin();
        } else {
            let mut counters = std::mem::take(&mut switch.counters);
            counters.keep(self.flows.len(), |slot| self.state(slot, k) != State::Absent);
            self.switches[k].counters = counters;
        }
        self.enter_phase(k, Phase::Reading);
    }

    pub(super) fn found(&mut self, k: usize, found: &[Found]) {
        for entry in found {
            let known =
                entry.entry.filter(|of| of.slot < self.flows_max && key(&of.flow, of.direction) == entry.key);
            let switch = &mut self.switches[k];
            if let Some(FlowEntry { slot, direction, flow, pending }) = known {
                switch.moves.note_generation(slot, pending);
                let of = switch.found.entry(slot).or_insert(FoundFlow { flow, directions: 0, pending: 0 });
                if of.flow == flow {
                    of.directions |= direction.bit();
                    // One of the two may have been changed before the connection was lost.
                    of.pending = of.pending.max(pending);
                    continue;
                }
            }
            switch.strays.push_back(entry.key);
        }
        if self.switches[k].strays.len() > STRAYS_MAX {
            self.reconnect(k, format!("more than {STRAYS_MAX} entries of another controller"));
        }
    }

    /// Compares what was found with the flows of the account, and queues the difference.
    pub(super) fn all_found(&mut self, k: usize) {
        let found = std::mem::take(&mut self.switches[k].found);
        let mut having = vec![(0, 0); self.flows.len()];
        for (slot, FoundFlow { flow, directions: bits, pending }) in found {
            let occupant = self.flows.get(slot as usize).and_then(|slot| slot.occupant.as_ref());
            let is_same = occupant.is_some_and(|occupant| occupant.flow == flow);
            if is_same || bits == Direction::BOTH && self.adopt(slot, &flow) {
                having.resize(having.len().max(self.flows.len()), (0, 0));
                having[slot as usize] = (bits, pending);
            } else {
                self.stray(k, &flow, bits);
            }
        }
        if !self.rules.delete_strays {
            self.switches[k].strays.clear();
        }
        self.enter_phase(k, Phase::Ready);
        for (slot, found) in (0u32..).zip(having) {
            self.reconcile(k, slot, found);
        }
        let status = &mut self.switches[k].status;
        status.found = status.flows;
        self.switches[k].round = (0, self.now);
    }

    /// Queues the difference of a flow from what was found: its directions, and its generation.
    fn reconcile(&mut self, k: usize, slot: u32, (bits, pending): (u8, u8)) {
        let Some(occupant) = &self.flows[slot as usize].occupant else { return };
        let is_wanted = !occupant.is_removing && occupant.refusal.is_none();
        let flow = occupant.flow;
        match (is_wanted, bits) {
            (true, Direction::BOTH) => {
                self.set_state(slot, k, State::Present);
                self.set_pending(slot, k, pending);
                self.plan_end_of_move(slot, k);
                self.read_first(slot, k);
            }
            (true, _) if !self.rules.write_missing => self.set_state(slot, k, State::Present),
            (true, _) => {
                self.stray(k, &flow, bits);
                self.enqueue(slot, k, State::InsertQueued);
            }
            // It was deleted after its counters were last read.
            (false, 0) if self.switches[k].counters.are_known(slot) => self.count_last(slot, k),
            (false, 0) => self.set_state(slot, k, State::Absent),
            (false, _) => self.enqueue(slot, k, State::DeleteQueued),
        }
    }

    /// Queues the first reading of a flow's counters, if they are not known.
    fn read_first(&mut self, slot: u32, k: usize) {
        let life = self.flows[slot as usize].life;
        let switch = &mut self.switches[k];
        if !switch.counters.are_known(slot) {
            switch.unread.push_back((slot, life));
        }
    }

    fn stray(&mut self, k: usize, flow: &OffloadedFlow, bits: u8) {
        let found = Direction::ALL.into_iter().filter(|direction| bits & direction.bit() != 0);
        self.switches[k].strays.extend(found.map(|direction| key(flow, direction)));
    }

    /// Takes over a flow of an earlier process, before the manager begins.
    fn adopt(&mut self, slot: u32, flow: &OffloadedFlow) -> bool {
        let is_known = Direction::ALL.iter().any(|direction| self.find(&key(flow, *direction)).is_some());
        let occupied = self.flows.get(slot as usize).is_some_and(|slot| slot.occupant.is_some());
        if self.is_started || !self.adopts || is_known || occupied {
            return false;
        }
        if self.flows.len() <= slot as usize {
            self.flows.resize_with(slot as usize + 1, Slot::default);
        }
        self.occupy(slot, flow);
        // All switches have the same flows.
        for k in 0..self.switches.len() {
            if self.switches[k].phase == Phase::Ready {
                self.enqueue(slot, k, State::InsertQueued);
            }
        }
        true
    }
}
