//! From outside: IPv4 packets to a pool address, whichever kind of instance their binding belongs to
//! (RFC 6146 3.5, 3.6.2, 3.7).

use super::filter::{self, Admitted, Knock, Refused};
use super::unsolicited::{self, Unsolicited};
use super::{Instances, Query};
use crate::base::step::Step;
use crate::base::tally::Tally;
use crate::base::time::Instant;
use crate::path::shared::Shared;
use crate::tables::bib::Place;
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

    /// The SYN that it is, of no realm.
    pub(crate) fn unsolicited(&self, query: &Query) -> Unsolicited {
        let (outside, remote) = ((self.view.dst, query.dst_port), (self.view.src, query.src_port));
        Unsolicited { place: self.place, outside, remote, realm: 0 }
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
        Err(Refused::Hold) => unsolicited::hold(nats, sh, now, packet, &from.unsolicited(query)),
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
