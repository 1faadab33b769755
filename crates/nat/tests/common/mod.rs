//! A bench for the engine: packets built and read by a parser that is not ours, one engine, one clock.
#![allow(dead_code, missing_docs, unreachable_pub)]

use etherparse::{PacketBuilder, SlicedPacket};
use gatun_nat::plan::{self, PoolRange, StaticBinding, Transport};
use gatun_nat::reconfigure::{Change, Forecast};
use gatun_nat::{Instant, Nat, Plan, Verdict};
use gatun_wire::{HEADROOM, Offload, Packet, Prefix64};
use std::net::{Ipv4Addr, Ipv6Addr};
// A unit test of the engine, which has no prelude of std, uses this too.
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

pub const CLIENT: &str = "2001:db8:1::2";
pub const SERVER: &str = "198.51.100.7";
pub const OWN4: &str = "192.0.2.254";
pub const OWN6: &str = "2001:db8:ffff::1";

pub fn v4(s: &str) -> Ipv4Addr {
    s.parse().unwrap()
}

pub fn v6(s: &str) -> Ipv6Addr {
    s.parse().unwrap()
}

pub fn prefix(s: &str) -> Prefix64 {
    let (addr, len) = s.split_once('/').unwrap();
    Prefix64::new(v6(addr), len.parse().unwrap()).unwrap()
}

/// A NAT64 instance with everything at its default behind one prefix.
pub fn nat64(pool6: &str) -> plan::Nat64 {
    plan::Nat64 {
        name: "default".into(),
        pool6: vec![prefix(pool6)],
        subscriber_len: 128,
        ..plan::Nat64::default()
    }
}

pub fn pool(first: &str, last: &str, ports: (u16, u16)) -> plan::Pool4 {
    plan::Pool4 {
        name: "pool".into(),
        ranges: vec![PoolRange { first: v4(first), last: v4(last), ports, transports: [true; 3] }],
        ..plan::Pool4::default()
    }
}

/// One NAT64 instance behind `pool6`, one pool address 192.0.2.1 with all ports from 1.
pub fn plan_with(pool6: &str) -> Plan {
    Plan {
        own4: Some(v4(OWN4)),
        own6: Some(v6(OWN6)),
        pools: vec![pool("192.0.2.1", "192.0.2.1", (1, 65535))],
        nat64: vec![nat64(pool6)],
        ..Plan::default()
    }
}

pub fn static_binding(transport: Transport, inside: (&str, u16), outside: (&str, u16)) -> StaticBinding {
    StaticBinding { transport, inside: (v6(inside.0), inside.1), outside: (v4(outside.0), outside.1) }
}

/// What became of one packet.
#[derive(Debug)]
pub struct Outcome {
    pub verdict: Verdict,
    /// The packet's buffer afterwards; meaningful where it was forwarded or replied to.
    pub bytes: Vec<u8>,
    /// The realm that it goes to.
    pub realm: u8,
    /// Packets that the engine made besides.
    pub emitted: Vec<Vec<u8>>,
    /// The realms that they go to.
    pub emitted_realms: Vec<u8>,
}

impl Outcome {
    /// The translated packet; panics where it was not forwarded.
    pub fn forwarded(&self) -> &[u8] {
        assert_eq!(self.verdict, Verdict::Forward, "{self:?}");
        &self.bytes
    }
}

/// An engine and its clock.
pub struct Bed {
    pub nat: Nat,
    pub now: Instant,
    /// The realm that packets come from.
    pub realm: u8,
    /// Those that the last packets went to which the engine had made.
    pub emitted_realms: Vec<u8>,
}

impl Bed {
    pub fn new(plan: &Plan) -> Self {
        Bed {
            nat: Nat::new(plan, [1, 2, 3, 4]).unwrap(),
            now: Instant(1_000_000),
            realm: 0,
            emitted_realms: Vec::new(),
        }
    }

    pub fn nat64(pool6: &str) -> Self {
        Self::new(&plan_with(pool6))
    }

    /// Sends one packet through, and checks that every packet has one fate, and that one which is dropped
    /// keeps its bytes.
    pub fn send(&mut self, packet: &[u8]) -> Outcome {
        let outcome = self.send_any(packet);
        if matches!(outcome.verdict, Verdict::Drop(_) | Verdict::Held | Verdict::Pass) {
            assert_eq!(outcome.bytes, packet, "{:?} changed the packet", outcome.verdict);
        }
        outcome
    }

