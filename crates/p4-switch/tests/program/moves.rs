//! Fast flows that move into the switch and out of it many times, beside a daemon whose queues are long.
//!
//! ```text
//!    packet ---> switch --- entry ----------------------> out
//!                  |  ^
//!          up, FIFO|  |down, FIFO: frames, and echoes behind their burst
//!                  v  |
//!                 daemon
//! ```
//! The payload's length is a packet's number in its flow, and its first byte names the flow. The number must
//! not fall where the flow leaves.

use crate::packets::*;
use crate::pair::*;
use crate::sessions::{open_session, property_config};
use gatun_wire::Settings;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Flows: two sessions of NAT64 and two of NAT44, both directions.
const FLOWS: usize = 8;
/// Packets that the daemon takes at once, at most.
const BURST: usize = 8;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A packet of a flow arrives.
    Packet(usize),
    /// The daemon handles a burst of this many frames.
    Daemon(usize),
    /// The switch takes this many frames from the daemon.
    Down(usize),
    /// The controller removes all entries.
    Out,
    /// The controller writes all entries.
    In,
    /// A frame to the daemon, or from it, is lost.
    Loss(bool),
}

struct Lab {
    pair: Pair,
    sessions: Vec<(Made, (Ipv4Addr, u16))>,
    up: VecDeque<Vec<u8>>,
    down: VecDeque<Vec<u8>>,
    /// Numbers to be returned before the next burst.
    echoes: Vec<[u8; 8]>,
    /// Last number that was sent, and that left the switch, of each flow.
    sent: [usize; FLOWS],
    left: [usize; FLOWS],
    reordered: usize,
    /// Generation of the next entries. `None`: they are never pending.
    generation: Option<u8>,
}

impl Lab {
    fn new(generation: Option<u8>) -> Lab {
        let mut pair = Pair::new(well_known(), Settings::default());
        pair.counter_step = 4;
        // A place whose last number is of generation 1 would not wait for the first one of this lab.
        for register in ["gatun_pending_sent", "gatun_pending_returned"] {
            (0..16).for_each(|place| pair.switch.set_register(register, place, 0).unwrap());
        }
        let sessions = (0..FLOWS / 2).map(|n| {
            let made = Made { private: n % 2 == 1, port: n as u8 / 2, ..PLAIN };
            (made, open_session(&mut pair, made))
        });
        let sessions = sessions.collect();
        let (up, down, echoes) = (VecDeque::new(), VecDeque::new(), Vec::new());
        let (sent, left) = ([0; FLOWS], [0; FLOWS]);
        let mut lab = Lab { pair, sessions, up, down, echoes, sent, left, reordered: 0, generation };
        lab.step(Step::Out);
        lab
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Packet(flow) => {
                self.sent[flow] += 1;
                let (made, outside) = self.sessions[flow / 2];
                let (outbound, payload) = (flow.is_multiple_of(2), self.sent[flow]);
                // The payload begins with the TOS byte.
                let made = Made { outbound, payload, tos: flow as u8, ..made };
                let (port, frame) = made.frame(&self.pair.prefix, outside);
                self.put(port, &frame);
            }
            Step::Daemon(count) => {
                for number in std::mem::take(&mut self.echoes) {
                    self.down.push_back([&[0, 1, 0, 0][..], &number, &[0; 4]].concat());
                }
                for _ in 0..count {
                    let Some(frame) = self.up.pop_front() else { break };
                    let len = if frame[0] == 18 { 12 } else { 4 };
                    let out = if usize::from(frame[3]) == INSIDE { OUTSIDE } else { INSIDE };
                    self.down.push_back([&[0, 0, 0, out as u8], &frame[len..]].concat());
                    self.echoes.extend(frame[4..len].first_chunk::<8>());
                }
            }
            Step::Down(count) => {
                for _ in 0..count {
                    let Some(frame) = self.down.pop_front() else { break };
                    self.put(0, &frame);
                }
            }
            Step::Out => self.pair.forget(),
            Step::In => {
                self.pair.pending = self.generation.unwrap_or(0);
                self.generation = self.generation.map(|generation| generation % 255 + 1);
                self.pair.reconcile();
            }
            Step::Loss(true) => drop(self.up.pop_front()),
            Step::Loss(false) => drop(self.down.pop_front()),
        }
    }

    fn put(&mut self, port: usize, frame: &[u8]) {
        self.pair.switch.put(port, frame).unwrap();
        self.pair.switch.turn();
        while let Some(frame) = self.pair.switch.take(0) {
            self.up.push_back(frame);
        }
        for port in [INSIDE, OUTSIDE] {
            while let Some(frame) = self.pair.switch.take(port) {
                self.leave(port, &frame);
            }
        }
    }

    /// Reads number and flow of a frame. The daemon of this test translates nothing.
    fn leave(&mut self, port: usize, frame: &[u8]) {
        let (at, kind) = split(frame);
        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let l4 = at + if kind == 0x86dd { 40 } else { 20 };
        let (number, flow) = (usize::from(word(l4 + 4)) - 8, usize::from(frame[l4 + 8]));
        assert_eq!(port, if flow.is_multiple_of(2) { OUTSIDE } else { INSIDE });
        self.reordered += usize::from(number < self.left[flow]);
        self.left[flow] = number.max(self.left[flow]);
    }

    /// Lets everything arrive.
    fn settle(&mut self) {
        for _ in 0..4 {
            self.step(Step::Daemon(usize::MAX));
            self.step(Step::Down(usize::MAX));
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => (0..FLOWS).prop_map(Step::Packet),
        8 => (1..BURST).prop_map(Step::Daemon),
        8 => (1..BURST).prop_map(Step::Down),
        // A gap: nothing is on its way.
        2 => Just(Step::Daemon(usize::MAX)),
        2 => Just(Step::Down(usize::MAX)),
        1 => Just(Step::Out),
        2 => Just(Step::In),
        1 => any::<bool>().prop_map(Step::Loss),
    ]
}

