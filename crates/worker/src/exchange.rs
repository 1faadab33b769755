//! Exchange of packets between workers, if the device gave them to a worker that does not have their session.
//!
//! ```text
//!   worker 0 --[ring]--> worker 1        one ring for each ordered pair: one writes, one reads, nobody waits
//!            <--[ring]--
//! ```
//! A packet is copied, because its buffer belongs to the device. A full ring drops and counts packets, so a
//! slow worker only affects the sessions that it owns. A packet changes workers at most once. The writer
//! publishes the packets of a burst together, and the reader releases them together: a cache line that two
//! processors write in turn moves between them, which takes longer than the translation of a packet.

mod ring;

use arrayvec::ArrayVec;
use gatun_io::{BURST_MAX, STRIDE, Waker};
use gatun_nat::counters::Count;
use gatun_nat::redirect::{Place, Redirection};
use gatun_nat::workers::Steering;
use gatun_nat::{Counters, Nat};
use gatun_wire::Packet;
use ring::{ReceivedPackets, RingReader, RingWriter};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Size in bytes of a ring, and of all rings to one worker: about sixty super-packets.
const BYTES_MAX: usize = 4 << 20;
/// Minimum size in bytes of a ring, whatever the number of workers: eight super-packets.
const BYTES_MIN: usize = 512 << 10;

const _: () = assert!(BYTES_MIN > 2 * STRIDE);

/// Size of one ring in bytes.
fn ring_bytes(workers: usize) -> usize {
    (2 * BYTES_MAX / workers.saturating_sub(1).max(1)).clamp(BYTES_MIN, BYTES_MAX)
}

/// Memory in bytes of an exchange among this many workers.
pub fn memory_bytes(workers: usize) -> usize {
    let ring = ring::memory_bytes(ring_bytes(workers));
    workers * (workers.saturating_sub(1) * ring + BURST_MAX * STRIDE)
}

/// Packets exchanged between workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeCounters {
    /// Packets received here and handed to the worker that has their session.
    pub before: u64,
    /// Packets handed over before translation that were dropped because the other worker's ring was full.
    pub before_lost: u64,
    /// Packets translated here and handed to the worker that owns the destination address.
    pub after: u64,
    /// Packets handed over after translation that were dropped because the other worker's ring was full.
    pub after_lost: u64,
    /// Packets taken over from other workers.
    pub taken: u64,
}

impl ExchangeCounters {
    /// All counters, in the order of their names.
    fn all(&mut self) -> [&mut u64; 5] {
        [&mut self.before, &mut self.before_lost, &mut self.after, &mut self.after_lost, &mut self.taken]
    }

    pub(crate) fn add(&mut self, mut other: ExchangeCounters) {
        self.all().into_iter().zip(other.all()).for_each(|(a, b)| *a += *b);
    }
}

/// Worker and node of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketOwner {
    /// Worker; `None` if any worker may process the packet.
    pub worker: Option<usize>,
    /// Place where the packet is translated.
    pub place: Place,
    /// Name of that node, if it is another one.
    pub node: Option<Arc<str>>,
}

/// Flag of a worker that sleeps or is about to. On cache lines of its own, away from data that others write
/// often.
#[derive(Default)]
#[repr(align(128))]
struct SleepFlag {
    asleep: AtomicBool,
}

/// Connection to another worker.
struct PeerLink {
    outbox: RingWriter,
    sleep_flag: Arc<SleepFlag>,
    waker: Waker,
    /// True if packets were written since its last wake-up check.
    written: bool,
}

/// One worker's part of the exchange.
pub struct Exchange {
    steering: Arc<Steering>,
    /// Places of the shards, at a node of a cluster.
    redirection: Option<Arc<Redirection>>,
    /// Links by worker; `None` for the worker itself.
    links: Vec<Option<PeerLink>>,
    inboxes: Vec<RingReader>,
    /// Ring that is read first.
    turn: usize,
    taken: Option<Box<ReceivedPackets>>,
    sleep_flag: Arc<SleepFlag>,
    waker: Waker,
    pub(crate) handed: ExchangeCounters,
}

