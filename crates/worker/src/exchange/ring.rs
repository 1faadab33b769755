//! Ring from one worker to another: the bytes of packets in sequence, and separate metadata of each.
//!
//! ```text
//!   put: copied after the other packets of the burst, in the writer's own memory --publish--> ring --take-->
//!   buffers
//! ```
//! The writer updates the ring's positions once per burst, and the reader once after it has taken all
//! packets.

use arrayvec::ArrayVec;
use gatun_io::{BURST_MAX, PACKET_MAX, STRIDE};
use gatun_wire::{HEADROOM, Offload, Packet};
use rtrb::{Consumer, Producer, RingBuffer};

/// Largest number of packets in a ring.
pub(super) const PACKETS_MAX: usize = 1024;
/// Bytes of packets that are published together, except a single larger one: a burst of small packets.
const TOGETHER_MAX: usize = 16 << 10;
/// Room in bytes after a packet.
const TAILROOM: usize = 256;
const _: () = assert!(TAILROOM >= gatun_wire::TAILROOM);

const _: () = assert!(HEADROOM + PACKET_MAX + TAILROOM + 128 <= STRIDE);

/// Fill value of unused buffers: writing it allocates their pages.
const UNUSED: u8 = 0xa5;

/// Memory in bytes of a ring for this many bytes.
pub(super) fn memory_bytes(bytes: usize) -> usize {
    bytes + PACKETS_MAX * size_of::<PacketMeta>() + TOGETHER_MAX
}

/// Metadata of a packet in a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketMeta {
    len: u32,
    offload: Offload,
    realm: u8,
}

impl PacketMeta {
    /// Buffer size for the packet: headroom, and room after it for a reply that pads. An odd number of cache
    /// lines, so that packets of one size begin in different cache sets.
    fn buffer_len(&self) -> usize {
        (HEADROOM + self.len as usize + TAILROOM).next_multiple_of(64) | 64
    }

    /// Splits off the buffer of the next copied packet.
    pub(super) fn packet<'b>(&self, buffers: &mut &'b mut [u8]) -> Option<Packet<'b>> {
        let buffer = buffers.split_off_mut(..self.buffer_len())?;
        let mut packet = Packet::with_offload(buffer, HEADROOM, self.len as usize, self.offload)?;
        packet.realm = self.realm;
        Some(packet)
    }
}

/// Packets copied out of rings. The buffers are adjacent, because the TLB covers few pages.
pub(super) struct ReceivedPackets {
    pub(super) buffers: Box<[u8]>,
    pub(super) metas: ArrayVec<PacketMeta, BURST_MAX>,
    /// Number of buffer bytes in use.
    used: usize,
}

impl ReceivedPackets {
    pub(super) fn new() -> ReceivedPackets {
        ReceivedPackets { buffers: vec![UNUSED; BURST_MAX * STRIDE].into(), metas: ArrayVec::new(), used: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.metas.clear();
        self.used = 0;
    }
}

/// Writing end of a ring.
pub(super) struct RingWriter {
    bytes: Producer<u8>,
    metas: Producer<PacketMeta>,
    /// Packets that are put but not published.
    put_bytes: Vec<u8>,
    put: ArrayVec<PacketMeta, BURST_MAX>,
    /// Room in bytes and packets beside these, as last seen.
    room_bytes: usize,
    room: usize,
    written: bool,
}

/// Reading end of a ring.
pub(super) struct RingReader {
    bytes: Consumer<u8>,
    metas: Consumer<PacketMeta>,
}

/// Creates a ring for this many bytes.
pub(super) fn ring(bytes: usize) -> (RingWriter, RingReader) {
    let (mut bytes, bytes_in) = RingBuffer::new(bytes);
    let (mut metas, parcels_in) = RingBuffer::new(PACKETS_MAX);
    take_memory(&mut bytes, 0);
    take_memory(&mut metas, PacketMeta { len: 0, offload: Offload::default(), realm: 0 });
    let outbox = RingWriter {
        bytes,
        metas,
        put_bytes: Vec::with_capacity(TOGETHER_MAX),
        put: ArrayVec::new(),
        room_bytes: 0,
        room: 0,
        written: false,
    };
    (outbox, RingReader { bytes: bytes_in, metas: parcels_in })
}

/// Writes to each slot of an empty ring to allocate its pages before the first packet, and leaves it empty.
fn take_memory<T: Copy>(ring: &mut Producer<T>, nothing: T) {
    let Ok(mut places) = ring.write_chunk_uninit(ring.slots()) else { return };
    let (first, second) = places.as_mut_slices();
    for place in first.iter_mut().chain(second) {
        place.write(nothing);
    }
    // Dropped without a commit, so the ring stays empty.
}

impl RingWriter {
    /// Copies a packet without publishing it. Returns false if the ring has no room.
    #[inline]
    pub(super) fn put(&mut self, packet: &Packet<'_>) -> bool {
        let bytes = packet.bytes();
        if (self.room == 0 || self.room_bytes < bytes.len()) && !self.look_for_room(bytes.len()) {
            return false;
        }
        self.room -= 1;
        self.room_bytes -= bytes.len();
        let meta = PacketMeta { len: bytes.len() as u32, offload: packet.offload, realm: packet.realm };
        if self.put.is_full() || self.put_bytes.len() + bytes.len() > TOGETHER_MAX {
            self.write();
        }
        if bytes.len() > TOGETHER_MAX {
            self.written = true;
            return self.bytes.push_entire_slice(bytes).is_ok() && self.metas.push(meta).is_ok();
        }
        self.put_bytes.extend_from_slice(bytes);
        self.put.push(meta);
        true
    }

