//! Packets with offloads: partial checksums, TCP and UDP super-packets.

use crate::common::*;
use etherparse::TcpHeader;
use gatun_wire::checksum::pseudo;
use gatun_wire::segment;
use gatun_wire::{Checksum, DropReason, Offload, Packet, Ports, Segmentation, Settings, Whole};

const SYN_PORTS: Ports = Ports::Set { src: 1025, dst: 8080 };

fn l4_at(bytes: &[u8]) -> usize {
    if bytes[0] >> 4 == 4 { 20 } else { 40 }
}

/// Packet as a stack passes it to a device: the checksum field holds the pseudo-header's sum.
fn partial(bytes: &[u8], segmentation: Segmentation) -> (Vec<u8>, Offload) {
    let mut bytes = bytes.to_vec();
    let at = l4_at(&bytes);
    let addresses = if at == 20 { &bytes[12..20] } else { &bytes[8..40] };
    let proto = if at == 20 { bytes[9] } else { bytes[6] };
    let offset = if proto == 6 { 16 } else { 6 };
    let sum = pseudo(addresses, (bytes.len() - at) as u32, proto);
    bytes[at + offset..at + offset + 2].copy_from_slice(&sum.to_be_bytes());
    let checksum = Checksum::Partial { start: at as u16, offset: offset as u16 };
    (bytes, Offload { checksum, segmentation })
}

fn segments(bytes: &[u8], offload: Offload) -> Vec<Vec<u8>> {
    let mut buf = bytes.to_vec();
    let packet = Packet::with_offload(&mut buf, 0, bytes.len(), offload).unwrap();
    let one = |n| {
        let mut out = vec![MARK; 65_600];
        let len = segment::write(&packet, n, &mut out).unwrap();
        out.truncate(len);
        out
    };
    let all = (0..segment::count(&packet)).map(one).collect();
    let mut out = vec![MARK; 65_600];
    assert_eq!(segment::write(&packet, segment::count(&packet), &mut out), Err(DropReason::Unfragmentable));
    all
}

const TCP_OPTIONS: [u8; 12] = [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8];

fn tcp_with(flags: u8, payload: &[u8]) -> Message {
    let options = TCP_OPTIONS.to_vec();
    Message::Tcp { src: 40_001, dst: 443, flags, options, payload: payload.to_vec() }
}

/// Segments that a device makes of a TCP super-packet, with headers read and written by etherparse.
fn tcp_segments(size: usize, flags: u8, data: &[u8], v6: bool) -> Vec<Vec<u8>> {
    let parts: Vec<_> = data.chunks(size).collect();
    let one = |(n, part): (usize, &&[u8])| {
        let is_last = n + 1 == parts.len();
        let flags = flags & if is_last { 0xff } else { !0x09 } & if n == 0 { 0xff } else { !0x80 };
        let m = tcp_with(flags, part);
        let l4 = if v6 { m.to_bytes6(CLIENT6, SERVER6) } else { m.to_bytes4(CLIENT4, SERVER4) };
        let (mut h, _) = TcpHeader::from_slice(&l4).unwrap();
        h.sequence_number = h.sequence_number.wrapping_add((n * size) as u32);
        if v6 {
            h.checksum = h.calc_checksum_ipv6_raw(CLIENT6.octets(), SERVER6.octets(), part).unwrap();
            header6().raw(6, &[&h.to_bytes()[..], part].concat())
        } else {
            h.checksum = h.calc_checksum_ipv4_raw(CLIENT4.octets(), SERVER4.octets(), part).unwrap();
            let id = header4().id.wrapping_add(n as u16);
            V4 { id, ..outbound4() }.raw(6, &[&h.to_bytes()[..], part].concat())
        }
    };
    parts.iter().enumerate().map(one).collect()
}

