//! Generator, reflector and judge in one thread.
//!
//! ```text
//!   subscribers ---- inside ===> [ translator ] ===> outside ---- servers
//!    (sent here, and judged)                          (reflected at once)
//! ```
//! One thread does all of it: times come from one clock, and the generator itself reorders nothing.

use super::{Family, Judge, Pace, Tally, Traffic, View, reflect};
use std::time::{Duration, Instant};

const ETHERNET: usize = 14;
/// Packets sent in one burst.
const BURST: usize = 32;
/// Silence after which packets no longer count as in flight.
const GIVEN_UP_AFTER_NS: u64 = 200_000_000;
/// Silence that ends a stage while packets are in flight: the translator may have had no processor for so
/// long.
const SILENCE: Duration = Duration::from_secs(2);
/// Silence that ends a stage if the last packet has returned and earlier ones have not.
const SHORT_SILENCE: Duration = Duration::from_millis(50);
/// Pause between two probes.
const PROBE_EVERY: Duration = Duration::from_millis(10);
/// Silence after which no further probe is expected.
const PROBES_SETTLE: Duration = Duration::from_millis(50);

/// Frames received in one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Frames that arrived inside.
    pub inside: usize,
    /// True if a burst was full, so that more frames may wait.
    pub is_full: bool,
}

/// The generator's two devices. Frames begin with their Ethernet header.
pub trait Devices {
    /// Sends a frame inside.
    fn send(&mut self, frame: &[u8]);

    /// Receives at most one burst of waiting frames. `outside` changes a frame and returns true to send it
    /// back.
    fn receive(&mut self, outside: impl FnMut(&mut [u8]) -> bool, inside: impl FnMut(&[u8])) -> Received;

    /// Yields to other threads while there is nothing to do.
    fn give_way(&self) {
        std::hint::spin_loop();
    }

    /// Returns true if another program needs this thread's processor to reflect packets.
    fn takes_turns(&self) -> bool {
        false
    }

    /// Packets that the inside device refused to send.
    fn refused(&self) -> u64;
}

/// Amount of traffic.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// Packets a second.
    Rate(f64),
    /// A window: at most this many packets are in flight, and each packet that returns makes room for
    /// another.
    InFlight(u64),
}

/// End of a stage.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// Ends after this many packets.
    Packets(u64),
    /// Ends after this much time.
    Elapsed(Duration),
}

/// Result of a stage.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Seconds of sending.
    pub seconds: f64,
    /// Packets sent.
    pub tx: u64,
    /// Packets that arrived outside and were reflected.
    pub reflected: u64,
    /// Counts of the packets that arrived during this stage.
    pub tally: Tally,
    /// Packets that the inside device refused to send.
    pub refused: u64,
    /// Share of the time in which more packets waited for the generator than one burst.
    pub generator_behind: f64,
}

impl Stage {
    /// Packets that were sent and did not return.
    pub fn lost(&self) -> u64 {
        self.tx.saturating_sub(self.tally.received)
    }
}

/// Sends, reflects and judges.
pub struct Generator<D: Devices> {
    devices: D,
    traffic: Traffic,
    judge: Judge,
    clock: Instant,
    /// Frame buffer; its Ethernet header is written once.
    frame: Vec<u8>,
    /// Number of the next packet.
    next: u64,
    reflected: u64,
    /// Packets below this number do not count as in flight.
    given_up: u64,
}

impl<D: Devices> Generator<D> {
    /// A generator that sends frames from one MAC address to another.
    pub fn new(devices: D, traffic: Traffic, from: [u8; 6], to: [u8; 6]) -> Generator<D> {
        let mut frame = vec![0; ETHERNET + traffic.packet_len_max()];
        frame[..6].copy_from_slice(&to);
        frame[6..12].copy_from_slice(&from);
        let ethertype: u16 = if traffic.spec().family == Family::V6 { 0x86dd } else { 0x0800 };
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        Generator {
            devices,
            judge: Judge::new(&traffic, View::Returned),
            traffic,
            clock: Instant::now(),
            frame,
            next: 0,
            reflected: 0,
            given_up: 0,
        }
    }

    /// The generator's devices.
    pub fn devices(&self) -> &D {
        &self.devices
    }

    /// The generator's traffic.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// The generator's judge.
    pub fn judge(&mut self) -> &mut Judge {
        &mut self.judge
    }

    /// Counts of what has returned so far.
    pub fn tally(&self) -> &Tally {
        self.judge.tally()
    }

    /// Packets sent so far, without those that the device refused.
    pub fn tx(&self) -> u64 {
        self.next - self.devices.refused()
    }

    /// Packets that arrived outside so far and were reflected.
    pub fn reflected(&self) -> u64 {
        self.reflected
    }