    /// Reads how much the reader has freed.
    #[cold]
    fn look_for_room(&mut self, len: usize) -> bool {
        self.room = self.metas.slots() - self.put.len();
        self.room_bytes = self.bytes.slots() - self.put_bytes.len();
        self.room > 0 && self.room_bytes >= len && len <= PACKET_MAX
    }

    /// Publishes the packets that were put. Returns false if there were none.
    pub(super) fn publish(&mut self) -> bool {
        if !self.put.is_empty() {
            self.write();
        }
        std::mem::take(&mut self.written)
    }

    fn write(&mut self) {
        // There is room: each `put` has checked it. The reader reads bytes only for metadata that it sees.
        let written = self.bytes.push_entire_slice(&self.put_bytes).is_ok()
            && self.metas.push_entire_slice(&self.put).is_ok();
        debug_assert!(written);
        self.put_bytes.clear();
        self.put.clear();
        self.written = true;
    }
}

impl RingReader {
    pub(super) fn is_empty(&self) -> bool {
        self.metas.is_empty()
    }

    /// Copies packets out while there are some and there is room for them.
    pub(super) fn take(&mut self, taken: &mut ReceivedPackets) {
        let ReceivedPackets { buffers, metas, used } = taken;
        let first = metas.len();
        let count = self.metas.slots().min(metas.remaining_capacity());
        if count == 0 {
            return;
        }
        let Ok(news) = self.metas.read_chunk(count) else { return };
        let (a, b) = news.as_slices();
        // As many as fit.
        let _ = metas.try_extend_from_slice(a).and_then(|()| metas.try_extend_from_slice(b));
        let metas = &metas[first..];
        let len = metas.iter().map(|meta| meta.len as usize).sum();
        if let Ok(bytes) = self.bytes.read_chunk(len) {
            let (mut bytes_a, mut bytes_b) = bytes.as_slices();
            for meta in metas {
                let buffer = &mut buffers[*used + HEADROOM..][..meta.len as usize];
                *used += meta.buffer_len();
                if let Some(whole) = bytes_a.split_off(..buffer.len()) {
                    buffer.copy_from_slice(whole);
                    continue;
                }
                // At most one packet is split, at the ring's end.
                let (a, b) = buffer.split_at_mut(bytes_a.len());
                a.copy_from_slice(bytes_a);
                b.copy_from_slice(bytes_b.split_off(..b.len()).unwrap_or_default());
                bytes_a = std::mem::take(&mut bytes_b);
            }
            bytes.commit_all();
        }
        news.commit_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_wire::{Checksum, Segmentation};
    use std::collections::VecDeque;

    /// Pseudo-random numbers: splitmix64.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ z >> 31) % n) as usize
        }
    }

