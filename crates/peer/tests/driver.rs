//! Two boxes with running workers, and the thread of a member in each, connected over TCP and TLS on loopback.
#![allow(missing_docs)]

mod pki;

use gatun_io::memory::MemoryPeer;
use gatun_io::{Memory, Waker};
use gatun_nat::inspect::{Selection, SessionCursor, SessionInfo};
use gatun_nat::plan::{Nat44, Net4, Plan, Pool4, PoolRange};
use gatun_nat::workers::Shares;
use gatun_nat::{ClearCursor, Extent, Nat};
use gatun_peer::driver::Driver;
use gatun_peer::link::{Link, LinkSettings};
use gatun_peer::member::{AddressRange, Member, MemberSettings, PairStatus, SavedStanding};
use gatun_peer::ownership::{self, Rules, Timing};
use gatun_peer::wire::{Exchange, Settings};
use gatun_peer::workers::{FeedSettings, WorkerEngines};
use gatun_testkit::packet::text::udp4;
use gatun_worker::exchange::exchange;
use gatun_worker::jobs::{Clear, ReadSessions};
use gatun_worker::{Clock, Handle, Worker};
use pki::{Authority, Files};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
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

fn member(me: ownership::Member) -> Member {
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
        revision: 1,
        rules: Rules::default(),
    };
    Member::new(settings, Exchange::new(Settings::new(me, "box", 1 + me as u64, vec![])), None)
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
    waker: Waker,
    threads: Vec<JoinHandle<()>>,
}

impl Bed {
    fn start(me: ownership::Member, files: &Files, at: Result<TcpListener, SocketAddr>, saves: bool) -> Bed {
        let shares = Shares::new(&plan(), WORKERS, [5; 4]).unwrap();
        let steering = Arc::new(shares.steering);
        let clock = Clock::new();
        let waker = Waker::new().unwrap();
        let mut bed = Bed {
            devices: vec![],
            handles: vec![],
            status: Arc::default(),
            saves: Arc::new(AtomicBool::new(saves)),
            save_error: Arc::default(),
            ends: Arc::default(),
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
        let settings =
            LinkSettings { member: me, listen, connect, files: files.paths(), dead_after_ms: 10_000 };
        let driver = Driver::new(member(me), Link::new(settings).unwrap(), engines.unwrap(), waker);
        bed.run(driver, clock);
        until("the member has a turn", || bed.status.lock().unwrap().is_some());
        bed
    }

    fn run(&mut self, mut driver: Driver, clock: Clock) {
        let (status, error) = (self.status.clone(), self.save_error.clone());
        let (saves, ends) = (self.saves.clone(), self.ends.clone());
        self.threads.push(thread::spawn(move || {
            let mut save = |_: &SavedStanding| match saves.load(Ordering::Relaxed) {
                true => Ok(()),
                false => Err("no room".to_owned()),
            };
            while !ends.load(Ordering::Relaxed) {
                let now_ms = clock.now().0;
                let wait_ms = driver.turn(now_ms, &mut save);
                *status.lock().unwrap() = Some(driver.member.status(now_ms));
                error.lock().unwrap().clone_from(&driver.save_error);
                driver.wait(wait_ms).unwrap();
            }
        }));
    }

    fn status(&self) -> PairStatus {
        self.status.lock().unwrap().clone().expect("the member has had a turn")
    }

    fn is_synced(&self) -> bool {
        self.status().is_synced
    }

    /// Sends a datagram of each flow to the first worker, which hands over those of the others: few at a
    /// time, because their ring is short.
    fn open(&self, flows: u16) {
        for flow in 0..flows {
            let host = format!("10.0.{}.{}", flow % 250, 1 + flow / 250);
            self.devices[0].push(udp4(&host, 4_000, "198.51.100.7", 53, b"x"));
            if (flow + 1) % 100 == 0 {
                until("the sessions are open", || self.sessions().len() == usize::from(flow) + 1);
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

fn pair(saves: bool) -> [Bed; 2] {
    let authority = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let first = Bed::start(ownership::Member::First, &authority.files(), Ok(listener), saves);
    let second = Bed::start(ownership::Member::Second, &authority.files(), Err(address), true);
    [first, second]
}

#[test]
fn sessions_of_one_box_are_at_the_other_one_until_they_end() {
    let [first, second] = pair(true);
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
    let [first, second] = pair(false);
    let has_failed = || first.save_error.lock().unwrap().as_deref() == Some("no room");
    until("saving has failed", has_failed);
    assert_eq!(second.status().counters.connections, 0);
    first.saves.store(true, Ordering::Relaxed);
    until("the boxes agree", || first.is_synced() && second.is_synced());
    assert!(!has_failed());
    [first, second].into_iter().for_each(Bed::stop);
}
