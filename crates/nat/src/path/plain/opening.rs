//! The short way of first packets: plain ones from inside that open a session, a datagram or a SYN.

use super::{addresses6, write_outbound44};
use crate::base::plan::Transport;
use crate::base::special::illegal_destination4;
use crate::base::time::Instant;
use crate::engine::Core;
use crate::path::look_ahead::SessionHint;
use crate::path::nat44;
use crate::path::nat64::outbound_of;
use crate::path::shared::Shared;
use crate::path::stateful::{Instance, Instances, Query, outbound, policy};
use crate::tables::bib::Opening;
use crate::tables::session::RecordId;
use gatun_wire::rfc7915::plain::Plain;
use gatun_wire::{DropReason, Packet};

/// What became of a packet that may open a session.
pub(crate) enum Opened {
    /// It has, and is translated.
    Yes,
    /// A quota, a table or a pool is at its end; the packet is unchanged.
    Refused(DropReason),
    /// It has to take the general way; nothing has been done.
    General,
}

impl Core {
    /// An IPv6 packet that most likely opens a session.
    #[inline(never)]
    pub(crate) fn plain_opening(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        hint: &SessionHint,
        opening: &Opening,
    ) -> Opened {
        let Some(plain) = Plain::six(packet) else { return Opened::General };
        let Some(nat) = self.nat64.get(usize::from(hint.owner.instance)) else { return Opened::General };
        let sh = &mut self.shared;
        let (remote, pool6) = (opening.remote, hint.owner.pool6);
        if !plain.fits4(&nat.settings)
            || !plain.keeps_mss(packet, nat.settings.mss_max)
            || plain.is_syn() && !sh.paths.is_empty()
            || sh.paths.is_too_large(now, remote.0, plain.len4())
            || nat.check_source(opening.inside.addr).is_err()
            || nat.check_embedded(pool6, remote.0).is_err()
            || addresses6(packet.bytes()).is_some_and(|(_, dst)| sh.own6 == Some(dst))
        {
            return Opened::General;
        }
        let id = match open(Instance::Nat64(nat), sh, now, &plain, hint, opening) {
            Ok(id) => id,
            Err(opened) => return opened,
        };
        let to = outbound_of(sh.tables.get(id), hint.transport);
        let id = sh.idents.next(hint.hash);
        plain.write4(packet, (opening.inside.port, remote.1), &to, id, &nat.settings);
        Opened::Yes
    }

    /// As [`plain_opening`](Self::plain_opening), of a NAT44 instance.
    #[inline(never)]
    pub(crate) fn plain_opening44(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        hint: &SessionHint,
        opening: &Opening,
    ) -> Opened {
        let Some(plain) = Plain::four(packet) else { return Opened::General };
        let nats = Instances { nat64: &self.nat64, nat44: &self.nat44 };
        let Some(nat) = nats.nat44(hint.owner.instance) else { return Opened::General };
        let sh = &mut self.shared;
        let remote = opening.remote;
        if !plain.fits44(nat.link.mtu) || !plain.keeps_mss(packet, nat.link.mss_max) {
            return Opened::General;
        }
        let id = match open(Instance::Nat44(nat), sh, now, &plain, hint, opening) {
            Ok(id) => id,
            Err(opened) => return opened,
        };
        let to = nat44::outbound_of(sh.tables.get(id), hint.transport);
        write_outbound44(sh, packet, &plain, (opening.inside.port, remote.1), to, hint.transport);
        Opened::Yes
    }
}

/// Opens the session, where the packet may and there is none: an earlier packet of the burst may have.
#[inline(always)]
fn open(
    instance: Instance<'_>,
    sh: &mut Shared,
    now: Instant,
    plain: &Plain,
    hint: &SessionHint,
    opening: &Opening,
) -> Result<RecordId, Opened> {
    let &Opening { inside, remote, .. } = opening;
    let query = Query {
        transport: hint.transport,
        src_port: inside.port,
        dst_port: remote.1,
        flags: plain.flags,
        is_reply: false,
    };
    // A held SYN may be what this one answers.
    let may_answer = hint.transport == Transport::Tcp && !sh.syns.is_empty();
    if may_answer
        || policy::may_open(&query) != Ok(true)
        || illegal_destination4(remote.0)
        || sh.own4 == Some(remote.0)
        || sh.tables.locate(remote.0).is_some()
        || sh.tables.find_session(hint.hash, inside, remote).is_some()
    {
        return Err(Opened::General);
    }
    outbound::open_with(instance, sh, now, opening, &query, hint.owner.pool6).map_err(Opened::Refused)
}
