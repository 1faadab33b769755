//! Properties of all packets.

use crate::common::*;
use gatun_wire::checksum::{Delta, sum};
use gatun_wire::icmp_error::{self, echo_reply4, echo_reply6};
use gatun_wire::rfc7915::{To4, To6, fragment};
use gatun_wire::{
    Checksum, Ipv4View, Ipv6View, L4, Offload, Packet, Ports, Prefix64, Segmentation, Settings, Whole,
    segment,
};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn ports_of(m: &Message) -> Ports {
    match m {
        Message::Tcp { src, dst, .. } | Message::Udp { src, dst, .. } => Ports::Set { src: *src, dst: *dst },
        Message::Echo { id, .. } => Ports::EchoId(*id),
        Message::Icmp { .. } | Message::Raw { .. } => Ports::Keep,
    }
}

/// Error of the checksum. Zero and all ones are the same number.
fn error_of(bytes: &[u8]) -> u16 {
    let (at, addresses, proto) = match bytes[0] >> 4 {
        4 => (20, &bytes[12..20], bytes[9]),
        _ => (40, &bytes[8..40], bytes[6]),
    };
    let pseudo = match proto {
        1 => 0,
        _ => gatun_wire::checksum::pseudo(addresses, (bytes.len() - at) as u32, proto),
    };
    gatun_wire::checksum::add(pseudo, sum(&bytes[at..])) % 0xffff
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // proves: A79-20, A79-1, A79-50
    #[test]
    fn to_ipv4_and_back_is_the_same_packet_two_hops_on(
        m in message(vec![]), traffic_class: u8, hop_limit in 3u8.., src: u16, dst: u16,
    ) {
        let v6 = V6 { traffic_class, hop_limit, ..header6() };
        let ports = match m {
            Message::Echo { .. } => Ports::EchoId(src),
            _ => Ports::Set { src, dst },
        };
        let (there, four, _) = six_to_four(&v6.packet(&m), ports, &Settings::default(), Offload::default());
        prop_assert_eq!(there, Ok(Whole::Yes));
        let (back, six, _) = four_to_six(&four, ports_of(&m), &Settings::default(), Offload::default());
        prop_assert_eq!(back, Ok(Whole::Yes));
        prop_assert_eq!(six, V6 { hop_limit: hop_limit - 2, ..v6 }.packet(&m));
    }

    // proves: A79-20
    #[test]
    fn any_addresses_and_ports_give_the_sum_that_a_host_would_compute(
        m in message(vec![]), src4: u32, dst4: u32, src6: u128, dst6: u128, src: u16, dst: u16,
    ) {
        let (src4, dst4) = (Ipv4Addr::from(src4), Ipv4Addr::from(dst4));
        let (src6, dst6) = (Ipv6Addr::from(src6), Ipv6Addr::from(dst6));
        let ports = match m {
            Message::Echo { .. } => Ports::EchoId(src),
            _ => Ports::Set { src, dst },
        };
        let v6 = V6 { src: src6, dst: dst6, ..header6() };
        let (result, out, _) = in_buffer(&v6.packet(&m), Offload::default(), |p| {
            let view = Ipv6View::parse(p.bytes())?;
            let to = To4::new((src6, dst6), (src4, dst4), ports);
            let l4 = view.l4(p.bytes())?;
            gatun_wire::rfc7915::six_to_four::translate(p, &view, l4, &to, ID, &Settings::default())
        });
        prop_assert_eq!(result, Ok(Whole::Yes));
        let v4 = V4 { src: src4, dst: dst4, ttl: 63, id: ID, df: out.len() > 1260, ..header4() };
        prop_assert_eq!(out, v4.packet(&with_ports(&m, ports)));

        let v4 = V4 { df: true, ..v4 };
        let (result, out, _) = in_buffer(&v4.packet(&m), Offload::default(), |p| {
            let view = Ipv4View::parse(p.bytes())?;
            let to = To6::new((src4, dst4), (src6, dst6), ports);
            let l4 = view.l4(p.bytes())?;
            gatun_wire::rfc7915::four_to_six::translate(p, &view, l4, &to, &Settings::default())
        });
        prop_assert_eq!(result, Ok(Whole::Yes));
        prop_assert_eq!(out, V6 { hop_limit: 62, ..v6 }.packet(&with_ports(&m, ports)));
    }

    // proves: A79-20
    #[test]
    fn a_delta_is_the_full_sum(mut data in bytes(200), new in bytes(40), at in 0usize..100) {
        data.insert(0, 1); // only all-zero bytes have a sum of zero, and no packet is all zeros
        let at = (at * 2).min(data.len() / 2 * 2);
        let end = (at + new.len() / 2 * 2).min(data.len() / 2 * 2);
        let new = &new[..end - at];
        let before = !sum(&data);
        let delta = Delta::of(sum(&data[at..end]), sum(new));
        let mut changed = data.clone();
        changed[at..end].copy_from_slice(new);
        let full = !sum(&changed);
        if sum(&changed) != 0 {
            prop_assert_eq!(delta.apply(before), full);
        }
        prop_assert_eq!(delta.inverse().apply(delta.apply(before)) % 0xffff, before % 0xffff);
    }

    // proves: A79-21
    #[test]
    fn a_wrong_checksum_stays_equally_wrong(m in message(vec![]), error in 1u16.., src: u16, dst: u16) {
        prop_assume!(!matches!(m, Message::Raw { .. }));
        let ports = match m {
            Message::Echo { .. } => Ports::EchoId(src),
            _ => Ports::Set { src, dst },
        };
        let offset = match m {
            Message::Tcp { .. } => 16,
            Message::Udp { .. } => 6,
            _ => 2,
        };
        let spoil = |mut bytes: Vec<u8>, at: usize| {
            bytes[at] ^= (error >> 8) as u8;
            bytes[at + 1] ^= error as u8;
            bytes
        };
        let six = spoil(header6().packet(&m), 40 + offset);
        prop_assume!(six[40 + offset..][..2] != [0, 0]);
        let (_, four, _) = six_to_four(&six, ports, &Settings::default(), Offload::default());
        prop_assert_eq!(error_of(&four), error_of(&six));

        let four = spoil(V4 { df: true, ..header4() }.packet(&m), 20 + offset);
        prop_assume!(four[20 + offset..][..2] != [0, 0]);
        let (_, six, _) = four_to_six(&four, ports, &Settings::default(), Offload::default());
        prop_assert_eq!(error_of(&six), error_of(&four));
    }

    // proves: A52-3, A52-4
    #[test]
    fn an_address_is_embedded_and_extracted_with_any_suffix(v4: u32, prefix: u128, suffix: u128) {
        for len in [32u8, 40, 48, 56, 64, 96] {
            let network = prefix & (u128::MAX << (128 - len)) & !(0xff << 56);
            let p = Prefix64::new(Ipv6Addr::from(network), len).unwrap();
            let v4 = Ipv4Addr::from(v4);
            let v6 = p.embed(v4);
            prop_assert_eq!(v6.octets()[8], 0);
            prop_assert!(p.contains(v6));
            // Bits that the address does not use: the u octet and everything after the IPv4 address.
            let used = p.embed(Ipv4Addr::BROADCAST);
            let free = !(u128::MAX << (128 - len)) & !(u128::from(used) ^ network);
            prop_assert_eq!(u128::from(v6) & free, 0);
            let odd = Ipv6Addr::from(u128::from(v6) | (suffix & free));
            prop_assert_eq!(p.extract(odd), Some(v4));
        }
    }

    // proves: A52-7
    #[test]
    fn a_checksum_neutral_prefix_leaves_the_checksum_as_it_is(m in message(vec![]), src: u32, dst: u32, wkp: bool) {
        prop_assume!(!matches!(m, Message::Echo { .. }));
        let network = if wkp { "64:ff9b::" } else { "64:ff9b:1:fffe::" };
        let p = Prefix64::new(network.parse().unwrap(), 96).unwrap();
        let (src4, dst4) = (Ipv4Addr::from(src), Ipv4Addr::from(dst));
        let (src6, dst6) = (p.embed(src4), p.embed(dst4));
        let to = To4::new((src6, dst6), (src4, dst4), Ports::Keep);
        let bytes = V6 { src: src6, dst: dst6, ..header6() }.packet(&m);
        let (result, out, _) = in_buffer(&bytes, Offload::default(), |packet| {
            let view = Ipv6View::parse(packet.bytes())?;
            let l4 = view.l4(packet.bytes())?;
            gatun_wire::rfc7915::six_to_four::translate(packet, &view, l4, &to, ID, &Settings::default())
        });
        prop_assert_eq!(result, Ok(Whole::Yes));
        prop_assert_eq!(&out[20..], &bytes[40..]);
        prop_assert_eq!(&out[20..], &m.to_bytes4(src4, dst4)[..]);
    }

    #[test]
    fn random_bytes_do_no_harm(version in 4u8..=7, mut data in bytes(400), offload in offload()) {
        if let Some(first) = data.first_mut() {
            *first = version << 4 | (*first & 0xf);
        }
        everything(&data, offload);
    }

    #[test]
    fn a_valid_packet_with_some_bytes_changed_does_no_harm(
        n in 0usize..64, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        offload in offload(),
    ) {
        let all = valid_packets();
        let mut packet = all[n % all.len()].clone();
        for (at, byte) in changes {
            let at = at.index(packet.len().min(160));
            packet[at] = byte;
        }
        everything(&packet, offload);
        everything(&mended(packet), offload);
    }
}

