//! RFC 7915 4.2, 4.3, 5.2, 5.3: ICMP errors with quoted packets, compared byte by byte.

use crate::common::*;
use gatun_wire::{DropReason, GROWTH_MAX, Offload, Ports, Settings};

fn settings() -> Settings {
    Settings::default()
}

/// Quoted packet, in its IPv4 and its IPv6 form.
fn inner4() -> V4 {
    V4 { ttl: 17, id: 0, ..outbound4() }
}

fn inner6() -> V6 {
    V6 { hop_limit: 17, ..header6() }
}

/// Expected ICMPv6 packet for an ICMPv4 error from the router.
fn outer6(kind: u8, code: u8, word: u32, body: &[u8]) -> Vec<u8> {
    let e = Error6 { kind, code, word, body: body.to_vec() };
    V6 { src: ROUTER6, dst: CLIENT6, hop_limit: 63, ..header6() }.raw(58, &e.message(ROUTER6, CLIENT6))
}

/// Expected ICMPv4 packet for an ICMPv6 error from the router.
fn outer4(kind: u8, code: u8, word: u32, body: &[u8]) -> Vec<u8> {
    let e = Error4 { kind, code, word, body: body.to_vec() };
    V4 { src: ROUTER4, dst: CLIENT4, ttl: 63, id: ID, ..header4() }.raw(1, &e.message())
}

fn four(kind: u8, code: u8, word: u32, body: &[u8]) -> (Result<(), DropReason>, Vec<u8>) {
    error_4to6(&Error4 { kind, code, word, body: body.to_vec() }.packet(), Ports::Keep, &settings())
}

fn six(kind: u8, code: u8, word: u32, body: &[u8]) -> (Result<(), DropReason>, Vec<u8>) {
    error_6to4(&Error6 { kind, code, word, body: body.to_vec() }.packet(), Ports::Keep, &settings())
}

/// The table of RFC 7915 4.2: type and code in, type and code out. `None` means dropped.
fn table_4to6(kind: u8, code: u8) -> Option<(u8, u8)> {
    match (kind, code) {
        (3, 0 | 1 | 5 | 6 | 7 | 8 | 11 | 12) => Some((1, 0)),
        (3, 2) => Some((4, 1)),
        (3, 3) => Some((1, 4)),
        (3, 4) => Some((2, 0)),
        (3, 9 | 10 | 13 | 15) => Some((1, 1)),
        (11, code) => Some((3, code)),
        (12, 0 | 2) => Some((4, 0)),
        _ => None,
    }
}

/// RFC 7915 5.2.
fn table_6to4(kind: u8, code: u8) -> Option<(u8, u8)> {
    match (kind, code) {
        (1, 0 | 2 | 3) => Some((3, 1)),
        (1, 1) => Some((3, 10)),
        (1, 4) => Some((3, 3)),
        (2, _) => Some((3, 4)),
        (3, code) => Some((11, code)),
        (4, 0) => Some((12, 0)),
        (4, 1) => Some((3, 2)),
        _ => None,
    }
}

