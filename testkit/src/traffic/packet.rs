//! Packets as a function of their number: the packet to send, and the packet to expect.

use crate::packet::in_place::{checksum_field, fold, sum, write_ip_header};
use crate::traffic::PACKET_MAX;
use crate::traffic::flows::{Family, Flow, Protocol, Protocols};
use crate::traffic::shuffle::Shuffle;
use crate::traffic::sizes::{LAYER_2, Sizes};
use crate::traffic::stamp::{STAMP_LEN, Stamp};

/// Rounds between two SYNs of a TCP-like flow, which reopen ended sessions.
const SYN_EVERY: u64 = 4;
const TCP_SYN: u8 = 0x02;
const TCP_ACK: u8 = 0x10;

/// Parameters of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// IP version of the inside hosts.
    pub family: Family,
    /// Number of subscribers, at least 1.
    pub subscribers: u32,
    /// Flows of each subscriber, 1 to 60,000.
    pub flows_per_subscriber: u32,
    /// Protocols of the flows.
    pub protocols: Protocols,
    /// Frame sizes.
    pub sizes: Sizes,
    /// Seed of the order. Runs with different seeds do not accept each other's packets.
    pub seed: u64,
}

/// Traffic: a packet for every number. A round has one packet of each flow, in random order.
#[derive(Clone, Debug)]
pub struct Traffic {
    spec: Spec,
    flows: u32,
    order: Shuffle,
    /// Payload after the stamp, as long as the largest packet needs.
    tail: Vec<u8>,
    /// Ones' complement sums of the first n bytes of `tail`, by n.
    tail_sums: Vec<u16>,
}

impl Traffic {
    /// Prepares the traffic. Numbers out of range are clamped.
    pub fn new(spec: Spec) -> Traffic {
        let subscribers = spec.subscribers.max(1);
        let flows_per_subscriber =
            spec.flows_per_subscriber.clamp(1, (u32::MAX / subscribers).clamp(1, 60_000));
        let spec = Spec { subscribers, flows_per_subscriber, ..spec };
        let flows = subscribers * flows_per_subscriber;
        let tail: Vec<u8> = (0..PACKET_MAX).map(|i| (i ^ (i >> 8)) as u8).collect();
        let tail_sums = (0..=tail.len()).scan(0u32, |sum, n| {
            // The sum of the first n bytes: byte n - 1 is the upper half of its word where n - 1 is even.
            if let Some(byte) = n.checked_sub(1).and_then(|i| tail.get(i)) {
                *sum += u32::from(*byte) << (if n % 2 == 1 { 8 } else { 0 });
                *sum = (*sum & 0xffff) + (*sum >> 16);
            }
            Some(*sum as u16)
        });
        let tail_sums = tail_sums.collect();
        Traffic { spec, flows, order: Shuffle::new(flows, spec.seed), tail, tail_sums }
    }

    /// The parameters, clamped.
    pub fn spec(&self) -> Spec {
        self.spec
    }

    /// Number of flows.
    pub fn flows(&self) -> u32 {
        self.flows
    }

    /// Flow `number`, which is below [`flows`](Self::flows).
    pub fn flow(&self, number: u32) -> Flow {
        Flow::new(number, self.spec.subscribers, self.spec.family, self.spec.protocols)
    }

    /// Number of a flow's packet in a round.
    pub(crate) fn number(&self, round: u64, flow: u32) -> u64 {
        round * u64::from(self.flows) + u64::from(self.order.place(round, flow))
    }

    /// Writes the IP packet of this number, sent at `now_ns`, into `out` and returns its length:
    /// [`PACKET_MAX`] bytes are always enough. A number is below 2^48 and used once.
    ///
    /// # Panics
    /// Panics if `out` is too short.
    pub fn write(&self, number: u64, now_ns: u64, out: &mut [u8]) -> usize {
        let (round, place) = (number / u64::from(self.flows), (number % u64::from(self.flows)) as u32);
        let flow_number = self.order.at(round, place);
        let flow = self.flow(flow_number);
        let len = self.len(number, flow.protocol);
        let out = &mut out[..len];
        let (at, pseudo) = write_ip_header(flow.inside.0, flow.server.0, flow.protocol as u8, true, out);
        let stamp = Stamp { flow: flow_number, number, time_ns: now_ns };
        self.write_datagram(&flow, &stamp, pseudo, round.is_multiple_of(SYN_EVERY), &mut out[at..]);
        len
    }

