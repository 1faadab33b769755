//! Coalescing of UDP datagrams: the packets of a burst wait, so that datagrams of one flow are written
//! together.

use crate::datagram::{Addresses, Datagram, DatagramTrain, HEADERS_MAX, MEMBERS_MAX, not_to_be_overtaken};
use crate::vnet;
use crate::writer::DeviceWriter;
use arrayvec::ArrayVec;
use gatun_io::{BURST_MAX, NamedCounter, STRIDE, TxError};
use gatun_wire::{Offload, Packet, Segmentation};
use std::io::IoSlice;
use std::ops::Range;

/// Bytes that stay allocated for copies between bursts.
const COPIES_KEPT: usize = 256 * 1024;

/// Outgoing packets of a burst, in their order.
#[derive(Default)]
pub(crate) struct Coalescer {
    is_open: bool,
    /// Buffer of each packet of the burst; `None` once it is queued.
    buffers: ArrayVec<Option<usize>, BURST_MAX>,
    packets: Vec<QueuedPacket>,
    /// Indices in `packets` of those that are written together next.
    members: Vec<usize>,
    /// Packets outside the device's buffers, each after room for its header.
    copies: Vec<u8>,
    joined: u64,
    refused: u64,
}

/// Packet that waits to be written.
struct QueuedPacket {
    place: Location,
    /// Position of the packet there.
    range: Range<usize>,
    offload: Offload,
    how: WriteMode,
    is_written: bool,
}

/// Way in which a packet is written.
#[derive(Clone, Copy)]
enum WriteMode {
    /// Together with others of its flow.
    Together(Datagram),
    /// Alone, and before later packets between these addresses.
    Alone(Option<Addresses>),
}

/// Location of a packet's bytes.
#[derive(Clone, Copy)]
enum Location {
    /// Device buffer with this index.
    Buffer(usize),
    Copies,
}

/// All memory that can hold packets.
struct Bytes<'b> {
    buffers: &'b mut [u8],
    copies: &'b mut [u8],
}

impl Coalescer {
    /// Returns true between the beginning and the end of a burst.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Begins a burst. Its packets lie in the buffers with these indices.
    pub(crate) fn begin(&mut self, buffers: impl Iterator<Item = usize>) {
        self.is_open = true;
        self.buffers = buffers.take(BURST_MAX).map(Some).collect();
    }

    /// Queues packet `index` of the burst. Its bytes stay in place.
    pub(crate) fn keep(&mut self, index: usize, packet: &Packet<'_>) {
        if let Some(buffer) = self.buffers.get_mut(index).and_then(Option::take) {
            self.wait(Location::Buffer(buffer), packet.start(), packet);
        }
    }

    /// Queues a copy of a packet.
    pub(crate) fn copy(&mut self, packet: &Packet<'_>) {
        let at = self.copies.len() + vnet::LEN;
        self.copies.resize(at, 0);
        self.copies.extend_from_slice(packet.bytes());
        self.wait(Location::Copies, at, packet);
    }

    fn wait(&mut self, place: Location, at: usize, packet: &Packet<'_>) {
        // Once the kernel has refused a joined packet, no more are joined.
        let datagram = if self.refused == 0 { Datagram::of(packet) } else { None };
        let alone = || WriteMode::Alone(not_to_be_overtaken(packet.bytes()));
        let how = datagram.map_or_else(alone, WriteMode::Together);
        let range = at..at + packet.len();
        self.packets.push(QueuedPacket { place, range, offload: packet.offload, how, is_written: false });
    }

