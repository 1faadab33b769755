//! One queue of a TUN device: the backend of one worker.

use crate::vnet;
use arrayvec::ArrayVec;
use gatun_io::{BURST_MAX, Backend, Handler, PACKET_MAX, RxError, STRIDE, Stats, Transmit, TxError, Waker};
use gatun_wire::{HEADROOM, Offload, Packet, Segmentation};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Once so many bytes are read, the burst is handled: a few super-packets fill the second-level cache.
const BURST_BYTES_MAX: usize = 256 * 1024;

const _: () = assert!(HEADROOM >= vnet::LEN + 48);

/// One queue of a TUN device.
pub struct TunQueue {
    name: String,
    /// [`BURST_MAX`] buffers of [`STRIDE`] bytes. Pages never used are never backed by memory.
    buffers: Box<[u8]>,
    tx: TunTx,
}

struct TunTx {
    fd: OwnedFd,
    stats: Stats,
}

/// A received packet's place in its buffer.
#[derive(Clone, Copy, Default)]
struct Received {
    buffer: usize,
    len: usize,
    offload: Offload,
}

impl TunQueue {
    pub(crate) fn new(name: String, fd: OwnedFd) -> Self {
        let buffers = vec![0u8; BURST_MAX * STRIDE].into_boxed_slice();
        TunQueue { name, buffers, tx: TunTx { fd, stats: Stats::default() } }
    }

    /// Reads what waits into the buffers, from the first on, and returns how many of `received` are filled.
    /// What has no meaning is counted and its buffer left out.
    fn fill(&mut self, received: &mut [Received; BURST_MAX]) -> io::Result<usize> {
        let stats = &mut self.tx.stats;
        let (mut count, mut bytes) = (0, 0);
        for (index, buffer) in self.buffers.chunks_exact_mut(STRIDE).enumerate() {
            let space = &mut buffer[HEADROOM - vnet::LEN..HEADROOM + PACKET_MAX + 1];
            let n = match rustix::io::read(&self.tx.fd, &mut *space) {
                Ok(n) => n,
                Err(Errno::AGAIN | Errno::INTR) => break,
                // What was read before is handed over first; the next call meets the error again.
                Err(_) if count > 0 => break,
                Err(e) => return Err(gone(&self.name, e)),
            };
            match read_frame(&space[..n]) {
                Ok(offload) => {
                    let len = n - vnet::LEN;
                    received[count] = Received { buffer: index, len, offload };
                    count += 1;
                    bytes += len;
                    stats.rx_packets += 1;
                    stats.rx_bytes += len as u64;
                    stats.rx_super_packets += u64::from(offload.segmentation != Segmentation::None);
                }
                Err(reason) => stats.rx_errors[reason as usize] += 1,
            }
            if bytes >= BURST_BYTES_MAX {
                break;
            }
        }
        Ok(count)
    }
}

fn read_frame(frame: &[u8]) -> Result<Offload, RxError> {
    let (header, packet) = frame.split_first_chunk::<{ vnet::LEN }>().ok_or(RxError::ShortHeader)?;
    if packet.len() > PACKET_MAX {
        return Err(RxError::Truncated);
    }
    vnet::decode(*header, packet)
}

fn gone(name: &str, e: Errno) -> io::Error {
    let e = io::Error::from(e);
    io::Error::new(e.kind(), format!("device '{name}' cannot be read any more ({e}): was it removed?"))
}

impl Backend for TunQueue {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&mut self, handle: &mut Handler<'_>) -> io::Result<usize> {
        let mut received = [Received::default(); BURST_MAX];
        let count = self.fill(&mut received)?;
        if count == 0 {
            return Ok(0);
        }
        let mut found = received[..count].iter().peekable();
        // On the stack: nothing is allocated per burst.
        let mut burst: ArrayVec<Packet<'_>, BURST_MAX> = ArrayVec::new();
        for (index, buffer) in self.buffers.chunks_exact_mut(STRIDE).enumerate() {
            if let Some(r) = found.next_if(|r| r.buffer == index) {
                burst.extend(Packet::with_offload(buffer, HEADROOM, r.len, r.offload));
            }
            if found.peek().is_none() {
                break;
            }
        }
        handle(&mut burst, &mut self.tx);
        Ok(count)
    }

    fn transmit(&mut self) -> &mut dyn Transmit {
        &mut self.tx
    }

    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
        let mut fds = [PollFd::new(&self.tx.fd, PollFlags::IN), PollFd::new(waker, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let woken = fds[1].revents().contains(PollFlags::IN);
        if woken {
            waker.reset();
        }
        if fds[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL | PollFlags::HUP) {
            return Err(gone(&self.name, Errno::BADFD));
        }
        Ok(())
    }

    fn stats(&self) -> Stats {
        self.tx.stats.clone()
    }
}

impl TunTx {
    fn write(&mut self, packet: &mut Packet<'_>) -> Result<(), TxError> {
        let at = vnet::prepend(packet)?;
        let end = packet.start() + packet.len();
        match rustix::io::write(&self.fd, &packet.buffer_mut()[at..end]) {
            Ok(_) => Ok(()),
            Err(e) => {
                let reason = tx_error(e);
                if reason == TxError::Other {
                    self.stats.tx_last_os_error = Some(e.raw_os_error());
                }
                Err(reason)
            }
        }
    }
}

fn tx_error(e: Errno) -> TxError {
    match e {
        Errno::AGAIN | Errno::NOBUFS => TxError::Full,
        Errno::INVAL => TxError::Invalid,
        Errno::IO | Errno::NETDOWN => TxError::Down,
        Errno::MSGSIZE => TxError::TooLong,
        Errno::NOMEM => TxError::NoMemory,
        Errno::BADFD | Errno::NODEV => TxError::Gone,
        _ => TxError::Other,
    }
}

impl Transmit for TunTx {
    fn forward(&mut self, _index: usize, packet: &mut Packet<'_>) {
        self.send(packet);
    }

    fn send(&mut self, packet: &mut Packet<'_>) {
        match self.write(packet) {
            Ok(()) => {
                self.stats.tx_packets += 1;
                self.stats.tx_bytes += packet.len() as u64;
                self.stats.tx_super_packets += u64::from(packet.offload.segmentation != Segmentation::None);
            }
            Err(reason) => self.stats.tx_errors[reason as usize] += 1,
        }
    }
}
