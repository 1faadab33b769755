//! One queue of every device of a worker.
//!
//! ```text
//!   device -> receive -> burst, in the driver's buffers -> staged -> device
//!                           '--- not forwarded: freed
//! ```
//! What is forwarded is written down while the burst is at work, and given to the devices once nobody looks at its buffers any
//! more.

use crate::device;
use crate::eal::Registration;
use crate::frame::{Frame, Pool, Queue};
use arrayvec::ArrayVec;
use gatun_io::{BURST_MAX, Named, Processor, RxError, Stats, TxError, Waker};
use gatun_io_ether::{Frames, Letterbox, Mac, Outbox as FrameOutbox, ahead, ask_for};
use gatun_wire::Packet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Frames that wait for the end of a burst at most, for each device: a burst, and what the engine makes of it.
const STAGED_MAX: usize = 4 * BURST_MAX;
/// Turns without a frame, one behind the other, after which a worker sleeps: some milliseconds.
const IDLE_TURNS: u32 = 10_000;
/// How long it sleeps then: devices wake nobody.
const NAP: Duration = Duration::from_micros(50);

/// What happened to a device's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It is up.
    Up,
    /// It is down.
    Down,
    /// It is down, and its driver has forgotten its buffers.
    Lost,
}

/// A frame that is to be sent.
struct Staged {
    place: Place,
    /// Whether it is the backend's own.
    is_own: bool,
}

/// Where a frame lies.
enum Place {
    /// It is one of the burst: its number, and where in its buffer.
    Arrival { number: u8, start: u16, len: u16 },
    /// In a buffer of its own.
    Copy(Frame),
}

/// One queue of a device.
pub(crate) struct Port {
    name: String,
    queue: Queue,
    pool: Pool,
    /// Whether the pool's buffers can be found again.
    marked: bool,
    up: bool,
    staged: ArrayVec<Staged, STAGED_MAX>,
    stats: Stats,
}

impl Port {
    pub(crate) fn new(name: &str, queue: Queue, pool: Pool, marked: bool, up: bool) -> Port {
        Port {
            name: name.to_owned(),
            queue,
            pool,
            marked,
            up,
            staged: ArrayVec::new(),
            stats: Stats::default(),
        }
    }

    /// Gives the device what is staged; `frames` are the burst's.
    #[inline]
    fn flush(&mut self, frames: &mut [Frame]) {
        let Port { queue, up, staged, stats, .. } = self;
        let mut batch: ArrayVec<Frame, BURST_MAX> = ArrayVec::new();
        let mut rest = staged.drain(..);
        loop {
            // Of the batch, the backend's own, a bit each.
            let mut own = 0u64;
            for one in rest.by_ref().take(BURST_MAX) {
                let at = batch.len();
                match one.place {
                    Place::Arrival { number, start, len } => {
                        batch.extend(frames.get_mut(usize::from(number)).map(|frame| frame.take(start, len)));
                    }
                    Place::Copy(frame) => batch.push(frame),
                }
                if one.is_own && batch.len() > at {
                    own |= 1 << at;
                }
            }
            if batch.is_empty() {
                return;
            }
            let count = batch.len() as u64;
            let (sent, bytes) = if *up { queue.send(&mut batch) } else { (0, 0) };
            batch.clear();
            stats.tx_packets += sent;
            stats.tx_bytes += bytes;
            let reason = if *up { TxError::Full } else { TxError::Down };
            // What is not sent is the end of the batch.
            let own_refused = u64::from(own.checked_shr(sent as u32).unwrap_or(0).count_ones());
            stats.tx_own_refused += own_refused;
            stats.tx_errors[reason as usize] += count - sent - own_refused;
        }
    }
}

/// The devices of a worker.
pub struct Ports {
    out: Outbox,
    letterbox: Letterbox<News>,
    /// The device that is looked at first.
    turn: usize,
    /// Turns without a frame.
    idle: u32,
    /// Whether counters of whole devices are this worker's to report.
    reports: bool,
    processor: Processor,
    registration: Option<Registration>,
    /// The environment stays while there is one.
    _alive: Arc<()>,
}

/// The sending half of the devices, and what of the burst at hand was sent.
pub struct Outbox {
    ports: Vec<Port>,
    /// Arrivals that are staged, a bit each.
    sent: u64,
    /// Which arrival each packet of the burst is.
    arrivals: ArrayVec<u8, BURST_MAX>,
    /// Whether buffers of the burst are being looked at.
    in_burst: bool,
    /// Whether anything is staged.
    staged: bool,
    /// Whether a link is up again since that was asked last.
    returned: bool,
}

