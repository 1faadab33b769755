//! Sessions of NAT64 and NAT44: TCP, UDP and pings.

use crate::packets::*;
use crate::pair::*;
use gatun_wire::{Prefix64, Settings};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Echo];

/// Opens the session of a flow; returns its public end.
pub(crate) fn open_session(pair: &mut Pair, made: Made) -> (Ipv4Addr, u16) {
    let first = Made { outbound: true, flags: SYN, ..made };
    let (port, frame) = first.frame(&pair.prefix, (POOL, 0));
    let outside = outside_of(&pair.compare(port, &frame).1.unwrap());
    let answer = Made { outbound: false, flags: SYN | ACK, ..made };
    let (port, frame) = answer.frame(&pair.prefix, outside);
    pair.compare(port, &frame);
    outside
}

/// Gives the packet to both, and returns the fate in the switch.
pub(crate) fn fate(pair: &mut Pair, made: Made, outside: (Ipv4Addr, u16)) -> Fate {
    let (port, frame) = made.frame(&pair.prefix, outside);
    pair.compare(port, &frame).0
}

#[test]
fn plain_packets_of_every_kind_of_session_are_translated_both_ways() {
    let mut pair = Pair::new(well_known(), Settings::default());
    let mut sessions = 0;
    for protocol in ALL {
        for private in [false, true] {
            let made = Made { private, protocol, port: sessions as u8, ..PLAIN };
            let outside = open_session(&mut pair, made);
            for outbound in [true, false, true] {
                for (dont_fragment, payload) in
                    [(false, 0), (true, 1), (false, 1200), (true, 1232), (true, 1400), (false, 7)]
                {
                    let made = Made { outbound, dont_fragment, payload, tos: 0xb9, ..made };
                    let fate = fate(&mut pair, made, outside);
                    let to = if outbound { OUTSIDE } else { INSIDE };
                    assert!(matches!(fate, Fate::Sent(port, _) if port == to), "{made:?} {fate:02x?}");
                }
            }
            sessions += 1;
            assert_eq!(pair.installed(), sessions);
        }
    }
}

#[test]
fn entries_count_their_packets_and_bytes() {
    let mut pair = Pair::new(well_known(), Settings::default());
    let outside = open_session(&mut pair, Made { protocol: Protocol::Tcp, ..PLAIN });
    for (outbound, payload) in [(true, 0), (true, 100), (false, 1000), (false, 7), (false, 0)] {
        let made = Made { outbound, payload, protocol: Protocol::Tcp, odd: Odd::TrailingBytes, ..PLAIN };
        assert!(matches!(fate(&mut pair, made, outside), Fate::Sent(..)));
    }
    let counted = |index| {
        ["packets", "bytes"]
            .map(|unit| pair.switch.register(&format!("gatun_write_entry_packets_{unit}"), index).unwrap())
    };
    // From the IP header on.
    assert_eq!((counted(0), counted(1)), ([2, 2 * 60 + 100], [3, 3 * 40 + 1007]));
}

