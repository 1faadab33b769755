//! Manager of a fast path with a running worker: feed, commands, and reading of the state.

use gatun_io::{Memory, memory::MemoryPeer};
use gatun_nat::counters::{Count, Traffic};
use gatun_nat::feed::{
    Action, Command, CommandOutcome, FeedPolicy, FeedReader, Flow, Offload, Ownership, Record, SessionChange,
    SessionId, SessionScope, channel,
};
use gatun_nat::plan::{Nat64, Plan, Pool4, PoolRange, Transport};
use gatun_nat::{FeedCursor, Nat};
use gatun_testkit::packet::{Message, V6};
use gatun_wire::Prefix64;
use gatun_worker::jobs::SubmitError;
use gatun_worker::offload::{BATCHES_MAX, ReadFeed, ReleaseAll};
use gatun_worker::{Clock, Handle, Snapshot, Worker};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::mpsc::channel as answers;
use std::thread::JoinHandle;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(10);
const REMOTE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const INSIDE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 5);
const POLICY: FeedPolicy = FeedPolicy {
    sessions: SessionScope::Established,
    bindings: false,
    blocks: false,
    paths: false,
    packets: 1,
    tcp_packets: 0,
};

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

    /// Sends commands in batches of `each`, and returns them with their outcomes.
    fn order(&self, ids: &[SessionId], action: Action, each: usize) -> Vec<Command> {
        let (sender, receiver) = answers();
        let mut batches = 0;
        for ids in ids.chunks(each) {
            let sender = sender.clone();
            let commands = ids.iter().map(|&id| Command::new(id, action)).collect();
            self.handle.offload(commands, move |done| drop(sender.send(done))).unwrap();
            batches += 1;
        }
        let answers = (0..batches).flat_map(|_| receiver.recv_timeout(LONG).unwrap());
        answers.collect()
    }

    fn read(&self, policy: FeedPolicy) -> Vec<SessionId> {
        let (mut at, mut all) = (FeedCursor::default(), Vec::new());
        while !at.is_done() {
            let job = self.handle.work(ReadFeed::new(policy, at, 100), LONG).unwrap();
            assert!(job.since.unwrap().number <= job.until.unwrap().number);
            all.extend(job.found.iter().map(|record| record.id));
            at = job.at;
        }
        all
    }
}

