//! Hosts of the bench: workers whose devices are memory, and the thread of a member, as in the daemon.

use super::certificates::Certificates;
use super::source::{OWN_PORTS, Orders, Share, Source, Traffic};
use crate::packets::{self, Flows, STRIDE};
use anyhow::{Context as _, ensure};
use gatun_io::Waker;
use gatun_nat::plan::PoolRange;
use gatun_nat::workers::{Shares, Steering};
use gatun_nat::{Instant, Nat, Occupancy, Plan};
use gatun_peer::driver::{Driver, wait};
use gatun_peer::link::{Link, LinkSettings, LinkState};
use gatun_peer::member::{AddressRange, Member, MemberSettings, PairStatus, SavedStanding};
use gatun_peer::ownership::{self, Epoch, Rules, Timing};
use gatun_peer::tls::SERVER_NAME;
use gatun_peer::wire::{Exchange, Settings};
use gatun_peer::workers::{FeedSettings, WorkerEngines};
use gatun_worker::exchange::exchange;
use gatun_worker::jobs::Job;
use gatun_worker::{Clock, Handle, Snapshot, Worker};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Longest wait for something that takes a moment.
pub(super) const LONG: Duration = Duration::from_secs(120);

/// Properties that all boxes of a run have in common.
pub(super) struct Setup {
    pub(super) plan: Plan,
    pub(super) flows: Flows,
    pub(super) workers: usize,
    /// Records for which the ring of a feed has room.
    pub(super) ring: usize,
    pub(super) certificates: Certificates,
}

/// Thread whose processor time is measured.
#[derive(Clone, Default)]
pub(super) struct Measured(Arc<AtomicI32>);

impl Measured {
    /// The calling thread is the one.
    fn begin(&self) {
        self.0.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Release);
    }

    /// Processor time of the thread so far, ns.
    pub(super) fn ns(&self) -> anyhow::Result<u64> {
        let path = format!("/proc/self/task/{}/schedstat", self.0.load(Ordering::Acquire));
        let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        text.split_whitespace()
            .next()
            .and_then(|ns| ns.parse().ok())
            .with_context(|| format!("{path}: {text}"))
    }
}

/// Running workers of a box.
pub(super) struct Workers {
    pub(super) orders: Vec<Arc<Orders>>,
    handles: Vec<Handle>,
    steering: Arc<Steering>,
    threads: Vec<JoinHandle<(Snapshot, Option<io::Error>)>>,
    measured: Vec<Measured>,
}

/// Counts what an engine has.
struct Count(Occupancy);

impl Job for Count {
    fn step(&mut self, nat: &mut Nat, _: Instant, _: usize) -> bool {
        self.0 = nat.occupancy();
        true
    }
}

impl Workers {
    /// Starts workers. `is_paired` engines assign no port before a member gives them rights.
    pub(super) fn start(common: &Setup, clock: Clock, is_paired: bool) -> anyhow::Result<Workers> {
        let wrong = |error: gatun_nat::BuildError| anyhow::anyhow!("{}", error.0);
        let shares = Shares::new(&common.plan, common.workers, [7; 4]).map_err(wrong)?;
        let steering = Arc::new(shares.steering);
        let subscribers = subscribers(common, &steering)?;
        let mut workers =
            Workers { orders: vec![], handles: vec![], steering, threads: vec![], measured: vec![] };
        let exchanges = exchange(common.workers, &workers.steering)?;
        for (worker, (plan, exchange)) in shares.plans.iter().zip(exchanges).enumerate() {
            let mut nat = Nat::new(plan, [worker as u64 + 1; 4]).map_err(wrong)?;
            if is_paired {
                nat.begin_standby();
            }
            let (orders, measured) = (Arc::new(Orders::default()), Measured::default());
            let share = Share { flows: common.flows, subscribers: subscribers[worker].clone() };
            let source = Source::new(orders.clone(), share);
            let (worker, handle) = Worker::sharing(nat, Box::new(source), clock, exchange);
            workers.orders.push(orders);
            workers.handles.push(handle);
            workers.measured.push(measured.clone());
            workers.threads.push(thread::spawn(move || {
                measured.begin();
                worker.run()
            }));
        }
        Ok(workers)
    }

    /// Number of sessions, and of ports that wait for the other member.
    pub(super) fn count(&self) -> anyhow::Result<(u64, u64)> {
        let (mut sessions, mut quarantined) = (0, 0);
        for handle in &self.handles {
            let Count(found) = handle.work(Count(Occupancy::default()), LONG).context("a worker hangs")?;
            (sessions, quarantined) = (sessions + found.sessions, quarantined + found.quarantined);
        }
        Ok((sessions as u64, quarantined as u64))
    }

    /// Gives each worker packets at a rate.
    pub(super) fn order(&self, traffic: Traffic, each_per_second: u64) -> anyhow::Result<()> {
        self.orders.iter().for_each(|orders| orders.set(traffic, each_per_second));
        // Workers without packets sleep until somebody wants something.
        self.count().map(|_| ())
    }