// proves: ICMP4-3/0, ICMP4-3/1, ICMP4-3/2, ICMP4-3/3, ICMP4-3/4, ICMP4-3/5, ICMP4-3/6, ICMP4-3/7
// proves: ICMP4-3/8, ICMP4-3/9, ICMP4-3/10, ICMP4-3/11, ICMP4-3/12, ICMP4-3/13, ICMP4-3/14, ICMP4-3/15
// proves: ICMP4-11/0, ICMP4-11/1, ICMP4-12/0, ICMP4-12/1, ICMP4-12/2, ICMP4-8/0, ICMP4-0/0, ICMP4-4/0
// proves: ICMP4-5/0, ICMP4-6/0, ICMP4-9/0, ICMP4-10/0, ICMP4-13/0, ICMP4-14/0, ICMP4-15/0, ICMP4-16/0
// proves: ICMP4-17/0, ICMP4-18/0
// proves: ICMP4-11/other, ICMP4-12/other, R55-11
#[test]
fn all_65536_types_and_codes_of_icmpv4_come_out_by_the_table() {
    let m = udp(&payload(40));
    let (body4, body6) = (inner4().packet(&m), inner6().packet(&m));
    for kind in 0..=255u8 {
        for code in 0..=255u8 {
            if matches!((kind, code), (0 | 8, 0)) {
                let (result, out) = query_4to6(kind, code);
                assert_eq!(result, Ok(gatun_wire::Whole::Yes));
                let new = if kind == 8 { 128 } else { 129 };
                let e = Error6 { kind: new, code: 0, word: 0x1234_0001, body: b"ping".to_vec() };
                let v6 = V6 { src: SERVER6, dst: CLIENT6, hop_limit: 63, ..header6() };
                assert_eq!(out, v6.raw(58, &e.message(SERVER6, CLIENT6)));
                continue;
            }
            let (result, out) = four(kind, code, 0, &body4);
            match table_4to6(kind, code) {
                Some((k, c)) => {
                    // An MTU of zero: the plateau below 68 is 68, and 1280 is the minimum. For 3/2, the word
                    // is the pointer.
                    let word = match (k, c) {
                        (2, _) => 1280,
                        (4, 1) => 6,
                        _ => 0,
                    };
                    assert_eq!(result, Ok(()), "{kind}/{code}");
                    assert_eq!(out, outer6(k, c, word, &body6), "{kind}/{code}");
                }
                None => {
                    let single_hop = matches!(kind, 5 | 9 | 10);
                    let reason =
                        if single_hop { DropReason::IcmpSingleHop } else { DropReason::IcmpUnknownType };
                    assert_eq!(result, Err(reason), "{kind}/{code}");
                    assert_eq!(query_4to6(kind, code).0, Err(reason), "{kind}/{code}");
                }
            }
        }
    }
}

/// Sends a message through the translation of non-error packets.
fn query_4to6(kind: u8, code: u8) -> (Result<gatun_wire::Whole, DropReason>, Vec<u8>) {
    let e = Error4 { kind, code, word: 0x1234_0001, body: b"ping".to_vec() };
    let bytes = header4().raw(1, &e.message());
    let (result, out, _) = four_to_six(&bytes, Ports::Keep, &settings(), Offload::default());
    (result, out)
}

fn query_6to4(kind: u8, code: u8) -> (Result<gatun_wire::Whole, DropReason>, Vec<u8>) {
    let e = Error6 { kind, code, word: 0x1234_0001, body: b"ping".to_vec() };
    let bytes = header6().raw(58, &e.message(CLIENT6, SERVER6));
    let (result, out, _) = six_to_four(&bytes, Ports::Keep, &settings(), Offload::default());
    (result, out)
}

// proves: ICMP6-1/0, ICMP6-1/1, ICMP6-1/2, ICMP6-1/3, ICMP6-1/4, ICMP6-2/0, ICMP6-3/0, ICMP6-3/1
// proves: ICMP6-4/0, ICMP6-4/1, ICMP6-4/2, ICMP6-128/0, ICMP6-129/0, ICMP6-130/0, ICMP6-131/0
// proves: ICMP6-132/0, ICMP6-133/0, ICMP6-134/0, ICMP6-135/0, ICMP6-136/0, ICMP6-137/0, ICMP6-143/0
// proves: ICMP6-3/other, ICMP6-4/other, R55-11
#[test]
fn all_65536_types_and_codes_of_icmpv6_come_out_by_the_table() {
    let m = udp(&payload(40));
    let (body4, body6) = (inner4().packet(&m), inner6().packet(&m));
    for kind in 0..=255u8 {
        for code in 0..=255u8 {
            if matches!((kind, code), (128 | 129, 0)) {
                let (result, out) = query_6to4(kind, code);
                assert_eq!(result, Ok(gatun_wire::Whole::Yes));
                let new = if kind == 128 { 8 } else { 0 };
                let e = Error4 { kind: new, code: 0, word: 0x1234_0001, body: b"ping".to_vec() };
                assert_eq!(out, V4 { id: ID, ttl: 63, ..outbound4() }.raw(1, &e.message()));
                continue;
            }
            let (result, out) = six(kind, code, 0, &body6);
            match table_6to4(kind, code) {
                Some((k, c)) => {
                    // An MTU of zero: every IPv4 link carries at least 68.
                    let word = if (k, c) == (3, 4) { 68 } else { 0 };
                    assert_eq!(result, Ok(()), "{kind}/{code}");
                    assert_eq!(out, outer4(k, c, word, &body4), "{kind}/{code}");
                }
                None => {
                    let single_hop = matches!(kind, 130..=137 | 141..=143 | 148 | 149);
                    let reason =
                        if single_hop { DropReason::IcmpSingleHop } else { DropReason::IcmpUnknownType };
                    assert_eq!(result, Err(reason), "{kind}/{code}");
                    assert_eq!(query_6to4(kind, code).0, Err(reason), "{kind}/{code}");
                }
            }
        }
    }
}

