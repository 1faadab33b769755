//! UDP datagrams of one flow that are written to the device together, like the kernel's generic receive
//! offload (decision 0013).
//!
//! ```text
//!   IP | UDP | payload 1      IP | UDP | payload 2      IP | UDP | payload 3      translated datagrams
//!   IP | UDP | payload 1 | payload 2 | payload 3      written packet, with the size of a payload
//! ```
//! The kernel passes it through its stack as one packet, and splits it before a socket, or before a card that
//! cannot. Each datagram is then restored to the last bit of its headers. Only datagrams for which this holds
//! are joined.

use gatun_wire::hdr::{get16, ipv4, ipv6, put16, udp};
use gatun_wire::{Checksum, Packet, Segmentation, checksum, proto};

/// Largest total length: the IPv4 field has 16 bits.
const TOTAL_MAX: usize = 65_535;

/// Largest number of datagrams in a train: the kernel joins as many, and every kernel accepts them.
pub(crate) const MEMBERS_MAX: usize = 64;

/// Largest length in bytes of the headers of a joined datagram.
pub(crate) const HEADERS_MAX: usize = ipv6::LEN + udp::LEN;

/// Properties of a datagram that decide if it can be joined with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    flow: Flow,
    /// Length of the IP header in bytes. The UDP header follows directly.
    ip_len: usize,
    /// Length of the payload in bytes.
    payload: usize,
    /// Identification, if it has a meaning (RFC 6864 4): IPv4 without Don't Fragment.
    id: Option<u16>,
}

/// Ports, addresses, and the fields of the IP header other than length, identification and checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flow {
    ports: [u8; 4],
    fields: [u8; 6],
    addresses: Addresses,
}

/// Source and destination. IPv4 addresses take the first eight bytes.
pub(crate) type Addresses = [u8; 32];

/// Addresses of a packet that is written alone and must not be overtaken by datagrams between these
/// addresses: it may belong to their flow, as a fragment or with options. `None` for TCP and ICMP, which
/// belong to other flows.
pub(crate) fn not_to_be_overtaken(packet: &[u8]) -> Option<Addresses> {
    let mut addresses = [0; 32];
    let (protocol, found, to) = match packet.first()? >> 4 {
        4 => (packet.get(9)?, packet.get(ipv4::ADDRESSES..ipv4::LEN)?, addresses.get_mut(..8)?),
        6 => (packet.get(ipv6::NEXT_HEADER)?, packet.get(ipv6::ADDRESSES..ipv6::LEN)?, &mut addresses[..]),
        _ => return None,
    };
    to.copy_from_slice(found);
    (!matches!(*protocol, proto::TCP | proto::ICMP | proto::ICMPV6)).then_some(addresses)
}

impl Datagram {
    /// Reads a packet. `None` if it has to be written alone: it is not a complete UDP datagram after a plain
    /// IP header, or its checksum is wrong, which a joined packet would hide.
    pub(crate) fn of(packet: &Packet<'_>) -> Option<Datagram> {
        let bytes = packet.bytes();
        let (flow, ip_len, id) = match bytes.first()? >> 4 {
            4 => four(bytes)?,
            6 => six(bytes)?,
            _ => return None,
        };
        let datagram = bytes.get(ip_len..)?;
        let payload = datagram.len().checked_sub(udp::LEN).filter(|&len| len > 0)?;
        let is_whole = get16(datagram, udp::LENGTH)? as usize == datagram.len();
        let sum_is_right = match packet.offload.checksum {
            Checksum::Partial { start, offset } => {
                usize::from(start) == ip_len && usize::from(offset) == udp::CHECKSUM
            }
            Checksum::Complete => {
                let sum = checksum::add(pseudo(&flow, ip_len, datagram.len()), checksum::sum(datagram));
                get16(datagram, udp::CHECKSUM)? != 0 && sum == 0xffff
            }
        };
        let is_one = packet.offload.segmentation == Segmentation::None;
        (is_whole && sum_is_right && is_one).then_some(Datagram { flow, ip_len, payload, id })
    }

    /// Length of both headers in bytes.
    fn headers(&self) -> usize {
        self.ip_len + udp::LEN
    }
}

/// Consecutive datagrams of a flow that are written together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatagramTrain {
    first: Datagram,
    /// Number of datagrams.
    count: u16,
    /// Length of all payloads in bytes.
    payload: usize,
    /// True after a shorter datagram, which can only be the last one.
    is_closed: bool,
}

impl DatagramTrain {
    /// Starts a train with its first datagram.
    pub(crate) fn new(first: Datagram) -> DatagramTrain {
        DatagramTrain { first, count: 1, payload: first.payload, is_closed: false }
    }