    /// As [`Bed::send`], where bytes may be lost: what fails in the second half of a hairpin.
    pub fn send_any(&mut self, packet: &[u8]) -> Outcome {
        self.send_offloaded(packet, Offload::default())
    }

    /// The same with work left for a device.
    pub fn send_offloaded(&mut self, packet: &[u8], offload: Offload) -> Outcome {
        let mut buf = vec![0xa5u8; HEADROOM + packet.len() + 64];
        buf[HEADROOM..HEADROOM + packet.len()].copy_from_slice(packet);
        let mut burst = [Packet::with_offload(&mut buf, HEADROOM, packet.len(), offload).unwrap()];
        burst[0].realm = self.realm;
        let mut verdicts = [Verdict::Pass];
        assert_eq!(self.nat.process(self.now, &mut burst, &mut verdicts), 1);
        let (bytes, realm, verdict) = (burst[0].bytes().to_vec(), burst[0].realm, verdicts[0]);
        let emitted = self.emitted();
        let emitted_realms = self.emitted_realms.clone();
        let outcome = Outcome { verdict, bytes, realm, emitted, emitted_realms };
        assert!(self.nat.counters().conserved(), "{:?}", self.nat.counters());
        assert!(self.nat.conserved_by_instance(), "{:?}", self.nat.counters());
        if !matches!(outcome.verdict, Verdict::Drop(_) | Verdict::Held | Verdict::Pass) {
            check(&outcome.bytes);
        }
        for e in &outcome.emitted {
            check(e);
        }
        outcome
    }

    pub fn emitted(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let realms = &mut self.emitted_realms;
        realms.clear();
        self.nat.drain_emitted(|e| {
            realms.push(e.packet.realm);
            all.push(e.packet.bytes().to_vec());
        });
        all
    }

    /// Lets `ms` pass, and the engine do what is due; gives what it sent meanwhile.
    pub fn pass_ms(&mut self, ms: u64) -> Vec<Vec<u8>> {
        let end = self.now.plus_ms(ms);
        let mut sent = Vec::new();
        while self.now < end {
            self.now = self.now.plus_ms(500.min(end.since_ms(self.now)));
            self.nat.expire(self.now, usize::MAX);
            sent.extend(self.emitted());
            assert!(self.nat.counters().conserved() && self.nat.conserved_by_instance());
        }
        for e in &sent {
            check(e);
        }
        sent
    }
}

/// Reads a packet with a parser that is not ours and recomputes every checksum.
pub fn check(packet: &[u8]) {
    let sliced = SlicedPacket::from_ip(packet).unwrap_or_else(|e| panic!("{e}: {packet:02x?}"));
    use etherparse::{NetSlice, TransportSlice};
    let net = sliced.net.as_ref().unwrap();
    let fragmented = sliced.is_ip_payload_fragmented();
    if let NetSlice::Ipv4(ip) = net {
        let h = ip.header().to_header();
        assert_eq!(h.header_checksum, h.calc_header_checksum(), "IPv4 header checksum");
        assert_eq!(usize::from(h.total_len), packet.len(), "Total Length");
    }
    if fragmented {
        return;
    }
    match (net, &sliced.transport) {
        (NetSlice::Ipv4(ip), Some(TransportSlice::Udp(u))) => {
            let (h, ip) = (u.to_header(), ip.header().to_header());
            assert_eq!(h.checksum, h.calc_checksum_ipv4(&ip, u.payload()).unwrap(), "UDP over IPv4");
        }
        (NetSlice::Ipv6(ip), Some(TransportSlice::Udp(u))) => {
            let (h, ip) = (u.to_header(), ip.header().to_header());
            assert_eq!(h.checksum, h.calc_checksum_ipv6(&ip, u.payload()).unwrap(), "UDP over IPv6");
        }
        (NetSlice::Ipv4(ip), Some(TransportSlice::Tcp(t))) => {
            let (h, ip) = (t.to_header(), ip.header().to_header());
            assert_eq!(h.checksum, h.calc_checksum_ipv4(&ip, t.payload()).unwrap(), "TCP over IPv4");
        }
        (NetSlice::Ipv6(ip), Some(TransportSlice::Tcp(t))) => {
            let (h, ip) = (t.to_header(), ip.header().to_header());
            assert_eq!(h.checksum, h.calc_checksum_ipv6(&ip, t.payload()).unwrap(), "TCP over IPv6");
        }
        (NetSlice::Ipv4(_), Some(TransportSlice::Icmpv4(i))) => {
            assert_eq!(i.checksum(), i.icmp_type().calc_checksum(i.payload()), "ICMPv4");
        }
        (NetSlice::Ipv6(ip), Some(TransportSlice::Icmpv6(i))) => {
            let h = ip.header().to_header();
            assert!(i.is_checksum_valid(h.source, h.destination), "ICMPv6");
        }
        _ => {}
    }
}