    /// Ends the burst and writes the queued packets. Each packet is written in its turn, together with those
    /// that follow it in its flow.
    pub(crate) fn end(&mut self, buffers: &mut [u8], tx: &mut DeviceWriter) {
        let mut bytes = Bytes { buffers, copies: &mut self.copies };
        for i in 0..self.packets.len() {
            if self.packets[i].is_written {
                continue;
            }
            let last = if self.refused == 0 { self.packets.len() } else { i + 1 };
            let train = gather(&self.packets[i..last], &mut self.members);
            self.members.iter_mut().for_each(|member| *member += i);
            for &member in &self.members {
                self.packets[member].is_written = true;
            }
            let members = self.members.iter().map(|&member| &self.packets[member]);
            let count = self.members.len() as u64;
            let train = train.filter(|_| count > 1);
            match train.map(|train| bytes.write_together(&train, members.clone(), tx)) {
                Some(Ok(())) => self.joined += count,
                // The kernel may accept each one alone.
                Some(Err(reason @ (TxError::Invalid | TxError::NoMemory | TxError::TooLong))) => {
                    self.refused += u64::from(reason == TxError::Invalid);
                    members.for_each(|waiting| bytes.write_alone(waiting, tx));
                }
                Some(Err(reason)) => tx.stats.tx_errors[reason as usize] += count,
                None => members.for_each(|waiting| bytes.write_alone(waiting, tx)),
            }
        }
        self.is_open = false;
        self.buffers.clear();
        self.packets.clear();
        self.copies.clear();
        self.copies.shrink_to(COPIES_KEPT);
    }

    /// Additional counters.
    pub(crate) fn counts(&self) -> [NamedCounter; 2] {
        [
            NamedCounter {
                name: "udp_gro_joined",
                help: "UDP datagrams that were written together with others of their flow.",
                count: self.joined,
            },
            NamedCounter {
                name: "udp_gro_refused",
                help: "Joined UDP packets that the kernel refused. After the first refusal, Gatun writes each datagram alone.",
                count: self.refused,
            },
        ]
    }
}

/// Finds the packets that are written together with the first of `packets`, and puts their indices into
/// `members`.
fn gather(packets: &[QueuedPacket], members: &mut Vec<usize>) -> Option<DatagramTrain> {
    members.clear();
    members.push(0);
    let WriteMode::Together(first) = packets.first()?.how else { return None };
    let mut train = DatagramTrain::new(first);
    for (place, packet) in packets.iter().enumerate().skip(1).filter(|(_, packet)| !packet.is_written) {
        match &packet.how {
            WriteMode::Together(next) if train.has_ends_of(next) => {
                if !train.take(next) {
                    break;
                }
                members.push(place);
            }
            WriteMode::Alone(Some(addresses)) if train.is_between(addresses) => break,
            WriteMode::Together(_) | WriteMode::Alone(_) => {}
        }
    }
    Some(train)
}

