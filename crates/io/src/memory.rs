//! In-memory backend: a test or a bench pushes packets in and reads the sent ones.

use crate::{BURST_MAX, Backend, Handler, Stats, Transmit, TxError, Waker};
use gatun_wire::{HEADROOM, Offload, Packet, Segmentation};
use rustix::event::{PollFd, PollFlags};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Packet of the in-memory backend: bytes from the IP header on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Bytes of the packet.
    pub bytes: Vec<u8>,
    /// Work that is left for a device.
    pub offload: Offload,
}

impl From<Vec<u8>> for Frame {
    fn from(bytes: Vec<u8>) -> Self {
        Frame { bytes, offload: Offload::default() }
    }
}

/// In-memory backend. Its [`MemoryPeer`] reads what it sends.
pub struct Memory {
    name: String,
    buffers: Vec<Vec<u8>>,
    tx: MemoryTx,
}

/// Other end of a [`Memory`] backend: provides packets and takes the sent ones.
#[derive(Clone)]
pub struct MemoryPeer {
    wire: Arc<Mutex<Wire>>,
    waker: Waker,
}

#[derive(Default)]
struct Wire {
    to_backend: VecDeque<Frame>,
    from_backend: Vec<Frame>,
    refuse: Option<TxError>,
    gone: bool,
}

struct MemoryTx {
    wire: Arc<Mutex<Wire>>,
    ready: Waker,
    stats: Stats,
}

/// Bytes after a packet, for a reply that pads.
const TAILROOM: usize = 256;
const _: () = assert!(TAILROOM >= gatun_wire::TAILROOM);

impl Memory {
    /// Creates a backend and its other end.
    ///
    /// # Errors
    /// Returns an error if the process has reached its limit of open files.
    pub fn new(name: &str) -> io::Result<(Memory, MemoryPeer)> {
        let wire = Arc::new(Mutex::new(Wire::default()));
        let waker = Waker::new()?;
        let tx = MemoryTx { wire: wire.clone(), ready: waker.clone(), stats: Stats::default() };
        let memory = Memory { name: name.to_owned(), buffers: Vec::new(), tx };
        Ok((memory, MemoryPeer { wire, waker }))
    }
}

impl MemoryPeer {
    /// Queues a packet for the backend to receive.
    pub fn push(&self, frame: impl Into<Frame>) {
        lock(&self.wire).to_backend.push_back(frame.into());
        self.waker.wake();
    }

    /// Takes the packets sent so far, in order.
    pub fn take_sent(&self) -> Vec<Frame> {
        std::mem::take(&mut lock(&self.wire).from_backend)
    }

    /// Makes the device refuse packets for this reason, or accept them again.
    pub fn refuse(&self, reason: Option<TxError>) {
        lock(&self.wire).refuse = reason;
    }

    /// Removes the device.
    pub fn remove(&self) {
        lock(&self.wire).gone = true;
        self.waker.wake();
    }
}

fn lock(wire: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    wire.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Backend for Memory {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&mut self, handle: &mut Handler<'_>) -> io::Result<usize> {
        let mut offloads = Vec::with_capacity(BURST_MAX);
        let mut lens = Vec::with_capacity(BURST_MAX);
        {
            let mut wire = lock(&self.tx.wire);
            if wire.gone {
                return Err(io::Error::from_raw_os_error(rustix::io::Errno::NODEV.raw_os_error()));
            }
            while let Some(frame) = (lens.len() < BURST_MAX).then(|| wire.to_backend.pop_front()).flatten() {
                if self.buffers.len() == lens.len() {
                    self.buffers.push(Vec::new());
                }
                let buffer = &mut self.buffers[lens.len()];
                buffer.clear();
                // The fill value makes unwritten bytes visible.
                buffer.resize(HEADROOM + frame.bytes.len() + TAILROOM, 0xa5);
                buffer[HEADROOM..HEADROOM + frame.bytes.len()].copy_from_slice(&frame.bytes);
                lens.push(frame.bytes.len());
                offloads.push(frame.offload);
            }
        }
        let mut burst: Vec<Packet<'_>> = self
            .buffers
            .iter_mut()
            .zip(lens.iter().zip(offloads))
            .filter_map(|(buffer, (len, offload))| Packet::with_offload(buffer, HEADROOM, *len, offload))
            .collect();
        for packet in &burst {
            self.tx.stats.rx_packets += 1;
            self.tx.stats.rx_bytes += packet.len() as u64;
            self.tx.stats.rx_super_packets += u64::from(is_super(packet));
        }
        if !burst.is_empty() {
            handle(&mut burst, &mut self.tx);
        }
        Ok(burst.len())
    }

    fn transmit(&mut self) -> &mut dyn Transmit {
        &mut self.tx
    }

    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        let mut fds = [PollFd::new(waker, PollFlags::IN), PollFd::new(&self.tx.ready, PollFlags::IN)];
        waker.poll(&mut fds, timeout)?;
        self.tx.ready.reset();
        Ok(())
    }

    fn stats(&self) -> Stats {
        self.tx.stats.clone()
    }
}