fn next(reader: &mut FeedReader) -> Record {
    let deadline = std::time::Instant::now() + LONG;
    loop {
        if let Some((_, record)) = reader.next() {
            return record;
        }
        assert!(std::time::Instant::now() < deadline, "no record");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn commands_are_handled_in_their_order_while_packets_go_on() {
    let bed = Bed::start();
    let (feed, mut reader) = channel(POLICY, 10_000, 3);
    assert!(bed.handle.attach_feed(Some(Box::new(feed)), LONG).unwrap().is_none());
    bed.open(1000..4000);
    let mut ids = Vec::new();
    while ids.len() < 3000 {
        let Record::Session(session) = next(&mut reader) else { panic!("only sessions are wanted") };
        assert_eq!(session.change, SessionChange::Established);
        ids.push(session.id);
    }
    let ports: Vec<u16> = ids.iter().map(|id| id.flow.inside.1).collect();
    assert!(ports.iter().copied().eq(1000..4000), "in the order of their packets");
    // The outcomes of a session keep their order in any batches: the mark comes before the release.
    bed.open(10_000..11_000);
    let mark = |offload| Action::Mark(Ownership { epoch: 1, offload });
    let outcomes = |done: Vec<Command>| {
        assert!(done.iter().map(|command| command.id).eq(ids.iter().copied()));
        let first = done[0].outcome;
        assert!(done.iter().all(|command| command.outcome == first));
        first
    };
    assert_eq!(outcomes(bed.order(&ids, mark(Offload::Draining), 700)), CommandOutcome::Refused);
    assert_eq!(outcomes(bed.order(&ids, mark(Offload::Pending), 700)), CommandOutcome::Done);
    assert_eq!(outcomes(bed.order(&ids, mark(Offload::Draining), 1500)), CommandOutcome::Done);
    assert_eq!(bed.read(FeedPolicy::default()), ids);
    assert_eq!(outcomes(bed.order(&ids[..], Action::Released, 20)), CommandOutcome::Done);
    assert_eq!(bed.read(FeedPolicy::default()), []);
    assert_eq!(bed.read(POLICY).len(), 4000);
    // Credited packets have a fate in the engine, but the worker has not seen them.
    let count = |packets| Count { packets, bytes: 100 * packets };
    let credit = Action::Credit(Traffic { outbound: count(3), inbound: count(2) });
    let unknown = SessionId { record: u32::MAX, ..ids[0] };
    assert_eq!(bed.order(&[ids[0], unknown, ids[1]], credit, 2)[1].outcome, CommandOutcome::Gone);
    let snapshot = bed.handle.snapshot(LONG).unwrap();
    assert!(snapshot.conserved() && snapshot.engine.offloaded.packets == 10, "{snapshot:?}");
    // An empty batch is answered, too.
    let (sender, receiver) = answers();
    bed.handle.offload(Vec::new(), move |done| drop(sender.send(done))).unwrap();
    assert_eq!(receiver.recv_timeout(LONG).unwrap(), []);
    bed.handle.stop();
    let (snapshot, error) = bed.thread.join().unwrap();
    assert!(error.is_none() && snapshot.conserved());
    assert!(reader.is_abandoned());
    let refused = bed.handle.offload(Vec::new(), drop).unwrap_err();
    assert_eq!((refused.error, refused.commands), (SubmitError::Ended, Vec::new()));
}

#[test]
fn all_are_released_by_one_job() {
    let bed = Bed::start();
    let (feed, mut reader) = channel(POLICY, 10_000, 3);
    bed.handle.attach_feed(Some(Box::new(feed)), LONG).unwrap();
    bed.open(1000..1500);
    let ids: Vec<SessionId> = (0..500)
        .map(|_| match next(&mut reader) {
            Record::Session(session) => session.id,
            other => panic!("{other:?}"),
        })
        .collect();
    bed.order(&ids, Action::Mark(Ownership { epoch: 1, offload: Offload::Fast }), 500);
    assert_eq!(bed.handle.work(ReleaseAll::default(), LONG).unwrap().released, 500);
    assert_eq!(bed.read(FeedPolicy::default()), []);
    let feed = bed.handle.attach_feed(None, LONG).unwrap();
    assert!(feed.is_some_and(|feed| feed.lost() == 0));
    bed.handle.stop();
    assert!(bed.thread.join().unwrap().1.is_none());
}

#[test]
fn a_full_queue_says_so_and_nothing_of_the_batch_is_done() {
    let bed = Bed::start();
    // The worker waits in `done` until the test continues.
    let (go, wait) = answers::<()>();
    let (begun, has_begun) = answers::<()>();
    let block = move |_| {
        begun.send(()).unwrap();
        wait.recv().unwrap();
    };
    bed.handle.offload(Vec::new(), block).unwrap();
    has_begun.recv_timeout(LONG).unwrap();
    for _ in 0..BATCHES_MAX {
        bed.handle.offload(Vec::new(), drop).unwrap();
    }
    let flow = Flow {
        inside: (INSIDE, 1),
        outside: (REMOTE, 1),
        remote: (REMOTE, 1),
        transport: Transport::Udp,
        instance: 0,
    };
    let some = vec![Command::new(SessionId { record: 1, flow }, Action::Released)];
    let refused = bed.handle.offload(some.clone(), |_| panic!("refused")).unwrap_err();
    assert_eq!((refused.error, refused.commands), (SubmitError::Busy, some));
    go.send(()).unwrap();
    let (sender, receiver) = answers();
    while bed
        .handle
        .offload(Vec::new(), {
            let sender = sender.clone();
            move |_| sender.send(()).unwrap_or_default()
        })
        .is_err()
    {
        std::thread::yield_now();
    }
    receiver.recv_timeout(LONG).unwrap();
    bed.handle.stop();
    assert!(bed.thread.join().unwrap().1.is_none());
}