    /// Nanoseconds since the generator was made.
    pub fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    /// Sends probes until one returns; returns true if one did within `max`. No counter includes probes.
    pub fn wait_until_open(&mut self, max: Duration) -> bool {
        let spec = self.traffic.spec();
        let probes = Traffic::new(super::Spec { seed: !spec.seed, ..spec });
        let traffic = std::mem::replace(&mut self.traffic, probes.clone());
        let judge = std::mem::replace(&mut self.judge, Judge::new(&probes, View::Returned));
        let (next, reflected) = (std::mem::take(&mut self.next), self.reflected);
        let begin = Instant::now();
        let mut due = begin;
        while self.tally().received == 0 && begin.elapsed() < max {
            if Instant::now() >= due {
                due += PROBE_EVERY;
                self.send(1, 0);
            }
            self.settle();
        }
        let is_open = self.tally().received > 0;
        let mut quiet = Instant::now();
        while quiet.elapsed() < PROBES_SETTLE {
            let before = (self.reflected, self.tally().received);
            self.settle();
            if (self.reflected, self.tally().received) != before {
                quiet = Instant::now();
            }
        }
        (self.traffic, self.judge, self.next, self.reflected) = (traffic, judge, next, reflected);
        is_open
    }

    /// Sends until the stage is over or `watch` returns false, then waits for packets in flight. Each turn
    /// calls `watch` with the time and the completed share of the stage.
    pub fn stage(
        &mut self,
        load: Load,
        until: Until,
        mut watch: impl FnMut(&mut Self, u64, f64) -> bool,
    ) -> Stage {
        let begin_ns = self.now_ns();
        let (first, refused) = (self.next, self.devices.refused());
        let (reflected, tally) = (self.reflected, self.tally().clone());
        let rate = match load {
            Load::Rate(rate) => Some(rate),
            Load::InFlight(_) => None,
        };
        let mut pace = Pace::new(rate, begin_ns);
        let mut behind = BehindTime::default();
        let mut last_arrival_ns = begin_ns;
        let end_ns = loop {
            // Reading the clock is a good part of a packet's cost here, so the turn reads it once.
            let now_ns = self.now_ns();
            behind.turn(now_ns);
            let (done, all, left) = match until {
                Until::Packets(count) => (self.next - first, count, count.saturating_sub(self.next - first)),
                Until::Elapsed(length) => (now_ns - begin_ns, length.as_nanos() as u64, u64::MAX),
            };
            if done >= all || !watch(self, now_ns, done as f64 / all as f64) {
                break now_ns;
            }
            let room = match load {
                Load::Rate(_) => pace.due(now_ns, BURST) as u64,
                Load::InFlight(max) => max.saturating_sub(self.in_flight()).min(BURST as u64),
            };
            let count = room.min(left) as usize;
            self.send(count, now_ns);
            pace.sent(count);
            let received = self.receive();
            behind.is = received.is_full;
            if received.inside > 0 {
                last_arrival_ns = now_ns;
                continue;
            }
            if count == 0 && now_ns - last_arrival_ns > GIVEN_UP_AFTER_NS {
                self.given_up = self.next;
                last_arrival_ns = now_ns;
            }
            // At a steady rate there always is a packet to send.
            if count == 0 || self.devices.takes_turns() && rate.is_some() {
                self.devices.give_way();
            }
        };
        self.drain();
        let sending_ns = end_ns - begin_ns;
        let refused = self.devices.refused() - refused;
        Stage {
            seconds: sending_ns as f64 / 1e9,
            tx: self.next - first - refused,
            reflected: self.reflected - reflected,
            tally: self.tally().since(&tally),
            refused,
            generator_behind: behind.total_ns as f64 / sending_ns.max(1) as f64,
        }
    }

    /// Packets in flight: those sent after the last one that returned. All take one path, and none overtakes
    /// another.
    fn in_flight(&self) -> u64 {
        self.next.saturating_sub(self.judge.next_number().max(self.given_up))
    }

    /// Packets that have not returned.
    fn missing(&self) -> u64 {
        self.tally().lost(self.next)
    }

    /// Packets that are not in flight and did not return.
    pub fn lost(&self) -> u64 {
        self.missing().saturating_sub(self.in_flight())
    }

    fn send(&mut self, count: usize, now_ns: u64) {
        for _ in 0..count {
            let len = self.traffic.write(self.next, now_ns, &mut self.frame[ETHERNET..]);
            self.devices.send(&self.frame[..ETHERNET + len]);
            self.next += 1;
        }
    }

