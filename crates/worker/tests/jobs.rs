//! Jobs of a running worker: done in slices beside packets, limited in number, abandoned with their ticket.

use gatun_io::{Memory, memory::MemoryPeer};
use gatun_nat::feed::{FeedPolicy, channel};
use gatun_nat::inspect::{Selection, SessionCursor};
use gatun_nat::plan::{Limits, Nat64, Plan, Pool4, PoolRange, Transport};
use gatun_nat::standby::StandbySweep;
use gatun_nat::{Cleared, Extent, FeedCursor, Instant, Nat, SessionKey, ShardSet};
use gatun_testkit::packet::{Message, V6};
use gatun_wire::Prefix64;
use gatun_worker::jobs::{Clear, EndSessions, Job, JobTicket, ReadSessions, SubmitError, WAITING_MAX};
use gatun_worker::standby::SweepStandby;
use gatun_worker::{Clock, Handle, Snapshot, Worker};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel as channel_of;
use std::thread::JoinHandle;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(10);
const REMOTE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const INSIDE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 5);

struct Bed {
    peer: MemoryPeer,
    handle: Handle,
    thread: JoinHandle<(Snapshot, Option<std::io::Error>)>,
}

impl Bed {
    fn start() -> Bed {
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
            limits: Limits { ports_per_subscriber: 16_384, ..Limits::default() },
            ..Plan::default()
        };
        let (memory, peer) = Memory::new("m").unwrap();
        let nat = Nat::new(&plan, [1, 2, 3, 4]).unwrap();
        let (worker, handle) = Worker::new(nat, Box::new(memory), Clock::new()).unwrap();
        Bed { peer, handle, thread: std::thread::spawn(move || worker.run()) }
    }

    /// Sends a datagram from each of these ports.
    fn open(&self, ports: std::ops::Range<u16>) {
        for port in ports {
            let header = V6::new(INSIDE, Prefix64::WELL_KNOWN.embed(REMOTE));
            self.peer.push(header.packet(&Message::udp(port, 53, b"over there")));
        }
    }

    fn wait_for_packets(&self, count: u64) -> Snapshot {
        let deadline = std::time::Instant::now() + LONG;
        loop {
            let snapshot = self.handle.snapshot(LONG).unwrap();
            if snapshot.engine.rx.packets >= count {
                assert!(snapshot.conserved(), "{snapshot:?}");
                return snapshot;
            }
            assert!(std::time::Instant::now() < deadline, "{} packets", snapshot.engine.rx.packets);
        }
    }

    /// Reads all sessions in lists of a hundred.
    fn sessions(&self) -> Vec<u16> {
        let (mut at, mut all) = (SessionCursor::default(), Vec::new());
        while !at.done {
            let job = ReadSessions { which: Selection::default(), at, found: Vec::with_capacity(100) };
            let job = self.handle.work(job, LONG).unwrap();
            all.extend(job.found.iter().map(|session| session.inside.1));
            at = job.at;
        }
        all
    }

    fn stop(self) -> Snapshot {
        self.handle.stop();
        let (snapshot, error) = self.thread.join().unwrap();
        assert!(error.is_none() && snapshot.conserved());
        snapshot
    }
}

#[test]
fn sessions_are_read_and_ended_while_packets_go_on() {
    let bed = Bed::start();
    bed.open(1000..4000);
    bed.wait_for_packets(3000);
    bed.open(10_000..11_000);
    let found = bed.sessions();
    let unique: BTreeSet<u16> = found.iter().copied().collect();
    assert_eq!(unique.len(), found.len(), "each once");
    assert!((1000..4000).all(|port| unique.contains(&port)));
    bed.wait_for_packets(4000);
    let key = |port| SessionKey {
        instance: 0,
        transport: Transport::Udp,
        inside: (INSIDE, port),
        remote: (REMOTE, 53),
    };
    // Duplicates, and sessions that do not exist.
    let keys = (500..2000).chain(1000..1100).map(key).collect();
    let ended = bed.handle.work(EndSessions { keys, next: 0, cleared: Cleared::default() }, LONG).unwrap();
    assert_eq!(ended.cleared, Cleared { sessions: 1000, bindings: 1000 });
    let which = Selection { inside_port: Some(2500), ..Selection::default() };
    let clear =
        |which| Clear { which, extent: Extent::Session, at: Default::default(), cleared: Cleared::default() };
    assert_eq!(bed.handle.work(clear(which), LONG).unwrap().cleared, Cleared { sessions: 1, bindings: 1 });
    assert_eq!(bed.sessions().len(), 2999);
    let all = bed.handle.work(clear(Selection::default()), LONG).unwrap().cleared;
    assert_eq!(all, Cleared { sessions: 2999, bindings: 2999 });
    assert_eq!(bed.stop().engine.sessions_cleared, 4000);
}

