//! Filtering of packets from outside that find a binding without a session (RFC 6146 3.5, RFC 4787 5).

use super::ends::{End4, ICMP, TCP};
use super::from_outside::FilterResult;
use super::query::Query;
use super::rules::Kind;
use super::{Model, Observed, Result};
use crate::tcp::State;
use gatun_nat::Verdict;
use gatun_nat::plan::Filtering;
use gatun_wire::DropReason;
use std::net::Ipv4Addr;

/// Choice: number of dead sessions that one packet ends when filtering looks for its address. With more of
/// them, the address counts as unknown.
const DEAD_MAX: usize = 16;

impl Model {
    /// Handles a packet from outside that finds a binding and no session. `opens` is true if it may open a
    /// session; `filtered` is the reason of filtering.
    pub(super) fn stranger(
        &mut self,
        b: usize,
        q: Query,
        remote: End4,
        (opens, filtered): (bool, Option<DropReason>),
        seen: &Observed,
    ) -> Result<FilterResult> {
        let rules = &self.rules[self.bindings[b].instance];
        if q.transport == TCP && opens && !rules.external_tcp {
            return Err(DropReason::ExternalSynPolicy);
        }
        if q.transport == TCP && opens && filtered.is_some() {
            // RFC 6146 3.5.2.2, CLOSED: the SYN is held, because the inside host may be about to open.
            return Ok(FilterResult::Hold);
        }
        if q.transport == ICMP && opens && !rules.icmp_queries {
            return Err(DropReason::IcmpUnknownType);
        }
        if q.transport == ICMP && !opens {
            return Err(DropReason::NoSession);
        }
        if let Some(reason) = filtered {
            return Err(reason);
        }
        let prefix = self.prefix_for(self.bindings[b].instance, remote.0, 8, seen)?;
        match opens {
            // RFC 6146 3.5.2.2, CLOSED: it is forwarded without state.
            false => Ok(self.arrival(b, self.bindings[b].inside, prefix)),
            true => self.open_back(b, q, remote, prefix),
        }
    }

    /// Reason why a remote end without session may not send to a binding.
    pub(super) fn filtered(&mut self, b: usize, remote: End4) -> Option<DropReason> {
        // Decision 0041: a shared port accepts only packets from remote ends of its flows.
        if self.bindings[b].shared.is_some() {
            return Some(DropReason::AddressPortDependentFilter);
        }
        let filtering = self.rules[self.bindings[b].instance].filtering;
        match filtering {
            Filtering::EndpointIndependent => None,
            Filtering::AddressDependent if self.knows(b, remote.0) => None,
            Filtering::AddressDependent => Some(DropReason::AddressDependentFilter),
            // All allowed remote ends have a session.
            Filtering::AddressAndPortDependent => Some(DropReason::AddressPortDependentFilter),
        }
    }

    /// RFC 4787 5: returns true if a live session of the binding has this remote address, on any port. An
    /// established connection whose lifetime is over counts as live until its probe is unanswered.
    fn knows(&mut self, b: usize, remote: Ipv4Addr) -> bool {
        let (transport, outside) = (self.bindings[b].transport, self.bindings[b].outside);
        for _ in 0..DEAD_MAX {
            let Some(b) = self.binding_outside(transport, outside) else { return false };
            let sessions = &self.bindings[b].sessions;
            let Some(s) = sessions.iter().position(|s| s.remote.0 == remote && s.speaks_for_address) else {
                return false;
            };
            if sessions[s].ends > self.now || sessions[s].state == Some(State::Established) {
                return true;
            }
            self.close(b, s);
        }
        false
    }

    /// The prefix under which an instance shows a remote address to an inside host that has not sent to it.
    /// Any allowed prefix is right; the packet that the engine sends shows its choice, `at` bytes from its
    /// start.
    pub(super) fn prefix_for(
        &self,
        instance: usize,
        a: Ipv4Addr,
        at: usize,
        seen: &Observed,
    ) -> Result<Option<usize>> {
        self.prefix_under(self.wkp_non_global(instance), instance, a, at, seen)
    }

    /// The same under a value of `wkp_non_global`, perhaps of an earlier plan.
    pub(super) fn prefix_under(
        &self,
        wkp_non_global: bool,
        instance: usize,
        a: Ipv4Addr,
        at: usize,
        seen: &Observed,
    ) -> Result<Option<usize>> {
        if self.kind(instance) == Kind::Four {
            return Ok(None);
        }
        let all = 0..self.plan.nat64[instance].pool6.len();
        let is_allowed = |&p: &usize| wkp_non_global || !self.is_non_global(instance, p, a);
        let allowed: Vec<usize> = all.filter(is_allowed).collect();
        match allowed[..] {
            [] => return Err(DropReason::WellKnownNonGlobal),
            [only] => return Ok(Some(only)),
            _ => {}
        }
        let shown = seen.bytes.get(at..at + 16).filter(|_| seen.verdict == Verdict::Forward);
        let shown = allowed
            .iter()
            .copied()
            .find(|&p| shown.is_some_and(|s| s == self.outside_as_seen(instance, p, a).octets()));
        Ok(shown)
    }
}