const _: () = assert!(BURST_MAX <= 64);

impl Ports {
    pub(crate) fn new(
        ports: Vec<Port>,
        processor: Processor,
        reports: bool,
        alive: Arc<()>,
    ) -> io::Result<Ports> {
        let out = Outbox {
            ports,
            sent: 0,
            arrivals: ArrayVec::new(),
            in_burst: false,
            staged: false,
            returned: false,
        };
        Ok(Ports {
            out,
            letterbox: Letterbox::new()?,
            turn: 0,
            idle: 0,
            reports,
            processor,
            registration: None,
            _alive: alive,
        })
    }

    pub(crate) fn letterbox(&self) -> Letterbox<News> {
        self.letterbox.clone()
    }

    /// The devices, in the order of their numbers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.out.ports.iter().map(|port| &port.name[..])
    }

    /// Makes the calling thread one of DPDK's, on its processor: pools keep some buffers at hand for such threads.
    #[cold]
    fn register(&mut self) {
        self.registration = Some(Registration::new(self.processor));
    }

    /// What one device received, sent and refused so far.
    pub fn device_stats(&self, device: usize) -> Stats {
        self.out.ports.get(device).map(|port| self.stats_of(port).0).unwrap_or_default()
    }

    /// A device's counters, and how many frames it found damaged, and could not send.
    fn stats_of(&self, port: &Port) -> (Stats, [u64; 2]) {
        let mut stats = port.stats.clone();
        if !self.reports {
            return (stats, [0; 2]);
        }
        let missed = device::missed(port.queue.port);
        stats.rx_errors[RxError::RingFull as usize] += missed.ring_full;
        stats.rx_errors[RxError::NoFrame as usize] += missed.no_frame;
        (stats, [missed.errors, missed.tx_errors])
    }

    #[cold]
    fn read_letters(&mut self) {
        let news = self.letterbox.take();
        let count = news.len();
        // Buffers that are to be found again must not be on their way here.
        self.out.flush(&mut []);
        for (device, news) in news {
            if news == News::Lost {
                self.out.recover(device);
            }
            let Some(port) = self.out.ports.get_mut(device) else { continue };
            let up = news == News::Up;
            self.out.returned |= up && !port.up;
            port.up = up;
        }
        self.letterbox.obeyed(count);
    }
}

impl Frames for Ports {
    type Out = Outbox;

