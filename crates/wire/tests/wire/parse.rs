//! Packets refused by the parser.

use crate::common::*;
use gatun_wire::view::EXTENSION_HEADERS_MAX;
use gatun_wire::{DropReason, Ipv4View, Ipv6View, L4, Prefix64, rfc6052::Prefix64Error};

fn parse4(bytes: &[u8]) -> Result<L4, DropReason> {
    Ipv4View::parse(bytes).and_then(|v| v.l4(bytes))
}

fn parse6(bytes: &[u8]) -> Result<L4, DropReason> {
    Ipv6View::parse(bytes).and_then(|v| v.l4(bytes))
}

#[test]
fn packets_shorter_than_their_header_or_of_another_version_are_refused() {
    let (v4, v6) = (header4().packet(&udp(b"x")), header6().packet(&udp(b"x")));
    for len in 0..20 {
        assert_eq!(parse4(&v4[..len]), Err(DropReason::ShortL3));
    }
    for len in 0..40 {
        assert_eq!(parse6(&v6[..len]), Err(DropReason::ShortL3));
    }
    let other4 = [v6.clone(), v6.clone()].concat();
    assert_eq!(parse4(&other4), Err(DropReason::BadVersion));
    let other6 = [v4.clone(), v4.clone()].concat();
    assert_eq!(parse6(&other6), Err(DropReason::BadVersion));
}

#[test]
fn header_lengths_below_five_or_past_the_end_are_refused() {
    let good = header4().packet(&udp(b""));
    for ihl in 0..16u8 {
        let mut bytes = good.clone();
        bytes[0] = 0x40 | ihl;
        let refused = match ihl {
            0..5 | 8.. => DropReason::BadHeaderLength,
            _ => continue, // the checksum is wrong then
        };
        assert_eq!(parse4(&bytes), Err(refused), "{ihl}");
    }
}

#[test]
fn wrong_lengths_are_refused() {
    let m = udp(&payload(20));
    let (v4, v6) = (header4().packet(&m), header6().packet(&m));
    for len in [0u16, 19, 49, 65_535] {
        let mut bytes = v4.clone();
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        assert_eq!(parse4(&bytes), Err(DropReason::BadLength), "{len}");
    }
    for len in [29u16, 65_535] {
        let mut bytes = v6.clone();
        bytes[4..6].copy_from_slice(&len.to_be_bytes());
        assert_eq!(parse6(&bytes), Err(DropReason::BadLength), "{len}");
    }
    for len in [0u16, 7] {
        let mut bytes = v6.clone();
        bytes[4..6].copy_from_slice(&len.to_be_bytes());
        assert_eq!(parse6(&bytes), Err(DropReason::L4Truncated), "{len}");
    }
    let options = vec![(60, vec![0, 3, 0, 0, 0, 0, 0, 0])]; // says 32 bytes, has 8
    let chain = V6 { extensions: options, ..header6() }.raw(17, &[0; 8]);
    assert_eq!(parse6(&chain), Err(DropReason::BadLength));
}

#[test]
fn the_walk_over_extension_headers_ends_at_its_bound() {
    let chain = |n| vec![(60u8, vec![0, 0, 1, 4, 0, 0, 0, 0]); n];
    let with = |n| V6 { extensions: chain(n), ..header6() }.packet(&udp(b"x"));
    assert!(matches!(parse6(&with(EXTENSION_HEADERS_MAX)), Ok(L4::Udp { .. })));
    assert_eq!(parse6(&with(EXTENSION_HEADERS_MAX + 1)), Err(DropReason::ExtensionChainTooLong));
    assert_eq!(parse6(&with(1000)), Err(DropReason::ExtensionChainTooLong));
}

#[test]
fn the_view_has_the_offsets_of_the_transport_and_its_protocol_number() {
    let extensions =
        vec![(0, vec![0, 0, 1, 4, 0, 0, 0, 0]), (60, vec![0, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])];
    let v6 = V6 { extensions, fragment: Some((64, true, 0x1_0002)), ..header6() };
    let bytes = v6.raw(17, &[0; 64]);
    let view = Ipv6View::parse(&bytes).unwrap();
    assert_eq!((view.l4_offset, view.next_header_at, view.proto), (72, 64, 17));
    let f = view.fragment.unwrap();
    assert_eq!((f.offset, f.more, f.id, f.is_first(), f.is_atomic()), (64, true, 0x1_0002, false, false));
    assert_eq!(view.l4(&bytes), Ok(L4::LaterFragment));

    let bytes = V6 { flow_label: 0xabcde, ..header6() }.packet(&tcp(b"x"));
    let view = Ipv6View::parse(&bytes).unwrap();
    assert_eq!((view.l4_offset, view.next_header_at, view.proto), (40, 6, 6));
    assert_eq!((view.flow_label, view.traffic_class, view.hop_limit), (0xabcde, 0xb9, 64));
    assert_eq!(view.l4(&bytes), Ok(L4::Tcp { src_port: 40_001, dst_port: 443, flags: 0x18 }));
}