    /// Packet whose length, bytes and metadata all follow from its number.
    fn fill(buffer: &mut [u8], number: u64) -> Packet<'_> {
        let mut random = Random(number);
        let len = match random.below(64) {
            0 => 40_000 + random.below(25_500),
            1 => TOGETHER_MAX - 1 + random.below(3),
            2..8 => 1000 + random.below(8000),
            8 => 0,
            _ => 20 + random.below(200),
        };
        let bytes = &mut buffer[7..7 + len];
        bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (number as usize + i) as u8);
        bytes.iter_mut().rev().zip(number.to_be_bytes()).for_each(|(byte, n)| *byte = n);
        let checksum = match number % 3 {
            0 => Checksum::Complete,
            _ => Checksum::Partial { start: number as u16, offset: 6 },
        };
        let segmentation = match number % 5 {
            0 => Segmentation::Tcp { size: number as u16, ecn: number.is_multiple_of(2) },
            1 => Segmentation::Udp { size: number as u16 },
            _ => Segmentation::None,
        };
        let mut packet = Packet::with_offload(buffer, 7, len, Offload { checksum, segmentation }).unwrap();
        packet.realm = (number >> 3) as u8;
        packet
    }

    struct TestReader {
        inbox: RingReader,
        taken: ReceivedPackets,
        expected: Vec<u8>,
    }

    impl TestReader {
        fn new(inbox: RingReader) -> TestReader {
            let mut taken = ReceivedPackets::new();
            taken.buffers.fill(0xa5);
            TestReader { inbox, taken, expected: vec![0; STRIDE] }
        }

        /// Takes a burst, after `before` packets from another ring, and compares it with `numbers`: every
        /// byte, in order. Returns the number of packets.
        fn take(&mut self, before: usize, mut numbers: impl FnMut() -> u64) -> usize {
            self.taken.clear();
            for _ in 0..before {
                let largest = PacketMeta { len: PACKET_MAX as u32, offload: Offload::default(), realm: 0 };
                self.taken.metas.push(largest);
                self.taken.used += largest.buffer_len();
            }
            self.inbox.take(&mut self.taken);
            let mut buffers = &mut self.taken.buffers[..];
            for (i, meta) in self.taken.metas.iter().enumerate() {
                let mut packet = meta.packet(&mut buffers).unwrap();
                if i < before {
                    continue;
                }
                let number = numbers();
                let expected = fill(&mut self.expected, number);
                assert!(packet.bytes() == expected.bytes(), "packet {number}");
                assert_eq!((packet.offload, packet.realm), (expected.offload, expected.realm));
                let room = packet.buffer_mut().len() - expected.len();
                assert!(packet.start() == HEADROOM && room >= HEADROOM + 256, "{room} bytes of room");
            }
            self.taken.metas.len() - before
        }
    }

    /// Random sequences of put, publish and take, compared with a simple queue.
    #[test]
    fn a_full_ring_refuses_packets_and_a_ring_keeps_their_order() {
        let mut buffer = vec![0; STRIDE];
        let (mut refused, mut most) = ([0u64; 2], 0);
        for seed in 0..12 {
            let bytes_max = [100_000, 300_000, 1 << 20][seed as usize % 3];
            let (mut outbox, inbox) = ring(bytes_max);
            let (mut reader, mut random) = (TestReader::new(inbox), Random(seed));
            // Numbers and lengths of packets in the ring, and how many of them are published.
            let (mut queue, mut bytes, mut published) = (VecDeque::new(), 0, 0);
            // The two sides are busy in turn.
            let mut turn = 0;
            for n in 0..6000 {
                if n % 1500 == 0 {
                    turn = 1 + random.below(4);
                }
                let number = (seed << 32) + n;
                let packet = fill(&mut buffer, number);
                let has_room = queue.len() < PACKETS_MAX && bytes + packet.len() <= bytes_max;
                assert_eq!(outbox.put(&packet), has_room, "{} packets, {bytes} bytes", queue.len());
                if has_room {
                    bytes += packet.len();
                    queue.push_back((number, packet.len()));
                    most = most.max(queue.len());
                } else {
                    refused[usize::from(queue.len() == PACKETS_MAX)] += 1;
                }
                if random.below(20) == 0 {
                    outbox.publish();
                    published = queue.len();
                }
                if random.below(20 * turn as u64) == 0 {
                    let before = random.below(1 + BURST_MAX as u64);
                    let next = || {
                        let (number, len) = queue.pop_front().expect("no more than were put");
                        bytes -= len;
                        number
                    };
                    let taken = reader.take(before, next);
                    assert!(taken >= published.min(BURST_MAX - before), "a published packet is missing");
                    published = published.saturating_sub(taken);
                }
            }
            outbox.publish();
            assert!(!outbox.publish(), "nothing is left to be published");
            while reader.take(0, || queue.pop_front().unwrap().0) > 0 {}
            assert!(queue.is_empty() && reader.inbox.is_empty());
        }
        assert!(refused.iter().all(|count| *count > 100), "both bounds were met: {refused:?}");
        assert_eq!(most, PACKETS_MAX);
    }

    /// Both ends concurrently: every packet is refused, or comes out once, whole and in order.
    #[test]
    fn two_threads_lose_no_accepted_packet() {
        const PACKETS: u64 = 60_000;
        let (mut outbox, inbox) = ring(400_000);
        let (mut reader, mut random) = (TestReader::new(inbox), Random(2));
        let (numbers, taken_numbers) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                let (mut buffer, mut random) = (vec![0; STRIDE], Random(1));
                let (mut put, mut refused, mut number) = (0u64, 0u64, 0u64);
                while number < PACKETS {
                    for _ in 0..1 + random.below(BURST_MAX as u64) {
                        if outbox.put(&fill(&mut buffer, number)) {
                            // Sent before the packet is published, so that the reader finds its number.
                            numbers.send(number).unwrap();
                            put += 1;
                        } else {
                            refused += 1;
                        }
                        number += 1;
                    }
                    outbox.publish();
                    // The reader may or may not catch up.
                    match random.below(8) {
                        0 => std::thread::sleep(std::time::Duration::from_micros(100)),
                        1 => std::thread::yield_now(),
                        _ => (),
                    }
                }
                (put, refused, number)
            });
            let mut taken = 0usize;
            let mut next = || taken_numbers.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
            while !writer.is_finished() {
                match reader.take(0, &mut next) {
                    0 => std::thread::yield_now(),
                    count => taken += count,
                }
                if random.below(100) == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            }
            let (put, refused, number) = writer.join().unwrap();
            loop {
                match reader.take(0, &mut next) {
                    0 => break,
                    count => taken += count,
                }
            }
            assert_eq!((put, put + refused), (taken as u64, number));
            assert!(refused > 0, "the ring was never full");
            assert!(taken_numbers.try_recv().is_err() && reader.inbox.is_empty());
        });
    }
}
