//! Pending entries of flows that move into a switch, in virtual time.
#![allow(missing_docs)]

use gatun_nat::feed::{Flow, SessionId};
use gatun_nat::plan::Transport;
use gatun_offload::{OffloadedFlow, Placement, Removal, Target as _};
use gatun_p4_controller::flow::{Direction, Key, key};
use gatun_p4_controller::link::{Counted, Event, FlowEntry, Found, Link, Request, Write, WriteError};
use gatun_p4_controller::{BATCH, FlowId, PENDING_MAX, Phase, Switches};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A switch that executes what it is asked for when it is told to.
#[derive(Default)]
struct Switch {
    entries: BTreeMap<Key, FlowEntry>,
    connection: u64,
    requests: VecDeque<Request>,
    events: VecDeque<Event>,
    /// Answer to each change of an entry.
    refusal: Option<WriteError>,
    /// Changes of entries in their order, of both directions together.
    modified: Vec<FlowEntry>,
    reconnects: Vec<String>,
}

impl Switch {
    fn connect(&mut self) {
        self.connection += 1;
        self.requests.clear();
        let connection = self.connection;
        let is_empty = connection == 1 && self.entries.is_empty();
        self.events.push_back(Event::Connected { connection, is_empty, capacity: 100_000 });
        let found = self.entries.iter().map(|(&key, &of)| Found { key, entry: Some(of) });
        self.events.push_back(Event::Found(found.collect()));
        self.events.push_back(Event::AllFound);
    }

    fn serve(&mut self) {
        while let Some(request) = self.requests.pop_front() {
            match request {
                Request::Write(writes) => {
                    let results = writes.iter().map(|write| self.write(write)).collect();
                    self.events.push_back(Event::Written(results));
                }
                Request::Count(slots) => {
                    let both = |slot| Direction::ALL.map(|direction| (slot, direction));
                    let zero = |(slot, direction)| Counted { slot, direction, count: Default::default() };
                    let counters = slots.into_iter().flat_map(both).map(zero).collect();
                    self.events.push_back(Event::Counted { counters, is_last: true });
                }
                Request::Reconnect(reason) => self.reconnects.push(reason),
            }
        }
    }

    fn write(&mut self, write: &Write) -> Result<(), WriteError> {
        match write {
            Write::Insert(of) => _ = self.entries.insert(key(&of.flow, of.direction), *of),
            Write::Modify(of) => {
                if let Some(refusal) = &self.refusal {
                    return Err(refusal.clone());
                }
                self.modified.push(*of);
                *self.entries.get_mut(&key(&of.flow, of.direction)).ok_or(WriteError::Missing)? = *of;
            }
            Write::Delete(key) => _ = self.entries.remove(key).ok_or(WriteError::Missing)?,
        }
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Switch>>);

impl Link for Shared {
    fn send(&mut self, connection: u64, request: Request) {
        let mut switch = self.0.borrow_mut();
        assert_eq!(switch.connection, connection);
        switch.requests.push_back(request);
    }

    fn receive(&mut self) -> Option<Event> {
        self.0.borrow_mut().events.pop_front()
    }
}

struct World {
    switches: Vec<Shared>,
    account: Switches<Shared>,
    now: Duration,
}

impl World {
    /// A controller of these switches. Those that are connected are the first ones.
    fn of(switches: Vec<Shared>, connected: usize) -> World {
        let links = switches.iter().enumerate().map(|(n, switch)| (n.to_string(), switch.clone()));
        let mut account = Switches::new(links.collect(), 100_000);
        // Turns take no time.
        account.set_pace(Duration::ZERO);
        let mut world = World { switches, account, now: Duration::from_secs(10) };
        world.switches[..connected].iter().for_each(|switch| switch.0.borrow_mut().connect());
        world.settle();
        world.account.entries(&mut |_, _| ());
        world
    }

    fn new() -> World {
        World::of(vec![Shared::default()], 1)
    }

    fn turn(&mut self) {
        self.account.turn(self.now);
    }

    /// Turns without time until all requests are answered.
    fn settle(&mut self) {
        for _ in 0..8 {
            self.turn();
            self.switches.iter().for_each(|switch| switch.0.borrow_mut().serve());
        }
        self.turn();
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.settle();
    }

