//! Queues of all ports of a worker, and their shared memory: a frame received on one port is sent on another
//! by passing its address on.
//!
//! ```text
//!   free -> fill ring -> (kernel receives) -> receive ring -> burst
//!   burst, forwarded     -> transmit ring -> (kernel sends) -> completion ring -> free
//!   burst, not forwarded -> free
//! ```
//! A port has at most `RING_LEN` frames for receiving and as many for sending, and there are enough frames
//! for all ports. So receiving never starves sending, and one port never starves another.

use crate::RING_LEN;
use crate::interface::Interface;
use crate::ring::Desc;
use crate::socket::Socket;
use crate::umem::{Frame, KERNEL_HEADROOM, Umem};
use arrayvec::ArrayVec;
use gatun_io::{BURST_MAX, RxError, Stats, TxError, Waker};
use gatun_io_ether::{DeviceEvents, FrameSink, Frames, Mac, prefetch_ahead, prefetch_frame};
use gatun_wire::Packet;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// No socket holds the frame.
const NO_SOCKET: u8 = u8::MAX;
/// Longest wait of an idle worker while some packets are left that the kernel did not accept.
const RETRY: Duration = Duration::from_millis(1);

/// Event of a port, sent to its worker.
pub(crate) enum PortEvent {
    /// The interface is gone.
    Gone,
    /// The interface is down: nothing can be sent.
    Down,
    /// The interface is up.
    Up,
    /// An interface of the same name exists again, with a socket on its queue and its up state.
    Back(Box<Socket>, bool),
    /// The interface has a new MAC.
    Address(Mac),
}

/// One queue of one interface.
struct Port {
    name: String,
    /// `None` while the interface is gone.
    socket: Option<Socket>,
    down: bool,
    /// Frames in the fill ring, in the receive ring, or being received into.
    receiving: u32,
    /// True if the transmit ring has entries that the kernel has not been told about.
    staged: bool,
    stats: Stats,
}

/// Received frame.
struct ReceivedFrame {
    frame: Frame,
    port: usize,
    start: usize,
    len: usize,
}

/// Ports of a worker.
pub struct Ports {
    out: XdpTransmit,
    device_events: DeviceEvents<PortEvent>,
    /// Port that is polled first.
    turn: usize,
}

/// Sending half of the ports, and the state of the present burst.
pub struct XdpTransmit {
    ports: Vec<Port>,
    free: Vec<Frame>,
    /// Port whose socket holds each frame.
    held: Box<[u8]>,
    /// Frame number of each received frame of the burst.
    numbers: ArrayVec<u32, BURST_MAX>,
    /// Received frames that were put on a transmit ring, one bit each.
    sent: u64,
    /// Index of the received frame of each packet of the burst.
    arrivals: ArrayVec<u8, BURST_MAX>,
    /// Set if a port has become usable since the last call, with the new MACs.
    returned: Option<Vec<(usize, Mac)>>,
    /// Dropped last, after every socket.
    umem: Arc<Umem>,
}

const _: () = assert!(BURST_MAX <= 64);

impl Ports {
    /// Number of frames that this many ports need.
    pub(crate) fn frames(ports: usize) -> u32 {
        ports as u32 * 2 * RING_LEN + 2 * BURST_MAX as u32
    }

    pub(crate) fn new(
        umem: Arc<Umem>,
        free: Vec<Frame>,
        sockets: Vec<(&Interface, Socket)>,
    ) -> io::Result<Self> {
        let held = vec![NO_SOCKET; free.len()].into_boxed_slice();
        let port = |(interface, socket): (&Interface, Socket)| Port {
            name: interface.name.clone(),
            socket: Some(socket),
            down: !interface.up,
            receiving: 0,
            staged: false,
            stats: Stats::default(),
        };
        let ports = sockets.into_iter().map(port).collect();
        let (numbers, arrivals) = (ArrayVec::new(), ArrayVec::new());
        let out = XdpTransmit { ports, free, held, numbers, sent: 0, arrivals, returned: None, umem };
        let mut ports = Ports { out, device_events: DeviceEvents::new()?, turn: 0 };
        (0..ports.out.ports.len()).for_each(|port| ports.out.refill(port));
        Ok(ports)
    }

    pub(crate) fn device_events(&self) -> DeviceEvents<PortEvent> {
        self.device_events.clone()
    }

