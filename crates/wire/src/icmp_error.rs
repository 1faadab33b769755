//! ICMP messages that the translator originates: errors about a packet, and echo replies.
//! They are built in the packet's own buffer. The quoted bytes do not move.

use crate::checksum::{self, Delta};
use crate::hdr::{get16, get32, icmpv4, icmpv6, ipv4, ipv6, put16};
use crate::{Checksum, DropReason, Ipv4View, Ipv6View, L4, Offload, Packet, proto, segment};
use core::net::{Ipv4Addr, Ipv6Addr};

/// TTL and hop limit of originated messages (RFC 1700).
const TTL: u8 = 64;

/// Internetwork control: RFC 1812 4.3.2.5 requires precedence 6 for ICMP errors.
const ERROR_TOS: u8 = 0xc0;

/// ICMP error to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Second word: an MTU, a pointer (ICMPv4 12/0: in the first byte), or zero.
    pub word: u32,
}

impl Message {
    /// Reads the beginning of a message of either ICMP.
    pub(crate) fn read(icmp: &[u8]) -> Result<Self, DropReason> {
        match (icmp, get32(icmp, 4)) {
            ([kind, code, ..], Some(word)) => Ok(Message { kind: *kind, code: *code, word }),
            _ => Err(DropReason::L4Truncated),
        }
    }

    /// The eight bytes before the quotation, with a zero checksum.
    pub(crate) fn to_bytes(self) -> [u8; 8] {
        let [a, b, c, d] = self.word.to_be_bytes();
        [self.kind, self.code, 0, 0, a, b, c, d]
    }
}

/// Checks whether RFC 4443 2.4 (e) allows an error about this packet: it must not be an ICMP error, a
/// redirect or multicast (the translator does not need the exceptions), and its source must name exactly one
/// host. Fragments other than the first get no error either: RFC 7915 5.4 does not mention them, and the
/// first fragment gets one.
pub fn may_answer6(view: &Ipv6View, l4: L4) -> bool {
    let answers = match l4 {
        L4::IcmpError { .. } | L4::LaterFragment => false,
        L4::IcmpOther { kind } => kind != icmpv6::REDIRECT,
        _ => view.fragment.is_none_or(|f| f.is_first()),
    };
    answers
        && !view.dst.is_multicast()
        && !view.src.is_multicast()
        && !view.src.is_unspecified()
        && !view.src.is_loopback()
}

/// Checks whether RFC 1812 4.3.2.7 allows an error about this packet: it must not be an ICMP error, a later
/// fragment, multicast or broadcast, and its source must name exactly one host.
pub fn may_answer4(view: &Ipv4View, l4: L4) -> bool {
    let answers = match l4 {
        L4::IcmpError { .. } | L4::LaterFragment => false,
        _ => view.fragment.is_none_or(|f| f.is_first()),
    };
    let [net, ..] = view.src.octets();
    // 0/8, 127/8, multicast, 240/4 with the broadcast address
    let names_one_host = !matches!(net, 0 | 127 | 224..);
    answers && names_one_host && !view.dst.is_multicast() && !view.dst.is_broadcast()
}

/// Turns the packet into an ICMPv6 error from `src` to its sender. The error quotes as much of the packet as
/// fits 1280 bytes. For a super-packet, it quotes the first segment, as it would have been on the wire.
///
/// # Errors
/// `no_headroom`, or `short_l3` if this is not an IPv6 packet. The packet is unchanged then.
pub fn error6(packet: &mut Packet<'_>, src: Ipv6Addr, message: Message) -> Result<(), DropReason> {
    const HEADERS: usize = ipv6::LEN + icmpv6::LEN;
    let old = packet.bytes().first_chunk::<{ ipv6::LEN }>().ok_or(DropReason::ShortL3)?;
    let total_len = ipv6::LEN + usize::from(u16::from_be_bytes([old[4], old[5]]));
    let dst = packet.bytes().get(8..24).and_then(|b| b.first_chunk::<16>()).copied().unwrap_or_default();
    if packet.headroom() < HEADERS {
        return Err(DropReason::NoHeadroom);
    }
    packet.truncate(total_len);
    as_on_the_wire(packet);
    packet.truncate(ipv6::MTU_MIN as usize - HEADERS);
    packet.shift_start(-(HEADERS as isize))?;
    let header = ipv6::Header {
        traffic_class: 0,
        payload_len: (packet.len() - ipv6::LEN) as u16,
        next_header: proto::ICMPV6,
        hop_limit: TTL,
        src,
        dst: Ipv6Addr::from(dst),
    };
    let bytes = packet.bytes_mut();
    if let Some((ip, rest)) = bytes.split_first_chunk_mut()
        && let Some(icmp) = rest.first_chunk_mut()
    {
        header.write(ip);
        *icmp = message.to_bytes();
    }
    icmpv6::set_checksum(bytes, ipv6::LEN);
    Ok(())
}

