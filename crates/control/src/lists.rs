//! Long lists, read from one worker after the other, as a page or as a stream of lines.

use crate::Control;
use crate::conversion::Names;
use crate::worker_requests::{Pending, WorkerError};
use bytes::Bytes;
use gatun_api::types as api;
use gatun_nat::inspect::{PortCursor, Selection, SessionCursor};
use gatun_worker::jobs::{Job, ReadAddresses, ReadBindings, ReadBlocks, ReadSessions, ReadSubscribers};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Entries read at a time for a stream.
pub(crate) const STREAMED_AT_ONCE: usize = 4096;

/// Position of an entry at a worker: numbers whose meaning depends on the list.
pub(crate) type Place = [u64; 4];

/// Position in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    worker: usize,
    place: Place,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.place;
        write!(f, "{}-{a}-{b}-{c}-{d}", self.worker)
    }
}

impl FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let numbers: Vec<u64> = text.split('-').map(str::parse).collect::<Result<_, _>>().map_err(|_| ())?;
        let [worker, place @ ..]: [u64; 5] = numbers.try_into().map_err(|_| ())?;
        Ok(Cursor { worker: usize::try_from(worker).map_err(|_| ())?, place })
    }
}

/// A kind of list.
pub(crate) trait List: Send + Sync + 'static {
    type Job: Job + 'static;
    type Item: Serialize + Send;

    /// Job that reads at most `room` entries from a place on.
    fn job(&self, from: Place, room: usize) -> Self::Job;

    /// Entries of a finished job, and the position of the next one at this worker.
    fn results(&self, job: Self::Job) -> (Vec<Self::Item>, Option<Place>);
}

/// Filter of a list, and the names for its entries.
pub(crate) struct ListScope {
    pub(crate) which: Selection,
    pub(crate) names: Names,
}

pub(crate) struct Sessions(pub(crate) ListScope);
pub(crate) struct Bindings(pub(crate) ListScope);
pub(crate) struct Blocks(pub(crate) ListScope);
pub(crate) struct Subscribers(pub(crate) ListScope);
/// Addresses of one pool or of all.
pub(crate) struct Addresses(pub(crate) ListScope);

fn narrow<T: TryFrom<u64>>(number: u64, otherwise: T) -> T {
    T::try_from(number).unwrap_or(otherwise)
}

fn port_cursor([pool, address, transport, port]: Place) -> PortCursor {
    PortCursor {
        pool: narrow(pool, usize::MAX),
        address: narrow(address, u32::MAX),
        transport: narrow(transport, u8::MAX),
        port: narrow(port, u16::MAX),
        done: false,
    }
}

fn place(at: PortCursor) -> Option<Place> {
    let place = [at.pool as u64, at.address.into(), at.transport.into(), at.port.into()];
    (!at.done).then_some(place)
}

impl List for Sessions {
    type Job = ReadSessions;
    type Item = api::Session;

    fn job(&self, [next, ..]: Place, room: usize) -> ReadSessions {
        let at = SessionCursor { next: narrow(next, u32::MAX), done: false };
        ReadSessions { which: self.0.which, at, found: Vec::with_capacity(room) }
    }

    fn results(&self, job: ReadSessions) -> (Vec<api::Session>, Option<Place>) {
        let items = job.found.iter().map(|session| self.0.names.session(session)).collect();
        (items, (!job.at.done).then_some([job.at.next.into(), 0, 0, 0]))
    }
}

impl List for Bindings {
    type Job = ReadBindings;
    type Item = api::Binding;

    fn job(&self, from: Place, room: usize) -> ReadBindings {
        ReadBindings { which: self.0.which, at: port_cursor(from), found: Vec::with_capacity(room) }
    }

    fn results(&self, job: ReadBindings) -> (Vec<api::Binding>, Option<Place>) {
        (job.found.iter().map(|binding| self.0.names.binding(binding)).collect(), place(job.at))
    }
}

impl List for Blocks {
    type Job = ReadBlocks;
    type Item = api::Block;

    fn job(&self, from: Place, room: usize) -> ReadBlocks {
        ReadBlocks { which: self.0.which, at: port_cursor(from), found: Vec::with_capacity(room) }
    }

    fn results(&self, job: ReadBlocks) -> (Vec<api::Block>, Option<Place>) {
        (job.found.iter().map(|block| self.0.names.block(block)).collect(), place(job.at))
    }
}

impl List for Subscribers {
    type Job = ReadSubscribers;
    type Item = api::Subscriber;

