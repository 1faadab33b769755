//! What stateful instances have in common, whatever stands inside them: NAT64 (RFC 6146) and NAT44
//! (RFC 4787, 5382, 5508, 6888, 7857) are one engine here. [`crate::path::nat64`] and [`crate::path::nat44`] hold what
//! differs: whose a packet is, and how it is written.
//!
//! - [`policy`]: an instance's choices, lifetimes, and what a packet does to its session.
//! - [`outbound`]: queries from inside without a session.
//! - [`filter`], [`inbound`]: queries from outside, which find their instance by the binding.
//! - [`hairpin`]: from inside to inside, of one kind or both.
//! - [`unsolicited`]: SYNs that wait for their receiver to open the connection itself.
//! - [`fragments`]: datagrams in pieces.
//! - [`icmp`]: the second half of errors that turn out to be about an inside host's packet.
//!
//! An inside IPv4 address stands in keys and records as ::ffff:a.b.c.d, and the numbers of instances are one
//! space: NAT64's first, then NAT44's. So pools can be shared by both kinds.

pub(crate) mod filter;
pub(crate) mod fragments;
pub(crate) mod hairpin;
pub(crate) mod icmp;
pub(crate) mod inbound;
pub(crate) mod outbound;
pub(crate) mod policy;
pub(crate) mod query;
pub(crate) mod unsolicited;

pub(crate) use policy::Policy;
pub(crate) use query::Query;

use crate::base::plan::Transport;
use crate::path::nat44::{self, Nat44};
use crate::path::nat64::{self, Nat64};
use crate::tables::bib::Tables;
use crate::tables::session::{Endpoint4, Session};
use core::net::Ipv4Addr;
use gatun_wire::rfc3022::{self, Rewrite};
use gatun_wire::rfc7915::four_to_six;
use gatun_wire::{DropReason, Ipv4View, L4, Packet, To4, To6, Whole};

/// The stateful instances of both kinds.
#[derive(Clone, Copy)]
pub(crate) struct Instances<'n> {
    pub(crate) nat64: &'n [Nat64],
    pub(crate) nat44: &'n [Nat44],
}

/// One of them.
#[derive(Clone, Copy)]
pub(crate) enum Instance<'n> {
    Nat64(&'n Nat64),
    Nat44(&'n Nat44),
}

/// How a packet from inside leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outward {
    /// From an IPv6 host.
    From6(To4),
    /// From an IPv4 host.
    From4(Rewrite),
}

/// How a packet from outside, IPv4, goes to its inside host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Inward {
    /// An IPv6 host.
    To6(To6),
    /// An IPv4 host.
    To4(Rewrite),
}

impl<'n> Instances<'n> {
    /// The instance of this number.
    pub(crate) fn get(self, number: u8) -> Option<Instance<'n>> {
        self.nat64(number).map(Instance::Nat64).or_else(|| self.nat44(number).map(Instance::Nat44))
    }

    /// The NAT64 instance of this number.
    #[inline]
    pub(crate) fn nat64(self, number: u8) -> Option<&'n Nat64> {
        self.nat64.get(usize::from(number))
    }

    /// The NAT44 instance of this number: they come after NAT64's.
    #[inline]
    pub(crate) fn nat44(self, number: u8) -> Option<&'n Nat44> {
        self.nat44.get(usize::from(number).checked_sub(self.nat64.len())?)
    }

    /// The NAT44 instance that an address of a realm is inside of.
    #[inline]
    pub(crate) fn inside44(self, address: Ipv4Addr, realm: u8) -> Option<&'n Nat44> {
        self.nat44.iter().find(|n| n.is_inside(address, realm))
    }

    /// What was chosen for the instances that use a pool.
    pub(crate) fn of_pool<'t>(self, tables: &'t Tables, pool: usize) -> impl Iterator<Item = &'n Policy> + 't
    where
        'n: 't,
    {
        let policies = self.nat64.iter().map(|n| &n.policy).chain(self.nat44.iter().map(|n| &n.policy));
        policies.filter(move |p| tables.pool_of(p.instance) == pool)
    }
}

impl<'n> Instance<'n> {
    #[inline]
    pub(crate) fn policy(self) -> &'n Policy {
        match self {
            Instance::Nat64(nat) => &nat.policy,
            Instance::Nat44(nat) => &nat.policy,
        }
    }

    /// The prefix behind which a remote host is shown that the inside has not talked to; none, and so 0,
    /// for an inside host of the same family.
    ///
    /// # Errors
    /// `wkp_nonglobal`.
    pub(crate) fn prefix_for(self, of_binding: u8, remote: Ipv4Addr) -> Result<u8, DropReason> {
        match self {
            Instance::Nat64(nat) => nat.prefix_for(of_binding, remote),
            Instance::Nat44(_) => Ok(0),
        }
    }

    /// Notes in a new session what the change of addresses does to checksums.
    pub(crate) fn mark(self, session: &mut Session, pool6: u8) {
        match self {
            Instance::Nat64(nat) => nat64::set_prefix(session, pool6, nat.prefix(pool6)),
            Instance::Nat44(_) => nat44::set_delta(session),
        }
    }

    /// How a packet goes to the inside of its session.
    #[inline]
    pub(crate) fn inward(self, session: &Session, transport: Transport) -> Inward {
        match self {
            Instance::Nat64(nat) => {
                Inward::To6(nat64::inbound_of(session, transport, nat.prefix(session.pool6)))
            }
            Instance::Nat44(_) => Inward::To4(nat44::inbound_of(session, transport)),
        }
    }

    /// How a packet goes through a binding without a session (RFC 6146 3.5.2.2, CLOSED).
    pub(crate) fn inward_by_binding(self, primary: &Session, pool6: u8, remote: Endpoint4) -> Inward {
        let from = (remote.0, primary.outside().0);
        let ports = query::ports(primary.transport(), remote.1, primary.inside_port(), primary.inside_port());
        match self {
            Instance::Nat64(nat) => {
                let to = (nat.prefix(pool6).embed(remote.0), primary.inside_addr());
                Inward::To6(To6::new(from, to, ports))
            }
            Instance::Nat44(_) => Inward::To4(Rewrite::new(from, (remote.0, nat44::inside4(primary)), ports)),
        }
    }

    /// Writes a packet from outside for its inside host.
    #[inline]
    pub(crate) fn write_inward(
        self,
        packet: &mut Packet<'_>,
        view: &Ipv4View,
        l4: L4,
        to: &Inward,
    ) -> Result<Whole, DropReason> {
        let whole = match (self, to) {
            (Instance::Nat64(nat), Inward::To6(to)) => {
                four_to_six::translate(packet, view, l4, to, &nat.settings)?
            }
            (Instance::Nat44(nat), Inward::To4(to)) => rfc3022::translate(packet, view, l4, to, nat.link)?,
            // A memo of an instance that is of the other kind: there is none.
            _ => return Err(DropReason::NoSession),
        };
        packet.realm = self.policy().realm;
        Ok(whole)
    }
}

impl Outward {
    /// Source and destination of the packet outside.
    pub(crate) fn addresses(&self) -> (Ipv4Addr, Ipv4Addr) {
        match self {
            Outward::From6(to) => (to.src, to.dst),
            Outward::From4(to) => (to.src, to.dst),
        }
    }

    pub(crate) fn ports(&self) -> gatun_wire::Ports {
        match self {
            Outward::From6(to) => to.ports,
            Outward::From4(to) => to.ports,
        }
    }
}
