//! NAT44 instances for many subscribers (RFC 3022, 4787, 6888): inside networks, exemptions, and how their
//! packets are written.

use crate::base::plan::{self, Exemption, Net4, Transport};
use crate::path::policy::Policy;
use crate::path::query::{self, Query};
use crate::tables::session::{Inside, Session};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use gatun_wire::rfc3022::{Link, Rewrite, address_delta};
use gatun_wire::{Ipv4View, L4};

/// NAT44 instance, prepared from its plan.
pub(crate) struct Nat44 {
    pub(crate) policy: Policy,
    inside: Vec<Net4>,
    exempt: Vec<Exemption>,
    /// MTU of the links on both sides, bytes.
    pub(crate) link: Link,
}

impl Nat44 {
    /// Prepares the instance with this number among those of both kinds.
    pub(crate) fn new(instance: u8, plan: &plan::Nat44) -> Self {
        let policy = Policy {
            instance,
            realm: plan.realm,
            filtering: plan.filtering,
            external_tcp: plan.external_tcp,
            inbound_refresh: plan.inbound_refresh,
            // RFC 7857 7.1: a reset does not refresh a session, even after a FIN.
            rst_during_fin: true,
            icmp_queries: plan.icmp_queries,
            subscriber_len: plan.key_len(),
            timeouts: plan.timeouts,
            established_ms: Transport::ALL.map(|transport| plan.timeouts.established_ms(transport)),
        };
        let link = Link { mtu: plan.mtu, mss_max: plan.mss_max };
        Nat44 { policy, inside: plan.inside.clone(), exempt: plan.exempt.clone(), link }
    }

    /// Returns whether an address belongs to an inside host.
    #[inline]
    pub(crate) fn serves(&self, address: Ipv4Addr) -> bool {
        self.inside.iter().any(|net| net.contains(address))
    }

    /// Returns whether a packet from an address in a realm comes from an inside host.
    #[inline]
    pub(crate) fn is_inside(&self, address: Ipv4Addr, realm: u8) -> bool {
        self.policy.realm == realm && self.serves(address)
    }

    /// Returns whether a packet between an inside host and `remote` passes untranslated (RFC 6888 REQ-6): to
    /// another inside address, or by the operator's list.
    pub(crate) fn is_exempt(&self, remote: Ipv4Addr, proto: u8, port: Option<u16>) -> bool {
        self.serves(remote) || self.is_listed(remote, proto, port)
    }

    /// Returns whether a packet from an inside host passes untranslated.
    pub(crate) fn exempts(&self, view: &Ipv4View, l4: L4) -> bool {
        // Only the first fragment of a datagram has ports. Exemptions by port are checked there.
        let port = remote_port(l4, true).filter(|_| view.fragment.is_none());
        self.is_exempt(view.dst, view.proto, port)
    }

    /// Returns whether the operator has listed exemptions.
    #[inline]
    pub(crate) fn has_exemptions(&self) -> bool {
        !self.exempt.is_empty()
    }

    /// Returns whether a packet of no inside host passes untranslated to an inside host. A packet that left
    /// untranslated is answered from the realm that it went to, which is not a customer's realm.
    pub(crate) fn lets_back(&self, realm: u8, remote: Ipv4Addr, proto: u8, port: Option<u16>) -> bool {
        realm == 0 && self.is_listed(remote, proto, port)
    }

    fn is_listed(&self, remote: Ipv4Addr, proto: u8, port: Option<u16>) -> bool {
        self.exempt.iter().any(|e| e.covers(remote, proto, port))
    }
}

/// Returns the inside transport address of the sender of a packet.
#[inline]
pub(crate) fn inside_of(nat: &Nat44, addr: Ipv4Addr, port: u16, transport: Transport) -> Inside {
    Inside { addr: addr.to_ipv6_mapped(), port, transport, instance: nat.policy.instance }
}

/// Returns the inside address of a session.
#[inline]
pub(crate) fn inside4(session: &Session) -> Ipv4Addr {
    let [.., a, b, c, d] = session.inside_addr().octets();
    Ipv4Addr::new(a, b, c, d)
}

/// Outbound rewrite of a packet by its session, whose transport the caller knows.
#[inline]
pub(crate) fn outbound_of(session: &Session, transport: Transport) -> Rewrite {
    let (src, src_port) = session.outside();
    let (dst, dst_port) = session.remote();
    let ports = query::ports(transport, src_port, dst_port, src_port);
    Rewrite { src, dst, ports, id: None, addresses: session.address_delta() }
}

/// Inbound rewrite of a packet to this session's inside, as [`outbound_of`].
#[inline]
pub(crate) fn inbound_of(session: &Session, transport: Transport) -> Rewrite {
    let (src, src_port) = session.remote();
    let ports = query::ports(transport, src_port, session.inside_port(), session.inside_port());
    Rewrite { src, dst: inside4(session), ports, id: None, addresses: session.address_delta().inverse() }
}

/// Records the change of checksums by the change of addresses.
pub(crate) fn set_delta(session: &mut Session) {
    let remote = session.remote().0;
    let delta = address_delta((inside4(session), remote), (session.outside().0, remote));
    session.set_pool6(0, delta);
}

/// Returns the remote port of a packet: its destination port if it is outbound, otherwise its source port.
pub(crate) fn remote_port(l4: L4, outbound: bool) -> Option<u16> {
    let query = Query::of(l4, outbound).filter(|q| q.transport != Transport::Icmp)?;
    Some(if outbound { query.dst_port } else { query.src_port })
}
