//! What would become of a packet, and why: the way of a query through the engine, read and not gone.
//!
//! Nothing changes: no session or port is made, no counter moves, no time is extended. So the decisions of
//! `crate::path::stateful` that change state as they are made stand here a second time, as questions; everything else
//! (parsing, whose a packet is, header translation, which ICMP error answers) is the packet path's own code. A test
//! compares the two, over random histories: what is foretold is what happens. Of a session whose time is over, and which
//! the sweep has yet to find (it takes four seconds at most), only itself counts as ended, not what ends with it.
//!
//! - this file: whose the packet is, as `crate::path::dispatch` has it, and its fate.
//! - `outward`: queries from inside, and the quotas, addresses and ports that a new session would meet.
//! - `inward`: queries to a public address, hairpins' second half too.

mod inward;
mod outward;

use crate::base::counters::Direction;
use crate::base::plan::{Net6, Transport};
use crate::base::step::Step;
use crate::engine::{Core, Nat};
use crate::lifecycle::inspect::{BindingInfo, SessionInfo};
use crate::path::icmp_reply;
use crate::path::nat44;
use crate::path::nat64;
use crate::path::nat64::From6;
use crate::path::own::{self, ToOwn};
use crate::path::siit::SiitState;
use crate::path::stateful::filter::Refused;
use crate::path::stateful::inbound::FromOutside;
use crate::path::stateful::{Outward, Query, hairpin};
use crate::path::super_packet::has_to_be_cut;
use crate::tables::bib::Place;
use crate::tables::pool6::Owner;
use core::net::Ipv4Addr;
use gatun_wire::rfc7915::mtu;
use gatun_wire::{DropReason, Ipv4View, Ipv6View, L4, Packet, Prefix64, Whole};

pub use crate::tables::pool4::foresee::{PortOutlook, PortSource};
pub use gatun_wire::icmp_error::Message;

/// Why a packet is an instance's, or whose it is else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// No prefix, pool, inside network or mapping covers it.
    #[default]
    Nobody,
    /// It is sent to an address of the translator itself.
    Own,
    /// Its destination lies in this prefix of a NAT64 instance, and stands for this IPv4 address.
    Pool6(Prefix64, Ipv4Addr),
    /// Its source is inside of a NAT44 instance.
    Inside,
    /// As [`Rule::Inside`], or on its way back there, and exempt from translation.
    Exempt,
    /// Its destination is a public address of this pool, by number.
    Pool(usize),
    /// Its destination lies in a prefix or mapping of a stateless instance.
    Stateless,
}

/// What a subscriber has, beside what it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its inside network; IPv4 ones as ::ffff:a.b.c.d.
    pub network: Net6,
    /// Whether it has state.
    pub is_known: bool,
    /// The public address that it is paired with.
    pub address: Option<Ipv4Addr>,
    /// Sessions.
    pub sessions: u32,
    /// Sessions that it may have.
    pub sessions_max: u32,
    /// Ports by transport, in the order of [`Transport`].
    pub ports: [u16; 3],
    /// Ports that it may have, of all transports together.
    pub ports_max: u32,
    /// Of these, by transport.
    pub ports_max_by: [u32; 3],
    /// Port blocks of the transport that was asked for.
    pub blocks: u32,
    /// Port blocks that it may have; 0 where the pool has none.
    pub blocks_max: u32,
}

/// What a new session would go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The binding that its inside end has.
    Binding(BindingInfo),
    /// A public port that it shares with other flows.
    Shared(BindingInfo),
    /// A new port.
    Port(PortOutlook),
}

/// What would become of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It would be translated and sent on; the buffer holds it so, with zero where a new port would stand.
    Forward {
        /// Cut into fragments no longer than this.
        cut_to: Option<u32>,
    },
    /// It is not for the translator.
    Pass,
    /// It is an echo request to the translator itself, and would be answered.
    Echo,
    /// It is a SYN that would wait for the inside host to open the connection (RFC 6146 3.5.2.2).
    Held,
    /// It would be dropped for this reason, and answered by this ICMP error, as far as the limit of errors allows.
    Drop(DropReason, Option<Message>),
    /// Nothing is foretold: it is no query of TCP, UDP or ICMP in one piece, or a ping from inside to a public
    /// address, whose way back in chance decides.
    Untold,
}

