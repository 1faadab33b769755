//! ICMP errors (RFC 6146 3.4, 3.5.3, 3.6; RFC 5508 4). The quoted packet identifies the session. They change
//! no state and extend no lifetime.

use crate::base::attribution::{Account, Attribution};
use crate::base::outcome::{Outcome, Refusal};
use crate::base::plan::IcmpErrorSource;
use crate::base::step::Step;
use crate::path::context::{Inbound, Outbound6, PacketContext};
use crate::path::query::{self, Query};
use crate::path::rules::nat64::{Nat64, inside_of};
use crate::path::stateful::hairpin::inner_settings;
use crate::path::stateful::icmp::{prefix_towards, receiver, sender_port, turn};
use crate::tables::session::RecordId;
use gatun_wire::rfc7915::icmp_4to6::{self, Embedded4};
use gatun_wire::rfc7915::icmp_6to4::{self, OuterHeader};
use gatun_wire::{DropReason, Packet, To4, To6, Whole};

/// Translates an error from inside about a packet from outside.
pub(crate) fn outbound(
    cx: &mut PacketContext<'_>,
    packet: &mut Packet<'_>,
    from: &Outbound6,
) -> Result<Step, DropReason> {
    let (rules, state) = (cx.rules, &mut *cx.state);
    let nat = rules.nat64(from.instance).ok_or(DropReason::IcmpErrorNoState)?;
    nat.check_origin(from.view.src)?;
    let embedded = icmp_6to4::embedded(packet.bytes(), &from.view)?;
    // It quotes a packet that Gatun sent: from a prefix to the inside host.
    let about = embedded.view;
    let pool6 = nat.prefix_of(about.src).ok_or(DropReason::IcmpInnerUntranslatable)?;
    let remote = nat.prefix(pool6).extract_unchecked(about.src);
    let query = Query::of(embedded.l4, false).ok_or(DropReason::IcmpErrorNoState)?;
    let inside = inside_of(nat, about.dst, query.dst_port, query.transport);
    let record = state.tables.record_of(&inside, (remote, query.src_port));
    let record = state.tables.get(record.ok_or(DropReason::IcmpErrorNoState)?);
    cx.attribution.sent_by(record.party());
    let outside = record.outside();
    let ports = query::ports(query.transport, query.src_port, outside.1, outside.1);
    let inner = To4::new((about.src, about.dst), (remote, outside.0), ports);
    let dst = nat.prefix(from.pool6).extract_unchecked(from.view.dst);
    // An error goes to the sender of the quoted packet (RFC 4443 2.2).
    if dst != remote {
        return Err(DropReason::IcmpErrorNoState);
    }
    let settings = &nat.settings;
    let id = state.idents.next(u64::from(u32::from(dst)) << 32);
    let outer = OuterHeader { src: outside.0, dst, id };
    let Some(at) = state.tables.locate_hairpin(dst) else {
        icmp_6to4::translate(packet, &from.view, &embedded, outer, &inner, settings)?;
        return Ok(Step::forward(Whole::Yes));
    };
    // RFC 6146 3.8, RFC 5508 REQ-7: that sender is inside too. All checks that can fail come first.
    if from.view.hop_limit <= 2 {
        return Err(DropReason::TtlExceeded);
    }
    let sender = (at, sender_port(&query, outside));
    let (back, party) = receiver(rules, &state.tables, sender, query.transport, outside)?;
    cx.attribution.meant_for(party);
    let settings = inner_settings(settings);
    icmp_6to4::translate(packet, &from.view, &embedded, outer, &inner, &settings)?;
    Ok(match turn(packet, &back) {
        Ok(()) => Step::Forward { whole: Whole::Yes, hairpinned: true },
        Err(reason) => Step::Lost(reason),
    })
}

/// Translates an error from outside about a packet from inside.
pub(crate) fn inbound(cx: &mut PacketContext<'_>, packet: &mut Packet<'_>, from: &Inbound) -> Outcome {
    let found = match receiver_of(cx, packet, from) {
        Ok(found) => found,
        Err(reason) => return cx.outcome(Err(reason)),
    };
    let mut attribution = Attribution::inbound(Account::Stateful(found.nat.policy.instance));
    attribution.meant_for(cx.state.tables.get(found.primary).party());
    Outcome::new(attribution, to_inside(cx, packet, from, &found).map_err(Refusal::from))
}

/// The inside host that an error from outside is for.
struct QuotedHost<'r> {
    nat: &'r Nat64,
    embedded: Embedded4,
    query: Query,
    /// The binding of the quoted packet.
    primary: RecordId,
}

fn receiver_of<'c>(
    cx: &PacketContext<'c>,
    packet: &Packet<'_>,
    from: &Inbound,
) -> Result<QuotedHost<'c>, DropReason> {
    let (rules, tables) = (cx.rules, &cx.state.tables);
    let embedded = icmp_4to6::embedded(packet.bytes(), &from.view)?;
    // It quotes a packet that Gatun sent: from a pool address to the remote host.
    let about = embedded.view;
    let query = Query::of(embedded.l4, true).ok_or(DropReason::IcmpErrorNoState)?;
    // An error goes to the sender of the quoted packet (RFC 792).
    if from.view.dst != about.src {
        return Err(DropReason::IcmpErrorNoState);
    }
    let at = tables.locate(about.src).ok_or(DropReason::IcmpErrorNoState)?;
    let primary = tables.binding_at(at, query.transport, query.src_port);
    let primary = primary.and_then(|id| tables.owner_at(id, (about.dst, query.dst_port)));
    let primary = primary.ok_or(DropReason::IcmpErrorNoState)?;
    let nat = rules.nat64(tables.get(primary).instance).ok_or(DropReason::IcmpErrorNoState)?;
    Ok(QuotedHost { nat, embedded, query, primary })
}

fn to_inside(
    cx: &PacketContext<'_>,
    packet: &mut Packet<'_>,
    from: &Inbound,
    found: &QuotedHost<'_>,
) -> Result<Step, DropReason> {
    let QuotedHost { nat, embedded, query, primary } = found;
    let (about, p) = (embedded.view, cx.state.tables.get(*primary));
    let pool6 = prefix_towards(nat, &cx.state.tables, *primary, (about.dst, query.dst_port))?;
    let prefix = nat.prefix(pool6);
    let remote6 = prefix.embed(about.dst);
    let ports = query::ports(query.transport, p.inside_port(), query.dst_port, p.inside_port());
    let inner = To6::new((about.src, about.dst), (p.inside_addr(), remote6), ports);
    let src = match nat.icmp_error_source {
        IcmpErrorSource::Router if nat.can_stand_for(pool6, from.view.src) => prefix.embed(from.view.src),
        _ => remote6,
    };
    let outer = (src, p.inside_addr());
    icmp_4to6::translate(packet, &from.view, embedded, outer, &inner, &nat.settings)?;
    packet.realm = nat.policy.realm;
    Ok(Step::forward(Whole::Yes))
}