#[test]
fn the_controller_gets_every_other_packet_with_its_reason() {
    let mut pair = Pair::new(well_known(), Settings::default());
    let mut port = 0;
    for protocol in ALL {
        for private in [false, true] {
            port += 1;
            let made = Made { private, protocol, port, ..PLAIN };
            let outside = open_session(&mut pair, made);
            assert!(matches!(fate(&mut pair, made, outside), Fate::Sent(..)));
            for outbound in [true, false] {
                let six = outbound && !private;
                let made = Made { outbound, ..made };
                let mut wanted = vec![
                    (Made { ttl: 1, ..made }, 7),
                    (Made { ttl: 0, ..made }, 7),
                    (Made { payload: 1800, dont_fragment: true, ..made }, 8),
                    (Made { odd: Odd::Fragment, ..made }, 3),
                    (Made { odd: Odd::Option, ..made }, if six { 4 } else { 5 }),
                    (Made { odd: Odd::WrongHeader, ..made }, 10),
                    (Made { odd: Odd::CutOff, ..made }, 17),
                ];
                match protocol {
                    Protocol::Tcp => {
                        wanted.extend([0x12, 0x03].map(|flags| (Made { flags, ..made }, 2)));
                        wanted.push((Made { odd: Odd::ShortTcp, ..made }, 10));
                    }
                    Protocol::Udp if !outbound && !private => {
                        wanted.push((Made { odd: Odd::NoChecksum, ..made }, 9));
                    }
                    Protocol::Udp => {}
                    Protocol::Echo => {
                        wanted.push((Made { odd: Odd::OtherEcho, ..made }, 1));
                        wanted.push((Made { odd: Odd::OtherMessage, ..made }, 6));
                    }
                }
                for (made, reason) in wanted {
                    let fate = fate(&mut pair, made, outside);
                    assert_eq!(fate, Fate::Controller(reason), "{made:?}");
                }
            }
        }
    }
    let other = Made { odd: Odd::OtherPrefix, ..PLAIN };
    assert_eq!(fate(&mut pair, other, (POOL, 1)), Fate::Controller(1));
}

#[test]
fn segments_that_can_open_or_end_a_connection_go_to_the_controller() {
    let mut pair = Pair::new(well_known(), Settings::default());
    let mut port = 0;
    for private in [false, true] {
        for outbound in [true, false] {
            for flags in [SYN, FIN, FIN | ACK, RST, RST | ACK] {
                // Each has a session of its own: FIN and RST end it in the engine.
                port += 1;
                let made = Made { private, protocol: Protocol::Tcp, port, ..PLAIN };
                let outside = open_session(&mut pair, made);
                let made = Made { outbound, ..made };
                assert!(matches!(fate(&mut pair, made, outside), Fate::Sent(..)), "{made:?}");
                let made = Made { flags, ..made };
                assert_eq!(fate(&mut pair, made, outside), Fate::Controller(2), "{made:?}");
            }
        }
    }
}

#[test]
fn datagrams_without_checksum_stay_without_one_towards_ipv4() {
    let mut pair = Pair::new(well_known(), Settings::default());
    for private in [false, true] {
        let made = Made { private, port: private.into(), ..PLAIN };
        let outside = open_session(&mut pair, made);
        let made = Made { odd: Odd::NoChecksum, ..made };
        assert!(matches!(fate(&mut pair, made, outside), Fate::Sent(..)));
        let back = fate(&mut pair, Made { outbound: false, ..made }, outside);
        assert_eq!(matches!(back, Fate::Sent(..)), private, "{back:?}");
    }
}

#[test]
fn every_value_of_a_checksum_changes_as_in_the_engine() {
    let mut pair = Pair::new(well_known(), Settings::default());
    for protocol in ALL {
        let made = Made { protocol, payload: 2, ..PLAIN };
        let outside = open_session(&mut pair, made);
        for outbound in [true, false] {
            let made = Made { outbound, ..made };
            let (port, frame) = made.frame(&pair.prefix, outside);
            let offset = match protocol {
                Protocol::Tcp => 16,
                Protocol::Udp => 6,
                Protocol::Echo => 2,
            };
            let at = offset + if outbound { 14 + 40 } else { 18 + 20 };
            // Those whose results are 0 and 0xffff are among them.
            for value in (0..=u16::MAX).step_by(17).chain(0..40).chain(65_500..=u16::MAX) {
                let mut frame = frame.clone();
                frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
                pair.compare(port, &frame);
            }
        }
    }
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
}

/// A packet, changes of its frame, and where it ends.
fn changed() -> impl Strategy<Value = (Made, Vec<(u16, u8)>, u16)> {
    (made(), prop::collection::vec((any::<u16>(), any::<u8>()), 0..3), any::<u16>())
}

