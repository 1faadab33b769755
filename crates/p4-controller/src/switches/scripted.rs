//! A switch whose answers are written by a test.

use crate::flow::Direction;
use crate::link::{Counted, Event, Found, Link, Request, Write, WriteError};
use gatun_nat::counters::Count;
use gatun_nat::feed::{Flow, SessionId};
use gatun_nat::plan::Transport;
use gatun_offload::OffloadedFlow;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::rc::Rc;

/// Events that the account has not heard of yet, and requests of the switch.
#[derive(Clone, Default)]
pub(super) struct ScriptedLink(Rc<RefCell<(VecDeque<Event>, VecDeque<Request>)>>);

impl Link for ScriptedLink {
    fn send(&mut self, _: u64, request: Request) {
        self.0.borrow_mut().1.push_back(request);
    }

    fn receive(&mut self) -> Option<Event> {
        self.0.borrow_mut().0.pop_front()
    }
}

impl ScriptedLink {
    pub(super) fn push(&self, events: impl IntoIterator<Item = Event>) {
        self.0.borrow_mut().0.extend(events);
    }

    /// Answers requests: changes succeed, or are refused; each counter has counted as many packets.
    pub(super) fn serve(&self, packets: u64, refuses: bool) {
        let requests: Vec<_> = self.0.borrow_mut().1.drain(..).collect();
        let result = |write: &Write| match write {
            Write::Insert(_) if refuses => Err(WriteError::Full),
            _ => Ok(()),
        };
        let event = |request| match request {
            Request::Write(writes) => Event::Written(writes.iter().map(result).collect()),
            Request::Count(slots) => {
                let count = Count { packets, bytes: 100 * packets };
                let of = |slot| Direction::ALL.map(|direction| Counted { slot, direction, count });
                Event::Counted { counters: slots.into_iter().flat_map(of).collect(), is_last: true }
            }
            Request::Reconnect(reason) => panic!("{reason}"),
        };
        self.push(requests.into_iter().map(event));
    }

    /// The connection ends, and another one finds these entries.
    pub(super) fn reconnect(&self, found: Vec<Found>) {
        self.push([Event::Down("cut".to_owned())]);
        self.0.borrow_mut().1.clear();
        let connected = Event::Connected { connection: 2, is_empty: false, capacity: 100 };
        self.push([connected, Event::Found(found), Event::AllFound]);
    }
}

/// A session of one TCP connection.
pub(super) fn flow() -> OffloadedFlow {
    let flow = Flow {
        inside: (Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped(), 5000),
        outside: (Ipv4Addr::new(192, 0, 2, 1), 1024),
        remote: (Ipv4Addr::new(198, 51, 100, 7), 443),
        transport: Transport::Tcp,
        instance: 0,
    };
    let session = SessionId { record: 1, flow };
    OffloadedFlow { session, worker: 0, epoch: 0, remote6: None, path_mtu: None }
}