/// Each flow sends a packet a round, the daemon is a round behind, and the sessions move every fifth round.
/// Returns the number of packets that were overtaken, and that the switch translated.
fn play_rounds(generation: Option<u8>) -> (usize, u64) {
    let mut lab = Lab::new(generation);
    let counted = |lab: &Lab| -> u64 {
        let count = |counter| lab.pair.switch.register("gatun_write_entry_packets_packets", counter).unwrap();
        (0..16).map(count).sum()
    };
    let before = counted(&lab);
    for round in 0..200 {
        match round % 10 {
            0 => lab.step(Step::Out),
            5 => lab.step(Step::In),
            // The one gap in ten rounds.
            8 => lab.settle(),
            _ => {}
        }
        (0..FLOWS).for_each(|flow| lab.step(Step::Packet(flow)));
        lab.step(Step::Daemon(FLOWS));
        lab.step(Step::Down(FLOWS / 2));
    }
    lab.settle();
    (lab.reordered, counted(&lab) - before)
}

#[test]
fn fast_flows_move_twenty_times_without_reordering_and_would_reorder_otherwise() {
    let (reordered, translated) = play_rounds(Some(1));
    assert_eq!(reordered, 0);
    // The packets of both rounds behind a gap.
    assert!(translated >= 2 * 20 * FLOWS as u64, "{translated}");
    let (reordered, _) = play_rounds(None);
    assert!(reordered > 100, "{reordered}");
}

proptest! {
    #![proptest_config(property_config())]
    #[test]
    fn no_packet_is_overtaken_whatever_is_late_or_lost(history in prop::collection::vec(step(), 100..600)) {
        let mut lab = Lab::new(Some(1));
        lab.step(Step::In);
        for step in history {
            lab.step(step);
            prop_assert_eq!(lab.reordered, 0, "after {:?}", step);
        }
        lab.settle();
        prop_assert_eq!(lab.reordered, 0);
    }
}
