//! Two boxes with running workers, and the thread of a member in each, connected over TCP and TLS on loopback.
#![allow(missing_docs)]

mod pki;

use gatun_io::memory::MemoryPeer;
use gatun_io::{Memory, Waker};
use gatun_nat::feed::Record;
use gatun_nat::inspect::{Selection, SessionCursor, SessionInfo};
use gatun_nat::plan::{Nat44, Net4, Plan, Pool4, PoolRange};
use gatun_nat::workers::Shares;
use gatun_nat::{ClearCursor, Extent, Nat};
use gatun_peer::driver::{Driver, wait};
use gatun_peer::link::{Link, LinkSettings};
use gatun_peer::member::{
    AddressRange, Engines as _, Member, MemberSettings, PairStatus, SavedStanding, TakeOverError,
};
use gatun_peer::ownership::{self, Rules, Timing};
use gatun_peer::tls::SERVER_NAME;
use gatun_peer::wire::{ConfigKey, Exchange, Settings};
use gatun_peer::workers::{FeedSettings, WorkerEngines};
use gatun_testkit::packet::text::udp4;
use gatun_worker::exchange::exchange;
use gatun_worker::jobs::{Clear, ReadSessions};
use gatun_worker::{Clock, Handle, Worker};
use pki::{Authority, Files};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);
const WORKERS: usize = 2;
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];

fn plan() -> Plan {
    let inside = Net4::new(Ipv4Addr::new(10, 0, 0, 0), 8);
    let [first, last] = ADDRESSES;
    let range = PoolRange { first, last, ports: (1024, 65_535), transports: [true; 3] };
    let mut plan = Plan {
        pools: vec![Pool4 { name: "pool".into(), ranges: vec![range], ..Pool4::default() }],
        nat44: vec![Nat44 { name: "home".into(), inside: inside.into_iter().collect(), ..Nat44::default() }],
        ..Plan::default()
    };
    plan.limits.sessions_max = 20_000;
    plan
}

/// Properties of a box that vary between tests.
struct Start {
    saves: bool,
    keys: Vec<ConfigKey>,
    saved: Option<SavedStanding>,
}

impl Default for Start {
    fn default() -> Start {
        Start { saves: true, keys: vec![], saved: None }
    }
}

/// Box whose configuration has this limit.
fn with_limit(limit: &str) -> Vec<ConfigKey> {
    vec![ConfigKey::new("limits.sessions_max", limit)]
}

/// Work for the thread of a member.
type Order = Box<dyn FnOnce(&mut Driver, u64) + Send>;

fn member(me: ownership::Member, start: &Start) -> Member {
    let settings = MemberSettings {
        me,
        shards: vec![ownership::Member::First],
        addresses: vec![AddressRange {
            first: ADDRESSES[0],
            last: ADDRESSES[1],
            ports: (1024, 65_535),
            shard: 0,
        }],
        own_ports: 1_000,
        away_ms: 10_000,
        again_ms: 1_000,
        timing: Timing { lease_ms: 0, kernel_ms: 0, drift_ms: 0 },
        fence_ms: 0,
        revision: 1,
        rules: Rules::default(),
    };
    let exchange = Exchange::new(Settings::new(me, "box", 1 + me as u64, start.keys.clone()));
    Member::new(settings, exchange, start.saved.clone())
}

/// Box with running workers.
struct Bed {
    devices: Vec<MemoryPeer>,
    handles: Vec<Handle>,
    status: Arc<Mutex<Option<PairStatus>>>,
    /// False if the standing cannot be saved.
    saves: Arc<AtomicBool>,
    save_error: Arc<Mutex<Option<String>>>,
    ends: Arc<AtomicBool>,
    /// Number of times that it has become synced, or is not any more.
    synced_changes: Arc<AtomicU64>,
    orders: Sender<Order>,
    waker: Waker,
    threads: Vec<JoinHandle<()>>,
}

