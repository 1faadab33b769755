//! Bounds of a turn, and engines that hang, refuse, or end, with engines that follow a script.
#![allow(missing_docs)]

use gatun_nat::counters::{Count, Traffic};
use gatun_nat::feed::{
    Action, Command, CommandOutcome, Flow, Offload, Ownership, Record, SessionChange, SessionId,
    SessionRecord,
};
use gatun_nat::plan::Transport;
use gatun_nat::{FeedCursor, Sequence};
use gatun_offload::{
    Engine, EntryUse, InstanceSettings, Manager, OffloadedFlow, Page, RecordStream, Refusal, Removal,
    Settings, Target,
};
use gatun_worker::jobs::SubmitError;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

#[derive(Default)]
struct Script {
    stream: VecDeque<Record>,
    next: u64,
    commands: VecDeque<Vec<Command>>,
    page: Option<Page>,
    hangs: bool,
    refuses: Option<SubmitError>,
    /// Numbers of commands by action: marks, seen, credits, releases.
    counts: [usize; 4],
}

#[derive(Clone, Default)]
struct ScriptedEngine(Rc<RefCell<Script>>);

impl ScriptedEngine {
    fn push(&self, n: u32, change: SessionChange) {
        self.0.borrow_mut().stream.push_back(Record::Session(record(n, change)));
    }
}

fn record(n: u32, change: SessionChange) -> SessionRecord {
    let flow = Flow {
        inside: (Ipv4Addr::from(0x0a00_0000 + n).to_ipv6_mapped(), 5000),
        outside: (Ipv4Addr::from(0xc000_0000 + n), 5000),
        remote: (Ipv4Addr::new(198, 51, 100, 1), 443),
        transport: Transport::Tcp,
        instance: 0,
    };
    let offload = if change == SessionChange::Established { Offload::Engine } else { Offload::Fast };
    SessionRecord {
        id: SessionId { record: n + 1, flow },
        change,
        tcp: None,
        pool6: 0,
        of_static: false,
        ownership: Ownership { epoch: 1, offload },
        subscriber: 0,
        expires_ms: 1000,
    }
}

impl RecordStream for ScriptedEngine {
    fn next(&mut self) -> Option<(Sequence, Record)> {
        let script = &mut *self.0.borrow_mut();
        let record = script.stream.pop_front()?;
        script.next += 1;
        Some((Sequence { generation: 1, number: script.next - 1 }, record))
    }

    fn waiting(&self) -> usize {
        self.0.borrow().stream.len()
    }

    fn is_abandoned(&self) -> bool {
        false
    }
}

impl Engine for ScriptedEngine {
    type Stream = ScriptedEngine;

    fn stream(&mut self) -> &mut ScriptedEngine {
        self
    }

    fn submit(&mut self, commands: Vec<Command>) -> Result<(), SubmitError> {
        let script = &mut *self.0.borrow_mut();
        if let Some(error) = script.refuses {
            return Err(error);
        }
        for command in &commands {
            let kind = match command.action {
                Action::Mark(_) => 0,
                Action::Seen(_) => 1,
                Action::Credit(_) => 2,
                Action::Released => 3,
                Action::Count(_) => panic!("the manager does not count packets"),
            };
            script.counts[kind] += 1;
        }
        script.commands.push_back(commands);
        Ok(())
    }

    fn handled(&mut self) -> Option<Vec<Command>> {
        let script = &mut *self.0.borrow_mut();
        if script.hangs {
            return None;
        }
        let mut batch = script.commands.pop_front()?;
        batch.iter_mut().for_each(|command| command.outcome = CommandOutcome::Done);
        Some(batch)
    }

    fn read(&mut self, _: FeedCursor, _: usize) -> Result<(), SubmitError> {
        let script = &mut *self.0.borrow_mut();
        let at = Sequence { generation: 1, number: script.next };
        let nat = gatun_nat::Nat::new(&gatun_nat::Plan::default(), [1, 2, 3, 4]).unwrap();
        // The end of a walk, from an engine without sessions.
        let mut cursor = FeedCursor::default();
        nat.read_feed(&mut cursor, &gatun_offload::feed_policy(1), 10, &mut Vec::with_capacity(1));
        assert!(cursor.is_done());
        script.page = Some(Page { at: cursor, found: Vec::new(), since: Some(at), until: Some(at) });
        Ok(())
    }

