//! Messages from switches: results of changes, counters, and the end of a connection.

use super::{Phase, Sent, State, Switches};
use crate::flow::Direction;
use crate::link::{Counted, Event, Link, Request, WriteError};
use gatun_nat::counters::Count;
use gatun_offload::Refusal;

type Written = Result<(), WriteError>;

impl<L: Link> Switches<L> {
    pub(super) fn event(&mut self, k: usize, event: Event) {
        let phase = self.switches[k].phase;
        match event {
            Event::Connected { connection, is_empty, capacity } => {
                self.connected(k, connection, is_empty, capacity);
            }
            Event::Down(reason) => self.down(k, reason),
            Event::ProgramCounted(counts) => self.switches[k].status.program = counts,
            Event::Standby(reason) => {
                self.down(k, reason);
                if phase != Phase::Gone {
                    self.enter_phase(k, Phase::Standby);
                }
            }
            Event::Found(found) if phase == Phase::Reading => self.found(k, &found),
            Event::AllFound if phase == Phase::Reading => self.all_found(k),
            Event::Written(results) if phase == Phase::Ready => self.written(k, results),
            Event::Counted { counters, is_last } if phase == Phase::Ready => {
                counters.iter().for_each(|counted| self.counted(k, counted));
                if is_last {
                    self.all_counted(k);
                }
            }
            // Of an earlier connection.
            Event::Found(_) | Event::AllFound | Event::Written(_) | Event::Counted { .. } => {}
        }
    }

    /// Closes a connection whose switch does not do what it should. Reading it again shows what it has.
    pub(super) fn reconnect(&mut self, k: usize, reason: String) {
        let switch = &mut self.switches[k];
        switch.link.send(switch.connection, Request::Reconnect(reason.clone()));
        self.down(k, reason);
    }

    fn down(&mut self, k: usize, reason: String) {
        let switch = &mut self.switches[k];
        switch.status.reason = Some(reason);
        match switch.phase {
            Phase::Gone | Phase::Down => return,
            Phase::Standby => return self.enter_phase(k, Phase::Down),
            Phase::Reading | Phase::Ready => {}
        }
        switch.queue.clear();
        switch.changed.clear();
        switch.moves.clear();
        switch.strays.clear();
        switch.sent.clear();
        switch.uncounted.clear();
        switch.last_counted.clear();
        switch.unread.clear();
        switch.first_counted.clear();
        switch.is_counting = false;
        switch.found.clear();
        self.enter_phase(k, Phase::Down);
        if !self.rules.keep_unknown {
            return self.all_absent(k);
        }
        for slot in 0..self.flows.len() as u32 {
            match self.state(slot, k) {
                State::Absent | State::Unknown => {}
                // Nothing was sent, and nothing is to be counted.
                State::InsertQueued if !self.had(slot, k) => self.set_state(slot, k, State::Absent),
                // That includes `Counting`: the entries are gone, but the engine learns of their last packets
                // before the session is released.
                _ => self.set_state(slot, k, State::Unknown),
            }
        }
    }

    /// Returns whether a switch has had a flow since it was last absent from it.
    pub(super) fn had(&self, slot: u32, k: usize) -> bool {
        self.flows[slot as usize].occupant.as_ref().is_some_and(|occupant| occupant.had[k])
    }

    /// Takes note that a switch has no entry of a flow that it had. Its counters are read once more.
    pub(super) fn count_last(&mut self, slot: u32, k: usize) {
        if self.rules.count_removed {
            self.set_state(slot, k, State::Counting);
            self.switches[k].uncounted.push_back(slot);
        } else {
            self.set_state(slot, k, State::Absent);
        }
    }

    /// Takes note that a switch has no flow.
    pub(super) fn all_absent(&mut self, k: usize) {
        for slot in 0..self.flows.len() as u32 {
            if self.state(slot, k) != State::Absent {
                self.set_state(slot, k, State::Absent);
            }
        }
    }

    fn written(&mut self, k: usize, results: Vec<Written>) {
        let sent = std::mem::take(&mut self.switches[k].sent);
        let expected: usize = sent.iter().map(|sent| if matches!(sent, Sent::Stray) { 1 } else { 2 }).sum();
        if results.len() != expected {
            return self.reconnect(k, format!("{} results for {expected} changes", results.len()));
        }
        let mut results = results.into_iter();
        let mut next = || results.next().unwrap_or(Ok(()));
        for sent in sent {
            let done = match sent {
                Sent::Stray => self.deleted(k, None, [next(), Ok(())]),
                Sent::Insert(slot) => {
                    self.inserted(k, slot, [next(), next()]);
                    Ok(())
                }
                Sent::Modify => modified([next(), next()]),
                Sent::EndOfMove(slot, generation) => self.move_ended(k, (slot, generation), [next(), next()]),
                Sent::Delete(slot) => self.deleted(k, Some(slot), [next(), next()]),
            };
            if let Err(reason) = done {
                return self.reconnect(k, reason);
            }
        }
    }