/// What would become of a packet, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Which way it goes.
    pub direction: Direction,
    /// Whose it is: a number in the order of [`Nat::instance_stats`].
    pub instance: Option<usize>,
    /// Why.
    pub rule: Rule,
    /// The pool whose addresses count, by number.
    pub pool: Option<usize>,
    /// The inside host's subscriber.
    pub subscriber: Option<Standing>,
    /// The session that there is.
    pub session: Option<SessionInfo>,
    /// The binding that there is at the public address and port.
    pub binding: Option<BindingInfo>,
    /// What a new session would go through.
    pub opening: Option<Opening>,
    /// Whether it would be turned round, to an inside host.
    pub hairpinned: bool,
    /// The largest packet like this one that is not answered with "too big" or cut for its size, bytes.
    pub mtu: Option<u32>,
    /// What a path to its destination carries, where a router has said less than IPv6 hosts send.
    pub path_mtu: Option<u16>,
    /// What would become of it.
    pub fate: Fate,
}

/// An early end: of a query, by its reason, or in another way.
pub(super) enum End {
    Drop(DropReason),
    Fate(Fate),
}

impl From<DropReason> for End {
    fn from(reason: DropReason) -> Self {
        End::Drop(reason)
    }
}

type Outlook = Result<Whole, End>;

impl Nat {
    /// What would become of a packet that came now: at the time of the last burst or sweep. The buffer is the
    /// caller's copy; where the packet would be forwarded, it holds the translated one afterwards.
    pub fn explain(&self, packet: &mut Packet<'_>) -> Explanation {
        let core = &self.core;
        let mut e = Explanation {
            direction: core.direction(packet),
            instance: None,
            rule: Rule::Nobody,
            pool: None,
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
        let outlook = match packet.bytes().first().map(|b| b >> 4) {
            Some(6) => core.explain6(packet, &mut e),
            Some(4) => core.explain4(packet, &mut e),
            Some(_) => Err(DropReason::BadVersion.into()),
            None => Err(DropReason::ShortL3.into()),
        };
        e.fate = match outlook {
            Ok(Whole::Yes) => Fate::Forward { cut_to: None },
            Ok(Whole::Split(max)) => Fate::Forward { cut_to: Some(max) },
            Err(End::Fate(fate)) => fate,
            Err(End::Drop(reason)) if has_to_be_cut(packet, reason) => Fate::Untold,
            Err(End::Drop(reason)) => {
                packet.realm = realm;
                Fate::Drop(reason, core.answer_to(packet, &e, reason))
            }
        };
        e
    }

    /// The realm of a stateful instance's inside: what a packet from there has, and what it is told apart by.
    pub fn realm_of(&self, instance: u8) -> u8 {
        self.core.instances().get(instance).map_or(0, |instance| instance.policy().realm)
    }

    /// The prefix behind which an IPv6 host most likely finds IPv4 ones: the first one of a NAT64 instance, of the first
    /// where none is named.
    pub fn first_pool6(&self, instance: Option<u8>) -> Option<Prefix64> {
        let meant = |nat: &&nat64::Nat64| instance.is_none_or(|number| number == nat.policy.instance);
        self.core.nat64.iter().filter(meant).find_map(|nat| nat.prefixes().next()).map(|(_, prefix)| *prefix)
    }
}

impl Core {
    /// The error that a drop would be answered with.
    fn answer_to(&self, packet: &Packet<'_>, e: &Explanation, reason: DropReason) -> Option<Message> {
        let bytes = packet.bytes();
        let (own4, own6) = icmp_reply::sources(reason, bytes, (self.shared.own4, self.shared.own6));
        let own = match e.direction {
            Direction::SixToFour => own6.is_some(),
            Direction::FourToSix | Direction::FourToFour => own4.is_some(),
        };
        let message = self.message(packet, e.direction, reason)?;
        (own && self.may_answer(bytes, e.direction, reason)).then_some(message)
    }

