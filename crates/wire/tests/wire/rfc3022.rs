//! IPv4 to IPv4: every byte is compared with the same packet built from scratch.

use crate::common::*;
use gatun_wire::rfc7915::fragment;
use gatun_wire::{Checksum, DropReason, Offload, Ports, Segmentation, Whole};
use proptest::prelude::*;
use std::net::Ipv4Addr;

const PRIVATE: Ipv4Addr = Ipv4Addr::new(100, 64, 3, 9);
const PUBLIC: Ipv4Addr = CLIENT4;

fn plain(bytes: &[u8], to: (Ipv4Addr, Ipv4Addr), ports: Ports) -> (Result<Whole, DropReason>, Vec<u8>) {
    let (result, out, _) = four_to_four(bytes, to, ports, None, 65_535, Offload::default());
    (result, out)
}

fn sent() -> V4 {
    V4 { src: PRIVATE, dst: SERVER4, ..header4() }
}

fn ports_for(m: &Message, src: u16, dst: u16) -> Ports {
    match m {
        Message::Tcp { .. } | Message::Udp { .. } => Ports::Set { src, dst },
        Message::Echo { .. } => Ports::EchoId(src),
        Message::Icmp { .. } | Message::Raw { .. } => Ports::Keep,
    }
}

fn outer(kind: u8, code: u8, word: u32, body: &[u8]) -> Vec<u8> {
    Error4 { kind, code, word, body: body.to_vec() }.packet()
}

/// Translates an error from the router to the public address about a packet of the inside host.
fn error(bytes: &[u8], ports: Ports) -> (Result<Whole, DropReason>, Vec<u8>) {
    error_4to4(bytes, PRIVATE, ports)
}

/// Expected error at the inside host.
fn seen_inside(kind: u8, code: u8, word: u32, body: &[u8]) -> Vec<u8> {
    let error = Error4 { kind, code, word, body: body.to_vec() };
    V4 { src: ROUTER4, dst: PRIVATE, ttl: 63, ..header4() }.raw(1, &error.message())
}

