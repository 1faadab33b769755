//! Moves of flows into a switch: their packets overtake none that the engine still has (decision 0111).
//!
//! ```text
//!   inserted with a generation -> pending -> PENDING_MAX after the answer -> changed to 0
//! ```
//! Packets of a pending entry go to the engine until one arrives while none of the flow is on its way
//! through it. The switch decides that by registers, whose places several flows share: a flow has another
//! generation than the last one of its place. The account only ends what is still pending after
//! [`PENDING_MAX`].

use super::{BATCH, Sent, State, Switches};
use crate::flow::Direction;
use crate::link::{FlowEntry, Link, Write};
use std::collections::VecDeque;
use std::time::Duration;

/// Longest time that an entry stays pending after the switch has confirmed it. A flow with pauses as long as
/// the way through the engine, at most some tens of milliseconds, has moved long before; one without such
/// pauses has to move at last, and may be reordered then. The longer the time, the more packets are the
/// engine's, and the more changes wait.
pub const PENDING_MAX: Duration = Duration::from_secs(1);

/// Places of a program's registers for flows, each with one for each direction (`PENDING` in
/// `p4/gatun.p4`).
const PLACES: usize = 1 << 16;
/// Maximum number of moves in a request, so that insertions and removals have the other half of it.
const MOVES: usize = BATCH / 4;

/// Moves into one switch.
pub(super) struct Moves {
    /// Flows that are pending, with their lives, and the times when that ends, in this order.
    ends: VecDeque<(u32, u32, Duration)>,
    /// Last generation of each place; 0 if this process has used none.
    last: Vec<u8>,
    /// First generation of a place, by chance: an earlier process may have used any.
    first: u8,
}

impl Moves {
    pub(super) fn new(chance: u64) -> Moves {
        Moves { ends: VecDeque::new(), last: Vec::new(), first: after(chance as u8) }
    }

    /// Another generation than the last one of the flow's place.
    fn next_generation(&mut self, slot: u32) -> u8 {
        let first = self.first;
        let last = self.last(slot);
        *last = if *last == 0 { first } else { after(*last) };
        *last
    }

    /// Takes note of a generation that an entry has.
    pub(super) fn note_generation(&mut self, slot: u32, generation: u8) {
        if generation > 0 {
            *self.last(slot) = generation;
        }
    }

    fn last(&mut self, slot: u32) -> &mut u8 {
        let place = slot as usize % PLACES;
        if self.last.len() <= place {
            self.last.resize(place + 1, 0);
        }
        &mut self.last[place]
    }

    /// Forgets what is pending: the connection has ended.
    pub(super) fn clear(&mut self) {
        self.ends.clear();
    }

    /// Takes the next flow whose time has come.
    fn pop_due(&mut self, now: Duration) -> Option<(u32, u32)> {
        let (slot, life, _) = self.ends.pop_front_if(|(_, _, end)| *end <= now)?;
        Some((slot, life))
    }
}

/// The generation after another one: 1 to 255, and again from 1.
fn after(generation: u8) -> u8 {
    generation % u8::MAX + 1
}

impl<L: Link> Switches<L> {
    /// Gives a flow a new generation in a switch, with which its entries are inserted.
    pub(super) fn begin_move(&mut self, slot: u32, k: usize) {
        let generation = self.switches[k].moves.next_generation(slot);
        self.set_pending(slot, k, generation);
    }

    /// Plans the end of a move, if the entries that the switch has are pending.
    pub(super) fn plan_end_of_move(&mut self, slot: u32, k: usize) {
        if !self.is_moving(slot, k) || !self.rules.end_pending {
            return;
        }
        let life = self.flows[slot as usize].life;
        let end = self.now + PENDING_MAX;
        if self.switches[k].moves.ends.len() >= 2 * self.flows.len() {
            self.forget_ended_moves(k);
        }
        self.switches[k].moves.ends.push_back((slot, life, end));
    }

    /// Forgets flows that have left the switch while they were pending. At most as many as there are flows
    /// remain, so the work is constant for each move.
    fn forget_ended_moves(&mut self, k: usize) {
        let mut ends = std::mem::take(&mut self.switches[k].moves.ends);
        ends.retain(|&(slot, life, _)| self.flows[slot as usize].life == life && self.is_moving(slot, k));
        self.switches[k].moves.ends = ends;
    }

