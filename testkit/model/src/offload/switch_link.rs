//! The controller's connection to a switch, and packets through switches.

use super::table::{Entries, Key};
use gatun_p4_controller::flow::{self, Direction};
use gatun_p4_controller::link::{Counted, Event, Link, Request};
use std::cell::RefCell;
use std::rc::Rc;

/// The controller's end of the connection to a switch.
pub(super) struct SwitchLink {
    table: Rc<RefCell<Entries>>,
    number: usize,
}

impl SwitchLink {
    pub(super) fn new(table: &Rc<RefCell<Entries>>, number: usize) -> SwitchLink {
        SwitchLink { table: Rc::clone(table), number }
    }
}

impl Link for SwitchLink {
    fn send(&mut self, connection: u64, request: Request) {
        let switch = &mut self.table.borrow_mut().switches[self.number];
        switch.take(connection, request);
    }

    fn receive(&mut self) -> Option<Event> {
        let entries = &mut *self.table.borrow_mut();
        let event = entries.switches[self.number].next_event()?;
        if matches!(event, Event::Written(_) | Event::AllFound) {
            entries.switches[self.number].tell(entries.now);
        }
        if let Event::Counted { counters, .. } = &event {
            entries.note_last(self.number, counters);
        }
        Some(event)
    }
}

impl Entries {
    /// Takes note of the packets that the controller knows of now.
    fn note_last(&mut self, number: usize, counters: &[Counted]) {
        for counted in counters.iter().filter(|counted| counted.direction == Direction::Outbound) {
            if let Some((at, of)) = self.switches[number].last(counted) {
                self.last.insert(of, at);
            }
        }
    }

    /// Translates a packet by one of the switches, if it has an entry for it.
    pub(super) fn translate_in_switch(&mut self, key: &Key, bytes: u64, ends: bool) -> bool {
        let number = (self.translated + self.now) as usize % self.switches.len();
        let now = self.now;
        let (source, destination, transport) = *key;
        let key = flow::Key { source, destination, transport };
        if !self.switches[number].translate(key, bytes, ends, now) {
            return false;
        }
        self.translated += 1;
        true
    }
}
