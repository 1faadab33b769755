//! Rewrites: new addresses and ports of a packet, in either direction.

use crate::base::attribution::{Account, Attribution, DatagramParties};
use crate::base::counters::Direction;
use crate::tables::bib::Tables;
use core::net::Ipv4Addr;
use gatun_wire::rfc3022::Rewrite;
use gatun_wire::{Ports, To4, To6};

/// Rewrite of a packet from inside.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OutboundRewrite {
    /// Translation of a packet from an IPv6 host.
    From6(To4),
    /// Translation of a packet from an IPv4 host.
    From4(Rewrite),
}

/// Rewrite of a packet from outside, IPv4, for its inside host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InboundRewrite {
    /// An IPv6 host.
    To6(To6),
    /// An IPv4 host.
    To4(Rewrite),
}

/// Rewrite of a first fragment, which applies to all fragments of its datagram. Instances are numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DatagramRewrite {
    Outbound {
        instance: u8,
        to: OutboundRewrite,
        parties: DatagramParties,
    },
    Inbound {
        instance: u8,
        to: InboundRewrite,
        parties: DatagramParties,
    },
    Hairpin {
        out: (u8, OutboundRewrite),
        back: (u8, InboundRewrite),
        parties: DatagramParties,
    },
    /// Exempt from translation by its port, which only the first fragment has.
    Pass,
}

impl OutboundRewrite {
    /// Returns source and destination of the packet outside.
    pub(crate) fn addresses(&self) -> (Ipv4Addr, Ipv4Addr) {
        match self {
            OutboundRewrite::From6(to) => (to.src, to.dst),
            OutboundRewrite::From4(to) => (to.src, to.dst),
        }
    }

    pub(crate) fn ports(&self) -> Ports {
        match self {
            OutboundRewrite::From6(to) => to.ports,
            OutboundRewrite::From4(to) => to.ports,
        }
    }
}

impl DatagramRewrite {
    /// Returns the attribution of its packets; `None` for those that pass.
    pub(crate) fn attribution(&self, tables: &Tables) -> Option<Attribution> {
        match self {
            DatagramRewrite::Outbound { instance, parties, .. }
            | DatagramRewrite::Hairpin { out: (instance, _), parties, .. } => {
                let parties = tables.kept_parties(parties);
                Some(Attribution { parties, ..Attribution::outbound(Account::Stateful(*instance)) })
            }
            DatagramRewrite::Inbound { instance, parties, .. } => {
                let parties = tables.kept_parties(parties);
                Some(Attribution { parties, ..Attribution::inbound(Account::Stateful(*instance)) })
            }
            DatagramRewrite::Pass => None,
        }
    }

    /// Returns whether a packet is IPv6 on one of its sides.
    pub(crate) fn has_ipv6(&self) -> bool {
        match self {
            DatagramRewrite::Outbound { to, .. } => matches!(to, OutboundRewrite::From6(_)),
            DatagramRewrite::Inbound { to, .. } => matches!(to, InboundRewrite::To6(_)),
            DatagramRewrite::Hairpin { out, back, .. } => {
                matches!(out.1, OutboundRewrite::From6(_)) || matches!(back.1, InboundRewrite::To6(_))
            }
            DatagramRewrite::Pass => false,
        }
    }

    pub(crate) fn direction(&self) -> Direction {
        match self {
            DatagramRewrite::Outbound { to: OutboundRewrite::From6(_), .. }
            | DatagramRewrite::Hairpin { out: (_, OutboundRewrite::From6(_)), .. } => Direction::SixToFour,
            DatagramRewrite::Inbound { to: InboundRewrite::To6(_), .. } => Direction::FourToSix,
            _ => Direction::FourToFour,
        }
    }
}
