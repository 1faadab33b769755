//! NAT64 instances (RFC 6146): prefixes, sources, and how their packets are written.

use crate::base::build_error::BuildError;
use crate::base::plan::{self, IcmpErrorSource, Net6, Transport};
use crate::base::special;
use crate::path::policy::Policy;
use crate::tables::prefixes::PrefixOwner;
use crate::tables::session::{Inside, Session};
use alloc::format;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::rfc7915::address_delta_6to4;
use gatun_wire::{DropReason, Ports, Prefix64, Settings, To4, To6};

/// NAT64 instance, prepared from its plan.
pub(crate) struct Nat64 {
    pub(crate) policy: Policy,
    /// Prefixes by number, including those that the instance had before. Sessions contain these numbers.
    pub(crate) pool6: Vec<Prefix64>,
    /// Numbers of its current prefixes, in the order of the configuration.
    order: Vec<u8>,
    /// The prefixes of all instances. No source may be in one.
    pool6_of_all: Vec<Prefix64>,
    sources: Vec<Net6>,
    wkp_non_global: bool,
    pub(crate) icmp_error_source: IcmpErrorSource,
    pub(crate) settings: Settings,
}

impl Nat64 {
    /// Prepares the instance with this number, one of `all`. Prefixes that it had before keep their numbers.
    ///
    /// # Errors
    /// Returns an error if it has had more prefixes than there are numbers.
    pub(crate) fn with_prefixes(
        instance: u8,
        plan: &plan::Nat64,
        all: &[plan::Nat64],
        had: &[Prefix64],
    ) -> Result<Self, BuildError> {
        let (pool6, order) = number(&plan.pool6, had)
            .ok_or_else(|| BuildError(format!("nat64 {:?} has had more than 255 prefixes", plan.name)))?;
        let policy = Policy {
            instance,
            realm: plan.realm,
            filtering: plan.filtering,
            external_tcp: plan.external_tcp,
            inbound_refresh: plan.inbound_refresh,
            rst_during_fin: plan.rst_during_fin,
            icmp_queries: plan.icmp_queries,
            subscriber_len: plan.subscriber_len,
            timeouts: plan.timeouts,
            established_ms: Transport::ALL.map(|transport| plan.timeouts.established_ms(transport)),
        };
        Ok(Nat64 {
            policy,
            pool6,
            order,
            pool6_of_all: all.iter().flat_map(|n| n.pool6.iter().copied()).collect(),
            sources: plan.sources.clone(),
            wkp_non_global: plan.wkp_non_global,
            icmp_error_source: plan.icmp_error_source,
            settings: plan.settings,
        })
    }