pub fn udp6(src: &str, sport: u16, dst: &str, dport: u16, payload: &[u8]) -> Vec<u8> {
    let b = PacketBuilder::ipv6(v6(src).octets(), v6(dst).octets(), 64).udp(sport, dport);
    let mut out = Vec::new();
    b.write(&mut out, payload).unwrap();
    out
}

pub fn udp4(src: &str, sport: u16, dst: &str, dport: u16, payload: &[u8]) -> Vec<u8> {
    let b = PacketBuilder::ipv4(v4(src).octets(), v4(dst).octets(), 64).udp(sport, dport);
    let mut out = Vec::new();
    b.write(&mut out, payload).unwrap();
    out
}

/// A TCP segment; flags by letters: S, A, F, R, P, U.
macro_rules! tcp {
    ($builder:expr, $sport:expr, $dport:expr, $flags:expr, $payload:expr) => {{
        let mut b = $builder.tcp($sport, $dport, 1000, 4096);
        for f in $flags.chars() {
            b = match f {
                'S' => b.syn(),
                'A' => b.ack(2000),
                'F' => b.fin(),
                'R' => b.rst(),
                'P' => b.psh(),
                'U' => b.urg(0),
                other => panic!("flag {other}"),
            };
        }
        let mut out = Vec::new();
        b.write(&mut out, $payload).unwrap();
        out
    }};
}

pub fn tcp6(src: &str, sport: u16, dst: &str, dport: u16, flags: &str, payload: &[u8]) -> Vec<u8> {
    tcp!(PacketBuilder::ipv6(v6(src).octets(), v6(dst).octets(), 64), sport, dport, flags, payload)
}

pub fn tcp4(src: &str, sport: u16, dst: &str, dport: u16, flags: &str, payload: &[u8]) -> Vec<u8> {
    tcp!(PacketBuilder::ipv4(v4(src).octets(), v4(dst).octets(), 64), sport, dport, flags, payload)
}

pub fn echo6(src: &str, dst: &str, request: bool, id: u16, payload: &[u8]) -> Vec<u8> {
    let b = PacketBuilder::ipv6(v6(src).octets(), v6(dst).octets(), 64);
    let mut out = Vec::new();
    if request { b.icmpv6_echo_request(id, 1) } else { b.icmpv6_echo_reply(id, 1) }
        .write(&mut out, payload)
        .unwrap();
    out
}

pub fn echo4(src: &str, dst: &str, request: bool, id: u16, payload: &[u8]) -> Vec<u8> {
    let b = PacketBuilder::ipv4(v4(src).octets(), v4(dst).octets(), 64);
    let mut out = Vec::new();
    if request { b.icmpv4_echo_request(id, 1) } else { b.icmpv4_echo_reply(id, 1) }
        .write(&mut out, payload)
        .unwrap();
    out
}

/// Addresses and ports of a TCP or UDP packet, or the identifier of an echo message in both ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    pub src: std::net::IpAddr,
    pub dst: std::net::IpAddr,
    pub sport: u16,
    pub dport: u16,
}

