//! The translator's own packets: echo replies, and rate-limited ICMP errors.

use super::addresses::{v4, v6};
use super::ends::{ICMP, TCP, UDP};
use super::{Fate, Model, Observed, RealmPacket, Result, Way};
use crate::wire::sum::adjusted;
use crate::wire::to4::Header4;
use crate::wire::to6::{self, Header6};
use crate::wire::{Header, L4, errors, get16, parse, proto, put16};
use gatun_wire::{DropReason, Settings};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Realm, and first address of a network.
pub(super) type ErrorSource = (u8, u128);

/// Network of `len` bits of an address.
pub(super) fn error_source(realm: u8, a: Ipv6Addr, len: u32) -> ErrorSource {
    let host_bits = 128 - len;
    (realm, u128::from(a).checked_shr(host_bits).unwrap_or(0).checked_shl(host_bits).unwrap_or(0))
}

impl Model {
    /// The error that answers a packet dropped for `reason`; `None` if no error answers it or none may be
    /// sent.
    pub(super) fn answer(
        &mut self,
        way: Way,
        reason: DropReason,
        in_realm: &RealmPacket,
        seen: &Observed,
    ) -> Option<Vec<u8>> {
        let packet = &in_realm.bytes[..];
        let s = self.settings_for(way, in_realm);
        let turned_mtu = self.turned_mtu.take();
        let (message, may) = match way {
            Way::SixToFour => (errors::for_ipv6(reason, packet, &s)?, errors::may_answer6(packet)),
            Way::FourToSix => (errors::for_ipv4(reason, packet, &s)?, errors::may_answer4(packet)),
            Way::FourToFour => {
                (errors::for_nat44(reason, packet, self.mtu44(in_realm), &s)?, errors::may_answer4(packet))
            }
        };
        if self.plan.icmp.suppressed.contains(&reason) || !may {
            self.counters.icmp_errors_suppressed += 1;
            return None;
        }
        let too_big = matches!(reason, DropReason::TooBig6 | DropReason::TooBig4);
        if !self.take_error_token(self.error_source(way, in_realm), too_big) {
            return None;
        }
        let (kind, mut code, mut word) = message;
        word = turned_mtu.unwrap_or(word);
        if errors::is_quota(reason) {
            let policy = &self.plan.icmp;
            code = if way == Way::SixToFour { policy.quota_code6 } else { policy.quota_code4 };
        }
        // RFC 4443 2.2 a: an error about a packet to one of the translator's addresses comes from that
        // address.
        let about_own = matches!(reason, DropReason::OwnUdp | DropReason::OwnProtocol);
        let (own6, own4) = match about_own {
            false => (self.plan.own6, self.plan.own4),
            true if way == Way::SixToFour => (address(packet, 24), None),
            true => (None, parse::parse4(packet, false).ok().map(|h| v4(h.dst))),
        };
        Some(match way {
            Way::SixToFour => errors::error6(packet, own6?, (kind, code, word)),
            Way::FourToSix | Way::FourToFour => {
                let ident = if seen.bytes.len() >= 6 { get16(&seen.bytes, 4) } else { 0 };
                errors::error4(packet, own4?, (kind, code, word), ident, s.icmp4_error_max.into())
            }
        })
    }

    /// MTU of the NAT44 instance that a packet comes from or goes to.
    fn mtu44(&self, in_realm: &RealmPacket) -> u32 {
        let ends = parse::parse4(&in_realm.bytes, false).map(|h| (v4(h.src), v4(h.dst))).ok();
        let inside = ends.and_then(|(src, _)| self.inside44(in_realm.realm, src)).map(|i| self.nat44(i).mtu);
        let pool = ends.and_then(|(_, dst)| self.pool_of(dst));
        let of_pool = || self.plan.nat44.iter().find(|n| Some(n.pool) == pool).map(|n| n.mtu);
        inside.or_else(of_pool).or(self.plan.nat44.first().map(|n| n.mtu)).unwrap_or(0)
    }

