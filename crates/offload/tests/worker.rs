//! Manager with a running worker and a table in memory.
#![allow(missing_docs)]

use gatun_io::{Memory, memory::MemoryPeer};
use gatun_nat::counters::{Count, Traffic};
use gatun_nat::feed::Flow;
use gatun_nat::inspect::Selection;
use gatun_nat::plan::{Nat64, Plan, Pool4, PoolRange};
use gatun_nat::{ClearCursor, Cleared, Extent, Nat};
use gatun_offload::{
    EntryUse, InstanceSettings, Manager, OffloadedFlow, Refusal, Removal, Settings, Target, WorkerEngine,
    feed_policy,
};
use gatun_testkit::packet::{Message, V6};
use gatun_wire::Prefix64;
use gatun_worker::jobs::Clear;
use gatun_worker::{Clock, Handle, Snapshot, Worker};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10);
const REMOTE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const INSIDE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 5);
/// Packets after which a flow is offered.
const PACKETS: usize = 3;

/// Entries, which survive the manager.
#[derive(Default)]
struct Entries {
    next: u64,
    all: BTreeMap<u64, (OffloadedFlow, Traffic)>,
    /// Flows that are refused.
    refused: Vec<u16>,
    leased: Duration,
}

#[derive(Clone)]
struct Table {
    entries: Arc<Mutex<Entries>>,
    capacity: u32,
}

impl Table {
    fn new(capacity: u32) -> Table {
        Table { entries: Arc::default(), capacity }
    }

    fn len(&self) -> usize {
        self.entries.lock().unwrap().all.len()
    }

    fn ports(&self) -> Vec<u16> {
        let entries = self.entries.lock().unwrap();
        let mut ports: Vec<u16> = entries.all.values().map(|(flow, _)| flow.session.flow.inside.1).collect();
        ports.sort_unstable();
        ports
    }

    /// Translates a packet of every flow from these ports.
    fn translate(&self, ports: Range<u16>) {
        let mut entries = self.entries.lock().unwrap();
        for (flow, traffic) in entries.all.values_mut() {
            if ports.contains(&flow.session.flow.inside.1) {
                *traffic += Traffic { outbound: Count { packets: 1, bytes: 100 }, ..Traffic::default() };
            }
        }
    }
}

fn used(traffic: Traffic) -> EntryUse {
    EntryUse { traffic, ..EntryUse::default() }
}

impl Target for Table {
    type Id = u64;

    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn install(&mut self, flows: &[OffloadedFlow], placed: &mut Vec<Result<u64, Refusal>>) {
        let mut entries = self.entries.lock().unwrap();
        for flow in flows {
            assert_eq!(flow.remote6, Some(Prefix64::WELL_KNOWN.embed(REMOTE)));
            if entries.refused.contains(&flow.session.flow.inside.1) {
                placed.push(Err(Refusal::Other("a test".to_owned())));
                continue;
            }
            assert!(entries.all.len() < self.capacity as usize);
            entries.next += 1;
            let id = entries.next;
            entries.all.insert(id, (*flow, Traffic::default()));
            placed.push(Ok(id));
        }
    }

    fn remove(&mut self, ids: &[u64], removals: &mut Vec<Removal>) {
        let mut entries = self.entries.lock().unwrap();
        removals.extend(
            ids.iter().map(|id| Removal::from(entries.all.remove(id).map(|(_, traffic)| used(traffic)))),
        );
    }

    fn take_use(&mut self, ids: &[u64], uses: &mut Vec<Option<EntryUse>>) {
        let mut entries = self.entries.lock().unwrap();
        uses.extend(
            ids.iter().map(|id| entries.all.get_mut(id).map(|(_, traffic)| used(std::mem::take(traffic)))),
        );
    }

    fn entries(&mut self, each: &mut dyn FnMut(u64, &OffloadedFlow)) {
        self.entries.lock().unwrap().all.iter().for_each(|(id, (flow, _))| each(*id, flow));
    }

    fn renew_lease(&mut self, time: Duration) {
        self.entries.lock().unwrap().leased = time;
    }
}

struct Bed {
    peer: MemoryPeer,
    handle: Handle,
    thread: JoinHandle<(Snapshot, Option<std::io::Error>)>,
    table: Table,
    generation: u64,
    /// Added to the clock of the manager.
    later: Duration,
    start: Instant,
}

