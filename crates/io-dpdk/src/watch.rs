//! Links, for the thread that keeps the environment: whether they are up, and that a memif client tries again.

use crate::device::Device;
use crate::eal;
use crate::ports::News;
use gatun_io_ether::Letterbox;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// What happened to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its link is down, or its peer has gone.
    Down(String),
    /// Its link is up again, or its peer has come.
    Up(String),
}

/// How often links are looked at.
const EVERY: Duration = Duration::from_millis(50);
/// How long workers may take to let go of their queues at the end.
const LET_GO_MAX: Duration = Duration::from_secs(5);

/// How long a memif's peer may take to answer a client, which then tries again. Not less: a server of DPDK 22.11 that takes a
/// connection which has been given up aborts.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// A device, as it was seen last.
pub(crate) struct Watched {
    device: Device,
    /// Whether it is started, and since when it waits for its link.
    started: bool,
    since: Instant,
    up: bool,
    /// Whether its driver forgets its buffers when its peer goes.
    forgets: bool,
    /// Letters to workers that have to be read before anything is done with it.
    unread: Vec<u64>,
}

impl Watched {
    pub(crate) fn new(device: Device, started: bool, up: bool, forgets: bool) -> Watched {
        Watched { device, started, since: Instant::now(), up, forgets, unread: Vec::new() }
    }

    /// Whether it is a memif client that waits for its peer's answer.
    fn connects(&self) -> bool {
        self.forgets && self.started && !self.up && self.since.elapsed() < ANSWER_MAX
    }

    /// Lets a memif client try again: its driver does not by itself.
    fn connect(&mut self) {
        if self.started && self.since.elapsed() < ANSWER_MAX {
            return;
        }
        if self.started {
            self.device.stop();
        }
        eal::keep_files();
        // What can be wrong beside was said when it was opened.
        self.started = self.device.start().unwrap_or(false);
        self.since = Instant::now();
    }
}

/// The devices. With it they go.
pub(crate) struct Watch {
    devices: Vec<Watched>,
    workers: Vec<Letterbox<News>>,
    alive: Arc<()>,
    events: Option<Sender<Event>>,
}

impl Watch {
    /// Of an environment that has started, and has no devices yet.
    pub(crate) fn new() -> Watch {
        Watch { devices: Vec::new(), workers: Vec::new(), alive: Arc::new(()), events: None }
    }

    pub(crate) fn add(&mut self, device: Watched) {
        self.devices.push(device);
    }

    /// From now on, these workers use the devices, each with its share of `alive`.
    pub(crate) fn begin(&mut self, workers: Vec<Letterbox<News>>, alive: Arc<()>, events: Sender<Event>) {
        (self.workers, self.alive, self.events) = (workers, alive, Some(events));
    }

    /// Looks at links until the other end of `stopped` is gone.
    pub(crate) fn run(mut self, stopped: &Receiver<()>) {
        while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            (0..self.devices.len()).for_each(|number| self.look(number));
        }
        let deadline = Instant::now() + LET_GO_MAX;
        while Arc::strong_count(&self.alive) > 1 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn look(&mut self, number: usize) {
        // One after the other: while it connects, a client has files that are the others' as well.
        let connects = |(n, other): (usize, &Watched)| n != number && other.connects();
        let others_connect = self.devices.iter().enumerate().any(connects);
        let Some(watched) = self.devices.get_mut(number) else { return };
        let is_read =
            self.workers.iter().zip(&watched.unread).all(|(worker, letter)| worker.is_obeyed(*letter));
        if !is_read {
            return;
        }
        if watched.device.is_client && !watched.up && !others_connect {
            watched.connect();
        }
        let up = watched.started && watched.device.link();
        if up == std::mem::replace(&mut watched.up, up) {
            return;
        }
        if !up {
            eal::settle();
        }
        if watched.forgets {
            eal::keep_files();
        }
        // A client tries again at once.
        watched.since = Instant::now().checked_sub(ANSWER_MAX).unwrap_or(watched.since);
        let news = match (up, watched.forgets) {
            (true, _) => News::Up,
            (false, true) => News::Lost,
            (false, false) => News::Down,
        };
        watched.unread = self.workers.iter().map(|worker| worker.put(number, news)).collect();
        let name = watched.device.name.clone();
        if let Some(events) = &self.events {
            // Nobody listens: then nobody is told.
            let _ = events.send(if up { Event::Up(name) } else { Event::Down(name) });
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A worker that does not let go would use what is gone: then all of it goes with the process.
        if Arc::strong_count(&self.alive) == 1 {
            eal::settle();
            self.devices.iter().for_each(|watched| watched.device.close());
            // The environment stays until the process ends: taking its memory away would take it from its interrupt thread (22.11),
            // which nothing ends, and which has yet to notice that there are fewer devices.
        }
    }
}