#[test]
fn all_sessions_are_told_in_one_answer_until_the_feed_is_full() {
    let bed = Bed::start();
    let (feed, mut reader) = channel(FeedPolicy::default(), 6_000, 1);
    bed.handle.attach_peer_feed(Some(Box::new(feed)), LONG).unwrap();
    let tell =
        |at| bed.handle.work(SweepStandby::new(StandbySweep::TellAll, ShardSet::ALL, at), LONG).unwrap().at;
    bed.open(1000..6000);
    bed.wait_for_packets(5000);
    assert_eq!(bed.sessions().len(), 5000);
    // More sessions than a slice has.
    assert!(tell(FeedCursor::default()).is_done());
    assert_eq!(std::iter::from_fn(|| reader.next()).count(), 5000);
    bed.open(6000..14_000);
    bed.wait_for_packets(13_000);
    // The ring is full before the pass is over, and the caller gets the job back.
    let at = tell(FeedCursor::default());
    assert!(!at.is_done());
    assert_eq!(std::iter::from_fn(|| reader.next()).count(), 6_000);
    assert!(tell(at).is_done());
    bed.stop();
}

/// Job that runs until it is released.
struct Endless {
    enough: Arc<AtomicBool>,
    steps: Arc<AtomicUsize>,
}

impl Job for Endless {
    fn step(&mut self, _: &mut Nat, _: Instant, _: usize) -> bool {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.enough.load(Ordering::Relaxed)
    }
}

#[test]
fn jobs_are_limited_in_number_and_do_not_delay_packets() {
    let bed = Bed::start();
    let (enough, steps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (sender, done) = channel_of();
    let mut tickets: Vec<JobTicket> = Vec::new();
    let refused = loop {
        let (job, sender) =
            (Endless { enough: Arc::clone(&enough), steps: Arc::clone(&steps) }, sender.clone());
        match bed.handle.submit(job, move |_| sender.send(()).unwrap_or(())) {
            Ok(ticket) => tickets.push(ticket),
            Err(refused) => break refused,
        }
        assert!(tickets.len() < 1000, "taken without end");
        // Some are active, the others wait.
        std::thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(refused, SubmitError::Busy);
    assert!(tickets.len() >= WAITING_MAX, "{}", tickets.len());
    bed.open(1000..3000);
    let before = steps.load(Ordering::Relaxed);
    assert_eq!(bed.wait_for_packets(2000).engine.forwarded.packets, 2000);
    assert!(steps.load(Ordering::Relaxed) > before, "and the jobs go on as well");
    // Another job is done in its turn once there is room.
    let taken = tickets.len();
    tickets.truncate(taken / 2);
    enough.store(true, Ordering::Relaxed);
    (0..taken / 2).for_each(|_| done.recv_timeout(LONG).unwrap());
    assert!(done.recv_timeout(Duration::from_millis(50)).is_err(), "those without a ticket are not done");
    assert_eq!(bed.sessions().len(), 2000);
    bed.stop();
}

#[test]
fn a_worker_with_an_abandoned_job_sleeps_again() {
    let bed = Bed::start();
    let (enough, steps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let job = Endless { enough, steps: Arc::clone(&steps) };
    let ticket = bed.handle.submit(job, |_| ()).unwrap();
    while steps.load(Ordering::Relaxed) < 10 {
        std::thread::yield_now();
    }
    drop(ticket);
    std::thread::sleep(Duration::from_millis(50));
    let before = (steps.load(Ordering::Relaxed), bed.handle.snapshot(LONG).unwrap().worker.idle_waits);
    std::thread::sleep(Duration::from_millis(200));
    let after = (steps.load(Ordering::Relaxed), bed.handle.snapshot(LONG).unwrap().worker.idle_waits);
    assert_eq!(before.0, after.0);
    assert!(after.1 - before.1 <= 3, "woke {} times", after.1 - before.1);
    let handle = bed.handle.clone();
    bed.stop();
    let job = Endless { enough: Arc::default(), steps };
    assert_eq!(handle.submit(job, |_| ()).err(), Some(SubmitError::Ended));
}
