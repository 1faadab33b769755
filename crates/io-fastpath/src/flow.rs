//! A session as the kernel translates it: its endpoints, and their translations.

use crate::layout::{Translation, WAY_4_INWARD, WAY_4_OUTWARD, WAY_4_TO_6, WAY_6_TO_4};
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
    /// Number of the session's record in its engine. The program does not use it.
    pub record: u32,
    /// Largest IPv4 packet to the remote host in bytes, if the path's MTU is known.
    pub path_mtu: Option<u16>,
    /// Chooses the counter of identifications. Flows of the same public address, remote host and protocol
    /// that may leave without DF should have the same: any hash of these three.
    pub ident: u16,
}

impl Flow {
    /// Translation of packets from inside.
    pub(crate) fn outbound(&self) -> Translation {
        let (outside, remote) = (self.outside.0, self.remote.0);
        let (way, four, six, delta) = match self.inside {
            Inside::Six { host, remote: remote6 } => (
                WAY_6_TO_4,
                [outside.octets(), remote.octets()],
                [host.octets(), remote6.octets()],
                address_delta_6to4((host, remote6), (outside, remote)),
            ),
            Inside::Four(host) => {
                let mut sent = [[0; 16]; 2];
                let [first, ..] = &mut sent;
                first[..4].copy_from_slice(&outside.octets());
                first[4..8].copy_from_slice(&remote.octets());
                let delta = address_delta((host, remote), (outside, remote));
                (WAY_4_OUTWARD, [host.octets(), remote.octets()], sent, delta)
            }
        };
        let [inside_port, outside_port, remote_port] =
            [self.inside_port, self.outside.1, self.remote.1].map(u16::to_be_bytes);
        Translation {
            four,
            six,
            ports: [inside_port, remote_port],
            new_ports: [outside_port, remote_port],
            delta: delta.0.to_be_bytes(),
            proto: self.protocol.number(),
            way,
        }
    }

    /// The flow with this translation of packets from inside, and without what the translation does not have.
    /// `None` if no flow has it.
    pub(crate) fn of(outbound: &Translation) -> Option<Flow> {
        let ([a, b], sent) = (outbound.four, outbound.sent());
        let (inside, outside, remote) = match outbound.way {
            WAY_6_TO_4 => {
                let [host, remote6] = outbound.six;
                (Inside::Six { host: host.into(), remote: remote6.into() }, a, b)
            }
            WAY_4_OUTWARD => (Inside::Four(a.into()), sent[0], b),
            _ => return None,
        };
        let port = u16::from_be_bytes;
        let ([inside_port, remote_port], [outside_port, _]) = (outbound.ports, outbound.new_ports);
        Some(Flow {
            inside,
            inside_port: port(inside_port),
            outside: (outside.into(), port(outside_port)),
            remote: (remote.into(), port(remote_port)),
            protocol: match outbound.proto {
                proto::TCP => Protocol::Tcp,
                proto::UDP => Protocol::Udp,
                _ => return None,
            },
            instance: 0,
            worker: 0,
            epoch: 0,
            record: 0,
            path_mtu: None,
            ident: 0,
        })
    }
}

impl Translation {
    /// NAT44: the addresses that are sent.
    fn sent(&self) -> [[u8; 4]; 2] {
        let [[a, b, c, d, e, f, g, h, ..], _] = self.six;
        [[a, b, c, d], [e, f, g, h]]
    }

    /// Translation of the other direction.
    pub(crate) fn reverse(&self) -> Translation {
        let swapped = |[a, b]: [[u8; 4]; 2]| [b, a];
        let (way, four, six) = match self.way {
            WAY_6_TO_4 | WAY_4_TO_6 => {
                (self.way ^ WAY_4_TO_6, swapped(self.four), [self.six[1], self.six[0]])
            }
            _ => {
                let mut six = [[0; 16]; 2];
                let [a, b] = swapped(self.four);
                six[0][..4].copy_from_slice(&a);
                six[0][4..8].copy_from_slice(&b);
                (self.way ^ WAY_4_OUTWARD ^ WAY_4_INWARD, swapped(self.sent()), six)
            }
        };
        let swapped = |[a, b]: [[u8; 2]; 2]| [b, a];
        Translation {
            four,
            six,
            ports: swapped(self.new_ports),
            new_ports: swapped(self.ports),
            delta: self.delta.map(|byte| !byte),
            proto: self.proto,
            way,
        }
    }

    /// Words of the key in the table: `struct key6` and `struct key4`.
    pub(crate) fn key(&self) -> ([u32; 10], usize) {
        let mut key = [0; 10];
        let word = u32::from_ne_bytes;
        let addresses = match self.way {
            WAY_6_TO_4 => {
                let (words, _) = self.six.as_flattened().as_chunks::<4>();
                key.iter_mut().zip(words).for_each(|(to, from)| *to = word(*from));
                8
            }
            _ => {
                key[0] = word(self.four[0]);
                key[1] = word(self.four[1]);
                2
            }
        };
        let [[a, b], [c, d]] = self.ports;
        key[addresses] = word([a, b, c, d]);
        key[addresses + 1] = self.proto.into();
        (key, addresses + 2)
    }

    /// Returns true if both are found by the same packets.
    pub(crate) fn has_key_of(&self, other: &Translation) -> bool {
        (self.way == WAY_6_TO_4) == (other.way == WAY_6_TO_4) && self.key() == other.key()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_direction_of_the_other_direction_is_the_first() {
        let six = Inside::Six { host: "2001:db8::5".parse().unwrap(), remote: "64:ff9b::1".parse().unwrap() };
        for inside in [six, Inside::Four([10, 0, 0, 5].into())] {
            let flow = Flow {
                inside,
                inside_port: 5000,
                outside: ([192, 0, 2, 1].into(), 40_000),
                remote: ([198, 51, 100, 7].into(), 443),
                protocol: Protocol::Tcp,
                instance: 0,
                worker: 0,
                epoch: 0,
                record: 0,
                path_mtu: None,
                ident: 0,
            };
            let outbound = flow.outbound();
            assert_eq!(outbound.reverse().reverse(), outbound);
            assert_eq!(Flow::of(&outbound), Some(flow));
            assert_eq!(Flow::of(&outbound.reverse()), None);
            let inbound = outbound.reverse();
            assert_eq!(inbound.four, [[198, 51, 100, 7], [192, 0, 2, 1]]);
            assert_eq!((inbound.ports, inbound.new_ports), ([[1, 187], [156, 64]], [[1, 187], [19, 136]]));
            assert!(!inbound.has_key_of(&outbound) && outbound.has_key_of(&outbound));
        }
    }
}
