//! Forecast of a packet's verdict with its reasons. A query reads the tables and changes nothing.
//!
//! Nothing changes: no session or port is created, no counter is incremented, no lifetime is extended. So the
//! decisions of `crate::path::stateful` that also change state are duplicated here as read-only checks.
//! Everything else (parsing, classification, header translation, the choice of the ICMP error) is the packet
//! path's own code. A test compares the two over random histories. One difference remains: a session can have
//! expired without the sweep having found it yet (within four seconds). Then only the session itself counts
//! as ended, not the state that ends with it.
//!
//! - this file: the class of the packet, and its fate.
//! - `outward`: queries from inside, and the quotas, addresses and ports that a new session would meet.
//! - `inward`: queries to a public address, including the second half of hairpins.

mod inward;
mod outward;

use super::classify::{Class4, Class6, Nat64Class};
use super::context::{Inbound, Outbound4, Outbound6};
use super::query::Query;
use super::rewrite::OutboundRewrite;
use super::state::Core;
use super::stateful::filter::{InboundQuery, InboundRefusal};
use super::stateful::hairpin;
use super::super_packet::has_to_be_cut;
use super::{answer, icmp_reply, query};
use crate::base::attribution::Account;
use crate::base::counters::Direction;
use crate::base::outcome::Refusal;
use crate::base::plan::{Net6, Transport};
use crate::base::step::Step;
use crate::tables::bib::info::{BindingInfo, SessionInfo};
use core::net::Ipv4Addr;
use gatun_wire::rfc7915::mtu;
use gatun_wire::{DropReason, Ipv4View, Ipv6View, L4, Packet, Prefix64, Whole};

pub use crate::tables::pool4::preview::{PortPreview, PortSource};
pub use gatun_wire::icmp_error::Message;

/// Reason why a packet belongs to an instance, or why it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// No prefix, pool, inside network or mapping covers it.
    #[default]
    Nobody,
    /// It is sent to an address of the translator itself.
    Own,
    /// Its destination is in this prefix of a NAT64 instance, and represents this IPv4 address.
    Pool6(Prefix64, Ipv4Addr),
    /// Its source is inside of a NAT44 instance.
    Inside,
    /// Same as [`Rule::Inside`], or a packet on its way back there; exempt from translation.
    Exempt,
    /// Its destination is a public address of this pool, by number.
    Pool(usize),
    /// Its destination is in a prefix or mapping of a stateless instance.
    Stateless,
}

/// Usage and limits of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriberUsage {
    /// Its inside network; IPv4 networks are written as ::ffff:a.b.c.d.
    pub network: Net6,
    /// True if it has state.
    pub is_known: bool,
    /// The public address that it is paired with.
    pub address: Option<Ipv4Addr>,
    /// Sessions.
    pub sessions: u32,
    /// Maximum number of sessions.
    pub sessions_max: u32,
    /// Ports by transport, in the order of [`Transport`].
    pub ports: [u16; 3],
    /// Maximum number of ports, all transports together.
    pub ports_max: u32,
    /// Maximum number of ports by transport.
    pub ports_max_by: [u32; 3],
    /// Number of port blocks of the packet's transport.
    pub blocks: u32,
    /// Maximum number of port blocks; 0 if the pool has none.
    pub blocks_max: u32,
}

/// Binding or port that a new session would get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The existing binding of its inside end.
    Binding(BindingInfo),
    /// A public port that it shares with other flows.
    Shared(BindingInfo),
    /// A new port.
    Port(PortPreview),
}

/// Outcome that the packet would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It would be translated and sent. The buffer contains the translated packet, with zero in place of a
    /// new port.
    Forward {
        /// Maximum length of its fragments, if it would be fragmented.
        cut_to: Option<u32>,
    },
    /// It is not for the translator.
    Pass,
    /// It is an echo request to the translator itself, and would be answered.
    Echo,
    /// It is a SYN that would wait for the inside host to open the connection (RFC 6146 3.5.2.2).
    Held,
    /// It would be dropped for this reason, and answered by this ICMP error if the rate limit of errors
    /// allows it.
    Drop(DropReason, Option<Message>),
    /// There is no forecast. The packet is not an unfragmented query of TCP, UDP or ICMP, or it is a ping
    /// from inside to a public address, whose random identifier decides who gets it.
    Untold,
}