impl Bed {
    fn start(me: ownership::Member, files: &Files, at: Result<TcpListener, SocketAddr>, start: Start) -> Bed {
        let shares = Shares::new(&plan(), WORKERS, [5; 4]).unwrap();
        let steering = Arc::new(shares.steering);
        let clock = Clock::new();
        let waker = Waker::new().unwrap();
        let (orders, received) = channel();
        let mut bed = Bed {
            devices: vec![],
            handles: vec![],
            status: Arc::default(),
            saves: Arc::new(AtomicBool::new(start.saves)),
            save_error: Arc::default(),
            ends: Arc::default(),
            synced_changes: Arc::default(),
            orders,
            waker: waker.clone(),
            threads: vec![],
        };
        for (plan, exchange) in shares.plans.iter().zip(exchange(WORKERS, &steering).unwrap()) {
            let (memory, device) = Memory::new("m").unwrap();
            let mut nat = Nat::new(plan, [1, 2, 3, 4]).unwrap();
            nat.begin_standby();
            let (worker, handle) = Worker::sharing(nat, Box::new(memory), clock, exchange);
            bed.threads.push(thread::spawn(move || assert!(worker.run().1.is_none())));
            bed.devices.push(device);
            bed.handles.push(handle);
        }
        let feeds = FeedSettings { packets: 1, len: 4_096, generation: 1 };
        let engines = WorkerEngines::attach(bed.handles.clone(), steering, feeds, waker.clone(), LONG);
        let (listen, connect) = (at.as_ref().ok().map(|l| l.try_clone().unwrap()), at.err());
        let (files, name) = (files.paths(), SERVER_NAME.to_owned());
        let settings = LinkSettings { member: me, listen, connect, files, name, dead_after_ms: 3_000 };
        let driver = Driver::new(member(me, &start), Link::new(settings).unwrap());
        bed.run((driver, engines.unwrap(), waker), received, clock);
        until("the member has a turn", || bed.status.lock().unwrap().is_some());
        bed
    }

    fn run(
        &mut self,
        (mut driver, mut engines, waker): (Driver, WorkerEngines, Waker),
        orders: Receiver<Order>,
        clock: Clock,
    ) {
        let (status, error) = (self.status.clone(), self.save_error.clone());
        let (saves, ends, changes) = (self.saves.clone(), self.ends.clone(), self.synced_changes.clone());
        let mut was_synced = false;
        self.threads.push(thread::spawn(move || {
            let mut save = |_: &SavedStanding| match saves.load(Ordering::Relaxed) {
                true => Ok(()),
                false => Err("no room".to_owned()),
            };
            while !ends.load(Ordering::Relaxed) {
                let now_ms = clock.now().0;
                orders.try_iter().for_each(|order| order(&mut driver, now_ms));
                let wait_ms = driver.turn(now_ms, &mut engines, &mut save);
                let now = driver.member.status(now_ms);
                changes.fetch_add(u64::from(now.is_synced != was_synced), Ordering::Relaxed);
                was_synced = now.is_synced;
                *status.lock().unwrap() = Some(now);
                error.lock().unwrap().clone_from(&driver.saver.error);
                wait(wait_ms, &waker, None, std::iter::once(&driver.link)).unwrap();
            }
        }));
    }

