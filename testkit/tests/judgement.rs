//! Packets of the generator read by an independent parser, and the judge's verdict on each kind of damage.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use gatun_testkit::traffic::{
    Family, Judge, Protocol, Protocols, Sizes, Spec, Tally, Traffic, View, embed, reflect,
};
use std::net::{IpAddr, Ipv4Addr};

fn traffic(family: Family, sizes: Sizes) -> Traffic {
    Traffic::new(Spec {
        family,
        subscribers: 60,
        flows_per_subscriber: 10,
        protocols: Protocols::Mixed,
        sizes,
        seed: 5,
    })
}

const ALL_SIZES: [Sizes; 6] = [
    Sizes::Fixed(64),
    Sizes::Fixed(65),
    Sizes::Fixed(128),
    Sizes::Fixed(1518),
    Sizes::Fixed(9000),
    Sizes::Imix,
];

fn each_kind(mut body: impl FnMut(&Traffic)) {
    for family in [Family::V6, Family::V4] {
        ALL_SIZES.iter().for_each(|sizes| body(&traffic(family, *sizes)));
    }
}

fn packet(traffic: &Traffic, number: u64, now_ns: u64) -> Vec<u8> {
    let mut buffer = vec![0xa5; traffic.packet_len_max()];
    let len = traffic.write(number, now_ns, &mut buffer);
    buffer.truncate(len);
    buffer
}

fn answer(traffic: &Traffic, number: u64, now_ns: u64) -> Vec<u8> {
    let mut packet = packet(traffic, number, now_ns);
    assert!(reflect(&mut packet));
    packet
}