/// Outcome that a packet would have, and the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Direction.
    pub direction: Direction,
    /// Instance: a number in the order of `Nat::instance_stats`.
    pub instance: Option<usize>,
    /// Reason for the choice of the instance.
    pub rule: Rule,
    /// Number of the pool whose addresses count.
    pub pool: Option<usize>,
    /// Shard of the cluster whose state it needs.
    pub shard: Option<u8>,
    /// The inside host's subscriber.
    pub subscriber: Option<SubscriberUsage>,
    /// The existing session.
    pub session: Option<SessionInfo>,
    /// The existing binding at the public address and port.
    pub binding: Option<BindingInfo>,
    /// Binding or port that a new session would get.
    pub opening: Option<Opening>,
    /// True if it would be hairpinned to an inside host.
    pub hairpinned: bool,
    /// Size of the largest packet like this one that is neither answered with "too big" nor fragmented,
    /// bytes.
    pub mtu: Option<u32>,
    /// Path MTU to its destination, if a router has reported one below the minimum of IPv6 hosts.
    pub path_mtu: Option<u16>,
    /// Its outcome.
    pub fate: Fate,
}

/// Early end of a forecast: a drop, or another outcome.
pub(super) enum End {
    Drop(Refusal),
    Fate(Fate),
}

impl From<DropReason> for End {
    fn from(reason: DropReason) -> Self {
        End::Drop(reason.into())
    }
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        End::Drop(refusal)
    }
}

type Prediction = Result<Whole, End>;

/// Forecasts the outcome of a packet that arrives now: at the time of the last burst or sweep. The buffer is
/// the caller's copy. If the packet would be forwarded, it contains the translated packet afterwards.
pub(crate) fn explain(core: &Core, packet: &mut Packet<'_>) -> Explanation {
    let mut e = Explanation {
        direction: core.classifier().direction(packet),
        instance: None,
        rule: Rule::Nobody,
        pool: None,
        shard: core.state.tables.sharding.as_ref().and_then(|_| core.shard_of(packet)),
        subscriber: None,
        session: None,
        binding: None,
        opening: None,
        hairpinned: false,
        mtu: None,
        path_mtu: None,
        fate: Fate::Untold,
    };
    let realm = packet.realm;
    let is_fenced = |shard| core.state.tables.standby.is_fenced(shard, core.state.tables.now);
    let outlook = match packet.bytes().first().map(|b| b >> 4) {
        _ if core.shard_of(packet).is_some_and(is_fenced) => {
            Err(End::Fate(Fate::Drop(DropReason::ShardFenced, None)))
        }
        Some(6) => six(core, packet, &mut e),
        Some(4) => four(core, packet, &mut e),
        Some(_) => Err(DropReason::BadVersion.into()),
        None => Err(DropReason::ShortL3.into()),
    };
    e.fate = match outlook {
        Ok(Whole::Yes) => Fate::Forward { cut_to: None },
        Ok(Whole::Split(max)) => Fate::Forward { cut_to: Some(max) },
        Err(End::Fate(fate)) => fate,
        Err(End::Drop(refusal)) if has_to_be_cut(packet, refusal.reason) => Fate::Untold,
        Err(End::Drop(refusal)) => {
            packet.realm = realm;
            Fate::Drop(refusal.reason, answer_to(core, packet, &e, refusal))
        }
    };
    e
}

/// Returns the ICMP error that would answer a drop.
fn answer_to(core: &Core, packet: &Packet<'_>, e: &Explanation, refusal: Refusal) -> Option<Message> {
    let (rules, bytes) = (&core.rules, packet.bytes());
    let (own4, own6) = icmp_reply::sources(refusal.reason, bytes, (rules.own4, rules.own6));
    let own = match e.direction {
        Direction::SixToFour => own6.is_some(),
        Direction::FourToSix | Direction::FourToFour => own4.is_some(),
    };
    let message = answer::message(core.classifier(), packet, e.direction, refusal)?;
    (own && answer::may_answer(rules, bytes, e.direction, refusal.reason)).then_some(message)
}

