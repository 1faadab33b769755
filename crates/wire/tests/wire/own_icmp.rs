//! ICMP messages that the translator originates.

use crate::common::*;
use gatun_wire::icmp_error::{Message, echo_reply4, echo_reply6, error4, error6, may_answer4, may_answer6};
use gatun_wire::{Checksum, DropReason, Ipv4View, Ipv6View, L4, Offload, Packet, Segmentation};
use std::net::{Ipv4Addr, Ipv6Addr};

const TOO_BIG: Message = Message { kind: 2, code: 0, word: 1400 };
const NEEDED: Message = Message { kind: 3, code: 4, word: 1400 };

fn six(bytes: &[u8], offload: Offload) -> Vec<u8> {
    let (result, out, after) = in_buffer(bytes, offload, |p| error6(p, ROUTER6, TOO_BIG));
    assert_eq!((result, after), (Ok(()), Offload::default()));
    out
}

fn four(bytes: &[u8], offload: Offload) -> Vec<u8> {
    let (result, out, after) = in_buffer(bytes, offload, |p| error4(p, ROUTER4, NEEDED, 0x77, 576));
    assert_eq!((result, after), (Ok(()), Offload::default()));
    out
}

fn expected6(quoted: &[u8]) -> Vec<u8> {
    let e = Error6 { kind: 2, code: 0, word: 1400, body: quoted.to_vec() };
    let v6 = V6 { traffic_class: 0, src: ROUTER6, dst: CLIENT6, ..header6() };
    v6.raw(58, &e.message(ROUTER6, CLIENT6))
}

fn expected4(quoted: &[u8]) -> Vec<u8> {
    let e = Error4 { kind: 3, code: 4, word: 1400, body: quoted.to_vec() };
    V4 { tos: 0xc0, id: 0x77, src: ROUTER4, dst: SERVER4, ..header4() }.raw(1, &e.message())
}

// proves: A79-10, A79-59
#[test]
fn an_error_quotes_the_packet_up_to_its_limit_and_without_padding() {
    for len in [0, 1, 100, 500, 1183, 1184, 1400] {
        let packet = header6().packet(&udp(&payload(len)));
        let out = six(&[packet.clone(), vec![MARK; 7]].concat(), Offload::default());
        assert_eq!(out, expected6(&packet[..packet.len().min(1232)]));
        assert!(out.len() <= 1280);

        let packet = header4().packet(&udp(&payload(len)));
        let out = four(&[packet.clone(), vec![MARK; 7]].concat(), Offload::default());
        assert_eq!(out, expected4(&packet[..packet.len().min(548)]));
        assert!(out.len() <= 576);
    }
}

#[test]
fn an_error_about_a_super_packet_quotes_its_first_segment_as_it_would_have_been_sent() {
    let data = payload(5000);
    let partial = |start| Checksum::Partial { start, offset: 16 };
    let segmentation = Segmentation::Tcp { size: 1000, ecn: false };
    // PSH belongs to the last segment.
    let first = crate::common::Message::Tcp {
        src: 40_001,
        dst: 443,
        flags: 0x10,
        options: vec![],
        payload: data[..1000].to_vec(),
    };
    let mut packet = header6().packet(&tcp(&data));
    packet[56..58].copy_from_slice(&[MARK; 2]);
    let out = six(&packet, Offload { checksum: partial(40), segmentation });
    assert_eq!(out, expected6(&header6().packet(&first)));

    let mut packet = header4().packet(&tcp(&data));
    packet[36..38].copy_from_slice(&[MARK; 2]);
    let out = four(&packet, Offload { checksum: partial(20), segmentation });
    assert_eq!(out, expected4(&header4().packet(&first)[..548]));
}

#[test]
fn an_error_about_a_packet_with_a_partial_checksum_quotes_the_complete_one() {
    let good = header4().packet(&udp(&payload(99)));
    let mut packet = good.clone();
    let pseudo = gatun_wire::checksum::pseudo(&packet[12..20], 107, 17);
    packet[26..28].copy_from_slice(&pseudo.to_be_bytes());
    let checksum = Checksum::Partial { start: 20, offset: 6 };
    let out = four(&packet, Offload { checksum, segmentation: Segmentation::None });
    assert_eq!(out, expected4(&good));
}

#[test]
fn without_headroom_nothing_changes() {
    let v6 = header6().packet(&udp(b"x"));
    let mut buf = [vec![MARK; 47], v6.clone()].concat();
    let mut packet = Packet::new(&mut buf, 47, v6.len()).unwrap();
    assert_eq!(error6(&mut packet, ROUTER6, TOO_BIG), Err(DropReason::NoHeadroom));
    assert_eq!(packet.bytes(), v6);
    let v4 = header4().packet(&udp(b"x"));
    let mut buf = [vec![MARK; 27], v4.clone()].concat();
    let mut packet = Packet::new(&mut buf, 27, v4.len()).unwrap();
    assert_eq!(error4(&mut packet, ROUTER4, NEEDED, 0, 576), Err(DropReason::NoHeadroom));
    assert_eq!(packet.bytes(), v4);
}

fn answers6(v6: V6, proto: u8, l4: &[u8]) -> bool {
    let bytes = v6.raw(proto, l4);
    let view = Ipv6View::parse(&bytes).unwrap();
    may_answer6(&view, view.l4(&bytes).unwrap())
}

