//! Link watch, for the thread that owns the environment: polls links and reconnects memif clients.

use crate::device::Device;
use crate::eal;
use crate::ports::LinkChange;
use gatun_io_ether::DeviceEvents;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Event of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The link is down, or the peer has gone.
    Down(String),
    /// The link is up again, or the peer has come.
    Up(String),
}

/// Polling interval of links.
const INTERVAL: Duration = Duration::from_millis(50);
/// Longest wait at the end for workers to release their queues.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest wait for a memif's peer to answer a client, which then tries again. Not shorter: a server of DPDK
/// 22.11 aborts if it accepts a connection that the client has given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Last known state of a device.
pub(crate) struct WatchedDevice {
    device: Device,
    /// True once the device is started.
    started: bool,
    /// Time since which the device has been waiting for its link.
    since: Instant,
    up: bool,
    /// True if the driver forgets the device's buffers when the peer disappears.
    forgets: bool,
    /// Events that workers have to handle before anything is done with the device.
    unread: Vec<u64>,
}

impl WatchedDevice {
    pub(crate) fn new(device: Device, started: bool, up: bool, forgets: bool) -> WatchedDevice {
        WatchedDevice { device, started, since: Instant::now(), up, forgets, unread: Vec::new() }
    }

    /// Checks whether it is a memif client that waits for its peer's answer.
    fn connects(&self) -> bool {
        self.forgets && self.started && !self.up && self.since.elapsed() < ANSWER_TIMEOUT
    }

    /// Makes a memif client try again, which its driver does not do by itself.
    fn connect(&mut self) {
        if self.started && self.since.elapsed() < ANSWER_TIMEOUT {
            return;
        }
        if self.started {
            self.device.stop();
        }
        eal::keep_files();
        // Other errors were reported when it was opened.
        self.started = self.device.start().unwrap_or(false);
        self.since = Instant::now();
    }
}

/// Devices. Dropping it closes them.
pub(crate) struct Watch {
    devices: Vec<WatchedDevice>,
    workers: Vec<DeviceEvents<LinkChange>>,
    alive: Arc<()>,
    events: Option<Sender<LinkEvent>>,
}

impl Watch {
    /// Creates the watch of an environment that has started and has no devices yet.
    pub(crate) fn new() -> Watch {
        Watch { devices: Vec::new(), workers: Vec::new(), alive: Arc::new(()), events: None }
    }

    pub(crate) fn add(&mut self, device: WatchedDevice) {
        self.devices.push(device);
    }

    /// Starts serving these workers. Each holds a share of `alive`.
    pub(crate) fn begin(
        &mut self,
        workers: Vec<DeviceEvents<LinkChange>>,
        alive: Arc<()>,
        events: Sender<LinkEvent>,
    ) {
        (self.workers, self.alive, self.events) = (workers, alive, Some(events));
    }

    /// Polls links until the other end of `stopped` is dropped.
    pub(crate) fn run(mut self, stopped: &Receiver<()>) {
        while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            (0..self.devices.len()).for_each(|number| self.look(number));
        }
        let deadline = Instant::now() + RELEASE_TIMEOUT;
        while Arc::strong_count(&self.alive) > 1 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn look(&mut self, number: usize) {
        // One client at a time: while it connects, it uses descriptors that the others use as well.
        let connects = |(n, other): (usize, &WatchedDevice)| n != number && other.connects();
        let others_connect = self.devices.iter().enumerate().any(connects);
        let Some(watched) = self.devices.get_mut(number) else { return };
        let is_read =
            self.workers.iter().zip(&watched.unread).all(|(worker, letter)| worker.is_done(*letter));
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
        // A client tries again immediately.
        watched.since = Instant::now().checked_sub(ANSWER_TIMEOUT).unwrap_or(watched.since);
        let news = match (up, watched.forgets) {
            (true, _) => LinkChange::Up,
            (false, true) => LinkChange::Lost,
            (false, false) => LinkChange::Down,
        };
        watched.unread = self.workers.iter().map(|worker| worker.put(number, news)).collect();
        let name = watched.device.name.clone();
        if let Some(events) = &self.events {
            // Nobody may be listening.
            let _ = events.send(if up { LinkEvent::Up(name) } else { LinkEvent::Down(name) });
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A worker that does not release its queues would use freed memory: then everything is left to the
        // end of the process.
        if Arc::strong_count(&self.alive) == 1 {
            eal::settle();
            self.devices.iter().for_each(|watched| watched.device.close());
            // The environment stays until the process ends. Unmapping its memory would take it from its
            // interrupt thread (22.11), which cannot be stopped and which has yet to notice that there are
            // fewer devices.
        }
    }
}
