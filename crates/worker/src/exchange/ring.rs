//! A ring from one worker to another: packets as bytes one behind the other, and beside them what else is known of each.
//!
//! ```text
//!   put: copied in front of the others of the burst, in memory that the writer alone has --publish--> ring --take--> buffers
//! ```
//! Where a ring ends is written once for a burst, and once where the reader has taken what there was.

use arrayvec::ArrayVec;
use gatun_io::{BURST_MAX, PACKET_MAX, STRIDE};
use gatun_wire::{HEADROOM, Offload, Packet};
use rtrb::{Consumer, Producer, RingBuffer};

/// Packets that wait in a ring at most.
pub(super) const PACKETS_MAX: usize = 1024;
/// Bytes of packets that are published together, but for one that is larger: those of a burst, where they are small.
const TOGETHER_MAX: usize = 16 << 10;
/// Bytes behind a packet.
const TAILROOM: usize = 256;
const _: () = assert!(TAILROOM >= gatun_wire::TAILROOM);

const _: () = assert!(HEADROOM + PACKET_MAX + TAILROOM + 128 <= STRIDE);

/// Bytes of buffers that no packet was in: written, so that they have their memory.
const UNUSED: u8 = 0xa5;

/// Bytes that a ring for so many bytes takes.
pub(super) fn memory_bytes(bytes: usize) -> usize {
    bytes + PACKETS_MAX * size_of::<Parcel>() + TOGETHER_MAX
}

/// What is known of a packet in a ring beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parcel {
    len: u32,
    offload: Offload,
    realm: u8,
}

impl Parcel {
    /// Bytes of a buffer for it: headroom, and room behind for a reply that pads. An odd number of cache lines, so that
    /// packets of one size do not begin in the same set of a cache.
    fn buffer_len(&self) -> usize {
        (HEADROOM + self.len as usize + TAILROOM).next_multiple_of(64) | 64
    }

    /// Cuts the buffer of the next packet that was copied out from those of all.
    pub(super) fn packet<'b>(&self, buffers: &mut &'b mut [u8]) -> Option<Packet<'b>> {
        let buffer = buffers.split_off_mut(..self.buffer_len())?;
        let mut packet = Packet::with_offload(buffer, HEADROOM, self.len as usize, self.offload)?;
        packet.realm = self.realm;
        Some(packet)
    }
}

/// What was copied out of rings: each packet's buffer close behind the one before, as a processor reaches few pages at once
/// without asking where they are.
pub(super) struct Taken {
    pub(super) buffers: Box<[u8]>,
    pub(super) parcels: ArrayVec<Parcel, BURST_MAX>,
    /// Bytes of buffers in use.
    used: usize,
}