    fn page(&mut self) -> Option<Page> {
        self.0.borrow_mut().page.take()
    }
}

#[derive(Default)]
struct CountingTable {
    next: u32,
    all: BTreeMap<u32, OffloadedFlow>,
    /// Largest number of flows in one call of install, remove and take_use.
    largest: [usize; 3],
    calls: usize,
}

impl Target for CountingTable {
    type Id = u32;

    fn capacity(&self) -> u32 {
        1_000_000
    }

    fn install(&mut self, flows: &[OffloadedFlow], placed: &mut Vec<Result<u32, Refusal>>) {
        self.largest[0] = self.largest[0].max(flows.len());
        self.calls += 1;
        for flow in flows {
            self.next += 1;
            self.all.insert(self.next, *flow);
            placed.push(Ok(self.next));
        }
    }

    fn remove(&mut self, ids: &[u32], removals: &mut Vec<Removal>) {
        self.largest[1] = self.largest[1].max(ids.len());
        let packets = Count { packets: 1, bytes: 60 };
        let last =
            EntryUse { traffic: Traffic { outbound: packets, inbound: packets }, ..EntryUse::default() };
        removals.extend(ids.iter().map(|id| Removal::from(self.all.remove(id).map(|_| last))));
    }

    fn take_use(&mut self, ids: &[u32], used: &mut Vec<Option<EntryUse>>) {
        self.largest[2] = self.largest[2].max(ids.len());
        used.extend(ids.iter().map(|id| self.all.contains_key(id).then(EntryUse::default)));
    }

    fn entries(&mut self, each: &mut dyn FnMut(u32, &OffloadedFlow)) {
        self.all.iter().for_each(|(id, flow)| each(*id, flow));
    }

    fn renew_lease(&mut self, _: Duration) {}
}

fn settings() -> Settings {
    Settings {
        enabled: true,
        entries_max: 1_000_000,
        epoch: 1,
        lease: Duration::from_secs(10),
        instances: vec![InstanceSettings { offloaded: true, prefixes: vec![], inbound_refresh: true }],
    }
}

struct Bed {
    engines: Vec<ScriptedEngine>,
    manager: Manager<ScriptedEngine, CountingTable>,
    now: Duration,
}

impl Bed {
    fn new(engines: usize) -> Bed {
        let engines: Vec<ScriptedEngine> = (0..engines).map(|_| ScriptedEngine::default()).collect();
        let manager = Manager::new(engines.clone(), CountingTable::default(), settings());
        let mut bed = Bed { engines, manager, now: Duration::ZERO };
        bed.turns(5);
        bed
    }

    /// Does this number of turns, one each millisecond, and returns how many of them left work to do.
    fn turns(&mut self, n: usize) -> usize {
        let mut left = 0;
        for _ in 0..n {
            self.now += Duration::from_millis(1);
            let now = self.now;
            left += usize::from(self.manager.turn(&|| now) == Duration::ZERO);
        }
        left
    }

    fn with_entries(n: u32) -> Bed {
        let mut bed = Bed::new(1);
        (0..n).for_each(|n| bed.engines[0].push(n, SessionChange::Established));
        let mut turns = 0;
        while bed.manager.status().entries < n {
            bed.turns(1);
            turns += 1;
            assert!(turns < 20_000, "{:?}", bed.manager.status());
        }
        bed
    }
}