// proves: PTR4-0, PTR4-1, PTR4-2, PTR4-3, PTR4-4, PTR4-5, PTR4-6, PTR4-7, PTR4-8, PTR4-9, PTR4-10
// proves: PTR4-11, PTR4-12, PTR4-13, PTR4-14, PTR4-15, PTR4-16, PTR4-17, PTR4-18, PTR4-19, PTR4-20
#[test]
fn every_pointer_of_icmpv4_goes_to_its_field_or_nowhere() {
    let m = udp(&payload(40));
    let (body4, body6) = (inner4().packet(&m), inner6().packet(&m));
    for at in 0..=255u8 {
        let expected = match at {
            0 => Some(0),
            1 => Some(1),
            2 | 3 => Some(4),
            8 => Some(7),
            9 => Some(6),
            12..=15 => Some(8),
            16..=19 => Some(24),
            _ => None,
        };
        for code in [0, 2] {
            let (result, out) = four(12, code, u32::from(at) << 24, &body4);
            match expected {
                Some(new) => assert_eq!((result, out), (Ok(()), outer6(4, 0, new, &body6))),
                None => assert_eq!(result, Err(DropReason::IcmpPointerUntranslatable)),
            }
        }
    }
}

// proves: PTR6-0, PTR6-1, PTR6-2, PTR6-3, PTR6-4, PTR6-5, PTR6-6, PTR6-7, PTR6-8, PTR6-9, PTR6-10
// proves: PTR6-11, PTR6-12, PTR6-13, PTR6-14, PTR6-15, PTR6-16, PTR6-17, PTR6-18, PTR6-19, PTR6-20
// proves: PTR6-21, PTR6-22, PTR6-23, PTR6-24, PTR6-25, PTR6-26, PTR6-27, PTR6-28, PTR6-29, PTR6-30
// proves: PTR6-31, PTR6-32, PTR6-33, PTR6-34, PTR6-35, PTR6-36, PTR6-37, PTR6-38, PTR6-39, PTR6-40
#[test]
fn every_pointer_of_icmpv6_goes_to_its_field_or_nowhere() {
    let m = udp(&payload(40));
    let (body4, body6) = (inner4().packet(&m), inner6().packet(&m));
    for at in (0..=1_000).chain([65_536, 1 << 24, u32::MAX]) {
        let expected = match at {
            0 => Some(0),
            1 => Some(1),
            4 | 5 => Some(2),
            6 => Some(9),
            7 => Some(8),
            8..=23 => Some(12),
            24..=39 => Some(16),
            _ => None,
        };
        let (result, out) = six(4, 0, at, &body6);
        match expected {
            Some(new) => assert_eq!((result, out), (Ok(()), outer4(12, 0, new << 24, &body4))),
            None => assert_eq!(result, Err(DropReason::IcmpPointerUntranslatable)),
        }
    }
}

