//! Cost of offload per flow, for one engine and a table in memory, in one thread.
//!
//! `cargo run --release -p gatun-offload --example cost -- [FLOWS] [PACKETS]`

use gatun_nat::counters::Traffic;
use gatun_nat::feed::{Command, FeedReader, channel};
use gatun_nat::plan::{Nat44, Net4, Plan, Pool4, PoolRange};
use gatun_nat::{ClearCursor, Extent, FeedCursor, Instant, Nat, Verdict};
use gatun_offload::{
    Engine, EntryUse, InstanceSettings, Manager, OffloadedFlow, Page, Refusal, Removal, Settings, Target,
    feed_policy,
};
use gatun_testkit::packet::in_place::write_udp;
use gatun_wire::{HEADROOM, Packet};
use gatun_worker::jobs::SubmitError;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::Duration;

/// Packets between two turns of the manager: one millisecond at a million packets a second.
const TURN: u32 = 1_000;

/// Length of a datagram in bytes, with its headers.
const LEN: usize = 60;

/// An engine in the manager's own thread.
struct OwnEngine {
    nat: Rc<RefCell<Nat>>,
    now: Rc<RefCell<Instant>>,
    reader: FeedReader,
    handled: VecDeque<Vec<Command>>,
    page: Option<Page>,
}

impl Engine for OwnEngine {
    type Stream = FeedReader;

    fn stream(&mut self) -> &mut FeedReader {
        &mut self.reader
    }

    fn submit(&mut self, mut commands: Vec<Command>) -> Result<(), SubmitError> {
        self.nat.borrow_mut().offload(*self.now.borrow(), &mut commands);
        self.handled.push_back(commands);
        Ok(())
    }

    fn handled(&mut self) -> Option<Vec<Command>> {
        self.handled.pop_front()
    }

    fn read(&mut self, mut at: FeedCursor, len: usize) -> Result<(), SubmitError> {
        let mut found = Vec::with_capacity(len);
        let nat = self.nat.borrow();
        let until = nat.read_feed(&mut at, &feed_policy(2), usize::MAX, &mut found);
        self.page = Some(Page { at, found, since: until, until });
        Ok(())
    }

    fn page(&mut self) -> Option<Page> {
        self.page.take()
    }
}

/// A list of entries.
#[derive(Default)]
struct List {
    all: Vec<Option<OffloadedFlow>>,
    free: Vec<usize>,
}

impl Target for List {
    type Id = usize;

    fn capacity(&self) -> u32 {
        u32::MAX
    }

    fn install(&mut self, flows: &[OffloadedFlow], placed: &mut Vec<Result<usize, Refusal>>) {
        placed.extend(flows.iter().map(|flow| {
            let place = self.free.pop().unwrap_or(self.all.len());
            match self.all.get_mut(place) {
                Some(free) => *free = Some(*flow),
                None => self.all.push(Some(*flow)),
            }
            Ok(place)
        }));
    }

    fn remove(&mut self, ids: &[usize], removals: &mut Vec<Removal>) {
        for &id in ids {
            self.free.push(id);
            removals.push(self.all[id].take().map(|_| EntryUse::default()).into());
        }
    }

    fn take_use(&mut self, ids: &[usize], used: &mut Vec<Option<EntryUse>>) {
        let use_of = |flow: OffloadedFlow| EntryUse {
            traffic: Traffic {
                outbound: gatun_nat::counters::Count { packets: 1, bytes: 100 },
                ..Traffic::default()
            },
            seen_ago: [Duration::from_millis(flow.session.record.into()); 2],
            ..EntryUse::default()
        };
        used.extend(ids.iter().map(|&id| self.all[id].map(use_of)));
    }

    fn entries(&mut self, _: &mut dyn FnMut(usize, &OffloadedFlow)) {}

    fn renew_lease(&mut self, _: Duration) {}
}

