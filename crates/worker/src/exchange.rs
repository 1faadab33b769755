//! Packets from worker to worker, where the device gave them to another than the one that has their session.
//!
//! ```text
//!   worker 0 --[ring]--> worker 1        one ring for each ordered pair: one writes, one reads, nobody waits
//!            <--[ring]--
//! ```
//! A packet is copied, as the buffer that it came in is the device's. A full ring drops and counts, so a worker that
//! cannot keep up slows nobody but those whose sessions it has. What is handed over is not handed on.

use gatun_io::{BURST_MAX, STRIDE, Waker};
use gatun_nat::workers::Steering;
use gatun_wire::{HEADROOM, Offload, Packet};
use rtrb::{Consumer, Producer, RingBuffer, chunks::ChunkError};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Packets that wait in a ring at most.
const PACKETS_MAX: usize = 1024;
/// Bytes of theirs, and of all that others may leave for one worker: some sixty super-packets.
const BYTES_MAX: usize = 4 << 20;
/// However many workers there are, a ring has room for so many bytes: eight super-packets.
const BYTES_MIN: usize = 512 << 10;

const _: () = assert!(BYTES_MIN > 2 * STRIDE);

/// Bytes of one ring.
fn ring_bytes(workers: usize) -> usize {
    (2 * BYTES_MAX / workers.saturating_sub(1).max(1)).clamp(BYTES_MIN, BYTES_MAX)
}

/// Bytes that an exchange among so many workers takes.
pub fn memory_bytes(workers: usize) -> usize {
    let ring = ring_bytes(workers) + PACKETS_MAX * size_of::<Parcel>();
    workers * (workers.saturating_sub(1) * ring + BURST_MAX * STRIDE)
}

/// What is known of a packet in a ring beside its bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Parcel {
    len: usize,
    offload: Offload,
    realm: u8,
}

impl Parcel {
    /// The packet that was copied into a buffer.
    fn packet<'b>(&self, buffer: &'b mut [u8]) -> Option<Packet<'b>> {
        let mut packet = Packet::with_offload(buffer, HEADROOM, self.len, self.offload)?;
        packet.realm = self.realm;
        Some(packet)
    }
}

/// The writing end of a ring.
struct Outbox {
    bytes: Producer<u8>,
    parcels: Producer<Parcel>,
    /// Whether the reader sleeps, or is about to.
    asleep: Arc<AtomicBool>,
    waker: Waker,
    written: bool,
}

/// The reading end of a ring.
struct Inbox {
    bytes: Consumer<u8>,
    parcels: Consumer<Parcel>,
}

/// What a worker handed over, packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// Received here and given to the worker that has their session.
    pub before: u64,
    /// As above, but its ring was full: dropped.
    pub before_lost: u64,
    /// Translated here and given to the worker of the public address they go to.
    pub after: u64,
    /// As above, but its ring was full: dropped.
    pub after_lost: u64,
    /// Taken from other workers.
    pub taken: u64,
}

impl Handed {
    /// Every count, in the order of its name.
    fn all(&mut self) -> [&mut u64; 5] {
        [&mut self.before, &mut self.before_lost, &mut self.after, &mut self.after_lost, &mut self.taken]
    }

    pub(crate) fn add(&mut self, mut other: Handed) {
        self.all().into_iter().zip(other.all()).for_each(|(a, b)| *a += *b);
    }
}

/// One worker's share of the exchange.
pub struct Exchange {
    steering: Arc<Steering>,
    /// By worker; none to itself.
    outboxes: Vec<Option<Outbox>>,
    inboxes: Vec<Inbox>,
    /// The inbox that is looked at first.
    turn: usize,
    buffers: Box<[u8]>,
    asleep: Arc<AtomicBool>,
    waker: Waker,
    pub(crate) handed: Handed,
}

/// An exchange among so many workers, a share for each.
///
/// # Errors
/// Where the process may open no more files.
pub fn exchange(workers: usize, steering: &Arc<Steering>) -> io::Result<Vec<Exchange>> {
    let mut shares = Vec::new();
    for _ in 0..workers {
        shares.push(Exchange {
            steering: Arc::clone(steering),
            outboxes: Vec::new(),
            inboxes: Vec::new(),
            turn: 0,
            buffers: vec![0u8; BURST_MAX * STRIDE].into_boxed_slice(),
            asleep: Arc::default(),
            waker: Waker::new()?,
            handed: Handed::default(),
        });
    }
    let doors: Vec<_> = shares.iter().map(|share| (share.asleep.clone(), share.waker.clone())).collect();
    for from in 0..workers {
        for (to, (asleep, waker)) in doors.iter().enumerate() {
            if from == to {
                shares[from].outboxes.push(None);
                continue;
            }
            let (bytes, bytes_in) = RingBuffer::new(ring_bytes(workers));
            let (parcels, parcels_in) = RingBuffer::new(PACKETS_MAX);
            let (asleep, waker) = (asleep.clone(), waker.clone());
            shares[from].outboxes.push(Some(Outbox { bytes, parcels, asleep, waker, written: false }));
            shares[to].inboxes.push(Inbox { bytes: bytes_in, parcels: parcels_in });
        }
    }
    Ok(shares)
}

