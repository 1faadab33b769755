//! Device of a worker: it makes packets at a rate, and discards the sent ones.

use crate::packets::{self, Flows, LAYER_2, STRIDE, mix};
use arrayvec::ArrayVec;
use gatun_io::{BURST_MAX, Backend, Handler, Stats, Transmit, Waker};
use gatun_wire::{HEADROOM, Packet};
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Ports at each end of an address's ports that only one of the boxes assigns.
pub(super) const OWN_PORTS: u16 = 4_096;
/// Bytes of a frame.
pub(super) const FRAME: usize = 128;
/// Packets of open sessions that are prepared: more than the caches hold.
const PREPARED: usize = 65_536;
/// Time between two looks at a device that has no packet, as with interrupts that wait for each other.
const QUIET: Duration = Duration::from_micros(250);

/// Packets that a worker receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    /// None.
    Off = 0,
    /// First packets of new sessions.
    New = 1,
    /// Packets of sessions that exist, in random order.
    Existing = 2,
    /// Both in turn.
    Mixed = 3,
}

impl Traffic {
    fn of(bits: u64) -> Traffic {
        match bits & 3 {
            1 => Traffic::New,
            2 => Traffic::Existing,
            3 => Traffic::Mixed,
            _ => Traffic::Off,
        }
    }

    /// Returns whether the packet of a burst with this number opens a session.
    fn is_new(self, n: usize) -> bool {
        self == Traffic::New || self == Traffic::Mixed && n.is_multiple_of(2)
    }
}

/// Times of the first packets since the present order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SentTimes {
    /// A packet was sent.
    pub(super) sent: Option<Instant>,
    /// A packet was sent from a port that only the owner assigns.
    pub(super) sent_as_owner: Option<Instant>,
}

/// Orders to a device, and its counters.
#[derive(Default)]
pub(super) struct Orders {
    /// Packets a second, and the kind in the lowest two bits.
    order: AtomicU64,
    /// New sessions so far, at most.
    sessions_max: AtomicU64,
    /// Packets of the present order, at most; 0 means no limit.
    packets_max: AtomicU64,
    times: Mutex<SentTimes>,
    /// Sessions begun.
    pub(super) sessions: AtomicU64,
    /// Packets given to the worker.
    pub(super) packets: AtomicU64,
    /// Packets that the worker has sent.
    pub(super) sent: AtomicU64,
}

/// As many packets as the worker takes.
pub(super) const UNLIMITED: u64 = u64::MAX >> 2;

impl Orders {
    /// Gives the worker packets at a rate, from its next turn on.
    pub(super) fn set(&self, traffic: Traffic, per_second: u64) {
        self.order.store(per_second << 2 | traffic as u64, Ordering::Release);
    }

    /// Ends new sessions after this number of all.
    pub(super) fn limit(&self, sessions: u64) {
        self.sessions_max.store(sessions, Ordering::Release);
    }

    /// Ends the packets of an order after this number; 0 means never.
    pub(super) fn limit_packets(&self, packets: u64) {
        self.packets_max.store(packets, Ordering::Release);
    }

    fn publish(&self, times: SentTimes) {
        *self.times.lock().unwrap_or_else(PoisonError::into_inner) = times;
    }