#[test]
fn a_tcp_super_packet_is_cut_as_a_device_would_cut_it() {
    let data = payload(7_001);
    for flags in [0x10, 0x18, 0x11, 0x90, 0xd9] {
        for size in [1, 536, 1000, 7_000, 7_001, 9_000] {
            let tcp = Segmentation::Tcp { size: size as u16, ecn: false };
            let (v4, offload4) = partial(&outbound4().packet(&tcp_with(flags, &data)), tcp);
            assert_eq!(segments(&v4, offload4), tcp_segments(size, flags, &data, false));
            let (v6, offload6) = partial(&header6().packet(&tcp_with(flags, &data)), tcp);
            assert_eq!(segments(&v6, offload6), tcp_segments(size, flags, &data, true));
        }
    }
}

#[test]
fn a_udp_super_packet_is_cut_into_its_datagrams() {
    let data = payload(5_001);
    let udp_size = Segmentation::Udp { size: 1000 };
    let (v4, offload4) = partial(&header4().packet(&udp(&data)), udp_size);
    let (v6, offload6) = partial(&header6().packet(&udp(&data)), udp_size);
    let (out4, out6) = (segments(&v4, offload4), segments(&v6, offload6));
    assert_eq!((out4.len(), out6.len()), (6, 6));
    for (n, part) in data.chunks(1000).enumerate() {
        let id = header4().id.wrapping_add(n as u16);
        assert_eq!(out4[n], V4 { id, ..header4() }.packet(&udp(part)));
        assert_eq!(out6[n], header6().packet(&udp(part)));
    }
}

#[test]
fn a_packet_that_is_no_super_packet_is_copied_with_its_checksum_complete() {
    let good = header4().packet(&udp(&payload(77)));
    let (bytes, offload) = partial(&good, Segmentation::None);
    assert_eq!(segments(&bytes, offload), std::slice::from_ref(&good));
    assert_eq!(segments(&good, Offload::default()), std::slice::from_ref(&good));
    let mut buf = good.clone();
    let packet = Packet::new(&mut buf, 0, good.len()).unwrap();
    assert_eq!(segment::write(&packet, 0, &mut [0; 10]), Err(DropReason::NoHeadroom));
}

// proves: A79-20
#[test]
fn a_partial_checksum_translated_and_then_completed_is_the_complete_one_translated() {
    for m in [udp(&payload(99)), tcp(&payload(98)), udp(&[]), tcp(&[])] {
        for ports in [Ports::Keep, SYN_PORTS] {
            let (v6, offload) = partial(&header6().packet(&m), Segmentation::None);
            let (result, out, left) = six_to_four(&v6, ports, &Settings::default(), offload);
            let offset = if m.proto4() == 6 { 16 } else { 6 };
            assert_eq!(result, Ok(Whole::Yes));
            assert_eq!(left.checksum, Checksum::Partial { start: 20, offset });
            let expected = V4 { id: ID, ttl: 63, ..outbound4() }.packet(&with_ports(&m, ports));
            assert_eq!(segments(&out, left), [expected]);

            let (v4, offload) = partial(&header4().packet(&m), Segmentation::None);
            let (result, out, left) = four_to_six(&v4, ports, &Settings::default(), offload);
            assert_eq!(result, Ok(Whole::Yes));
            assert_eq!(left.checksum, Checksum::Partial { start: 40, offset });
            let expected = V6 { hop_limit: 63, ..inbound6() }.packet(&with_ports(&m, ports));
            assert_eq!(segments(&out, left), [expected]);
        }
    }
}

// proves: A79-11
#[test]
fn a_partial_checksum_is_completed_before_the_packet_is_cut() {
    let (v4, offload) = partial(&header4().packet(&udp(&payload(1400))), Segmentation::None);
    let (result, out, left) = four_to_six(&v4, SYN_PORTS, &Settings::default(), offload);
    assert_eq!((result, left), (Ok(Whole::Split(1280)), Offload::default()));
    let v6 = V6 { hop_limit: 63, fragment: Some((0, false, 0xbeef)), ..inbound6() };
    assert_eq!(out, v6.packet(&with_ports(&udp(&payload(1400)), SYN_PORTS)));

    let settings = Settings { mtu4: 1000, ..Settings::default() };
    let (v6, offload) = partial(&header6().packet(&udp(&payload(1200))), Segmentation::None);
    let (result, out, left) = six_to_four(&v6, SYN_PORTS, &settings, offload);
    assert_eq!((result, left), (Ok(Whole::Split(1000)), Offload::default()));
    let m = with_ports(&udp(&payload(1200)), SYN_PORTS);
    assert_eq!(out, V4 { id: ID, ttl: 63, ..outbound4() }.packet(&m));
}