impl Taken {
    pub(super) fn new() -> Taken {
        Taken { buffers: vec![UNUSED; BURST_MAX * STRIDE].into(), parcels: ArrayVec::new(), used: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.parcels.clear();
        self.used = 0;
    }
}

/// The writing end of a ring.
pub(super) struct Outbox {
    bytes: Producer<u8>,
    parcels: Producer<Parcel>,
    /// What was put and is not published.
    put_bytes: Vec<u8>,
    put: ArrayVec<Parcel, BURST_MAX>,
    /// Bytes and packets that there was room for beside these when it was last looked.
    room_bytes: usize,
    room: usize,
    written: bool,
}

/// The reading end of a ring.
pub(super) struct Inbox {
    bytes: Consumer<u8>,
    parcels: Consumer<Parcel>,
}

/// A ring for so many bytes.
pub(super) fn ring(bytes: usize) -> (Outbox, Inbox) {
    let (mut bytes, bytes_in) = RingBuffer::new(bytes);
    let (mut parcels, parcels_in) = RingBuffer::new(PACKETS_MAX);
    take_memory(&mut bytes, 0);
    take_memory(&mut parcels, Parcel { len: 0, offload: Offload::default(), realm: 0 });
    let outbox = Outbox {
        bytes,
        parcels,
        put_bytes: Vec::with_capacity(TOGETHER_MAX),
        put: ArrayVec::new(),
        room_bytes: 0,
        room: 0,
        written: false,
    };
    (outbox, Inbox { bytes: bytes_in, parcels: parcels_in })
}

/// Writes to each place of an empty ring, so that it has its memory before the first packet, and leaves it empty.
fn take_memory<T: Copy>(ring: &mut Producer<T>, nothing: T) {
    let Ok(mut places) = ring.write_chunk_uninit(ring.slots()) else { return };
    let (first, second) = places.as_mut_slices();
    for place in first.iter_mut().chain(second) {
        place.write(nothing);
    }
    // Dropped without a commit, it has put nothing into the ring.
}

impl Outbox {
    /// Copies a packet, to be published; `false` where the ring has no room for it.
    #[inline]
    pub(super) fn put(&mut self, packet: &Packet<'_>) -> bool {
        let bytes = packet.bytes();
        if (self.room == 0 || self.room_bytes < bytes.len()) && !self.look_for_room(bytes.len()) {
            return false;
        }
        self.room -= 1;
        self.room_bytes -= bytes.len();
        let parcel = Parcel { len: bytes.len() as u32, offload: packet.offload, realm: packet.realm };
        if self.put.is_full() || self.put_bytes.len() + bytes.len() > TOGETHER_MAX {
            self.write();
        }
        if bytes.len() > TOGETHER_MAX {
            self.written = true;
            return self.bytes.push_entire_slice(bytes).is_ok() && self.parcels.push(parcel).is_ok();
        }
        self.put_bytes.extend_from_slice(bytes);
        self.put.push(parcel);
        true
    }

    /// Looks what the reader has freed.
    #[cold]
    fn look_for_room(&mut self, len: usize) -> bool {
        self.room = self.parcels.slots() - self.put.len();
        self.room_bytes = self.bytes.slots() - self.put_bytes.len();
        self.room > 0 && self.room_bytes >= len && len <= PACKET_MAX
    }

    /// Lets the reader see what was put; `false` where nothing was since it was last published.
    pub(super) fn publish(&mut self) -> bool {
        if !self.put.is_empty() {
            self.write();
        }
        std::mem::take(&mut self.written)
    }