/// The inside host's packet after and before translation.
fn quoted(m: &Message, ports: Ports) -> (Vec<u8>, Vec<u8>) {
    let left = V4 { src: PUBLIC, dst: SERVER4, ttl: 7, options: vec![1; 4], ..header4() };
    let was = V4 { src: PRIVATE, ..left.clone() };
    (left.packet(&with_ports(m, ports)), was.packet(m))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // proves: R68-1
    #[test]
    fn every_byte_is_what_a_host_with_the_new_addresses_would_have_sent(
        m in message(vec![1; 8]), from: (u32, u32), to: (u32, u32), ports: (u16, u16), tos: u8, id: u16, df: bool,
        ttl in 2u8.., options in prop::sample::select(vec![0usize, 4, 40]), new_id: Option<u16>,
    ) {
        let (src, dst) = (Ipv4Addr::from(from.0), Ipv4Addr::from(from.1));
        let v4 = V4 { tos, id, df, ttl, src, dst, options: vec![1; options], mf: false, offset: 0 };
        let to = (Ipv4Addr::from(to.0), Ipv4Addr::from(to.1));
        let ports = ports_for(&m, ports.0, ports.1);
        let (result, out, _) = four_to_four(&v4.packet(&m), to, ports, new_id, 65_535, Offload::default());
        prop_assert_eq!(result, Ok(Whole::Yes));
        let (ttl, id) = (ttl - 1, new_id.unwrap_or(id));
        let wanted = V4 { ttl, id, src: to.0, dst: to.1, ..v4 };
        prop_assert_eq!(out, wanted.packet(&with_ports(&m, ports)));
    }

    // proves: R55-3
    #[test]
    fn a_wrong_transport_checksum_leaves_equally_wrong(m in message(vec![1; 8]), flip in 1u16.., ports: (u16, u16)) {
        let at = match m {
            Message::Tcp { .. } => 36,
            Message::Udp { .. } => 26,
            Message::Echo { .. } => 22,
            Message::Icmp { .. } | Message::Raw { .. } => return Ok(()),
        };
        let ports = ports_for(&m, ports.0, ports.1);
        let mut sent = sent().packet(&m);
        let mut right = plain(&sent, (PUBLIC, SERVER4), ports).1;
        let field = u16::from_be_bytes([sent[at], sent[at + 1]]).wrapping_add(flip);
        prop_assume!(at != 26 || field != 0); // that would mean no checksum
        sent[at..at + 2].copy_from_slice(&field.to_be_bytes());
        let (_, mut out) = plain(&sent, (PUBLIC, SERVER4), ports);
        let sum = |b: &[u8]| u32::from(u16::from_be_bytes([b[at], b[at + 1]])) % 0xffff;
        let wrong_by = (sum(&out) + 0xffff - sum(&right)) % 0xffff;
        let was_wrong_by = {
            let before = u32::from(field.wrapping_sub(flip)) % 0xffff;
            (u32::from(field) % 0xffff + 0xffff - before) % 0xffff
        };
        prop_assert_eq!(wrong_by, was_wrong_by);
        for b in [&mut out, &mut right] {
            b[at..at + 2].fill(0);
        }
        prop_assert_eq!(out, right);
    }

    // proves: R47-14
    #[test]
    fn reassembled_fragments_equal_the_translated_whole_message(
        m in message(vec![1; 8]), cut in 0usize..60, ports: (u16, u16), new_id: u16,
    ) {
        let ports = ports_for(&m, ports.0, ports.1);
        let whole = m.to_bytes4(PRIVATE, SERVER4);
        let Some(places) = whole.len().saturating_sub(25).checked_div(8).filter(|n| *n > 0) else { return Ok(()) };
        let cut = 24 + cut % places * 8;
        let head = V4 { mf: true, ..sent() }.raw(m.proto4(), &whole[..cut]);
        let tail = V4 { offset: cut as u16, ..sent() }.raw(m.proto4(), &whole[cut..]);
        let to = (PUBLIC, SERVER4);
        let (a, head, _) = four_to_four(&head, to, ports, Some(new_id), 65_535, Offload::default());
        let (b, tail, _) = four_to_four(&tail, to, Ports::Keep, Some(new_id), 65_535, Offload::default());
        prop_assert_eq!((a, b), (Ok(Whole::Yes), Ok(Whole::Yes)));
        let v4 = V4 { src: PUBLIC, ttl: 63, id: new_id, ..sent() };
        let wanted = with_ports(&m, ports).to_bytes4(PUBLIC, SERVER4);
        prop_assert_eq!(head, V4 { mf: true, ..v4.clone() }.raw(m.proto4(), &wanted[..cut]));
        prop_assert_eq!(tail, V4 { offset: cut as u16, ..v4 }.raw(m.proto4(), &wanted[cut..]));
    }

    // proves: R55-4
    #[test]
    fn an_error_shows_the_inside_host_the_packet_that_it_sent(
        m in message(vec![1; 8]), ports: (u16, u16), kind in prop::sample::select(vec![3u8, 11, 12]), code: u8, cut: bool,
        word in 0u32..0x1_0000,
    ) {
        let ports_out = ports_for(&m, ports.0, ports.1);
        let (left, was) = quoted(&m, ports_out);
        let back = match m {
            Message::Tcp { src, dst, .. } | Message::Udp { src, dst, .. } => Ports::Set { src, dst },
            Message::Echo { id, .. } => Ports::EchoId(id),
            Message::Icmp { .. } | Message::Raw { .. } => Ports::Keep,
        };
        // Packets cut off in the middle of their transport header are tested too, but not in the middle of the
        // checksum: half a checksum cannot be adjusted.
        let len = if cut { left.len().min(24 + 8 + usize::from(code % 20) * 2) } else { left.len() };
        let (result, out) = error(&outer(kind, code, word, &left[..len]), back);
        prop_assert_eq!(result, Ok(Whole::Yes));
        prop_assert_eq!(out, seen_inside(kind, code, word, &was[..len]));
    }
}

#[test]
fn padding_is_cut_off_and_a_datagram_without_checksum_stays_without() {
    let mut bytes = sent().packet(&udp(b"no sum"));
    bytes[26..28].fill(0);
    let padded = [&bytes[..], &[0xee; 12]].concat();
    let ports = Ports::Set { src: 9, dst: 53 };
    let (result, out) = plain(&padded, (PUBLIC, SERVER4), ports);
    assert_eq!(result, Ok(Whole::Yes));
    let mut wanted = V4 { src: PUBLIC, ttl: 63, ..sent() }.packet(&with_ports(&udp(b"no sum"), ports));
    wanted[26..28].fill(0);
    assert_eq!(out, wanted);
}

#[test]
fn a_udp_sum_of_zero_leaves_as_all_ones() {
    // One value of the last word makes the sum zero after the address change.
    for last in 0..=u16::MAX {
        let m = udp(&last.to_be_bytes());
        let wanted = V4 { src: PUBLIC, ttl: 63, ..sent() }.packet(&m);
        if wanted[26..28] == [0xff, 0xff] {
            assert_eq!(plain(&sent().packet(&m), (PUBLIC, SERVER4), Ports::Keep).1, wanted);
            return;
        }
    }
    panic!("no such word");
}