impl Bytes<'_> {
    /// Memory that contains a packet.
    fn of(&self, place: Location) -> &[u8] {
        match place {
            Location::Buffer(index) => self.buffers.chunks_exact(STRIDE).nth(index).unwrap_or_default(),
            Location::Copies => self.copies,
        }
    }

    fn packet(&mut self, waiting: &QueuedPacket) -> Option<Packet<'_>> {
        let bytes = match waiting.place {
            Location::Buffer(index) => self.buffers.chunks_exact_mut(STRIDE).nth(index)?,
            Location::Copies => &mut *self.copies,
        };
        Packet::with_offload(bytes, waiting.range.start, waiting.range.len(), waiting.offload)
    }

    fn write_alone(&mut self, waiting: &QueuedPacket, tx: &mut DeviceWriter) {
        if let Some(mut packet) = self.packet(waiting) {
            tx.write(&mut packet);
        }
    }

    /// Writes the datagrams of a train in one packet and counts them.
    ///
    /// # Errors
    /// Returns an error if the device does not accept the packet. The datagrams are then unchanged and not
    /// counted.
    fn write_together<'w>(
        &mut self,
        train: &DatagramTrain,
        mut members: impl Iterator<Item = &'w QueuedPacket> + Clone,
        tx: &mut DeviceWriter,
    ) -> Result<(), TxError> {
        let all = members.clone();
        let first = members.next().ok_or(TxError::Invalid)?;
        let mut packet = self.packet(first).ok_or(TxError::Invalid)?;
        let headers = train.headers();
        let before: ArrayVec<u8, HEADERS_MAX> = packet.bytes().iter().take(headers).copied().collect();
        packet.offload.checksum = train.write(packet.bytes_mut());
        packet.offload.segmentation = Segmentation::Udp { size: train.size() };
        let written = vnet::prepend(&mut packet).and_then(|at| {
            let payloads = members.map(|w| (w.place, w.range.start + headers..w.range.end));
            let parts = std::iter::once((first.place, at..first.range.end)).chain(payloads);
            let slice = |(place, range)| IoSlice::new(self.of(place).get(range).unwrap_or_default());
            let parts: ArrayVec<IoSlice<'_>, MEMBERS_MAX> = parts.map(slice).collect();
            tx.write_parts(&parts)
        });
        match written {
            Ok(()) => all.for_each(|waiting| tx.count(waiting.range.len())),
            Err(_) => {
                if let Some(mut packet) = self.packet(first) {
                    packet.bytes_mut()[..before.len()].copy_from_slice(&before);
                }
            }
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::tests::datagram;
    use gatun_wire::HEADROOM;
    use rustix::event::epoll;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};
    use std::os::fd::OwnedFd;

    /// Puts packets into buffers of a device.
    fn buffers(packets: &[Vec<u8>]) -> Vec<u8> {
        let mut buffers = vec![0; packets.len() * STRIDE];
        for (buffer, packet) in buffers.chunks_exact_mut(STRIDE).zip(packets) {
            buffer[..packet.len()].copy_from_slice(packet);
        }
        buffers
    }

    /// Sends a burst to a file; `own` follows the first packet.
    fn leave(fd: OwnedFd, packets: &[Vec<u8>], own: Option<&[u8]>) -> (DeviceWriter, Coalescer, Vec<u8>) {
        let (mut tx, mut together) = (DeviceWriter::new(fd), Coalescer::default());
        let mut buffers = buffers(packets);
        together.begin(0..packets.len());
        for (index, (buffer, packet)) in buffers.chunks_exact_mut(STRIDE).zip(packets).enumerate() {
            let len = packet.len() - HEADROOM;
            together.keep(index, &Packet::new(buffer, HEADROOM, len).unwrap());
            if let (0, Some(own)) = (index, own) {
                let mut own = own.to_vec();
                let len = own.len() - HEADROOM;
                together.copy(&Packet::new(&mut own, HEADROOM, len).unwrap());
            }
        }
        together.end(&mut buffers, &mut tx);
        (tx, together, buffers)
    }

    #[test]
    fn each_packet_is_written_in_order_with_its_flow() {
        let (device, peer) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::empty(), None).unwrap();
        let flow = |version, n: u8| datagram(version, None, &[n; 50]);
        let (six, four) = (|n| flow(6, n), |n| flow(4, n));
        let tcp = {
            let mut packet = four(9);
            packet[HEADROOM + 9] = 6;
            packet
        };
        let packets = [six(1), tcp.clone(), four(2), six(3), four(4), six(5)];
        let (tx, together, _) = leave(device, &packets, Some(&six(7)));
        let read = || {
            let mut bytes = vec![0; 70_000];
            let (n, _) = rustix::net::recv(&peer, &mut bytes[..], rustix::net::RecvFlags::DONTWAIT).ok()?;
            bytes.truncate(n);
            Some(bytes)
        };
        let payloads = |bytes: Vec<u8>, at: usize| bytes[vnet::LEN + at..].to_vec();
        let first = payloads(read().unwrap(), 48);
        assert_eq!(first, [[1; 50], [7; 50], [3; 50], [5; 50]].concat(), "in order");
        assert_eq!(read().unwrap()[vnet::LEN..], tcp[HEADROOM..], "unchanged");
        assert_eq!(payloads(read().unwrap(), 28), [[2; 50], [4; 50]].concat());
        assert_eq!(read(), None);
        assert_eq!((tx.stats.tx_packets, tx.stats.tx_attempts()), (7, 7));
        assert_eq!(tx.stats.tx_bytes, (4 * 98 + 3 * 78) as u64);
        assert_eq!(together.counts().map(|named| named.count), [6, 0]);
    }

    #[test]
    fn no_datagram_overtakes_a_packet_of_its_flow() {
        let change = |mut packet: Vec<u8>, at: usize, to: u8| {
            packet[HEADROOM + at] = to;
            packet
        };
        let six = |n: u8| datagram(6, None, &[n; 50]);
        let four = |n: u8| datagram(4, None, &[n; 50]);
        let congested = change(six(2), 1, 0x33);
        let in_pieces = change(six(2), 6, 44);
        let wrong_sum = change(six(2), 60, 9);
        let cut_in_two = change(four(2), 6, 0x20);
        let others = [datagram(6, None, &[]), congested, in_pieces, wrong_sum];
        let cases = others.map(|between| [six(1), between, six(3)]).into_iter();
        for packets in cases.chain([[four(1), cut_in_two, four(3)]]) {
            let (device, peer) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::empty(), None).unwrap();
            let (_, together, _) = leave(device, &packets, None);
            for packet in &packets {
                let mut bytes = vec![0; 1000];
                let (n, _) =
                    rustix::net::recv(&peer, &mut bytes[..], rustix::net::RecvFlags::DONTWAIT).unwrap();
                assert!(bytes[vnet::LEN..n] == packet[HEADROOM..], "out of order");
            }
            assert_eq!(together.counts()[0].count, 0);
        }
        // Packets between other addresses and TCP packets may be overtaken.
        let tcp = change(six(2), 6, 6);
        for between in [change(six(2), 8, 0x21), tcp] {
            let (device, _peer) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::empty(), None).unwrap();
            assert_eq!(leave(device, &[six(1), between, six(3)], None).1.counts()[0].count, 2);
        }
    }

    #[test]
    fn refused_datagrams_are_written_alone_and_no_more_are_joined() {
        // A write to an epoll instance fails with EINVAL.
        let device = || epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let packets =
            [(4, 1), (4, 2), (4, 3), (6, 1), (6, 2)].map(|(version, n)| datagram(version, None, &[n; 50]));
        let before = buffers(&packets);
        let (mut tx, mut together, mut after) = leave(device(), &packets, None);
        let behind_headers = |buffers: &[u8]| {
            let packets = buffers.chunks_exact(STRIDE).map(|buffer| buffer[HEADROOM..].to_vec());
            packets.collect::<Vec<_>>()
        };
        assert!(behind_headers(&after) == behind_headers(&before), "a datagram has changed");
        assert_eq!((tx.stats.tx_errors[TxError::Invalid as usize], tx.stats.tx_attempts()), (5, 5));
        assert_eq!(together.counts().map(|named| named.count), [0, 1], "the other flow is not tried");
        together.begin(0..packets.len());
        for (index, (buffer, packet)) in after.chunks_exact_mut(STRIDE).zip(&packets).enumerate() {
            // The second call has no effect.
            for _ in 0..2 {
                together.keep(index, &Packet::new(buffer, HEADROOM, packet.len() - HEADROOM).unwrap());
            }
        }
        together.end(&mut after, &mut tx);
        assert_eq!(together.counts().map(|named| named.count), [0, 1]);
        assert_eq!(tx.stats.tx_errors[TxError::Invalid as usize], 10);
    }

    #[test]
    fn a_full_device_queue_drops_and_counts_a_whole_train() {
        let (device, _peer) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None).unwrap();
        while rustix::net::send(&device, &[0; 1000], SendFlags::empty()).is_ok() {}
        let packets = [1, 2, 3].map(|n| datagram(6, None, &[n; 5000]));
        let (tx, together, _) = leave(device, &packets, None);
        assert_eq!((tx.stats.tx_errors[TxError::Full as usize], tx.stats.tx_attempts()), (3, 3));
        assert_eq!(together.counts().map(|named| named.count), [0, 0]);
    }
}