/// Creates an exchange among this many workers, one part for each.
///
/// # Errors
/// Returns an error if the process has reached its limit of open files.
pub fn exchange(workers: usize, steering: &Arc<Steering>) -> io::Result<Vec<Exchange>> {
    let mut shares = Vec::new();
    for _ in 0..workers {
        shares.push(Exchange {
            steering: Arc::clone(steering),
            redirection: None,
            links: Vec::new(),
            inboxes: Vec::new(),
            turn: 0,
            taken: Some(Box::new(ReceivedPackets::new())),
            sleep_flag: Arc::default(),
            waker: Waker::new()?,
            handed: ExchangeCounters::default(),
        });
    }
    let doors: Vec<_> = shares.iter().map(|share| (share.sleep_flag.clone(), share.waker.clone())).collect();
    for from in 0..workers {
        for (to, (sleep_flag, waker)) in doors.iter().enumerate() {
            if from == to {
                shares[from].links.push(None);
                continue;
            }
            let (outbox, inbox) = ring::ring(ring_bytes(workers));
            let (sleep_flag, waker) = (sleep_flag.clone(), waker.clone());
            shares[from].links.push(Some(PeerLink { outbox, sleep_flag, waker, written: false }));
            shares[to].inboxes.push(inbox);
        }
    }
    Ok(shares)
}

impl Exchange {
    /// Worker and node that have to process a packet received from a realm.
    pub(crate) fn owner(&self, packet: &[u8], realm: u8) -> PacketOwner {
        let Some(part) = self.steering.part_of(packet, realm) else { return PacketOwner::default() };
        let redirection = self.redirection().filter(|_| self.steering.is_sharded());
        PacketOwner {
            worker: Some(self.steering.worker_of(part)),
            place: redirection.map_or(Place::Here, |redirection| redirection.place(part as u8)),
            node: redirection.and_then(|redirection| redirection.node(part as u8)).cloned(),
        }
    }