fn plan(flows: u32) -> Plan {
    let range = PoolRange {
        first: Ipv4Addr::new(192, 0, 2, 0),
        last: Ipv4Addr::new(192, 0, 2, 255),
        ports: (1024, 65_535),
        transports: [true; 3],
    };
    let inside = Net4::new(Ipv4Addr::new(10, 0, 0, 0), 8);
    let mut plan = Plan {
        pools: vec![Pool4 { name: "pool".into(), ranges: vec![range], ..Pool4::default() }],
        nat44: vec![Nat44 { name: "home".into(), inside: inside.into_iter().collect(), ..Nat44::default() }],
        ..Plan::default()
    };
    plan.limits.sessions_max = flows + 1_000;
    plan
}

/// Sends a datagram of a flow.
fn send(nat: &mut Nat, now: Instant, flow: u32) {
    let mut buf = [0; HEADROOM + LEN];
    let inside = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + (flow & 0x3fff)));
    let remote = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));
    let port = 1024 + (flow >> 14) as u16;
    let packet = &mut buf[HEADROOM..HEADROOM + LEN];
    write_udp((inside, port), (remote, 53), packet);
    let mut burst = [Packet::new(&mut buf, HEADROOM, LEN).expect("room for a packet")];
    let mut verdicts = [Verdict::Pass];
    nat.process(now, &mut burst, &mut verdicts);
    assert!(matches!(verdicts[0], Verdict::Forward), "{verdicts:?}");
}

fn per_flow(what: &str, flows: u32, begin: std::time::Instant) {
    println!("{what:<58}{:>8.0} ns", begin.elapsed().as_nanos() as f64 / f64::from(flows));
}

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|arg| arg.parse().ok());
    let (flows, packets) = (args.next().unwrap_or(200_000), args.next().unwrap_or(4));
    let mut alone = Nat::new(&plan(flows), [1, 2, 3, 4]).expect("a sound plan");
    let begin = std::time::Instant::now();
    for flow in 0..flows {
        (0..packets).for_each(|_| send(&mut alone, Instant(1_000), flow));
    }
    per_flow(&format!("a new flow with {packets} packets, without a feed"), flows, begin);
    let mut nat = Nat::new(&plan(flows), [1, 2, 3, 4]).expect("a sound plan");
    let (feed, reader) = channel(feed_policy(2), 65_536, 1);
    nat.attach_feed(Some(Box::new(feed)));
    let (nat, now) = (Rc::new(RefCell::new(nat)), Rc::new(RefCell::new(Instant(1_000))));
    let engine = OwnEngine {
        nat: Rc::clone(&nat),
        now: Rc::clone(&now),
        reader,
        handled: VecDeque::new(),
        page: None,
    };
    let settings = Settings {
        enabled: true,
        entries_max: flows,
        epoch: 1,
        lease: Duration::from_secs(10),
        instances: vec![InstanceSettings { offloaded: true, prefixes: vec![], inbound_refresh: true }],
    };
    let mut manager = Manager::new(vec![engine], List::default(), settings);
    let turn = |manager: &mut Manager<OwnEngine, List>, ms: u64| {
        now.borrow_mut().0 += ms;
        let at = Duration::from_millis(now.borrow().0);
        manager.turn(&|| at);
        manager.status().entries
    };
    (0..5).for_each(|_| _ = turn(&mut manager, 1));
    let begin = std::time::Instant::now();
    for flow in 0..flows {
        (0..packets).for_each(|_| send(&mut nat.borrow_mut(), Instant(1_000), flow));
        if flow % (TURN / packets.max(1)) == 0 {
            turn(&mut manager, 1);
        }
    }
    let mut n = 0;
    while turn(&mut manager, 1) < flows {
        n += 1;
        if n == 2000 {
            println!("{:?} {:?}", manager.status(), nat.borrow().occupancy());
            return;
        }
    }
    per_flow("the same, offered, marked and installed", flows, begin);
    let begin = std::time::Instant::now();
    (0..1_000).for_each(|_| _ = turn(&mut manager, 1));
    per_flow("a round of credits, with 1000 turns", flows, begin);
    let begin = std::time::Instant::now();
    let mut at = ClearCursor::default();
    while turn(&mut manager, 1) > 0 {
        let time = *now.borrow();
        nat.borrow_mut().clear(time, &mut at, &Default::default(), Extent::Session, 50_000);
    }
    per_flow("ended, removed and released", flows, begin);
}