    pub(crate) fn umem(&self) -> Arc<Umem> {
        Arc::clone(&self.out.umem)
    }

    pub(crate) fn is_zero_copy(&self, port: usize) -> bool {
        self.out.ports.get(port).and_then(|port| port.socket.as_ref()).is_some_and(|socket| socket.zero_copy)
    }

    /// Names of the interfaces, in the order of their numbers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.out.ports.iter().map(|port| &port.name[..])
    }

    /// Frees sent frames, refills the fill rings and collects received frames.
    fn collect(&mut self) -> ArrayVec<ReceivedFrame, BURST_MAX> {
        let out = &mut self.out;
        let mut arrivals = ArrayVec::new();
        self.turn = (self.turn + 1) % out.ports.len().max(1);
        for i in 0..out.ports.len() {
            let number = (self.turn + i) % out.ports.len();
            out.reap(number);
            out.take_received(number, &mut arrivals);
            out.refill(number);
        }
        out.numbers = arrivals.iter().map(|arrival: &ReceivedFrame| arrival.frame.number() as u32).collect();
        out.arrivals.clear();
        out.sent = 0;
        arrivals
    }

    #[cold]
    fn handle_device_events(&mut self) {
        for (number, news) in self.device_events.take() {
            match news {
                PortEvent::Gone => self.out.close(number),
                PortEvent::Down => self.out.ports[number].down = true,
                PortEvent::Up => {
                    self.out.ports[number].down = false;
                    self.out.returned.get_or_insert_default();
                }
                PortEvent::Back(socket, up) => {
                    self.out.close(number);
                    let port = &mut self.out.ports[number];
                    (port.socket, port.down) = (Some(*socket), !up);
                    self.out.returned.get_or_insert_default();
                    self.out.refill(number);
                }
                PortEvent::Address(mac) => self.out.returned.get_or_insert_default().push((number, mac)),
            }
        }
    }
}

impl Frames for Ports {
    type Out = XdpTransmit;

    fn receive(
        &mut self,
        mut admit: impl FnMut(usize, &mut Packet<'_>, &mut XdpTransmit) -> bool,
        handle: impl FnOnce(&mut [Packet<'_>], &mut XdpTransmit),
    ) -> usize {
        if self.device_events.has_any() {
            self.handle_device_events();
        }
        let mut arrivals = self.collect();
        if arrivals.is_empty() {
            self.out.flush();
            return 0;
        }
        let umem = Arc::clone(&self.out.umem);
        let mut burst: ArrayVec<Packet<'_>, BURST_MAX> = ArrayVec::new();
        let in_turn = prefetch_ahead(&mut arrivals, |arrival| {
            prefetch_frame(umem.bytes(&mut arrival.frame), arrival.start)
        });
        for (number, arrival) in in_turn.enumerate() {
            let Some(packet) = Packet::new(umem.bytes(&mut arrival.frame), arrival.start, arrival.len) else {
                continue;
            };
            self.out.arrivals.push(number as u8);
            let at = self.out.arrivals.len() - 1;
            // Processed in place: copying it after a change would wait for the stores.
            burst.push(packet);
            if !burst.last_mut().is_some_and(|packet| admit(arrival.port, packet, &mut self.out)) {
                burst.pop();
                self.out.arrivals.truncate(at);
            }
        }
        if !burst.is_empty() {
            handle(&mut burst, &mut self.out);
        }
        drop(burst);
        let count = arrivals.len();
        self.out.settle(arrivals);
        self.out.flush();
        count
    }

    fn outbox(&mut self) -> &mut XdpTransmit {
        &mut self.out
    }

    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        self.out.flush();
        let timeout = match self.out.has_unsent() {
            true => Some(timeout.map_or(RETRY, |timeout| timeout.min(RETRY))),
            false => timeout,
        };
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(2 + self.out.ports.len());
        fds.push(PollFd::new(waker, PollFlags::IN));
        fds.push(PollFd::new(self.device_events.waker(), PollFlags::IN));
        let sockets = self.out.ports.iter().filter(|port| !port.down).filter_map(|port| port.socket.as_ref());
        fds.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::IN)));
        waker.poll(&mut fds, timeout)
    }

    fn stats(&self) -> Stats {
        let mut total = Stats::default();
        for port in &self.out.ports {
            total += &port.stats;
            if let Some(socket) = &port.socket {
                add_kernel_counts(&mut total, socket);
            }
        }
        total
    }
}