// proves: A79-33, A79-34, A79-35, A79-72
#[test]
fn packets_of_all_kinds_inside_an_error_are_translated_with_their_hop_limit_unchanged() {
    for m in [udp(&payload(99)), tcp(&payload(98)), echo(true, &payload(97)), echo(false, &payload(96))] {
        let (body4, body6) = (inner4().packet(&m), inner6().packet(&m));
        assert_eq!(four(11, 0, 0, &body4), (Ok(()), outer6(3, 0, 0, &body6)), "{m:?}");
        assert_eq!(six(3, 0, 0, &body6), (Ok(()), outer4(11, 0, 0, &body4)), "{m:?}");
    }
}

// proves: A79-34
#[test]
fn ports_and_identifiers_inside_an_error_are_rewritten() {
    let set = Ports::Set { src: 7, dst: 65_535 };
    for (m, ports) in
        [(udp(&payload(99)), set), (tcp(&payload(98)), set), (echo(true, &payload(9)), Ports::EchoId(3))]
    {
        let new = with_ports(&m, ports);
        let e4 = Error4 { kind: 3, code: 1, word: 0, body: inner4().packet(&m) };
        let out = outer6(1, 0, 0, &inner6().packet(&new));
        assert_eq!(error_4to6(&e4.packet(), ports, &settings()), (Ok(()), out));
        let e6 = Error6 { kind: 1, code: 0, word: 0, body: inner6().packet(&m) };
        let out = outer4(3, 1, 0, &inner4().packet(&new));
        assert_eq!(error_6to4(&e6.packet(), ports, &settings()), (Ok(()), out));
    }
}

// proves: A79-34
#[test]
fn an_inner_datagram_without_checksum_stays_without() {
    let mut body4 = inner4().packet(&udp(&payload(20)));
    let mut body6 = inner6().packet(&udp(&payload(20)));
    body4[26..28].fill(0);
    body6[46..48].fill(0);
    assert_eq!(four(11, 0, 0, &body4), (Ok(()), outer6(3, 0, 0, &body6)));
    assert_eq!(six(3, 0, 0, &body6), (Ok(()), outer4(11, 0, 0, &body4)));
}

// proves: A79-36
#[test]
fn options_and_extension_headers_inside_an_error_are_left_out() {
    let m = tcp(&payload(40));
    for len in [4, 40] {
        let body4 = V4 { options: vec![1; len], ..inner4() }.packet(&m);
        assert_eq!(four(11, 0, 0, &body4), (Ok(()), outer6(3, 0, 0, &inner6().packet(&m))));
    }
    let extensions = vec![(0, vec![0, 0, 1, 4, 0, 0, 0, 0]), (60, vec![0, 0, 1, 4, 0, 0, 0, 0])];
    let body6 = V6 { extensions, ..inner6() }.packet(&m);
    assert_eq!(six(3, 0, 0, &body6), (Ok(()), outer4(11, 0, 0, &inner4().packet(&m))));
}

// proves: A79-36
#[test]
fn fragments_inside_an_error_are_translated_first_later_and_atomic() {
    let m = udp(&payload(600));
    let (as4, as6) = (m.to_bytes4(CLIENT4, SERVER4), m.to_bytes6(CLIENT6, SERVER6));
    for (from, to, more) in [(0, 256, true), (256, 512, true), (512, 608, false)] {
        let id = 0xabcd;
        let body4 = V4 { id, mf: more, offset: from as u16, ..inner4() }.raw(17, &as4[from..to]);
        let body6 =
            V6 { fragment: Some((from as u16, more, u32::from(id))), ..inner6() }.raw(17, &as6[from..to]);
        assert_eq!(four(11, 1, 0, &body4), (Ok(()), outer6(3, 1, 0, &body6)));
        assert_eq!(six(3, 1, 0, &body6), (Ok(()), outer4(11, 1, 0, &body4)));
    }
    let body6 = V6 { fragment: Some((0, false, 0x9999_abcd)), ..inner6() }.packet(&udp(b"atomic"));
    let body4 = V4 { id: 0xabcd, ..inner4() }.packet(&udp(b"atomic"));
    assert_eq!(six(3, 1, 0, &body6), (Ok(()), outer4(11, 1, 0, &body4)));
}

