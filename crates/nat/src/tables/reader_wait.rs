//! Wait for the reader of a ring: deferrable work stops while the ring is more than half full.

use crate::base::time::Instant;
use rtrb::Producer;

/// Maximum wait for a reader that makes no progress: it can hang, and sessions have to end.
const PATIENCE_MS: u64 = 1_000;

/// Start of the wait for a reader, and the free room at that time.
#[derive(Debug, Default)]
pub(crate) struct ReaderWait(Option<(Instant, usize)>);

impl ReaderWait {
    /// Returns how many of `ends` sessions can end: the ring has `spare` places, and each end needs up to
    /// `each`. After one second without progress of the reader, or without a reader, all can.
    pub(crate) fn budget(
        &mut self,
        now: Instant,
        ends: usize,
        (spare, each): (usize, usize),
        is_read: bool,
    ) -> usize {
        let fitting = spare / each.max(1);
        if fitting >= ends || !is_read {
            self.0 = None;
            return ends;
        }
        let (since, room) = *self.0.get_or_insert((now, spare));
        // Packets and ends take room. More room than at the last time means that the reader reads.
        let since = if spare > room { now } else { since };
        self.0 = Some((since, spare));
        if now.since_ms(since) >= PATIENCE_MS { ends } else { fitting }
    }
}

/// Number of places of a ring for work that can wait: half of the ring is reserved for packets.
pub(crate) fn spare<T>(ring: &Producer<T>) -> usize {
    ring.slots().saturating_sub(ring.buffer().capacity() / 2)
}