    /// Source for whose error rate a packet counts: its subscriber, otherwise its /64 or its IPv4 address.
    fn error_source(&self, way: Way, in_realm: &RealmPacket) -> ErrorSource {
        let RealmPacket { realm, bytes: packet } = in_realm;
        let len_of = |instance: usize| self.rules[instance].subscriber_len;
        if way == Way::SixToFour {
            let at = |at: usize| packet.get(at..at + 16).and_then(|b| <[u8; 16]>::try_from(b).ok());
            let Some((src, dst)) = at(8).zip(at(24)) else { return (*realm, 0) };
            let (src, dst) = (Ipv6Addr::from(src), Ipv6Addr::from(dst));
            let len = self.owner6(*realm, src, dst).map_or(64, |(instance, _)| len_of(instance));
            return error_source(*realm, src, len);
        }
        let src = parse::parse4(packet, false).map_or(Ipv4Addr::UNSPECIFIED, |h| v4(h.src));
        let len = self.inside44(*realm, src).map_or(128, len_of);
        error_source(*realm, src.to_ipv6_mapped(), len)
    }

    /// RFC 4443 2.4 f, RFC 1812 4.3.2.8: a token bucket for each source, and a global one. The last quarter
    /// of each is reserved for errors about sizes.
    pub(super) fn take_error_token(&mut self, source: ErrorSource, too_big: bool) -> bool {
        let policy = self.plan.icmp.clone();
        let reserved = |burst: u32| if too_big { 0 } else { u64::from(burst / 4) };
        // The use of a source's rate is kept as the time that it takes to earn it.
        let now = self.now * 1_000_000;
        let used_until = 1_000_000_000u64.checked_div(policy.rate_per_source.into()).map(|each| {
            let used_until = self.error_sources.get(&source).copied().unwrap_or(0).max(now) + each;
            (used_until, each * (u64::from(policy.burst_per_source) - reserved(policy.burst_per_source)))
        });
        if used_until.is_some_and(|(used_until, most)| used_until - now > most) {
            self.counters.icmp_errors_limited_per_source += 1;
            self.coverage.mark("a source exceeds its rate of ICMP errors");
            return false;
        }
        let gained = (self.now - self.error_tokens_at).saturating_mul(policy.rate.into());
        self.error_tokens = self.error_tokens.saturating_add(gained).min(u64::from(policy.burst) * 1000);
        self.error_tokens_at = self.now;
        if self.error_tokens < 1000 + reserved(policy.burst) * 1000 {
            self.counters.icmp_errors_limited += 1;
            return false;
        }
        self.error_tokens -= 1000;
        if let Some((used_until, _)) = used_until {
            self.error_sources.insert(source, used_until);
        }
        true
    }

    /// Settings of the NAT64 instance that a packet is for, or of the first one.
    fn settings_for(&self, way: Way, in_realm: &RealmPacket) -> Settings {
        let RealmPacket { realm, bytes: packet } = in_realm;
        let instance = match way {
            Way::SixToFour => address(packet, 8)
                .zip(address(packet, 24))
                .and_then(|(src, dst)| self.owner6(*realm, src, dst))
                .map(|owner| owner.0),
            _ => parse::parse4(packet, false).ok().and_then(|h| {
                let pool = self.pool_of(v4(h.dst))?;
                self.plan.nat64.iter().position(|n| n.pool == pool)
            }),
        };
        self.plan.nat64.get(instance.unwrap_or(0)).map(|n| n.settings).unwrap_or_default()
    }

