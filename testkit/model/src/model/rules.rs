//! Rules of the instances, whatever their kind. NAT64 instances come first, then NAT44 instances.

use super::Model;
use gatun_nat::Plan;
use gatun_nat::plan::{Filtering, StaticBinding, Timeouts};
use gatun_wire::Settings;
use std::net::Ipv6Addr;

/// Inside hosts of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// IPv6 hosts: NAT64.
    Six,
    /// Private IPv4 hosts: NAT44.
    Four,
}

#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) kind: Kind,
    /// Realm of its hosts.
    pub(super) realm: u8,
    pub(super) pool: usize,
    pub(super) filtering: Filtering,
    pub(super) external_tcp: bool,
    pub(super) inbound_refresh: bool,
    pub(super) rst_during_fin: bool,
    pub(super) icmp_queries: bool,
    /// Bits of an inside address that name its subscriber; IPv4 addresses are ::ffff:a.b.c.d.
    pub(super) subscriber_len: u32,
    pub(super) static_bindings: Vec<StaticBinding>,
    pub(super) timeouts: Timeouts,
}

pub(super) fn all(plan: &Plan) -> Vec<Rules> {
    let six = plan.nat64.iter().map(|n| Rules {
        kind: Kind::Six,
        realm: n.realm,
        pool: n.pool,
        filtering: n.filtering,
        external_tcp: n.external_tcp,
        inbound_refresh: n.inbound_refresh,
        rst_during_fin: n.rst_during_fin,
        icmp_queries: n.icmp_queries,
        subscriber_len: n.subscriber_len.into(),
        static_bindings: n.static_bindings.clone(),
        timeouts: n.timeouts,
    });
    let four = plan.nat44.iter().map(|n| Rules {
        kind: Kind::Four,
        realm: n.realm,
        pool: n.pool,
        filtering: n.filtering,
        external_tcp: n.external_tcp,
        inbound_refresh: n.inbound_refresh,
        // RFC 7857 7.1.
        rst_during_fin: true,
        icmp_queries: n.icmp_queries,
        subscriber_len: 96 + u32::from(n.subscriber_len),
        static_bindings: n.static_bindings.clone(),
        timeouts: n.timeouts,
    });
    six.chain(four).collect()
}

/// Choice: between its two translations, a hairpinned packet is on no IPv4 link, so no IPv4 MTU applies.
pub(super) fn unseen_link(settings: &Settings) -> Settings {
    let max = u32::from(u16::MAX);
    Settings { mtu4: max, mtu6: max, lowest_ipv6_mtu: max, icmp4_error_max: u16::MAX, ..*settings }
}

impl Model {
    pub(super) fn kind(&self, instance: usize) -> Kind {
        self.rules[instance].kind
    }

    /// The plan of a NAT44 instance.
    pub(super) fn nat44(&self, instance: usize) -> &gatun_nat::plan::Nat44 {
        &self.plan.nat44[instance - self.plan.nat64.len()]
    }

    /// Instances that use a pool, in order.
    pub(super) fn users_of(&self, pool: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.rules.len()).filter(move |&i| self.rules[i].pool == pool)
    }

    /// Subscriber of an inside address: instance and first address.
    pub(super) fn subscriber(&self, instance: usize, a: Ipv6Addr) -> (usize, u128) {
        let host_bits = 128 - self.rules[instance].subscriber_len;
        (instance, u128::from(a) >> host_bits << host_bits)
    }
}
