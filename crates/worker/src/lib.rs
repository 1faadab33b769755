//! Worker: the loop of one core. It receives a burst, translates it, sends it, expires due state, and sleeps
//! when idle.
//!
//! A [`Worker`] owns one engine and one backend and shares nothing. Other threads use its [`Handle`]: a
//! mailbox that is read between bursts, so that no request delays packets. Long requests are [`jobs`], and a
//! fast path's manager sends commands ([`offload`]). If several workers share a stateful translator, an
//! [`exchange`] moves each packet to the worker that has its session.
#![forbid(unsafe_code)]

mod burst;
pub mod exchange;
pub mod jobs;
pub mod mailbox;
pub mod offload;
mod redirect;
pub mod standby;
pub mod stats;
pub mod trace;

use burst::{BurstHandler, BurstOutput};
use exchange::Exchange;
use gatun_io::{Backend, Waker};
use gatun_nat::{Instant, Nat};
use mailbox::{Applied, Request, RequestQueue, RestoreStatus, SettlingProgress};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::time::Duration;

pub use exchange::{ExchangeCounters, PacketOwner};
pub use mailbox::Handle;
pub use stats::{Snapshot, WorkerStats, add_pools};

/// Number of records examined for expiry after each burst.
const EXPIRE_BUDGET: usize = 256;
/// Number of saved records examined for restoring sessions after a burst (a restored one costs 8): if no
/// packet arrived, and per packet that did.
const RESTORE_IDLE: usize = 1024;
const RESTORE_BUSY: usize = 32;

/// Clock of all workers of a process: milliseconds since its creation.
///
/// It counts the time for which the host was suspended: leases, fences, promises and lifetimes end
/// meanwhile (decision 0107). `std::time::Instant` is CLOCK_MONOTONIC, which stands still then.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Duration,
}

