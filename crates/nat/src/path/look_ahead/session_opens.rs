//! The pass for packets that may open sessions: it prefetches the table lines that an opening touches. Each
//! step needs the lines that the previous step prefetched.
//!
//! ```text
//! once a burst:               hashes     -> the index lines of subscribers
//! while a group is opened:    its index  -> the subscriber's record      of the third group behind it
//!                             the record -> which of its ports are free  of the second
//!                             free ports -> the outside table            of the next one
//!                             hashes     -> the index line of bindings   of the next one
//! ```
//! A step prefetches the lines of several openings together, and no more lines than can be on their way at a
//! time, as the look-ahead does (decision 0033).

use super::Hint;
use crate::base::verdict::BURST;
use crate::path::state::Core;
use crate::tables::bib::{SessionRequest, Tables};
use crate::tables::session::NONE;
use arrayvec::ArrayVec;
use gatun_wire::Packet;

/// Number of openings whose subscribers' index lines are prefetched together.
const INDEX_GROUP: usize = 16;
/// Number of openings whose other lines are prefetched together.
const GROUP: usize = 4;

/// Table entries that a packet needs to open a session.
#[derive(Clone, Copy, Debug)]
struct OpenHint {
    /// Its place in the burst.
    packet: usize,
    request: SessionRequest,
}

/// The hints of a burst, in order. It is a list, so that one opening among many packets touches one place of
/// it.
#[derive(Default)]
pub(crate) struct SessionOpens {
    list: ArrayVec<OpenHint, BURST>,
    taken: usize,
}

impl SessionOpens {
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.taken = 0;
    }

    /// Returns the packet's request, if the packet is the next one that may open a session.
    #[inline]
    pub(crate) fn take(&mut self, packet: usize, tables: &Tables) -> Option<&SessionRequest> {
        let at = self.taken;
        self.list.get(at).filter(|hint| hint.packet == packet)?;
        self.taken += 1;
        if at.is_multiple_of(GROUP) {
            self.outside(at + GROUP, tables);
            self.ports(at + 2 * GROUP, tables);
            self.subscribers(at + 3 * GROUP, tables);
        }
        self.list.get(at).map(|hint| &hint.request)
    }

    /// Prefetches the lines of the first groups.
    fn begin(&mut self, tables: &Tables) {
        (0..3).for_each(|group| self.subscribers(group * GROUP, tables));
        (0..2).for_each(|group| self.ports(group * GROUP, tables));
        self.outside(0, tables);
    }

    /// Prefetches the subscribers' index lines for openings from `first` on.
    fn indexes(&self, first: usize, tables: &Tables) {
        for hint in self.list.iter().skip(first).take(INDEX_GROUP) {
            tables.subscribers.prefetch_index(hint.request.hashes.subscriber);
        }
    }

    #[inline(never)]
    fn subscribers(&mut self, first: usize, tables: &Tables) {
        let subscribers = &tables.subscribers;
        for hint in self.list.iter_mut().skip(first).take(GROUP) {
            hint.request.known = subscribers.candidate(hint.request.hashes.subscriber);
            if let Some(known) = hint.request.known {
                subscribers.prefetch(known);
            }
        }
    }

    #[inline(never)]
    fn ports(&self, first: usize, tables: &Tables) {
        for hint in self.list.iter().skip(first).take(GROUP) {
            tables.prefetch_port(&hint.request);
        }
    }

    #[inline(never)]
    fn outside(&self, first: usize, tables: &Tables) {
        for hint in self.list.iter().skip(first).take(GROUP) {
            tables.prefetch_binding_of(&hint.request.hashes);
            tables.prefetch_outside(&hint.request);
        }
    }
}

/// Lists the packets of a burst that may open sessions, and starts their prefetches.
#[inline(never)]
pub(crate) fn session_opens(core: &Core, burst: &[Packet<'_>], hints: &[Hint], opens: &mut SessionOpens) {
    let tables = &core.state.tables;
    let mut asked = 0;
    for (packet, (hint, bytes)) in hints.iter().zip(burst).enumerate() {
        let (Hint::Session(hint) | Hint::Session44(hint)) = hint else { continue };
        if hint.record != NONE {
            continue;
        }
        let Some(inside) = hint.inside(bytes.bytes()) else { continue };
        let Some(instance) = core.rules.get(inside.instance) else { continue };
        let subscriber = instance.policy().subscriber(inside.addr);
        let request = tables.session_request(inside, hint.flow.remote(), subscriber, hint.hash);
        // There is room for all packets of a burst.
        let _ = opens.list.try_push(OpenHint { packet, request });
        if opens.list.len() == asked + INDEX_GROUP {
            opens.indexes(asked, tables);
            asked += INDEX_GROUP;
        }
    }
    opens.indexes(asked, tables);
    opens.begin(tables);
}