#[test]
fn a_partial_checksum_of_an_echo_message_is_completed() {
    let m = echo(true, &payload(55));
    let mut v6 = header6().packet(&m);
    let sum = pseudo(&v6[8..40], 63, 58);
    v6[42..44].copy_from_slice(&sum.to_be_bytes());
    let checksum = Checksum::Partial { start: 40, offset: 2 };
    let offload = Offload { checksum, ..Offload::default() };
    let (result, out, left) = six_to_four(&v6, Ports::EchoId(9), &Settings::default(), offload);
    assert_eq!((result, left), (Ok(Whole::Yes), Offload::default()));
    assert_eq!(out, V4 { id: ID, ttl: 63, ..outbound4() }.packet(&with_ports(&m, Ports::EchoId(9))));

    let mut v4 = header4().packet(&m);
    v4[22..24].fill(0);
    let checksum = Checksum::Partial { start: 20, offset: 2 };
    let offload = Offload { checksum, ..Offload::default() };
    let (result, out, left) = four_to_six(&v4, Ports::Keep, &Settings::default(), offload);
    assert_eq!((result, left), (Ok(Whole::Yes), Offload::default()));
    assert_eq!(out, V6 { hop_limit: 63, ..inbound6() }.packet(&m));
}

#[test]
fn the_partial_checksum_of_a_packet_in_a_tunnel_moves_with_it() {
    // UDP with its own checksum complete. The device is to sum the bytes from 36 on.
    for (m, start) in [(udp(&payload(200)), 36), (udp(&payload(200)), 8)] {
        let offload = |at: u16| Offload {
            checksum: Checksum::Partial { start: at + start, offset: 16 },
            ..Offload::default()
        };
        let v6 = header6().packet(&m);
        let (result, out, left) = six_to_four(&v6, SYN_PORTS, &Settings::default(), offload(40));
        assert_eq!((result, left), (Ok(Whole::Yes), offload(20)));
        assert_eq!(out, V4 { id: ID, ttl: 63, ..outbound4() }.packet(&with_ports(&m, SYN_PORTS)));
        let v4 = header4().packet(&m);
        let (result, out, left) = four_to_six(&v4, SYN_PORTS, &Settings::default(), offload(20));
        assert_eq!((result, left), (Ok(Whole::Yes), offload(40)));
        assert_eq!(out, V6 { hop_limit: 63, ..inbound6() }.packet(&with_ports(&m, SYN_PORTS)));
    }
}

/// Segmentation and translation commute: each segment of the translated super-packet is the translation of a
/// segment of the original one.
#[test]
fn a_super_packet_is_translated_as_each_of_its_segments_would_be() {
    let data = payload(48_000);
    for (size, df) in [(500, false), (1200, true), (1400, true)] {
        let settings = Settings::default();
        let kinds = [
            (tcp_with(0xd9, &data[..size * 30]), Segmentation::Tcp { size: size as u16, ecn: true }),
            (udp(&data[..size * 30]), Segmentation::Udp { size: size as u16 }),
        ];
        for (m, segmentation) in kinds {
            let (v6, offload) = partial(&header6().packet(&m), segmentation);
            let (result, out, left) = six_to_four(&v6, SYN_PORTS, &settings, offload);
            assert_eq!((result, left.segmentation), (Ok(Whole::Yes), segmentation));
            let singly = segments(&v6, offload).into_iter().enumerate().map(|(n, s)| {
                let (result, mut out, _) = six_to_four(&s, SYN_PORTS, &settings, Offload::default());
                assert_eq!(result, Ok(Whole::Yes));
                set_id4(&mut out, ID + n as u16);
                out
            });
            assert_eq!(segments(&out, left), singly.collect::<Vec<_>>());

            let (v4, offload) = partial(&V4 { df, ..header4() }.packet(&m), segmentation);
            let (result, out, left) = four_to_six(&v4, SYN_PORTS, &settings, offload);
            assert_eq!((result, left.segmentation), (Ok(Whole::Yes), segmentation));
            let singly = segments(&v4, offload).into_iter().map(|s| {
                let (result, out, _) = four_to_six(&s, SYN_PORTS, &settings, Offload::default());
                assert_eq!(result, Ok(Whole::Yes));
                out
            });
            assert_eq!(segments(&out, left), singly.collect::<Vec<_>>());
        }
    }
}

