//! One core's loop: receive a burst, translate it, send it, expire what is due, and sleep when idle.
//!
//! A [`Worker`] owns one engine and one backend and shares nothing. Others speak to it through its
//! [`Handle`]: a mailbox that is read between bursts, so that no question stops packets; what may be long is one of
//! [`jobs`]. Where several workers
//! share a stateful translator, an [`exchange`] takes each packet to the one that has its session.
#![forbid(unsafe_code)]

mod burst;
pub mod exchange;
pub mod jobs;
pub mod mailbox;
pub mod stats;
pub mod trace;

use burst::{Bursts, Way};
use exchange::Exchange;
use gatun_io::{Backend, Waker};
use gatun_nat::{Instant, Nat};
use mailbox::{Applied, Inbox, Inherited, Request, Settling};
use std::io;
use std::time::Duration;

pub use exchange::Handed;
pub use mailbox::Handle;
pub use stats::{Snapshot, WorkerStats};

/// Records that are looked at after each burst to find those whose time is over.
const EXPIRE_BUDGET: usize = 256;
/// Records of the process before that are looked at after a burst to put their sessions back (one that is costs 8):
/// where no packet came, and for each packet that did.
const PUT_BACK_IDLE: usize = 1024;
const PUT_BACK_BUSY: usize = 32;

/// The clock of all workers of a process: milliseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: std::time::Instant,
}

impl Clock {
    /// A clock that begins now.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Clock { start: std::time::Instant::now() }
    }

    /// Milliseconds since the beginning.
    pub fn now(&self) -> Instant {
        Self::instant(self.elapsed())
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn instant(elapsed: Duration) -> Instant {
        Instant(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
    }
}

/// One core's share: an engine, and where its packets come from.
pub struct Worker {
    nat: Nat,
    backend: Box<dyn Backend>,
    bursts: Bursts,
    clock: Clock,
    mailbox: Inbox,
    waker: Waker,
    exchange: Option<Exchange>,
    idle_waits: u64,
    /// Since when the turn lasts, where there were packets in it.
    busy_since: Option<Duration>,
    busy: Duration,
}

impl Worker {
    /// A worker, to be moved to its thread, and the handle that speaks to it.
    ///
    /// # Errors
    /// Where the process may open no more files.
    pub fn new(nat: Nat, backend: Box<dyn Backend>, clock: Clock) -> io::Result<(Worker, Handle)> {
        Ok(Self::build(nat, backend, clock, Waker::new()?, None))
    }

    /// One of several workers that share a translator: `nat` is of its own plan, see
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
        let bursts = Bursts::default();
        let worker = Worker {
            nat,
            backend,
            bursts,
            clock,
            mailbox,
            waker,
            exchange,
            idle_waits: 0,
            busy_since: None,
            busy: Duration::ZERO,
        };
        (worker, handle)
    }

    /// Runs until it is told to stop. Returns the final counters, and the error that ended it, if one did:
    /// only the loss of the device.
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

    /// One turn of the loop; `false` once it was told to stop.
    fn turn(&mut self) -> io::Result<bool> {
        while let Some(request) = self.mailbox.next() {
            if !self.answer(request) {
                return Ok(false);
            }
        }
        // The clock is read once per burst.
        let turn = self.clock.elapsed();
        let now = Clock::instant(turn);
        if let Some(since) = self.busy_since.take() {
            self.busy += turn.saturating_sub(since);
        }
        let mut received = {
            let (nat, bursts, exchange) = (&mut self.nat, &mut self.bursts, &mut self.exchange);
            self.backend.receive(&mut |burst, tx| {
                bursts.handle(nat, now, burst, Way::device(tx, exchange.as_mut()));
            })?
        };
        if let Some(exchange) = &mut self.exchange {
            let (nat, bursts, tx) = (&mut self.nat, &mut self.bursts, self.backend.transmit());
            received += exchange.take(|burst, exchange| {
                bursts.handle(nat, now, burst, Way::handed_over(tx, exchange));
            });
        }
        self.busy_since = (received > 0).then_some(turn);
        let leave_alone_ms = self.nat.expire(now, EXPIRE_BUDGET);
        let way = Way::device(self.backend.transmit(), self.exchange.as_mut());
        self.bursts.send_emitted(&mut self.nat, way);
        if let Some(exchange) = &mut self.exchange {
            exchange.flush();
        }
        let is_at_work = self.put_back(now, received) || {
            let (desk, nat) = (&mut self.mailbox.desk, &mut self.nat);
            desk.work(nat, now, received)
        };
        if received == 0 && leave_alone_ms > 0 && !is_at_work {
            self.sleep(leave_alone_ms)?;
        }
        Ok(true)
    }

    /// Puts back sessions of the process before, if any are left: jobs wait until they find all of them. Says whether
    /// some still are.
    #[inline]
    fn put_back(&mut self, now: Instant, received: usize) -> bool {
        if !self.nat.is_inheriting() {
            return false;
        }
        let budget = if received == 0 { PUT_BACK_IDLE } else { PUT_BACK_BUSY };
        !self.nat.put_back(now, budget)
    }

    fn sleep(&mut self, leave_alone_ms: u32) -> io::Result<()> {
        if self.exchange.as_mut().is_some_and(|exchange| !exchange.may_sleep()) {
            return Ok(());
        }
        self.idle_waits += 1;
        let waited = self.backend.wait(&self.waker, timeout(leave_alone_ms));
        if let Some(exchange) = &mut self.exchange {
            exchange.wake_up();
        }
        waited
    }

    /// Does what it is asked to; `false` where that is to stop. Whoever asked may have given up waiting.
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
                done(self.exchange.as_ref().and_then(|exchange| exchange.owner(&packet, realm)));
            }
            Request::Apply(mut change, mut steering, answer) => {
                let result = self.nat.apply(self.clock.now(), &mut change);
                if let (Ok(()), Some(exchange), Some(steering)) = (result, &mut self.exchange, &mut steering)
                {
                    exchange.steer_by(steering);
                }
                let _ = answer.send(Applied { result, change, steering });
            }
            Request::Inherited(answer) => {
                let spent = if self.nat.is_inheriting() { None } else { Some(self.nat.take_spent()) };
                let _ = answer.send(Inherited { progress: self.nat.progress(), over: spent });
            }
            Request::Settling(answer) => {
                let (goes_on, ended) = (self.nat.is_settling(), self.nat.settled());
                let _ = answer.send(Settling { goes_on, ended });
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
            inherited: self.nat.progress(),
            worker: WorkerStats {
                idle_waits: self.idle_waits,
                busy_ns: u64::try_from(self.busy.as_nanos()).unwrap_or(u64::MAX),
                handed: self.exchange.as_ref().map_or(Handed::default(), |exchange| exchange.handed),
                ..self.bursts.stats.clone()
            },
            backend: self.backend.stats(),
        }
    }
}

/// `u32::MAX` says that nothing will ever be due: no state, no wake-up.
fn timeout(leave_alone_ms: u32) -> Option<Duration> {
    (leave_alone_ms != u32::MAX).then(|| Duration::from_millis(u64::from(leave_alone_ms)))
}
