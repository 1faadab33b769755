//! Packets of the builder, read by another parser.

use gatun_testkit::packet::{Endpoints, Message, V4, V6, check, endpoints, text};
use std::panic::catch_unwind;

fn messages() -> Vec<Message> {
    vec![
        Message::udp(5000, 53, b"a query"),
        Message::tcp(80, 50_000, "SA", &[]),
        Message::Tcp {
            src: 80,
            dst: 50_000,
            flags: 0xff,
            options: vec![2, 4, 5, 180],
            payload: vec![0xff; 31],
        },
        Message::echo(true, 0xbeef, b"are you there"),
        Message::echo(false, 0xbeef, &[]),
        Message::icmp((3, 4, 1280), &[0x45; 48]),
    ]
}

#[test]
fn every_message_is_right_in_both_families_and_any_damage_is_seen() {
    for message in messages() {
        let six = V6::new(text::v6("2001:db8::1"), text::v6("2001:db8::2")).packet(&message);
        let four = V4::new(text::v4("192.0.2.1"), text::v4("198.51.100.2")).packet(&message);
        for (packet, at) in [(six, 40), (four, 20)] {
            check(&packet);
            let mut damaged = packet.clone();
            damaged[at + 2] ^= 0x10;
            assert!(catch_unwind(|| check(&damaged)).is_err(), "{message:?}");
        }
    }
}

#[test]
fn headers_have_the_fields_that_were_asked_for() {
    let v4 = V4 {
        tos: 0xb9,
        id: 7,
        mf: true,
        df: false,
        offset: 16,
        ttl: 3,
        ..V4::new([1; 4].into(), [2; 4].into())
    };
    let packet = v4.raw(132, &[9; 8]);
    assert_eq!(packet[..10], [0x45, 0xb9, 0, 28, 0, 7, 0x20, 2, 3, 132]);
    let fragment = Some((16, true, 0x0102_0304));
    let extensions = vec![(0, vec![0, 0, 5, 2, 0, 0, 1, 0])];
    let v6 = V6 {
        traffic_class: 0xb9,
        flow_label: 5,
        hop_limit: 3,
        fragment,
        extensions,
        ..V6::new([1; 16].into(), [2; 16].into())
    };
    let packet = v6.raw(132, &[9; 8]);
    assert_eq!(packet[..8], [0x6b, 0x90, 0, 5, 0, 24, 0, 3]);
    assert_eq!(packet[40..56], [44, 0, 5, 2, 0, 0, 1, 0, 132, 0, 0, 17, 1, 2, 3, 4]);
}

#[test]
fn endpoints_are_those_of_the_message() {
    let (src, dst) = ("192.0.2.1", "198.51.100.2");
    let ends =
        |sport, dport| Endpoints { src: src.parse().unwrap(), dst: dst.parse().unwrap(), sport, dport };
    assert_eq!(endpoints(&text::tcp4(src, 1, dst, 2, "S", &[])), ends(1, 2));
    assert_eq!(endpoints(&text::echo4(src, dst, true, 7, &[])), ends(7, 7));
}
