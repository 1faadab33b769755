//! What all instances of one engine share: state tables, counters, and the packets to be emitted.

use crate::base::counters::{Count, Counters, Direction};
use crate::base::emit::Emit;
use crate::base::tally::{Row, Tally};
use crate::base::time::Instant;
use crate::path::stateful::fragments::Memo;
use crate::tables::bib::Tables;
use crate::tables::fragment::Fragments;
use crate::tables::icmp_limit::{IcmpLimit, Limited, Source};
use crate::tables::ident::Idents;
use crate::tables::path_mtu::Paths;
use crate::tables::session::Endpoint4;
use crate::tables::syn_store::SynStore;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::DropReason;

/// State and outlets, apart from the instances that use them.
pub(crate) struct Shared {
    pub(crate) own4: Option<Ipv4Addr>,
    pub(crate) own6: Option<Ipv6Addr>,
    /// [`crate::Plan::pooled`].
    pub(crate) pooled: Vec<(Ipv4Addr, Ipv4Addr)>,
    pub(crate) tables: Tables,
    pub(crate) syns: SynStore,
    pub(crate) fragments: Fragments<Memo>,
    pub(crate) paths: Paths,
    pub(crate) idents: Idents,
    pub(crate) icmp_limit: IcmpLimit,
    /// Errors made here that are not to be sent.
    pub(crate) suppressed: [bool; DropReason::COUNT],
    /// Codes of the errors that tell of a quota, for IPv6 and IPv4 packets.
    pub(crate) quota_codes: [u8; Direction::COUNT],
    /// What fits at the receiver of a packet that was too big to be turned round; 0 where none was.
    pub(crate) turned_mtu: u32,
    pub(crate) counters: Counters,
    pub(crate) tally: Tally,
    pub(crate) emit: Emit,
}

impl Shared {
    /// Whether the error that a reason causes is switched off.
    pub(crate) fn is_suppressed(&self, reason: DropReason) -> bool {
        self.suppressed.get(reason as usize).copied().unwrap_or(false)
    }

    /// Whether the rates allow one more error; counts it where they do not.
    pub(crate) fn may_send_error(&mut self, now: Instant, to: Source, too_big: bool) -> bool {
        match self.icmp_limit.allow(now, to, too_big) {
            Ok(()) => return true,
            Err(Limited::Source) => self.counters.icmp_errors_limited_per_source += 1,
            Err(Limited::All) => self.counters.icmp_errors_limited += 1,
        }
        false
    }

    /// Whether a pool that several workers share has an address.
    pub(crate) fn is_pooled(&self, a: Ipv4Addr) -> bool {
        self.pooled.iter().any(|&(first, last)| first <= a && a <= last)
    }

    /// A packet's fate: it is not forwarded, and why. Whether it is answered is counted apart.
    pub(crate) fn count_drop(&mut self, row: Row, direction: Direction, reason: DropReason, bytes: usize) {
        self.counters.add_dropped(direction, reason, Count::one(bytes));
        self.tally.dropped(row, reason, Count::one(bytes));
    }

    /// A held packet's last fate: gone, and why.
    pub(crate) fn held_was_dropped(
        &mut self,
        row: Row,
        direction: Direction,
        reason: DropReason,
        bytes: usize,
    ) {
        self.counters.held -= 1;
        self.counters.dropped.add(bytes);
        self.count_drop(row, direction, reason, bytes);
    }

    /// Whose a packet to a pool's address is that no binding takes.
    pub(crate) fn whose_at(&self, outside: Ipv4Addr) -> Row {
        let place = self.tables.locate(outside);
        place.map_or(self.tally.nobody(), |place| self.tally.of_pool(place.pool))
    }

    /// Forgets a SYN from `remote` that is held at `outside`, if there is one, without an error: it was answered.
    #[cold]
    pub(crate) fn let_held_syn_go(&mut self, outside: Endpoint4, remote: Endpoint4) {
        if let Some((_, bytes)) = self.syns.take(remote, |at| at == outside) {
            let row = self.tally.whose();
            self.held_was_dropped(row, Direction::FourToSix, DropReason::SynWasAnswered, bytes);
        }
    }
}