#[test]
fn a_transport_header_that_is_cut_off_is_refused_and_in_a_fragment_called_tiny() {
    for (m, least) in [(udp(&payload(64)), 8), (tcp(&payload(64)), 20), (echo(true, &payload(64)), 8)] {
        let (l4, l6) = (m.to_bytes4(SERVER4, CLIENT4), m.to_bytes6(CLIENT6, SERVER6));
        for len in 0..least {
            let whole = header4().raw(m.proto4(), &l4[..len]);
            assert_eq!(parse4(&whole), Err(DropReason::L4Truncated));
            assert_eq!(parse6(&header6().raw(m.proto6(), &l6[..len])), Err(DropReason::L4Truncated));
            if len % 8 != 0 {
                continue;
            }
            let first = V4 { mf: true, ..header4() }.raw(m.proto4(), &l4[..len]);
            assert_eq!(parse4(&first), Err(DropReason::FragmentTiny));
            let first = V6 { fragment: Some((0, true, 1)), ..header6() }.raw(m.proto6(), &l6[..len]);
            assert_eq!(parse6(&first), Err(DropReason::FragmentTiny));
        }
        let atomic = V6 { fragment: Some((0, false, 1)), ..header6() }.raw(m.proto6(), &l6[..4]);
        assert_eq!(parse6(&atomic), Err(DropReason::L4Truncated));
    }
}

#[test]
fn fragments_that_no_host_sends_are_refused() {
    // More fragments to come but not a multiple of eight; beyond the end of the largest packet.
    for (offset, more, len) in [(0, true, 12), (64, true, 63), (65_528, false, 8), (65_528, true, 8)] {
        let v4 = V4 { mf: more, offset, ..header4() }.raw(17, &payload(len));
        assert_eq!(parse4(&v4), Err(DropReason::BadLength));
        let v6 = V6 { fragment: Some((offset, more, 1)), ..header6() }.raw(17, &payload(len));
        assert_eq!(parse6(&v6), Err(DropReason::BadLength));
    }
    let last = V6 { fragment: Some((65_528, false, 1)), ..header6() }.raw(17, &payload(7));
    assert_eq!(parse6(&last), Ok(L4::LaterFragment));
}

// proves: A79-13
#[test]
fn fragmented_icmp_is_refused() {
    for (offset, more) in [(0, true), (64, true), (64, false)] {
        let v4 = V4 { mf: more, offset, ..header4() }.packet(&echo(true, &payload(64)));
        assert_eq!(err_4to6(&v4), DropReason::FragmentIcmp);
        let v6 = V6 { fragment: Some((offset, more, 1)), ..header6() };
        assert_eq!(err_6to4(&v6.packet(&echo(true, &payload(64)))), DropReason::FragmentIcmp);
    }
}

#[test]
fn icmp_of_the_other_family_and_igmp_are_refused() {
    assert_eq!(err_6to4(&header6().raw(1, &[0; 16])), DropReason::UnsupportedProtocol);
    assert_eq!(err_6to4(&header6().raw(2, &[0; 16])), DropReason::IcmpSingleHop);
    assert_eq!(err_4to6(&header4().raw(58, &[0; 16])), DropReason::UnsupportedProtocol);
    assert_eq!(err_4to6(&header4().raw(2, &[0; 16])), DropReason::IcmpSingleHop);
}

#[test]
fn messages_for_one_link_are_not_answered_with_time_exceeded() {
    // MLD has hop limit 1. It must not be treated as a packet with an expired hop limit.
    let mld = [143, 0, 0, 0, 0, 0, 0, 0];
    let v6 = V6 { hop_limit: 1, ..header6() }.raw(58, &mld);
    assert_eq!(err_6to4(&v6), DropReason::IcmpSingleHop);
    let igmp = V4 { ttl: 1, options: vec![148, 4, 0, 0], ..header4() }.raw(2, &[0x22; 8]);
    assert_eq!(err_4to6(&igmp), DropReason::IcmpSingleHop);
}

// proves: A52-1
#[test]
fn prefixes_of_other_lengths_or_with_bits_where_none_belong_are_refused() {
    for len in 0..=255u8 {
        let ok = matches!(len, 32 | 40 | 48 | 56 | 64 | 96);
        let result = Prefix64::new("2001:db8::".parse().unwrap(), len);
        assert_eq!(result.map(|p| p.len()), if ok { Ok(len) } else { Err(Prefix64Error::Length(len)) });
    }
    let host = Prefix64::new("2001:db8::1".parse().unwrap(), 96);
    assert_eq!(host, Err(Prefix64Error::HostBits));
    let u_octet = Prefix64::new("2001:db8:0:0:100::".parse().unwrap(), 96);
    assert_eq!(u_octet, Err(Prefix64Error::UOctet));
}

// proves: A79-71
#[test]
fn a_path_below_1280_never_makes_an_atomic_fragment() {
    // The IPv4 host obeys the translated Packet Too Big: its smaller packets still become packets without a
    // Fragment header.
    for len in [28, 500, 556, 1000] {
        for df in [false, true] {
            let out = ok_4to6(&V4 { df, ..header4() }.packet(&udp(&payload(len - 28))));
            assert_eq!((out.len(), out[6]), (len + 20, 17));
        }
    }
}
