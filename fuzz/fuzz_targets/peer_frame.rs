//! Arbitrary bytes of a peer: records or an error, never a panic, and never more memory than a frame needs.
//! The first byte selects whether the greeting comes first, and the length of the reads.
#![no_main]

use gatun_peer::ownership::Member;
use gatun_peer::wire::{Exchange, Frame, Hello, Received, Settings, decode};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((how, bytes)) = bytes.split_first() else { return };
    let settings = Settings::new(Member::First, "box", 1, Vec::new());
    let mut exchange = Exchange::new(settings);
    exchange.open(0, true);
    let mut received = Vec::new();
    if how & 1 == 0 {
        let mut greeting = Vec::new();
        Frame::Hello(Hello::new(Member::Second, "peer", 2)).put(&mut greeting);
        exchange.receive(0, &greeting, &mut received).unwrap();
    }
    for part in bytes.chunks(1 + usize::from(*how >> 1)) {
        if exchange.receive(1, part, &mut received).is_err() {
            break;
        }
        exchange.set_wall_clock(1, 1 << 40);
        exchange.accept_greeting(1);
        exchange.answer_all();
        exchange.turn(2);
    }
    // What was understood is written and read again.
    for frame in received.into_iter().filter_map(|one| match one {
        Received::Records(records) => Some(Frame::Records(records)),
        Received::Asked { asked_ms, shards } => Some(Frame::Asked { asked_ms, shards }),
        Received::Promised { asked_ms, promises } => Some(Frame::Promised { asked_ms, promises }),
        _ => None,
    }) {
        let mut written = Vec::new();
        frame.put(&mut written);
        assert_eq!(decode(&written).unwrap().unwrap().0, frame);
    }
});