#[test]
fn another_parser_finds_every_field_and_checksum_right() {
    each_kind(|traffic| {
        for number in 0..1500 {
            let bytes = packet(traffic, number, 77);
            let parsed = SlicedPacket::from_ip(&bytes).unwrap();
            let udp = matches!(parsed.transport, Some(TransportSlice::Udp(_)));
            let minimum = if udp { 0 } else { 12 } + 18 + if bytes[0] >> 4 == 4 { 28 } else { 48 };
            let frame = match traffic.spec().sizes {
                Sizes::Fixed(frame) => frame,
                Sizes::Imix if bytes.len() == minimum => 64,
                Sizes::Imix => bytes.len() + 18,
            };
            assert_eq!(bytes.len(), (frame - 18).max(minimum));
            assert!(traffic.spec().sizes != Sizes::Imix || [64, 594, 1518].contains(&frame));
            let (stated, computed, src, dst) = match (parsed.net.unwrap(), parsed.transport.unwrap()) {
                (NetSlice::Ipv4(ip), transport) => {
                    let header = ip.header().to_header();
                    assert_eq!(header.header_checksum, header.calc_header_checksum());
                    let ends = (IpAddr::V4(header.source.into()), IpAddr::V4(header.destination.into()));
                    let (stated, computed) = match transport {
                        TransportSlice::Udp(udp) => (
                            udp.checksum(),
                            udp.to_header().calc_checksum_ipv4(&header, udp.payload()).unwrap(),
                        ),
                        TransportSlice::Tcp(tcp) => (
                            tcp.checksum(),
                            tcp.to_header().calc_checksum_ipv4(&header, tcp.payload()).unwrap(),
                        ),
                        other => panic!("{other:?}"),
                    };
                    (stated, computed, ends.0, ends.1)
                }
                (NetSlice::Ipv6(ip), transport) => {
                    let header = ip.header().to_header();
                    let ends = (IpAddr::V6(header.source.into()), IpAddr::V6(header.destination.into()));
                    let (stated, computed) = match transport {
                        TransportSlice::Udp(udp) => (
                            udp.checksum(),
                            udp.to_header().calc_checksum_ipv6(&header, udp.payload()).unwrap(),
                        ),
                        TransportSlice::Tcp(tcp) => (
                            tcp.checksum(),
                            tcp.to_header().calc_checksum_ipv6(&header, tcp.payload()).unwrap(),
                        ),
                        other => panic!("{other:?}"),
                    };
                    (stated, computed, ends.0, ends.1)
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(stated, computed, "packet {number}");
            assert_eq!(src.is_ipv6(), traffic.spec().family == Family::V6);
            assert_eq!(src.is_ipv6(), dst.is_ipv6());
        }
    });
}

#[test]
fn a_round_has_one_packet_of_each_flow_and_begins_tcp_with_a_syn() {
    let traffic = traffic(Family::V6, Sizes::Fixed(128));
    for round in 0..17u64 {
        let mut seen = std::collections::HashSet::new();
        for place in 0..600 {
            let bytes = packet(&traffic, 600 * round + place, 0);
            seen.insert(bytes[8..44].to_vec());
            if bytes[6] == Protocol::Tcp as u8 {
                assert_eq!(bytes[53], if round % 4 == 0 { 0x02 } else { 0x10 });
            }
        }
        assert_eq!(seen.len(), 600);
    }
}

#[test]
fn intact_packets_are_received_with_their_delay() {
    each_kind(|traffic| {
        let mut judge = Judge::new(traffic, View::Returned);
        let mut bytes = 0;
        for number in 0..2000u64 {
            let mut packet = answer(traffic, number, 1000 * number);
            // Routers decrement the hop limit, and update the IPv4 header's checksum for it.
            if packet[0] >> 4 == 6 {
                packet[7] -= 3;
            } else {
                packet[8] -= 3;
                let sum = u16::from_be_bytes([packet[10], packet[11]]);
                let (sum, carry) = sum.overflowing_add(3 << 8);
                packet[10..12].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
            }
            bytes += packet.len() as u64;
            judge.packet(1000 * number + 20 * (number % 100), &packet);
        }
        assert_eq!(*judge.tally(), Tally { received: 2000, bytes, ..Tally::default() });
        let latency = judge.take_latency();
        assert_eq!(latency.len(), 2000);
        assert!((1980..2000).contains(&latency.max()), "{}", latency.max());
        assert_eq!(judge.take_latency().len(), 0);
        assert_eq!((judge.tally().lost(2000), judge.tally().lost(2003)), (0, 3));
    });
}

#[test]
fn one_wrong_bit_anywhere_is_noticed() {
    for family in [Family::V6, Family::V4] {
        let traffic = traffic(family, Sizes::Fixed(128));
        for number in 0..2 {
            let good = answer(&traffic, number, 9);
            for bit in 0..good.len() * 8 {
                let (at, mask) = (bit / 8, 1 << (bit % 8));
                let unjudged = match family {
                    // Traffic class, flow label and hop limit have no checksum.
                    Family::V6 => at < 4 && bit != 4 && at * 8 + 7 - bit % 8 >= 4 || at == 7,
                    Family::V4 => false,
                };
                let mut wrong = good.clone();
                wrong[at] ^= mask;
                let mut judge = Judge::new(&traffic, View::Returned);
                judge.packet(10, &wrong);
                assert_eq!(
                    judge.tally().received == 1,
                    unjudged,
                    "bit {bit} of {number}: {:?}",
                    judge.tally()
                );
            }
        }
    }
}

#[test]
fn lost_repeated_and_overtaken_packets_are_counted_to_the_packet() {
    let traffic = traffic(Family::V4, Sizes::Imix);
    let mut judge = Judge::new(&traffic, View::Returned);
    let mut give = |number| judge.packet(0, &answer(&traffic, number, 0));
    // Packets of one flow are a round apart or more.
    let round = |round: u64| (round * 600..(round + 1) * 600).collect::<Vec<_>>();
    round(0).into_iter().for_each(&mut give);
    round(2).into_iter().rev().for_each(&mut give); // order between flows does not matter
    round(1).into_iter().skip(7).for_each(&mut give); // seven lost, the others overtaken
    round(2).into_iter().take(5).for_each(&mut give);
    let tally = judge.tally();
    assert_eq!((tally.received, tally.reordered, tally.duplicates), (1793, 593, 5));
    assert_eq!((tally.lost(1800), tally.damaged()), (7, 598));
    assert_eq!(judge.next_number(), 1800);
}

/// The reference: a table with the highest number of each flow. The judge works from the numbers alone.
#[test]
fn reordering_is_counted_as_by_a_table_of_flows() {
    let traffic = traffic(Family::V6, Sizes::Fixed(128));
    let mut judge = Judge::new(&traffic, View::Returned);
    let (mut highest, mut reordered) = (std::collections::HashMap::new(), 0);
    let mut random = 1u64;
    let mut numbers: Vec<u64> = (0..12_000).collect();
    // Each is delayed by up to two rounds, some by more; some never arrive.
    numbers.sort_by_cached_key(|number| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        number + (random >> 33) % if random >> 61 == 0 { 6000 } else { 1200 }
    });
    for number in numbers.into_iter().filter(|number| number % 7 != 3) {
        let bytes = answer(&traffic, number, 0);
        let flow = bytes[8..44].to_vec();
        let before = highest.entry(flow).or_insert(number);
        reordered += u64::from(number < *before);
        *before = number.max(*before);
        judge.packet(0, &bytes);
    }
    assert!(reordered > 1000);
    assert_eq!((judge.tally().reordered, judge.tally().damaged()), (reordered, reordered));
}

#[test]
fn foreign_packets_are_distinguished_from_the_traffic() {
    let traffic = traffic(Family::V6, Sizes::Fixed(128));
    let mut judge = Judge::new(&traffic, View::Returned);
    let mut icmp = answer(&traffic, 0, 0);
    icmp[6] = 58;
    judge.packet(0, &icmp);
    judge.packet(0, &[]);
    judge.packet(0, &[0x60; 10]);
    // A packet of another run.
    let mut other = traffic.spec();
    other.seed += 1;
    judge.packet(0, &answer(&Traffic::new(other), 0, 0));
    // Not reflected: it arrived at the wrong end.
    judge.packet(0, &packet(&traffic, 1, 0));
    let tally = judge.tally();
    assert_eq!((tally.icmp, tally.foreign, tally.corrupted, tally.corrupted_known), (1, 2, 2, 1));
    assert_eq!((tally.received, tally.lost(2)), (0, 1));
}

#[test]
fn servers_judge_packets_of_the_other_family() {
    let traffic = traffic(Family::V6, Sizes::Fixed(300));
    let mut judge = Judge::new(&traffic, View::Arrived(Family::V4));
    for number in 0..100 {
        let six = packet(&traffic, number, 0);
        let (protocol, server) = (six[6], Ipv4Addr::from(*six[36..40].first_chunk().unwrap()));
        assert_eq!(embed(server).octets(), six[24..40]);
        let public = Ipv4Addr::new(192, 0, 2, 1);
        let mut four = Vec::new();
        let payload = &six[if protocol == 6 { 60 } else { 48 }..];
        let ports = |at: usize| u16::from_be_bytes([six[at], six[at + 1]]);
        if protocol == 6 {
            let builder = etherparse::PacketBuilder::ipv4(public.octets(), server.octets(), 63);
            let sequence = u32::from_be_bytes(*six[44..48].first_chunk().unwrap());
            builder.tcp(40_000, ports(42), sequence, 65535).write(&mut four, payload).unwrap();
        } else {
            let builder = etherparse::PacketBuilder::ipv4(public.octets(), server.octets(), 63);
            builder.udp(40_000, ports(42)).write(&mut four, payload).unwrap();
        }
        judge.packet(0, &four);
    }
    assert_eq!(judge.tally().received, 100, "{:?}", judge.tally());
}

#[test]
fn malformed_and_icmp_packets_are_not_reflected() {
    for bytes in [&[][..], &[0x45; 10], &[0x60; 40], &[0x45; 20], &[0; 100]] {
        assert!(!reflect(&mut bytes.to_vec()));
    }
    let mut packet = packet(&traffic(Family::V4, Sizes::Fixed(64)), 0, 0);
    packet[9] = 1;
    assert!(!reflect(&mut packet));
}
