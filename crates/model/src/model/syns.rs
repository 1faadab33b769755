//! Unsolicited SYNs from outside, held for six seconds (RFC 6146 3.5.2.2, RFC 5382 REQ-4).

use super::bib::{End4, TCP};
use super::{Fate, Model, Result, Way};
use crate::wire::errors;
use gatun_wire::DropReason;

/// Choice: so much of a held SYN is kept and quoted; options and all, a SYN is shorter.
const KEPT_MAX: usize = 192;
/// Choice: no source holds more than this part of the store, so that one scanner does not fill it.
const SHARE: usize = 16;
/// But so many, in a small store.
const SHARE_MIN: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct HeldSyn {
    pub(super) outside: End4,
    pub(super) remote: End4,
    bytes: Vec<u8>,
    /// Of the packet as it came.
    len: usize,
    pub(super) ends: u64,
}

impl Model {
    pub(super) fn hold_syn(&mut self, packet: &[u8], outside: End4, remote: End4) -> Result<Fate> {
        if let Some(known) = self.syns.iter().position(|s| (s.outside, s.remote) == (outside, remote)) {
            let _ = known;
            return Err(DropReason::SynHeldAlready);
        }
        let max = self.plan.limits.syn_store_max as usize;
        let of_source = self.syns.iter().filter(|s| s.remote.0 == remote.0).count();
        if self.syns.len() >= max || of_source >= (max / SHARE).max(SHARE_MIN) {
            return Err(DropReason::SynStoreFull);
        }
        let instance = self.owner4(TCP, outside.0, outside.1).unwrap_or(0);
        let ms = self.plan.nat64[instance].timeouts.tcp_incoming_syn_ms;
        self.syns.push(HeldSyn {
            outside,
            remote,
            bytes: packet[..packet.len().min(KEPT_MAX)].to_vec(),
            len: packet.len(),
            ends: self.now + u64::from(ms),
        });
        Ok(Fate::Held)
    }

    /// The SYN held from `remote` to this outside address and port.
    pub(super) fn held_syn(
        &mut self,
        remote: End4,
        outside: Option<End4>,
        _instance: usize,
    ) -> Option<usize> {
        let at = self.syns.iter().position(|s| s.remote == remote && Some(s.outside) == outside)?;
        self.still_counts(at)
    }

    /// The SYN held from `remote` that a new binding answers: to a port that nobody has got meanwhile.
    pub(super) fn held_syn_for_new_binding(
        &mut self,
        remote: End4,
        shown: Option<End4>,
        instance: usize,
    ) -> Option<usize> {
        let candidates: Vec<usize> = (0..self.syns.len())
            .filter(|&s| self.syns[s].remote == remote)
            .filter(|&s| self.owner4(TCP, self.syns[s].outside.0, self.syns[s].outside.1) == Some(instance))
            .filter(|&s| {
                let taken = self.binding_outside(TCP, self.syns[s].outside);
                taken.is_none_or(|b| self.may_be_gone(b) && shown == Some(self.syns[s].outside))
            })
            .collect();
        let chosen = candidates.iter().find(|&&s| Some(self.syns[s].outside) == shown);
        let at = *chosen.or(candidates.first())?;
        let at = self.still_counts(at)?;
        if let Some(dead) = self.binding_outside(TCP, self.syns[at].outside) {
            self.bury(dead);
        }
        Some(at)
    }

    /// One whose time is up has been answered, or is about to be: which, only the engine knows.
    fn still_counts(&mut self, at: usize) -> Option<usize> {
        let overdue = self.syns[at].ends <= self.now;
        (!overdue || self.guesses.yes()).then_some(at)
    }

    /// The inside host opened the connection itself: its SYN goes on, the held one is discarded.
    pub(super) fn syn_was_answered(&mut self, at: usize) {
        let syn = self.syns.remove(at);
        self.counters.held -= 1;
        self.count_dropped(Way::Back, DropReason::SynWasAnswered, syn.len);
    }

    /// As [`syn_was_answered`](Self::syn_was_answered), where one is held.
    pub(super) fn answer_held_syn(&mut self, outside: Option<End4>, remote: End4) {
        if let Some(at) = self.syns.iter().position(|s| s.remote == remote && Some(s.outside) == outside) {
            self.syn_was_answered(at);
        }
    }

    /// Answers SYNs whose time is up: at most `budget`, the earliest first.
    pub(super) fn expire_syns(&mut self, budget: usize, seen: &mut std::slice::Iter<'_, Vec<u8>>) {
        for _ in 0..budget {
            // Choice: in the order in which they came; where lifetimes differ, one behind another waits.
            if self.syns.first().is_none_or(|s| s.ends > self.now) {
                return;
            }
            let syn = self.syns.remove(0);
            self.counters.held -= 1;
            if self.plan.icmp.suppressed.contains(&DropReason::SynExpired) {
                self.counters.icmp_errors_suppressed += 1;
                self.count_dropped(Way::Back, DropReason::SynExpired, syn.len);
            } else if self.take_error_token() {
                self.counters.replied.add(syn.len);
                self.counters.icmp_errors_sent += 1;
                self.counters.drops[Way::Back as usize][DropReason::SynExpired as usize].add(syn.len);
                let ident = seen.next().filter(|e| e.len() >= 6).map_or(0, |e| crate::wire::get16(e, 4));
                self.emitted.push(errors::error4(&syn.bytes, syn.outside.0, (3, 3, 0), ident, 576));
            } else {
                self.count_dropped(Way::Back, DropReason::SynExpired, syn.len);
            }
        }
    }
}