    /// Processor time of all workers so far, ns.
    pub(super) fn ns(&self) -> anyhow::Result<u64> {
        self.measured.iter().map(Measured::ns).sum()
    }

    /// Sum of a counter of the devices.
    pub(super) fn sum(&self, of: impl Fn(&Orders) -> u64) -> u64 {
        self.orders.iter().map(|orders| of(orders)).sum()
    }

    /// Ends the workers, and checks their counters.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        self.handles.iter().for_each(Handle::stop);
        for thread in self.threads {
            let (snapshot, error) = thread.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?;
            ensure!(error.is_none() && snapshot.conserved(), "counters do not add up: {snapshot:?}");
        }
        Ok(())
    }
}

/// Subscribers of each worker.
fn subscribers(common: &Setup, steering: &Steering) -> anyhow::Result<Vec<Arc<[u64]>>> {
    let (mut lists, mut packet) = (vec![Vec::new(); common.workers], vec![0; STRIDE]);
    for subscriber in 0..common.flows.subscribers {
        let len = packets::write6(&common.flows.get(subscriber), super::source::FRAME, &mut packet);
        let owner = steering.owner(&packet[..len], 0).context("a packet without an owner")?;
        lists[owner].push(subscriber);
    }
    ensure!(lists.iter().all(|list| !list.is_empty()), "a worker has no subscribers");
    Ok(lists.into_iter().map(Arc::from).collect())
}

/// Request of an operator.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// The other box is off.
    TakeOver,
    /// The other box gets the ports.
    Release,
}

/// State that the member's thread publishes.
#[derive(Default)]
struct SharedState {
    state: Mutex<Option<(PairStatus, LinkState)>>,
    /// Times at which the number of received sessions had grown, and the number, while somebody wants them.
    received: Mutex<Vec<(std::time::Instant, u64)>>,
    is_traced: AtomicBool,
    /// Request of an operator that the member has not read yet.
    order: Mutex<Option<Order>>,
    /// Time at which the member had become the owner, while somebody waits for that.
    owner_since: Mutex<Option<std::time::Instant>>,
    awaits_ownership: AtomicBool,
    /// True once the member may begin.
    begins: AtomicBool,
    ends: AtomicBool,
}

impl SharedState {
    /// Passes an order to the member.
    fn obey(&self, driver: &mut Driver, now_ms: u64) -> anyhow::Result<()> {
        let order = self.order.lock().unwrap_or_else(PoisonError::into_inner).take();
        match order {
            None => Ok(()),
            Some(Order::TakeOver) => driver.member.take_over(now_ms).map_err(anyhow::Error::msg),
            Some(Order::Release) => driver.release(&mut |_| Ok(())).map_err(anyhow::Error::msg),
        }
    }

    /// Notes the time at which the member is the owner: the daemon changes its routes then.
    fn note_owner(&self, driver: &Driver, now_ms: u64) {
        if !self.awaits_ownership.load(Ordering::Acquire) {
            return;
        }
        let PairStatus { me, epochs, .. } = driver.member.status(now_ms);
        if epochs.iter().all(|epoch| epoch.owner == me) {
            self.awaits_ownership.store(false, Ordering::Release);
            *self.owner_since.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(std::time::Instant::now());
        }
    }
}

/// Box with workers and a member.
pub(super) struct PairedHost {
    pub(super) workers: Workers,
    pub(super) member: Measured,
    published: Arc<SharedState>,
    waker: Waker,
    thread: JoinHandle<anyhow::Result<()>>,
}

/// Place of a member's link: it listens, or connects.
pub(super) type Place = Result<TcpListener, SocketAddr>;

impl PairedHost {
    /// Starts a box. `is_owner` says that it has its state already, which is empty.
    pub(super) fn start(
        common: &Setup,
        me: ownership::Member,
        place: Place,
        is_owner: bool,
    ) -> anyhow::Result<PairedHost> {
        let one = PairedHost::prepare(common, me, place, is_owner)?;
        one.go();
        Ok(one)
    }

    /// Starts a box whose member waits for [`go`](Self::go).
    pub(super) fn prepare(
        common: &Setup,
        me: ownership::Member,
        place: Place,
        is_owner: bool,
    ) -> anyhow::Result<PairedHost> {
        let clock = Clock::new();
        let workers = Workers::start(common, clock, true)?;
        let waker = Waker::new()?;
        let feeds = FeedSettings { packets: 1, len: common.ring, generation: 1 };
        let engines = WorkerEngines::attach(
            workers.handles.clone(),
            workers.steering.clone(),
            feeds,
            waker.clone(),
            LONG,
        )
        .context("a worker does not answer")?;
        let (listen, connect) = match place {
            Ok(listener) => (Some(listener), None),
            Err(address) => (None, Some(address)),
        };
        let files = common.certificates.files(me)?;
        let name = SERVER_NAME.to_owned();
        let link = LinkSettings { member: me, listen, connect, files, name, dead_after_ms: 10_000 };
        let link = Link::new(link).map_err(anyhow::Error::msg)?;
        let running = (Driver::new(member(common, me, is_owner), link), engines, waker.clone());
        let (published, member) = (Arc::new(SharedState::default()), Measured::default());
        let thread = {
            let (published, member) = (published.clone(), member.clone());
            thread::spawn(move || {
                member.begin();
                while !published.begins.load(Ordering::Acquire) {
                    thread::park();
                }
                run(running, clock, &published)
            })
        };
        until("a thread", || Ok(member.0.load(Ordering::Acquire) != 0))?;
        Ok(PairedHost { workers, member, published, waker, thread })
    }

