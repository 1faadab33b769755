//! Pending sessions: packets go to the controller until it has returned their numbers, and the switch
//! translates them from then on (decision 0111).

use crate::packets::*;
use crate::pair::*;
use crate::sessions::{ALL, fate, open_session};
use gatun_wire::Settings;
use std::net::Ipv4Addr;

const PLACES: u32 = 131_072;
const COUNTS: u32 = 1 << 24;

/// A pair whose switch has no numbers of earlier tests.
fn pair() -> Pair {
    let mut pair = Pair::new(well_known(), Settings::default());
    for register in ["gatun_pending_sent", "gatun_pending_returned"] {
        (0..4).for_each(|place| pair.switch.set_register(register, place, 0).unwrap());
    }
    pair
}

/// Gives bytes to the port for the controller. Returns what the switch sends.
fn from_controller(pair: &mut Pair, bytes: &[u8]) -> Vec<(usize, Vec<u8>)> {
    pair.switch.put(0, bytes).unwrap();
    pair.switch.turn();
    (0..4).filter_map(|port| Some((port, pair.switch.take(port)?))).collect()
}

/// Returns a number, as the daemon does.
fn echo(pair: &mut Pair, place: u32, value: u32) {
    let frame = [&[0, 1, 0, 0][..], &place.to_be_bytes(), &value.to_be_bytes(), &[0; 4]].concat();
    assert_eq!(from_controller(pair, &frame), []);
}

/// A session whose entries are pending, and its public end.
struct Session {
    made: Made,
    outside: (Ipv4Addr, u16),
}

impl Session {
    fn open(pair: &mut Pair, made: Made, generation: u8) -> Session {
        pair.pending = generation;
        Session { made, outside: open_session(pair, made) }
    }

    fn fate(&self, pair: &mut Pair, outbound: bool) -> Fate {
        fate(pair, Made { outbound, ..self.made }, self.outside)
    }

    /// The number of the next packet, which has to go to the controller.
    fn number(&self, pair: &mut Pair, outbound: bool) -> (u32, u32) {
        match self.fate(pair, outbound) {
            Fate::Pending(place, value) => (place, value),
            other => panic!("{:?}: {other:02x?}", self.made),
        }
    }

    fn assert_translated(&self, pair: &mut Pair, outbound: bool) {
        let fate = self.fate(pair, outbound);
        let to = if outbound { OUTSIDE } else { INSIDE };
        assert!(matches!(fate, Fate::Sent(port, _) if port == to), "{:?}: {fate:02x?}", self.made);
    }
}

fn counter(pair: &Pair, name: &str, index: u32) -> u64 {
    pair.switch.register(&format!("gatun_{name}"), index).unwrap()
}

#[test]
fn a_session_moves_when_the_number_of_its_latest_packet_has_returned() {
    let mut pair = pair();
    let mut generation = 0;
    for protocol in ALL {
        for private in [false, true] {
            generation += 1;
            let made = Made { private, protocol, port: generation, ..PLAIN };
            let session = Session::open(&mut pair, made, generation);
            let first_place = if private { 2 } else { 0 };
            for (outbound, place) in [(true, first_place), (false, first_place + 1)] {
                let counted = counter(&pair, "write_entry_packets_packets", place);
                let numbers = [(); 3].map(|()| session.number(&mut pair, outbound));
                let values = numbers.map(|(_, value)| value);
                assert_eq!(numbers.map(|(place, _)| place), [place; 3]);
                assert_eq!(values.map(|value| value >> 24), [generation.into(); 3]);
                assert_eq!([values[1] - values[0], values[2] - values[1]], [1, 1]);
                // Of an earlier packet: another one is still on its way.
                echo(&mut pair, place, values[1]);
                let (_, last) = session.number(&mut pair, outbound);
                echo(&mut pair, place, values[2]);
                echo(&mut pair, place, last);
                assert_eq!(counter(&pair, "write_entry_packets_packets", place), counted);
                session.assert_translated(&mut pair, outbound);
                session.assert_translated(&mut pair, outbound);
                assert_eq!(counter(&pair, "write_entry_packets_packets", place), counted + 2);
            }
        }
    }
    // The answers that open sessions of UDP and pings find the entries, too.
    assert_eq!(counter(&pair, "to_controller", 18), 6 * 2 * 4 + 4);
    assert_eq!((counter(&pair, "dropped", 2), pair.switch.echoes()), (6 * 2 * 3, 6 * 2 * 3));
}

#[test]
fn the_next_generation_goes_to_the_controller_again_and_generation_0_never() {
    let mut pair = pair();
    let session = Session::open(&mut pair, PLAIN, 7);
    let (place, old) = session.number(&mut pair, true);
    echo(&mut pair, place, old);
    session.assert_translated(&mut pair, true);
    // The entry is written anew, as after a removal.
    pair.forget();
    pair.pending = 8;
    let (_, new) = session.number(&mut pair, true);
    assert_eq!((new >> 24, old >> 24), (8, 7));
    echo(&mut pair, place, old);
    let (_, newer) = session.number(&mut pair, true);
    echo(&mut pair, place, newer);
    session.assert_translated(&mut pair, true);
    // The other direction has never had a packet.
    session.number(&mut pair, false);
    pair.forget();
    pair.pending = 0;
    session.assert_translated(&mut pair, false);
    session.assert_translated(&mut pair, true);
}