// proves: A79-37, A79-34
#[test]
fn eight_bytes_after_the_inner_header_are_enough_and_seven_are_too_few() {
    for m in [udp(&payload(300)), tcp(&payload(300)), echo(true, &payload(300))] {
        let (body4, body6) = (inner4().packet(&m), inner6().packet(&m));
        // Half a checksum (17 bytes of TCP) cannot be adjusted and stays unchanged.
        for quoted in (8..100).filter(|q| *q != 17) {
            let (short4, short6) = (&body4[..20 + quoted], &body6[..40 + quoted]);
            assert_eq!(four(3, 1, 0, short4), (Ok(()), outer6(1, 0, 0, short6)), "{quoted}");
            assert_eq!(six(1, 0, 0, short6), (Ok(()), outer4(3, 1, 0, short4)), "{quoted}");
        }
        for quoted in 0..28 {
            assert_eq!(four(3, 1, 0, &body4[..quoted]).0, Err(DropReason::IcmpInnerShort));
        }
        for quoted in 0..48 {
            assert_eq!(six(1, 0, 0, &body6[..quoted]).0, Err(DropReason::IcmpInnerShort));
        }
    }
}

// proves: A79-35
#[test]
fn an_error_about_an_error_is_refused() {
    let m = udp(&payload(40));
    for kind in [3, 4, 5, 11, 12] {
        let e4 = Error4 { kind, code: 0, word: 0, body: inner4().packet(&m) };
        let body = inner4().raw(1, &e4.message());
        assert_eq!(four(3, 1, 0, &body).0, Err(DropReason::IcmpDoubleError));
    }
    for kind in [1, 2, 3, 4, 100, 127] {
        let e6 = Error6 { kind, code: 0, word: 0, body: inner6().packet(&m) };
        let body = inner6().raw(58, &e6.message(CLIENT6, SERVER6));
        assert_eq!(six(1, 0, 0, &body).0, Err(DropReason::IcmpDoubleError));
    }
}

#[test]
fn an_inner_packet_without_translation_is_refused() {
    for proto in [58u8, 0, 43, 44, 60, 51, 2] {
        let body = inner4().raw(proto, &[0; 32]);
        assert_eq!(four(3, 1, 0, &body).0, Err(DropReason::IcmpInnerUntranslatable), "{proto}");
    }
    for proto in [1u8, 51, 2] {
        let body = inner6().raw(proto, &[0; 32]);
        assert_eq!(six(1, 0, 0, &body).0, Err(DropReason::IcmpInnerUntranslatable), "{proto}");
    }
    let body = V6 { extensions: vec![(43, vec![0, 0, 0, 1, 0, 0, 0, 0])], ..inner6() }.packet(&udp(b"x"));
    assert_eq!(six(1, 0, 0, &body).0, Err(DropReason::IcmpInnerUntranslatable));
    let (not4, not6) = (inner6().packet(&udp(b"x")), inner4().packet(&udp(&payload(40))));
    assert_eq!(four(3, 1, 0, &not4).0, Err(DropReason::IcmpInnerUntranslatable));
    assert_eq!(six(1, 0, 0, &not6).0, Err(DropReason::IcmpInnerUntranslatable));
}

// proves: R55-3
#[test]
fn wrong_sums_of_the_error_and_of_the_inner_header_are_refused_but_not_of_the_inner_transport() {
    let (body4, body6) = (inner4().packet(&udp(&payload(9))), inner6().packet(&udp(&payload(9))));
    let mut bad = Error4 { kind: 3, code: 1, word: 0, body: body4.clone() }.packet();
    bad[22] ^= 0x40;
    assert_eq!(error_4to6(&bad, Ports::Keep, &settings()).0, Err(DropReason::BadL4Checksum));
    let mut bad = Error6 { kind: 1, code: 0, word: 0, body: body6.clone() }.packet();
    bad[42] ^= 0x40;
    assert_eq!(error_6to4(&bad, Ports::Keep, &settings()).0, Err(DropReason::BadL4Checksum));

    let mut inner_bad = body4.clone();
    inner_bad[10] ^= 1;
    assert_eq!(four(3, 1, 0, &inner_bad).0, Err(DropReason::BadL3Checksum));

    let (mut odd4, mut odd6) = (body4, body6);
    odd4[30] ^= 0xff;
    odd6[50] ^= 0xff;
    assert_eq!(four(3, 1, 0, &odd4), (Ok(()), outer6(1, 0, 0, &odd6)));
    assert_eq!(six(1, 0, 0, &odd6), (Ok(()), outer4(3, 1, 0, &odd4)));
}

