//! ICMP errors (RFC 5508 4). The quoted packet identifies the session. They change no state and extend no
//! lifetime.

use crate::base::step::Step;
use crate::path::context::{Outbound4, PacketContext};
use crate::path::query::{self, Query};
use crate::path::rules::nat44::{Nat44, inside_of, inside4};
use crate::path::stateful::hairpin;
use crate::path::stateful::icmp::{receiver, sender_port, turn};
use crate::tables::bib::Tables;
use crate::tables::session::RecordId;
use core::net::Ipv4Addr;
use gatun_wire::rfc3022::{Rewrite, icmp_error};
use gatun_wire::rfc7915::icmp_4to6::Embedded4;
use gatun_wire::{DropReason, Ipv4View, Packet, Ports, Whole};

/// Translates an error from inside about a packet from outside (RFC 5508 REQ-5). Whatever its sender, it
/// leaves from the outside address of the host that the quoted packet was for.
pub(crate) fn outbound(
    cx: &mut PacketContext<'_>,
    packet: &mut Packet<'_>,
    from: &Outbound4<'_>,
) -> Result<Step, DropReason> {
    let (rules, state) = (cx.rules, &mut *cx.state);
    let (nat, view) = (from.nat, &from.view);
    let no_state = DropReason::IcmpErrorNoState;
    let embedded = icmp_error::embedded(packet.bytes(), view)?;
    // It quotes a packet that Gatun sent: from a remote host to the inside host.
    let about = embedded.view;
    let query = Query::of(embedded.l4, false).ok_or(no_state)?;
    let inside = inside_of(nat, about.dst, query.dst_port, query.transport);
    let record = state.tables.record_of(&inside, (about.src, query.src_port)).ok_or(no_state)?;
    let record = state.tables.get(record);
    cx.attribution.sent_by(record.party());
    let outside = record.outside();
    // An error goes to the sender of the quoted packet.
    if view.dst != about.src {
        return Err(no_state);
    }
    let ports = query::ports(query.transport, query.src_port, outside.1, outside.1);
    let inner = Rewrite::new((about.src, about.dst), (about.src, outside.0), ports);
    let id = state.idents.next(state.tables.pair_hash(outside.0, view.dst, query.transport));
    let outer = Rewrite::new((view.src, view.dst), (outside.0, view.dst), Ports::Keep);
    let outer = Rewrite { id: Some(id), ..outer };
    let Some(at) = state.tables.locate_hairpin(view.dst) else {
        return icmp_error::translate(packet, view, &embedded, &outer, &inner, nat.link.mtu)
            .map(Step::forward);
    };
    // RFC 5508 REQ-7, RFC 7857 12: that sender is inside too. All checks that can fail come first.
    if view.ttl <= 2 {
        return Err(DropReason::TtlExceeded);
    }
    let sender = (at, sender_port(&query, outside));
    let (back, party) = receiver(rules, &state.tables, sender, query.transport, outside)?;
    cx.attribution.meant_for(party);
    let _ = icmp_error::translate(packet, view, &embedded, &outer, &inner, hairpin::ANY_MTU)?;
    Ok(match turn(packet, &back) {
        Ok(()) => Step::Forward { whole: Whole::Yes, hairpinned: true },
        Err(reason) => Step::Lost(reason),
    })
}

/// Returns the destination of the packet that an error quotes.
pub(crate) fn quoted_destination(packet: &[u8], view: &Ipv4View) -> Option<Ipv4Addr> {
    icmp_error::embedded(packet, view).ok().map(|embedded| embedded.view.dst)
}

/// Returns the packet that an error from outside quotes, and its binding, if there is one.
pub(crate) fn quoted(tables: &Tables, packet: &[u8], view: &Ipv4View) -> Option<(Embedded4, RecordId)> {
    // An error goes to the sender of the quoted packet (RFC 792).
    let embedded = icmp_error::embedded(packet, view).ok().filter(|e| e.view.src == view.dst)?;
    let query = Query::of(embedded.l4, true)?;
    let at = tables.locate(embedded.view.src)?;
    let primary = tables.binding_at(at, query.transport, query.src_port)?;
    Some((embedded, tables.owner_at(primary, (embedded.view.dst, query.dst_port))?))
}

/// Translates an error from outside about a packet from inside (RFC 5508 REQ-4). Type and code stay, and the
/// error goes to the sender of the quoted packet.
pub(crate) fn inbound(
    nat: &Nat44,
    tables: &Tables,
    packet: &mut Packet<'_>,
    view: &Ipv4View,
    (embedded, primary): (Embedded4, RecordId),
) -> Result<Step, DropReason> {
    let p = tables.get(primary);
    let query = Query::of(embedded.l4, true).ok_or(DropReason::IcmpErrorNoState)?;
    let (about, host) = (embedded.view, inside4(p));
    let ports = query::ports(query.transport, p.inside_port(), query.dst_port, p.inside_port());
    let inner = Rewrite::new((about.src, about.dst), (host, about.dst), ports);
    let outer = Rewrite::new((view.src, view.dst), (view.src, host), Ports::Keep);
    let whole = icmp_error::translate(packet, view, &embedded, &outer, &inner, nat.link.mtu)?;
    packet.realm = nat.policy.realm;
    Ok(Step::forward(whole))
}
