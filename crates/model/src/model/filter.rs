//! Who may come in through a binding that has no session with them (RFC 6146 3.5, RFC 4787 5).

use super::bib::{End4, ICMP, Query, TCP};
use super::four_to_six::Passage;
use super::tcp;
use super::{Model, Result, Seen};
use gatun_nat::Verdict;
use gatun_nat::plan::Filtering;
use gatun_wire::DropReason;
use std::net::Ipv4Addr;

impl Model {
    /// A packet from outside that finds a binding and no session.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn stranger(
        &mut self,
        b: usize,
        q: Query,
        outside: End4,
        remote: End4,
        opens: bool,
        hairpin: bool,
        seen: &Seen,
    ) -> Result<Passage> {
        let n = &self.plan.nat64[self.bindings[b].instance];
        let _ = outside;
        if q.transport == TCP && tcp::is_senseless(q.flags) {
            return Err(DropReason::TcpInvalidFlags);
        }
        if q.transport == TCP && opens && !n.external_tcp {
            return Err(DropReason::ExternalSynPolicy);
        }
        let allowed = n.filtering == Filtering::EndpointIndependent || self.knows(b, remote);
        if q.transport == TCP && opens && !allowed && !hairpin {
            // RFC 6146 3.5.2.2, CLOSED: the SYN is held, as the inside host may be about to open. That of a
            // hairpin is not: its sender is inside and will send it again.
            return Ok(Passage::Hold);
        }
        if q.transport == ICMP && opens && !n.icmp_queries {
            return Err(DropReason::IcmpUnknownType);
        }
        if q.transport == ICMP && !opens {
            return Err(DropReason::NoSession);
        }
        if !allowed {
            return Err(DropReason::AddressDependentFilter);
        }
        let prefix = self.prefix_for(self.bindings[b].instance, remote.0, 8, seen)?;
        match q.transport {
            // RFC 6146 3.5.2.2, CLOSED: forwarded, and no state.
            TCP if !opens => Ok(self.arrival(b, prefix)),
            _ => self.open_back(b, q, remote, prefix, seen),
        }
    }

    /// The prefix behind which an instance shows a remote address to an inside host that has not written to it:
    /// any that may stand for it; which, the engine says in the packet it sends, `at` bytes from its start.
    pub(super) fn prefix_for(
        &self,
        instance: usize,
        a: Ipv4Addr,
        at: usize,
        seen: &Seen,
    ) -> Result<Option<usize>> {
        let all = 0..self.plan.nat64[instance].pool6.len();
        let allowed: Vec<usize> = all.filter(|&p| !self.is_barred(instance, p, a)).collect();
        if allowed.is_empty() {
            return Err(DropReason::WellKnownNonGlobal);
        }
        let shown = seen.bytes.get(at..at + 16).filter(|_| seen.verdict == Verdict::Forward);
        let shown = allowed
            .iter()
            .copied()
            .find(|&p| shown.is_some_and(|s| s == self.outside_as_seen(instance, p, a).octets()));
        Ok(shown)
    }

    /// RFC 4787 5: whether a session of the binding has this remote address, on any port.
    fn knows(&self, b: usize, remote: End4) -> bool {
        // An established connection whose time is up is there until it has not answered its probe.
        self.bindings[b].sessions.iter().any(|s| s.remote.0 == remote.0 && !self.is_over(s))
    }
}