#[test]
fn a_lost_or_foreign_echo_only_delays() {
    let mut pair = pair();
    let session = Session::open(&mut pair, PLAIN, 9);
    let (place, value) = session.number(&mut pair, true);
    // Numbers of other places, of nobody, and one that is nearly right. A place is taken modulo their number.
    for (place, value) in [
        (1, value),
        (PLACES - 1, value),
        (u32::MAX, value),
        (place, 0),
        (place, !value),
        (place, value ^ 1 << 24),
    ] {
        echo(&mut pair, place, value);
        assert!(matches!(session.fate(&mut pair, true), Fate::Pending(0, _)));
    }
    assert_eq!(counter(&pair, "pending_returned", PLACES - 1), value.into());
    // An echo without a whole number, and frames of another kind, which leave by the port.
    from_controller(&mut pair, &[0, 1, 0, 0, 0]);
    for kind in [[0, 2], [1, 1], [0xff, 0xff]] {
        let frame = [&kind[..], &[0, 3], &place.to_be_bytes(), &value.to_be_bytes()].concat();
        assert_eq!(from_controller(&mut pair, &frame), [(3, frame[4..].to_vec())]);
    }
    // No echo has come for any packet: the next one may be the only one that returns.
    let (_, last) = session.number(&mut pair, true);
    echo(&mut pair, place + PLACES, last);
    session.assert_translated(&mut pair, true);
}

#[test]
fn two_sessions_of_one_place_wait_for_each_other_and_no_number_comes_twice() {
    let mut pair = pair();
    let one = Session::open(&mut pair, PLAIN, 1);
    let (place, first) = one.number(&mut pair, true);
    pair.pending = 2;
    let other = Session::open(&mut pair, Made { port: 1, ..PLAIN }, 2);
    let (other_place, second) = other.number(&mut pair, true);
    assert_eq!(other_place, place);
    let (_, third) = one.number(&mut pair, true);
    assert_ne!(third, first);
    // The first packet has returned, the third is on its way.
    echo(&mut pair, place, first);
    let (_, fourth) = one.number(&mut pair, true);
    echo(&mut pair, place, second);
    let (_, fifth) = other.number(&mut pair, true);
    echo(&mut pair, place, fourth);
    echo(&mut pair, place, fifth);
    other.assert_translated(&mut pair, true);
    let (_, last) = one.number(&mut pair, true);
    echo(&mut pair, place, last);
    one.assert_translated(&mut pair, true);
}

#[test]
fn a_place_is_the_lowest_bits_of_a_counter() {
    let mut pair = pair();
    pair.first_counter = 3 * PLACES + 2;
    let session = Session::open(&mut pair, PLAIN, 6);
    for (outbound, place) in [(true, 2), (false, 3)] {
        let (of_packet, value) = session.number(&mut pair, outbound);
        assert_eq!(of_packet, place);
        echo(&mut pair, place, value);
        session.assert_translated(&mut pair, outbound);
        assert_eq!(counter(&pair, "write_entry_packets_packets", 3 * PLACES + place), 1);
    }
}

#[test]
fn the_count_of_packets_begins_again_within_its_generation() {
    let mut pair = pair();
    let session = Session::open(&mut pair, PLAIN, 255);
    let (place, _) = session.number(&mut pair, true);
    pair.switch.set_register("gatun_pending_sent", place, (255 << 24 | (COUNTS - 1)).into()).unwrap();
    assert_eq!(session.number(&mut pair, true), (place, 255 << 24));
    let (_, value) = session.number(&mut pair, true);
    assert_eq!(value, 255 << 24 | 1);
    echo(&mut pair, place, value);
    session.assert_translated(&mut pair, true);
}

#[test]
fn other_reasons_come_first_and_have_no_number() {
    let mut pair = pair();
    let made = Made { protocol: Protocol::Tcp, ..PLAIN };
    let session = Session::open(&mut pair, made, 3);
    for (odd, reason) in [
        (Made { flags: SYN, ..made }, 2),
        (Made { odd: Odd::Fragment, ..made }, 3),
        (Made { ttl: 1, ..made }, 7),
        (Made { payload: 1800, dont_fragment: true, ..made }, 8),
    ] {
        assert_eq!(fate(&mut pair, odd, session.outside), Fate::Controller(reason), "{odd:?}");
    }
    assert_eq!(counter(&pair, "pending_sent", 0), 0);
    // A frame with padding arrives at the controller without it, behind the number.
    let padded = Made { odd: Odd::TrailingBytes, ..made };
    assert!(matches!(fate(&mut pair, padded, session.outside), Fate::Pending(0, _)));
}

#[test]
fn a_limit_of_packets_to_the_controller_only_delays() {
    let mut pair = pair();
    let session = Session::open(&mut pair, PLAIN, 4);
    let rates = gatun_p4_switch::MeterRates { cir: 1, cbs: 2, pir: 1, pbs: 2 };
    pair.switch.set_meter("gatun_controller_limit", 18, &rates).unwrap();
    let (port, frame) = session.made.frame(&pair.prefix, session.outside);
    let fates: Vec<Fate> = (0..20).map(|_| through(&mut pair.switch, port, &frame)).collect();
    let given = fates.iter().filter(|fate| matches!(fate, Fate::Pending(..))).count();
    assert!((1..10).contains(&given), "{fates:?}");
    pair.switch.lift_limits().unwrap();
    let (place, value) = session.number(&mut pair, true);
    echo(&mut pair, place, value);
    session.assert_translated(&mut pair, true);
}
