//! Packets and frames to be made.

use crate::pair::*;
use gatun_ether::Mac;
use gatun_wire::hdr::ipv4;
use gatun_wire::{Prefix64, checksum, proto};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 0x10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
    /// Echo requests from inside, replies from outside.
    Echo,
}

/// Packet to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) outbound: bool,
    pub(crate) private: bool,
    pub(crate) protocol: Protocol,
    pub(crate) port: u8,
    pub(crate) flags: u8,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) dont_fragment: bool,
    pub(crate) payload: usize,
    pub(crate) odd: Odd,
    pub(crate) later_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Odd {
    Nothing,
    TrailingBytes,
    CutOff,
    NoChecksum,
    WrongChecksum,
    WrongHeader,
    Fragment,
    Option,
    ToThePool,
    OtherPrefix,
    FlowLabel,
    ShortTcp,
    /// An echo request in the place of a reply, and the other way round.
    OtherEcho,
    /// Another ICMP message.
    OtherMessage,
    /// Zeroes only: identifier, number, payload.
    Zeroes,
}

pub(crate) const PLAIN: Made = Made {
    outbound: true,
    private: false,
    protocol: Protocol::Udp,
    port: 0,
    flags: ACK,
    tos: 0,
    ttl: 64,
    dont_fragment: false,
    payload: 30,
    odd: Odd::Nothing,
    later_ms: 0,
};

const SERVER_PORT: u16 = 443;

impl Made {
    fn client_port(&self) -> u16 {
        if self.odd == Odd::Zeroes { 0 } else { 5000 + u16::from(self.port) }
    }

    fn number(&self, six: bool) -> u8 {
        match self.protocol {
            Protocol::Tcp => proto::TCP,
            Protocol::Udp => proto::UDP,
            Protocol::Echo if six => proto::ICMPV6,
            Protocol::Echo => proto::ICMP,
        }
    }

    fn echo_type(&self, six: bool) -> u8 {
        let is_request = self.outbound != (self.odd == Odd::OtherEcho);
        match (self.odd, six, is_request) {
            (Odd::OtherMessage, true, _) => 1,
            (Odd::OtherMessage, false, _) => 13,
            (_, true, true) => 128,
            (_, true, false) => 129,
            (_, false, true) => 8,
            (_, false, false) => 0,
        }
    }

