//! Rules derived from a plan: instances, own addresses, and the choice of ICMP errors that are sent.
//!
//! NAT64 (RFC 6146) and NAT44 (RFC 4787, 5382, 5508, 6888, 7857) share one engine. [`nat64`] and [`nat44`]
//! contain the differences: which packets belong to an instance, and how they are written.
//!
//! An inside IPv4 address is written as ::ffff:a.b.c.d in keys and records. Instance numbers form one space:
//! first those of NAT64, then those of NAT44. So both kinds can share pools.

pub(crate) mod nat44;
pub(crate) mod nat64;

use crate::base::build_error::BuildError;
use crate::base::counters::Direction;
use crate::base::plan::{IcmpPolicy, Plan, Transport};
use crate::path::policy::Policy;
use crate::path::query;
use crate::path::rewrite::InboundRewrite;
use crate::path::siit::SiitState;
use crate::tables::bib::Tables;
use crate::tables::prefixes::Prefixes;
use crate::tables::session::{Endpoint4, Session};
use crate::tables::subscriber::SubscriberKey;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::rfc3022::{self, Rewrite};
use gatun_wire::rfc7915::four_to_six;
use gatun_wire::{DropReason, Ipv4View, L4, Packet, Prefix64, Settings, To6, Whole, proto};
use nat44::Nat44;
use nat64::Nat64;

/// Rules by which an engine translates. Packets do not change them.
pub(crate) struct Rules {
    pub(crate) nat64: Vec<Nat64>,
    pub(crate) nat44: Vec<Nat44>,
    pub(crate) siit: Arc<[SiitState]>,
    /// Prefixes of all NAT64 instances.
    pub(crate) prefixes: Prefixes,
    /// True if realms or sources choose instances ([`Plan::is_ruled`]).
    pub(crate) ruled: bool,
    /// Largest number of a realm.
    pub(crate) realm_max: u8,
    pub(crate) own4: Option<Ipv4Addr>,
    pub(crate) own6: Option<Ipv6Addr>,
    /// Own addresses that are not also addresses of a pool: their packets need no state.
    pub(crate) own4_apart: Option<Ipv4Addr>,
    own6_apart: Option<Ipv6Addr>,
    /// [`Plan::pooled`].
    pooled: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Settings for packets of no instance.
    pub(crate) settings: Settings,
    /// Indexed by reason: true if its ICMP error is not sent.
    suppressed: [bool; DropReason::COUNT],
    /// Indexed by direction: codes of the errors that report a quota.
    quota_codes: [u8; Direction::COUNT],
    /// Indexed by instance.
    subscriber_lens: Vec<u8>,
}