    /// As [`Core::dispatch`] for IPv6.
    fn explain6(&self, packet: &mut Packet<'_>, e: &mut Explanation) -> Outlook {
        let view = Ipv6View::parse(packet.bytes())?;
        let l4 = view.l4(packet.bytes())?;
        if let Some((prefix, Owner { instance, pool6 })) =
            self.owners.of_packet(view.src, view.dst, packet.realm)
        {
            e.instance = Some(instance.into());
            e.rule = Rule::Pool6(*prefix, prefix.extract_unchecked(view.dst));
            return self.explain_nat64(packet, From6 { view, l4, instance, pool6 }, e);
        }
        if self.shared.own6 == Some(view.dst)
            && let Some(fate) = own::at_own6(&self.shared, &self.siit, ToOwn::six(&view, l4))
        {
            e.rule = Rule::Own;
            return step(fate.answer6(packet, &view, l4)?, e);
        }
        let mut stateless = self.siit.iter().enumerate();
        let (number, siit) =
            stateless.find(|(_, s)| s.claims6(view.dst)).ok_or(DropReason::DestinationNotPool6)?;
        self.is_stateless(number, e);
        e.mtu = Some(mtu::packet_too_big(siit.settings()));
        step(siit.six_to_four(packet, &view, l4, 0)?, e).map(|whole| self.on_known_path(packet, e, whole))
    }

    fn explain_nat64(&self, packet: &mut Packet<'_>, from: From6, e: &mut Explanation) -> Outlook {
        let sh = &self.shared;
        let nat = self.nat64.get(usize::from(from.instance)).ok_or(DropReason::NoSession)?;
        e.pool = Some(sh.tables.pool_of(from.instance));
        e.mtu = Some(mtu::packet_too_big(&nat.settings));
        let behind = nat.prefix(from.pool6).extract_unchecked(from.view.dst);
        if (sh.own4 == Some(behind) || sh.own6 == Some(from.view.dst))
            && let Some(fate) = ToOwn::six(&from.view, from.l4).fate_at(sh, behind, true)
        {
            e.rule = Rule::Own;
            return step(fate.answer6(packet, &from.view, from.l4)?, e);
        }
        if from.view.fragment.is_some_and(|f| !f.is_atomic()) {
            return Err(End::Fate(Fate::Untold));
        }
        match (Query::of(from.l4, true), from.l4) {
            (Some(query), _) => outward::from6(self, nat, packet, &from, &query, e)
                .map(|whole| self.on_known_path(packet, e, whole)),
            (None, L4::IcmpError { .. }) => Err(End::Fate(Fate::Untold)),
            (None, l4) => {
                nat.check_source(from.view.src)?;
                Err(nat64::icmp::unusable(l4, from.view.proto).into())
            }
        }
    }

    /// As [`Core::dispatch`] for IPv4.
    fn explain4(&self, packet: &mut Packet<'_>, e: &mut Explanation) -> Outlook {
        let view = Ipv4View::parse(packet.bytes())?;
        let l4 = view.l4(packet.bytes())?;
        if self.shared.own4 == Some(view.dst)
            && let Some(fate) = self.at_own4(&view, l4, packet.realm)
        {
            e.rule = Rule::Own;
            return step(fate.answer4(packet, &view, l4)?, e);
        }
        let siit = self.siit.iter().enumerate().find(|(_, s)| s.claims4(view.dst));
        if let Some(nat) = self.inside44(view.src, packet.realm) {
            e.instance = Some(nat.policy.instance.into());
            let port = nat44::remote_port(l4, true).filter(|_| view.fragment.is_none());
            let exempt = nat.is_exempt(view.dst, view.proto, port);
            return match siit {
                Some((number, siit)) if exempt => self.explain_siit4(packet, (number, siit), &view, l4, e),
                None if exempt => {
                    e.rule = Rule::Exempt;
                    Err(End::Fate(Fate::Pass))
                }
                _ => {
                    (e.rule, e.mtu) = (Rule::Inside, Some(nat.link.mtu));
                    e.pool = Some(self.shared.tables.pool_of(nat.policy.instance));
                    let query = whole_query(&view, l4, true)?;
                    outward::from4(self, nat, packet, (&view, l4), &query, e)
                }
            };
        }
        if let Some(place) = self.shared.tables.locate(view.dst) {
            return self.explain_outside(packet, FromOutside { view, l4, place }, e);
        }
        if let Some(siit) = siit {
            return self.explain_siit4(packet, siit, &view, l4, e);
        }
        let Some(nat) = self.first44(view.dst) else { return Err(DropReason::NotInPool.into()) };
        e.instance = Some(nat.policy.instance.into());
        if nat.lets_back(packet.realm, view.src, view.proto, nat44::remote_port(l4, false)) {
            e.rule = Rule::Exempt;
            return Err(End::Fate(Fate::Pass));
        }
        Err(DropReason::NotInPool.into())
    }