    fn inserted(&mut self, k: usize, slot: u32, results: [Written; 2]) {
        let is_partly = results.iter().any(|result| matches!(result, Ok(()) | Err(WriteError::Exists)));
        let error = results.into_iter().find_map(Result::err);
        let Some(occupant) = self.flows[slot as usize].occupant.as_mut() else { return };
        let is_unwanted = occupant.is_removing || occupant.refusal.is_some();
        let Some(error) = error else {
            self.switches[k].status.inserted += 1;
            self.set_state(slot, k, State::Present);
            match is_unwanted {
                true => self.enqueue(slot, k, State::DeleteQueued),
                false => self.plan_end_of_move(slot, k),
            }
            return;
        };
        occupant.refusal.get_or_insert_with(|| Box::new(refusal(error)));
        self.switches[k].status.refused += 1;
        match is_partly {
            true => self.enqueue(slot, k, State::DeleteQueued),
            false if self.had(slot, k) && self.switches[k].counters.are_known(slot) => {
                self.count_last(slot, k);
            }
            false => self.set_state(slot, k, State::Absent),
        }
        // All switches have the same flows.
        self.withdraw(slot);
    }

    /// Takes note that a flow is pending no more. A switch that refuses the change goes on as before: the
    /// flow still moves when none of its packets is on the way. It is changed again after the next
    /// connection.
    fn move_ended(
        &mut self,
        k: usize,
        (slot, generation): (u32, u8),
        results: [Written; 2],
    ) -> Result<(), String> {
        if results.contains(&Err(WriteError::Missing)) {
            return modified(results);
        }
        if results.iter().any(Result::is_err) && self.state(slot, k) == State::Present {
            self.set_pending(slot, k, generation);
        }
        Ok(())
    }

    fn deleted(&mut self, k: usize, slot: Option<u32>, results: [Written; 2]) -> Result<(), String> {
        let failed = results.into_iter().find_map(|result| match result {
            Ok(()) | Err(WriteError::Missing) => None,
            Err(error) => Some(error),
        });
        if let Some(error) = failed {
            return Err(format!("an entry cannot be deleted: {}", describe(&error)));
        }
        match slot {
            None => self.switches[k].status.strays += 1,
            Some(slot) => {
                self.switches[k].status.deleted += 1;
                self.count_last(slot, k);
            }
        }
        Ok(())
    }

    /// Takes note of a counter, and adds what it has grown by to the use of its flow.
    fn counted(&mut self, k: usize, counted: &Counted) {
        if counted.slot as usize >= self.flows.len() {
            return;
        }
        let last = self.switches[k].counters.replace(counted.slot, counted.direction, counted.count);
        let Some(last) = last else { return };
        let now = self.now;
        let Some(occupant) = self.flows[counted.slot as usize].occupant.as_mut() else { return };
        if matches!(occupant.states[k], State::Absent | State::InsertQueued) && !occupant.had[k] {
            return;
        }
        // A switch that restarts begins at zero.
        let base = if counted.count.packets < last.packets { Count::default() } else { last };
        let grown = Count {
            packets: counted.count.packets - base.packets,
            bytes: counted.count.bytes.saturating_sub(base.bytes),
        };
        let untaken = match counted.direction {
            Direction::Outbound => &mut occupant.untaken.outbound,
            Direction::Inbound => &mut occupant.untaken.inbound,
        };
        // A switch may count anything.
        untaken.packets = untaken.packets.saturating_add(grown.packets);
        untaken.bytes = untaken.bytes.saturating_add(grown.bytes);
        if grown.packets > 0 {
            occupant.seen[counted.direction.index()] = now;
        }
    }

    fn all_counted(&mut self, k: usize) {
        let switch = &mut self.switches[k];
        switch.is_counting = false;
        for (slot, life) in std::mem::take(&mut switch.first_counted) {
            switch.counters.set_known(slot);
            // Nothing happens if it no longer waits for its insertion.
            switch.queue.push_back((slot, life));
        }
        for slot in std::mem::take(&mut switch.last_counted) {
            if self.state(slot, k) == State::Counting {
                self.set_state(slot, k, State::Absent);
            }
        }
    }
}

fn modified(results: [Written; 2]) -> Result<(), String> {
    let error = results.into_iter().find_map(Result::err);
    error.map_or(Ok(()), |error| Err(format!("an entry cannot be changed: {}", describe(&error))))
}