    /// Returns true if a datagram has the same addresses and ports. Such a datagram has to be taken next, or
    /// ends the train.
    pub(crate) fn has_ends_of(&self, next: &Datagram) -> bool {
        (self.first.flow.ports, self.first.flow.addresses) == (next.flow.ports, next.flow.addresses)
    }

    /// Returns true if the train is between these addresses.
    pub(crate) fn is_between(&self, addresses: &Addresses) -> bool {
        self.first.flow.addresses == *addresses
    }

    /// Takes the next datagram between the same ports. Returns false if it does not fit and has to begin
    /// another train.
    pub(crate) fn take(&mut self, next: &Datagram) -> bool {
        let follows = match (self.first.id, next.id) {
            // The kernel numbers segments consecutively when it splits a packet.
            (Some(first), Some(id)) => id == first.wrapping_add(self.count),
            (None, None) => true,
            _ => false,
        };
        let total = self.first.headers() + self.payload + next.payload;
        let is_full = self.is_closed || usize::from(self.count) == MEMBERS_MAX || total > TOTAL_MAX;
        if is_full || !follows || next.flow != self.first.flow || next.payload > self.first.payload {
            return false;
        }
        self.is_closed = next.payload < self.first.payload;
        self.count += 1;
        self.payload += next.payload;
        true
    }

    /// Length of a datagram's headers in bytes. Only the first datagram's headers are written.
    pub(crate) fn headers(&self) -> usize {
        self.first.headers()
    }

    /// Length in bytes of each payload. The last one may be shorter.
    pub(crate) fn size(&self) -> u16 {
        self.first.payload as u16 // of a packet whose length has 16 bits
    }

    /// Writes the total length and the partial checksum into the first datagram's headers. Returns the
    /// checksum that the kernel has to complete.
    pub(crate) fn write(&self, headers: &mut [u8]) -> Checksum {
        let Datagram { flow, ip_len, .. } = self.first;
        let len = udp::LEN + self.payload; // at most TOTAL_MAX
        match ip_len {
            ipv6::LEN => put16(headers, ipv6::PAYLOAD_LEN, len as u16),
            _ => {
                put16(headers, ipv4::TOTAL_LEN, (ip_len + len) as u16);
                ipv4::set_checksum(headers.get_mut(..ip_len).unwrap_or_default());
            }
        }
        if let Some(header) = headers.get_mut(ip_len..) {
            put16(header, udp::LENGTH, len as u16);
            put16(header, udp::CHECKSUM, pseudo(&flow, ip_len, len));
        }
        Checksum::Partial { start: ip_len as u16, offset: udp::CHECKSUM as u16 }
    }
}

/// Sum of the pseudo-header of a datagram of `len` bytes.
fn pseudo(flow: &Flow, ip_len: usize, len: usize) -> u16 {
    let addresses = flow.addresses.get(..if ip_len == ipv6::LEN { 32 } else { 8 });
    checksum::pseudo(addresses.unwrap_or_default(), len as u32, proto::UDP)
}

fn four(bytes: &[u8]) -> Option<(Flow, usize, Option<u16>)> {
    let h = bytes.first_chunk::<{ ipv4::LEN + 4 }>()?;
    let flags = u16::from_be_bytes([h[6], h[7]]);
    let is_whole = flags & (ipv4::MF | ipv4::OFFSET_MASK) == 0
        && usize::from(u16::from_be_bytes([h[2], h[3]])) == bytes.len();
    if h[0] != 0x45 || h[9] != proto::UDP || !is_whole {
        return None;
    }
    let mut addresses = [0; 32];
    addresses[..8].copy_from_slice(&h[12..20]);
    let flow =
        Flow { ports: [h[20], h[21], h[22], h[23]], fields: [h[0], h[1], h[6], h[8], 0, 0], addresses };
    let id = (flags & ipv4::DF == 0).then_some(u16::from_be_bytes([h[4], h[5]]));
    Some((flow, ipv4::LEN, id))
}