fn settings() -> Settings {
    let instance =
        InstanceSettings { offloaded: true, prefixes: vec![Prefix64::WELL_KNOWN], inbound_refresh: true };
    Settings {
        enabled: true,
        entries_max: 100_000,
        epoch: 4,
        lease: Duration::from_secs(7),
        instances: vec![instance],
    }
}

impl Bed {
    fn start(capacity: u32) -> Bed {
        let address = Ipv4Addr::new(198, 51, 100, 1);
        let range = PoolRange { first: address, last: address, ports: (1024, 65_535), transports: [true; 3] };
        let plan = Plan {
            pools: vec![Pool4 { name: "p".into(), ranges: vec![range], ..Pool4::default() }],
            nat64: vec![Nat64 {
                name: "n".into(),
                pool6: vec![Prefix64::WELL_KNOWN],
                wkp_non_global: true,
                ..Nat64::default()
            }],
            ..Plan::default()
        };
        let (memory, peer) = Memory::new("m").unwrap();
        let nat = Nat::new(&plan, [1, 2, 3, 4]).unwrap();
        let (worker, handle) = Worker::new(nat, Box::new(memory), Clock::new()).unwrap();
        let thread = std::thread::spawn(move || worker.run());
        let (table, start) = (Table::new(capacity), Instant::now());
        Bed { peer, handle, thread, table, generation: 0, later: Duration::ZERO, start }
    }

    /// Starts a manager, as after the end of the previous one.
    fn manager(&mut self, settings: Settings) -> Manager<WorkerEngine, Table> {
        self.generation += 1;
        let policy = feed_policy(PACKETS as u8);
        let engine = WorkerEngine::attach(self.handle.clone(), policy, 10_000, self.generation, LONG);
        Manager::new(vec![engine.unwrap()], self.table.clone(), settings)
    }

    /// Sends datagrams from each of these ports.
    fn send(&self, ports: Range<u16>, packets: usize) {
        for port in ports {
            let header = V6::new(INSIDE, Prefix64::WELL_KNOWN.embed(REMOTE));
            for _ in 0..packets {
                self.peer.push(header.packet(&Message::udp(port, 53, b"over there")));
            }
        }
    }

    /// Lets the manager work until something holds.
    fn until(
        &self,
        manager: &mut Manager<WorkerEngine, Table>,
        is_so: impl Fn(&Manager<WorkerEngine, Table>) -> bool,
    ) {
        let deadline = Instant::now() + LONG;
        while !is_so(manager) {
            assert!(Instant::now() < deadline, "{:?}", manager.status());
            let wait = manager.turn(&|| self.start.elapsed() + self.later);
            std::thread::sleep(wait);
        }
    }

    /// Lets the manager work for a time, most of which passes for the manager only.
    fn pass(&mut self, manager: &mut Manager<WorkerEngine, Table>, time: Duration) {
        let parts = 50;
        for _ in 0..parts {
            self.later += time / parts;
            std::thread::sleep(manager.turn(&|| self.start.elapsed() + self.later));
        }
        self.until(manager, |manager| manager.status().waiting_orders == 0);
    }

    fn snapshot(&self) -> Snapshot {
        self.handle.snapshot(LONG).unwrap()
    }

    fn clear(&self, inside_port: Option<u16>) {
        let which = Selection { inside_port, ..Selection::default() };
        let job =
            Clear { which, extent: Extent::Binding, at: ClearCursor::default(), cleared: Cleared::default() };
        self.handle.work(job, LONG).unwrap();
    }

    fn end(self) -> Snapshot {
        self.handle.stop();
        let (snapshot, error) = self.thread.join().unwrap();
        assert!(error.is_none() && snapshot.engine.conserved());
        snapshot
    }
}

fn entries(n: usize) -> impl Fn(&Manager<WorkerEngine, Table>) -> bool {
    move |manager| manager.target().len() == n && manager.status().waiting_orders == 0
}