impl Clock {
    /// Creates a clock that starts now.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Clock { start: since_boot() }
    }

    /// Milliseconds since the start.
    pub fn now(&self) -> Instant {
        Self::instant(self.elapsed())
    }

    fn elapsed(&self) -> Duration {
        since_boot().saturating_sub(self.start)
    }

    fn instant(elapsed: Duration) -> Instant {
        Instant(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Time since the boot of the host, times of suspension included. It is read without a system call.
pub fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Receives how far a worker is. Each call must take a few microseconds at most.
pub trait ProgressSink: Send {
    /// A turn that began at a time took all packets that were waiting: they have been sent, or were handed to
    /// another worker.
    fn emptied(&self, begun: std::time::Instant);

    /// The worker is about to sleep, or awake again and has read no packet yet.
    fn set_asleep(&self, is_asleep: bool);
}

/// Worker of one core: an engine and its backend.
pub struct Worker {
    nat: Nat,
    backend: Box<dyn Backend>,
    bursts: BurstHandler,
    clock: Clock,
    mailbox: RequestQueue,
    waker: Waker,
    exchange: Option<Exchange>,
    /// Receives how far the worker is.
    progress: Option<Box<dyn ProgressSink>>,
    idle_waits: u64,
    /// Start of the present turn, if it had packets.
    busy_since: Option<Duration>,
    busy: Duration,
}

impl Worker {
    /// Creates a worker, to be moved to its thread, and its handle.
    ///
    /// # Errors
    /// Returns an error if the process has reached its limit of open files.
    pub fn new(nat: Nat, backend: Box<dyn Backend>, clock: Clock) -> io::Result<(Worker, Handle)> {
        Ok(Self::build(nat, backend, clock, Waker::new()?, None))
    }

    /// Creates one of several workers that share a translator. `nat` has the worker's own plan, see
    /// [`Shares`](gatun_nat::workers::Shares).
    pub fn sharing(
        nat: Nat,
        backend: Box<dyn Backend>,
        clock: Clock,
        exchange: Exchange,
    ) -> (Worker, Handle) {
        let waker = exchange.waker().clone();
        Self::build(nat, backend, clock, waker, Some(exchange))
    }

    fn build(
        nat: Nat,
        backend: Box<dyn Backend>,
        clock: Clock,
        waker: Waker,
        exchange: Option<Exchange>,
    ) -> (Worker, Handle) {
        let (handle, mailbox) = mailbox::pair(waker.clone());
        let mut nat = nat;
        exchange.iter().for_each(|exchange| exchange.tell(&mut nat));
        let bursts = BurstHandler::default();
        let worker = Worker {
            nat,
            backend,
            bursts,
            clock,
            mailbox,
            waker,
            exchange,
            progress: None,
            idle_waits: 0,
            busy_since: None,
            busy: Duration::ZERO,
        };
        (worker, handle)
    }

    /// Has the worker tell `sink` how far it is.
    pub fn publish_progress(&mut self, sink: impl ProgressSink + 'static) {
        self.progress = Some(Box::new(sink));
    }

    /// Runs until it is told to stop. Returns the final counters, and the error that ended it, if any: only
    /// the loss of the device.
    pub fn run(mut self) -> (Snapshot, Option<io::Error>) {
        let ended = loop {
            match self.turn() {
                Ok(true) => {}
                Ok(false) => break None,
                Err(e) => break Some(e),
            }
        };
        (self.snapshot(), ended)
    }

    /// Runs one turn of the loop. Returns false once it was told to stop.
    fn turn(&mut self) -> io::Result<bool> {
        while let Some(request) = self.mailbox.next() {
            if !self.answer(request) {
                return Ok(false);
            }
        }
        // The clock is read once per burst.
        let turn = self.clock.elapsed();
        // That of the fast path is another one.
        let begun = self.progress.as_ref().map(|_| std::time::Instant::now());
        let now = Clock::instant(turn);
        if let Some(since) = self.busy_since.take() {
            self.busy += turn.saturating_sub(since);
        }
        let mut received = {
            let (nat, bursts, exchange) = (&mut self.nat, &mut self.bursts, &mut self.exchange);
            self.backend.receive(&mut |burst, tx| {
                bursts.handle(nat, now, burst, BurstOutput::device(tx, exchange.as_mut()));
            })?
        };
        let mut handed_over = 0;
        if let Some(exchange) = &mut self.exchange {
            let (nat, bursts, tx) = (&mut self.nat, &mut self.bursts, self.backend.transmit());
            handed_over = exchange.take(|burst, exchange| {
                bursts.handle(nat, now, burst, BurstOutput::handed_over(tx, exchange));
            });
            received += handed_over;
        }
        self.busy_since = (received > 0).then_some(turn);
        let leave_alone_ms = self.nat.expire(now, EXPIRE_BUDGET);
        let way = BurstOutput::device(self.backend.transmit(), self.exchange.as_mut());
        self.bursts.send_emitted(&mut self.nat, way);
        if let Some(exchange) = &mut self.exchange {
            exchange.flush();
        }
        if let (Some(sink), Some(begun)) = (&self.progress, begun)
            && self.backend.is_emptied()
            && handed_over < gatun_io::BURST_MAX
        {
            sink.emptied(begun);
        }
        let has_commands = self.mailbox.commands.work(&mut self.nat, now, received)
            | self.mailbox.peer_commands.work(&mut self.nat, now, received);
        let is_at_work = self.restore_some(now, received) || {
            let (jobs, nat) = (&mut self.mailbox.jobs, &mut self.nat);
            jobs.work(nat, now, received)
        };
        if received == 0 && leave_alone_ms > 0 && !is_at_work && !has_commands {
            self.sleep(leave_alone_ms)?;
        }
        Ok(true)
    }

    /// Restores saved sessions of the previous process, if any are left: jobs wait until all are restored.
    /// Returns whether some are left.
    #[inline]
    fn restore_some(&mut self, now: Instant, received: usize) -> bool {
        if !self.nat.is_inheriting() {
            return false;
        }
        let budget = if received == 0 { RESTORE_IDLE } else { RESTORE_BUSY };
        !self.nat.restore_some(now, budget)
    }

    fn sleep(&mut self, leave_alone_ms: u32) -> io::Result<()> {
        if self.exchange.as_mut().is_some_and(|exchange| !exchange.may_sleep()) {
            return Ok(());
        }
        self.idle_waits += 1;
        self.progress.iter().for_each(|sink| sink.set_asleep(true));
        let waited = self.backend.wait(&self.waker, timeout(leave_alone_ms));
        self.progress.iter().for_each(|sink| sink.set_asleep(false));
        if let Some(exchange) = &mut self.exchange {
            exchange.wake_up();
        }
        waited
    }

    /// Handles a request. Returns false if it is a stop. The caller may have stopped waiting.
    fn answer(&mut self, request: Request) -> bool {
        match request {
            Request::Stop => return false,
            Request::Snapshot(answer) => {
                let _ = answer.send(self.snapshot());
            }
            Request::SnapshotFor(done) => done(self.snapshot()),
            Request::Outline(answer) => {
                let _ = answer.send(self.nat.outline());
            }
            Request::Trace(tracer, done) => {
                let is_free = self.bursts.tracer.as_ref().is_none_or(|tracer| tracer.is_over());
                if is_free {
                    self.bursts.tracer = Some(tracer);
                }
                done(is_free);
            }
            Request::Owner((packet, realm), done) => {
                let owner = self.exchange.as_ref().map(|exchange| exchange.owner(&packet, realm));
                done(owner.unwrap_or_default());
            }
            Request::AttachFeed(feed, answer) => {
                let _ = answer.send(self.nat.attach_feed(feed));
            }
            Request::AttachPeerFeed(feed, answer) => {
                let _ = answer.send(self.nat.attach_peer_feed(feed));
            }
            Request::Apply(mut change, mut steering, answer) => {
                let result = self.nat.apply(self.clock.now(), &mut change);
                if let (Ok(()), Some(exchange), Some(steering)) = (result, &mut self.exchange, &mut steering)
                {
                    exchange.steer_by(steering);
                }
                let _ = answer.send(Applied { result, change, steering });
            }
            Request::Redirect(mut redirection, answer) => {
                // Without an exchange, nobody redirects anything, and there is no answer.
                if let Some(exchange) = &mut self.exchange {
                    exchange.redirect_by(&mut redirection);
                    exchange.tell(&mut self.nat);
                    let _ = answer.send(redirection);
                }
            }
            Request::RestoreStatus(answer) => {
                let finished = if self.nat.is_inheriting() { None } else { Some(self.nat.take_finished()) };
                let _ = answer.send(RestoreStatus { progress: self.nat.progress(), over: finished });
            }
            Request::SettlingProgress(answer) => {
                let (goes_on, ended) = (self.nat.is_settling(), self.nat.settled());
                let _ = answer.send(SettlingProgress { goes_on, ended });
            }
        }
        true
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            backend_name: self.backend.name().to_owned(),
            engine: self.nat.counters().clone(),
            instances: self.nat.instance_stats().collect(),
            unattributed: self.nat.unattributed().clone(),
            pools: self.nat.pool_stats().collect(),
            restore: self.nat.progress(),
            redirected: self.exchange.as_ref().map_or_else(Vec::new, |e| e.redirected(self.nat.counters())),
            worker: WorkerStats {
                idle_waits: self.idle_waits,
                busy_ns: u64::try_from(self.busy.as_nanos()).unwrap_or(u64::MAX),
                handed: self
                    .exchange
                    .as_ref()
                    .map_or(ExchangeCounters::default(), |exchange| exchange.handed),
                ..self.bursts.stats.clone()
            },
            backend: self.backend.stats(),
        }
    }
}

/// `u32::MAX` means that nothing will be due: no state, no wake-up.
fn timeout(leave_alone_ms: u32) -> Option<Duration> {
    (leave_alone_ms != u32::MAX).then(|| Duration::from_millis(u64::from(leave_alone_ms)))
}
