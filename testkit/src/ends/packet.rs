//! The packets: made, changed into others', turned round, recognised.
//!
//! ```text
//!   Ethernet | IPv6 or IPv4 | UDP | magic 4 | flow 4 | number 8 | time 8, ns | filling ...
//! ```

use gatun_ether::Mac;
use gatun_wire::checksum;
use std::net::{Ipv4Addr, Ipv6Addr};

const MAGIC: [u8; 4] = *b"gtun";
const ETHERNET: usize = 14;
const IPV6: usize = 40;
const IPV4: usize = 20;
const UDP: usize = 8;
/// Bytes of a payload that say what the packet is.
const STAMP: usize = 24;
const PROTOCOL_UDP: u8 = 17;

/// The shortest frame, bytes, without its checksum.
pub(crate) const FRAME_MIN: usize = ETHERNET + IPV6 + UDP + STAMP;

/// Whose packets are sent, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flows {
    /// Subscribers: the /64 networks from [`Flows::SUBSCRIBERS`] on; at most 2^24.
    pub subscribers: u32,
    /// Flows of each, which are source ports from 1024 on.
    pub flows_each: u16,
    /// The server that all of them are to.
    pub server: Ipv4Addr,
    /// The translator's prefix, a /96.
    pub pool6: Ipv6Addr,
    /// The server's port.
    pub port: u16,
}

impl Flows {
    /// The first subscriber's network; the next 2^24 are the others'.
    pub const SUBSCRIBERS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x100, 0, 0, 0, 0, 0);

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.subscribers.saturating_mul(self.flows_each.into())
    }

    /// A flow's source.
    pub fn source(&self, flow: u32) -> (Ipv6Addr, u16) {
        let (subscriber, number) = (flow % self.subscribers.max(1), flow / self.subscribers.max(1));
        let mut octets = Self::SUBSCRIBERS.octets();
        let [_, high, middle, low] = subscriber.to_be_bytes();
        (octets[5], octets[6], octets[7]) = (high, middle, low);
        octets[15] = 1;
        (octets.into(), 1024 + number as u16)
    }

    /// The server as subscribers see it.
    pub fn server6(&self) -> Ipv6Addr {
        let mut octets = self.pool6.octets();
        octets[12..].copy_from_slice(&self.server.octets());
        octets.into()
    }
}

/// What a packet says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) flow: u32,
    pub(crate) number: u64,
    pub(crate) time_ns: u64,
}

/// Frames of one length, but for what differs between packets.
pub(crate) struct Template {
    bytes: Vec<u8>,
    /// The sum of what the checksum covers and is the same for all.
    sum: u16,
}