    fn install(&mut self, numbers: std::ops::Range<u32>) -> Vec<FlowId> {
        let mut placed = Vec::new();
        self.account.install(&numbers.map(flow).collect::<Vec<_>>(), &mut placed);
        placed.into_iter().map(|id| id.unwrap()).collect()
    }

    fn removal(&mut self, id: FlowId) -> Removal {
        let mut removals = Vec::new();
        self.account.remove(&[id], &mut removals);
        removals[0]
    }

    fn remove(&mut self, id: FlowId) {
        assert_eq!(self.removal(id), Removal::Waiting);
        self.settle();
        assert!(matches!(self.removal(id), Removal::Removed(_)));
    }

    /// Generations of all entries of a switch.
    fn pending(&self, switch: usize) -> Vec<u8> {
        self.switches[switch].0.borrow().entries.values().map(|entry| entry.pending).collect()
    }

    fn moving(&self) -> Vec<u32> {
        self.account.status().map(|status| status.moving).collect()
    }

    fn modified(&self) -> usize {
        self.switches[0].0.borrow().modified.len()
    }

    /// Cuts the first switch's connection, and opens another one.
    fn reconnect(&mut self) {
        let switch = self.switches[0].clone();
        switch.0.borrow_mut().events.push_back(Event::Down("cut".into()));
        self.turn();
        assert_eq!(self.moving()[0], 0);
        switch.0.borrow_mut().connect();
        self.settle();
    }
}

fn flow(n: u32) -> OffloadedFlow {
    let flow = Flow {
        inside: (std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).to_ipv6_mapped(), 5000),
        outside: ([192, 0, 2, 1 + (n >> 15) as u8].into(), 1024 + (n & 0x7fff) as u16),
        remote: ([198, 51, 100, 7].into(), 443),
        transport: Transport::Tcp,
        instance: 0,
    };
    OffloadedFlow {
        session: SessionId { record: n + 1, flow },
        worker: 0,
        epoch: 0,
        remote6: None,
        path_mtu: None,
    }
}

#[test]
fn an_entry_is_pending_for_a_time_after_the_switch_has_confirmed_it() {
    let mut world = World::new();
    let ids = world.install(0..2);
    // The request is slow.
    world.turn();
    world.now += Duration::from_secs(5);
    world.settle();
    let mut placed = Vec::new();
    world.account.placed(&ids, &mut placed);
    assert_eq!(placed, [Placement::Installed, Placement::Installed]);
    assert!(world.pending(0).iter().all(|pending| *pending != 0), "{:?}", world.pending(0));
    assert_eq!(world.moving(), [2]);
    let mut used = Vec::new();
    world.account.take_use(&ids, &mut used);
    assert!(used[0].unwrap().is_pending);
    world.pass(PENDING_MAX - MS);
    assert_eq!((world.modified(), world.moving()), (0, vec![2]));
    world.pass(MS);
    assert_eq!((world.modified(), world.moving()), (4, vec![0]));
    assert_eq!(world.pending(0), [0; 4]);
    used.clear();
    world.account.take_use(&ids, &mut used);
    assert!(!used[0].unwrap().is_pending);
    world.pass(10 * PENDING_MAX);
    assert_eq!(world.modified(), 4, "once");
}

#[test]
fn a_path_mtu_leaves_a_flow_pending_or_not() {
    let mut world = World::new();
    let ids = world.install(0..1);
    world.settle();
    let pending = world.pending(0);
    world.account.set_path_mtu(ids[0], Some(700));
    world.settle();
    let mtus = |world: &World| -> Vec<_> {
        world.switches[0].0.borrow().entries.values().map(|of| of.flow.path_mtu).collect()
    };
    assert_eq!((world.pending(0), mtus(&world)), (pending, vec![Some(700); 2]));
    world.pass(PENDING_MAX);
    assert_eq!((world.pending(0), mtus(&world)), (vec![0; 2], vec![Some(700); 2]));
    world.account.set_path_mtu(ids[0], None);
    world.settle();
    assert_eq!((world.pending(0), mtus(&world)), (vec![0; 2], vec![None; 2]));
    // Both at the same time.
    world.install(1..2);
    world.settle();
    world.account.set_path_mtu(ids[0], Some(800));
    world.pass(PENDING_MAX);
    assert_eq!(world.pending(0), [0; 4]);
}