    fn explain_siit4(
        &self,
        packet: &mut Packet<'_>,
        (number, siit): (usize, &SiitState),
        view: &Ipv4View,
        l4: L4,
        e: &mut Explanation,
    ) -> Outlook {
        self.is_stateless(number, e);
        e.mtu = Some(mtu::fragmentation_needed(view, siit.settings()).into());
        step(siit.four_to_six(packet, view, l4)?, e)
    }

    /// To a pool address.
    fn explain_outside(&self, packet: &mut Packet<'_>, from: FromOutside, e: &mut Explanation) -> Outlook {
        let FromOutside { view, l4, place } = from;
        (e.rule, e.pool) = (Rule::Pool(place.pool), Some(place.pool));
        let tally = &self.shared.tally;
        e.instance = tally.number(tally.of_pool(place.pool));
        let query = whole_query(&view, l4, false)?;
        let remote = (view.src, query.src_port);
        let expired = view.ttl <= 1;
        let (instance, to) = inward::query(self, (view.dst, place), &query, remote, expired, e)?;
        e.mtu = Some(inward::mtu(instance, &view));
        Ok(instance.write_inward(packet, &view, l4, &to)?)
    }

    fn is_stateless(&self, number: usize, e: &mut Explanation) {
        let tally = &self.shared.tally;
        (e.rule, e.instance) = (Rule::Stateless, tally.number(tally.stateless(number)));
    }

    /// Whether a translated packet, once IPv6, is cut for its path (as [`Core::on_its_path`]).
    fn on_known_path(&self, packet: &mut Packet<'_>, e: &mut Explanation, whole: Whole) -> Whole {
        let Ok(view) = Ipv4View::parse(packet.bytes()) else { return whole };
        e.path_mtu = self.shared.paths.known(self.shared.tables.now, view.dst);
        match e.path_mtu {
            Some(path) if whole == Whole::Yes && !e.hairpinned => mtu::narrow(packet, &view, path.into()),
            _ => whole,
        }
    }

    /// Turns a query round whose outgoing destination is a pool address, as [`crate::path::stateful::hairpin`].
    fn explain_hairpin(
        &self,
        packet: &mut Packet<'_>,
        (place, query, remote): (Place, &Query, (Ipv4Addr, u16)),
        out: (u8, &Outward),
        e: &mut Explanation,
    ) -> Outlook {
        e.hairpinned = true;
        // An echo request arrives with the identifier that chance gives it: at somebody's or nobody's.
        let by_chance = matches!(e.opening, Some(Opening::Port(PortOutlook { port: None, .. })));
        if by_chance && query.transport == Transport::Icmp {
            return Err(End::Fate(Fate::Untold));
        }
        if hairpin::hops(packet.bytes()) <= 2 {
            return Err(DropReason::TtlExceeded.into());
        }
        let mut receiver = *e;
        // Whose it is and what it opens is told of the sender.
        let (instance, back) = match inward::admit(self, place, query, remote, &mut receiver) {
            Ok(admitted) => admitted,
            Err(Refused::Drop(reason)) => return Err(reason.into()),
            Err(Refused::Hold) => {
                let outside = (out.1.addresses().1, query.dst_port);
                return Err(inward::would_hold(self, outside, place, remote));
            }
        };
        if let Some((reason, _)) = hairpin::too_big(packet, instance) {
            return Err(reason.into());
        }
        let step_done = hairpin::turn(self.instances(), packet, out, (instance.policy().instance, &back))?;
        step(step_done, e)
    }
}

/// What a step of the packet path says of the packet's fate.
fn step(done: Step, e: &mut Explanation) -> Outlook {
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

/// The query of an IPv4 packet in one piece.
fn whole_query(view: &Ipv4View, l4: L4, outbound: bool) -> Result<Query, End> {
    match (Query::of(l4, outbound), l4) {
        _ if view.fragment.is_some() => Err(End::Fate(Fate::Untold)),
        (Some(query), _) => Ok(query),
        (None, L4::IcmpError { .. }) => Err(End::Fate(Fate::Untold)),
        (None, l4) => Err(nat64::icmp::unusable(l4, view.proto).into()),
    }
}