    /// Changes entries whose time has come, so that they translate every packet.
    pub(super) fn end_moves(&mut self, k: usize, writes: &mut Vec<Write>) {
        let now = self.now;
        let full = writes.len() + 2 * MOVES;
        while writes.len() < full.min(BATCH - 1)
            && let Some((slot, life)) = self.switches[k].moves.pop_due(now)
        {
            if self.flows[slot as usize].life != life || !self.is_moving(slot, k) {
                continue;
            }
            let generation = self.set_pending(slot, k, 0);
            writes.extend(self.entries_of(slot, k).into_iter().flatten().map(Write::Modify));
            self.switches[k].sent.push(Sent::EndOfMove(slot, generation));
        }
    }

    /// Both entries of a flow as a switch is to have them.
    pub(super) fn entries_of(&self, slot: u32, k: usize) -> Option<[FlowEntry; 2]> {
        let occupant = self.flows[slot as usize].occupant.as_ref()?;
        let (flow, pending) = (occupant.flow, occupant.pending[k]);
        Some(Direction::ALL.map(|direction| FlowEntry { slot, direction, flow, pending }))
    }

    /// Returns whether a switch has the flow, and its entries are pending.
    pub(super) fn is_moving(&self, slot: u32, k: usize) -> bool {
        let occupant = self.flows[slot as usize].occupant.as_ref();
        occupant.is_some_and(|occupant| occupant.is_moving(k))
    }

    /// Sets the generation of a flow's entries in a switch. Returns the last one.
    pub(super) fn set_pending(&mut self, slot: u32, k: usize, generation: u8) -> u8 {
        let Some(occupant) = &mut self.flows[slot as usize].occupant else { return 0 };
        let was_moving = occupant.is_moving(k);
        let last = std::mem::replace(&mut occupant.pending[k], generation);
        let is_moving = occupant.is_moving(k);
        self.count_moving(k, was_moving, is_moving);
        last
    }

    /// Keeps the number of flows that are moving.
    pub(super) fn count_moving(&mut self, k: usize, was_moving: bool, is_moving: bool) {
        let gauge = &mut self.switches[k].status.moving;
        *gauge = (*gauge + u32::from(is_moving)).saturating_sub(u32::from(was_moving));
    }
}

impl super::Occupant {
    /// Returns whether a switch has it, and its entries are pending.
    pub(super) fn is_moving(&self, k: usize) -> bool {
        self.states[k] == State::Present && self.pending[k] != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switches::scripted::{ScriptedLink, flow};

    #[test]
    fn ends_of_flows_that_have_left_need_no_room() {
        let mut account = Switches::new(vec![("edge".to_owned(), ScriptedLink::default())], 10);
        account.flows.resize_with(4, Default::default);
        for _ in 0..1000 {
            account.occupy(2, &flow());
            account.begin_move(2, 0);
            account.set_state(2, 0, State::Present);
            account.plan_end_of_move(2, 0);
            assert_eq!(account.switches[0].status.moving, 1);
            assert!(account.switches[0].moves.ends.len() <= 8, "two for each of four flows");
            account.vacate(2);
        }
        assert_eq!(account.switches[0].status.moving, 0);
    }

    #[test]
    fn a_place_has_another_generation_than_its_last_flow_and_never_zero() {
        for chance in [0, 7, 254, 255, u64::MAX] {
            let mut moves = Moves::new(chance);
            // Both flows share a place.
            let (one, other) = (5, 5 + PLACES as u32);
            let mut last = 0;
            for n in 0..600 {
                let generation = moves.next_generation(if n % 3 == 0 { one } else { other });
                assert!(generation != 0 && generation != last, "{generation} after {last}");
                last = generation;
            }
        }
    }

    #[test]
    fn a_generation_that_was_found_is_not_the_next_one() {
        let mut moves = Moves::new(9);
        let first = moves.next_generation(0);
        moves.note_generation(1, first);
        moves.note_generation(1, 0);
        assert_ne!(moves.next_generation(1), first);
        moves.note_generation(2, 255);
        assert_eq!(moves.next_generation(2), 1);
    }
}