    fn job(&self, [next, ..]: Place, room: usize) -> ReadSubscribers {
        let next = Some(narrow(next, u32::MAX));
        ReadSubscribers { which: self.0.which, next, found: Vec::with_capacity(room) }
    }

    fn results(&self, job: ReadSubscribers) -> (Vec<api::Subscriber>, Option<Place>) {
        let items = job.found.iter().map(|stats| self.0.names.subscriber(stats)).collect();
        (items, job.next.map(|next| [next.into(), 0, 0, 0]))
    }
}

impl List for Addresses {
    type Job = ReadAddresses;
    type Item = api::Address;

    fn job(&self, [pool, next, ..]: Place, room: usize) -> ReadAddresses {
        let pool = self.0.which.pool.unwrap_or(narrow(pool, usize::MAX));
        ReadAddresses {
            pool,
            net: self.0.which.outside,
            next: narrow(next, u32::MAX),
            done: false,
            found: Vec::with_capacity(room),
        }
    }

    fn results(&self, job: ReadAddresses) -> (Vec<api::Address>, Option<Place>) {
        let items = job.found.iter().map(|stats| self.0.names.address(job.pool, stats)).collect();
        let next_pool = || {
            let next = job.pool.saturating_add(1);
            (self.0.which.pool.is_none() && next < self.0.names.pools.len()).then_some([next as u64, 0, 0, 0])
        };
        let next = if job.done { next_pool() } else { Some([job.pool as u64, job.next.into(), 0, 0]) };
        (items, next)
    }
}

impl Control {
    fn read<L: List>(&self, list: &L, at: Cursor, room: usize) -> Result<Pending<L::Job>, WorkerError> {
        self.hand_in(at.worker, list.job(at.place, room))
    }

    /// Position behind a part of a list.
    fn behind(&self, worker: usize, next: Option<Place>) -> Option<Cursor> {
        let next_worker = worker.saturating_add(1);
        match next {
            Some(place) => Some(Cursor { worker, place }),
            None => (next_worker < self.workers()).then_some(Cursor { worker: next_worker, place: [0; 4] }),
        }
    }

    /// One page of entries from a place on.
    pub(crate) async fn page<L: List>(
        &self,
        list: &L,
        from: Cursor,
        limit: usize,
    ) -> Result<api::Page<L::Item>, WorkerError> {
        let mut items = Vec::new();
        let mut next = Some(from).filter(|from| from.worker < self.workers());
        while let Some(at) = next.filter(|_| items.len() < limit) {
            let job = self.read(list, at, limit - items.len())?.done().await?;
            let (some, place) = list.results(job);
            items.extend(some);
            next = self.behind(at.worker, place);
        }
        Ok(api::Page { items, next: next.map(|next| next.to_string()) })
    }

    /// Streams all entries from a place on, one a line. The next ones are read while the last are written.
    pub(crate) async fn stream<L: List>(
        self: Arc<Self>,
        list: L,
        from: Cursor,
        out: mpsc::Sender<Result<Bytes, WorkerError>>,
    ) {
        let mut next = Some(from).filter(|from| from.worker < self.workers());
        let mut pending = next.map(|at| (at, self.read(&list, at, STREAMED_AT_ONCE)));
        while let Some((at, job)) = pending.take() {
            let job = match job {
                Ok(job) => job.done().await,
                Err(unanswered) => Err(unanswered),
            };
            let job = match job {
                Ok(job) => job,
                Err(unanswered) => {
                    // The connection breaks off, so the client sees that the list is incomplete.
                    let _ = out.send(Err(unanswered)).await;
                    return;
                }
            };
            let (items, place) = list.results(job);
            next = self.behind(at.worker, place);
            pending = next.map(|at| (at, self.read(&list, at, STREAMED_AT_ONCE)));
            if items.is_empty() {
                continue;
            }
            let mut lines = Vec::with_capacity(items.len() * 256);
            for item in &items {
                // Serialization of these types cannot fail.
                if serde_json::to_writer(&mut lines, item).is_ok() {
                    lines.push(b'\n');
                }
            }
            if out.send(Ok(lines.into())).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip_and_invalid_ones_are_refused() {
        let cursor = Cursor { worker: 3, place: [1, 2, 3, u64::MAX] };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for wrong in
            ["", "1", "1-2-3-4", "1-2-3-4-5-6", "a-1-1-1-1", "1-2-3-4-18446744073709551616", "1--1-1-1-1"]
        {
            assert_eq!(wrong.parse::<Cursor>(), Err(()), "{wrong}");
        }
    }
}