    /// Packets sent to each other node, with its name.
    pub(crate) fn redirected(&self, counters: &Counters) -> Vec<(Arc<str>, Count)> {
        let nodes = self.redirection().map_or(&[][..], |redirection| redirection.tunnel.nodes());
        let counts = nodes.iter().zip(counters.redirected_to);
        counts.map(|(node, count)| (Arc::clone(&node.name), count)).collect()
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Replaces the steering and returns the old one.
    pub(crate) fn steer_by(&mut self, steering: &mut Arc<Steering>) {
        std::mem::swap(&mut self.steering, steering);
    }

    /// Replaces the places of the shards of a cluster, and returns the old ones. `None` means that this node
    /// translates all of them.
    pub fn redirect_by(&mut self, redirection: &mut Option<Arc<Redirection>>) {
        std::mem::swap(&mut self.redirection, redirection);
    }

    /// Tells the worker's engine which shards other nodes translate.
    pub(crate) fn tell(&self, nat: &mut Nat) {
        nat.set_elsewhere(self.redirection.as_ref().map_or_else(Default::default, |all| all.elsewhere()));
    }

    /// Places of the shards, at a node of a cluster.
    pub(crate) fn redirection(&self) -> Option<&Redirection> {
        self.redirection.as_deref()
    }

    /// Shard of a packet, in a cluster, and true if the packet is from outside. `None` if it needs no state.
    pub(crate) fn shard_and_side(&self, packet: &Packet<'_>) -> Option<(u8, bool)> {
        let found = self.steering.part_and_side(packet.bytes(), packet.realm);
        found.map(|(shard, is_outside)| (shard as u8, is_outside))
    }

    /// Gives a received packet to the worker that has its session. Returns false if this worker or any worker
    /// may process it.
    pub(crate) fn hand_over(&mut self, packet: &Packet<'_>) -> bool {
        self.hand_over_to(self.steering.owner(packet.bytes(), packet.realm), packet)
    }

    /// Gives a received packet to the worker of a shard.
    pub(crate) fn hand_over_by_shard(&mut self, shard: u8, packet: &Packet<'_>) -> bool {
        self.hand_over_to(Some(self.steering.worker_of(shard.into())), packet)
    }

    fn hand_over_to(&mut self, owner: Option<usize>, packet: &Packet<'_>) -> bool {
        let given = self.give(owner, packet);
        let ExchangeCounters { before, before_lost, .. } = &mut self.handed;
        count(given, before, before_lost)
    }

    /// Gives a translated packet to the worker that owns its destination address. Returns false if no other
    /// worker owns it.
    pub(crate) fn hand_on(&mut self, packet: &Packet<'_>) -> bool {
        let owner = self.steering.owner_after(packet.bytes()).filter(|_| self.returns_here(packet));
        let given = self.give(owner, packet);
        let ExchangeCounters { after, after_lost, .. } = &mut self.handed;
        count(given, after, after_lost)
    }

    /// Returns whether this node translates the shard of a packet's destination, which is a public address.
    fn returns_here(&self, packet: &Packet<'_>) -> bool {
        let Some(redirection) = self.redirection() else { return true };
        let shard = self.steering.shard_after(packet.bytes());
        shard.is_some_and(|shard| redirection.place(shard) == Place::Here)
    }

    /// Puts a packet into another worker's ring. `None` if no other worker owns it, `Some(false)` if the ring
    /// is full.
    fn give(&mut self, owner: Option<usize>, packet: &Packet<'_>) -> Option<bool> {
        Some(self.links.get_mut(owner?)?.as_mut()?.outbox.put(packet))
    }

    /// Makes written packets visible to the other workers.
    pub(crate) fn publish(&mut self) {
        for link in self.links.iter_mut().flatten() {
            link.written |= link.outbox.publish();
        }
    }

    /// Publishes packets and wakes sleeping workers that received some.
    pub(crate) fn flush(&mut self) {
        self.publish();
        for link in self.links.iter_mut().flatten().filter(|link| link.written) {
            link.written = false;
            // The packet is in the ring before the flag is read. A sleeping worker sets the flag before it
            // reads the ring. So at least one side sees the other. The flag of an awake worker is not
            // written.
            fence(Ordering::SeqCst);
            if link.sleep_flag.asleep.load(Ordering::Relaxed)
                && link.sleep_flag.asleep.swap(false, Ordering::Relaxed)
            {
                link.waker.wake();
            }
        }
    }

    /// Announces that this worker is about to sleep. Returns false if packets have arrived meanwhile.
    pub(crate) fn may_sleep(&mut self) -> bool {
        self.sleep_flag.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let nothing = self.inboxes.iter().all(|inbox| inbox.is_empty());
        if !nothing {
            self.sleep_flag.asleep.store(false, Ordering::Relaxed);
        }
        nothing
    }

    /// Marks this worker as awake.
    pub(crate) fn wake_up(&mut self) {
        self.sleep_flag.asleep.store(false, Ordering::Relaxed);
    }

    /// Takes up to a burst of packets from other workers, and passes it to `handle` with the rest of the
    /// exchange. Returns the number of packets.
    pub(crate) fn take(&mut self, handle: impl FnOnce(&mut [Packet<'_>], &mut Exchange)) -> usize {
        let Some(mut taken) = self.taken.take() else { return 0 };
        taken.clear();
        let inboxes = self.inboxes.len();
        self.turn = (self.turn + 1) % inboxes.max(1);
        let (later, first) = self.inboxes.split_at_mut(self.turn.min(inboxes));
        for inbox in first.iter_mut().chain(later) {
            inbox.take(&mut taken);
        }
        let ReceivedPackets { buffers, metas, .. } = &mut *taken;
        let count = metas.len();
        self.handed.taken += count as u64;
        if count > 0 {
            let mut buffers = &mut buffers[..];
            let packets = metas.iter().filter_map(|meta| meta.packet(&mut buffers));
            let mut burst: ArrayVec<Packet<'_>, BURST_MAX> = packets.collect();
            handle(&mut burst, self);
        }
        self.taken = Some(taken);
        count
    }
}

/// Counts a packet that was given away or lost. Returns whether it was either.
fn count(given: Option<bool>, put: &mut u64, lost: &mut u64) -> bool {
    if let Some(has_room) = given {
        *(if has_room { put } else { lost }) += 1;
    }
    given.is_some()
}