    /// Lets the member begin.
    pub(super) fn go(&self) {
        self.published.begins.store(true, Ordering::Release);
        self.thread.thread().unpark();
    }

    /// State of the member and of its link, a few ms old.
    pub(super) fn state(&self) -> anyhow::Result<(PairStatus, LinkState)> {
        let state = || self.published.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        until("a turn of the member", || Ok(state().is_some()))?;
        state().context("no turn of the member")
    }

    /// Returns the times at which sessions were received during some time, with their number so far.
    pub(super) fn trace(&self, during: impl FnOnce()) -> Vec<(std::time::Instant, u64)> {
        self.published.is_traced.store(true, Ordering::Release);
        during();
        self.published.is_traced.store(false, Ordering::Release);
        std::mem::take(&mut *self.published.received.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives the member an order.
    pub(super) fn order(&self, order: Order) {
        *self.published.order.lock().unwrap_or_else(PoisonError::into_inner) = Some(order);
        self.waker.wake();
    }

    /// Waits until the member owns the ports after some work. Returns the time of that.
    pub(super) fn owner_after(&self, work: impl FnOnce()) -> anyhow::Result<std::time::Instant> {
        let since = || *self.published.owner_since.lock().unwrap_or_else(PoisonError::into_inner);
        *self.published.owner_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.published.awaits_ownership.store(true, Ordering::Release);
        work();
        until("ownership", || Ok(since().is_some()))?;
        since().context("nobody owns the ports")
    }

    pub(super) fn stop(self) -> anyhow::Result<()> {
        self.published.ends.store(true, Ordering::Release);
        self.waker.wake();
        self.thread.join().map_err(|_| anyhow::anyhow!("a member panicked"))??;
        self.workers.stop()
    }
}

fn member(common: &Setup, me: ownership::Member, is_owner: bool) -> Member {
    let shards = vec![ownership::Member::First];
    let ranges = common.plan.pools.iter().flat_map(|pool| &pool.ranges);
    let range =
        |&PoolRange { first, last, ports, .. }: &PoolRange| AddressRange { first, last, ports, shard: 0 };
    let settings = MemberSettings {
        me,
        addresses: ranges.map(range).collect(),
        own_ports: OWN_PORTS,
        away_ms: 3_600_000,
        again_ms: 1_000,
        timing: Timing { lease_ms: 0, kernel_ms: 0, drift_ms: 0 },
        fence_ms: 1_000,
        revision: 1,
        rules: Rules::default(),
        shards,
    };
    let epochs = vec![Epoch { number: 1, owner: ownership::Member::First }];
    let saved = is_owner.then_some(SavedStanding { epochs, is_settled: true, is_peer_gone: false });
    Member::new(settings, Exchange::new(Settings::new(me, "box", 1 + me as u64, vec![])), saved)
}

/// Thread of a member.
fn run(
    (mut driver, mut engines, waker): (Driver, WorkerEngines, Waker),
    clock: Clock,
    published: &SharedState,
) -> anyhow::Result<()> {
    // The state is published once in a while, because that is no part of the daemon's work.
    const PUBLISH_MS: u64 = 10;
    let mut next_ms = 0;
    while !published.ends.load(Ordering::Acquire) {
        let now_ms = clock.now().0;
        published.obey(&mut driver, now_ms)?;
        let wait_ms = driver.turn(now_ms, &mut engines, &mut |_| Ok(()));
        if published.is_traced.load(Ordering::Acquire) {
            let number = driver.member.status(now_ms).counters.sessions_received;
            let mut received = published.received.lock().unwrap_or_else(PoisonError::into_inner);
            if received.last().is_none_or(|(_, last)| *last < number) {
                received.push((std::time::Instant::now(), number));
            }
        }
        published.note_owner(&driver, now_ms);
        if now_ms >= next_ms {
            next_ms = now_ms + PUBLISH_MS;
            let state = (driver.member.status(now_ms), driver.link.state().clone());
            *published.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        }
        wait(wait_ms, &waker, None, std::iter::once(&driver.link))?;
    }
    Ok(())
}

/// Waits until something has happened.
///
/// # Errors
/// It does not happen for long.
pub(super) fn until(what: &str, is: impl Fn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let begin = std::time::Instant::now();
    while !is()? {
        ensure!(begin.elapsed() < LONG, "{what} takes too long");
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