#[test]
fn a_flow_that_ends_while_it_is_pending_is_not_changed_and_its_place_gets_another_generation() {
    let mut world = World::new();
    let mut last = 0;
    for n in 0..300 {
        let ids = world.install(n..n + 1);
        world.settle();
        let pending = world.pending(0);
        assert!(
            pending[0] == pending[1] && pending[0] != 0 && pending[0] != last,
            "{pending:?} after {last}"
        );
        last = pending[0];
        world.remove(ids[0]);
        assert_eq!(world.moving(), [0]);
    }
    let kept = world.install(300..301);
    world.settle();
    world.pass(PENDING_MAX - MS);
    assert_eq!((world.modified(), world.moving()), (0, vec![1]), "another flow has the place");
    world.pass(MS);
    assert_eq!((world.modified(), world.moving()), (2, vec![0]));
    world.remove(kept[0]);
}

#[test]
fn a_switch_that_refuses_the_change_keeps_the_entry_pending_and_the_connection() {
    let mut world = World::new();
    world.switches[0].0.borrow_mut().refusal = Some(WriteError::Other("no".into()));
    let ids = world.install(0..3);
    world.settle();
    let pending = world.pending(0);
    world.pass(PENDING_MAX);
    assert_eq!((world.pending(0), world.moving()), (pending.clone(), vec![3]));
    world.switches[0].0.borrow_mut().refusal = None;
    world.pass(10 * PENDING_MAX);
    assert_eq!((world.pending(0), world.modified()), (pending.clone(), 0), "it is not asked again");
    assert!(world.switches[0].0.borrow().reconnects.is_empty());
    // Another change has the generation that the switch has.
    world.account.set_path_mtu(ids[0], Some(700));
    world.settle();
    assert_eq!(world.pending(0), pending);
    // The next connection tries again.
    world.reconnect();
    assert_eq!((world.pending(0), world.moving()), (pending, vec![3]));
    world.pass(PENDING_MAX);
    assert_eq!((world.pending(0), world.moving()), (vec![0; 6], vec![0]));
}

#[test]
fn a_refused_change_of_a_flow_that_is_being_removed_leaves_nothing() {
    let mut world = World::new();
    let ids = world.install(0..1);
    world.settle();
    world.switches[0].0.borrow_mut().refusal = Some(WriteError::Full);
    world.now += PENDING_MAX;
    world.turn();
    assert_eq!(world.removal(ids[0]), Removal::Waiting);
    world.settle();
    assert!(matches!(world.removal(ids[0]), Removal::Removed(_)));
    assert_eq!((world.pending(0).len(), world.moving()), (0, vec![0]));
}

#[test]
fn an_entry_that_is_missing_when_it_is_changed_is_written_again() {
    let mut world = World::new();
    world.install(0..1);
    world.settle();
    let first = world.pending(0)[0];
    world.switches[0].0.borrow_mut().entries.clear();
    world.pass(PENDING_MAX);
    assert_eq!(world.switches[0].0.borrow().reconnects.len(), 1);
    assert!(world.account.status().all(|status| (status.phase, status.moving) == (Phase::Down, 0)));
    world.switches[0].0.borrow_mut().connect();
    world.settle();
    let again = world.pending(0);
    assert!(again.len() == 2 && again[0] != 0 && again[0] != first, "{again:?} after {first}");
    world.pass(PENDING_MAX);
    assert_eq!(world.pending(0), [0; 2]);
}

#[test]
fn entries_of_a_lost_connection_are_changed_some_time_after_the_next_one() {
    let mut world = World::new();
    world.install(0..2);
    world.settle();
    let pending = world.pending(0);
    world.now += PENDING_MAX / 2;
    world.reconnect();
    assert_eq!((world.pending(0), world.moving()), (pending.clone(), vec![2]), "they have the right form");
    world.pass(PENDING_MAX - MS);
    assert_eq!(world.pending(0), pending);
    world.pass(MS);
    assert_eq!((world.pending(0), world.moving()), (vec![0; 4], vec![0]));
    // The change was executed, and its answer lost.
    world.install(2..3);
    world.settle();
    world.now += PENDING_MAX;
    world.turn();
    world.switches[0].0.borrow_mut().serve();
    world.switches[0].0.borrow_mut().events.clear();
    let modified = world.modified();
    world.reconnect();
    world.pass(PENDING_MAX);
    assert_eq!((world.pending(0), world.modified()), (vec![0; 6], modified), "it is not changed again");
}