fn answers4(v4: V4, proto: u8, l4: &[u8]) -> bool {
    let bytes = v4.raw(proto, l4);
    let view = Ipv4View::parse(&bytes).unwrap();
    may_answer4(&view, view.l4(&bytes).unwrap())
}

// proves: A79-5, A79-39, A79-74
#[test]
fn no_error_answers_errors_multicast_later_fragments_or_invalid_sources() {
    let data = [0u8; 32];
    assert!(answers6(header6(), 17, &data));
    assert!(answers4(header4(), 17, &data));
    assert!(answers6(V6 { fragment: Some((0, true, 1)), ..header6() }, 17, &data));
    assert!(answers4(V4 { mf: true, ..header4() }, 17, &data));
    assert!(!answers6(V6 { fragment: Some((8, true, 1)), ..header6() }, 17, &data));
    assert!(!answers4(V4 { offset: 8, ..header4() }, 17, &data));

    for kind in 0..=255u8 {
        let mut icmp = data;
        icmp[0] = kind;
        assert_eq!(answers6(header6(), 58, &icmp), kind >= 128 && kind != 137, "{kind}");
        assert_eq!(answers4(header4(), 1, &icmp), !matches!(kind, 3 | 4 | 5 | 11 | 12), "{kind}");
    }
    for src in ["::", "::1", "ff02::1"] {
        assert!(!answers6(V6 { src: src.parse().unwrap(), ..header6() }, 17, &data));
    }
    for src in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"] {
        assert!(!answers4(V4 { src: src.parse().unwrap(), ..header4() }, 17, &data));
    }
    assert!(!answers6(V6 { dst: Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 1), ..header6() }, 17, &data));
    for dst in [Ipv4Addr::new(239, 1, 1, 1), Ipv4Addr::BROADCAST] {
        assert!(!answers4(V4 { dst, ..header4() }, 17, &data));
    }
}

fn reply6(bytes: &[u8], offload: Offload) -> (Result<(), DropReason>, Vec<u8>, Offload) {
    in_buffer(bytes, offload, |p| {
        let view = Ipv6View::parse(p.bytes())?;
        echo_reply6(p, &view)
    })
}

fn reply4(bytes: &[u8], offload: Offload) -> (Result<(), DropReason>, Vec<u8>, Offload) {
    in_buffer(bytes, offload, |p| {
        let view = Ipv4View::parse(p.bytes())?;
        echo_reply4(p, &view)
    })
}

#[test]
fn an_echo_request_becomes_its_reply() {
    for len in [0, 1, 56, 1400] {
        let (request, reply) = (echo(true, &payload(len)), echo(false, &payload(len)));
        let options = vec![(0, vec![0, 0, 1, 4, 0, 0, 0, 0])];
        for extensions in [vec![], options] {
            let bytes = V6 { extensions, hop_limit: 3, ..header6() }.packet(&request);
            let (result, out, _) = reply6(&[bytes, vec![MARK; 9]].concat(), Offload::default());
            assert_eq!((result, out), (Ok(()), inbound6().packet(&reply)));
        }
        for options in [vec![], vec![1; 12]] {
            let bytes = V4 { options, ttl: 3, ..outbound4() }.packet(&request);
            let (result, out, _) = reply4(&[bytes, vec![MARK; 9]].concat(), Offload::default());
            assert_eq!((result, out), (Ok(()), header4().packet(&reply)));
        }
    }
}

#[test]
fn an_echo_request_with_a_partial_checksum_is_completed() {
    let mut bytes = header6().packet(&echo(true, b"local"));
    let pseudo = gatun_wire::checksum::pseudo(&bytes[8..40], 13, 58);
    bytes[42..44].copy_from_slice(&pseudo.to_be_bytes());
    let checksum = Checksum::Partial { start: 40, offset: 2 };
    let (result, out, after) = reply6(&bytes, Offload { checksum, ..Offload::default() });
    assert_eq!((result, after), (Ok(()), Offload::default()));
    assert_eq!(out, inbound6().packet(&echo(false, b"local")));
}

#[test]
fn an_echo_request_that_is_wrong_or_in_pieces_is_refused_unchanged() {
    let mut bad6 = header6().packet(&echo(true, b"x"));
    bad6[48] ^= 1;
    let mut bad4 = header4().packet(&echo(true, b"x"));
    bad4[28] ^= 1;
    let (six, four) = (reply6(&bad6, Offload::default()), reply4(&bad4, Offload::default()));
    assert_eq!((six.0, six.1), (Err(DropReason::BadL4Checksum), bad6));
    assert_eq!((four.0, four.1), (Err(DropReason::BadL4Checksum), bad4));
    let cut6 = V6 { fragment: Some((0, true, 1)), ..header6() }.packet(&echo(true, &[0; 8]));
    let cut4 = V4 { mf: true, ..header4() }.packet(&echo(true, &[0; 8]));
    assert_eq!(reply6(&cut6, Offload::default()).0, Err(DropReason::FragmentIcmp));
    assert_eq!(reply4(&cut4, Offload::default()).0, Err(DropReason::FragmentIcmp));
    assert!(matches!(l4_of(&cut4), L4::Echo { request: true, .. }));
}
