//! Judge of the packets that arrive: it compares them with what was sent.

use crate::packet::in_place::pseudo_sum;
use crate::traffic::flows::{Family, Flow, server_of};
use crate::traffic::packet::{Traffic, read_ip_header};
use crate::traffic::stamp::Stamp;
use crate::traffic::window::{Arrival, Window};
use hdrhistogram::Histogram;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Position of the judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// At the inside hosts: packets that the servers returned, in the hosts' own family.
    Returned,
    /// At the servers: packets in this family, in which the inside host's address may be translated.
    Arrived(Family),
}

/// Counters. Every packet given to the judge is in one of `received`, `duplicates`, `late`, `corrupted` or
/// `foreign`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Different packets that arrived as they were sent.
    pub received: u64,
    /// Received packets that came after a later one of their flow.
    pub reordered: u64,
    /// Packets that arrived again.
    pub duplicates: u64,
    /// Packets too late to tell if they are duplicates.
    pub late: u64,
    /// Packets of the traffic with a wrong header, length, payload or checksum, or at the wrong end.
    pub corrupted: u64,
    /// Corrupted packets with a correct stamp: they are not lost.
    pub corrupted_known: u64,
    /// ICMP messages.
    pub icmp: u64,
    /// Other packets that are not of the traffic.
    pub foreign: u64,
    /// Bytes of the packets `received`, IP header included.
    pub bytes: u64,
}

impl Tally {
    /// Number of `sent` packets that did not arrive, intact or corrupted.
    pub fn lost(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.received + self.corrupted_known)
    }

    /// Differences to earlier counts.
    pub fn since(&self, before: &Tally) -> Tally {
        Tally {
            received: self.received - before.received,
            reordered: self.reordered - before.reordered,
            duplicates: self.duplicates - before.duplicates,
            late: self.late - before.late,
            corrupted: self.corrupted - before.corrupted,
            corrupted_known: self.corrupted_known - before.corrupted_known,
            icmp: self.icmp - before.icmp,
            foreign: self.foreign - before.foreign,
            bytes: self.bytes - before.bytes,
        }
    }

    /// Packets that a faultless path does not have: corrupted, duplicate, reordered or too late.
    pub fn damaged(&self) -> u64 {
        self.corrupted + self.duplicates + self.reordered + self.late
    }
}

/// An empty histogram of times in ns, up to a stamp's limit (78 hours), with an error below one per cent.
///
/// # Panics
/// Never panics: the bounds are constants that the histogram accepts.
pub fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 1 << 48, 2).expect("bounds in order")
}

/// Judges what arrives at one place.
pub struct Judge {
    traffic: Traffic,
    view: View,
    window: Window,
    tally: Tally,
    latency: Histogram<u64>,
}

impl Judge {
    /// A judge of this traffic; it takes 8 MB.
    pub fn new(traffic: &Traffic, view: View) -> Judge {
        Judge {
            traffic: traffic.clone(),
            view,
            window: Window::new(),
            tally: Tally::default(),
            latency: latencies(),
        }
    }

    /// Counts so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// One more than the highest number that has arrived: later packets are in flight or lost.
    pub fn next_number(&self) -> u64 {
        self.window.end()
    }

    /// Takes the delays of the packets received since the last call.
    pub fn take_latency(&mut self) -> Histogram<u64> {
        std::mem::replace(&mut self.latency, latencies())
    }

    /// Judges an IP packet that arrived at `now_ns` of the sender's clock.
    pub fn packet(&mut self, now_ns: u64, packet: &[u8]) {
        match self.identify(packet) {
            Verdict::Foreign => self.tally.foreign += 1,
            Verdict::Icmp => self.tally.icmp += 1,
            Verdict::Corrupted(None) => self.tally.corrupted += 1,
            Verdict::Corrupted(Some(stamp)) => {
                self.tally.corrupted += 1;
                if self.window.arrives(stamp.number) == Arrival::First {
                    self.tally.corrupted_known += 1;
                }
            }
            Verdict::Intact(stamp) => self.intact(now_ns, &stamp, packet.len()),
        }
    }

    fn intact(&mut self, now_ns: u64, stamp: &Stamp, len: usize) {
        let is_late = stamp.number < self.window.end();
        match self.window.arrives(stamp.number) {
            Arrival::Again => self.tally.duplicates += 1,
            Arrival::TooLate => self.tally.late += 1,
            Arrival::First => {
                self.tally.received += 1;
                self.tally.bytes += len as u64;
                self.latency.saturating_record(stamp.age_ns(now_ns));
                if is_late && self.is_overtaken(stamp) {
                    self.tally.reordered += 1;
                }
            }
        }
    }