fn set_id4(bytes: &mut [u8], id: u16) {
    let (mut h, _) = etherparse::Ipv4Header::from_slice(bytes).unwrap();
    h.identification = id;
    h.header_checksum = h.calc_header_checksum();
    bytes[..20].copy_from_slice(&h.to_bytes());
}

// proves: A79-10, A79-62
#[test]
fn mtus_are_compared_with_one_segment_on_the_wire() {
    let settings = Settings::default();
    let tcp = |size| Segmentation::Tcp { size, ecn: false };
    let m = tcp_with(0x10, &payload(40_000)); // 32 bytes of header
    for (size, fits) in [(1500 - 40 - 32, true), (1500 - 40 - 31, false)] {
        let (v4, offload) = partial(&V4 { df: true, ..header4() }.packet(&m), tcp(size));
        let (result, _, _) = four_to_six(&v4, Ports::Keep, &settings, offload);
        assert_eq!(result, if fits { Ok(Whole::Yes) } else { Err(DropReason::TooBig4) });
    }
    for (size, fits) in [(1500 - 20 - 32, true), (1500 - 20 - 31, false)] {
        let (v6, offload) = partial(&header6().packet(&m), tcp(size));
        let (result, _, _) = six_to_four(&v6, Ports::Keep, &settings, offload);
        assert_eq!(result, if fits { Ok(Whole::Yes) } else { Err(DropReason::TooBig6) });
    }
    let m = udp(&payload(40_000));
    for (size, fits) in [(1500 - 48, true), (1500 - 47, false)] {
        let (v4, offload) = partial(&V4 { df: true, ..header4() }.packet(&m), Segmentation::Udp { size });
        let (result, _, _) = four_to_six(&v4, Ports::Keep, &settings, offload);
        assert_eq!(result, if fits { Ok(Whole::Yes) } else { Err(DropReason::TooBig4) });
    }
}

// proves: A79-52
#[test]
fn a_super_packet_has_the_df_of_its_full_segments() {
    let m = tcp_with(0x10, &payload(40_000));
    for (size, df) in [(1260 - 52, 0), (1260 - 51, 0x40)] {
        let tcp = Segmentation::Tcp { size, ecn: false };
        let (v6, offload) = partial(&header6().packet(&m), tcp);
        let (result, out, _) = six_to_four(&v6, Ports::Keep, &Settings::default(), offload);
        assert_eq!((result, out[6]), (Ok(Whole::Yes), df));
    }
}

// proves: A79-11, A79-62
#[test]
fn a_tcp_super_packet_without_df_gets_segments_that_fit() {
    let data = payload(40_000);
    let m = tcp_with(0x18, &data);
    let tcp = Segmentation::Tcp { size: 1448, ecn: false };
    let (v4, offload) = partial(&header4().packet(&m), tcp);
    let (result, out, left) = four_to_six(&v4, Ports::Keep, &Settings::default(), offload);
    assert_eq!(result, Ok(Whole::Yes));
    assert_eq!(left.segmentation, Segmentation::Tcp { size: 1280 - 40 - 32, ecn: false });
    let all = segments(&out, left);
    assert!(all.iter().all(|s| s.len() <= 1280));
    assert_eq!(all.iter().flat_map(|s| s[72..].to_vec()).collect::<Vec<_>>(), data);

    let settings = Settings { mtu4: 576, ..Settings::default() };
    let tcp = Segmentation::Tcp { size: 1200, ecn: false };
    let (v6, offload) = partial(&header6().packet(&m), tcp);
    let (result, out, left) = six_to_four(&v6, Ports::Keep, &settings, offload);
    assert_eq!(result, Ok(Whole::Yes));
    assert_eq!(left.segmentation, Segmentation::Tcp { size: 576 - 20 - 32, ecn: false });
    assert!(segments(&out, left).iter().all(|s| s.len() <= 576));
}