impl Exchange {
    /// The worker that has to have a packet which was received from a realm; `None` where any may.
    pub(crate) fn owner(&self, packet: &[u8], realm: u8) -> Option<usize> {
        self.steering.owner(packet, realm)
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Lets packets find workers in another way; gives the one before.
    pub(crate) fn steer_by(&mut self, steering: &mut Arc<Steering>) {
        std::mem::swap(&mut self.steering, steering);
    }

    /// Gives a received packet to the worker that has its session; `false` where that is this one, or any may have
    /// it.
    pub(crate) fn hand_over(&mut self, packet: &Packet<'_>) -> bool {
        let given = self.give(self.steering.owner(packet.bytes(), packet.realm), packet);
        let Handed { before, before_lost, .. } = &mut self.handed;
        count(given, before, before_lost)
    }

    /// Gives a translated packet to the worker of the public address that it goes to; `false` where it goes to
    /// none of another worker's.
    pub(crate) fn hand_on(&mut self, packet: &Packet<'_>) -> bool {
        let given = self.give(self.steering.owner_after(packet.bytes()), packet);
        let Handed { after, after_lost, .. } = &mut self.handed;
        count(given, after, after_lost)
    }

    /// Puts a packet into another worker's ring; `None` where it is not another's, `Some(false)` where the ring is
    /// full.
    fn give(&mut self, owner: Option<usize>, packet: &Packet<'_>) -> Option<bool> {
        Some(self.outboxes.get_mut(owner?)?.as_mut()?.put(packet))
    }

    /// Wakes whoever was given something and sleeps.
    pub(crate) fn flush(&mut self) {
        for outbox in self.outboxes.iter_mut().flatten().filter(|outbox| outbox.written) {
            outbox.written = false;
            // The packet is in the ring before the flag is read, and a sleeper sets the flag before it reads the
            // ring: one of the two sees the other.
            fence(Ordering::SeqCst);
            if outbox.asleep.swap(false, Ordering::Relaxed) {
                outbox.waker.wake();
            }
        }
    }

    /// Says that this worker is about to sleep; `false` where something has come meanwhile.
    pub(crate) fn may_sleep(&mut self) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let nothing = self.inboxes.iter().all(|inbox| inbox.parcels.is_empty());
        if !nothing {
            self.asleep.store(false, Ordering::Relaxed);
        }
        nothing
    }

    /// This worker is awake.
    pub(crate) fn wake_up(&mut self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Takes what others have given, up to a burst of it, and hands it to `handle` with the rest of the exchange.
    /// Returns how many packets there were.
    pub(crate) fn take(&mut self, handle: impl FnOnce(&mut [Packet<'_>], &mut Exchange)) -> usize {
        let mut buffers = std::mem::take(&mut self.buffers);
        let mut parcels = [Parcel::default(); BURST_MAX];
        let mut count = 0;
        let inboxes = self.inboxes.len();
        self.turn = (self.turn + 1) % inboxes.max(1);
        let (later, first) = self.inboxes.split_at_mut(self.turn.min(inboxes));
        for inbox in first.iter_mut().chain(later) {
            while count < BURST_MAX
                && let Some(buffer) = buffers.get_mut(count * STRIDE + HEADROOM..(count + 1) * STRIDE)
                && let Some(parcel) = inbox.take(buffer)
            {
                parcels[count] = parcel;
                count += 1;
            }
        }
        self.handed.taken += count as u64;
        if count > 0 {
            let filled = buffers.chunks_exact_mut(STRIDE).zip(&parcels[..count]);
            let packets = filled.filter_map(|(b, parcel)| parcel.packet(b));
            let mut burst: arrayvec::ArrayVec<Packet<'_>, BURST_MAX> = packets.collect();
            handle(&mut burst, self);
        }
        self.buffers = buffers;
        count
    }
}

/// Counts a packet that was given away, or lost on its way; whether it was either.
fn count(given: Option<bool>, put: &mut u64, lost: &mut u64) -> bool {
    if let Some(has_room) = given {
        *(if has_room { put } else { lost }) += 1;
    }
    given.is_some()
}

impl Outbox {
    /// Copies a packet into the ring; `false` where there is no room.
    fn put(&mut self, packet: &Packet<'_>) -> bool {
        let bytes = packet.bytes();
        if self.parcels.is_full() {
            return false;
        }
        let mut room = match self.bytes.write_chunk(bytes.len()) {
            Ok(room) => room,
            Err(ChunkError::TooFewSlots(_)) => return false,
        };
        let (head, tail) = room.as_mut_slices();
        let (a, b) = bytes.split_at(head.len());
        head.copy_from_slice(a);
        tail.copy_from_slice(b);
        room.commit_all();
        self.written = true;
        let parcel = Parcel { len: bytes.len(), offload: packet.offload, realm: packet.realm };
        self.parcels.push(parcel).is_ok()
    }
}

impl Inbox {
    /// Copies the next packet out.
    fn take(&mut self, buffer: &mut [u8]) -> Option<Parcel> {
        let parcel = self.parcels.pop().ok()?;
        let chunk = self.bytes.read_chunk(parcel.len).ok()?;
        let (head, tail) = chunk.as_slices();
        let (a, b) = buffer.get_mut(..parcel.len)?.split_at_mut(head.len());
        a.copy_from_slice(head);
        b.copy_from_slice(tail);
        chunk.commit_all();
        Some(parcel)
    }
}
