//! One core's loop: receive a burst, translate it, send it, expire what is due, and sleep when idle.
//!
//! A [`Worker`] owns one engine and one backend and shares nothing. Others speak to it through its
//! [`Handle`]: a mailbox that is read between bursts, so that no question stops packets.
#![forbid(unsafe_code)]

mod burst;
pub mod mailbox;
pub mod stats;

use burst::Bursts;
use gatun_io::{Backend, Waker};
use gatun_nat::{Instant, Nat};
use mailbox::{Mailbox, Request};
use std::io;
use std::time::Duration;

pub use mailbox::Handle;
pub use stats::{Snapshot, WorkerStats};

/// Records that are looked at after each burst to find those whose time is over.
const EXPIRE_BUDGET: usize = 256;

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
        Instant(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// One core's share: an engine, and where its packets come from.
pub struct Worker {
    nat: Nat,
    backend: Box<dyn Backend>,
    bursts: Bursts,
    clock: Clock,
    mailbox: Mailbox,
    waker: Waker,
    idle_waits: u64,
}

impl Worker {
    /// A worker, to be moved to its thread, and the handle that speaks to it.
    ///
    /// # Errors
    /// Where the process may open no more files.
    pub fn new(nat: Nat, backend: Box<dyn Backend>, clock: Clock) -> io::Result<(Worker, Handle)> {
        let waker = Waker::new()?;
        let (handle, mailbox) = mailbox::pair(waker.clone());
        let bursts = Bursts::default();
        Ok((Worker { nat, backend, bursts, clock, mailbox, waker, idle_waits: 0 }, handle))
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
            match request {
                Request::Stop => return Ok(false),
                Request::Snapshot(answer) => {
                    let snapshot = self.snapshot();
                    // Whoever asked may have given up waiting.
                    let _ = answer.send(snapshot);
                }
            }
        }
        // The clock is read once per burst.
        let now = self.clock.now();
        let received = {
            let (nat, bursts) = (&mut self.nat, &mut self.bursts);
            self.backend.receive(&mut |burst, tx| bursts.handle(nat, now, burst, tx))?
        };
        let leave_alone_ms = self.nat.expire(now, EXPIRE_BUDGET);
        self.bursts.send_emitted(&mut self.nat, self.backend.transmit());
        if received == 0 && leave_alone_ms > 0 {
            self.idle_waits += 1;
            self.backend.wait(&self.waker, timeout(leave_alone_ms))?;
        }
        Ok(true)
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            backend_name: self.backend.name().to_owned(),
            engine: self.nat.counters().clone(),
            instances: self.nat.instance_stats().collect(),
            unattributed: self.nat.unattributed().clone(),
            pools: self.nat.pool_stats().collect(),
            worker: WorkerStats { idle_waits: self.idle_waits, ..self.bursts.stats.clone() },
            backend: self.backend.stats(),
        }
    }
}

/// `u32::MAX` says that nothing will ever be due: no state, no wake-up.
fn timeout(leave_alone_ms: u32) -> Option<Duration> {
    (leave_alone_ms != u32::MAX).then(|| Duration::from_millis(u64::from(leave_alone_ms)))
}