/// A stateful instance of either kind.
#[derive(Clone, Copy)]
pub(crate) enum Instance<'r> {
    Nat64(&'r Nat64),
    Nat44(&'r Nat44),
}

impl Rules {
    /// Derives the rules of a plan. `had` has the prefixes that each NAT64 instance has had, by number: they
    /// keep their numbers.
    ///
    /// # Errors
    /// Returns an error if there are more instances or prefixes than numbers.
    pub(crate) fn new(
        plan: &Plan,
        siit: Arc<[SiitState]>,
        had: &[Vec<Prefix64>],
    ) -> Result<Self, BuildError> {
        check_counts(plan)?;
        let mut nat64 = Vec::with_capacity(plan.nat64.len());
        for (number, of_plan) in plan.nat64.iter().enumerate() {
            let had = had.get(number).map_or(&[][..], Vec::as_slice);
            nat64.push(Nat64::with_prefixes(number as u8, of_plan, &plan.nat64, had)?);
        }
        let first44 = nat64.len();
        let of44 = plan.nat44.iter().enumerate();
        let nat44: Vec<Nat44> = of44.map(|(i, n)| Nat44::new((first44 + i) as u8, n)).collect();
        let owned = nat64.iter().flat_map(Nat64::owned_prefixes).collect();
        let lens64 = nat64.iter().map(|n| n.policy.subscriber_len);
        Ok(Rules {
            prefixes: Prefixes::new(owned, &plan.nat64),
            ruled: plan.is_ruled(),
            realm_max: plan.realms().max().unwrap_or(0),
            own4: plan.own4,
            own6: plan.own6,
            own4_apart: plan.own4.filter(|own4| !plan.is_public(*own4)),
            own6_apart: plan.own6.filter(|own6| !plan.represents_public(*own6)),
            pooled: plan.pooled.clone(),
            settings: settings(plan),
            suppressed: suppressed(&plan.icmp),
            quota_codes: [plan.icmp.quota_code6, plan.icmp.quota_code4, plan.icmp.quota_code4],
            subscriber_lens: lens64.chain(nat44.iter().map(|n| n.policy.subscriber_len)).collect(),
            nat64,
            nat44,
            siit,
        })
    }

    /// Returns the stateful instance of this number.
    pub(crate) fn get(&self, number: u8) -> Option<Instance<'_>> {
        self.nat64(number).map(Instance::Nat64).or_else(|| self.nat44(number).map(Instance::Nat44))
    }

    /// Returns the NAT64 instance of this number.
    #[inline]
    pub(crate) fn nat64(&self, number: u8) -> Option<&Nat64> {
        self.nat64.get(usize::from(number))
    }

    /// Returns the NAT44 instance of this number. Their numbers follow those of NAT64.
    #[inline]
    pub(crate) fn nat44(&self, number: u8) -> Option<&Nat44> {
        self.nat44.get(usize::from(number).checked_sub(self.nat64.len())?)
    }

    /// Returns the NAT44 instance with an inside address of a realm.
    #[inline]
    pub(crate) fn inside44(&self, address: Ipv4Addr, realm: u8) -> Option<&Nat44> {
        self.nat44.iter().find(|n| n.is_inside(address, realm))
    }

    /// Same as [`inside44`](Self::inside44), if there are no realms, or if only one is possible.
    #[inline]
    pub(crate) fn first44(&self, address: Ipv4Addr) -> Option<&Nat44> {
        self.nat44.iter().find(|n| n.serves(address))
    }

    /// Iterates over the policies of the instances that use a pool.
    pub(crate) fn of_pool<'r>(&'r self, tables: &'r Tables, pool: usize) -> impl Iterator<Item = &'r Policy> {
        let policies = self.nat64.iter().map(|n| &n.policy).chain(self.nat44.iter().map(|n| &n.policy));
        policies.filter(move |p| tables.pool_of(p.instance) == pool)
    }

    /// Returns whether a packet to a translation prefix is to an own address that is in no pool.
    #[inline]
    pub(crate) fn is_own6(&self, destination: Ipv6Addr, prefix: &Prefix64) -> bool {
        self.own4_apart.is_some_and(|own4| own4 == prefix.extract_unchecked(destination))
            || self.own6_apart == Some(destination)
    }

    /// Returns whether packets to the remote host of a session pass untranslated.
    pub(crate) fn exempts(&self, session: &Session) -> bool {
        let protocol = session.transport().ip_protocol();
        let (remote, port) = session.remote();
        let port = (protocol != proto::ICMP).then_some(port);
        self.nat44(session.instance).is_some_and(|nat| nat.is_exempt(remote, protocol, port))
    }

    /// Returns whether an address is in a pool that several workers share.
    pub(crate) fn is_pooled(&self, a: Ipv4Addr) -> bool {
        self.pooled.iter().any(|&(first, last)| first <= a && a <= last)
    }

    /// Returns whether the error for a reason is switched off.
    pub(crate) fn is_suppressed(&self, reason: DropReason) -> bool {
        self.suppressed.get(reason as usize).copied().unwrap_or(false)
    }

    /// Returns the code of an error that reports a quota.
    pub(crate) fn quota_code(&self, direction: Direction) -> Option<u8> {
        self.quota_codes.get(direction as usize).copied()
    }

    /// Prefix length of a subscriber's inside network, indexed by stateful instance.
    pub(crate) fn subscriber_lens(&self) -> &[u8] {
        &self.subscriber_lens
    }

    /// Returns the subscriber of an instance's inside address.
    pub(crate) fn subscriber(&self, instance: u8, inside: Ipv6Addr) -> Option<SubscriberKey> {
        let len = self.subscriber_lens.get(usize::from(instance))?;
        Some(SubscriberKey::of(instance, inside, *len))
    }
}

