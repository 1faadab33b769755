//! From outside: IPv4 packets to a pool address, whichever kind of instance their binding belongs to
//! (RFC 6146 3.5, 3.6.2, 3.7).

use super::filter::{self, Admitted, Knock, Refused};
use super::{Instances, Query};
use crate::bib::Place;
use crate::shared::Shared;
use crate::step::Step;
use crate::tally::Tally;
use crate::time::Instant;
use gatun_wire::{DropReason, Ipv4View, L4, Packet};

/// A packet from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromOutside {
    pub(crate) view: Ipv4View,
    pub(crate) l4: L4,
    pub(crate) place: Place,
}

impl FromOutside {
    fn knock(&self, query: &Query) -> Knock {
        Knock { place: self.place, query: *query, remote: (self.view.src, query.src_port) }
    }
}

/// Translates a query from outside: a whole packet.
pub(crate) fn query(
    nats: Instances<'_>,
    sh: &mut Shared,
    now: Instant,
    packet: &mut Packet<'_>,
    from: &FromOutside,
    query: &Query,
) -> Result<Step, DropReason> {
    match decide(nats, sh, now, from, query) {
        Ok((instance, to)) => instance.write_inward(packet, &from.view, from.l4, &to).map(Step::forward),
        Err(Refused::Drop(reason)) => Err(reason),
        Err(Refused::Hold(_)) => hold_syn(nats, sh, now, packet, from, query),
    }
}

/// Filters and updates, and computes the outgoing addresses and ports.
pub(crate) fn decide<'n>(
    nats: Instances<'n>,
    sh: &mut Shared,
    now: Instant,
    from: &FromOutside,
    query: &Query,
) -> Result<Admitted<'n>, Refused> {
    let knock = from.knock(query);
    if let Some(primary) = knock.primary(sh) {
        sh.tally.is_to(Tally::stateful(sh.tables.get(primary).instance));
    }
    // A packet that ends here changes no state.
    if from.view.ttl <= 1 {
        return Err(knock.expired(sh).into());
    }
    filter::admit(nats, sh, now, &knock)
}

/// RFC 6146 3.5.2.2, RFC 5382 REQ-4: an unsolicited SYN waits six seconds for the inside to open the
/// connection itself; only then it is answered.
#[cold]
fn hold_syn(
    nats: Instances<'_>,
    sh: &mut Shared,
    now: Instant,
    packet: &Packet<'_>,
    from: &FromOutside,
    query: &Query,
) -> Result<Step, DropReason> {
    let remote = (from.view.src, query.src_port);
    let mut of_pool = nats.of_pool(&sh.tables, from.place.pool);
    let Some(policy) = of_pool.find(|p| p.external_tcp) else { return Err(DropReason::ExternalSynPolicy) };
    let until = now.plus_ms(u64::from(policy.timeouts.tcp_incoming_syn_ms));
    drop(of_pool);
    let outside = (from.view.dst, query.dst_port);
    match sh.syns.store(now, until, packet.bytes(), outside, remote) {
        Ok(true) => {
            sh.counters.held += 1;
            Ok(Step::Held)
        }
        // One of this connection is held already; an answer now would break RFC 5382 REQ-4.
        Ok(false) => Err(DropReason::SynHeldAlready),
        Err(_) => Err(DropReason::SynStoreFull),
    }
}
