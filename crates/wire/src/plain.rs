//! Fast path for plain packets: TCP or UDP, whole, directly after an IP header of fixed length, without
//! offloads. Nearly every packet is plain, and a few comparisons replace the checks of the general code.
//!
//! The result is identical, to the last bit, to that of [`crate::rfc7915`] and [`crate::rfc3022`]. These
//! handle packets that are not plain, and every packet that is not sent on whole.

use crate::checksum::Delta;
use crate::hdr::{ipv4, ipv6, tcp, udp};
use crate::rfc3022::{Rewrite, rewrite_header};
use crate::rfc7915::{mtu, six_to_four, transport};
use crate::{Checksum, L4, Packet, Ports, Segmentation, Settings, To4, To6, mss, proto};

/// Header fields of a plain packet that translation needs besides the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// Traffic class or type of service.
    pub tos: u8,
    /// Hop limit or time to live as received: at least 2.
    pub ttl: u8,
    /// TCP or UDP.
    pub proto: u8,
    /// Length in bytes of transport header and payload.
    pub l4_len: u16,
    /// Flags byte of TCP; zero for UDP.
    pub flags: u8,
    /// IPv4 with Don't Fragment set.
    dont_fragment: bool,
}

impl Plain {
    /// Reads a plain IPv6 packet.
    #[inline(always)]
    pub fn six(packet: &Packet<'_>) -> Option<Plain> {
        let (head, rest) = split::<{ ipv6::LEN }>(packet)?;
        let [a, b, c, d, e, f, next_header, hop_limit, ..] = *head;
        let first = u32::from_be_bytes([a, b, c, d]);
        let l4_len = u16::from_be_bytes([e, f]);
        let flags = Self::transport(next_header, rest, l4_len)?;
        (first >> 28 == 6 && hop_limit > 1).then_some(Plain {
            tos: (first >> 20) as u8,
            ttl: hop_limit,
            proto: next_header,
            l4_len,
            flags,
            dont_fragment: false,
        })
    }

    /// Reads a plain IPv4 packet: no options, not a fragment, a right header checksum.
    #[inline(always)]
    pub fn four(packet: &Packet<'_>) -> Option<Plain> {
        let (head, rest) = split::<{ ipv4::LEN }>(packet)?;
        let total_len = u16::from_be_bytes([head[2], head[3]]);
        let flags = u16::from_be_bytes([head[6], head[7]]);
        let l4_len = total_len.checked_sub(ipv4::LEN as u16)?;
        let tcp_flags = Self::transport(head[9], rest, l4_len)?;
        let is_plain = head[0] == 0x45
            && flags & (ipv4::MF | ipv4::OFFSET_MASK) == 0
            && head[8] > 1
            && ipv4::sum_is_right(head);
        is_plain.then_some(Plain {
            tos: head[1],
            ttl: head[8],
            proto: head[9],
            l4_len,
            flags: tcp_flags,
            dont_fragment: flags & ipv4::DF != 0,
        })
    }

    /// Flags byte, if a whole transport header of at most `l4_len` bytes is present. A datagram without
    /// checksum is not plain.
    #[inline(always)]
    fn transport(protocol: u8, bytes: &[u8], l4_len: u16) -> Option<u8> {
        let l4_len = usize::from(l4_len);
        if l4_len > bytes.len() {
            return None;
        }
        match protocol {
            proto::UDP => {
                let h = bytes.first_chunk::<{ udp::LEN }>()?;
                (l4_len >= udp::LEN && h[udp::CHECKSUM] | h[udp::CHECKSUM + 1] != 0).then_some(0)
            }
            proto::TCP => {
                let h = bytes.first_chunk::<{ tcp::LEN }>()?;
                (l4_len >= tcp::LEN).then_some(h[tcp::FLAGS])
            }
            _ => None,
        }
    }

    /// Size in bytes as an IPv4 packet.
    #[inline(always)]
    pub fn len4(&self) -> u32 {
        u32::from(self.l4_len) + ipv4::LEN as u32
    }

    /// Returns true for the first segment of a connection, in either direction.
    #[inline(always)]
    pub fn is_syn(&self) -> bool {
        self.flags & tcp::SYN != 0
    }

    /// Checks whether the packet can be sent whole as an IPv4 packet. Otherwise do not [write](Self::write4)
    /// it.
    #[inline(always)]
    pub fn fits4(&self, settings: &Settings) -> bool {
        self.l4_len.checked_add(ipv4::LEN as u16).is_some_and(|len| u32::from(len) <= settings.mtu4)
    }