/// Same as [`crate::path::slow_path`], for IPv6.
fn six(core: &Core, packet: &mut Packet<'_>, e: &mut Explanation) -> Prediction {
    let view = Ipv6View::parse(packet.bytes())?;
    let l4 = view.l4(packet.bytes())?;
    match core.classifier().six(packet.bytes(), &view, l4, packet.realm).0 {
        Class6::Nat64(class) => {
            note_nat64(core, &class, e);
            e.rule = Rule::Pool6(*class.prefix, class.prefix.extract_unchecked(view.dst));
            let (instance, pool6) = (class.owner.instance, class.owner.pool6);
            outbound6(core, packet, &class, Outbound6 { view, l4, instance, pool6 }, e)
        }
        Class6::Own { answer, behind } => {
            behind.iter().for_each(|class| note_nat64(core, class, e));
            e.rule = Rule::Own;
            step(answer.answer6(packet, &view, l4)?, e)
        }
        Class6::Siit(number, siit) => {
            note_stateless(core, number, e);
            e.mtu = Some(mtu::packet_too_big(siit.settings()));
            let whole = step(siit.six_to_four(packet, &view, l4, 0)?, e)?;
            Ok(on_known_path(core, packet, e, whole))
        }
        Class6::Nobody(reason) => Err(reason.into()),
    }
}

fn outbound6(
    core: &Core,
    packet: &mut Packet<'_>,
    class: &Nat64Class<'_>,
    from: Outbound6,
    e: &mut Explanation,
) -> Prediction {
    if from.view.fragment.is_some_and(|f| !f.is_atomic()) {
        return Err(End::Fate(Fate::Untold));
    }
    match (Query::of(from.l4, true), from.l4) {
        (Some(query), _) => {
            let whole = outward::from6(core, class.nat, packet, &from, &query, e)?;
            Ok(on_known_path(core, packet, e, whole))
        }
        (None, L4::IcmpError { .. }) => Err(End::Fate(Fate::Untold)),
        (None, l4) => {
            class.nat.check_source(from.view.src)?;
            Err(query::unreadable(l4, from.view.proto).into())
        }
    }
}

/// Same as [`crate::path::slow_path`], for IPv4.
fn four(core: &Core, packet: &mut Packet<'_>, e: &mut Explanation) -> Prediction {
    let view = Ipv4View::parse(packet.bytes())?;
    let l4 = view.l4(packet.bytes())?;
    let (class, attribution) = core.classifier().four(&view, l4, packet.realm);
    let tally = &core.state.tally;
    match class {
        Class4::Own(answer) => {
            e.rule = Rule::Own;
            step(answer.answer4(packet, &view, l4)?, e)
        }
        Class4::Nat44(nat) => {
            e.instance = tally.number(attribution.account);
            (e.rule, e.mtu) = (Rule::Inside, Some(nat.link.mtu));
            e.pool = Some(core.state.tables.pool_of(nat.policy.instance));
            let query = whole_query(&view, l4, true)?;
            outward::from4(core, packet, &Outbound4 { nat, view, l4 }, &query, e)
        }
        Class4::Exempt { .. } => {
            e.instance = tally.number(attribution.account);
            e.rule = Rule::Exempt;
            Err(End::Fate(Fate::Pass))
        }
        Class4::Pool(at) => {
            (e.rule, e.pool) = (Rule::Pool(at.pool), Some(at.pool));
            e.instance = tally.number(Account::Pool(at.pool));
            to_pool(core, packet, &Inbound { view, l4, at }, e)
        }
        Class4::Siit(number, siit) => {
            note_stateless(core, number, e);
            e.mtu = Some(mtu::fragmentation_needed(&view, siit.settings()).into());
            step(siit.four_to_six(packet, &view, l4)?, e)
        }
        Class4::Nobody(reason) => {
            e.instance = tally.number(attribution.account);
            Err(reason.into())
        }
    }
}