fn refusal(error: WriteError) -> Refusal {
    match error {
        WriteError::Exists => Refusal::Exists,
        WriteError::Full => Refusal::Full,
        WriteError::Missing => Refusal::Other("the switch does not know the table".to_owned()),
        WriteError::Other(reason) => Refusal::Other(reason),
    }
}

fn describe(error: &WriteError) -> &str {
    match error {
        WriteError::Exists => "it exists",
        WriteError::Missing => "it does not exist",
        WriteError::Full => "the table is full",
        WriteError::Other(reason) => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Key, key};
    use crate::link::{FlowEntry, Found};
    use crate::switches::FlowId;
    use crate::switches::scripted::{ScriptedLink, flow};
    use gatun_offload::{Placement, Removal, Target as _};
    use std::time::Duration;

    /// One of the entries of the flow.
    fn half() -> Found {
        let of = FlowEntry { slot: 0, direction: Direction::Inbound, flow: flow(), pending: 0 };
        Found { key: key(&flow(), Direction::Inbound), entry: Some(of) }
    }

    struct Bed {
        link: ScriptedLink,
        account: Switches<ScriptedLink>,
        id: Option<FlowId>,
        now: Duration,
    }

    impl Bed {
        /// A switch that has the flow, and has counted three packets in each direction.
        fn new() -> Bed {
            let link = ScriptedLink::default();
            let account = Switches::new(vec![("edge".to_owned(), link.clone())], 100);
            let mut bed = Bed { link, account, id: None, now: Duration::ZERO };
            bed.link
                .push([Event::Connected { connection: 1, is_empty: true, capacity: 100 }, Event::AllFound]);
            bed.turn();
            bed.account.entries(&mut |_, _| ());
            let mut placed = Vec::new();
            bed.account.install(&[flow()], &mut placed);
            bed.id = placed.remove(0).ok();
            (0..3).for_each(|_| bed.serve(3, false));
            assert_eq!(bed.account.switches[0].status.flows, 1);
            bed
        }

        fn turn(&mut self) {
            self.now += Duration::from_millis(10);
            self.account.turn(self.now);
        }

        fn serve(&mut self, packets: u64, refuses: bool) {
            self.turn();
            self.link.serve(packets, refuses);
            self.turn();
        }

        fn removal(&mut self) -> Removal {
            let mut removals = Vec::new();
            self.account.remove(&[self.id.unwrap()], &mut removals);
            removals.remove(0)
        }
    }

    /// The connection ends after the answer to the deletion, and before the last counters are read.
    #[test]
    fn the_last_packets_of_a_deleted_flow_are_counted_by_the_next_connection() {
        let mut bed = Bed::new();
        assert_eq!(bed.removal(), Removal::Waiting);
        bed.serve(3, false);
        assert_eq!(bed.account.state(0, 0), State::Counting);
        bed.link.reconnect(Vec::new());
        bed.turn();
        assert_eq!(bed.removal(), Removal::Waiting, "its counters are to be read");
        bed.serve(7, false);
        let Removal::Removed(used) = bed.removal() else { panic!("it is not removed") };
        let all = Count { packets: 7, bytes: 700 };
        assert_eq!((used.traffic.outbound, used.traffic.inbound), (all, all));
    }

    /// Another controller has removed an entry. The switch refuses to get the flow again.
    #[test]
    fn packets_of_a_flow_that_is_refused_when_it_is_written_again_are_counted() {
        let mut bed = Bed::new();
        bed.link.reconnect(vec![half()]);
        (0..4).for_each(|_| bed.serve(7, true));
        let mut placed = Vec::new();
        bed.account.placed(&[bed.id.unwrap()], &mut placed);
        let Placement::Refused(Refusal::Full, used) = placed.remove(0) else { panic!("it is not refused") };
        assert_eq!(used.traffic.inbound, Count { packets: 7, bytes: 700 });
    }

    /// The switch has so many entries of nobody that the flow's half is not deleted by the first request.
    #[test]
    fn a_flow_is_not_absent_while_one_of_its_entries_waits_for_its_deletion() {
        let mut bed = Bed::new();
        let stray = |port| {
            let Found { key: Key { source, destination, transport }, .. } = half();
            let key = Key { source, destination: (destination.0, port), transport };
            Found { key, entry: None }
        };
        bed.link.reconnect((2000..4100).map(stray).chain([half()]).collect());
        bed.turn();
        assert_eq!(bed.account.state(0, 0), State::InsertQueued);
        for _ in 0..2 {
            assert_eq!(bed.removal(), Removal::Waiting);
            bed.serve(3, false);
        }
        (0..4).for_each(|_| bed.serve(3, false));
        assert!(matches!(bed.removal(), Removal::Removed(_)));
    }
}