    /// Handles a packet to an own address, or to its embedded form; `address` is its IPv4 form. Own
    /// addresses act as a host (RFC 1122 3.2.1.3). `None` if the packet is for a pool that contains the
    /// address.
    pub(super) fn for_itself(
        &self,
        packet: &[u8],
        h: &Header<'_>,
        l4: L4,
        (address, from_inside): (Option<Ipv4Addr>, bool),
        seen: &Observed,
    ) -> Option<Result<Fate>> {
        let may_answer = match h.src {
            IpAddr::V4(_) => errors::may_answer4(packet),
            IpAddr::V6(_) => errors::may_answer6(packet),
        };
        if address.is_some_and(|a| self.is_the_pools(h, l4, a, from_inside)) {
            return None;
        }
        Some(match l4 {
            L4::Echo { request: true, .. } if h.is_whole() => self.answer_ping(h, may_answer, seen),
            _ if !h.is_whole() => Err(DropReason::OwnOther),
            L4::Udp { .. } => Err(DropReason::OwnUdp),
            L4::Other if h.proto != proto::IGMP && h.proto != proto::NO_NEXT => Err(DropReason::OwnProtocol),
            _ => Err(DropReason::OwnOther),
        })
    }

    /// Choice: an own address may also be a pool's. Packets to a bound port go to its binding, pings only if
    /// the configuration has bound their identifier. Unbound ports belong to the pool from outside, and for
    /// TCP, where a SYN may have to be held (RFC 5382 REQ-4).
    fn is_the_pools(&self, h: &Header<'_>, l4: L4, a: Ipv4Addr, from_inside: bool) -> bool {
        let Some(pool) = self.pool_of(a) else {
            // Another worker handles its own address: packets to it arrive there as from outside.
            let is_others = self.plan.pooled.iter().any(|(first, last)| (*first..=*last).contains(&a));
            return is_others && !(from_inside && matches!(l4, L4::Echo { request: true, .. }));
        };
        match l4 {
            L4::Tcp { dst, .. } => {
                self.binding_outside(TCP, (a, dst)).is_some() || self.pool_has(pool, TCP, a, dst)
            }
            L4::Udp { dst, .. } => {
                let has = !from_inside && self.pool_has(pool, UDP, a, dst);
                has || self.binding_outside(UDP, (a, dst)).is_some()
            }
            L4::Echo { request: true, .. } if from_inside => false,
            L4::Echo { request: true, id } if h.is_whole() => {
                self.binding_outside(ICMP, (a, id)).is_some_and(|b| self.bindings[b].fixed)
            }
            _ => true,
        }
    }

    /// RFC 1122 3.2.2.6, RFC 4443 4.2: the sender must be a single host.
    pub(super) fn answer_ping(&self, h: &Header<'_>, may: bool, seen: &Observed) -> Result<Fate> {
        if !may {
            return Err(DropReason::SourceMartian);
        }
        if !h.is_whole() {
            return Err(DropReason::FragmentIcmp);
        }
        if !to6::icmp_sum_is_right(h) {
            return Err(DropReason::BadL4Checksum);
        }
        Ok(Fate::Echo(self.echo_reply(h, seen)))
    }

    /// Reply to an echo request to an own address: addresses swapped, type changed, a fresh TTL.
    fn echo_reply(&self, h: &Header<'_>, seen: &Observed) -> Vec<u8> {
        let mut p = h.payload.to_vec();
        let old = p[..2].to_vec();
        p[0] = if h.src.is_ipv4() { 0 } else { 129 };
        let sum = adjusted(get16(&p, 2), &old, &p[..2]);
        put16(&mut p, 2, sum);
        match h.src {
            IpAddr::V4(src) => {
                let ident = if seen.bytes.len() >= 6 { get16(&seen.bytes, 4) } else { 0 };
                let (flags, ends) = (if h.df { 0x4000 } else { 0 }, (v4(h.dst), src));
                Header4 { tos: h.tos, ident, flags, ttl: 64, proto: proto::ICMP, ends }.packet(&p)
            }
            IpAddr::V6(src) => {
                let (proto, ends) = (proto::ICMPV6, (v6(h.dst), src));
                Header6 { tos: h.tos, hops: 64, proto, ends, piece: None }.packet(&p)
            }
        }
    }
}

fn address(packet: &[u8], at: usize) -> Option<Ipv6Addr> {
    let octets: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
    Some(octets.into())
}