impl Template {
    /// `len` is the frame's, at least [`FRAME_MIN`].
    pub(crate) fn new(flows: &Flows, len: usize, dst: Mac, src: Mac) -> Template {
        let len = len.max(FRAME_MIN);
        let udp_len = (len - ETHERNET - IPV6) as u16;
        let mut bytes = Vec::with_capacity(len);
        bytes.extend(dst.0);
        bytes.extend(src.0);
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        bytes.extend(udp_len.to_be_bytes());
        bytes.extend([PROTOCOL_UDP, 64]);
        bytes.extend([0; 16]);
        bytes.extend(flows.server6().octets());
        bytes.extend([0, 0]);
        bytes.extend(flows.port.to_be_bytes());
        bytes.extend(udp_len.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(MAGIC);
        bytes.extend([0; STAMP - MAGIC.len()]);
        bytes.extend((bytes.len()..len).map(|i| i as u8));
        // RFC 8200 8.1: addresses, length, next header; and the datagram.
        let covered = checksum::sum(&bytes[ETHERNET + 8..]);
        let pseudo = checksum::add(udp_len, PROTOCOL_UDP.into());
        Template { bytes, sum: checksum::add(covered, pseudo) }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The whole frame, with another packet's numbers in it.
    pub(crate) fn stamp(&mut self, flows: &Flows, stamp: Stamp) -> &[u8] {
        let sum = self.sum;
        put(&mut self.bytes, flows, stamp, sum);
        &self.bytes
    }

    /// Makes a frame of this length, whose filling is right, another packet's.
    #[inline]
    pub(crate) fn change(&self, frame: &mut [u8], flows: &Flows, stamp: Stamp) {
        let head = &self.bytes[..FRAME_MIN];
        if let Some(place) = frame.get_mut(..FRAME_MIN) {
            place.copy_from_slice(head);
            put(frame, flows, stamp, self.sum);
        }
    }

    /// The same, whatever its filling.
    pub(crate) fn replace(&self, frame: &mut [u8], flows: &Flows, stamp: Stamp) {
        if frame.len() == self.bytes.len() {
            frame.copy_from_slice(&self.bytes);
            put(frame, flows, stamp, self.sum);
        }
    }
}

/// Writes what differs, and the checksum: `sum` is that of the rest.
#[inline]
fn put(frame: &mut [u8], flows: &Flows, stamp: Stamp, sum: u16) {
    let Some(frame) = frame.first_chunk_mut::<FRAME_MIN>() else { return };
    let (source, port) = flows.source(stamp.flow);
    frame[22..38].copy_from_slice(&source.octets());
    frame[54..56].copy_from_slice(&port.to_be_bytes());
    frame[66..70].copy_from_slice(&stamp.flow.to_be_bytes());
    frame[70..78].copy_from_slice(&stamp.number.to_be_bytes());
    frame[78..86].copy_from_slice(&stamp.time_ns.to_be_bytes());
    let words = |bytes: &[u8]| u64::from(checksum::sum(bytes));
    let total = u64::from(sum) + words(&frame[22..38]) + u64::from(port) + words(&frame[66..86]);
    let field = match !checksum::fold(total) {
        0 => 0xffff, // RFC 768
        field => field,
    };
    frame[60..62].copy_from_slice(&field.to_be_bytes());
}

/// A packet of ours, where its parts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) stamp: Stamp,
    is_ipv6: bool,
    udp: usize,
}

/// Recognises a frame with a packet of ours.
#[inline]
pub(crate) fn find(frame: &[u8]) -> Option<Found> {
    let (is_ipv6, protocol, udp) = match frame.get(12..14)? {
        [0x86, 0xdd] => (true, *frame.get(20)?, ETHERNET + IPV6),
        [0x08, 0x00] if frame.get(14) == Some(&0x45) => (false, *frame.get(23)?, ETHERNET + IPV4),
        _ => return None,
    };
    let stamp: &[u8; STAMP] = frame.get(udp + UDP..)?.first_chunk()?;
    if protocol != PROTOCOL_UDP || stamp[..4] != MAGIC {
        return None;
    }
    let number = |at: usize| stamp[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    let flow = u32::from_be_bytes([stamp[4], stamp[5], stamp[6], stamp[7]]);
    Some(Found { stamp: Stamp { flow, number: number(8), time_ns: number(16) }, is_ipv6, udp })
}

impl Found {
    /// Whether headers and payload are undamaged: lengths, checksums of IPv4 and UDP.
    pub(crate) fn is_right(&self, frame: &[u8]) -> bool {
        let end = match self.is_ipv6 {
            true => frame
                .get(18..20)
                .map(|len| usize::from(len[0]) << 8 | usize::from(len[1]))
                .map(|len| len + 54),
            false => frame
                .get(16..18)
                .map(|len| usize::from(len[0]) << 8 | usize::from(len[1]))
                .map(|len| len + 14),
        };
        let Some(datagram) = end.and_then(|end| frame.get(self.udp..end)) else { return false };
        let addresses = match self.is_ipv6 {
            true => &frame[22..54],
            false => &frame[26..34],
        };
        let whole = checksum::fold(
            u64::from(checksum::sum(datagram))
                + u64::from(checksum::pseudo(addresses, datagram.len() as u32, PROTOCOL_UDP)),
        );
        let header = self.is_ipv6 || checksum::sum(&frame[14..34]) == 0xffff;
        let len = datagram.get(4..6).is_some_and(|len| len == (datagram.len() as u16).to_be_bytes());
        whole == 0xffff && header && len
    }

    /// Whether a returned packet came to whom its flow is, from whom it was to.
    #[inline]
    pub(crate) fn is_delivered(&self, frame: &[u8], flows: &Flows) -> bool {
        let (to, port) = flows.source(self.stamp.flow);
        let from = flows.server6().octets();
        self.is_ipv6
            && frame.get(22..38) == Some(&from)
            && frame.get(38..54) == Some(&to.octets())
            && frame.get(54..56) == Some(&flows.port.to_be_bytes())
            && frame.get(56..58) == Some(&port.to_be_bytes())
    }

    /// Makes it an answer: MACs, addresses and ports change places, so no checksum changes.
    #[inline]
    pub(crate) fn turn_round(&self, frame: &mut [u8]) {
        let mut swap = |at: usize, len: usize| {
            if let Some(both) = frame.get_mut(at..at + 2 * len) {
                let (a, b) = both.split_at_mut(len);
                a.swap_with_slice(b);
            }
        };
        swap(0, 6);
        if self.is_ipv6 {
            swap(22, 16)
        } else {
            swap(26, 4)
        }
        swap(self.udp, 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    fn flows() -> Flows {
        Flows {
            subscribers: 70_000,
            flows_each: 16,
            server: Ipv4Addr::new(203, 0, 113, 9),
            pool6: "2001:db8:64::".parse().unwrap(),
            port: 9,
        }
    }

    #[test]
    fn every_flow_has_a_source_of_its_own_and_its_packets_are_right() {
        let flows = flows();
        let (dst, src) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        let mut sources = std::collections::HashSet::new();
        for len in [0, 128, 1514] {
            let mut template = Template::new(&flows, len, dst, src);
            for flow in (0..flows.count()).step_by(997) {
                let stamp = Stamp { flow, number: u64::from(flow) << 20 | 5, time_ns: u64::MAX - 3 };
                let frame = template.stamp(&flows, stamp).to_vec();
                assert_eq!(frame.len(), len.max(FRAME_MIN));
                let found = find(&frame).unwrap();
                assert_eq!(found.stamp, stamp);
                assert!(found.is_right(&frame));
                let parsed = SlicedPacket::from_ethernet(&frame).unwrap();
                let Some(NetSlice::Ipv6(ip)) = parsed.net else { panic!("no IPv6") };
                let Some(TransportSlice::Udp(udp)) = parsed.transport else { panic!("no UDP") };
                let header = ip.header();
                assert_eq!(header.destination_addr(), flows.server6());
                assert_eq!((header.source_addr(), udp.source_port()), flows.source(flow));
                let sum = udp.to_header().calc_checksum_ipv6(&header.to_header(), udp.payload()).unwrap();
                assert_eq!(sum, udp.checksum());
                sources.insert((header.source_addr(), udp.source_port()));
            }
        }
        assert_eq!(sources.len(), (0..flows.count()).step_by(997).count());
    }

    #[test]
    fn a_packet_that_is_turned_round_is_delivered_and_can_be_changed_into_the_next_one() {
        let flows = flows();
        let mut template = Template::new(&flows, 128, Mac([2; 6]), Mac([4; 6]));
        let stamp = Stamp { flow: 123_456, number: 7, time_ns: 8 };
        let mut frame = template.stamp(&flows, stamp).to_vec();
        let first = frame.clone();
        let found = find(&frame).unwrap();
        assert!(!found.is_delivered(&frame, &flows));
        found.turn_round(&mut frame);
        assert!(find(&frame).unwrap().is_right(&frame) && found.is_delivered(&frame, &flows));
        assert_eq!(frame[..12], [[4; 6], [2; 6]].concat());
        let next = Stamp { flow: 9, number: 8, time_ns: 9 };
        template.change(&mut frame, &flows, next);
        assert_eq!(frame, template.stamp(&flows, next));
        frame[100] ^= 1;
        assert!(!find(&frame).unwrap().is_right(&frame), "damage is seen");
        template.replace(&mut frame, &flows, stamp);
        assert_eq!(frame, first);
    }

    #[test]
    fn damage_of_any_byte_behind_the_ethernet_header_is_seen_or_it_is_no_packet_of_ours() {
        let flows = flows();
        let frame = Template::new(&flows, 100, Mac([2; 6]), Mac([4; 6]))
            .stamp(&flows, Stamp { flow: 1, number: 2, time_ns: 3 })
            .to_vec();
        for at in 14..frame.len() {
            let mut damaged = frame.clone();
            damaged[at] ^= 0x10;
            // Traffic class, flow label and hop limit are covered by no checksum.
            let covered = !matches!(at, 14..18 | 21);
            let seen = find(&damaged).is_none_or(|found| !found.is_right(&damaged));
            assert_eq!(seen, covered, "byte {at}");
        }
        for len in 0..frame.len() {
            let short = &frame[..len];
            assert!(find(short).is_none_or(|found| !found.is_right(short)), "{len} bytes");
        }
    }
}
