//! RFC 7915 5.1: IPv6 to IPv4, compared byte by byte.

use crate::common::*;
use gatun_wire::{DropReason, Ipv6View, Offload, Ports, Settings, Whole};

/// Expected IPv4 packet.
fn expected() -> V4 {
    V4 { id: ID, ttl: 63, ..outbound4() }
}

// proves: A79-50, A79-51, A79-52, A79-59, A79-60, A79-61, A79-63
#[test]
fn every_byte_of_tcp_udp_and_echo_is_as_an_ipv4_host_would_have_sent_it() {
    for len in [0, 1, 2, 3, 511, 512, 1231, 1232] {
        for m in
            [udp(&payload(len)), tcp(&payload(len)), echo(true, &payload(len)), echo(false, &payload(len))]
        {
            let out = ok_6to4(&header6().packet(&m));
            let df = out.len() > 1260;
            assert_eq!(out, V4 { df, ..expected() }.packet(&m), "{m:?}");
        }
    }
}

// proves: A79-20
#[test]
fn ports_and_identifiers_are_rewritten_with_their_checksums() {
    let ports = Ports::Set { src: 1024, dst: 65_535 };
    for (m, ports) in [
        (udp(&payload(33)), ports),
        (tcp(&payload(33)), ports),
        (echo(true, &payload(33)), Ports::EchoId(0xfffe)),
    ] {
        let (result, out, _) =
            six_to_four(&header6().packet(&m), ports, &Settings::default(), Offload::default());
        assert_eq!(result, Ok(Whole::Yes));
        assert_eq!(out, expected().packet(&with_ports(&m, ports)), "{m:?}");
    }
}

// proves: A79-50
#[test]
fn the_traffic_class_can_be_overridden() {
    let settings = Settings { tos_6to4: Some(0x10), ..Settings::default() };
    let (_, out, _) = six_to_four(&header6().packet(&udp(b"x")), Ports::Keep, &settings, Offload::default());
    assert_eq!(out, V4 { tos: 0x10, ..expected() }.packet(&udp(b"x")));
}

// proves: A79-52
#[test]
fn df_is_clear_up_to_1260_bytes_and_set_above() {
    for (len, df) in [(1260, false), (1261, true)] {
        let m = udp(&payload(len - 28));
        assert_eq!(ok_6to4(&header6().packet(&m)), V4 { df, ..expected() }.packet(&m));
    }
}

// proves: A79-54
#[test]
fn a_fragment_keeps_its_place_and_the_low_half_of_its_identification() {
    let whole = udp(&payload(3000)).to_bytes6(CLIENT6, SERVER6);
    let as4 = udp(&payload(3000)).to_bytes4(CLIENT4, SERVER4);
    for (from, to, more) in [(0, 1024, true), (1024, 2048, true), (2048, 3008, false)] {
        let v6 = V6 { fragment: Some((from as u16, more, 0x1234_5678)), ..header6() };
        let v4 = V4 { id: 0x5678, mf: more, offset: from as u16, ..expected() };
        assert_eq!(ok_6to4(&v6.raw(17, &whole[from..to])), v4.raw(17, &as4[from..to]));
    }
}

// proves: A79-55
#[test]
fn an_atomic_fragment_becomes_a_plain_packet() {
    for m in [udp(&payload(9)), tcp(&payload(1400)), echo(true, &payload(9))] {
        let v6 = V6 { fragment: Some((0, false, 0xabcd_ef01)), ..header6() };
        assert_eq!(ok_6to4(&v6.packet(&m)), V4 { id: 0xef01, ..expected() }.packet(&m));
    }
}

// proves: A79-51, A79-56
#[test]
fn extension_headers_are_stepped_over_in_any_order() {
    let options = |len: usize| [vec![0, (len / 8 - 1) as u8, 1, (len - 4) as u8], vec![0; len - 4]].concat();
    let routing = [vec![0, 2, 0, 0], vec![0; 20]].concat();
    let chains: [Vec<(u8, Vec<u8>)>; 4] = [
        vec![(0, options(8))],
        vec![(60, options(16)), (0, options(8))],
        vec![(0, options(8)), (60, options(24)), (43, routing.clone()), (60, options(8))],
        vec![(43, routing.clone()), (43, routing)],
    ];
    for extensions in chains {
        for fragment in [None, Some((0, false, 0x6a6b))] {
            for m in [udp(&payload(99)), tcp(&payload(99)), echo(true, &payload(99))] {
                let v6 = V6 { extensions: extensions.clone(), fragment, ..header6() };
                assert_eq!(ok_6to4(&v6.packet(&m)), expected().packet(&m));
            }
        }
    }
}

// proves: A79-57
#[test]
fn a_routing_header_with_segments_left_is_refused_and_its_place_known() {
    let routing = [vec![0, 2, 0, 1], vec![0; 20]].concat();
    let options = vec![0, 0, 1, 4, 0, 0, 0, 0];
    let v6 = V6 { extensions: vec![(0, options), (43, routing)], ..header6() };
    let bytes = v6.packet(&udp(b"x"));
    assert_eq!(err_6to4(&bytes), DropReason::RoutingSegmentsLeft);
    assert_eq!(Ipv6View::segments_left_at(&bytes), Some(40 + 8 + 3));
    assert_eq!(Ipv6View::segments_left_at(&header6().packet(&udp(b"x"))), None);
}

// proves: A79-58
#[test]
fn an_extension_header_after_the_fragment_header_is_refused_but_esp_passes() {
    for next in [0u8, 43, 44, 51, 60, 135] {
        for offset in [0, 64] {
            let v6 = V6 { fragment: Some((offset, true, 7)), ..header6() };
            assert_eq!(err_6to4(&v6.raw(next, &[0; 64])), DropReason::ExtensionAfterFragment);
        }
    }
    let v6 = V6 { fragment: Some((0, true, 7)), ..header6() };
    assert_eq!(ok_6to4(&v6.raw(50, &[9; 64])), V4 { id: 7, mf: true, ..expected() }.raw(50, &[9; 64]));
}

// proves: A79-59
#[test]
fn a_hop_limit_that_ends_here_is_refused() {
    for hop_limit in [0, 1] {
        assert_eq!(err_6to4(&V6 { hop_limit, ..header6() }.packet(&udp(b"x"))), DropReason::TtlExceeded);
    }
    let out = ok_6to4(&V6 { hop_limit: 2, ..header6() }.packet(&udp(b"x")));
    assert_eq!(out, V4 { ttl: 1, ..expected() }.packet(&udp(b"x")));
}

// proves: A79-60
#[test]
fn other_protocols_and_no_next_header_pass_byte_for_byte() {
    for proto in [59u8, 132, 47, 50, 33, 136, 4, 41, 253] {
        let bytes = payload(61);
        assert_eq!(ok_6to4(&header6().raw(proto, &bytes)), expected().raw(proto, &bytes));
    }
    assert_eq!(err_6to4(&header6().raw(51, &[0; 24])), DropReason::AuthenticationHeader);
}