    fn write(&mut self) {
        // There is room: it was looked for with each packet. The reader looks for bytes of parcels that it sees.
        let written = self.bytes.push_entire_slice(&self.put_bytes).is_ok()
            && self.parcels.push_entire_slice(&self.put).is_ok();
        debug_assert!(written);
        self.put_bytes.clear();
        self.put.clear();
        self.written = true;
    }
}

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.parcels.is_empty()
    }

    /// Copies packets out, as long as there are some and there is room for them.
    pub(super) fn take(&mut self, taken: &mut Taken) {
        let Taken { buffers, parcels, used } = taken;
        let first = parcels.len();
        let count = self.parcels.slots().min(parcels.remaining_capacity());
        if count == 0 {
            return;
        }
        let Ok(news) = self.parcels.read_chunk(count) else { return };
        let (a, b) = news.as_slices();
        // As many as there is room for.
        let _ = parcels.try_extend_from_slice(a).and_then(|()| parcels.try_extend_from_slice(b));
        let parcels = &parcels[first..];
        let len = parcels.iter().map(|parcel| parcel.len as usize).sum();
        if let Ok(bytes) = self.bytes.read_chunk(len) {
            let (mut bytes_a, mut bytes_b) = bytes.as_slices();
            for parcel in parcels {
                let buffer = &mut buffers[*used + HEADROOM..][..parcel.len as usize];
                *used += parcel.buffer_len();
                if let Some(whole) = bytes_a.split_off(..buffer.len()) {
                    buffer.copy_from_slice(whole);
                    continue;
                }
                // One packet at most lies in two pieces, at the ring's end.
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

    /// Numbers that look random: splitmix64.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, n: u64) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ z >> 31) % n) as usize
        }
    }

    /// A packet that all of follows from its number: its length, every byte, and what goes with it.
    fn fill(buffer: &mut [u8], number: u64) -> Packet<'_> {
        let mut dice = Dice(number);
        let len = match dice.below(64) {
            0 => 40_000 + dice.below(25_500),
            1 => TOGETHER_MAX - 1 + dice.below(3),
            2..8 => 1000 + dice.below(8000),
            8 => 0,
            _ => 20 + dice.below(200),
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

    struct Reader {
        inbox: Inbox,
        taken: Taken,
        expected: Vec<u8>,
    }

    impl Reader {
        fn new(inbox: Inbox) -> Reader {
            let mut taken = Taken::new();
            taken.buffers.fill(0xa5);
            Reader { inbox, taken, expected: vec![0; STRIDE] }
        }

        /// Takes a burst, of which `before` packets are another inbox's, and compares it with `numbers`: to the byte, in
        /// order. Returns how many there were.
        fn take(&mut self, before: usize, mut numbers: impl FnMut() -> u64) -> usize {
            self.taken.clear();
            for _ in 0..before {
                let largest = Parcel { len: PACKET_MAX as u32, offload: Offload::default(), realm: 0 };
                self.taken.parcels.push(largest);
                self.taken.used += largest.buffer_len();
            }
            self.inbox.take(&mut self.taken);
            let mut buffers = &mut self.taken.buffers[..];
            for (i, parcel) in self.taken.parcels.iter().enumerate() {
                let mut packet = parcel.packet(&mut buffers).unwrap();
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
            self.taken.parcels.len() - before
        }
    }

    /// Whatever is put, published and taken in whatever order: against a queue that has no memory to save.
    #[test]
    fn a_ring_takes_what_there_is_room_for_and_gives_it_in_order() {
        let mut buffer = vec![0; STRIDE];
        let (mut refused, mut most) = ([0u64; 2], 0);
        for seed in 0..12 {
            let bytes_max = [100_000, 300_000, 1 << 20][seed as usize % 3];
            let (mut outbox, inbox) = ring(bytes_max);
            let (mut reader, mut dice) = (Reader::new(inbox), Dice(seed));
            // The numbers and lengths of packets that were put and not taken; how many of them are published.
            let (mut queue, mut bytes, mut published) = (VecDeque::new(), 0, 0);
            // Now the one has more to do, now the other.
            let mut turn = 0;
            for n in 0..6000 {
                if n % 1500 == 0 {
                    turn = 1 + dice.below(4);
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
                if dice.below(20) == 0 {
                    outbox.publish();
                    published = queue.len();
                }
                if dice.below(20 * turn as u64) == 0 {
                    let before = dice.below(1 + BURST_MAX as u64);
                    let next = || {
                        let (number, len) = queue.pop_front().expect("no more than were put");
                        bytes -= len;
                        number
                    };
                    let taken = reader.take(before, next);
                    assert!(taken >= published.min(BURST_MAX - before), "what is published is there");
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

    /// Both ends at once: every packet is refused, or comes out once, whole and in order.
    #[test]
    fn two_threads_lose_nothing_that_the_ring_took() {
        const PACKETS: u64 = 60_000;
        let (mut outbox, inbox) = ring(400_000);
        let (mut reader, mut dice) = (Reader::new(inbox), Dice(2));
        let (numbers, taken_numbers) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                let (mut buffer, mut dice) = (vec![0; STRIDE], Dice(1));
                let (mut put, mut refused, mut number) = (0u64, 0u64, 0u64);
                while number < PACKETS {
                    for _ in 0..1 + dice.below(BURST_MAX as u64) {
                        if outbox.put(&fill(&mut buffer, number)) {
                            // Said before it is published: whoever finds the packet finds its number.
                            numbers.send(number).unwrap();
                            put += 1;
                        } else {
                            refused += 1;
                        }
                        number += 1;
                    }
                    outbox.publish();
                    // The reader may come to the end of it, or not.
                    match dice.below(8) {
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
                if dice.below(100) == 0 {
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