#[test]
fn a_partial_checksum_stays_partial_and_covers_the_new_pseudo_header() {
    for (m, offset) in [(tcp(b"data"), 16u16), (udp(b"data"), 6)] {
        let at = 20 + usize::from(offset);
        let pseudo = |src: Ipv4Addr, len: usize| {
            let addresses = [src.octets(), SERVER4.octets()].concat();
            gatun_wire::checksum::pseudo(&addresses, len as u32, m.proto4()).to_be_bytes()
        };
        let mut bytes = sent().packet(&m);
        let l4_len = bytes.len() - 20;
        bytes[at..at + 2].copy_from_slice(&pseudo(PRIVATE, l4_len));
        let offload =
            Offload { checksum: Checksum::Partial { start: 20, offset }, segmentation: Segmentation::None };
        let ports = Ports::Set { src: 7, dst: 8 };
        let (result, out, left) = four_to_four(&bytes, (PUBLIC, SERVER4), ports, None, 1500, offload);
        assert_eq!((result, left), (Ok(Whole::Yes), offload));
        let mut wanted = V4 { src: PUBLIC, ttl: 63, ..sent() }.packet(&with_ports(&m, ports));
        wanted[at..at + 2].copy_from_slice(&pseudo(PUBLIC, l4_len));
        assert_eq!(out, wanted);
    }
}

#[test]
fn a_super_packet_passes_as_one_and_is_judged_by_its_segments() {
    let m = tcp(&payload(30_000));
    let v4 = V4 { df: true, ..sent() };
    let checksum = Checksum::Partial { start: 20, offset: 16 };
    let segmentation = |size| Segmentation::Tcp { size, ecn: false };
    let offload = |size| Offload { checksum, segmentation: segmentation(size) };
    let run =
        |size, mtu| four_to_four(&v4.packet(&m), (PUBLIC, SERVER4), Ports::Keep, None, mtu, offload(size));
    let (result, out, left) = run(1460, 1500);
    assert_eq!((result, left, out.len()), (Ok(Whole::Yes), offload(1460), 30_040));
    assert_eq!(run(1461, 1500).0, Err(DropReason::TooBig4));
    // Without DF, the device is told to cut smaller segments.
    let free = sent().packet(&m);
    let (result, _, left) = four_to_four(&free, (PUBLIC, SERVER4), Ports::Keep, None, 1400, offload(1460));
    assert_eq!((result, left.segmentation), (Ok(Whole::Yes), segmentation(1360)));
}

