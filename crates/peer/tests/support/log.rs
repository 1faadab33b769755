//! Log of an engine's public ports, by its events: each use has a beginning and an end.

use super::Translation;
use gatun_nat::plan::{EventPlan, Transport};
use gatun_nat::{EventKind, EventKinds, EventReader, Nat};
use std::collections::BTreeSet;

/// Events of ports: what a log keeps.
pub const EVENTS: EventPlan = EventPlan {
    kinds: EventKinds::NONE
        .with(EventKind::BindingCreated)
        .with(EventKind::BindingKept)
        .with(EventKind::BindingDeleted),
    ring_len: 1_024,
    state_ring_len: 1_024,
    destinations: false,
    threshold: 90,
};

pub struct PortLog {
    reader: EventReader,
    /// Ports in use.
    open: BTreeSet<Translation>,
    /// The first contradiction.
    broken: Option<String>,
}

impl PortLog {
    pub fn new(nat: &mut Nat) -> PortLog {
        let reader = nat.take_events().expect("a plan with events");
        PortLog { reader, open: BTreeSet::new(), broken: None }
    }

    /// Reads what the engine has reported since.
    pub fn read(&mut self) {
        while let Some(event) = self.reader.next() {
            let mut transports = Transport::ALL.into_iter().zip(event.transports());
            let (transport, _) = transports.find(|(_, is_of)| *is_of).expect("a transport");
            let outside = (event.outside(), event.outside_port);
            let one = Translation::new(transport, outside, (event.inside(), event.inside_port));
            let fits = match event.kind {
                EventKind::BindingDeleted => self.open.remove(&one),
                _ => self.open.insert(one),
            };
            if !fits {
                self.broken.get_or_insert(format!("the log has {event:?}, and before it {:?}", self.open));
            }
        }
    }

    /// Ports in use, by the log.
    ///
    /// # Errors
    /// Names a use that begins twice, or ends without a beginning.
    pub fn check(&self) -> Result<&BTreeSet<Translation>, String> {
        self.broken.clone().map_or(Ok(&self.open), Err)
    }
}