#[test]
fn flows_are_installed_after_some_packets_credited_and_removed_when_they_end() {
    let mut bed = Bed::start(100_000);
    let mut manager = bed.manager(settings());
    bed.send(1000..3000, PACKETS);
    bed.send(4000..4100, PACKETS - 1);
    bed.until(&mut manager, entries(2000));
    let before = bed.snapshot();
    assert_eq!(before.engine.forwarded.packets, 2000 * PACKETS as u64 + 200);
    assert_eq!(bed.table.ports(), (1000..3000).collect::<Vec<u16>>());
    assert_eq!(bed.table.entries.lock().unwrap().leased, Duration::from_secs(7));
    let epochs = bed.table.entries.lock().unwrap().all.values().all(|(flow, _)| flow.epoch == 4);
    assert!(epochs);
    // Every entry's use is in the counters a second later.
    bed.table.translate(1000..2500);
    bed.pass(&mut manager, Duration::from_millis(2_200));
    let forwarded = bed.snapshot().engine.forwarded;
    assert_eq!(forwarded.packets, before.engine.forwarded.packets + 1500);
    assert_eq!(forwarded.bytes, before.engine.forwarded.bytes + 150_000);
    // Ended sessions lose their entries, and what these have translated last is credited.
    bed.table.translate(1000..1010);
    bed.clear(Some(1001));
    bed.until(&mut manager, entries(1999));
    bed.clear(None);
    bed.until(&mut manager, entries(0));
    let status = manager.status();
    assert_eq!((status.installed, status.removed, status.released), (2000, 2000, 2000));
    assert_eq!((status.credited_packets, status.uncredited_packets), (1510, 0));
    assert_eq!(status.latency.count, 2000);
    assert!(status.latency.below.iter().is_sorted());
    assert_eq!(bed.end().engine.forwarded.packets, forwarded.packets + 10);
}

#[test]
fn switched_off_it_removes_and_releases_all_and_switched_on_it_installs_them_again() {
    let mut bed = Bed::start(100_000);
    let mut manager = bed.manager(settings());
    bed.send(1000..2000, PACKETS);
    bed.until(&mut manager, entries(1000));
    manager.set_settings(Settings { enabled: false, ..settings() });
    assert!(!manager.is_drained());
    bed.until(&mut manager, Manager::is_drained);
    assert_eq!((bed.table.len(), manager.status().released), (0, 1000));
    // Nothing is marked: sessions end at once.
    bed.send(2000..2100, PACKETS);
    manager.set_settings(settings());
    bed.until(&mut manager, entries(1100));
    // Another epoch: each entry is renewed, with its session marked throughout.
    let released = manager.status().released;
    manager.set_settings(Settings { epoch: 5, ..settings() });
    let all = |manager: &Manager<WorkerEngine, Table>| {
        let table = manager.target().entries.lock().unwrap();
        table.all.len() == 1100 && table.all.values().all(|(flow, _)| flow.epoch == 5)
    };
    bed.until(&mut manager, all);
    assert_eq!(manager.status().released, released);
    // A filter of flows.
    manager.exclude(Some(Box::new(|flow| flow.inside.1 < 1500)));
    bed.until(&mut manager, entries(600));
    assert!(bed.table.ports().iter().all(|&port| port >= 1500));
    bed.send(1000..1100, PACKETS);
    manager.exclude(Some(Box::new(|flow| flow.inside.1 == 1000)));
    bed.until(&mut manager, entries(1099));
    manager.exclude(None);
    bed.until(&mut manager, entries(1100));
    // An instance that opts out.
    let mut without = Settings { epoch: 5, ..settings() };
    without.instances[0].offloaded = false;
    manager.pause();
    manager.set_settings(without);
    bed.until(&mut manager, entries(0));
    bed.end();
}

#[test]
fn another_manager_takes_over_entries_with_a_session_and_removes_the_others() {
    let mut bed = Bed::start(100_000);
    let mut manager = bed.manager(settings());
    bed.send(1000..1500, PACKETS);
    bed.until(&mut manager, entries(500));
    drop(manager);
    // The killed manager leaves an entry too many, one too few, one of another epoch, and an ended session.
    let before = {
        let mut entries = bed.table.entries.lock().unwrap();
        let first = entries.all.pop_first().unwrap().1;
        let mut other = first;
        other.0.session.flow = Flow { inside: (INSIDE, 7777), ..other.0.session.flow };
        entries.all.insert(1_000_000, other);
        let second = *entries.all.keys().next().unwrap();
        entries.all.get_mut(&second).unwrap().0.epoch = 1;
        entries.all.len()
    };
    assert_eq!(before, 500);
    bed.table.translate(1002..1003);
    bed.clear(Some(1002));
    bed.send(3000..3010, PACKETS);
    let mut manager = bed.manager(settings());
    let is_over = |manager: &Manager<WorkerEngine, Table>| {
        !manager.status().reconciling && manager.target().len() == 509 && manager.status().waiting_orders == 0
    };
    bed.until(&mut manager, is_over);
    let status = manager.status();
    assert_eq!((status.adopted, status.adopted_removed), (498, 2), "{status:?}");
    let ports = bed.table.ports();
    assert!(ports.contains(&1000) && ports.contains(&1001) && !ports.contains(&1002));
    assert!(!ports.contains(&7777));
    assert_eq!(bed.end().engine.forwarded.packets, 510 * PACKETS as u64 + 1);
}