    /// Has the thread of the member do something.
    fn ask<T: Send + 'static>(&self, work: impl FnOnce(&mut Driver, u64) -> T + Send + 'static) -> T {
        let (answer, answers) = channel();
        let order = move |driver: &mut Driver, now_ms| answer.send(work(driver, now_ms)).unwrap();
        self.orders.send(Box::new(order)).unwrap();
        self.waker.wake();
        answers.recv_timeout(LONG).unwrap()
    }

    fn take_over(&self) -> Result<(), TakeOverError> {
        self.ask(|driver, now_ms| driver.member.take_over(now_ms))
    }

    fn status(&self) -> PairStatus {
        self.status.lock().unwrap().clone().expect("the member has had a turn")
    }

    fn is_synced(&self) -> bool {
        self.status().is_synced
    }

    /// Sends a datagram of each flow to the first worker, which hands over those of the others: few at a
    /// time, because their ring is short. A datagram that comes before the member has its rights is dropped,
    /// so all are sent until their sessions are open.
    fn open(&self, flows: u16) {
        let flows: Vec<u16> = (0..flows).collect();
        for some in flows.chunks(100) {
            let is_open = || self.sessions().len() > usize::from(some[some.len() - 1]);
            let deadline = Instant::now() + LONG;
            while !is_open() {
                assert!(Instant::now() < deadline, "the sessions are open");
                for flow in some {
                    let host = format!("10.0.{}.{}", flow % 250, 1 + flow / 250);
                    self.devices[0].push(udp4(&host, 4_000, "198.51.100.7", 53, b"x"));
                }
                let again = Instant::now() + Duration::from_millis(500);
                while !is_open() && Instant::now() < again {
                    thread::sleep(Duration::from_millis(2));
                }
            }
        }
    }

    fn sessions(&self) -> Vec<SessionInfo> {
        let mut all = Vec::new();
        for handle in &self.handles {
            let found = Vec::with_capacity(20_000);
            let (which, at) = (Selection::default(), SessionCursor::default());
            all.extend(handle.work(ReadSessions { which, at, found }, LONG).unwrap().found);
        }
        all
    }

    /// Flows: inside and public ends.
    fn flows(&self) -> Vec<((Ipv6Addr, u16), (Ipv4Addr, u16))> {
        let mut all: Vec<_> = self.sessions().iter().map(|one| (one.inside, one.outside)).collect();
        all.sort_unstable();
        all
    }

    fn stop(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.waker.wake();
        self.handles.iter().for_each(Handle::stop);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn until(what: &str, is: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn pair(of_first: Start, of_second: Start) -> [Bed; 2] {
    let (authority, (listener, address)) = (Authority::new(), listen());
    let first = Bed::start(ownership::Member::First, &authority.files(), Ok(listener), of_first);
    let second = Bed::start(ownership::Member::Second, &authority.files(), Err(address), of_second);
    [first, second]
}

#[test]
fn sessions_of_one_box_are_at_the_other_one_until_they_end() {
    let [first, second] = pair(Start::default(), Start::default());
    until("the boxes agree", || first.is_synced() && second.is_synced());
    first.open(3_000);
    until("the sessions are there", || second.sessions().len() == 3_000);
    assert_eq!(second.flows(), first.flows());
    assert!(second.sessions().iter().all(|one| one.is_standby));
    for handle in &first.handles {
        let (which, extent) = (Selection::default(), Extent::Session);
        let at = ClearCursor::default();
        assert!(handle.work(Clear { which, extent, at, cleared: Default::default() }, LONG).is_some());
    }
    until("the sessions have ended", || second.sessions().is_empty());
    until("the ends are acknowledged", || first.status().counters.ends_waiting == 0);
    let counters = first.status().counters;
    assert_eq!((counters.sessions_told, counters.ends_told, counters.lost), (3_000, 3_000, 0));
    [first, second].into_iter().for_each(Bed::stop);
}

#[test]
fn nothing_is_sent_before_the_standing_is_saved() {
    let [first, second] = pair(Start { saves: false, ..Start::default() }, Start::default());
    let has_failed = || first.save_error.lock().unwrap().as_deref() == Some("no room");
    until("saving has failed", has_failed);
    assert_eq!(second.status().counters.connections, 0);
    first.saves.store(true, Ordering::Relaxed);
    until("the boxes agree", || first.is_synced() && second.is_synced());
    assert!(!has_failed());
    [first, second].into_iter().for_each(Bed::stop);
}

#[test]
fn a_box_that_is_refused_is_not_gone() {
    let [first, second] = pair(
        Start { keys: with_limit("1"), ..Start::default() },
        Start { keys: with_limit("2"), ..Start::default() },
    );
    until("both know the difference", || {
        [&first, &second].iter().all(|bed| bed.status().differences.len() == 1)
    });
    assert_eq!(second.status().peer_name, "box");
    let refused = second.take_over().unwrap_err();
    let TakeOverError::Refused(why) = &refused else { panic!("{refused:?}") };
    assert!(why.contains("the configurations differ: limits.sessions_max"), "{why}");
    assert!(refused.to_string().contains("the peer answers"), "{refused}");
    first.stop();
    until("it may take over", || second.take_over().is_ok());
    until("it owns all", || second.status().is_peer_gone);
    second.stop();
}

#[test]
fn a_box_that_is_declared_gone_knows_it_whatever_its_configuration_is() {
    let (authority, (listener, address)) = (Authority::new(), listen());
    let of_second = Start { keys: with_limit("2"), ..Start::default() };
    let second = Bed::start(ownership::Member::Second, &authority.files(), Err(address), of_second);
    second.take_over().unwrap();
    until("it owns all", || second.status().is_peer_gone);
    let epoch = ownership::Epoch { number: 1, owner: ownership::Member::First };
    let saved = Some(SavedStanding { epochs: vec![epoch], is_settled: true, is_peer_gone: false });
    let of_first = Start { keys: with_limit("1"), saved, ..Start::default() };
    let first = Bed::start(ownership::Member::First, &authority.files(), Ok(listener), of_first);
    until("it knows", || first.status().is_declared_gone);
    assert!(!first.status().is_settled && !second.status().is_declared_gone);
    [first, second].into_iter().for_each(Bed::stop);
}

#[test]
fn a_member_is_synced_once_and_counts_what_it_tells() {
    let (authority, (listener, address)) = (Authority::new(), listen());
    let first = Bed::start(ownership::Member::First, &authority.files(), Ok(listener), Start::default());
    first.ask(|driver, now_ms| driver.member.take_over(now_ms).unwrap());
    until("it owns all", || first.status().is_settled);
    first.open(300);
    assert_eq!(first.status().counters.sessions_told, 0, "nobody was told");
    let second = Bed::start(ownership::Member::Second, &authority.files(), Err(address), Start::default());
    until("the boxes agree", || first.is_synced() && second.is_synced());
    assert_eq!(first.status().counters.sessions_told, 300);
    for bed in [&first, &second] {
        let changes = bed.synced_changes.load(Ordering::Relaxed);
        assert_eq!(changes, 1, "both logs say once that the boxes have the same sessions");
    }
    [first, second].into_iter().for_each(Bed::stop);
}

#[test]
fn a_reload_of_one_box_is_known_to_both_and_they_stay_connected() {
    let [first, second] = pair(Start::default(), Start::default());
    until("the boxes agree", || first.is_synced() && second.is_synced());
    second.ask(|driver, _| driver.member.exchange.set_keys(with_limit("2")));
    until("both know the difference", || {
        [&first, &second].iter().all(|bed| bed.status().differences.len() == 1)
    });
    first.open(100);
    until("the sessions are there", || second.sessions().len() == 100);
    assert!(first.is_synced() && second.is_synced());
    assert_eq!(first.status().counters.connections, 1);
    first.ask(|driver, _| driver.member.exchange.set_keys(with_limit("2")));
    until("nothing differs", || [&first, &second].iter().all(|bed| bed.status().differences.is_empty()));
    [first, second].into_iter().for_each(Bed::stop);
}

#[test]
fn a_release_lasts_until_the_other_member_has_handled_it() {
    let [first, second] = pair(Start::default(), Start::default());
    until("the boxes agree", || first.is_synced() && second.is_synced());
    let (go_on, blocked) = channel::<()>();
    let (is_there, entered) = channel();
    second
        .orders
        .send(Box::new(move |_, _| {
            is_there.send(()).unwrap();
            blocked.recv_timeout(LONG).unwrap();
        }))
        .unwrap();
    second.waker.wake();
    entered.recv_timeout(LONG).unwrap();
    first.ask(|driver, _| driver.member.release().unwrap());
    let owner = |bed: &Bed| bed.status().epochs[0].owner;
    until("the shard is given away", || owner(&first) == ownership::Member::Second);
    assert!(first.status().is_releasing && owner(&second) == ownership::Member::First);
    go_on.send(()).unwrap();
    until("the release has ended", || !first.status().is_releasing);
    let of_second = second.ask(|driver, now_ms| driver.member.status(now_ms).epochs[0].owner);
    assert_eq!(of_second, ownership::Member::Second);
    [first, second].into_iter().for_each(Bed::stop);
}

#[test]
fn a_member_whose_state_cannot_be_saved_releases_nothing_and_is_not_connected() {
    let [first, second] = pair(Start::default(), Start::default());
    until("the boxes agree", || first.is_synced() && second.is_synced());
    let release = || {
        let saves = first.saves.clone();
        first.ask(move |driver, _| {
            driver.release(&mut |_| match saves.load(Ordering::Relaxed) {
                true => Ok(()),
                false => Err("no room".to_owned()),
            })
        })
    };
    first.saves.store(false, Ordering::Relaxed);
    assert_eq!(release(), Err("no room".to_owned()));
    assert!(first.is_synced() && first.status().epochs[0].owner == ownership::Member::First);
    // The disk is full just after the release.
    first.ask(|driver, _| driver.member.release().unwrap());
    until("the connection ends", || !first.status().is_open && !second.status().is_open);
    assert_eq!(second.status().epochs[0].owner, ownership::Member::First, "it was not told");
    let why = || second.ask(|driver, _| driver.link.state().why.clone().unwrap_or_default());
    until("the other box says why", || why().contains("refused by the peer: the state of this member"));
    assert!(release().is_err());
    first.saves.store(true, Ordering::Relaxed);
    for bed in [&first, &second] {
        until("the other box owns all", || bed.status().epochs[0].owner == ownership::Member::Second);
    }
    until("the boxes agree", || first.is_synced() && second.is_synced());
    [first, second].into_iter().for_each(Bed::stop);
}

#[test]
fn each_member_gets_the_records_of_its_shards_in_their_order() {
    let shares = Shares::new(&Plan { shards: Some(2), ..plan() }, 1, [5; 4]).unwrap();
    let steering = Arc::new(shares.steering);
    let (memory, device) = Memory::new("m").unwrap();
    let nat = Nat::new(&shares.plans[0], [1, 2, 3, 4]).unwrap();
    let exchange = exchange(1, &steering).unwrap().remove(0);
    let (worker, handle) = Worker::sharing(nat, Box::new(memory), Clock::new(), exchange);
    let thread = thread::spawn(move || assert!(worker.run().1.is_none()));
    let feeds = FeedSettings { packets: 1, len: 256, generation: 1 };
    let waker = Waker::new().unwrap();
    let mut engines =
        WorkerEngines::attach(vec![handle.clone()], steering.clone(), feeds, waker, LONG).unwrap();
    assert_eq!([engines.add_member(), engines.add_member()], [1, 2]);
    engines.assign(0, Some(0));
    engines.assign(1, Some(1));
    for host in 1..=60 {
        device.push(udp4(&format!("10.0.0.{host}"), 4_000, "198.51.100.7", 53, b"x"));
    }
    let count =
        || handle.work(ReadSessions { found: Vec::with_capacity(100), ..all() }, LONG).unwrap().found.len();
    until("the sessions are open", || count() == 60);
    // The second member reads first, so that records wait for the other one.
    let mut numbers = [1, 0, 2].map(|member| {
        let engines = engines.of(member);
        let read = std::iter::from_fn(|| engines.next_record(0));
        let of_session = read.map(|(at, record)| match record {
            Record::Session(session) => {
                let shard = steering.shard_of_address(session.id.flow.outside.0);
                assert_eq!(shard.map(usize::from), Some(member), "{session:?}");
                at.number
            }
            other => panic!("{other:?}"),
        });
        of_session.collect::<Vec<_>>()
    });
    assert!(numbers.iter().all(|of_member| of_member.is_sorted()), "{numbers:?}");
    assert!(numbers[2].is_empty() && !numbers[0].is_empty() && !numbers[1].is_empty(), "{numbers:?}");
    let mut all: Vec<u64> = numbers.iter_mut().flat_map(std::mem::take).collect();
    all.sort_unstable();
    assert_eq!(all, (all[0]..all[0] + 60).collect::<Vec<_>>());
    handle.stop();
    thread.join().unwrap();
}

fn all() -> ReadSessions {
    ReadSessions { which: Selection::default(), at: SessionCursor::default(), found: Vec::new() }
}