impl Transmit for MemoryTx {
    fn forward(&mut self, _index: usize, packet: &mut Packet<'_>) {
        self.send(packet);
    }

    fn send(&mut self, packet: &mut Packet<'_>) {
        let mut wire = lock(&self.wire);
        if let Some(reason) = wire.refuse {
            self.stats.tx_errors[reason as usize] += 1;
            return;
        }
        self.stats.tx_packets += 1;
        self.stats.tx_bytes += packet.len() as u64;
        self.stats.tx_super_packets += u64::from(is_super(packet));
        wire.from_backend.push(Frame { bytes: packet.bytes().to_vec(), offload: packet.offload });
    }
}

fn is_super(packet: &Packet<'_>) -> bool {
    packet.offload.segmentation != Segmentation::None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_has_headroom_and_keeps_order_and_bytes() {
        let (mut memory, peer) = Memory::new("m").unwrap();
        for i in 0..70u8 {
            peer.push(vec![i; 20 + usize::from(i)]);
        }
        let mut seen = Vec::new();
        for expected in [64, 6, 0] {
            let n = memory
                .receive(&mut |burst, tx| {
                    for (i, packet) in burst.iter_mut().enumerate() {
                        assert_eq!(packet.headroom(), HEADROOM);
                        seen.push(packet.bytes().to_vec());
                        tx.forward(i, packet);
                    }
                })
                .unwrap();
            assert_eq!(n, expected);
        }
        assert_eq!(seen, (0..70u8).map(|i| vec![i; 20 + usize::from(i)]).collect::<Vec<_>>());
        assert_eq!(peer.take_sent().into_iter().map(|f| f.bytes).collect::<Vec<_>>(), seen);
        let stats = memory.stats();
        assert_eq!((stats.rx_packets, stats.tx_packets, stats.rx_bytes), (70, 70, stats.tx_bytes));
    }

    #[test]
    fn a_refused_packet_is_counted_by_its_reason_and_a_removed_device_is_an_error() {
        let (mut memory, peer) = Memory::new("m").unwrap();
        peer.refuse(Some(TxError::Full));
        peer.push(vec![0x60; 40]);
        memory.receive(&mut |burst, tx| tx.forward(0, &mut burst[0])).unwrap();
        assert_eq!(memory.stats().tx_errors[TxError::Full as usize], 1);
        assert_eq!(memory.stats().tx_attempts(), 1);
        assert!(peer.take_sent().is_empty());
        peer.remove();
        assert!(memory.receive(&mut |_, _| ()).is_err());
    }

    #[test]
    fn a_wake_up_before_the_wait_is_not_lost() {
        let (mut memory, peer) = Memory::new("m").unwrap();
        let waker = Waker::new().unwrap();
        waker.wake();
        memory.wait(&waker, None).unwrap();
        peer.push(vec![0x60; 40]);
        memory.wait(&waker, None).unwrap();
        let before = std::time::Instant::now();
        memory.wait(&waker, Some(Duration::from_millis(20))).unwrap();
        assert!(before.elapsed() >= Duration::from_millis(15), "both wake-ups were consumed");
    }
}