    /// Times of the first packets since the present order.
    pub(super) fn times(&self) -> SentTimes {
        *self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Subscribers of a worker, and their flows by number.
#[derive(Clone)]
pub(super) struct Share {
    pub(super) flows: Flows,
    pub(super) subscribers: Arc<[u64]>,
}

impl Share {
    /// Writes the packet of a flow. Returns its length.
    fn write(&self, flow: u64, out: &mut [u8]) -> usize {
        let own = self.subscribers.len() as u64;
        let number = flow / own * self.flows.subscribers + self.subscribers[(flow % own) as usize];
        packets::write6(&self.flows.get(number), FRAME, out)
    }
}

/// Device.
pub(super) struct Source {
    orders: Arc<Orders>,
    share: Share,
    buffers: Vec<u8>,
    prepared: Vec<u8>,
    next: usize,
    /// Present order, its time, and the packets given since.
    order: (u64, Instant, u64),
    /// Number of packets prepared so far.
    drawn: u64,
    sink: Sink,
}

struct Sink {
    sent: u64,
    stats: Stats,
    times: SentTimes,
    /// Kind of the present burst.
    traffic: Traffic,
}

impl Transmit for Sink {
    fn forward(&mut self, index: usize, packet: &mut Packet<'_>) {
        if self.times.sent.is_none() || self.times.sent_as_owner.is_none() {
            self.note(packet.bytes(), self.traffic.is_new(index));
        }
        self.send(packet);
    }

    fn send(&mut self, packet: &mut Packet<'_>) {
        self.sent += u64::from(packet.bytes().first() == Some(&0x45));
        self.stats.tx_packets += 1;
        self.stats.tx_bytes += packet.bytes().len() as u64;
    }
}

impl Sink {
    /// Notes the moment of a translated packet.
    #[cold]
    fn note(&mut self, bytes: &[u8], is_new: bool) {
        let port = bytes.get(20..22).map_or(0, |port| u16::from_be_bytes([port[0], port[1]]));
        let now = Instant::now();
        self.times.sent.get_or_insert(now);
        // Sessions of the other box have such ports, too.
        if is_new && port <= u16::MAX - OWN_PORTS {
            self.times.sent_as_owner.get_or_insert(now);
        }
    }
}

impl Source {
    pub(super) fn new(orders: Arc<Orders>, share: Share) -> Source {
        let times = SentTimes::default();
        let sink = Sink { sent: 0, stats: Stats::default(), times, traffic: Traffic::Off };
        let (buffers, order) = (vec![0; BURST_MAX * STRIDE], (0, Instant::now(), 0));
        Source { orders, share, buffers, prepared: Vec::new(), next: 0, order, drawn: 0, sink }
    }

    /// Number of packets that are due now, and their kind.
    fn due(&mut self) -> (usize, Traffic) {
        let order = self.orders.order.load(Ordering::Acquire);
        if order != self.order.0 {
            let before = Traffic::of(self.order.0);
            self.order = (order, Instant::now(), 0);
            self.sink.times = SentTimes::default();
            self.orders.publish(self.sink.times);
            if Traffic::of(order) != before {
                self.prepare(Traffic::of(order));
            }
        }
        let (per_second, kind) = (order >> 2, Traffic::of(order));
        let due = match per_second {
            _ if kind == Traffic::Off => 0,
            UNLIMITED => BURST_MAX as u64,
            _ => {
                let all = per_second as f64 * self.order.1.elapsed().as_secs_f64();
                (all as u64).saturating_sub(self.order.2)
            }
        };
        let sessions = self.orders.sessions.load(Ordering::Relaxed);
        let left = match (kind, self.orders.packets_max.load(Ordering::Acquire)) {
            (Traffic::New, _) => self.orders.sessions_max.load(Ordering::Acquire).saturating_sub(sessions),
            (_, 0) => u64::MAX,
            (_, packets_max) => packets_max.saturating_sub(self.order.2),
        };
        (due.min(left).min(BURST_MAX as u64) as usize, kind)
    }

    /// Prepares packets of sessions that exist.
    fn prepare(&mut self, kind: Traffic) {
        let sessions = self.orders.sessions.load(Ordering::Relaxed);
        if !matches!(kind, Traffic::Existing | Traffic::Mixed) || sessions == 0 {
            return;
        }
        let len = FRAME - LAYER_2;
        self.prepared.resize(PREPARED * len, 0);
        for (n, packet) in (self.drawn..).zip(self.prepared.chunks_exact_mut(len)) {
            self.share.write(packets::below(sessions, mix(n)), packet);
        }
        (self.drawn, self.next) = (self.drawn + PREPARED as u64, 0);
        self.order.1 = Instant::now();
    }
}

impl Backend for Source {
    fn name(&self) -> &str {
        "memory"
    }

    fn receive(&mut self, handle: &mut Handler<'_>) -> io::Result<usize> {
        let (count, kind) = self.due();
        if count == 0 {
            return Ok(0);
        }
        let Source { orders, share, buffers, prepared, next, sink, .. } = self;
        let (len, first) = (FRAME - LAYER_2, orders.sessions.load(Ordering::Relaxed));
        let mut burst: ArrayVec<Packet<'_>, BURST_MAX> = ArrayVec::new();
        let (mut opened, before) = (0, sink.times);
        for (n, buffer) in (0..count).zip(buffers.chunks_exact_mut(STRIDE)) {
            if kind.is_new(n) {
                share.write(first + opened, &mut buffer[HEADROOM..]);
                opened += 1;
            } else {
                buffer[HEADROOM..HEADROOM + len].copy_from_slice(&prepared[*next..*next + len]);
                *next = (*next + len) % prepared.len();
            }
            burst.extend(Packet::new(buffer, HEADROOM, len));
        }
        self.order.2 += count as u64;
        sink.stats.rx_packets += count as u64;
        sink.stats.rx_bytes += (count * len) as u64;
        sink.traffic = kind;
        handle(&mut burst, sink);
        if opened > 0 {
            orders.sessions.store(first + opened, Ordering::Release);
        }
        orders.packets.store(sink.stats.rx_packets, Ordering::Release);
        orders.sent.store(sink.sent, Ordering::Release);
        if sink.times != before {
            orders.publish(sink.times);
        }
        Ok(count)
    }

    fn transmit(&mut self) -> &mut dyn Transmit {
        &mut self.sink
    }

    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        let is_off = Traffic::of(self.order.0) == Traffic::Off;
        let timeout =
            if is_off { timeout } else { Some(timeout.map_or(QUIET, |timeout| timeout.min(QUIET))) };
        waker.poll(&mut [PollFd::new(waker, PollFlags::IN)], timeout)
    }

    fn stats(&self) -> Stats {
        self.sink.stats.clone()
    }
}
