//! Packets from worker to worker, where the device gave them to another than the one that has their session.
//!
//! ```text
//!   worker 0 --[ring]--> worker 1        one ring for each ordered pair: one writes, one reads, nobody waits
//!            <--[ring]--
//! ```
//! A packet is copied, as the buffer that it came in is the device's. A full ring drops and counts, so a worker that
//! cannot keep up slows nobody but those whose sessions it has. What is handed over is not handed on. The reader sees
//! what a burst brought all at once, and is done with it all at once: what two processors write in turn moves between
//! them, which takes longer than a packet's translation.

mod ring;

use arrayvec::ArrayVec;
use gatun_io::{BURST_MAX, STRIDE, Waker};
use gatun_nat::workers::Steering;
use gatun_wire::Packet;
use ring::{Inbox, Outbox, Taken};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

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
    let ring = ring::memory_bytes(ring_bytes(workers));
    workers * (workers.saturating_sub(1) * ring + BURST_MAX * STRIDE)
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

/// Whether a worker sleeps, or is about to; apart from what others write all the time.
#[derive(Default)]
#[repr(align(128))]
struct Door {
    asleep: AtomicBool,
}

/// A way to another worker.
struct Way {
    outbox: Outbox,
    door: Arc<Door>,
    waker: Waker,
    /// Since it was last woken, if it had to be.
    written: bool,
}

/// One worker's share of the exchange.
pub struct Exchange {
    steering: Arc<Steering>,
    /// By worker; none to itself.
    ways: Vec<Option<Way>>,
    inboxes: Vec<Inbox>,
    /// The inbox that is looked at first.
    turn: usize,
    taken: Option<Box<Taken>>,
    door: Arc<Door>,
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
            ways: Vec::new(),
            inboxes: Vec::new(),
            turn: 0,
            taken: Some(Box::new(Taken::new())),
            door: Arc::default(),
            waker: Waker::new()?,
            handed: Handed::default(),
        });
    }
    let doors: Vec<_> = shares.iter().map(|share| (share.door.clone(), share.waker.clone())).collect();
    for from in 0..workers {
        for (to, (door, waker)) in doors.iter().enumerate() {
            if from == to {
                shares[from].ways.push(None);
                continue;
            }
            let (outbox, inbox) = ring::ring(ring_bytes(workers));
            let (door, waker) = (door.clone(), waker.clone());
            shares[from].ways.push(Some(Way { outbox, door, waker, written: false }));
            shares[to].inboxes.push(inbox);
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
        Some(self.ways.get_mut(owner?)?.as_mut()?.outbox.put(packet))
    }

    /// Lets others see what they were given.
    pub(crate) fn publish(&mut self) {
        for way in self.ways.iter_mut().flatten() {
            way.written |= way.outbox.publish();
        }
    }

    /// The same, and wakes whoever was given something and sleeps.
    pub(crate) fn flush(&mut self) {
        self.publish();
        for way in self.ways.iter_mut().flatten().filter(|way| way.written) {
            way.written = false;
            // The packet is in the ring before the flag is read, and a sleeper sets the flag before it reads the
            // ring: one of the two sees the other. Who is awake is not written to.
            fence(Ordering::SeqCst);
            if way.door.asleep.load(Ordering::Relaxed) && way.door.asleep.swap(false, Ordering::Relaxed) {
                way.waker.wake();
            }
        }
    }

    /// Says that this worker is about to sleep; `false` where something has come meanwhile.
    pub(crate) fn may_sleep(&mut self) -> bool {
        self.door.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let nothing = self.inboxes.iter().all(|inbox| inbox.is_empty());
        if !nothing {
            self.door.asleep.store(false, Ordering::Relaxed);
        }
        nothing
    }

    /// This worker is awake.
    pub(crate) fn wake_up(&mut self) {
        self.door.asleep.store(false, Ordering::Relaxed);
    }

    /// Takes what others have given, up to a burst of it, and hands it to `handle` with the rest of the exchange.
    /// Returns how many packets there were.
    pub(crate) fn take(&mut self, handle: impl FnOnce(&mut [Packet<'_>], &mut Exchange)) -> usize {
        let Some(mut taken) = self.taken.take() else { return 0 };
        taken.clear();
        let inboxes = self.inboxes.len();
        self.turn = (self.turn + 1) % inboxes.max(1);
        let (later, first) = self.inboxes.split_at_mut(self.turn.min(inboxes));
        for inbox in first.iter_mut().chain(later) {
            inbox.take(&mut taken);
        }
        let Taken { buffers, parcels, .. } = &mut *taken;
        let count = parcels.len();
        self.handed.taken += count as u64;
        if count > 0 {
            let mut buffers = &mut buffers[..];
            let packets = parcels.iter().filter_map(|parcel| parcel.packet(&mut buffers));
            let mut burst: ArrayVec<Packet<'_>, BURST_MAX> = packets.collect();
            handle(&mut burst, self);
        }
        self.taken = Some(taken);
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
