//! Words that the program reads for each packet: the lease, the epoch, and the progress of each worker.

use crate::layout::{HASH_WORDS, LAYOUT, MAY_WAIT, SharedControl, WORKERS_MAX};
use crate::sys::Mapping;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

/// Time of the program: nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelTime(pub u64);

impl KernelTime {
    /// Present time.
    pub fn now() -> KernelTime {
        let time = clock_gettime(ClockId::Monotonic);
        KernelTime(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// Time since `earlier`; zero if that is later.
    pub fn since(self, earlier: KernelTime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Identifications of IPv4 packets that the kernel uses: those that are `first` modulo `step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentRange {
    /// A power of two.
    pub step: u16,
    /// Below `step`.
    pub first: u16,
}

impl IdentRange {
    /// The range that is left by an engine of `workers` workers, which were told that there is one more
    /// (`Nat::set_worker(n, workers + 1)`).
    pub fn beside(workers: u16) -> IdentRange {
        IdentRange { step: (workers + 1).next_power_of_two(), first: workers }
    }
}

/// Memory that the program reads for each packet. Every method is one store, without a system call.
pub struct Control {
    memory: Mapping,
}

impl Control {
    pub(crate) fn new(map: impl AsFd) -> io::Result<Control> {
        Ok(Control { memory: Mapping::new(map, size_of::<SharedControl>())? })
    }

    fn shared(&self) -> &SharedControl {
        // SAFETY: `SharedControl` consists of atomic integers. The mapping has room for one.
        let all = unsafe { self.memory.slice::<SharedControl>() };
        &all[0]
    }

    pub(crate) fn layout(&self) -> u32 {
        self.shared().layout.load(Relaxed)
    }

    pub(crate) fn set(&self, idents: IdentRange, pending_max: Duration) {
        let shared = self.shared();
        shared.ident_step.store(idents.step, Relaxed);
        shared.ident_first.store(idents.first, Relaxed);
        shared.pending_max.store(pending_max.as_nanos() as u64, Relaxed);
        if shared.smallest_path.load(Relaxed) == 0 {
            shared.smallest_path.store(u16::MAX.into(), Relaxed);
        }
        shared.layout.store(LAYOUT, Release);
    }

    /// Sets the secret of the hash, and the number of homes.
    pub(crate) fn set_hash(&self, secret: [u64; HASH_WORDS], homes: u32) {
        let shared = self.shared();
        shared.hash.iter().zip(secret).for_each(|(to, word)| to.store(word, Relaxed));
        shared.homes.store(homes, Relaxed);
    }

    /// The secret of the hash, and the number of homes.
    pub(crate) fn hash(&self) -> ([u64; HASH_WORDS], u32) {
        let shared = self.shared();
        (shared.hash.each_ref().map(|word| word.load(Relaxed)), shared.homes.load(Relaxed))
    }

    /// Number of the tries in use; 0: none.
    pub(crate) fn siit(&self) -> u32 {
        self.shared().siit.load(Relaxed)
    }

    pub(crate) fn set_siit(&self, number: u32) {
        self.shared().siit.store(number, Release);
    }

    /// Sets the smallest path MTU to an IPv4 host that the engine knows, in bytes: larger packets of
    /// stateless instances go to the engine, which fragments them. Packets that leave with DF do not.
    pub fn set_smallest_path(&self, mtu: Option<u16>) {
        self.shared().smallest_path.store(mtu.unwrap_or(u16::MAX).into(), Relaxed);
    }

    /// Lets the program translate until `until`. Zero stops it at once.
    pub fn set_lease(&self, until: KernelTime) {
        self.shared().lease.store(until.0, Release);
    }

    /// Lets the program translate for another `time`.
    pub fn renew_lease(&self, time: Duration) {
        self.set_lease(KernelTime(KernelTime::now().0.saturating_add(time.as_nanos() as u64)));
    }

    /// Sets the epoch of sessions that are translated.
    pub fn set_epoch(&self, epoch: u16) {
        self.shared().epoch.store(epoch, Release);
    }

    /// Publishes that every packet that was enqueued to a worker's queue before `time` has been read and
    /// sent. Sessions whose last packet is older move.
    pub fn set_drained(&self, worker: usize, time: KernelTime) {
        self.publish_drained(worker, time.0 & !MAY_WAIT);
    }

    /// Lets sessions move whose last packet is older than `time`, although packets from before it may wait in
    /// a queue and be overtaken: the queue drops packets. Such moves are counted as [`Reason::MovedLate`].
    ///
    /// [`Reason::MovedLate`]: crate::Reason::MovedLate
    pub fn set_overflowed(&self, worker: usize, time: KernelTime) {
        self.publish_drained(worker, time.0 | MAY_WAIT);
    }

    fn publish_drained(&self, worker: usize, time: u64) {
        if let Some(drained) = self.shared().drained.get(worker % WORKERS_MAX) {
            drained.store(time, Release);
        }
    }
}
