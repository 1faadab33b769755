//! Software segmentation: cuts super-packets as a device does for TSO and USO. Used for devices that cannot,
//! for datagrams that have to be cut further, and for the quotation in an ICMP error.

use crate::hdr::{get16, get32, ipv4, ipv6, put16, put32, tcp, udp};
use crate::{DropReason, Ipv4View, Ipv6View, Offload, Packet, Segmentation, checksum, proto};

/// Layout of a super-packet.
#[derive(Clone, Copy)]
struct Layout {
    is_v6: bool,
    proto: u8,
    /// Offset of the transport header.
    l4_at: usize,
    /// Offset of the payload. Everything before it is repeated in each segment.
    payload_at: usize,
    /// End of the payload.
    end: usize,
    /// Payload bytes of each segment except the last.
    size: usize,
}

impl Layout {
    /// Returns `None` if the packet is not a super-packet or its headers contradict it.
    fn of(packet: &Packet<'_>) -> Option<Layout> {
        let bytes = packet.bytes();
        let (is_v6, proto, l4_at, end) = match bytes.first()? >> 4 {
            4 => {
                let v = Ipv4View::parse(bytes).ok().filter(|v| v.fragment.is_none())?;
                (false, v.proto, usize::from(v.l4_offset), v.total_len as usize)
            }
            _ => {
                let v = Ipv6View::parse(bytes).ok().filter(|v| v.fragment.is_none())?;
                (true, v.proto, usize::from(v.l4_offset), v.total_len as usize)
            }
        };
        let l4_bytes = bytes.get(l4_at..end)?;
        let (header_len, size) = match (packet.offload.segmentation, proto) {
            (Segmentation::Tcp { size, .. }, proto::TCP) => (tcp::header_len(l4_bytes)?, size),
            (Segmentation::Udp { size }, proto::UDP) if l4_bytes.len() >= udp::LEN => (udp::LEN, size),
            _ => return None,
        };
        let size = usize::from(size);
        (size > 0).then_some(Layout { is_v6, proto, l4_at, payload_at: l4_at + header_len, end, size })
    }

    fn count(&self) -> usize {
        (self.end - self.payload_at).div_ceil(self.size).max(1)
    }

    /// Range of the payload of segment `index`.
    fn payload(&self, index: usize) -> core::ops::Range<usize> {
        let from = self.payload_at.saturating_add(index.saturating_mul(self.size)).min(self.end);
        from..from.saturating_add(self.size).min(self.end)
    }

    /// Adapts headers copied from the super-packet to segment `index`. `bytes` is that segment.
    fn finish(&self, bytes: &mut [u8], index: usize) {
        let is_last = index + 1 >= self.count();
        self.finish_ip(bytes, index);
        let Some((ip, l4_bytes)) = bytes.split_at_mut_checked(self.l4_at) else { return };
        let field = if self.proto == proto::TCP {
            let sequence = get32(l4_bytes, tcp::SEQUENCE).unwrap_or(0);
            put32(l4_bytes, tcp::SEQUENCE, sequence.wrapping_add((index * self.size) as u32));
            if let Some(flags) = l4_bytes.get_mut(tcp::FLAGS) {
                // FIN and PSH belong to the end of the data, CWR to the first segment (RFC 3168 6.1.2).
                *flags &= !if is_last { 0 } else { tcp::FIN | tcp::PSH };
                *flags &= !if index == 0 { 0 } else { tcp::CWR };
            }
            tcp::CHECKSUM
        } else {
            put16(l4_bytes, udp::LENGTH, l4_bytes.len() as u16);
            udp::CHECKSUM
        };
        let addresses =
            if self.is_v6 { ip.get(ipv6::ADDRESSES..ipv6::LEN) } else { ip.get(ipv4::ADDRESSES..ipv4::LEN) };
        put16(l4_bytes, field, 0);
        let pseudo = checksum::pseudo(addresses.unwrap_or_default(), l4_bytes.len() as u32, self.proto);
        let sum = !checksum::add(pseudo, checksum::sum(l4_bytes));
        put16(l4_bytes, field, if sum == 0 && self.proto == proto::UDP { 0xffff } else { sum });
    }

    fn finish_ip(&self, bytes: &mut [u8], index: usize) {
        let len = bytes.len();
        if self.is_v6 {
            put16(bytes, ipv6::PAYLOAD_LEN, (len - ipv6::LEN) as u16);
            return;
        }
        let id = get16(bytes, ipv4::ID).unwrap_or(0);
        put16(bytes, ipv4::TOTAL_LEN, len as u16);
        put16(bytes, ipv4::ID, id.wrapping_add(index as u16));
        ipv4::set_checksum(bytes.get_mut(..self.l4_at).unwrap_or_default());
    }
}

/// Number of packets that a super-packet contains; 1 for other packets.
pub fn count(packet: &Packet<'_>) -> usize {
    Layout::of(packet).map_or(1, |layout| layout.count())
}

/// Writes packet `index` of the super-packet to `out`, with lengths, identification (counted up), sequence
/// number, flags and checksums, and returns its length in bytes. A packet that is not a super-packet is
/// copied and its checksum completed.
///
/// # Errors
/// `no_headroom` if `out` is too short, `mtu_unfragmentable` if the headers contradict the segmentation or
/// `index` is too large.
pub fn write(packet: &Packet<'_>, index: usize, out: &mut [u8]) -> Result<usize, DropReason> {
    let bytes = packet.bytes();
    let Some(layout) = Layout::of(packet) else {
        if packet.offload.segmentation != Segmentation::None || index > 0 {
            return Err(DropReason::Unfragmentable);
        }
        let copy = out.get_mut(..bytes.len()).ok_or(DropReason::NoHeadroom)?;
        copy.copy_from_slice(bytes);
        let offload = Offload { segmentation: Segmentation::None, ..packet.offload };
        if let Some(mut copy) = Packet::with_offload(copy, 0, bytes.len(), offload) {
            copy.complete_checksum();
        }
        return Ok(bytes.len());
    };
    if index >= layout.count() {
        return Err(DropReason::Unfragmentable);
    }
    let headers = bytes.get(..layout.payload_at).unwrap_or_default();
    let payload = bytes.get(layout.payload(index)).unwrap_or_default();
    let len = headers.len() + payload.len();
    let out = out.get_mut(..len).ok_or(DropReason::NoHeadroom)?;
    let (head, tail) = out.split_at_mut_checked(headers.len()).ok_or(DropReason::NoHeadroom)?;
    head.copy_from_slice(headers);
    tail.copy_from_slice(payload);
    layout.finish(out, index);
    Ok(len)
}

/// Cuts a super-packet to its first segment. Does nothing to other packets.
pub(crate) fn keep_first(packet: &mut Packet<'_>) {
    let Some(layout) = Layout::of(packet) else { return };
    packet.truncate(layout.payload(0).end);
    layout.finish(packet.bytes_mut(), 0);
    packet.offload = Offload::default();
}