pub fn ends(packet: &[u8]) -> Ends {
    use etherparse::{NetSlice, TransportSlice};
    let sliced = SlicedPacket::from_ip(packet).unwrap();
    let (src, dst) = match sliced.net.as_ref().unwrap() {
        NetSlice::Ipv4(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        NetSlice::Ipv6(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        NetSlice::Arp(_) => unreachable!(),
    };
    let echo_id = |b: &[u8]| u16::from_be_bytes([b[4], b[5]]);
    let (sport, dport) = match sliced.transport.as_ref().unwrap() {
        TransportSlice::Udp(u) => (u.source_port(), u.destination_port()),
        TransportSlice::Tcp(t) => (t.source_port(), t.destination_port()),
        TransportSlice::Icmpv4(i) => (echo_id(i.slice()), echo_id(i.slice())),
        TransportSlice::Icmpv6(i) => (echo_id(i.slice()), echo_id(i.slice())),
        TransportSlice::Igmp(_) => (0, 0),
    };
    Ends { src, dst, sport, dport }
}

/// An IPv4 address as it stands behind a prefix.
pub fn behind(pool6: &str, address: &str) -> String {
    prefix(pool6).embed(v4(address)).to_string()
}

/// An ICMPv4 error about `quote`.
pub fn error4(src: &str, dst: &str, (kind, code, word): (u8, u8, u32), quote: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    PacketBuilder::ipv4(v4(src).octets(), v4(dst).octets(), 64)
        .icmpv4_raw(kind, code, word.to_be_bytes())
        .write(&mut out, quote)
        .unwrap();
    out
}

/// An ICMPv6 error about `quote`.
pub fn error6(src: &str, dst: &str, (kind, code, word): (u8, u8, u32), quote: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    PacketBuilder::ipv6(v6(src).octets(), v6(dst).octets(), 64)
        .icmpv6_raw(kind, code, word.to_be_bytes())
        .write(&mut out, quote)
        .unwrap();
    out
}

/// A packet of a protocol that has no ports here.
pub fn other6(src: &str, dst: &str, proto: u8) -> Vec<u8> {
    let mut out = vec![0x60, 0, 0, 0, 0, 16, proto, 64];
    out.extend(v6(src).octets());
    out.extend(v6(dst).octets());
    out.extend([7; 16]);
    out
}

/// As [`other6`].
pub fn other4(src: &str, dst: &str, proto: u8) -> Vec<u8> {
    let mut header = etherparse::Ipv4Header::new(16, 64, proto.into(), v4(src).octets(), v4(dst).octets())
        .expect("a short payload");
    header.header_checksum = header.calc_header_checksum();
    let mut out = header.to_bytes().to_vec();
    out.extend([7; 16]);
    out
}

/// Sets TTL or hop limit, and an IPv4 header's checksum anew.
pub fn with_hops(mut packet: Vec<u8>, hops: u8) -> Vec<u8> {
    match packet[0] >> 4 {
        6 => packet[7] = hops,
        _ => {
            packet[8] = hops;
            renew_ipv4_checksum(&mut packet);
        }
    }
    packet
}

/// Sets the flags and offset field of an IPv4 header.
pub fn with_flags4(mut packet: Vec<u8>, flags: u16) -> Vec<u8> {
    packet[6..8].copy_from_slice(&flags.to_be_bytes());
    renew_ipv4_checksum(&mut packet);
    packet
}

fn renew_ipv4_checksum(packet: &mut [u8]) {
    let sum = etherparse::Ipv4Header::from_slice(packet).unwrap().0.calc_header_checksum();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// What an ICMP error quotes.
pub fn quote(packet: &[u8]) -> &[u8] {
    match packet[0] >> 4 {
        6 => &packet[48..],
        _ => &packet[28..],
    }
}

/// Type and code of an ICMP message without IP options.
pub fn icmp_type(packet: &[u8]) -> (u8, u8) {
    match packet[0] >> 4 {
        6 => (packet[40], packet[41]),
        _ => (packet[20], packet[21]),
    }
}

impl Bed {
    /// Sends a packet that has to be forwarded, and gives its addresses and ports after translation.
    pub fn through(&mut self, packet: &[u8]) -> Ends {
        ends(self.send(packet).forwarded())
    }

    /// How many packets were dropped (or answered with an error) for a reason, in both directions.
    pub fn drops(&self, reason: gatun_wire::DropReason) -> u64 {
        self.nat.counters().drops.iter().map(|d| d[reason as usize].packets).sum()
    }
}

/// Sessions that a change is to end, and of how many subscribers; by looks at so many records at a time.
pub fn forecast(change: &Change, nat: &Nat, budget: usize) -> (u64, u64) {
    let mut forecast = Forecast::new(change);
    while !nat.forecast(&mut forecast, change, budget) {}
    (forecast.sessions, forecast.subscribers)
}