    /// Returns true if a later packet of the same flow has arrived. A flow has one packet in each round,
    /// with a computable number, so the judge needs no state per flow; millions of flows would each touch a
    /// cache line.
    #[cold]
    fn is_overtaken(&self, stamp: &Stamp) -> bool {
        let (flows, end) = (u64::from(self.traffic.flows()), self.window.end());
        let later = (stamp.number / flows + 1..).map(|round| self.traffic.number(round, stamp.flow));
        later.take_while(|number| *number < end).any(|number| self.window.has(number))
    }

    fn identify(&self, packet: &[u8]) -> Verdict {
        let Some((family, Some(protocol), at)) = read_ip_header(packet) else { return not_ours(packet) };
        let payload = packet.get(at + protocol.header_len()..).unwrap_or_default();
        let stamp = Stamp::read(payload, self.traffic.spec().seed);
        let stamp = stamp.filter(|stamp| stamp.flow < self.traffic.flows());
        let Some(stamp) = stamp else {
            return match self.is_between_our_ends(packet, family) {
                true => Verdict::Corrupted(None),
                false => Verdict::Foreign,
            };
        };
        let flow = self.traffic.flow(stamp.flow);
        let expected_len = self.expected_len(stamp.number, &flow);
        let pseudo = pseudo_sum(packet, at, protocol as u8);
        let is_intact = flow.protocol == protocol
            && packet.len() == expected_len
            && self.ends_are_right(packet, family, at, &flow, stamp.flow)
            && self.traffic.is_intact(protocol, pseudo, &packet[at..]);
        if is_intact { Verdict::Intact(stamp) } else { Verdict::Corrupted(Some(stamp)) }
    }

    /// Expected bytes of a packet at the judge's position.
    fn expected_len(&self, number: u64, flow: &Flow) -> usize {
        let sent = self.traffic.len(number, flow.protocol);
        match (self.traffic.spec().family, self.view) {
            (Family::V6, View::Arrived(Family::V4)) => sent - 20,
            (Family::V4, View::Arrived(Family::V6)) => sent + 20,
            _ => sent,
        }
    }

    fn ends_are_right(&self, packet: &[u8], family: Family, at: usize, flow: &Flow, number: u32) -> bool {
        let Some((src, dst)) = addresses(packet, family) else { return false };
        let port =
            |at: usize| packet.get(at..).and_then(|rest| rest.first_chunk()).map(|p| u16::from_be_bytes(*p));
        let (Some(src_port), Some(dst_port)) = (port(at), port(at + 2)) else { return false };
        match self.view {
            View::Returned => (src, src_port) == flow.server && (dst, dst_port) == flow.inside,
            View::Arrived(expected) => {
                let server = match (self.traffic.spec().family, expected) {
                    (Family::V6, Family::V4) => IpAddr::V4(server_of(number)),
                    _ => flow.server.0,
                };
                family == expected && (dst, dst_port) == (server, flow.server.1)
            }
        }
    }

    /// Returns true if the addresses of an unreadable packet are of the traffic.
    fn is_between_our_ends(&self, packet: &[u8], family: Family) -> bool {
        let Some((src, dst)) = addresses(packet, family) else { return false };
        let is_server = |address| match address {
            IpAddr::V4(v4) => v4.octets()[..2] == crate::traffic::SERVERS.octets()[..2],
            IpAddr::V6(v6) => v6.octets()[..12] == crate::traffic::POOL6.octets()[..12],
        };
        match self.view {
            View::Returned => is_server(src),
            View::Arrived(_) => is_server(dst),
        }
    }
}

enum Verdict {
    Intact(Stamp),
    Corrupted(Option<Stamp>),
    Icmp,
    Foreign,
}

fn not_ours(packet: &[u8]) -> Verdict {
    let protocol = match packet.first().map(|first| first >> 4) {
        Some(4) => packet.get(9),
        Some(6) => packet.get(6),
        _ => None,
    };
    match protocol {
        Some(1 | 58) => Verdict::Icmp,
        // A malformed header or a fragment; only this traffic uses these protocols here.
        Some(6 | 17 | 44) => Verdict::Corrupted(None),
        _ => Verdict::Foreign,
    }
}

fn addresses(packet: &[u8], family: Family) -> Option<(IpAddr, IpAddr)> {
    match family {
        Family::V4 => {
            let at = |at: usize| packet.get(at..)?.first_chunk::<4>().map(|a| IpAddr::V4(Ipv4Addr::from(*a)));
            Some((at(12)?, at(16)?))
        }
        Family::V6 => {
            let at =
                |at: usize| packet.get(at..)?.first_chunk::<16>().map(|a| IpAddr::V6(Ipv6Addr::from(*a)));
            Some((at(8)?, at(24)?))
        }
    }
}
