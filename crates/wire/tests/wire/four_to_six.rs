//! RFC 7915 4.1: IPv4 to IPv6, compared byte by byte.

use crate::common::*;
use gatun_wire::{DropReason, Offload, Ports, Settings, Whole};

/// Expected IPv6 packet.
fn expected() -> V6 {
    V6 { hop_limit: 63, ..inbound6() }
}

// proves: A79-1, A79-2, A79-3, A79-4, A79-5, A79-12
#[test]
fn every_byte_of_tcp_udp_and_echo_is_as_an_ipv6_host_would_have_sent_it() {
    for len in [0, 1, 2, 3, 511, 512, 1211, 1212] {
        for m in
            [udp(&payload(len)), tcp(&payload(len)), echo(true, &payload(len)), echo(false, &payload(len))]
        {
            for df in [false, true] {
                assert_eq!(ok_4to6(&V4 { df, ..header4() }.packet(&m)), expected().packet(&m), "{m:?}");
            }
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
        (echo(false, &payload(33)), Ports::EchoId(0xfffe)),
    ] {
        let (result, out, _) =
            four_to_six(&header4().packet(&m), ports, &Settings::default(), Offload::default());
        assert_eq!(result, Ok(Whole::Yes));
        assert_eq!(out, expected().packet(&with_ports(&m, ports)), "{m:?}");
    }
}

// proves: A79-3
#[test]
fn padding_after_the_packet_is_not_copied() {
    let m = udp(b"short");
    let padded = [header4().packet(&m), vec![MARK; 20]].concat();
    assert_eq!(ok_4to6(&padded), expected().packet(&m));
}

// proves: A79-6
#[test]
fn options_are_left_out() {
    for len in [4, 12, 40] {
        let v4 = V4 { options: vec![1; len], ..header4() };
        for m in [udp(&payload(99)), tcp(&payload(99)), echo(true, &payload(99))] {
            assert_eq!(ok_4to6(&v4.packet(&m)), expected().packet(&m));
        }
    }
}

// proves: A79-7
#[test]
fn a_source_route_with_hops_left_is_refused_and_an_expired_one_translated() {
    for kind in [131u8, 137] {
        for (pointer, fresh) in [(4, true), (7, true), (8, false), (12, false)] {
            let options = vec![1, kind, 7, pointer, 10, 0, 0, 1];
            let bytes = V4 { options, ..header4() }.packet(&udp(b"x"));
            if fresh {
                assert_eq!(err_4to6(&bytes), DropReason::SourceRoute);
            } else {
                assert_eq!(ok_4to6(&bytes), expected().packet(&udp(b"x")));
            }
        }
    }
}

// proves: A79-9
#[test]
fn a_wrong_header_checksum_is_refused() {
    for options in [vec![], vec![1; 8]] {
        let good = V4 { options, ..header4() }.packet(&udp(b"x"));
        for bit in 0..16 {
            let mut bad = good.clone();
            bad[10 + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(err_4to6(&bad), DropReason::BadL3Checksum);
        }
    }
}

// proves: A79-5
#[test]
fn a_ttl_that_ends_here_is_refused() {
    for ttl in [0, 1] {
        assert_eq!(err_4to6(&V4 { ttl, ..header4() }.packet(&udp(b"x"))), DropReason::TtlExceeded);
    }
    assert_eq!(
        ok_4to6(&V4 { ttl: 2, ..header4() }.packet(&udp(b"x"))),
        V6 { hop_limit: 1, ..expected() }.packet(&udp(b"x"))
    );
}

// proves: A79-12, A79-13
#[test]
fn a_fragment_gets_a_fragment_header_with_its_own_offset_and_m() {
    let as4 = udp(&payload(2500)).to_bytes4(SERVER4, CLIENT4);
    let as6 = udp(&payload(2500)).to_bytes6(SERVER6, CLIENT6);
    for df in [false, true] {
        for (from, to, more) in [(0, 1024, true), (1024, 2048, true), (2048, 2508, false)] {
            let v4 = V4 { df, mf: more, offset: from as u16, ..header4() };
            let v6 = V6 { fragment: Some((from as u16, more, 0xbeef)), ..expected() };
            assert_eq!(ok_4to6(&v4.raw(17, &as4[from..to])), v6.raw(17, &as6[from..to]));
        }
    }
}

// proves: A79-4
#[test]
fn protocols_that_are_extension_headers_in_ipv6_are_refused() {
    for proto in [58u8, 0, 43, 44, 60] {
        assert_eq!(err_4to6(&header4().raw(proto, &[0; 24])), DropReason::UnsupportedProtocol);
    }
    assert_eq!(err_4to6(&header4().raw(51, &[0; 24])), DropReason::AuthenticationHeader);
}

// proves: A79-22
#[test]
fn other_protocols_pass_byte_for_byte() {
    for proto in [59u8, 132, 47, 50, 33, 136, 4, 41, 253] {
        let bytes = payload(61);
        assert_eq!(ok_4to6(&header4().raw(proto, &bytes)), expected().raw(proto, &bytes));
    }
}