proptest! {
    #![proptest_config(property_config())]
    #[test]
    fn random_packets_become_the_bytes_of_the_engine_or_go_to_the_controller(
        prefix_len in prop::sample::select(vec![96u8, 96, 64, 40, 32]),
        tos in prop::option::of(any::<u8>()),
        mtu4 in prop::sample::select(vec![1500u32, 1260, 576]),
        mtu6 in prop::sample::select(vec![1500u32, 1280]),
        history in prop::collection::vec(made(), 40..160),
    ) {
        let (tos_6to4, traffic_class_4to6) = (tos, tos.map(|tos| !tos));
        let settings = Settings { tos_6to4, traffic_class_4to6, mtu4, mtu6, ..Settings::default() };
        let prefix = Prefix64::new(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), prefix_len).unwrap();
        let mut pair = Pair::new(prefix, settings);
        let mut outside = [(POOL, 2000u16); 12];
        for made in history {
            pair.now = pair.now.plus_ms(made.later_ms);
            let flow = usize::from(made.port) * 6 + made.protocol as usize * 2 + usize::from(made.private);
            let (port, frame) = made.frame(&prefix, outside[flow]);
            let (fate, sent) = pair.compare(port, &frame);
            // The switch translates what an entry is for.
            if made.is_plain() && matches!(fate, Fate::Controller(reason) if ![1, 8].contains(&reason)) {
                prop_assert!(false, "{made:?} {fate:?}");
            }
            let opens = made.outbound && made.odd == Odd::Nothing && fate != Fate::Controller(8);
            let is_tagged4 = |sent: &Vec<u8>| sent[12..14] == [0x81, 0] && sent[16..18] == [8, 0];
            if let Some(sent) = sent.filter(|sent| opens && is_tagged4(sent)) {
                outside[flow] = outside_of(&sent);
            }
        }
    }

    #[test]
    fn changed_and_truncated_frames_become_the_bytes_of_the_engine_or_go_to_the_controller(
        history in prop::collection::vec(changed(), 60..120),
    ) {
        let mut pair = Pair::new(well_known(), Settings::default());
        let mut outside = Vec::new();
        for protocol in ALL {
            for private in [false, true] {
                let made = Made { private, protocol, ..PLAIN };
                outside.push(open_session(&mut pair, made));
            }
        }
        for (made, changes, cut) in history {
            let made = Made { port: 0, ..made };
            let end = outside[made.protocol as usize * 2 + usize::from(made.private)];
            let (port, mut frame) = made.frame(&pair.prefix, end);
            for (at, value) in changes {
                // Mostly in the headers.
                let at = usize::from(at) % frame.len().min(90);
                frame[at] = value;
            }
            if cut.is_multiple_of(3) {
                frame.truncate(usize::from(cut / 3) % frame.len());
            }
            pair.compare(port, &frame);
        }
    }

    #[test]
    fn random_bytes_go_to_the_controller_or_nowhere(
        frames in prop::collection::vec((bytes(), any::<bool>(), any::<bool>(), 0u8..5), 100),
    ) {
        let mut pair = Pair::new(well_known(), Settings::default());
        for (bytes, outside, ours, kind) in frames {
            let kind = [[8, 0], [0x86, 0xdd], [8, 6], [0x81, 0], [0x12, 0x34]][usize::from(kind)];
            let frame = match (ours, outside) {
                (true, false) => untagged(INSIDE_MAC, CLIENT_MAC, kind, &bytes),
                (true, true) => tagged(OUTSIDE_MAC, OUTSIDE_ROUTER, kind, &bytes),
                (false, _) => bytes,
            };
            let (fate, _) = pair.compare(if outside { OUTSIDE } else { INSIDE }, &frame);
            prop_assert!(!matches!(fate, Fate::Sent(..)), "{fate:?}");
        }
    }
}

pub(crate) fn property_config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(24);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}
