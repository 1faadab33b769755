//! Arbitrary bytes: nothing panics, every frame has one fate, and output is well-formed.

#[path = "../support/hostile.rs"]
mod support;

use crate::common::*;
use gatun_ether::{Answer, Consumed, Count as _, Received, Tag};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

/// One frame of each kind that is parsed.
fn valid() -> Vec<Vec<u8>> {
    let group = group_of(OUR6);
    vec![
        arp_request(PEER_MAC, PEER4, OUR4),
        arp_reply(PEER_MAC, PEER4),
        solicitation(PEER_MAC, PEER6, OUR6),
        advertisement(PEER_MAC, PEER6, SOLICITED | OVERRIDE),
        frame(
            group_mac(group),
            PEER_MAC,
            &[],
            0x86dd,
            &discovery(135, PEER6, group, 0, OUR6, &[14, 1, 0, 0, 0, 0, 0, 0]),
        ),
        frame(OUR_MAC, PEER_MAC, &[], 0x0800, &ping4(PEER4, OUR4, b"some payload")),
        frame(OUR_MAC, PEER_MAC, &[], 0x86dd, &ping6(PEER6, OUR6, b"some payload")),
        frame(OUR_MAC, PEER_MAC, &[], 0x0800, &udp4(PEER4, POOL4, b"some payload")),
        frame(OUR_MAC, PEER_MAC, &[], 0x86dd, &udp6(PEER6, POOL6, b"some payload")),
        frame(OUR_MAC, PEER_MAC, &[Tag::service(7), Tag::customer(8)], 0x0800, &udp4(PEER4, POOL4, b"x")),
        arp_request(OTHER_MAC, OUR4, OUR4),
        query(1, "fe80::66", 500, 28),
    ]
}

// proves: HM-21
#[test]
fn every_truncation_and_every_changed_byte_of_every_kind_has_one_fate() {
    // `Host` checks the counters after each frame.
    let mut host = Host::new(&settings());
    let mut frames = 0;
    for whole in valid() {
        for len in 0..=whole.len() {
            let (_, rest) = host.receive(&whole[..len]);
            assert!(rest.len() <= len + gatun_ether::ANSWER_ROOM);
            frames += 1;
        }
        for at in 0..whole.len() {
            for change in [1, 0x80, 0xff] {
                let mut bad = whole.clone();
                bad[at] ^= change;
                let _ = host.receive(&bad);
                host.now_ms += 1;
                let _ = host.poll();
                frames += 1;
            }
        }
    }
    assert_eq!(host.ether.stats().received, frames);
    let reasons = host.ether.stats().dropped.iter().filter(|n| **n > 0).count();
    assert!(reasons >= 8, "{reasons} reasons are met");
}

// proves: HM-21
#[test]
fn every_truncation_of_a_packet_to_be_sent_has_one_fate() {
    let mut host = Host::new(&settings());
    for packet in [udp4(POOL4, PEER4, b"x"), udp6(POOL6, FAR6, b"x")] {
        for len in 0..=packet.len() {
            let _ = host.send(&packet[..len]);
        }
    }
    let _ = host.run(10_000);
    assert_eq!(host.ether.stats().waiting, 0);
}

/// Packets to send and the valid frames, corrected in several ways.
fn all_kinds() -> Vec<u8> {
    let mut input = Vec::new();
    let mut add = |what: u8, bytes: &[u8]| {
        input.extend([what, 8, (bytes.len() >> 8) as u8, bytes.len() as u8]);
        input.extend(bytes);
    };
    let to_send = [
        udp4(POOL4, PEER4, b"x"),
        udp6(POOL6, PEER6, b"x"),
        udp6(POOL6, FAR6, b"x"),
        udp4(POOL4, FAR4, b"x"),
    ];
    for what in [0u8, 2, 2 | 8 | 32, 2 | 4 | 8 | 16 | 32, 2 | 4 | 8 | 16 | 64 | 128] {
        to_send.iter().for_each(|packet| add(1 | 32, packet));
        valid().iter().for_each(|frame| add(what, frame));
        to_send.iter().for_each(|packet| add(1 | 32, packet));
    }
    input
}

// proves: HM-21
#[test]
fn the_harness_reaches_every_counter() {
    let stats = support::run(&all_kinds());
    assert!(Answer::ALL.iter().all(|a| stats.answers.of(*a) > 0), "{stats:?}");
    assert!(Consumed::ALL.iter().all(|t| stats.consumed.of(*t) > 0), "{stats:?}");
    assert!(stats.packets > 0 && stats.sent > 0 && stats.released > 0, "{stats:?}");
    // The fuzzer begins with the same seeds.
    let file = regressions().join("all_kinds");
    if std::env::var_os("GATUN_BLESS").is_some() {
        std::fs::write(&file, all_kinds()).expect("the file can be written");
    }
    assert!(std::fs::read(&file).is_ok_and(|f| f == all_kinds()), "GATUN_BLESS=1 writes it anew");
}

fn regressions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions/ether_frame")
}

#[test]
fn fuzzing_findings_stay_fixed() {
    let mut replayed = 0;
    for entry in std::fs::read_dir(regressions()).expect("the folder is part of the repository") {
        let file = entry.expect("the folder can be read").path();
        println!("{}", file.display());
        support::run(&std::fs::read(&file).expect("the file can be read"));
        replayed += 1;
    }
    assert!(replayed > 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_have_one_fate(frames in proptest::collection::vec((any::<u8>(), 0..24u8, proptest::collection::vec(any::<u8>(), 0..200)), 0..40)) {
        let mut input = Vec::new();
        for (what, step, bytes) in frames {
            input.extend([what, step, (bytes.len() >> 8) as u8, bytes.len() as u8]);
            input.extend(bytes);
        }
        support::run(&input);
    }

    #[test]
    fn valid_frames_in_any_order_with_any_changes_have_one_fate(
        steps in proptest::collection::vec((0..12usize, any::<u8>(), 0..24u8, proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3)), 0..60)
    ) {
        let kinds = valid();
        let mut input = Vec::new();
        for (kind, what, step, changes) in steps {
            let mut bytes = kinds[kind].clone();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let bytes = if what & 1 == 0 { &bytes[..] } else { &bytes[14..] };
            input.extend([what, step, (bytes.len() >> 8) as u8, bytes.len() as u8]);
            input.extend(bytes);
        }
        support::run(&input);
    }
}

#[test]
fn answers_are_not_answered() {
    // An answer to an answer would let two hosts answer each other forever.
    for whole in valid() {
        let mut host = Host::new(&settings());
        if let (Received::Reply(_), reply) = host.receive(&whole) {
            let mut other = settings();
            other.ports[0].mac = PEER_MAC;
            other.ports[0].addresses = vec![prefix("198.51.100.9/24"), prefix("2001:db8:1::9/64")];
            let (fate, _) = Host::new(&other).receive(&reply);
            assert!(!matches!(fate, Received::Reply(_)), "{fate:?} to {reply:02x?}");
        }
    }
}