/// Adds the kernel's counters of packets that it could not deliver.
fn add_kernel_counts(stats: &mut Stats, socket: &Socket) {
    let Some(kernel) = socket.statistics() else { return };
    let no_frame = kernel.rx_fill_ring_empty_descs.unwrap_or(0).min(kernel.rx_dropped);
    stats.rx_errors[RxError::NoFrame as usize] += no_frame;
    // A dropped packet was too long for a frame, or no frame was free.
    stats.rx_errors[RxError::Truncated as usize] += kernel.rx_dropped - no_frame;
    stats.rx_errors[RxError::RingFull as usize] += kernel.rx_ring_full.unwrap_or(0);
    stats.tx_errors[TxError::Invalid as usize] += kernel.tx_invalid_descs;
    stats.tx_packets -= kernel.tx_invalid_descs.min(stats.tx_packets);
}

impl FrameSink for XdpTransmit {
    #[inline]
    fn send_frame(&mut self, index: usize, port: usize, packet: &Packet<'_>, is_own: bool) {
        let arrival = self.arrivals.get(index).map(|arrival| usize::from(*arrival));
        let number = arrival.and_then(|arrival| Some((arrival, *self.numbers.get(arrival)?)));
        let Some((arrival, number)) = number else { return };
        if self.sent & 1 << arrival != 0 {
            return;
        }
        let addr = u64::from(number) * self.umem.frame_len() as u64 + packet.start() as u64;
        if self.stage(port, Desc { addr, len: packet.len() as u32, options: 0 }, is_own) {
            self.sent |= 1 << arrival;
            self.held[number as usize] = port as u8;
        }
    }

    fn send_copy(&mut self, port: usize, bytes: &[u8], is_own: bool) {
        let Some(mut frame) = self.free.pop() else {
            self.refuse(port, TxError::Full, is_own);
            return;
        };
        let room =
            self.umem.bytes(&mut frame).get_mut(KERNEL_HEADROOM..).and_then(|b| b.get_mut(..bytes.len()));
        let Some(room) = room else {
            self.free.push(frame);
            self.refuse(port, TxError::TooLong, is_own);
            return;
        };
        room.copy_from_slice(bytes);
        let addr = self.umem.address_of(&frame, KERNEL_HEADROOM);
        if self.stage(port, Desc { addr, len: bytes.len() as u32, options: 0 }, is_own) {
            self.held[frame.number()] = port as u8;
        } else {
            self.free.push(frame);
        }
    }

    fn admitted(&self) -> usize {
        self.arrivals.len().wrapping_sub(1)
    }

    fn take_returned(&mut self) -> Option<Vec<(usize, Mac)>> {
        self.returned.take()
    }
}

impl XdpTransmit {
    /// Number of ports.
    pub fn ports(&self) -> usize {
        self.ports.len()
    }

    /// Counts a frame that a port does not send.
    fn refuse(&mut self, port: usize, reason: TxError, is_own: bool) {
        if let Some(port) = self.ports.get_mut(port) {
            port.stats.refuse(reason, is_own);
        }
    }

    /// Writes an entry of a transmit ring. The kernel sees it after the next [`flush`](Self::flush), because
    /// the engine may still use the frame.
    #[inline]
    fn stage(&mut self, port: usize, desc: Desc, is_own: bool) -> bool {
        let Some(port) = self.ports.get_mut(port) else { return false };
        let result = match &mut port.socket {
            None => Err(TxError::Gone),
            Some(_) if port.down => Err(TxError::Down),
            Some(socket) => match socket.tx.push(desc) {
                true => Ok(()),
                false => Err(TxError::Full),
            },
        };
        match result {
            Ok(()) => {
                port.staged = true;
                port.stats.tx_packets += 1;
                port.stats.tx_bytes += u64::from(desc.len);
            }
            Err(reason) => port.stats.refuse(reason, is_own),
        }
        result.is_ok()
    }