    fn l4(&self, from: u16, to: u16, addresses: &[u8]) -> Vec<u8> {
        let six = addresses.len() == 32;
        let mut l4 = vec![0u8; if self.protocol == Protocol::Tcp { 20 } else { 8 }];
        l4[..2].copy_from_slice(&from.to_be_bytes());
        l4[2..4].copy_from_slice(&to.to_be_bytes());
        let zero = self.odd == Odd::Zeroes;
        l4.extend((0..self.payload).map(|i| if zero { 0 } else { i as u8 ^ self.tos }));
        let at = match self.protocol {
            Protocol::Tcp => {
                (l4[12], l4[13]) = (0x50, self.flags);
                if self.odd == Odd::ShortTcp {
                    l4.truncate(16);
                }
                16
            }
            Protocol::Udp => {
                let len = l4.len() as u16;
                l4[4..6].copy_from_slice(&len.to_be_bytes());
                6
            }
            Protocol::Echo => {
                let id = if self.outbound { from } else { to };
                l4[..4].copy_from_slice(&[self.echo_type(six), 0, 0, 0]);
                l4[4..6].copy_from_slice(&id.to_be_bytes());
                l4[7] = if zero { 0 } else { self.tos };
                2
            }
        };
        if at + 2 > l4.len() || self.odd == Odd::NoChecksum {
            return l4;
        }
        let pseudo = match (self.protocol, six) {
            (Protocol::Echo, false) => 0,
            _ => checksum::pseudo(addresses, l4.len() as u32, self.number(six)),
        };
        let wrong = if self.odd == Odd::WrongChecksum { 0x0101 } else { 0 };
        let sum = !checksum::add(pseudo, checksum::sum(&l4)) ^ wrong;
        // RFC 768: zero would mean that there is none.
        let sum = if sum == 0 && self.protocol == Protocol::Udp { 0xffff } else { sum };
        l4[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        l4
    }

    fn six(&self, prefix: &Prefix64) -> Vec<u8> {
        let server = if self.odd == Odd::ToThePool { POOL } else { SERVER };
        let mut dst = prefix.embed(server).octets();
        if self.odd == Odd::OtherPrefix {
            dst[1] ^= 1;
        }
        self.six_between((CLIENT, self.client_port()), (dst.into(), SERVER_PORT))
    }

    pub(crate) fn six_between(&self, from: (Ipv6Addr, u16), to: (Ipv6Addr, u16)) -> Vec<u8> {
        let addresses = [from.0.octets(), to.0.octets()].concat();
        let l4 = self.l4(from.1, to.1, &addresses);
        let label = if self.odd == Odd::FlowLabel { [0xa, 0xbc, 0xde] } else { [0; 3] };
        let mut p = vec![0x60 | self.tos >> 4, self.tos << 4 | label[0], label[1], label[2]];
        p.extend((l4.len() as u16).to_be_bytes());
        p.extend([self.number(true), self.ttl]);
        p.extend(addresses);
        match self.odd {
            Odd::WrongHeader => p[0] ^= 0x10,
            Odd::Fragment => {
                self.extend(&mut p, proto::FRAGMENT, [self.number(true), 0, 0, 1, 0, 0, 0, 9], l4.len())
            }
            Odd::Option => self.extend(&mut p, 60, [self.number(true), 0, 1, 4, 0, 0, 0, 0], l4.len()),
            _ => {}
        }
        p.extend(l4);
        p
    }

    fn extend(&self, p: &mut Vec<u8>, kind: u8, header: [u8; 8], l4_len: usize) {
        p[6] = kind;
        p[4..6].copy_from_slice(&(l4_len as u16 + 8).to_be_bytes());
        p.extend(header);
    }

    pub(crate) fn four(&self, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
        let to = if self.odd == Odd::ToThePool { (POOL, to.1) } else { to };
        let addresses = [from.0.octets(), to.0.octets()].concat();
        let l4 = self.l4(from.1, to.1, &addresses);
        let options: &[u8] = if self.odd == Odd::Option { &[1, 1, 1, 0] } else { &[] };
        let flags = match self.odd {
            Odd::Fragment => ipv4::MF,
            _ if self.dont_fragment => ipv4::DF,
            _ => 0,
        };
        let mut p = vec![0x45 + options.len() as u8 / 4, self.tos];
        p.extend((20 + options.len() as u16 + l4.len() as u16).to_be_bytes());
        p.extend([0x12, 0x34]);
        p.extend(flags.to_be_bytes());
        p.extend([self.ttl, self.number(false), 0, 0]);
        p.extend(addresses);
        p.extend(options);
        ipv4::set_checksum(&mut p);
        if self.odd == Odd::WrongHeader {
            p[11] ^= 1;
        }
        p.extend(l4);
        p
    }

    /// The packet in a frame, and its port. `outside`: the public end of its flow.
    pub(crate) fn frame(&self, prefix: &Prefix64, outside: (Ipv4Addr, u16)) -> (usize, Vec<u8>) {
        let mut packet = match (self.outbound, self.private) {
            (true, false) => self.six(prefix),
            (true, true) => self.four((PRIVATE, self.client_port()), (SERVER, SERVER_PORT)),
            (false, _) => self.four((SERVER, SERVER_PORT), outside),
        };
        match self.odd {
            Odd::TrailingBytes => packet.extend([1, 2, 3]),
            Odd::CutOff => packet.truncate(packet.len() - 1),
            _ => {}
        }
        if self.outbound { (INSIDE, from_inside(&packet)) } else { (OUTSIDE, from_outside(&packet)) }
    }

    /// Returns true if the switch has to translate the packet, if its session is established and it fits.
    pub(crate) fn is_plain(&self) -> bool {
        let odd = matches!(self.odd, Odd::Nothing | Odd::WrongChecksum | Odd::FlowLabel | Odd::TrailingBytes);
        odd && self.ttl > 1 && !(self.protocol == Protocol::Tcp && self.flags & 7 != 0)
    }
}

fn kind(packet: &[u8]) -> [u8; 2] {
    if packet.first().is_some_and(|b| b >> 4 == 4) { [8, 0] } else { [0x86, 0xdd] }
}

/// Frame from the client.
pub(crate) fn from_inside(packet: &[u8]) -> Vec<u8> {
    untagged(INSIDE_MAC, CLIENT_MAC, kind(packet), packet)
}

pub(crate) fn untagged(dst: Mac, src: Mac, kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
    [&dst.0[..], &src.0, &kind, packet].concat()
}

/// Frame from the router outside, with the tag of its VLAN and a priority.
pub(crate) fn from_outside(packet: &[u8]) -> Vec<u8> {
    tagged(OUTSIDE_MAC, OUTSIDE_ROUTER, kind(packet), packet)
}

pub(crate) fn tagged(dst: Mac, src: Mac, kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
    [&dst.0[..], &src.0, &[0x81, 0, 0x60, VLAN as u8], &kind, packet].concat()
}

/// Public source of a translated frame to the outside: address, port or identifier.
pub(crate) fn outside_of(frame: &[u8]) -> (Ipv4Addr, u16) {
    let packet = &frame[18..];
    let address = <[u8; 4]>::try_from(&packet[12..16]).unwrap();
    let at = if packet[9] == proto::ICMP { 24 } else { 20 };
    (address.into(), u16::from_be_bytes([packet[at], packet[at + 1]]))
}

const OTHERS: [Odd; 14] = [
    Odd::TrailingBytes,
    Odd::CutOff,
    Odd::NoChecksum,
    Odd::WrongChecksum,
    Odd::WrongHeader,
    Odd::Fragment,
    Odd::Option,
    Odd::ToThePool,
    Odd::OtherPrefix,
    Odd::FlowLabel,
    Odd::ShortTcp,
    Odd::OtherEcho,
    Odd::OtherMessage,
    Odd::Zeroes,
];

pub(crate) fn made() -> impl Strategy<Value = Made> {
    let odd = prop_oneof![
        18 => Just(Odd::Nothing),
        10 => prop::sample::select(OTHERS.to_vec()),
    ];
    let flags = prop_oneof![8 => Just(ACK), 2 => Just(SYN), 1 => any::<u8>()];
    let payload = prop_oneof![4 => 0usize..64, 2 => 1180usize..1500, 1 => 1500usize..1800];
    let ttl = prop_oneof![6 => Just(64u8), 1 => 0u8..3];
    let later = prop_oneof![12 => Just(0u64), 2 => 1u64..200, 1 => 200_000u64..400_000];
    let protocol = prop::sample::select(vec![Protocol::Tcp, Protocol::Udp, Protocol::Echo]);
    (
        (any::<bool>(), any::<bool>(), protocol, 0u8..2, flags, any::<u8>()),
        (ttl, any::<bool>(), payload, odd, later),
    )
        .prop_map(|(a, b)| {
            let (outbound, private, protocol, port, flags, tos) = a;
            let (ttl, dont_fragment, payload, odd, later_ms) = b;
            Made { outbound, private, protocol, port, flags, tos, ttl, dont_fragment, payload, odd, later_ms }
        })
}