#[test]
fn a_fragmented_error_or_one_at_its_last_hop_is_refused() {
    let e4 = Error4 { kind: 3, code: 1, word: 0, body: inner4().packet(&udp(&payload(12))) };
    let e6 = Error6 { kind: 1, code: 0, word: 0, body: inner6().packet(&udp(&payload(16))) };
    let v4 = V4 { src: ROUTER4, dst: CLIENT4, ..header4() };
    let v6 = V6 { src: ROUTER6, dst: CLIENT6, ..header6() };
    let m6 = e6.message(ROUTER6, CLIENT6);
    let cut4 = V4 { mf: true, ..v4.clone() }.raw(1, &e4.message());
    assert_eq!(error_4to6(&cut4, Ports::Keep, &settings()).0, Err(DropReason::FragmentIcmp));
    let cut6 = V6 { fragment: Some((0, true, 1)), ..v6.clone() }.raw(58, &m6);
    assert_eq!(error_6to4(&cut6, Ports::Keep, &settings()).0, Err(DropReason::FragmentIcmp));
    let last4 = V4 { ttl: 1, ..v4 }.raw(1, &e4.message());
    assert_eq!(error_4to6(&last4, Ports::Keep, &settings()).0, Err(DropReason::TtlExceeded));
    let last6 = V6 { hop_limit: 1, ..v6 }.raw(58, &m6);
    assert_eq!(error_6to4(&last6, Ports::Keep, &settings()).0, Err(DropReason::TtlExceeded));
}

// proves: A79-33, A79-72
#[test]
fn errors_are_cut_to_1280_and_576_bytes() {
    let m = udp(&payload(1400));
    let (body4, body6) = (inner4().packet(&m), inner6().packet(&m));
    let body4 = V4 { df: true, ..inner4() }.packet(&m)[..body4.len()].to_vec();
    let (result, out) = four(11, 0, 0, &body4);
    assert_eq!((result, out.len()), (Ok(()), 1280));
    assert_eq!(out, outer6(3, 0, 0, &body6[..1232]));

    let quoted = &body6[..1232];
    assert_eq!(six(3, 0, 0, quoted), (Ok(()), outer4(11, 0, 0, &body4[..548])));
    let more = Settings { icmp4_error_max: 1500, ..settings() };
    let e6 = Error6 { kind: 3, code: 0, word: 0, body: quoted.to_vec() };
    assert_eq!(error_6to4(&e6.packet(), Ports::Keep, &more), (Ok(()), outer4(11, 0, 0, &body4[..1212])));
}

// proves: A79-30, A79-31, A79-32, ICMP4-3/4
#[test]
fn every_advertised_mtu_of_icmpv4_comes_out_by_the_minimum_of_three_and_1280() {
    let m = udp(&payload(40));
    for (mtu4, mtu6) in [(1500, 1500), (9000, 1400), (1300, 9000), (65_535, 65_535)] {
        let settings = Settings { mtu4, mtu6, ..settings() };
        for quoted_len in [69u32, 1006, 1007, 1492, 1493, 1500, 4352, 65_535] {
            // Only the header gives the length of the packet.
            let mut body4 = inner4().packet(&m);
            let mut body6 = inner6().packet(&m);
            set_total_len4(&mut body4, quoted_len as u16);
            body6[4..6].copy_from_slice(&(quoted_len as u16 - 20).to_be_bytes());
            for advertised in (0..=1600).step_by(17).chain([0, 1, 67, 68, 1260, 1480, 1500, 9000, 65_535]) {
                let path = match advertised {
                    0..68 => {
                        let below = |p: &&u32| **p < quoted_len;
                        *[65_535, 32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296, 68u32]
                            .iter()
                            .find(below)
                            .unwrap()
                    }
                    mtu => mtu,
                };
                let expected = (path + 20).min(mtu6).min(mtu4 + 20).max(1280);
                let e4 = Error4 { kind: 3, code: 4, word: advertised, body: body4.clone() };
                assert_eq!(
                    error_4to6(&e4.packet(), Ports::Keep, &settings),
                    (Ok(()), outer6(2, 0, expected, &body6)),
                    "{advertised} about {quoted_len}"
                );
            }
        }
    }
}

