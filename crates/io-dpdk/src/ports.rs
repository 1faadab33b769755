//! Queues of all devices of a worker.
//!
//! ```text
//!   device -> receive -> burst, in the driver's buffers -> staged -> device
//!                           '--- not forwarded: freed
//! ```
//! Frames to be forwarded are recorded while the burst is processed, and given to the devices after nobody
//! uses its buffers any more.

use crate::device;
use crate::eal::Registration;
use crate::frame::{Frame, Pool, Queue};
use arrayvec::ArrayVec;
use gatun_io::{BURST_MAX, NamedCounter, Processor, RxError, Stats, TxError, Waker};
use gatun_io_ether::{DeviceEvents, FrameSink, Frames, Mac, prefetch_ahead, prefetch_frame};
use gatun_wire::Packet;
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Largest number of frames per device that wait for the end of a burst: a burst, and the packets that the
/// engine creates for it.
const STAGED_MAX: usize = 4 * BURST_MAX;
/// Number of consecutive turns without a frame after which a worker sleeps: some milliseconds.
const IDLE_TURNS: u32 = 10_000;
/// Duration of this sleep: devices cannot wake a worker.
const IDLE_SLEEP: Duration = Duration::from_micros(50);

/// Change of a device's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkChange {
    /// The link is up.
    Up,
    /// The link is down.
    Down,
    /// The link is down, and the driver has forgotten its buffers.
    Lost,
}

/// Frame to be sent.
struct StagedFrame {
    source: FrameSource,
    /// True if the backend made the frame itself.
    is_own: bool,
}

/// Location of a frame.
enum FrameSource {
    /// A frame of the current burst: its number, and its position in its buffer.
    Arrival { number: u8, start: u16, len: u16 },
    /// A frame in its own buffer.
    Copy(Frame),
}

/// One queue of a device.
pub(crate) struct Port {
    name: String,
    queue: Queue,
    pool: Pool,
    /// True if the pool's buffers can be recovered.
    marked: bool,
    up: bool,
    staged: ArrayVec<StagedFrame, STAGED_MAX>,
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

    /// Gives staged frames to the device. `frames` are those of the burst.
    #[inline]
    fn flush(&mut self, frames: &mut [Frame]) {
        let Port { queue, up, staged, stats, .. } = self;
        let mut batch: ArrayVec<Frame, BURST_MAX> = ArrayVec::new();
        let mut rest = staged.drain(..);
        loop {
            // The backend's own frames of the batch, one bit each.
            let mut own = 0u64;
            for one in rest.by_ref().take(BURST_MAX) {
                let at = batch.len();
                match one.source {
                    FrameSource::Arrival { number, start, len } => {
                        batch.extend(frames.get_mut(usize::from(number)).map(|frame| frame.take(start, len)));
                    }
                    FrameSource::Copy(frame) => batch.push(frame),
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
            // Unsent frames are at the end of the batch.
            let own_refused = u64::from(own.checked_shr(sent as u32).unwrap_or(0).count_ones());
            stats.tx_own_refused += own_refused;
            stats.tx_errors[reason as usize] += count - sent - own_refused;
        }
    }
}

/// Devices of a worker.
pub struct Ports {
    out: DpdkTransmit,
    device_events: DeviceEvents<LinkChange>,
    /// Device that is polled first.
    turn: usize,
    /// Turns without a frame.
    idle: u32,
    /// True if this worker reports the counters of whole devices.
    reports: bool,
    processor: Processor,
    registration: Option<Registration>,
    /// Keeps the environment running.
    _alive: Arc<()>,
}

/// Sending half of the devices, and the state of the present burst.
pub struct DpdkTransmit {
    ports: Vec<Port>,
    /// Received frames that are staged, one bit each.
    sent: u64,
    /// Index of the received frame of each packet of the burst.
    arrivals: ArrayVec<u8, BURST_MAX>,
    /// True if the buffers of the burst are in use.
    in_burst: bool,
    /// True if any frame is staged.
    staged: bool,
    /// True if a link has come up since the last call.
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
        let out = DpdkTransmit {
            ports,
            sent: 0,
            arrivals: ArrayVec::new(),
            in_burst: false,
            staged: false,
            returned: false,
        };
        Ok(Ports {
            out,
            device_events: DeviceEvents::new()?,
            turn: 0,
            idle: 0,
            reports,
            processor,
            registration: None,
            _alive: alive,
        })
    }

    pub(crate) fn device_events(&self) -> DeviceEvents<LinkChange> {
        self.device_events.clone()
    }

    /// Names of the devices, in the order of their numbers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.out.ports.iter().map(|port| &port.name[..])
    }