fn offload() -> impl Strategy<Value = Offload> {
    let checksum = prop_oneof![
        Just(Checksum::Complete),
        (prop_oneof![Just(20u16), Just(40), any::<u16>()], prop_oneof![Just(16u16), Just(6), any::<u16>()])
            .prop_map(|(start, offset)| Checksum::Partial { start, offset }),
    ];
    let segmentation = prop_oneof![
        3 => Just(Segmentation::None),
        1 => any::<u16>().prop_map(|size| Segmentation::Tcp { size, ecn: true }),
        1 => any::<u16>().prop_map(|size| Segmentation::Udp { size }),
    ];
    (checksum, segmentation).prop_map(|(checksum, segmentation)| Offload { checksum, segmentation })
}

/// Packet with a corrected IPv4 header checksum, so that more than the checksum is tested.
fn mended(mut packet: Vec<u8>) -> Vec<u8> {
    let len = usize::from(packet[0] & 0xf) * 4;
    if packet[0] >> 4 == 4 && (20..=packet.len()).contains(&len) {
        packet[10..12].fill(0);
        let sum = !sum(&packet[..len]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// One packet of each kind.
fn valid_packets() -> Vec<Vec<u8>> {
    let mut all = vec![];
    let extensions = vec![
        (0, vec![0, 0, 1, 4, 0, 0, 0, 0]),
        (43, vec![0; 8]),
        (60, vec![0, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for m in [udp(&payload(40)), tcp(&payload(40)), echo(true, &payload(40)), echo(false, &payload(1400))] {
        let v4 = [
            header4(),
            V4 { options: vec![1; 8], ..header4() },
            V4 { mf: true, ..header4() },
            V4 { offset: 800, ..header4() },
        ];
        let v6 = [
            header6(),
            V6 { extensions: extensions.clone(), ..header6() },
            V6 { fragment: Some((0, true, 1)), ..header6() },
            V6 { extensions: extensions.clone(), fragment: Some((800, false, 1)), ..header6() },
        ];
        for (v4, v6) in v4.iter().zip(&v6) {
            all.push(v4.packet(&m));
            all.push(v6.packet(&m));
            let (word4, word6) = (32 << 16, 16 << 24);
            for (kind4, kind6, word4, word6) in [(3, 1, 0, 0), (11, 3, word4, word6)] {
                all.push(
                    Error4 {
                        kind: kind4,
                        code: 0,
                        word: word4,
                        body: [v4.packet(&m), vec![0; 128]].concat(),
                    }
                    .packet(),
                );
                all.push(
                    Error6 {
                        kind: kind6,
                        code: 0,
                        word: word6,
                        body: [v6.packet(&m), vec![0; 128]].concat(),
                    }
                    .packet(),
                );
            }
        }
    }
    all
}

#[test]
fn every_truncation_of_every_valid_packet_does_no_harm() {
    for packet in valid_packets() {
        for len in 0..packet.len().min(240) {
            everything(&packet[..len], Offload::default());
            everything(&shortened(&packet[..len]), Offload::default());
        }
    }
}

/// Truncated packet whose IP length matches.
fn shortened(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    match packet.first().map(|b| b >> 4) {
        Some(4) if packet.len() >= 20 => {
            let len = packet.len() as u16;
            packet[2..4].copy_from_slice(&len.to_be_bytes());
            mended(packet)
        }
        Some(6) if packet.len() >= 40 => {
            let len = packet.len() as u16 - 40;
            packet[4..6].copy_from_slice(&len.to_be_bytes());
            packet
        }
        _ => packet,
    }
}

/// Applies every function of the crate to a packet and checks the results.
fn everything(bytes: &[u8], offload: Offload) {
    let settings = Settings { mtu4: 1000, ..Settings::default() };
    for ports in [Ports::Keep, Ports::Set { src: 1, dst: 0xffff }, Ports::EchoId(7)] {
        for (result, out, left) in
            [six_to_four(bytes, ports, &settings, offload), four_to_six(bytes, ports, &settings, offload)]
        {
            let Ok(whole) = result else { continue };
            well_formed(&out);
            if let Whole::Split(max) = whole {
                pieces_fit(&out, left, max);
            }
        }
        for (result, out) in [error_6to4(bytes, ports, &settings), error_4to6(bytes, ports, &settings)] {
            if result.is_ok() {
                well_formed(&out);
                assert!(out.len() <= if out[0] >> 4 == 4 { 576 } else { 1280 });
            }
        }
    }
    own_messages(bytes, offload);
    let mut buf = bytes.to_vec();
    let packet = Packet::with_offload(&mut buf, 0, bytes.len(), offload).unwrap();
    let mut out = vec![MARK; 70_000];
    for n in [0, 1, segment::count(&packet) - 1, segment::count(&packet), usize::MAX] {
        if let Ok(len) = segment::write(&packet, n, &mut out) {
            assert!(len <= bytes.len());
        }
    }
    let _ = Ipv6View::segments_left_at(bytes);
}

fn own_messages(bytes: &[u8], offload: Offload) {
    let message = icmp_error::Message { kind: 1, code: 1, word: 0 };
    for (result, out) in [
        in_buffer(bytes, offload, |p| icmp_error::error6(p, ROUTER6, message)),
        in_buffer(bytes, offload, |p| icmp_error::error4(p, ROUTER4, message, 1, 576)),
    ]
    .map(|(result, out, _)| (result, out))
    {
        match result {
            Ok(()) => well_formed(&out),
            Err(_) => assert_eq!(out, bytes),
        }
    }
    if let Ok(view) = Ipv6View::parse(bytes)
        && let Ok(l4 @ L4::Echo { .. }) = view.l4(bytes)
    {
        let _ = icmp_error::may_answer6(&view, l4);
        let (result, out, _) = in_buffer(bytes, offload, |p| echo_reply6(p, &view));
        assert!(result.is_ok() || out == bytes);
    }
    if let Ok(view) = Ipv4View::parse(bytes)
        && let Ok(l4 @ L4::Echo { .. }) = view.l4(bytes)
    {
        let _ = icmp_error::may_answer4(&view, l4);
        let (result, out, _) = in_buffer(bytes, offload, |p| echo_reply4(p, &view));
        assert!(result.is_ok() || out == bytes);
    }
}

/// Checks headers with an independent parser: exact lengths, a right IPv4 header checksum.
fn well_formed(bytes: &[u8]) {
    match bytes[0] >> 4 {
        4 => {
            let (h, _) = etherparse::Ipv4Header::from_slice(bytes).unwrap();
            assert_eq!(usize::from(h.total_len), bytes.len());
            assert_eq!(h.header_checksum, h.calc_header_checksum());
        }
        _ => {
            let (h, _) = etherparse::Ipv6Header::from_slice(bytes).unwrap();
            assert_eq!(usize::from(h.payload_length) + 40, bytes.len());
        }
    }
}

fn pieces_fit(bytes: &[u8], left: Offload, max: u32) {
    let check = |headers: &[u8], payload: &[u8]| {
        let piece = [headers, payload].concat();
        well_formed(&piece);
        assert!(piece.len() <= max as usize);
        Ok(())
    };
    let (result, first, _) = in_buffer(bytes, left, |p| match bytes[0] >> 4 {
        4 => fragment::split4(p, max, check),
        _ => fragment::split6(p, max, check),
    });
    if result.is_ok() {
        well_formed(&first);
        assert!(first.len() <= max as usize);
    }
}