impl<'r> Instance<'r> {
    #[inline]
    pub(crate) fn policy(self) -> &'r Policy {
        match self {
            Instance::Nat64(nat) => &nat.policy,
            Instance::Nat44(nat) => &nat.policy,
        }
    }

    /// Returns the number of the prefix that represents a remote host without a session to the inside. It is
    /// 0 for an instance without prefixes, whose inside hosts are IPv4.
    ///
    /// # Errors
    /// `wkp_nonglobal`.
    pub(crate) fn prefix_for(self, of_binding: u8, remote: Ipv4Addr) -> Result<u8, DropReason> {
        match self {
            Instance::Nat64(nat) => nat.prefix_for(of_binding, remote),
            Instance::Nat44(_) => Ok(0),
        }
    }

    /// Records in a new session the change of checksums by its addresses.
    pub(crate) fn mark(self, session: &mut Session, pool6: u8) {
        match self {
            Instance::Nat64(nat) => nat64::set_prefix(session, pool6, nat.prefix(pool6)),
            Instance::Nat44(_) => nat44::set_delta(session),
        }
    }

    /// Rewrite of a packet to the inside of its session.
    #[inline]
    pub(crate) fn inbound(self, session: &Session, transport: Transport) -> InboundRewrite {
        match self {
            Instance::Nat64(nat) => {
                InboundRewrite::To6(nat64::inbound_of(session, transport, nat.prefix(session.pool6)))
            }
            Instance::Nat44(_) => InboundRewrite::To4(nat44::inbound_of(session, transport)),
        }
    }

    /// Rewrite of a packet that goes through a binding without a session (RFC 6146 3.5.2.2, CLOSED).
    pub(crate) fn inbound_by_binding(
        self,
        primary: &Session,
        pool6: u8,
        remote: Endpoint4,
    ) -> InboundRewrite {
        let from = (remote.0, primary.outside().0);
        let ports = query::ports(primary.transport(), remote.1, primary.inside_port(), primary.inside_port());
        match self {
            Instance::Nat64(nat) => {
                let to = (nat.prefix(pool6).embed(remote.0), primary.inside_addr());
                InboundRewrite::To6(To6::new(from, to, ports))
            }
            Instance::Nat44(_) => {
                InboundRewrite::To4(Rewrite::new(from, (remote.0, nat44::inside4(primary)), ports))
            }
        }
    }

    /// Writes a packet from outside for its inside host.
    #[inline]
    pub(crate) fn write_inbound(
        self,
        packet: &mut Packet<'_>,
        view: &Ipv4View,
        l4: L4,
        to: &InboundRewrite,
    ) -> Result<Whole, DropReason> {
        let whole = match (self, to) {
            (Instance::Nat64(nat), InboundRewrite::To6(to)) => {
                four_to_six::translate(packet, view, l4, to, &nat.settings)?
            }
            (Instance::Nat44(nat), InboundRewrite::To4(to)) => {
                rfc3022::translate(packet, view, l4, to, nat.link)?
            }
            // A rewrite of the other kind of instance does not occur.
            _ => return Err(DropReason::NoSession),
        };
        packet.realm = self.policy().realm;
        Ok(whole)
    }
}

/// Checks the numbers of instances and prefixes: records store each in one byte.
fn check_counts(plan: &Plan) -> Result<(), BuildError> {
    const MAX: usize = 255;
    if plan.nat64.len() + plan.nat44.len() > MAX || plan.nat64.iter().any(|n| n.pool6.len() > MAX) {
        return Err(BuildError(format!(
            "at most {MAX} nat64 and nat44 instances, and {MAX} prefixes for each"
        )));
    }
    Ok(())
}

/// Returns the settings for packets of no instance.
fn settings(plan: &Plan) -> Settings {
    let of64 = plan.nat64.first().map(|n| n.settings);
    of64.or_else(|| plan.siit.first().map(|s| s.settings)).unwrap_or_default()
}

/// Returns the reasons whose errors are not sent.
fn suppressed(icmp: &IcmpPolicy) -> [bool; DropReason::COUNT] {
    let mut suppressed = [false; DropReason::COUNT];
    for reason in &icmp.suppressed {
        if let Some(suppressed) = suppressed.get_mut(*reason as usize) {
            *suppressed = true;
        }
    }
    suppressed
}