    /// Registers the calling thread with DPDK, on its processor: pools cache some buffers for such threads.
    #[cold]
    fn register(&mut self) {
        self.registration = Some(Registration::new(self.processor));
    }

    /// Counters of one device.
    pub fn device_stats(&self, device: usize) -> Stats {
        self.out.ports.get(device).map(|port| self.stats_of(port).0).unwrap_or_default()
    }

    /// Counters of a device, with the numbers of frames that it found damaged and that it failed to send.
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
    fn handle_device_events(&mut self) {
        let news = self.device_events.take();
        let count = news.len();
        // Buffers that are to be recovered must not be staged here.
        self.out.flush(&mut []);
        for (device, news) in news {
            if news == LinkChange::Lost {
                self.out.recover(device);
            }
            let Some(port) = self.out.ports.get_mut(device) else { continue };
            let up = news == LinkChange::Up;
            self.out.returned |= up && !port.up;
            port.up = up;
        }
        self.device_events.done(count);
    }
}

impl Frames for Ports {
    type Out = DpdkTransmit;

    fn receive(
        &mut self,
        mut admit: impl FnMut(usize, &mut Packet<'_>, &mut DpdkTransmit) -> bool,
        handle: impl FnOnce(&mut [Packet<'_>], &mut DpdkTransmit),
    ) -> usize {
        if self.registration.is_none() {
            self.register();
        }
        if self.device_events.has_any() {
            self.handle_device_events();
        }
        let out = &mut self.out;
        out.flush(&mut []);
        let mut frames: ArrayVec<Frame, BURST_MAX> = ArrayVec::new();
        // End of each device's frames.
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
        let in_turn = prefetch_ahead(&mut frames, |frame| {
            let start = frame.start();
            prefetch_frame(frame.buffer(), start);
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
            // Processed in place: copying it after a change would wait for the stores.
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

    fn outbox(&mut self) -> &mut DpdkTransmit {
        &mut self.out
    }

    /// Returns immediately while frames arrive, and for some time after: devices cannot wake a worker.
    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        self.out.flush(&mut []);
        if self.idle < IDLE_TURNS {
            self.idle += 1;
            std::hint::spin_loop();
            return Ok(());
        }
        let nap = timeout.map_or(IDLE_SLEEP, |timeout| timeout.min(IDLE_SLEEP));
        let mut fds =
            [PollFd::new(waker, PollFlags::IN), PollFd::new(self.device_events.waker(), PollFlags::IN)];
        waker.poll(&mut fds, Some(nap))
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
            ("device_rx_errors", "Damaged frames that devices received.", errors[0]),
            ("device_tx_errors", "Frames that devices accepted and failed to send.", errors[1]),
            ("buffers_free", "Free packet buffers.", free),
        ];
        total.named.extend(named.map(|(name, help, count)| NamedCounter { name, help, count }));
        total
    }
}

impl FrameSink for DpdkTransmit {
    #[inline]
    fn send_frame(&mut self, index: usize, device: usize, packet: &Packet<'_>, is_own: bool) {
        let Some(&number) = self.arrivals.get(index) else { return };
        let Some(port) = self.ports.get_mut(device) else { return };
        if self.sent & 1 << number != 0 {
            return;
        }
        let source = FrameSource::Arrival { number, start: packet.start() as u16, len: packet.len() as u16 };
        if port.staged.try_push(StagedFrame { source, is_own }).is_err() {
            return port.stats.refuse(TxError::Full, is_own);
        }
        self.sent |= 1 << number;
        self.staged = true;
    }

    fn send_copy(&mut self, device: usize, bytes: &[u8], is_own: bool) {
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
            port.staged.push(StagedFrame { source: FrameSource::Copy(frame), is_own });
            self.staged = true;
        }
    }

    fn admitted(&self) -> usize {
        self.arrivals.len().wrapping_sub(1)
    }

    fn take_returned(&mut self) -> Option<Vec<(usize, Mac)>> {
        // The link of the same device has come up.
        std::mem::take(&mut self.returned).then(Vec::new)
    }
}

impl DpdkTransmit {
    /// Recovers the buffers that a device has forgotten, its own and those of others.
    #[cold]
    fn recover(&mut self, device: usize) {
        let Some(lost) = self.ports.get(device) else { return };
        for (number, port) in self.ports.iter().enumerate().filter(|(_, port)| port.marked) {
            port.pool.recover(&lost.queue, number == device);
        }
    }

    /// Gives staged frames to the devices. `frames` are those of the burst.
    #[inline]
    fn flush(&mut self, frames: &mut [Frame]) {
        if !std::mem::take(&mut self.staged) {
            return;
        }
        self.ports.iter_mut().for_each(|port| port.flush(frames));
    }
}