/// Forecasts a packet to a pool address.
fn to_pool(core: &Core, packet: &mut Packet<'_>, from: &Inbound, e: &mut Explanation) -> Prediction {
    let query = whole_query(&from.view, from.l4, false)?;
    let (instance, to) = inward::query(core, from, &query, e)?;
    e.mtu = Some(inward::mtu(instance, &from.view));
    Ok(instance.write_inbound(packet, &from.view, from.l4, &to)?)
}

fn note_nat64(core: &Core, class: &Nat64Class<'_>, e: &mut Explanation) {
    e.instance = Some(class.owner.instance.into());
    e.pool = Some(core.state.tables.pool_of(class.owner.instance));
    e.mtu = Some(mtu::packet_too_big(&class.nat.settings));
}

fn note_stateless(core: &Core, number: usize, e: &mut Explanation) {
    (e.rule, e.instance) = (Rule::Stateless, core.state.tally.number(Account::Stateless(number)));
}

/// Checks if a translated packet is fragmented for its path, if it was IPv6 (same as
/// [`crate::path::path_mtu`]).
fn on_known_path(core: &Core, packet: &mut Packet<'_>, e: &mut Explanation, whole: Whole) -> Whole {
    let Ok(view) = Ipv4View::parse(packet.bytes()) else { return whole };
    e.path_mtu = core.state.paths.known(core.state.tables.now, view.dst);
    match e.path_mtu {
        Some(path) if whole == Whole::Yes && !e.hairpinned => mtu::narrow(packet, &view, path.into()),
        _ => whole,
    }
}

/// Hairpins a query whose outgoing destination is a pool address (same as
/// [`crate::path::stateful::hairpin`]).
fn hairpinned(
    core: &Core,
    packet: &mut Packet<'_>,
    inbound: &InboundQuery,
    out: (u8, &OutboundRewrite),
    e: &mut Explanation,
) -> Prediction {
    e.hairpinned = true;
    // An echo request arrives with a random identifier, which may be bound or not.
    let by_chance = matches!(e.opening, Some(Opening::Port(PortPreview { port: None, .. })));
    if by_chance && inbound.query.transport == Transport::Icmp {
        return Err(End::Fate(Fate::Untold));
    }
    if hairpin::hops(packet.bytes()) <= 2 {
        return Err(DropReason::TtlExceeded.into());
    }
    let mut receiver = *e;
    // The explanation reports the subscriber and the opening of the sender, not those of the receiver.
    let (instance, back) = match inward::admit(core, inbound, &mut receiver) {
        Ok(admitted) => admitted,
        Err(InboundRefusal::Drop(refusal)) => return Err(refusal.into()),
        Err(InboundRefusal::Hold) => return Err(inward::would_hold(core, out.1.addresses().1, inbound)),
    };
    if let Some(refusal) = hairpin::too_big(packet, instance) {
        return Err(refusal.into());
    }
    let turned = hairpin::turn(&core.rules, packet, out, (instance.policy().instance, &back))?;
    step(turned, e)
}

/// Converts a step of the packet path to the packet's fate.
fn step(done: Step, e: &mut Explanation) -> Prediction {
    match done {
        Step::Forward { whole, hairpinned } => {
            e.hairpinned = hairpinned;
            Ok(whole)
        }
        Step::Pass => Err(End::Fate(Fate::Pass)),
        Step::Echo => Err(End::Fate(Fate::Echo)),
        Step::Held => Err(End::Fate(Fate::Held)),
        Step::Lost(reason) => Err(End::Fate(Fate::Drop(reason, None))),
    }
}

/// Returns the query of an IPv4 packet that is not a fragment.
fn whole_query(view: &Ipv4View, l4: L4, outbound: bool) -> Result<Query, End> {
    match (Query::of(l4, outbound), l4) {
        _ if view.fragment.is_some() => Err(End::Fate(Fate::Untold)),
        (Some(query), _) => Ok(query),
        (None, L4::IcmpError { .. }) => Err(End::Fate(Fate::Untold)),
        (None, l4) => Err(query::unreadable(l4, view.proto).into()),
    }
}
