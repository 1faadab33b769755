//! One engine and one clock, with packets from the testkit.
#![allow(dead_code, missing_docs, unreachable_pub)]

use gatun_nat::plan::{self, PoolRange, StaticBinding, Transport};
use gatun_nat::reconfigure::{Change, Forecast};
use gatun_nat::{Instant, Nat, Plan, Verdict};
pub use gatun_testkit::packet::text::*;
pub use gatun_testkit::packet::{Endpoints as Ends, check, endpoints as ends};
use gatun_wire::{HEADROOM, Offload, Packet, Prefix64};
// A unit test of the engine, which has no std prelude, uses this module too.
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

pub const CLIENT: &str = "2001:db8:1::2";
pub const SERVER: &str = "198.51.100.7";
pub const OWN4: &str = "192.0.2.254";
pub const OWN6: &str = "2001:db8:ffff::1";

pub fn prefix(s: &str) -> Prefix64 {
    let (addr, len) = s.split_once('/').unwrap();
    Prefix64::new(v6(addr), len.parse().unwrap()).unwrap()
}

/// NAT64 instance with default values and one prefix.
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

/// Plan with one NAT64 instance for `pool6`, and one pool address 192.0.2.1 with all ports from 1.
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

/// Result of one packet.
#[derive(Debug)]
pub struct Outcome {
    pub verdict: Verdict,
    /// The packet's buffer afterwards; meaningful if it was forwarded or replied to.
    pub bytes: Vec<u8>,
    /// The realm that it leaves for.
    pub realm: u8,
    /// Further packets that the engine made.
    pub emitted: Vec<Vec<u8>>,
    /// The realms that they leave for.
    pub emitted_realms: Vec<u8>,
}

impl Outcome {
    /// Returns the translated packet. Panics if it was not forwarded.
    pub fn forwarded(&self) -> &[u8] {
        assert_eq!(self.verdict, Verdict::Forward, "{self:?}");
        &self.bytes
    }
}

/// Second translator, which gets each packet of a bed before the engine.
pub trait Beside {
    /// The packet is next.
    fn before(&mut self, nat: &Nat, now: Instant, realm: u8, packet: (&[u8], Offload));

    /// The engine has translated the packet.
    fn after(&mut self, packet: &[u8], outcome: &Outcome);
}

impl Beside for () {
    fn before(&mut self, _nat: &Nat, _now: Instant, _realm: u8, _packet: (&[u8], Offload)) {}

    fn after(&mut self, _packet: &[u8], _outcome: &Outcome) {}
}

/// An engine and its clock.
pub struct Bed<B = ()> {
    pub nat: Nat,
    pub now: Instant,
    /// The realm of the packets that are sent.
    pub realm: u8,
    /// The realms of the packets that the engine made last.
    pub emitted_realms: Vec<u8>,
    pub beside: B,
}

impl Bed {
    pub fn new(plan: &Plan) -> Self {
        Bed::with(plan, ())
    }

    pub fn nat64(pool6: &str) -> Self {
        Self::new(&plan_with(pool6))
    }
}

impl<B: Beside> Bed<B> {
    pub fn with(plan: &Plan, beside: B) -> Self {
        let nat = Nat::new(plan, [1, 2, 3, 4]).unwrap();
        Bed { nat, now: Instant(1_000_000), realm: 0, emitted_realms: Vec::new(), beside }
    }

    /// Sends one packet. Checks that it has exactly one fate, and that a dropped packet keeps its bytes.
    pub fn send(&mut self, packet: &[u8]) -> Outcome {
        let outcome = self.send_any(packet);
        if matches!(outcome.verdict, Verdict::Drop(_) | Verdict::Held | Verdict::Pass) {
            assert_eq!(outcome.bytes, packet, "{:?} changed the packet", outcome.verdict);
        }
        outcome
    }

    /// Same as [`Bed::send`], if bytes may be changed by a failure in the second half of a hairpin.
    pub fn send_any(&mut self, packet: &[u8]) -> Outcome {
        self.send_offloaded(packet, Offload::default())
    }

    /// Same as [`Bed::send`], for a packet with offload work for a device.
    pub fn send_offloaded(&mut self, packet: &[u8], offload: Offload) -> Outcome {
        self.beside.before(&self.nat, self.now, self.realm, (packet, offload));
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
        assert!(self.nat.conserved_by_address(), "{:?}", self.nat.pool_stats().collect::<Vec<_>>());
        if !matches!(outcome.verdict, Verdict::Drop(_) | Verdict::Held | Verdict::Pass) {
            check(&outcome.bytes);
        }
        for e in &outcome.emitted {
            check(e);
        }
        self.beside.after(packet, &outcome);
        outcome
    }

    /// Sends a packet that has to be forwarded. Checks nothing else: the checks of [`Bed::send`] look at all
    /// subscribers.
    pub fn forward_unchecked(&mut self, packet: &[u8]) {
        let mut buf = [0u8; HEADROOM + 256];
        buf[HEADROOM..HEADROOM + packet.len()].copy_from_slice(packet);
        let mut burst = [Packet::new(&mut buf, HEADROOM, packet.len()).unwrap()];
        let mut verdicts = [Verdict::Pass];
        assert_eq!(self.nat.process(self.now, &mut burst, &mut verdicts), 1);
        assert!(matches!(verdicts[0], Verdict::Forward), "{:?}", verdicts[0]);
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

    /// Lets the engine expire state, with a budget.
    pub fn expire(&mut self, budget: usize) -> u32 {
        self.nat.expire(self.now, budget)
    }

    /// Advances the clock by `ms` and lets the engine expire state. Returns the packets sent meanwhile.
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

/// Returns an IPv4 address embedded in a prefix.
pub fn behind(pool6: &str, address: &str) -> String {
    prefix(pool6).embed(v4(address)).to_string()
}

/// Sets TTL or hop limit, and updates the checksum of an IPv4 header.
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

/// Packet that an ICMP error quotes.
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

impl<B: Beside> Bed<B> {
    /// Sends a packet that has to be forwarded, and returns its addresses and ports after translation.
    pub fn through(&mut self, packet: &[u8]) -> Ends {
        ends(self.send(packet).forwarded())
    }

    /// Number of packets that were dropped (or answered with an error) for a reason, in both directions.
    pub fn drops(&self, reason: gatun_wire::DropReason) -> u64 {
        self.nat.counters().drops.iter().map(|d| d[reason as usize].packets).sum()
    }
}

/// Returns the number of sessions that a change would end, and of their subscribers, counted `budget` records
/// at a time.
pub fn forecast(change: &Change, nat: &Nat, budget: usize) -> (u64, u64) {
    let mut forecast = Forecast::new(change);
    while !nat.forecast(&mut forecast, change, budget) {}
    (forecast.sessions, forecast.subscribers)
}