    /// Checks whether the packet can be sent whole as an IPv6 packet, from this buffer.
    #[inline(always)]
    pub fn fits6(&self, packet: &Packet<'_>, settings: &Settings) -> bool {
        let limit = if self.dont_fragment { settings.mtu6 } else { mtu::without_dont_fragment(settings) };
        u32::from(self.l4_len) + ipv6::LEN as u32 <= limit && packet.headroom() >= ipv6::LEN - ipv4::LEN
    }

    /// Checks whether `packet`, from which this was read, announces segments of at most `mss_max` bytes.
    #[inline(always)]
    pub fn keeps_mss(&self, packet: &Packet<'_>, mss_max: u16) -> bool {
        !self.is_syn() || mss::is_within(packet, mss_max)
    }

    /// Transport header as the general code represents it.
    #[inline(always)]
    fn l4(&self, (src_port, dst_port): (u16, u16)) -> L4 {
        match self.proto {
            proto::TCP => L4::Tcp { src_port, dst_port, flags: self.flags },
            _ => L4::Udp { src_port, dst_port, no_checksum: false },
        }
    }

    /// Turns the packet from which this was read into an IPv4 packet (RFC 7915 5.1). `ports` are its present
    /// ports; `id` is the new identification.
    #[inline(always)]
    pub fn write4(&self, packet: &mut Packet<'_>, ports: (u16, u16), to: &To4, id: u16, settings: &Settings) {
        let total_len = self.l4_len.saturating_add(ipv4::LEN as u16);
        let header = ipv4::Header {
            tos: settings.tos_6to4.unwrap_or(self.tos),
            total_len,
            id,
            flags: six_to_four::dont_fragment(u32::from(total_len)),
            ttl: self.ttl - 1,
            proto: self.proto,
            src: to.src,
            dst: to.dst,
        };
        // Cannot fail: the packet is long enough, and the new header is shorter.
        if packet.replace_header(ipv6::LEN, ipv4::LEN, self.l4_len.into()).is_ok()
            && let Some((ip, l4)) = packet.bytes_mut().split_first_chunk_mut()
        {
            header.write(ip);
            self.rewrite(l4, ports, to.ports, to.addresses);
        }
    }

    /// Turns the packet from which this was read into an IPv6 packet (RFC 7915 4.1). It must
    /// [fit](Self::fits6).
    #[inline(always)]
    pub fn write6(&self, packet: &mut Packet<'_>, ports: (u16, u16), to: &To6, settings: &Settings) {
        let header = ipv6::Header {
            traffic_class: settings.traffic_class_4to6.unwrap_or(self.tos),
            payload_len: self.l4_len,
            next_header: self.proto,
            hop_limit: self.ttl - 1,
            src: to.src,
            dst: to.dst,
        };
        if packet.replace_header(ipv4::LEN, ipv6::LEN, self.l4_len.into()).is_ok()
            && let Some((ip, l4)) = packet.bytes_mut().split_first_chunk_mut()
        {
            header.write(ip);
            self.rewrite(l4, ports, to.ports, to.addresses);
        }
    }

    /// Checks whether the packet can be sent whole as IPv4.
    #[inline(always)]
    pub fn fits44(&self, mtu: u32) -> bool {
        self.len4() <= mtu
    }

    /// Returns whether the identification has a meaning (RFC 6864 4): the packet may be fragmented later.
    #[inline(always)]
    pub fn may_be_cut(&self) -> bool {
        !self.dont_fragment
    }

    /// Rewrites addresses and ports of the IPv4 packet from which this was read (RFC 3022 4).
    #[inline(always)]
    pub fn write44(&self, packet: &mut Packet<'_>, ports: (u16, u16), to: &Rewrite) {
        // Cuts off padding.
        if packet.replace_header(ipv4::LEN, ipv4::LEN, self.l4_len.into()).is_ok()
            && let Some((ip, l4)) = packet.bytes_mut().split_first_chunk_mut::<{ ipv4::LEN }>()
        {
            rewrite_header(ip, to);
            self.rewrite(l4, ports, to.ports, to.addresses);
        }
    }

    #[inline(always)]
    fn rewrite(&self, l4: &mut [u8], old: (u16, u16), new: Ports, addresses: Delta) {
        transport::rewrite(l4, self.l4(old), new, addresses, None);
    }
}

/// IP header and the rest. `None` if the packet has offloads.
#[inline(always)]
fn split<'p, const N: usize>(packet: &'p Packet<'_>) -> Option<(&'p [u8; N], &'p [u8])> {
    match (packet.offload.checksum, packet.offload.segmentation) {
        (Checksum::Complete, Segmentation::None) => packet.bytes().split_first_chunk(),
        _ => None,
    }
}