    /// Frees the frames of a burst that were not sent.
    fn settle(&mut self, arrivals: ArrayVec<ReceivedFrame, BURST_MAX>) {
        let mut sent = self.sent;
        for arrival in arrivals {
            if sent & 1 == 0 {
                self.free.push(arrival.frame);
            }
            sent >>= 1;
        }
        self.sent = 0;
        self.numbers.clear();
        self.arrivals.clear();
    }

    /// Makes the kernel send the staged frames.
    fn flush(&mut self) {
        for port in &mut self.ports {
            let Some(socket) = port.socket.as_mut().filter(|_| port.staged && !port.down) else { continue };
            socket.tx.publish();
            let result = socket.send_waiting();
            port.staged = socket.tx.waiting() > 0;
            // Consumed by the kernel, but not accepted by the device.
            let dropped = socket.take_dropped().min(port.stats.tx_packets);
            port.stats.tx_packets -= dropped;
            port.stats.tx_errors[TxError::Full as usize] += dropped;
            if result == Err(Errno::NETDOWN) {
                // The thread that watches links reports this too, and its end.
                port.down = true;
            }
        }
    }

    fn has_unsent(&self) -> bool {
        self.ports.iter().any(|port| port.staged && !port.down && port.socket.is_some())
    }

    /// Frees the frames whose packets were sent.
    #[inline]
    fn reap(&mut self, number: usize) {
        let Some(socket) = self.ports.get_mut(number).and_then(|port| port.socket.as_mut()) else { return };
        let mut any = false;
        while let Some(addr) = socket.completion.pop() {
            any = true;
            // SAFETY: the kernel has sent the frame and returned it; a staged frame is no longer a `Frame`.
            if let Some((frame, _)) = unsafe { self.umem.frame_at(addr) } {
                self.held[frame.number()] = NO_SOCKET;
                self.free.push(frame);
            }
        }
        if any {
            socket.completion.release();
        }
    }

    #[inline]
    fn take_received(&mut self, number: usize, arrivals: &mut ArrayVec<ReceivedFrame, BURST_MAX>) {
        let Some(port) = self.ports.get_mut(number) else { return };
        let Some(socket) = &mut port.socket else { return };
        let before = arrivals.len();
        while !arrivals.is_full()
            && let Some(desc) = socket.rx.pop()
        {
            port.receiving = port.receiving.wrapping_sub(1);
            // SAFETY: the kernel has received into the frame and returned it; a frame in the fill ring is no
            // longer a `Frame`.
            let Some((frame, start)) = (unsafe { self.umem.frame_at(desc.addr) }) else { continue };
            self.held[frame.number()] = NO_SOCKET;
            port.stats.rx_bytes += u64::from(desc.len);
            arrivals.push(ReceivedFrame { frame, port: number, start, len: desc.len as usize });
        }
        if arrivals.len() > before {
            port.stats.rx_packets += (arrivals.len() - before) as u64;
            socket.rx.release();
        }
    }

    /// Gives the kernel frames to receive into.
    #[inline]
    fn refill(&mut self, number: usize) {
        let Some(port) = self.ports.get_mut(number) else { return };
        let Some(socket) = &mut port.socket else { return };
        let mut any = false;
        while port.receiving < RING_LEN
            && let Some(frame) = self.free.pop()
        {
            if !socket.fill.push(self.umem.address_of(&frame, 0)) {
                self.free.push(frame);
                break;
            }
            self.held[frame.number()] = number as u8;
            port.receiving += 1;
            any = true;
        }
        if any {
            socket.fill.publish();
            socket.wake_receiver();
        }
    }

    /// Closes the socket of a removed interface and recovers its frames.
    fn close(&mut self, number: usize) {
        let port = &mut self.ports[number];
        let Some(mut socket) = port.socket.take() else { return };
        add_kernel_counts(&mut port.stats, &socket);
        let unsent = u64::from(socket.tx.waiting()).min(port.stats.tx_packets);
        port.stats.tx_packets -= unsent;
        port.stats.tx_errors[TxError::Gone as usize] += unsent;
        (port.receiving, port.staged) = (0, false);
        // From here on, only this code owns the frames.
        drop(socket);
        for (frame, held) in self.held.iter_mut().enumerate().filter(|(_, held)| **held == number as u8) {
            *held = NO_SOCKET;
            // SAFETY: `held` shows that the closed socket held the frame.
            self.free.extend(unsafe { self.umem.recover(frame) });
        }
    }
}