    fn receive(
        &mut self,
        mut admit: impl FnMut(usize, &mut Packet<'_>, &mut Outbox) -> bool,
        handle: impl FnOnce(&mut [Packet<'_>], &mut Outbox),
    ) -> usize {
        if self.registration.is_none() {
            self.register();
        }
        if self.letterbox.has_any() {
            self.read_letters();
        }
        let out = &mut self.out;
        out.flush(&mut []);
        let mut frames: ArrayVec<Frame, BURST_MAX> = ArrayVec::new();
        // By device, where its frames end.
        let mut from = [0u8; BURST_MAX];
        let devices = out.ports.len();
        self.turn = (self.turn + 1) % devices.max(1);
        for i in 0..devices {
            let device = (self.turn + i) % devices;
            let port = &mut out.ports[device];
            if !port.up {
                continue;
            }
            let before = frames.len();
            let count = port.queue.receive(&mut frames);
            from[before..before + count].fill(device as u8);
            if frames.is_full() {
                break;
            }
        }
        if frames.is_empty() {
            return 0;
        }
        self.idle = 0;
        out.in_burst = true;
        let mut burst: ArrayVec<Packet<'_>, BURST_MAX> = ArrayVec::new();
        let in_turn = ahead(&mut frames, |frame| {
            let start = frame.start();
            ask_for(frame.buffer(), start);
        });
        for (number, frame) in in_turn.enumerate() {
            let device = usize::from(from[number]);
            let (start, len) = (frame.start(), frame.len());
            let stats = &mut out.ports[device].stats;
            let Some(packet) = Packet::new(frame.buffer(), start, len).filter(|_| len > 0) else {
                stats.rx_errors[RxError::Truncated as usize] += 1;
                continue;
            };
            stats.rx_packets += 1;
            stats.rx_bytes += len as u64;
            out.arrivals.push(number as u8);
            let at = out.arrivals.len() - 1;
            // Where it stays: copied after it has been changed, it would be waited for.
            burst.push(packet);
            if !burst.last_mut().is_some_and(|packet| admit(device, packet, out)) {
                burst.pop();
                out.arrivals.truncate(at);
            }
        }
        if !burst.is_empty() {
            handle(&mut burst, out);
        }
        drop(burst);
        out.in_burst = false;
        out.arrivals.clear();
        out.sent = 0;
        out.flush(&mut frames);
        frames.len()
    }

    fn outbox(&mut self) -> &mut Outbox {
        &mut self.out
    }

    /// Returns at once while frames come, and for some time after: devices wake nobody.
    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        self.out.flush(&mut []);
        if self.idle < IDLE_TURNS {
            self.idle += 1;
            std::hint::spin_loop();
            return Ok(());
        }
        let nap = timeout.map_or(NAP, |timeout| timeout.min(NAP));
        let nap = Timespec::try_from(nap).ok();
        let mut fds = [PollFd::new(waker, PollFlags::IN), PollFd::new(self.letterbox.waker(), PollFlags::IN)];
        match poll(&mut fds, nap.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        if fds[0].revents().contains(PollFlags::IN) {
            waker.reset();
        }
        Ok(())
    }

    fn stats(&self) -> Stats {
        let mut total = Stats::default();
        let mut errors = [0; 2];
        for port in &self.out.ports {
            let (stats, of_device) = self.stats_of(port);
            total += &stats;
            errors.iter_mut().zip(of_device).for_each(|(sum, n)| *sum += n);
        }
        let free: u64 = self.out.ports.iter().map(|port| u64::from(port.pool.free())).sum();
        let named = [
            ("device_rx_errors", "Frames that devices received and found damaged.", errors[0]),
            ("device_tx_errors", "Frames that devices took and could not send.", errors[1]),
            ("buffers_free", "Packet buffers that neither devices nor workers have now.", free),
        ];
        total.named.extend(named.map(|(name, help, count)| Named { name, help, count }));
        total
    }
}

impl FrameOutbox for Outbox {
    #[inline]
    fn forward(&mut self, index: usize, device: usize, packet: &Packet<'_>) {
        self.stage(index, device, packet, false);
    }

    fn relay(&mut self, device: usize, packet: &Packet<'_>) {
        self.stage(self.arrivals.len().wrapping_sub(1), device, packet, false);
    }

    fn answer(&mut self, device: usize, packet: &Packet<'_>) {
        self.stage(self.arrivals.len().wrapping_sub(1), device, packet, true);
    }

    fn send(&mut self, device: usize, bytes: &[u8]) {
        self.copy(device, bytes, false);
    }

    fn say(&mut self, device: usize, bytes: &[u8]) {
        self.copy(device, bytes, true);
    }

    fn take_returned(&mut self) -> Option<Vec<(usize, Mac)>> {
        // It is a link that returns, of the same device.
        std::mem::take(&mut self.returned).then(Vec::new)
    }
}

impl Outbox {
    /// Writes down that packet `index` of the burst is sent.
    #[inline]
    fn stage(&mut self, index: usize, device: usize, packet: &Packet<'_>, is_own: bool) {
        let Some(&number) = self.arrivals.get(index) else { return };
        let Some(port) = self.ports.get_mut(device) else { return };
        if self.sent & 1 << number != 0 {
            return;
        }
        let place = Place::Arrival { number, start: packet.start() as u16, len: packet.len() as u16 };
        if port.staged.try_push(Staged { place, is_own }).is_err() {
            return port.stats.refuse(TxError::Full, is_own);
        }
        self.sent |= 1 << number;
        self.staged = true;
    }

    /// Writes down that a copy of a frame is sent.
    fn copy(&mut self, device: usize, bytes: &[u8], is_own: bool) {
        let Some(port) = self.ports.get_mut(device) else { return };
        let Some(frame) = port.pool.copy(bytes) else {
            return port.stats.refuse(TxError::NoMemory, is_own);
        };
        if port.staged.is_full() {
            if self.in_burst {
                return port.stats.refuse(TxError::Full, is_own);
            }
            self.flush(&mut []);
        }
        if let Some(port) = self.ports.get_mut(device) {
            port.staged.push(Staged { place: Place::Copy(frame), is_own });
            self.staged = true;
        }
    }

    /// Takes back what a device has forgotten, its own buffers and others'.
    #[cold]
    fn recover(&mut self, device: usize) {
        let Some(lost) = self.ports.get(device) else { return };
        for (number, port) in self.ports.iter().enumerate().filter(|(_, port)| port.marked) {
            port.pool.recover(&lost.queue, number == device);
        }
    }

    /// Gives devices what is staged; `frames` are the burst's.
    #[inline]
    fn flush(&mut self, frames: &mut [Frame]) {
        if !std::mem::take(&mut self.staged) {
            return;
        }
        self.ports.iter_mut().for_each(|port| port.flush(frames));
    }
}
