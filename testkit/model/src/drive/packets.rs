//! Packets of a step, made from the hosts and bindings that it names and from the current state.

use super::compare::Pair;
use super::forge::{cut, error, forge, router4, router6, twisted};
use super::history::{Flood, Form, Op, Proto, Target};
use super::universe::{HOST_PORTS, OWN6, POOLS, REMOTE_PORTS, host, host4, remote};
use crate::model::RealmPacket;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Number of realms that packets come from, with or without an instance.
const REALMS: u8 = 5;

impl Pair<'_> {
    pub(super) fn packets_in_pieces(&self, op: &Op) -> Vec<RealmPacket> {
        let mut in_realms = self.packets(op);
        if let Some(how) = op.form().and_then(|form| form.cut) {
            let pieces = |RealmPacket { realm, bytes }: RealmPacket| {
                cut(&bytes, &how).into_iter().map(move |bytes| RealmPacket { realm, bytes })
            };
            in_realms = in_realms.into_iter().flat_map(pieces).collect();
        }
        let astray = match (op, op.form()) {
            (Op::Again { astray, .. }, _) => *astray,
            (_, form) => form.map_or(0, |form| form.astray),
        };
        in_realms.iter_mut().for_each(|in_realm| self.lead_astray(in_realm, astray));
        in_realms
    }

    /// Moves a packet to another realm, if the plan has realms.
    fn lead_astray(&self, in_realm: &mut RealmPacket, by: u8) {
        let has_realms = match in_realm.bytes.first().map(|b| b >> 4) {
            Some(6) => self.plan.nat64.iter().any(|n| n.realm != 0),
            _ => self.plan.nat44.iter().any(|n| n.realm != 0),
        };
        if has_realms {
            in_realm.realm = (in_realm.realm + by) % REALMS;
        }
    }

    /// The packets of a step.
    fn packets(&self, op: &Op) -> Vec<RealmPacket> {
        match *op {
            Op::Clock { .. } | Op::Expire { .. } | Op::Settle | Op::Flush | Op::Reload { .. } => Vec::new(),
            Op::Again { back, twist, .. } => match self.received.get(usize::from(back)) {
                Some(RealmPacket { realm, bytes }) => {
                    vec![RealmPacket { realm: *realm, bytes: twisted(bytes.clone(), twist) }]
                }
                None => Vec::new(),
            },
            Op::Error { inside, about, kind, code, word, router, keep, form } => {
                self.error(inside, about, (kind, code, word), router, keep, &form)
            }
            Op::Out { proto, host: h, port, remote: r, rport, form } => {
                let (from, to) = self.through(form.door, h, remote(r));
                let ports = (host_port(port), REMOTE_PORTS[usize::from(rport) % 3]);
                vec![self.sent_by(form.door, forge(proto, from, to, ports, &form))]
            }
            Op::Ping { inside, host: h, form } => {
                let own4 = self.plan.own4.unwrap_or(Ipv4Addr::UNSPECIFIED);
                let (from, to) = match (inside, form.door % 2) {
                    (true, 0) => (host(h).into(), OWN6.into()),
                    (true, _) => self.through(form.door, h, own4),
                    (false, _) => (remote(h).into(), own4.into()),
                };
                let proto = match form.len % 7 {
                    0 => Proto::Udp,
                    1 => Proto::Tcp(2),
                    2 => Proto::Other([47, 59, 2][usize::from(form.len) % 3]),
                    _ => Proto::Echo(form.ttl % 8 != 0),
                };
                // Ports of pools, of static bindings, and others.
                let port = [22, 7, 1001, 1021, 1040, 5000][(usize::from(form.len) / 7 + usize::from(h)) % 6];
                let packet = forge(proto, from, to, (7, port), &form);
                vec![if inside && form.door % 2 == 1 {
                    self.sent_by(form.door, packet)
                } else {
                    outside(packet)
                }]
            }
            Op::Flood { flood, proto, door, host: h, remote: r, first, packets } => {
                let each = |n: u8| self.of_flood(flood, proto, (door, h, r), first, n);
                (0..packets).map(each).collect()
            }
            Op::Hairpin { proto, host: h, port, target, form } => {
                let (address, t) = self.outside(proto, target);
                let (from, to) = self.through(form.door, h, address);
                vec![self.sent_by(form.door, forge(proto, from, to, (host_port(port), t), &form))]
            }
            Op::In { proto, target, remote: r, rport, form } => {
                let (address, t) = self.outside(proto, target);
                let from = IpAddr::V4(remote(r));
                let ports = match proto {
                    Proto::Echo(_) | Proto::Icmp(_) => (t, 0),
                    _ => (REMOTE_PORTS[usize::from(rport) % 3], t),
                };
                vec![outside(forge(proto, from, address.into(), ports, &form))]
            }
        }
    }

    /// A host of an instance, and the address under which it reaches an IPv4 address.
    fn through(&self, door: u8, h: u8, to: Ipv4Addr) -> (IpAddr, IpAddr) {
        let prefixes: Vec<_> = self.plan.nat64.iter().flat_map(|n| &n.pool6).collect();
        let door = usize::from(door) % (prefixes.len() + self.plan.nat44.len());
        match prefixes.get(door) {
            Some(prefix) => (host(h).into(), prefix.embed(to).into()),
            None => (host4(&self.plan.nat44[door - prefixes.len()], h).into(), to.into()),
        }
    }

    /// A packet in the realm of an instance's hosts.
    fn sent_by(&self, door: u8, bytes: Vec<u8>) -> RealmPacket {
        let of64 = self.plan.nat64.iter().flat_map(|n| n.pool6.iter().map(|_| n.realm));
        let all: Vec<u8> = of64.chain(self.plan.nat44.iter().map(|n| n.realm)).collect();
        RealmPacket { realm: all[usize::from(door) % all.len()], bytes }
    }

    fn of_flood(
        &self,
        flood: Flood,
        proto: Proto,
        (door, h, r): (u8, u8, u8),
        first: u16,
        n: u8,
    ) -> RealmPacket {
        let port = first.wrapping_add(n.into());
        let form = &Form { door, ..Form::PLAIN };
        let (from, to) = self.through(door, if flood == Flood::Hosts { n } else { h }, remote(r));
        let packet = match flood {
            Flood::Ports => forge(proto, from, to, (port, REMOTE_PORTS[0]), form),
            Flood::Scan => forge(proto, from, to, (HOST_PORTS[0], port), form),
            Flood::Hosts => forge(proto, from, to, (first, REMOTE_PORTS[0]), form),
            Flood::FromOutside => {
                let to = Ipv4Addr::from(u32::from(POOLS[usize::from(h) % POOLS.len()]) + u32::from(h % 2));
                let ports = if matches!(proto, Proto::Echo(_)) { (port, 0) } else { (REMOTE_PORTS[0], port) };
                return outside(forge(proto, remote(r).into(), to.into(), ports, form));
            }
        };
        self.sent_by(door, packet)
    }

    fn outside(&self, proto: Proto, target: Target) -> (Ipv4Addr, u16) {
        self.known_target(proto, target).unwrap_or((POOLS[0], 1021))
    }

    /// The outside address and port that a step names, if this engine knows the binding.
    pub(super) fn known_target(&self, proto: Proto, target: Target) -> Option<(Ipv4Addr, u16)> {
        match target {
            Target::Port { address, port } => {
                let first = POOLS[usize::from(address / 3) % POOLS.len()];
                Some((Ipv4Addr::from(u32::from(first) + u32::from(address % 3)), port))
            }
            Target::Of { door, host: h, port } => {
                let transport = match proto {
                    Proto::Tcp(_) => 0,
                    Proto::Udp | Proto::UdpZero => 1,
                    _ => 2,
                };
                let inside: Ipv6Addr = match self.through(door, h, POOLS[0]).0 {
                    IpAddr::V4(a) => a.to_ipv6_mapped(),
                    IpAddr::V6(a) => a,
                };
                self.model.outside_of(transport, (inside, host_port(port)))
            }
        }
    }

    fn error(
        &self,
        inside: bool,
        about: u8,
        (kind, code, word): (u8, u8, u32),
        router: u8,
        keep: u16,
        form: &Form,
    ) -> Vec<RealmPacket> {
        let Some(RealmPacket { realm, bytes: packet }) =
            self.sent[usize::from(inside)].get(usize::from(about))
        else {
            return Vec::new();
        };
        let quote = &packet[..packet.len().min(keep.into()).min(1200)];
        let header = if inside { 40 } else { 20 };
        if packet.len() < header {
            return Vec::new();
        }
        let (src, dst): (IpAddr, IpAddr) = if inside {
            let address = |at: usize| -> IpAddr {
                let octets: [u8; 16] = packet[at..at + 16].try_into().unwrap_or_default();
                octets.into()
            };
            (if router < 4 { address(24) } else { router6(router).into() }, address(8))
        } else {
            let address = |at: usize| -> IpAddr {
                let octets: [u8; 4] = packet[at..at + 4].try_into().unwrap_or_default();
                octets.into()
            };
            (if router < 4 { address(16) } else { router4(router).into() }, address(12))
        };
        // No extensions (RFC 4884): the wire layer and its oracle cover them.
        let word = match (inside, kind) {
            (true, 1 | 3) => word & 0x00ff_ffff,
            (false, 3 | 11 | 12) => word & 0xff00_ffff,
            _ => word,
        };
        // The error comes from the realm to which that packet went.
        vec![RealmPacket { realm: *realm, bytes: error(src, dst, (kind, code, word), quote, form) }]
    }
}

/// A packet from outside.
fn outside(bytes: Vec<u8>) -> RealmPacket {
    RealmPacket { realm: 0, bytes }
}

fn host_port(n: u8) -> u16 {
    HOST_PORTS[usize::from(n) % HOST_PORTS.len()]
}