#[test]
fn the_next_controller_changes_pending_entries_of_a_killed_one() {
    let mut first = World::new();
    first.install(0..3);
    first.settle();
    let switch = first.switches[0].clone();
    drop(first);
    // One entry of flow 1 was changed already, and both of flow 2.
    for (n, direction) in [(1, Direction::Outbound), (2, Direction::Outbound), (2, Direction::Inbound)] {
        switch.0.borrow_mut().entries.get_mut(&key(&flow(n), direction)).unwrap().pending = 0;
    }
    let generation = switch.0.borrow().entries[&key(&flow(0), Direction::Outbound)].pending;
    let mut second = World::of(vec![switch], 1);
    let mut found = Vec::new();
    second.account.entries(&mut |id, flow| found.push((id, flow.session.record)));
    assert_eq!((found.len(), second.moving()), (3, vec![2]));
    second.pass(PENDING_MAX - MS);
    assert_eq!(second.modified(), 0);
    second.pass(MS);
    assert_eq!((second.pending(0), second.modified()), (vec![0; 6], 4));
    // The next flow at the place has another generation.
    let (id, record) = found[0];
    assert_eq!(record, 1);
    second.remove(id);
    second.install(9..10);
    second.settle();
    let of = second.switches[0].0.borrow().entries[&key(&flow(9), Direction::Outbound)];
    assert!(of.slot == 0 && of.pending != 0 && of.pending != generation, "{of:?} after {generation}");
}

#[test]
fn a_switch_that_comes_later_gets_pending_entries_with_a_time_of_their_own() {
    let later = Shared::default();
    let mut world = World::of(vec![Shared::default(), later.clone()], 1);
    world.install(0..2);
    world.settle();
    world.pass(PENDING_MAX / 2);
    later.0.borrow_mut().connect();
    world.settle();
    assert_eq!(world.moving(), [2, 2]);
    world.pass(PENDING_MAX / 2);
    assert_eq!(world.moving(), [0, 2]);
    assert!(world.pending(0) == [0; 4] && !world.pending(1).contains(&0), "{:?}", world.pending(1));
    world.pass(PENDING_MAX / 2);
    assert_eq!((world.moving(), world.pending(1)), (vec![0, 0], vec![0; 4]));
}

#[test]
fn a_request_waits_for_more_changes_unless_it_is_full() {
    let mut world = World::new();
    world.account.set_pace(5 * MS);
    let count = |world: &World| world.switches[0].0.borrow().requests.len();
    let serve = |world: &World| world.switches[0].0.borrow_mut().serve();
    // The first change does not wait.
    world.install(0..1);
    world.turn();
    assert_eq!(count(&world), 1);
    serve(&world);
    for n in 1..5 {
        world.install(n..n + 1);
        world.now += MS;
        world.turn();
        let requests = &world.switches[0].0.borrow().requests;
        assert!(!requests.iter().any(|request| matches!(request, Request::Write(_))), "after {n} ms");
    }
    serve(&world);
    world.now += MS;
    world.turn();
    let writes = |world: &World| match world.switches[0].0.borrow().requests.front() {
        Some(Request::Write(writes)) => writes.len(),
        _ => 0,
    };
    assert_eq!(writes(&world), 8, "two for each flow");
    serve(&world);
    world.install(5..5 + BATCH as u32 / 2);
    world.turn();
    assert_eq!(writes(&world), BATCH, "full, at once");
}

#[test]
fn changes_leave_half_of_each_request_to_other_flows() {
    let mut world = World::new();
    let many = BATCH as u32;
    let ids = world.install(0..many);
    world.settle();
    world.now += PENDING_MAX;
    world.install(many..2 * many);
    assert_eq!(world.removal(ids[0]), Removal::Waiting);
    world.turn();
    let write = |request: &Request| match request {
        Request::Write(writes) => Some(writes.clone()),
        _ => None,
    };
    let writes = world.switches[0].0.borrow().requests.iter().find_map(write).unwrap();
    let changes = writes.iter().filter(|write| matches!(write, Write::Modify(_))).count();
    assert_eq!((writes.len(), changes), (BATCH, BATCH / 2));
    // Moves end although more and more flows come.
    for n in 2..6 {
        world.install(n * many..(n + 1) * many);
        world.turn();
        world.switches[0].0.borrow_mut().serve();
    }
    assert_eq!(world.modified(), 2 * (BATCH - 1), "all but the one that is removed");
}