#[test]
fn a_udp_super_packet_that_does_not_fit_is_refused_and_its_datagrams_are_not() {
    let (v4, offload) = partial(&header4().packet(&udp(&payload(7_000))), Segmentation::Udp { size: 1400 });
    let settings = Settings::default();
    assert_eq!(four_to_six(&v4, Ports::Keep, &settings, offload).0, Err(DropReason::Unfragmentable));
    for datagram in segments(&v4, offload) {
        let (result, _, _) = four_to_six(&datagram, Ports::Keep, &settings, Offload::default());
        assert_eq!(result, Ok(Whole::Split(1280)));
    }
}

// proves: A79-51
#[test]
fn packets_longer_than_ipv4_allows_are_refused() {
    let all = header6().raw(17, &udp(&payload(65_527 - 20)).to_bytes6(CLIENT6, SERVER6));
    let big = header6().raw(17, &udp(&payload(65_527)).to_bytes6(CLIENT6, SERVER6));
    let settings = Settings { mtu4: 70_000, ..Settings::default() };
    assert_eq!(six_to_four(&all, Ports::Keep, &settings, Offload::default()).1.len(), 65_535);
    let (result, _, _) = six_to_four(&big, Ports::Keep, &settings, Offload::default());
    assert_eq!(result, Err(DropReason::TooBig6));
    let (big, offload) = partial(&big, Segmentation::Udp { size: 1000 });
    let (result, _, _) = six_to_four(&big, Ports::Keep, &settings, offload);
    assert_eq!(result, Err(DropReason::Unfragmentable));
}

#[test]
fn segmentation_that_contradicts_the_packet_is_refused() {
    let tcp_size = Segmentation::Tcp { size: 100, ecn: false };
    let udp_size = Segmentation::Udp { size: 100 };
    let cut = V6 { fragment: Some((0, true, 1)), ..header6() };
    let cases = [
        (header6().packet(&udp(&payload(1000))), tcp_size),
        (header6().packet(&tcp(&payload(1000))), udp_size),
        (header6().packet(&echo(true, &payload(1000))), udp_size),
        (cut.packet(&tcp(&payload(1004))), tcp_size),
    ];
    for (bytes, segmentation) in cases {
        let offload = Offload { segmentation, ..Offload::default() };
        let (result, _, _) = six_to_four(&bytes, Ports::Keep, &Settings::default(), offload);
        assert_eq!(result, Err(DropReason::Unfragmentable));
        let mut buf = bytes.clone();
        let packet = Packet::with_offload(&mut buf, 0, bytes.len(), offload).unwrap();
        assert_eq!(segment::count(&packet), 1);
        assert_eq!(segment::write(&packet, 0, &mut [0; 2000]), Err(DropReason::Unfragmentable));
    }
}

#[test]
fn a_partial_checksum_that_begins_in_the_ip_header_is_refused() {
    let checksum = Checksum::Partial { start: 19, offset: 6 };
    let offload = Offload { checksum, ..Offload::default() };
    let settings = Settings { mtu4: 1000, ..Settings::default() };
    for len in [10, 1200] {
        let v6 = header6().packet(&udp(&payload(len)));
        assert_eq!(six_to_four(&v6, Ports::Keep, &settings, offload).0, Err(DropReason::BadLength));
        let v4 = header4().packet(&udp(&payload(len)));
        assert_eq!(four_to_six(&v4, Ports::Keep, &settings, offload).0, Err(DropReason::BadLength));
    }
}