    /// Receives at most one burst of waiting frames from both devices.
    fn receive(&mut self) -> Received {
        let Generator { devices, judge, reflected, clock, .. } = self;
        let turn_back = |frame: &mut [u8]| {
            let Some((macs, packet)) = frame.split_at_mut_checked(ETHERNET) else { return false };
            let turns = reflect(packet);
            let (to, from) = macs.split_at_mut(6);
            to.swap_with_slice(&mut from[..6]);
            *reflected += u64::from(turns);
            turns
        };
        // The first frame reads the clock, for the whole burst.
        let mut now_ns = None;
        devices.receive(turn_back, |frame| {
            let now_ns = *now_ns.get_or_insert_with(|| clock.elapsed().as_nanos() as u64);
            judge.packet(now_ns, frame.get(ETHERNET..).unwrap_or_default());
        })
    }

    /// Receives until all packets have returned, or none has returned for a while.
    fn drain(&mut self) {
        let mut last = (self.reflected, self.missing());
        let mut since = Instant::now();
        while self.missing() > 0 {
            let patience = if self.in_flight() > 0 { SILENCE } else { SHORT_SILENCE };
            if since.elapsed() > patience {
                break;
            }
            self.settle();
            let now = (self.reflected, self.missing());
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        self.given_up = self.next;
    }

    /// Receives a burst, and sleeps for a moment if nothing arrived inside.
    pub fn settle(&mut self) {
        if self.receive().inside == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Only receives for a time.
    pub fn idle(&mut self, time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            self.settle();
        }
    }
}

/// Time in which more packets waited for the generator than one burst: the generator was the limit. The time
/// with any packet waiting would say less, because frequent polling finds a few packets in most turns.
#[derive(Default)]
struct BehindTime {
    total_ns: u64,
    /// Start of the current turn.
    since_ns: u64,
    /// True if this turn found a full burst.
    is: bool,
}

impl BehindTime {
    /// Begins another turn.
    fn turn(&mut self, now_ns: u64) {
        if std::mem::take(&mut self.is) {
            self.total_ns += now_ns - self.since_ns;
        }
        self.since_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Protocols, Sizes, Spec};
    use std::collections::VecDeque;

    /// A cable that reflects frames, drops every `drop_every`th, and loses all before it opens.
    struct Cable {
        waiting: VecDeque<Vec<u8>>,
        sent: u64,
        closed_until: u64,
        drop_every: u64,
    }

    impl Devices for Cable {
        fn send(&mut self, frame: &[u8]) {
            self.sent += 1;
            if self.sent > self.closed_until && !self.sent.is_multiple_of(self.drop_every) {
                self.waiting.push_back(frame.to_vec());
            }
        }

        fn receive(
            &mut self,
            mut outside: impl FnMut(&mut [u8]) -> bool,
            mut inside: impl FnMut(&[u8]),
        ) -> Received {
            let count = self.waiting.len().min(64);
            for mut frame in self.waiting.drain(..count) {
                assert!(outside(&mut frame));
                inside(&frame);
            }
            Received { inside: count, is_full: count == 64 }
        }

        fn refused(&self) -> u64 {
            0
        }
    }

    fn generator(closed_until: u64, drop_every: u64) -> Generator<Cable> {
        let spec = Spec {
            family: Family::V6,
            subscribers: 7,
            flows_per_subscriber: 3,
            protocols: Protocols::Mixed,
            sizes: Sizes::Imix,
            seed: 5,
        };
        let cable = Cable { waiting: VecDeque::new(), sent: 0, closed_until, drop_every };
        Generator::new(cable, Traffic::new(spec), [2; 6], [4; 6])
    }

    #[test]
    fn no_counter_includes_the_probes_that_wait_for_an_open_path() {
        let mut generator = generator(3, u64::MAX);
        assert!(generator.wait_until_open(Duration::from_secs(5)));
        assert_eq!(generator.tally(), &Tally::default());
        let stage = generator.stage(Load::InFlight(16), Until::Packets(500), |_, _, _| true);
        assert_eq!((stage.tx, stage.tally.received, stage.reflected, stage.lost()), (500, 500, 500, 0));
        assert_eq!((stage.tally.damaged(), stage.tally.foreign), (0, 0));
    }

    #[test]
    fn lost_packets_of_a_stage_are_counted_in_it_alone() {
        let mut generator = generator(0, 10);
        let first = generator.stage(Load::InFlight(16), Until::Packets(100), |_, _, _| true);
        assert_eq!((first.tx, first.lost()), (100, 10));
        generator.devices.drop_every = u64::MAX;
        let mut turns = 0;
        let second = generator.stage(Load::Rate(1e6), Until::Elapsed(Duration::from_secs(9)), |_, _, _| {
            turns += 1;
            turns < 200
        });
        assert!(second.tx > 0 && second.lost() == 0 && second.seconds < 9.0, "{second:?}");
        assert_eq!(generator.lost(), 10);
    }
}