fn set_total_len4(header: &mut [u8], total_len: u16) {
    header[2..4].copy_from_slice(&total_len.to_be_bytes());
    let mut parsed = etherparse::Ipv4Header::from_slice(header).unwrap().0;
    parsed.header_checksum = parsed.calc_header_checksum();
    header[..20].copy_from_slice(&parsed.to_bytes());
}

// proves: A79-70, ICMP6-2/0
#[test]
fn every_advertised_mtu_of_icmpv6_comes_out_by_the_minimum_of_three() {
    let m = udp(&payload(40));
    for (mtu4, mtu6) in [(1500, 1500), (9000, 1400), (1300, 9000), (65_535, 65_535)] {
        let settings = Settings { mtu4, mtu6, ..settings() };
        for advertised in (0..=65_535).step_by(509).chain([0, 87, 88, 89, 576, 1280, 1500, u32::MAX]) {
            for fragment in [None, Some((0, false, 0xabcd))] {
                let body6 = V6 { fragment, ..inner6() }.packet(&m);
                let body4 = V4 { id: if fragment.is_some() { 0xabcd } else { 0 }, ..inner4() }.packet(&m);
                // RFC 7915 5.2: the Fragment header counts.
                let overhead = if fragment.is_some() { 28 } else { 20 };
                let adv = advertised.saturating_sub(overhead);
                let expected = adv.min(mtu4).min(mtu6 - overhead).max(68);
                let e6 = Error6 { kind: 2, code: 0, word: advertised, body: body6 };
                assert_eq!(
                    error_6to4(&e6.packet(), Ports::Keep, &settings),
                    (Ok(()), outer4(3, 4, expected, &body4)),
                    "{advertised}"
                );
            }
        }
    }
}

/// Extension structure: version 2, a foreign checksum, one object.
const EXTENSION: [u8; 16] = [0x20, 0, 0x12, 0x34, 0, 12, 1, 1, 9, 8, 7, 6, 5, 4, 3, 2];

fn padded(datagram: &[u8], len: usize) -> Vec<u8> {
    let mut out = datagram.to_vec();
    out.resize(len, 0);
    [out, EXTENSION.to_vec()].concat()
}

// proves: A79-38
#[test]
fn extensions_are_kept_and_their_length_counts_the_new_datagram() {
    // A quotation of 128 bytes, cut from a longer packet, and a short packet padded to 128.
    let long = udp(&payload(400));
    let (long4, long6) = (&inner4().packet(&long)[..128], &inner6().packet(&long)[..148]);
    let short = udp(&payload(10));
    let (short4, short6) = (inner4().packet(&short), inner6().packet(&short));
    for (kind4, kind6, code4, code6) in [(3, 1, 1, 0), (11, 3, 0, 0)] {
        // 148 bytes are padded with zeros to 152, in 64-bit words.
        let out = outer6(kind6, code6, 19 << 24, &padded(long6, 152));
        assert_eq!(four(kind4, code4, 32 << 16, &padded(long4, 128)), (Ok(()), out));
        let out = outer6(kind6, code6, 16 << 24, &padded(&short6, 128));
        assert_eq!(four(kind4, code4, 32 << 16, &padded(&short4, 128)), (Ok(()), out));

        let out = outer4(kind4, code4, 33 << 16, &padded(&inner4().packet(&long)[..132], 132));
        let v6 = padded(&inner6().packet(&long)[..152], 152);
        assert_eq!(six(kind6, code6, 19 << 24, &v6), (Ok(()), out));
        let out = outer4(kind4, code4, 32 << 16, &padded(&short4, 128));
        assert_eq!(six(kind6, code6, 16 << 24, &padded(&short6, 128)), (Ok(()), out));
    }
}