/// Turns the packet into an ICMPv4 error from `src` to its sender. The error quotes as much of the packet as
/// fits `max` bytes. `id` is the identification of the error.
///
/// # Errors
/// `no_headroom`, or `short_l3` if this is not an IPv4 packet. The packet is unchanged then.
pub fn error4(
    packet: &mut Packet<'_>,
    src: Ipv4Addr,
    message: Message,
    id: u16,
    max: u16,
) -> Result<(), DropReason> {
    const HEADERS: usize = ipv4::LEN + icmpv4::LEN;
    let old = packet.bytes().first_chunk::<{ ipv4::LEN }>().ok_or(DropReason::ShortL3)?;
    let total_len = usize::from(u16::from_be_bytes([old[2], old[3]]));
    let dst = Ipv4Addr::from([old[12], old[13], old[14], old[15]]);
    if packet.headroom() < HEADERS {
        return Err(DropReason::NoHeadroom);
    }
    packet.truncate(total_len);
    as_on_the_wire(packet);
    packet.truncate(usize::from(max.max(68)) - HEADERS);
    packet.shift_start(-(HEADERS as isize))?;
    let header = ipv4::Header {
        tos: ERROR_TOS,
        total_len: packet.len() as u16,
        id,
        flags: 0,
        ttl: TTL,
        proto: proto::ICMP,
        src,
        dst,
    };
    let bytes = packet.bytes_mut();
    if let Some((ip, rest)) = bytes.split_first_chunk_mut()
        && let Some(icmp) = rest.first_chunk_mut()
    {
        header.write(ip);
        *icmp = message.to_bytes();
    }
    icmpv4::set_checksum(bytes, ipv4::LEN);
    Ok(())
}

/// Applies the offloads, as the device would have done before the packet left its sender.
fn as_on_the_wire(packet: &mut Packet<'_>) {
    segment::keep_first(packet);
    packet.complete_checksum();
    packet.offload = Offload::default();
}

/// Turns an echo request into its reply: swaps the addresses, sets hop limit 64 and removes extension
/// headers.
///
/// # Errors
/// `bad_l4csum`, `frag_icmp`, `l4_truncated`. The packet is unchanged then.
pub fn echo_reply6(packet: &mut Packet<'_>, view: &Ipv6View) -> Result<(), DropReason> {
    let icmp_at = usize::from(view.l4_offset);
    let icmp = packet.bytes().get(icmp_at..view.total_len as usize).ok_or(DropReason::L4Truncated)?;
    if view.fragment.is_some_and(|f| !f.is_atomic()) {
        return Err(DropReason::FragmentIcmp);
    }
    let pseudo = checksum::add(checksum::sum(&view.src.octets()), checksum::sum(&view.dst.octets()));
    let pseudo = checksum::add(pseudo, checksum::pseudo(&[], icmp.len() as u32, proto::ICMPV6));
    verify(packet, icmp, pseudo)?;
    let len = icmp.len();
    packet.truncate(icmp_at + len);
    packet.complete_checksum();
    packet.shift_start(icmp_at as isize - ipv6::LEN as isize)?;
    packet.offload = Offload::default();
    let header = ipv6::Header {
        traffic_class: view.traffic_class,
        payload_len: len as u16,
        next_header: proto::ICMPV6,
        hop_limit: TTL,
        src: view.dst,
        dst: view.src,
    };
    if let Some((ip, icmp)) = packet.bytes_mut().split_first_chunk_mut() {
        header.write(ip);
        turn(icmp, icmpv6::ECHO_REPLY);
    }
    Ok(())
}

/// Like [`echo_reply6`]: removes options and keeps the request's identification.
///
/// # Errors
/// `bad_l4csum`, `frag_icmp`, `l4_truncated`. The packet is unchanged then.
pub fn echo_reply4(packet: &mut Packet<'_>, view: &Ipv4View) -> Result<(), DropReason> {
    let icmp_at = usize::from(view.l4_offset);
    let icmp = packet.bytes().get(icmp_at..view.total_len as usize).ok_or(DropReason::L4Truncated)?;
    if view.fragment.is_some() {
        return Err(DropReason::FragmentIcmp);
    }
    verify(packet, icmp, 0)?;
    let len = icmp.len();
    packet.truncate(icmp_at + len);
    packet.complete_checksum();
    packet.shift_start(icmp_at as isize - ipv4::LEN as isize)?;
    packet.offload = Offload::default();
    let header = ipv4::Header {
        tos: view.tos,
        total_len: (ipv4::LEN + len) as u16,
        id: view.id,
        flags: if view.dont_fragment { ipv4::DF } else { 0 },
        ttl: TTL,
        proto: proto::ICMP,
        src: view.dst,
        dst: view.src,
    };
    if let Some((ip, icmp)) = packet.bytes_mut().split_first_chunk_mut() {
        header.write(ip);
        turn(icmp, icmpv4::ECHO_REPLY);
        icmpv4::sum_of_nothing(icmp);
    }
    Ok(())
}

/// Verifies the request's checksum, because a reply confirms its contents (RFC 1122 3.2.2.6). A request with
/// a partial checksum has not been on a wire yet.
fn verify(packet: &Packet<'_>, icmp: &[u8], pseudo: u16) -> Result<(), DropReason> {
    let is_partial = packet.offload.checksum != Checksum::Complete;
    match icmp.len() >= icmpv4::LEN {
        false => Err(DropReason::L4Truncated),
        true if is_partial || checksum::add(pseudo, checksum::sum(icmp)) == 0xffff => Ok(()),
        true => Err(DropReason::BadL4Checksum),
    }
}

/// Changes the type. Swapping the addresses does not change the pseudo-header's sum.
fn turn(icmp: &mut [u8], kind: u8) {
    let Some(old) = get16(icmp, 0) else { return };
    let new = u16::from(kind) << 8 | (old & 0xff);
    put16(icmp, 0, new);
    if let Some(field) = get16(icmp, icmpv4::CHECKSUM) {
        put16(icmp, icmpv4::CHECKSUM, Delta::of(old, new).apply(field));
    }
}
