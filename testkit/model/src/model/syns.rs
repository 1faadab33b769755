//! Unsolicited SYNs from outside, held for six seconds (RFC 6146 3.5.2.2, RFC 5382 REQ-4).

use super::ends::{End4, TCP};
use super::own::{ErrorSource, error_source};
use super::{Fate, Model, RealmPacket, Result, Way};
use crate::wire::errors;
use gatun_wire::DropReason;
use std::net::Ipv4Addr;

/// Choice: bytes of a held SYN that are kept and quoted; a SYN with all its options is shorter.
const KEPT_MAX: usize = 192;
/// Choice: a source holds at most this part of the store, so that one scanner does not fill it.
const SHARE: usize = 16;
/// Choice: minimum share in a small store.
const SHARE_MIN: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct HeldSyn {
    pub(super) outside: End4,
    pub(super) remote: End4,
    /// Realm of the sender.
    realm: u8,
    bytes: Vec<u8>,
    /// Length of the original packet.
    len: usize,
    pub(super) ends: u64,
}

impl HeldSyn {
    /// Source for whose error rate its answer counts.
    fn source(&self) -> ErrorSource {
        match self.bytes[0] >> 4 {
            6 => {
                let src: [u8; 16] = self.bytes[8..24].try_into().unwrap_or_default();
                error_source(self.realm, src.into(), 64)
            }
            _ => {
                let src: [u8; 4] = self.bytes[12..16].try_into().unwrap_or_default();
                error_source(self.realm, Ipv4Addr::from(src).to_ipv6_mapped(), 128)
            }
        }
    }
}

impl Model {
    pub(super) fn hold_syn(
        &mut self,
        packet: &[u8],
        pool: usize,
        (outside, remote): (End4, End4),
        realm: u8,
    ) -> Result<Fate> {
        let allows = self.users_of(pool).find(|&i| self.rules[i].external_tcp);
        let instance = allows.ok_or(DropReason::ExternalSynPolicy)?;
        if self.syns.iter().any(|s| (s.outside, s.remote) == (outside, remote)) {
            return Err(DropReason::SynHeldAlready);
        }
        let max = self.plan.limits.syn_store_max as usize;
        let of_source = self.syns.iter().filter(|s| s.remote.0 == remote.0).count();
        if self.syns.len() >= max || of_source >= (max / SHARE).max(SHARE_MIN) {
            return Err(DropReason::SynStoreFull);
        }
        let ms = self.rules[instance].timeouts.tcp_incoming_syn_ms;
        self.syns.push(HeldSyn {
            outside,
            remote,
            realm,
            bytes: packet[..packet.len().min(KEPT_MAX)].to_vec(),
            len: packet.len(),
            ends: self.now + u64::from(ms),
        });
        self.counters.held += 1;
        Ok(Fate::Held)
    }

    /// Outside end of a held SYN from `remote` that a connection from inside may answer: at its binding, or
    /// without a binding at an unbound port of its pool. The oldest one wins.
    pub(super) fn knocked_at(&self, instance: usize, remote: End4, binding: Option<usize>) -> Option<End4> {
        let bound = binding.map(|b| self.bindings[b].outside);
        let pool = self.rules[instance].pool;
        let may = |outside: End4| match bound {
            Some(bound) => bound == outside,
            None => self.pool_of(outside.0) == Some(pool) && self.binding_outside(TCP, outside).is_none(),
        };
        self.syns.iter().filter(|s| s.remote == remote).map(|s| s.outside).find(|&o| may(o))
    }

    /// The inside host opens the connection itself: its SYN is forwarded, the held one is discarded.
    fn syn_was_answered(&mut self, at: usize) {
        let syn = self.syns.remove(at);
        self.counters.held -= 1;
        // Choice: a held SYN counts as v4>v6, because its receiver was unknown.
        self.count_dropped(Way::FourToSix, DropReason::SynWasAnswered, syn.len);
    }

    /// Like [`syn_was_answered`](Self::syn_was_answered), if a SYN is held.
    pub(super) fn answer_held_syn(&mut self, outside: End4, remote: End4) {
        if let Some(at) = self.syns.iter().position(|s| (s.outside, s.remote) == (outside, remote)) {
            self.syn_was_answered(at);
        }
    }

    /// Answers SYNs whose wait is over: at most `budget`, the earliest first.
    pub(super) fn expire_syns(&mut self, budget: usize, seen: &mut std::slice::Iter<'_, RealmPacket>) {
        for _ in 0..budget {
            // Choice: in order of arrival; with different lifetimes, one may wait for another.
            if self.syns.first().is_none_or(|s| s.ends > self.now) {
                return;
            }
            let syn = self.syns.remove(0);
            self.counters.held -= 1;
            // Choice: no error comes from an address that has left its pool meanwhile.
            let left = self.pool_of(syn.outside.0).is_none();
            if left || self.plan.icmp.suppressed.contains(&DropReason::SynExpired) {
                self.counters.icmp_errors_suppressed += 1;
                self.count_dropped(Way::FourToSix, DropReason::SynExpired, syn.len);
            } else if self.take_error_token(syn.source(), false) {
                self.counters.replied.add(syn.len);
                self.counters.icmp_errors_sent += 1;
                self.counters.drops[Way::FourToSix as usize][DropReason::SynExpired as usize].add(syn.len);
                let told = seen.next().filter(|e| e.bytes.len() >= 6);
                let bytes = if syn.bytes[0] >> 4 == 6 {
                    // A hairpinned SYN of an inside host is answered from the peer's public address, as that
                    // host wrote it.
                    let to: [u8; 16] = syn.bytes[24..40].try_into().unwrap_or_default();
                    errors::error6(&syn.bytes, to.into(), (1, 4, 0))
                } else {
                    let ident = told.map_or(0, |e| crate::wire::get16(&e.bytes, 4));
                    errors::error4(&syn.bytes, syn.outside.0, (3, 3, 0), ident, 576)
                };
                self.emitted.push(RealmPacket { realm: syn.realm, bytes });
            } else {
                self.count_dropped(Way::FourToSix, DropReason::SynExpired, syn.len);
            }
        }
    }
}