fn six(bytes: &[u8]) -> Option<(Flow, usize, Option<u16>)> {
    let h = bytes.first_chunk::<{ ipv6::LEN + 4 }>()?;
    if h[6] != proto::UDP || ipv6::LEN + usize::from(u16::from_be_bytes([h[4], h[5]])) != bytes.len() {
        return None;
    }
    let mut addresses = [0; 32];
    addresses.copy_from_slice(&h[8..40]);
    let ports = [h[40], h[41], h[42], h[43]];
    Some((Flow { ports, fields: [h[0], h[1], h[2], h[3], h[7], 0], addresses }, ipv6::LEN, None))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use gatun_wire::HEADROOM;
    use gatun_wire::segment;

    /// Datagram from port 7 to port 9 with a correct checksum and headroom. With `id`, an IPv4 datagram
    /// without Don't Fragment.
    pub(crate) fn datagram(version: u8, id: Option<u16>, payload: &[u8]) -> Vec<u8> {
        let len = (udp::LEN + payload.len()) as u16;
        let mut ip = match version {
            4 => vec![0x45, 0x28, 0, 0, 0, 0, 0x40, 0, 63, proto::UDP, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2],
            _ => [&[0x61, 0x23, 0x45, 0x67, 0, 0, proto::UDP, 63][..], &[0x20; 16], &[0xfc; 16]].concat(),
        };
        if version == 4 {
            put16(&mut ip, ipv4::TOTAL_LEN, 20 + len);
            if let Some(id) = id {
                put16(&mut ip, ipv4::ID, id);
                put16(&mut ip, ipv4::FLAGS, 0);
            }
            ipv4::set_checksum(&mut ip);
        } else {
            put16(&mut ip, ipv6::PAYLOAD_LEN, len);
        }
        let mut udp = [&[0, 7, 0, 9, 0, 0, 0, 0][..], payload].concat();
        put16(&mut udp, udp::LENGTH, len);
        let addresses = if version == 4 { &ip[12..20] } else { &ip[8..40] };
        let sum = checksum::add(checksum::pseudo(addresses, len.into(), proto::UDP), checksum::sum(&udp));
        put16(&mut udp, udp::CHECKSUM, if sum == 0xffff { 0xffff } else { !sum });
        [vec![0; HEADROOM], ip, udp].concat()
    }

    fn read(bytes: &[u8]) -> Option<Datagram> {
        let mut bytes = bytes.to_vec();
        let len = bytes.len() - HEADROOM;
        Datagram::of(&Packet::new(&mut bytes, HEADROOM, len).unwrap())
    }

    fn payload(len: usize, seed: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + seed * 13) as u8).collect()
    }

    #[test]
    fn joined_datagrams_are_split_into_the_same_datagrams() {
        for (version, id) in [(4, Some(0xfffe)), (4, None), (6, None)] {
            for lengths in
                [vec![1200; 54], vec![1, 1], vec![1400, 1400, 3], vec![333; 64], vec![32_000, 31_000]]
            {
                let datagrams: Vec<Vec<u8>> = (0..)
                    .zip(&lengths)
                    .map(|(n, &len)| {
                        let id = id.map(|id: u16| id.wrapping_add(n as u16));
                        datagram(version, id, &payload(len, n))
                    })
                    .collect();
                let mut train = DatagramTrain::new(read(&datagrams[0]).unwrap());
                assert!(datagrams[1..].iter().all(|d| train.take(&read(d).unwrap())), "{lengths:?}");
                let rest = datagrams[1..].iter().flat_map(|d| &d[HEADROOM + train.headers()..]);
                let mut whole: Vec<u8> = datagrams[0].iter().chain(rest).copied().collect();
                let len = whole.len() - HEADROOM;
                let mut packet = Packet::new(&mut whole, HEADROOM, len).unwrap();
                packet.offload.checksum = train.write(packet.bytes_mut());
                packet.offload.segmentation = Segmentation::Udp { size: train.size() };
                assert_eq!(segment::count(&packet), lengths.len());
                for (number, datagram) in datagrams.iter().enumerate() {
                    let mut out = vec![0; 70_000];
                    let len = segment::write(&packet, number, &mut out).unwrap();
                    let mut one = datagram[HEADROOM..].to_vec();
                    if version == 4 && id.is_none() {
                        // The kernel numbers segments even if the number has no meaning.
                        put16(&mut one, ipv4::ID, number as u16);
                        ipv4::set_checksum(&mut one[..20]);
                    }
                    assert!(out[..len] == one, "IPv{version}, {number} of {lengths:?}");
                }
            }
        }
    }

    #[test]
    fn datagrams_with_different_headers_are_not_joined() {
        type Change = (&'static str, fn(&mut Vec<u8>));
        const AT: usize = HEADROOM;
        let fresh = |version, change: fn(&mut Vec<u8>)| {
            let mut one = datagram(version, Some(2), &payload(100, 2));
            change(&mut one);
            // Checksums are correct after the change.
            if version == 4 {
                ipv4::set_checksum(&mut one[AT..AT + 20]);
            }
            let (ip_len, addresses) =
                if version == 4 { (20, AT + 12..AT + 20) } else { (40, AT + 8..AT + 40) };
            put16(&mut one, AT + ip_len + 6, 0);
            let pseudo = checksum::pseudo(&one[addresses], (one.len() - AT - ip_len) as u32, proto::UDP);
            let sum = !checksum::add(pseudo, checksum::sum(&one[AT + ip_len..]));
            put16(&mut one, AT + ip_len + 6, sum);
            one
        };
        let joins = |version, change| {
            let mut train = DatagramTrain::new(read(&datagram(version, Some(1), &payload(100, 1))).unwrap());
            read(&fresh(version, change)).is_some_and(|next| train.has_ends_of(&next) && train.take(&next))
        };
        for version in [4, 6] {
            assert!(joins(version, |_| ()));
        }
        let of4: [Change; 9] = [
            ("type of service", |d| d[AT + 1] ^= 1),
            ("identification", |d| put16(d, AT + 4, 3)),
            ("Don't Fragment", |d| put16(d, AT + 6, ipv4::DF)),
            ("a fragment", |d| put16(d, AT + 6, ipv4::MF)),
            ("time to live", |d| d[AT + 8] -= 1),
            ("protocol", |d| d[AT + 9] = proto::TCP),
            ("source", |d| d[AT + 12] ^= 1),
            ("destination", |d| d[AT + 19] ^= 1),
            ("padding", |d| d.push(0)),
        ];
        let of6: [Change; 6] = [
            ("flow label", |d| d[AT + 3] ^= 1),
            ("traffic class", |d| d[AT] ^= 1),
            ("hop limit", |d| d[AT + 7] -= 1),
            ("next header", |d| d[AT + 6] = proto::DEST_OPTIONS),
            ("source", |d| d[AT + 8] ^= 1),
            ("destination", |d| d[AT + 39] ^= 1),
        ];
        for (version, changes) in [(4, &of4[..]), (6, &of6[..])] {
            for (what, change) in changes {
                assert!(!joins(version, *change), "IPv{version}: {what}");
            }
            let more: [Change; 4] = [
                ("source port", |d| {
                    let at = if d[AT] >> 4 == 4 { AT + 20 } else { AT + 40 };
                    d[at] ^= 1;
                }),
                ("destination port", |d| {
                    let at = if d[AT] >> 4 == 4 { AT + 22 } else { AT + 42 };
                    d[at] ^= 1;
                }),
                ("UDP's length", |d| {
                    let at = if d[AT] >> 4 == 4 { AT + 25 } else { AT + 45 };
                    d[at] -= 1;
                }),
                ("more payload", |d| *d = datagram(d[AT] >> 4, Some(2), &payload(101, 2))),
            ];
            for (what, change) in more {
                assert!(!joins(version, change), "IPv{version}: {what}");
            }
        }
    }

    #[test]
    fn invalid_and_partial_datagrams_are_not_joined() {
        for version in [4, 6] {
            let good = datagram(version, None, &payload(100, 1));
            let of = |change: &dyn Fn(&mut Packet<'_>)| {
                let mut bytes = good.clone();
                let len = bytes.len() - HEADROOM;
                let mut packet = Packet::new(&mut bytes, HEADROOM, len).unwrap();
                change(&mut packet);
                Datagram::of(&packet)
            };
            let udp_at = if version == 4 { 20 } else { 40 };
            assert!(of(&|_| ()).is_some());
            assert!(of(&|p| p.bytes_mut()[udp_at + 50] ^= 1).is_none(), "a wrong checksum");
            assert!(of(&|p| put16(p.bytes_mut(), udp_at + 6, 0)).is_none(), "no checksum");
            assert!(
                of(&|p| p.offload.segmentation = Segmentation::Udp { size: 50 }).is_none(),
                "a super-packet"
            );
            let partial = |start, offset| {
                move |p: &mut Packet<'_>| {
                    put16(p.bytes_mut(), udp_at + 6, 0x1234);
                    p.offload.checksum = Checksum::Partial { start, offset };
                }
            };
            assert!(of(&partial(udp_at as u16, 6)).is_some(), "left to the device");
            assert!(of(&partial(udp_at as u16 + 8, 6)).is_none(), "checksum of an inner header");
            assert!(of(&partial(udp_at as u16, 16)).is_none(), "checksum at another offset");
            for len in 0..good.len() - HEADROOM {
                assert!(of(&|p| p.truncate(len)).is_none(), "truncated to {len} bytes");
            }
            assert!(read(&datagram(version, None, &[])).is_none(), "no payload");
        }
    }

    #[test]
    fn a_train_ends_when_it_is_full_or_after_a_shorter_datagram() {
        let one = |len| read(&datagram(6, None, &payload(len, 0))).unwrap();
        let count = |first: usize, next: usize| {
            let mut train = DatagramTrain::new(one(first));
            1 + (0..100).take_while(|_| train.take(&one(next))).count()
        };
        assert_eq!(count(100, 100), MEMBERS_MAX);
        assert_eq!(count(100, 99), 2);
        assert_eq!(count(100, 101), 1);
        assert_eq!(count(30_000, 30_000), 2, "65,535 bytes");
        assert_eq!(count(1400, 1400), 46);
    }
}