    /// Bytes of packet `number` of a flow of this protocol, at the sender.
    pub(crate) fn len(&self, number: u64, protocol: Protocol) -> usize {
        let headers = ip_header_len(self.spec.family) + protocol.header_len();
        let frame = self.spec.sizes.frame(number).min(PACKET_MAX + LAYER_2);
        frame.saturating_sub(LAYER_2).max(headers + STAMP_LEN)
    }

    /// Bytes of the longest packet.
    pub fn packet_len_max(&self) -> usize {
        let sizes = self.spec.sizes.frame_max().clamp(LAYER_2, PACKET_MAX + LAYER_2) - LAYER_2;
        sizes.max(ip_header_len(self.spec.family) + Protocol::Tcp.header_len() + STAMP_LEN)
    }

    fn write_datagram(&self, flow: &Flow, stamp: &Stamp, pseudo: u32, syn: bool, out: &mut [u8]) {
        let (header_len, checksum_at) = (flow.protocol.header_len(), checksum_at(flow.protocol));
        out[..2].copy_from_slice(&flow.inside.1.to_be_bytes());
        out[2..4].copy_from_slice(&flow.server.1.to_be_bytes());
        match flow.protocol {
            Protocol::Udp => {
                let len = out.len() as u16;
                out[4..6].copy_from_slice(&len.to_be_bytes());
                out[6..8].fill(0);
            }
            Protocol::Tcp => {
                out[4..12].copy_from_slice(&(stamp.number << 16).to_be_bytes());
                let flags = if syn { TCP_SYN } else { TCP_ACK };
                out[12..20].copy_from_slice(&[5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
            }
        }
        let payload = header_len + STAMP_LEN;
        out[header_len..payload].copy_from_slice(&stamp.bytes(self.spec.seed));
        let tail_len = out.len() - payload;
        out[payload..].copy_from_slice(&self.tail[..tail_len]);
        let sum = pseudo + u32::from(sum(&out[..payload])) + u32::from(self.tail_sums[tail_len]);
        let checksum = checksum_field(sum);
        out[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Returns true if the bytes after the stamp are unchanged and the checksum is right.
    pub(crate) fn is_intact(&self, protocol: Protocol, pseudo: u32, datagram: &[u8]) -> bool {
        let payload = protocol.header_len() + STAMP_LEN;
        let Some((head, tail)) = datagram.split_at_checked(payload) else { return false };
        let tail_sum = self.tail_sums.get(tail.len()).copied().map(u32::from);
        self.tail.get(..tail.len()) == Some(tail)
            && tail_sum.is_some_and(|tail_sum| fold(pseudo + u32::from(sum(head)) + tail_sum) == 0xffff)
    }
}

/// Turns a TCP or UDP packet back to its sender: swaps addresses and ports, which changes no checksum.
/// Returns true if it was such a packet.
pub fn reflect(packet: &mut [u8]) -> bool {
    let Some((_, protocol, at)) = read_ip_header(packet) else { return false };
    let addresses = if at == 40 { 8..40 } else { 12..20 };
    if protocol.is_none() || packet.len() < at + 4 {
        return false;
    }
    for range in [addresses, at..at + 4] {
        let both = &mut packet[range];
        let half = both.len() / 2;
        let (one, other) = both.split_at_mut(half);
        one.swap_with_slice(other);
    }
    true
}

fn ip_header_len(family: Family) -> usize {
    match family {
        Family::V6 => 40,
        Family::V4 => 20,
    }
}

fn checksum_at(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Tcp => 16,
        Protocol::Udp => 6,
    }
}

/// Family, protocol and header length of a packet without options, extension headers or fragmentation;
/// `None` if its length field or its IPv4 header checksum is wrong.
pub(crate) fn read_ip_header(packet: &[u8]) -> Option<(Family, Option<Protocol>, usize)> {
    let protocol = |number| match number {
        6 => Some(Protocol::Tcp),
        17 => Some(Protocol::Udp),
        _ => None,
    };
    let word =
        |at: usize| packet.get(at..).and_then(|rest| rest.first_chunk()).map(|w| u16::from_be_bytes(*w));
    match packet.first()? {
        0x45 => {
            let is_whole = word(6)? & 0x3fff == 0;
            let fits = usize::from(word(2)?) == packet.len() && sum(packet.get(..20)?) == 0xffff;
            (is_whole && fits).then_some((Family::V4, protocol(packet[9]), 20))
        }
        first if first >> 4 == 6 => {
            let fits = usize::from(word(4)?) + 40 == packet.len();
            fits.then_some((Family::V6, protocol(packet[6]), 40))
        }
        _ => None,
    }
}