    /// Iterates over its prefixes with their numbers.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = (u8, &Prefix64)> {
        self.order.iter().filter_map(|&n| Some((n, self.pool6.get(usize::from(n))?)))
    }

    /// Iterates over its prefixes, with the numbers of the instance and of the prefix.
    pub(crate) fn owned_prefixes(&self) -> impl Iterator<Item = (Prefix64, PrefixOwner)> {
        let instance = self.policy.instance;
        self.prefixes().map(move |(pool6, &prefix)| (prefix, PrefixOwner { instance, pool6 }))
    }

    /// Returns whether the instance currently has the prefix of this number.
    pub(crate) fn is_served(&self, pool6: u8) -> bool {
        self.order.contains(&pool6)
    }

    /// Returns whether sessions of an inside host may continue.
    pub(crate) fn accepts(&self, inside: Ipv6Addr) -> bool {
        self.check_source(inside).is_ok()
    }

    /// Returns the prefix of number `pool6`. For a removed prefix, it returns the first one.
    #[inline]
    pub(crate) fn prefix(&self, pool6: u8) -> &Prefix64 {
        let prefix = self.pool6.get(usize::from(pool6)).or(self.pool6.first());
        prefix.unwrap_or(&Prefix64::WELL_KNOWN)
    }

    /// Returns the number of the longest of the instance's prefixes that contains an address.
    #[inline]
    pub(crate) fn prefix_of(&self, address: Ipv6Addr) -> Option<u8> {
        let mut best: Option<(u8, u8)> = None;
        for (n, p) in self.prefixes() {
            if p.contains(address) && best.is_none_or(|(_, len)| p.len() > len) {
                best = Some((n, p.len()));
            }
        }
        best.map(|(i, _)| i)
    }

    /// Checks if an IPv6 source may use this instance.
    #[inline]
    pub(crate) fn check_source(&self, src: Ipv6Addr) -> Result<(), DropReason> {
        self.check_origin(src)?;
        if !self.sources.is_empty() && !self.sources.iter().any(|n| n.contains(src)) {
            return Err(DropReason::SourceNotAllowed);
        }
        Ok(())
    }

    /// Checks if a packet may come from an IPv6 address at all. Errors also come from routers, which are in
    /// no list of sources.
    #[inline]
    pub(crate) fn check_origin(&self, src: Ipv6Addr) -> Result<(), DropReason> {
        // RFC 6146 3.5: a packet with a source inside a prefix is in a loop.
        if self.pool6_of_all.iter().any(|p| p.contains(src)) {
            return Err(DropReason::SourceInPool6);
        }
        if special::illegal_source6(src) {
            return Err(DropReason::SourceMartian);
        }
        Ok(())
    }

    /// Returns the number of the prefix that represents a remote address to an inside host without a session
    /// to it: the prefix of the binding, otherwise the instance's first one that may represent the address
    /// (RFC 6052 3.1).
    pub(crate) fn prefix_for(&self, of_binding: u8, remote: Ipv4Addr) -> Result<u8, DropReason> {
        let of_binding = Some(of_binding).filter(|&pool6| self.is_served(pool6));
        let mut candidates = of_binding.into_iter().chain(self.order.iter().copied());
        candidates
            .find(|&pool6| self.check_embedded(pool6, remote).is_ok())
            .ok_or(DropReason::WellKnownNonGlobal)
    }

    /// Returns whether a prefix may represent a router's IPv4 address. The well-known prefix may not
    /// represent a private one (RFC 6052 3.1); the error then seems to come from the packet's destination.
    pub(crate) fn can_stand_for(&self, pool6: u8, router: Ipv4Addr) -> bool {
        !special::illegal_source4(router) && self.check_embedded(pool6, router).is_ok()
    }

    /// Checks if the prefix `pool6` may represent an IPv4 address (RFC 6052 3.1).
    pub(crate) fn check_embedded(&self, pool6: u8, v4: Ipv4Addr) -> Result<(), DropReason> {
        if !self.wkp_non_global && special::well_known_non_global(self.prefix(pool6), v4) {
            return Err(DropReason::WellKnownNonGlobal);
        }
        Ok(())
    }
}

/// Assigns numbers to `prefixes`, after those that have numbers already. Returns all prefixes by number, and
/// the numbers in order; `None` if there are too many.
fn number(prefixes: &[Prefix64], had: &[Prefix64]) -> Option<(Vec<Prefix64>, Vec<u8>)> {
    let (mut all, mut order) = (had.to_vec(), Vec::new());
    for prefix in prefixes {
        let known = all.iter().position(|p| p == prefix);
        let number = known.unwrap_or(all.len());
        if known.is_none() {
            all.push(*prefix);
        }
        order.push(u8::try_from(number).ok().filter(|&n| n < u8::MAX)?);
    }
    Some((all, order))
}

/// Returns the IPv4 form of a packet of this session, whose transport the caller knows.
#[inline(always)]
pub(crate) fn outbound_of(session: &Session, transport: Transport) -> To4 {
    let (src, src_port) = session.outside();
    let (dst, dst_port) = session.remote();
    let ports = match transport {
        Transport::Icmp => Ports::EchoId(src_port),
        _ => Ports::Set { src: src_port, dst: dst_port },
    };
    To4 { src, dst, ports, addresses: session.address_delta() }
}

/// Returns the IPv6 form of a packet to this session's inside, as [`outbound_of`] does for the other
/// direction.
#[inline(always)]
pub(crate) fn inbound_of(session: &Session, transport: Transport, prefix: &Prefix64) -> To6 {
    let (remote, remote_port) = session.remote();
    let ports = match transport {
        Transport::Icmp => Ports::EchoId(session.inside_port()),
        _ => Ports::Set { src: remote_port, dst: session.inside_port() },
    };
    To6 {
        src: prefix.embed(remote),
        dst: session.inside_addr(),
        ports,
        addresses: session.address_delta().inverse(),
    }
}

/// Records in a session the prefix that the inside uses towards its remote address, and the change of
/// checksums by its addresses.
pub(crate) fn set_prefix(session: &mut Session, pool6: u8, prefix: &Prefix64) {
    let (remote, _) = session.remote();
    let delta =
        address_delta_6to4((session.inside_addr(), prefix.embed(remote)), (session.outside().0, remote));
    session.set_pool6(pool6, delta);
}

/// Returns the inside transport address of the sender of a packet.
#[inline]
pub(crate) fn inside_of(nat: &Nat64, addr: Ipv6Addr, port: u16, transport: Transport) -> Inside {
    Inside { addr, port, transport, instance: nat.policy.instance }
}
