//! A session as the kernel translates it: its ends, and what it became.

use crate::layout::{Identity, KIND_NAT44, KIND_NAT64, Key4, Key6};
use gatun_wire::proto;
use gatun_wire::rfc3022::address_delta;
use gatun_wire::rfc7915::address_delta_6to4;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Addresses of a session's inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Inside {
    /// Of NAT64.
    Six {
        /// The inside host.
        host: Ipv6Addr,
        /// The remote host as the inside host sees it, behind a translation prefix.
        remote: Ipv6Addr,
    },
    /// The inside host, of NAT44.
    Four(Ipv4Addr),
}

/// Protocol of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    fn number(self) -> u8 {
        match self {
            Protocol::Tcp => proto::TCP,
            Protocol::Udp => proto::UDP,
        }
    }
}

/// A session that the kernel translates.
///
/// Not for flows that share a public port, for hairpins, for exempt destinations, and for instances of realms
/// other than 0: the kernel knows packets by addresses and ports alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Addresses of the inside.
    pub inside: Inside,
    /// Port of the inside host.
    pub inside_port: u16,
    /// Public address and port.
    pub outside: (Ipv4Addr, u16),
    /// Address and port of the remote host.
    pub remote: (Ipv4Addr, u16),
    /// Protocol.
    pub protocol: Protocol,
    /// Number of the instance. Its settings must have been [set](crate::Table::set_instance).
    pub instance: u8,
    /// Number of the worker, below [`WORKERS_MAX`](crate::WORKERS_MAX).
    pub worker: u8,
    /// Epoch of the ownership. Packets go to the engine where it is not
    /// [`Control::set_epoch`](crate::Control::set_epoch)'s.
    pub epoch: u16,
    /// Number of the session's record in its engine: kept for the caller.
    pub record: u32,
    /// Largest IPv4 packet to the remote host in bytes, if the path's MTU is known.
    pub path_mtu: Option<u16>,
    /// Chooses the counter of identifications. Flows of the same public address, remote host and protocol
    /// that may leave without DF should have the same: any hash of these three.
    pub ident: u16,
}

impl Flow {
    pub(crate) fn identity(&self) -> Identity {
        let (mut inside, mut remote6) = ([0; 16], [0; 16]);
        let (kind, delta) = match self.inside {
            Inside::Six { host, remote } => {
                (inside, remote6) = (host.octets(), remote.octets());
                (KIND_NAT64, address_delta_6to4((host, remote), (self.outside.0, self.remote.0)))
            }
            Inside::Four(host) => {
                inside[..4].copy_from_slice(&host.octets());
                let remote = self.remote.0;
                (KIND_NAT44, address_delta((host, remote), (self.outside.0, remote)))
            }
        };
        Identity {
            inside,
            remote6,
            outside: self.outside.0.octets(),
            remote: self.remote.0.octets(),
            inside_port: self.inside_port.to_be_bytes(),
            outside_port: self.outside.1.to_be_bytes(),
            remote_port: self.remote.1.to_be_bytes(),
            delta: delta.0.to_be_bytes(),
            epoch: self.epoch,
            path_mtu: self.path_mtu.unwrap_or(0),
            ident: self.ident % crate::layout::IDENTS as u16,
            proto: self.protocol.number(),
            kind,
            instance: self.instance,
            worker: self.worker,
            spare: 0,
            state: 0,
        }
    }

    /// The flow of a slot. `None` if no flow has such an identity.
    pub(crate) fn of(identity: &Identity, record: u32) -> Option<Flow> {
        let [a, b, c, d, ..] = identity.inside;
        Some(Flow {
            inside: match identity.kind {
                KIND_NAT64 => Inside::Six { host: identity.inside.into(), remote: identity.remote6.into() },
                KIND_NAT44 => Inside::Four([a, b, c, d].into()),
                _ => return None,
            },
            inside_port: u16::from_be_bytes(identity.inside_port),
            outside: (identity.outside.into(), u16::from_be_bytes(identity.outside_port)),
            remote: (identity.remote.into(), u16::from_be_bytes(identity.remote_port)),
            protocol: match identity.proto {
                proto::TCP => Protocol::Tcp,
                proto::UDP => Protocol::Udp,
                _ => return None,
            },
            instance: identity.instance,
            worker: identity.worker,
            epoch: identity.epoch,
            record,
            path_mtu: Some(identity.path_mtu).filter(|mtu| *mtu > 0),
            ident: identity.ident,
        })
    }
}

/// Key of the packets from inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutboundKey {
    Six(Key6),
    Four(Key4),
}

impl Identity {
    pub(crate) fn outbound_key(&self) -> OutboundKey {
        let (ports, proto) = ([self.inside_port, self.remote_port], self.proto.into());
        let [a, b, c, d, ..] = self.inside;
        match self.kind {
            KIND_NAT44 => OutboundKey::Four(Key4 { src: [a, b, c, d], dst: self.remote, ports, proto }),
            _ => OutboundKey::Six(Key6 { src: self.inside, dst: self.remote6, ports, proto }),
        }
    }

    pub(crate) fn inbound_key(&self) -> Key4 {
        let ports = [self.remote_port, self.outside_port];
        Key4 { src: self.remote, dst: self.outside, ports, proto: self.proto.into() }
    }
}