#[test]
fn half_a_million_sessions_that_end_at_once_are_removed_in_bounded_turns() {
    const N: u32 = 500_000;
    let mut bed = Bed::with_entries(N);
    (0..N).for_each(|n| bed.engines[0].push(n, SessionChange::Ended));
    let mut turns = 0;
    while bed.manager.status().released < N.into() {
        bed.turns(1);
        turns += 1;
        assert!(turns < 5_000, "{:?}", bed.manager.status());
    }
    let table = bed.manager.target();
    let [installs, removals, uses] = table.largest;
    assert!(
        table.all.is_empty() && installs <= 512 && removals <= 1024 && uses <= 8192,
        "{:?}",
        table.largest
    );
    // The last use of each is credited, and its times are reported, before its release.
    let [marks, seen, credits, releases] = bed.engines[0].0.borrow().counts;
    assert_eq!([marks, seen, credits, releases], [N as usize; 4]);
    assert_eq!(bed.manager.status().credited_packets, 2 * u64::from(N));
    assert_eq!(bed.turns(10), 0, "nothing is left to do");
}

#[test]
fn an_engine_that_hangs_costs_a_bounded_queue_and_not_the_other_engines() {
    let mut bed = Bed::new(2);
    bed.engines[0].0.borrow_mut().hangs = true;
    (0..100_000).for_each(|n| bed.engines[0].push(n, SessionChange::Established));
    (0..1_000).for_each(|n| bed.engines[1].push(n, SessionChange::Established));
    let left = bed.turns(2_000);
    let status = bed.manager.status();
    assert!(status.waiting_orders <= 3 * 16_384, "{status:?}");
    assert!(status.waiting_records >= 50_000, "the ring fills, and the engine counts the loss");
    assert_eq!(status.entries, 1_000);
    assert!(status.slowest_worker_ms > 1_000);
    assert!(left < 100, "it does not spin: {left} of 2000 turns");
    // Entries are removed without its answer.
    bed.manager.set_settings(Settings { enabled: false, ..settings() });
    bed.turns(1_000);
    assert!(bed.manager.target().all.is_empty() && !bed.manager.is_drained());
    bed.engines[0].0.borrow_mut().hangs = false;
    bed.turns(1_000);
    assert!(bed.manager.is_drained(), "{:?}", bed.manager.status());
}

#[test]
fn a_full_queue_delays_commands_and_loses_none() {
    let mut bed = Bed::with_entries(1_000);
    bed.engines[0].0.borrow_mut().refuses = Some(SubmitError::Busy);
    (0..1_000).for_each(|n| bed.engines[0].push(n, SessionChange::Ended));
    let left = bed.turns(100);
    assert!(left < 20, "it does not spin: {left} of 100 turns");
    let status = bed.manager.status();
    assert_eq!((status.entries, status.released), (0, 0));
    assert!(status.busy > 50);
    bed.engines[0].0.borrow_mut().refuses = None;
    bed.turns(100);
    assert_eq!(bed.manager.status().released, 1_000);
    assert_eq!(bed.engines[0].0.borrow().counts, [1_000; 4]);
}

#[test]
fn entries_of_an_ended_worker_stay_until_they_are_to_be_removed() {
    let mut bed = Bed::with_entries(1_000);
    bed.engines[0].push(5_000, SessionChange::Established);
    bed.engines[0].0.borrow_mut().refuses = Some(SubmitError::Ended);
    bed.turns(100);
    let status = bed.manager.status();
    assert_eq!((status.entries, status.ended_workers), (1_000, 1));
    bed.manager.set_settings(Settings { enabled: false, ..settings() });
    bed.turns(100);
    assert!(bed.manager.is_drained() && bed.manager.target().all.is_empty(), "{:?}", bed.manager.status());
    assert_eq!(bed.manager.status().uncredited_packets, 2_000);
}

/// A session is asked about, closes and opens again within one turn: its entry is removed and installed again
/// before the question is answered. The next question must not wait for that answer.
#[test]
fn a_question_about_an_entry_that_was_installed_again_is_answered() {
    let mut bed = Bed::with_entries(1);
    for change in [SessionChange::Asked, SessionChange::Closing, SessionChange::Established] {
        bed.engines[0].push(0, change);
    }
    bed.turns(20);
    let status = bed.manager.status();
    assert_eq!((status.installed, status.removed, status.released), (2, 1, 0), "{status:?}");
    bed.engines[0].push(0, SessionChange::Asked);
    bed.turns(20);
    let status = bed.manager.status();
    assert_eq!((status.entries, status.released), (0, 1), "{status:?}");
}
