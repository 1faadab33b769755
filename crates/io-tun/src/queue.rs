//! One queue of a TUN device: the backend of one worker.

use crate::coalesce::Coalescer;
use crate::vnet;
use crate::writer::DeviceWriter;
use arrayvec::ArrayVec;
use gatun_io::{
    BURST_MAX, Backend, Handler, PACKET_MAX, QueueProbe, RxError, STRIDE, Stats, Transmit, Waker,
};
use gatun_wire::{DEVICE_ROOM, HEADROOM, Offload, Packet, Segmentation};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Number of bytes after which a burst is handled: a few super-packets fill the second-level cache.
const BURST_BYTES_MAX: usize = 256 * 1024;

const _: () = assert!(vnet::LEN <= DEVICE_ROOM);

/// One queue of a TUN device.
pub struct TunQueue {
    name: String,
    /// [`BURST_MAX`] buffers of [`STRIDE`] bytes.
    buffers: Box<[u8]>,
    /// True if the last read found no packet.
    is_emptied: bool,
    tx: TunTx,
}

/// Sending half of a queue.
pub(crate) struct TunTx {
    device: DeviceWriter,
    /// Queue of the current burst; `None` if each packet is written immediately.
    coalescer: Option<Coalescer>,
}

/// Memory of a queue in bytes.
pub const QUEUE_BYTES: u64 = (BURST_MAX * STRIDE) as u64;
/// Fill value of unused bytes.
const UNUSED: u8 = 0xa5;

/// Position of a received packet.
#[derive(Clone, Copy, Default)]
struct Received {
    buffer: usize,
    len: usize,
    offload: Offload,
}

impl TunQueue {
    /// Creates a queue. With `udp_gro`, UDP datagrams of one flow are written together.
    pub(crate) fn new(name: String, fd: OwnedFd, udp_gro: bool) -> Self {
        let mut buffers = Vec::with_capacity(BURST_MAX * STRIDE);
        // Only saves time: writing to the buffers allocates their memory before the first packet.
        let _ = gatun_mem::take_room(buffers.spare_capacity_mut());
        buffers.resize(BURST_MAX * STRIDE, UNUSED);
        TunQueue { name, buffers: buffers.into_boxed_slice(), is_emptied: false, tx: TunTx::new(fd, udp_gro) }
    }

    /// Reads waiting packets into the buffers and returns the number of filled entries in `received`. A
    /// buffer with invalid data is counted and left out.
    fn fill(&mut self, received: &mut [Received; BURST_MAX]) -> io::Result<usize> {
        let stats = &mut self.tx.device.stats;
        let (mut count, mut bytes) = (0, 0);
        self.is_emptied = false;
        for (index, buffer) in self.buffers.chunks_exact_mut(STRIDE).enumerate() {
            let space = &mut buffer[HEADROOM - vnet::LEN..HEADROOM + PACKET_MAX + 1];
            let n = match rustix::io::read(&self.tx.device.fd, &mut *space) {
                Ok(n) => n,
                Err(error @ (Errno::AGAIN | Errno::INTR)) => {
                    self.is_emptied = error == Errno::AGAIN;
                    break;
                }
                // The packets read before are handled first. The next call gets the error again.
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
    io::Error::new(e.kind(), format!("cannot read device '{name}' any more ({e}): was it removed?"))
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
        // On the stack, so that a burst allocates nothing.
        let mut burst: ArrayVec<Packet<'_>, BURST_MAX> = ArrayVec::new();
        for (index, buffer) in self.buffers.chunks_exact_mut(STRIDE).enumerate() {
            if let Some(r) = found.next_if(|r| r.buffer == index) {
                burst.extend(Packet::with_offload(buffer, HEADROOM, r.len, r.offload));
            }
            if found.peek().is_none() {
                break;
            }
        }
        if let Some(coalescer) = &mut self.tx.coalescer {
            coalescer.begin(received[..count].iter().map(|r| r.buffer));
        }
        handle(&mut burst, &mut self.tx);
        drop(burst);
        if let Some(coalescer) = &mut self.tx.coalescer {
            coalescer.end(&mut self.buffers, &mut self.tx.device);
        }
        Ok(count)
    }

    fn is_emptied(&self) -> bool {
        self.is_emptied
    }

    fn probe(&self) -> Option<QueueProbe> {
        let fd = self.tx.device.fd.try_clone().ok()?;
        Some(Box::new(move || {
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&at_once)) == Ok(0)
        }))
    }

    fn transmit(&mut self) -> &mut dyn Transmit {
        &mut self.tx
    }

    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        let mut fds = [PollFd::new(waker, PollFlags::IN), PollFd::new(&self.tx.device.fd, PollFlags::IN)];
        waker.poll(&mut fds, timeout)?;
        if fds[1].revents().intersects(PollFlags::ERR | PollFlags::NVAL | PollFlags::HUP) {
            return Err(gone(&self.name, Errno::BADFD));
        }
        Ok(())
    }

    fn stats(&self) -> Stats {
        let mut stats = self.tx.device.stats.clone();
        if let Some(coalescer) = &self.tx.coalescer {
            stats.named.extend(coalescer.counts());
        }
        stats
    }
}

impl TunTx {
    pub(crate) fn new(fd: OwnedFd, udp_gro: bool) -> Self {
        TunTx { device: DeviceWriter::new(fd), coalescer: udp_gro.then(Coalescer::default) }
    }
}

impl Transmit for TunTx {
    fn forward(&mut self, index: usize, packet: &mut Packet<'_>) {
        match &mut self.coalescer {
            Some(coalescer) if coalescer.is_open() => coalescer.keep(index, packet),
            _ => self.device.write(packet),
        }
    }

    fn send(&mut self, packet: &mut Packet<'_>) {
        match &mut self.coalescer {
            Some(coalescer) if coalescer.is_open() => coalescer.copy(packet),
            _ => self.device.write(packet),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::tests::datagram;
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

    /// A socket that preserves message boundaries replaces the device.
    #[test]
    fn packets_after_an_invalid_one_keep_their_boundaries() {
        for udp_gro in [false, true] {
            let flags = SocketFlags::NONBLOCK;
            let (fd, peer) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
            let mut queue = TunQueue::new("test".into(), fd, udp_gro);
            let packets = [1u8, 2, 3].map(|n| datagram(6, None, &[n; 50])[HEADROOM..].to_vec());
            for (number, packet) in packets.iter().enumerate() {
                // The second packet has an unknown segmentation type.
                let header = if number == 1 { [0, 77, 0, 0, 0, 0, 0, 0, 0, 0] } else { [0; vnet::LEN] };
                send(&peer, &[&header[..], packet].concat(), SendFlags::empty()).unwrap();
            }
            let forward = &mut |burst: &mut [Packet<'_>], tx: &mut dyn Transmit| {
                burst.iter_mut().enumerate().for_each(|(index, packet)| tx.forward(index, packet));
            };
            assert_eq!(queue.receive(forward).unwrap(), 2);
            let mut payloads = Vec::new();
            let mut bytes = [0; 1000];
            while let Ok((n, _)) = recv(&peer, &mut bytes[..], RecvFlags::empty()) {
                payloads.extend_from_slice(&bytes[vnet::LEN + 48..n]);
            }
            assert_eq!(payloads, [[1; 50], [3; 50]].concat(), "udp_gro: {udp_gro}");
            let stats = queue.stats();
            assert_eq!((stats.rx_packets, stats.tx_packets), (2, 2));
            assert_eq!(stats.rx_errors[RxError::UnknownSegmentation as usize], 1);
        }
    }
}
