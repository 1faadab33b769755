//! The packets of the oracle, which proves the bytes of the engine (tests/oracle): the switch sends the same
//! bytes, or gives the packet to the controller.

use crate::packets::{from_inside, from_outside};
use crate::pair::*;
use crate::siit::{eam, install, prefix, siit};
use gatun_nat::plan::{Hairpin, Plan};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Packets with plain headers of TCP, UDP and pings, which a switch has to translate, of each direction.
const PLAIN_MIN: usize = 150;

/// Longer packets do not fit in a buffer of the switch.
const SHORT_MAX: usize = 2000;

/// All packets: a length of four bytes before each.
fn packets() -> Vec<Vec<u8>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/oracle/cases.py");
    let done = Command::new("/usr/bin/python3").arg("-B").arg(script).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let (mut rest, mut packets) = (done.stdout.as_slice(), Vec::new());
    while let Some((len, after)) = rest.split_first_chunk() {
        let (packet, after) = after.split_at(u32::from_be_bytes(*len) as usize);
        packets.push(packet.to_vec());
        rest = after;
    }
    packets
}

#[test]
fn the_switch_sends_the_bytes_of_the_engine_for_the_packets_of_the_oracle() {
    let prefix = prefix("2001:db8:64::", 96);
    let mapping = eam("10.1.0.0/16", "2001:db8:2::/112");
    let plan = Plan {
        siit: vec![siit(vec![prefix], vec![mapping], Hairpin::Off)],
        own4: Some(OWN4),
        own6: Some("2001:db8:ffff::1".parse().unwrap()),
        ..Plan::default()
    };
    let mut pair = Pair::of(&plan, prefix, gatun_wire::Settings::default());
    install(&mut pair.switch, &plan, None);
    let mut sent = [0; 2];
    let mut given: BTreeMap<u8, usize> = BTreeMap::new();
    for packet in packets().into_iter().filter(|packet| packet.len() <= SHORT_MAX) {
        let is_six = packet[0] >> 4 == 6;
        let (from, to, frame) = match is_six {
            true => (INSIDE, OUTSIDE, from_inside(&packet)),
            false => (OUTSIDE, INSIDE, from_outside(&packet)),
        };
        match pair.compare(from, &frame).0 {
            Fate::Sent(port, _) => {
                assert_eq!(port, to, "{packet:02x?}");
                sent[usize::from(is_six)] += 1;
            }
            Fate::Controller(reason) => *given.entry(reason).or_default() += 1,
            other @ (Fate::Dropped | Fate::Pending(..)) => panic!("{other:?}: {packet:02x?}"),
        }
    }
    println!("sent {sent:?}, to the controller by reason {given:?}");
    assert!(sent.iter().all(|sent| *sent >= PLAIN_MIN), "{sent:?} {given:?}");
    // Fragments, extension headers, options, ICMP errors, the last hop, packets that are too large.
    assert!((3..=8).all(|reason| given.contains_key(&reason)), "{given:?}");
}
