//! State of an engine: tables, limits and counters, and the rules that packets are translated by.

use super::rewrite::DatagramRewrite;
use super::rules::Rules;
use crate::base::attribution::{Account, Attribution};
use crate::base::counters::{Count, Counters, Direction};
use crate::base::emit::Emit;
use crate::base::tally::Tally;
use crate::base::time::Instant;
use crate::tables::bib::Tables;
use crate::tables::fragment::Fragments;
use crate::tables::icmp_limit::{IcmpLimit, LimitReason, Source};
use crate::tables::ident::Idents;
use crate::tables::path_mtu::Paths;
use crate::tables::session::Endpoint4;
use crate::tables::syn_store::SynStore;
use alloc::boxed::Box;
use alloc::vec;
use core::net::Ipv4Addr;
use gatun_wire::{DropReason, HEADROOM};

/// Rules and state of an engine that outlive a burst.
pub(crate) struct Core {
    pub(crate) rules: Rules,
    pub(crate) state: EngineState,
    pub(crate) scratch: Scratch,
}

/// Tables, limits and counters: packets change them.
pub(crate) struct EngineState {
    pub(crate) tables: Tables,
    pub(crate) syns: SynStore,
    pub(crate) fragments: Fragments<DatagramRewrite>,
    pub(crate) paths: Paths,
    pub(crate) idents: Idents,
    pub(crate) icmp_limit: IcmpLimit,
    pub(crate) counters: Counters,
    pub(crate) tally: Tally,
    pub(crate) emit: Emit,
}

/// A datagram with its headers, and room for larger ones.
const ROOM: usize = HEADROOM + 65_535 + HEADROOM;

/// Buffers for the current datagram of a super-packet, and for the first packet that leaves.
pub(crate) struct Scratch {
    pub(crate) datagram: Box<[u8]>,
    pub(crate) first: Box<[u8]>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Scratch { datagram: vec![0; ROOM].into(), first: vec![0; ROOM].into() }
    }

    /// Empty buffers, used while the real ones are in use.
    pub(crate) fn none() -> Self {
        Scratch { datagram: [].into(), first: [].into() }
    }
}

impl EngineState {
    /// Returns whether the rate limits allow one more error. Counts the error if they do not.
    pub(crate) fn may_send_error(&mut self, now: Instant, to: Source, too_big: bool) -> bool {
        match self.icmp_limit.allow(now, to, too_big) {
            Ok(()) => return true,
            Err(LimitReason::Source) => self.counters.icmp_errors_limited_per_source += 1,
            Err(LimitReason::All) => self.counters.icmp_errors_limited += 1,
        }
        false
    }

    /// Counts a packet that is forwarded.
    pub(crate) fn count_forwarded(
        &mut self,
        attribution: Attribution,
        direction: Direction,
        bytes: usize,
        hairpinned: bool,
    ) {
        let EngineState { counters, tally, tables, .. } = self;
        count_forwarded((counters, tally, tables), attribution, direction, bytes, hairpinned);
    }

    /// Counts a packet that is not forwarded, by its reason. Answers are counted separately.
    pub(crate) fn count_drop(
        &mut self,
        account: Account,
        direction: Direction,
        reason: DropReason,
        bytes: usize,
    ) {
        self.counters.add_dropped(direction, reason, Count::one(bytes));
        self.tally.dropped(account, reason, Count::one(bytes));
    }

    /// Counts a held packet that is finally dropped.
    pub(crate) fn count_held_drop(
        &mut self,
        account: Account,
        direction: Direction,
        reason: DropReason,
        bytes: usize,
    ) {
        self.counters.held -= 1;
        self.counters.dropped.add(bytes);
        self.count_drop(account, direction, reason, bytes);
    }

    /// Returns the account of a packet to a pool's address without a binding.
    pub(crate) fn account_at(&self, outside: Ipv4Addr) -> Account {
        self.tables.locate(outside).map_or(Account::Nobody, |at| Account::Pool(at.pool))
    }

    /// Removes a SYN from `remote` that is held at `outside`, if there is one, without an error, because a
    /// packet of `account` answered it.
    #[cold]
    pub(crate) fn forget_held_syn(&mut self, account: Account, outside: Endpoint4, remote: Endpoint4) {
        if let Some((_, bytes)) = self.syns.take(remote, |at| at == outside) {
            self.count_held_drop(account, Direction::FourToSix, DropReason::SynWasAnswered, bytes);
        }
    }
}

/// Counts a forwarded packet: in the totals, for its instance, and for its inside hosts.
pub(crate) fn count_forwarded(
    (counters, tally, tables): (&mut Counters, &mut Tally, &mut Tables),
    attribution: Attribution,
    direction: Direction,
    bytes: usize,
    hairpinned: bool,
) {
    counters.add_translated(direction, bytes, hairpinned);
    tally.translated(attribution, bytes, hairpinned);
    tables.count_for(&attribution.parties, bytes);
}