// proves: A79-38
#[test]
fn a_datagram_shorter_than_rfc_4884_allows_is_accepted_and_leaves_compliant() {
    let m = udp(&payload(40));
    let (body4, body6) = (inner4().packet(&m), inner6().packet(&m));
    assert_eq!(body4.len(), 68);
    let out = outer6(1, 0, 16 << 24, &padded(&body6, 128));
    assert_eq!(four(3, 1, 17 << 16, &padded(&body4, 68)), (Ok(()), out));
    let out = outer4(3, 1, 32 << 16, &padded(&body4, 128));
    assert_eq!(six(1, 0, 11 << 24, &padded(&body6, 88)), (Ok(()), out));
}

// proves: A79-38
#[test]
fn an_extension_is_dropped_if_the_new_message_has_no_length_attribute() {
    let m = udp(&payload(100));
    let (body4, body6) = (inner4().packet(&m), inner6().packet(&m));
    // Fragmentation Needed and Parameter Problem: the IPv6 messages have no length attribute.
    let out = outer6(2, 0, 1420, &body6);
    assert_eq!(four(3, 4, 32 << 16 | 1400, &padded(&body4, 128)), (Ok(()), out));
    let out = outer6(4, 0, 6, &body6);
    assert_eq!(four(12, 0, 9 << 24 | 32 << 16, &padded(&body4, 128)), (Ok(()), out));
    let out = outer6(4, 1, 6, &body6);
    assert_eq!(four(3, 2, 32 << 16, &padded(&body4, 128)), (Ok(()), out));
}

// proves: A79-38
#[test]
fn a_long_datagram_is_cut_for_its_extension_and_a_wrong_length_is_refused() {
    let m = udp(&payload(1000));
    let (body4, body6) = (inner4().packet(&m), inner6().packet(&m));
    // 576 - 28 - 16 = 532 bytes of datagram.
    let e6 = padded(&body6[..1000], 1000);
    let out = outer4(3, 1, 133 << 16, &padded(&body4[..532], 532));
    assert_eq!(six(1, 0, 125 << 24, &e6), (Ok(()), out));

    assert_eq!(four(3, 1, 255 << 16, &body4[..200]).0, Err(DropReason::IcmpExtensionBad));
    assert_eq!(six(1, 0, 255 << 24, &body6[..200]).0, Err(DropReason::IcmpExtensionBad));
    // The length covers everything: there is no extension.
    assert_eq!(four(3, 1, 50 << 16, &body4[..200]), (Ok(()), outer6(1, 0, 0, &body6[..220])));
}

/// A header alone, or with a few more bytes, and an extension after it. The extension has to begin at byte
/// 128.
// proves: A79-38
#[test]
fn an_error_of_maximum_growth_leaves_room_for_the_device_header() {
    for len in 0..=40u8 {
        let (body4, body6) =
            (inner4().raw(132, &vec![7; len.into()]), inner6().raw(132, &vec![7; len.into()]));
        let (cut4, cut6) = (body4.len().next_multiple_of(4), body6.len().next_multiple_of(8));
        let error4 = padded(&body4, cut4);
        let out = four(11, 0, (cut4 as u32 / 4) << 16, &error4);
        assert_eq!(out, (Ok(()), outer6(3, 0, 16 << 24, &padded(&body6, 128))));
        if len == 0 {
            assert_eq!(out.1.len() - (20 + 8 + error4.len()), GROWTH_MAX);
        }
        let out = six(3, 0, (cut6 as u32 / 8) << 24, &padded(&body6, cut6));
        assert_eq!(out, (Ok(()), outer4(11, 0, 32 << 16, &padded(&body4, 128))));
    }
}