#[test]
fn a_full_table_admits_new_flows_by_the_removal_of_idle_ones() {
    let mut bed = Bed::start(100);
    let mut manager = bed.manager(settings());
    bed.send(1000..1100, PACKETS);
    bed.until(&mut manager, entries(100));
    bed.send(2000..2010, PACKETS);
    bed.until(&mut manager, |manager| manager.status().refused_full == 10);
    assert_eq!(bed.table.ports(), (1000..1100).collect::<Vec<u16>>(), "none has been idle for long");
    for _ in 0..4 {
        bed.pass(&mut manager, Duration::from_millis(1_200));
        bed.table.translate(1000..1030);
    }
    bed.send(3000..3020, PACKETS);
    bed.until(&mut manager, |manager| manager.status().evicted == 20);
    bed.until(&mut manager, entries(100));
    let ports = bed.table.ports();
    assert!((1000..1030).all(|port| ports.contains(&port)), "{ports:?}");
    assert!((3000..3020).all(|port| ports.contains(&port)), "{ports:?}");
    // A refused flow gets its place once there is room and it has had further packets.
    (1000..1040).for_each(|port| bed.clear(Some(port)));
    bed.until(&mut manager, |manager| manager.status().entries < 70);
    let ports = bed.table.ports();
    assert!((2000..2010).all(|port| !ports.contains(&port)), "{ports:?}");
    bed.send(2000..2010, 128);
    bed.until(&mut manager, |manager| manager.target().ports().contains(&2009));
    let ports = bed.table.ports();
    assert!((2000..2010).all(|port| ports.contains(&port)), "{ports:?}");
    bed.end();
}

#[test]
fn a_full_table_gives_the_place_of_a_slow_flow_to_a_much_busier_one() {
    let mut bed = Bed::start(20);
    let mut manager = bed.manager(settings());
    bed.send(1000..1020, PACKETS);
    bed.until(&mut manager, entries(20));
    bed.send(2000..2001, PACKETS);
    bed.until(&mut manager, |manager| manager.status().refused_full == 1);
    let go_on = |bed: &mut Bed, manager: &mut _, rounds| {
        for _ in 0..rounds {
            // About 18 packets a second.
            (0..20).for_each(|_| bed.table.translate(1000..1020));
            bed.pass(manager, Duration::from_millis(1_100));
        }
    };
    // Slower than the others: 128 packets in more than ten seconds.
    go_on(&mut bed, &mut manager, 10);
    bed.send(2000..2001, 128);
    bed.until(&mut manager, |manager| manager.status().refused_full == 2);
    assert_eq!((manager.status().evicted, bed.table.ports().contains(&2000)), (0, false));
    // 128 packets in a second.
    go_on(&mut bed, &mut manager, 1);
    bed.send(2000..2001, 128);
    bed.until(&mut manager, |manager| manager.target().ports().contains(&2000));
    assert_eq!((manager.status().evicted, manager.target().len()), (1, 20));
    // The flow that lost its place is not busy enough to get one again.
    go_on(&mut bed, &mut manager, 6);
    assert_eq!(manager.status().evicted, 1, "{:?}", manager.status());
    bed.end();
}

#[test]
fn refusals_of_the_target_are_counted_and_leave_no_mark() {
    let mut bed = Bed::start(1000);
    bed.table.entries.lock().unwrap().refused = vec![1000, 1001];
    let mut manager = bed.manager(settings());
    bed.send(1000..1010, PACKETS);
    bed.until(&mut manager, entries(8));
    let status = manager.status();
    assert_eq!((status.refused_other, status.last_refusal.as_str()), (2, "a test"));
    assert_eq!((status.installed, status.released), (8, 2));
    // A smaller limit acts on what is there.
    manager.set_settings(Settings { entries_max: 3, ..settings() });
    bed.until(&mut manager, entries(3));
    bed.end();
}