// proves: R47-13
#[test]
fn a_packet_above_the_mtu_is_answered_with_df_and_cut_without() {
    let m = udp(&payload(2000));
    let df = V4 { df: true, ..sent() }.packet(&m);
    assert_eq!(
        four_to_four(&df, (PUBLIC, SERVER4), Ports::Keep, None, 1500, Offload::default()).0,
        Err(DropReason::TooBig4)
    );
    assert_eq!(
        four_to_four(&df, (PUBLIC, SERVER4), Ports::Keep, None, 2028, Offload::default()).0,
        Ok(Whole::Yes)
    );
    // Options: a timestamp, not copied, and a security option, copied (RFC 791 3.1).
    let security = [130, 11, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    let options = [&[68, 4, 5, 0][..], &security, &[0]].concat();
    let v4 = V4 { options: options.clone(), ..sent() };
    let (result, mut out, offload) =
        four_to_four(&v4.packet(&m), (PUBLIC, SERVER4), Ports::Keep, None, 576, Offload::default());
    assert_eq!(result, Ok(Whole::Split(576)));
    let mut rest = Vec::new();
    let len = out.len();
    let mut packet = gatun_wire::Packet::with_offload(&mut out, 0, len, offload).unwrap();
    fragment::split4(&mut packet, 576, |head, tail| {
        rest.push([head, tail].concat());
        Ok(())
    })
    .unwrap();
    let first = packet.bytes().to_vec();
    let wanted = m.to_bytes4(PUBLIC, SERVER4);
    let room = (576 - 36) / 8 * 8;
    let left = V4 { src: PUBLIC, ttl: 63, mf: true, ..v4 };
    assert_eq!(first, left.raw(17, &wanted[..room]));
    let copied = [&security[..], &[0]].concat();
    let chunks: Vec<_> = wanted.chunks(room).skip(1).collect();
    assert_eq!(rest.len(), chunks.len());
    for (i, (piece, chunk)) in rest.iter().zip(&chunks).enumerate() {
        let v4 = V4 {
            options: copied.clone(),
            offset: ((i + 1) * room) as u16,
            mf: i + 1 < chunks.len(),
            ..left.clone()
        };
        assert_eq!(*piece, v4.raw(17, chunk));
    }
}

// proves: R55-11
#[test]
fn untranslatable_packets_are_refused_and_unchanged() {
    let refused = |bytes: &[u8]| plain(bytes, (PUBLIC, SERVER4), Ports::Keep).0.unwrap_err();
    assert_eq!(refused(&V4 { ttl: 1, ..sent() }.packet(&udp(b""))), DropReason::TtlExceeded);
    let route = V4 { options: vec![131, 7, 4, 1, 2, 3, 4, 0], ..sent() };
    assert_eq!(refused(&route.packet(&udp(b""))), DropReason::SourceRoute);
    assert_eq!(refused(&sent().raw(51, &[0; 24])), DropReason::AuthenticationHeader);
    for kind in [3, 4, 5, 11, 12, 13, 17] {
        assert_eq!(refused(&sent().raw(1, &[kind, 0, 0, 0, 0, 0, 0, 0])), DropReason::IcmpUnknownType);
    }
}

// proves: R55-10, R55-11
#[test]
fn three_types_of_errors_are_rewritten_whatever_their_code_and_the_others_refused() {
    let (left, was) = quoted(&udp(b"x"), Ports::Set { src: 40_001, dst: 53 });
    for kind in 0..=255 {
        for code in [0, 1, 3, 4, 13, 14, 200] {
            let (result, out) = error(&outer(kind, code, 0, &left), Ports::Set { src: 40_001, dst: 53 });
            match kind {
                3 | 11 | 12 => assert_eq!(out, seen_inside(kind, code, 0, &was), "{result:?}"),
                5 | 9 | 10 => assert_eq!(result, Err(DropReason::IcmpSingleHop)),
                _ => assert_eq!(result, Err(DropReason::IcmpUnknownType)),
            }
        }
    }
}

// proves: R55-3, R53-9
#[test]
fn wrong_sums_of_the_error_and_of_the_quoted_header_are_refused_but_not_of_the_quoted_transport() {
    let ports = Ports::Set { src: 40_001, dst: 53 };
    let (left, was) = quoted(&udp(b"x"), ports);
    let mut bad = outer(3, 3, 0, &left);
    bad[23] ^= 1;
    assert_eq!(error(&bad, ports).0, Err(DropReason::BadL4Checksum));
    let mut inner = left.clone();
    inner[10] ^= 1;
    assert_eq!(error(&outer(3, 3, 0, &inner), ports).0, Err(DropReason::BadL3Checksum));
    let (mut inner, mut wanted) = (left, was);
    for bytes in [&mut inner, &mut wanted] {
        let field = u16::from_be_bytes([bytes[30], bytes[31]]);
        bytes[30..32].copy_from_slice(&(field ^ 0x0100).to_be_bytes());
    }
    let (result, out) = error(&outer(3, 3, 0, &inner), ports);
    assert_eq!(result, Ok(Whole::Yes));
    let field = |b: &[u8]| u16::from_be_bytes([b[58], b[59]]);
    assert!(field(&out).abs_diff(field(&seen_inside(3, 3, 0, &wanted))) <= 1, "as wrong as it was");
}

// proves: R55-3
#[test]
fn extensions_and_padding_stay_where_they_are() {
    let ports = Ports::Set { src: 40_001, dst: 53 };
    let (left, was) = quoted(&udp(b"x"), ports);
    let extension = [0x20, 0, 0, 0, 0, 8, 1, 1, 0xde, 0xad, 0xbe, 0xef];
    let body = |datagram: &[u8]| {
        let mut body = datagram.to_vec();
        body.resize(128, 0);
        [&body[..], &extension].concat()
    };
    let length = 32 << 16; // in words (RFC 4884 4.1)
    let (result, out) = error(&outer(11, 0, length, &body(&left)), ports);
    assert_eq!((result, out), (Ok(Whole::Yes), seen_inside(11, 0, length, &body(&was))));
    assert_eq!(error(&outer(11, 0, 255 << 16, &body(&left)), ports).0, Err(DropReason::IcmpExtensionBad));
}

#[test]
fn an_error_that_is_cut_off_in_pieces_about_an_error_or_at_its_last_hop_is_refused() {
    let ports = Ports::Set { src: 40_001, dst: 53 };
    let (left, _) = quoted(&udp(b"x"), ports);
    assert_eq!(error(&outer(3, 3, 0, &left[..31]), ports).0, Err(DropReason::IcmpInnerShort));
    let nested = outer(3, 3, 0, &outer(3, 3, 0, &left));
    assert_eq!(error(&nested, ports).0, Err(DropReason::IcmpDoubleError));
    let message = Error4 { kind: 3, code: 3, word: 0, body: left.clone() }.message();
    let piece = V4 { src: ROUTER4, mf: true, ..header4() }.raw(1, &message[..message.len() / 8 * 8]);
    assert_eq!(error(&piece, ports).0, Err(DropReason::FragmentIcmp));
    let last = V4 { src: ROUTER4, ttl: 1, ..header4() }.raw(1, &message);
    assert_eq!(error(&last, ports).0, Err(DropReason::TtlExceeded));
}
