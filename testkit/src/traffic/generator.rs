//! Generator, reflector and judge in one thread.
//!
//! ```text
//!   subscribers ---- inside ===> [ translator ] ===> outside ---- servers
//!    (sent here, and judged)                          (reflected at once)
//! ```
//! One thread does all of it, so that no clock is compared with another and nothing overtakes inside the generator.

use super::{Family, Judge, Pace, Tally, Traffic, View, reflect};
use std::time::{Duration, Instant};

const ETHERNET: usize = 14;
/// Packets sent at a time.
const BURST: usize = 32;
/// Silence after which no packet counts as in flight any more.
const GIVEN_UP_AFTER_NS: u64 = 200_000_000;
/// Silence that ends a stage while packets are in flight: the program in the middle may have had no processor for so long.
const SILENCE: Duration = Duration::from_secs(2);
/// Silence that ends a stage where the last packet has returned, and earlier ones have not.
const SHORT_SILENCE: Duration = Duration::from_millis(50);
/// Pause between two probes.
const PROBE_EVERY: Duration = Duration::from_millis(10);
/// Silence after which no further probe returns.
const PROBES_SETTLE: Duration = Duration::from_millis(50);

/// Frames received in one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Frames that arrived inside.
    pub inside: usize,
    /// Whether more may wait, as a burst was full.
    pub is_full: bool,
}

/// The generator's two devices. Frames begin with their Ethernet header.
pub trait Devices {
    /// Sends a frame inside.
    fn send(&mut self, frame: &[u8]);

    /// Takes a burst of waiting frames at most. `outside` changes a frame and tells whether it goes back.
    fn receive(&mut self, outside: impl FnMut(&mut [u8]) -> bool, inside: impl FnMut(&[u8])) -> Received;

    /// Gives way to other threads while there is nothing to do.
    fn give_way(&self) {
        std::hint::spin_loop();
    }

    /// Whether another program needs this thread's processor in order to reflect packets.
    fn takes_turns(&self) -> bool {
        false
    }

    /// Packets that the inside device refused: they were never sent.
    fn refused(&self) -> u64;
}

/// Amount of traffic.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// Packets a second.
    Rate(f64),
    /// A window: at most so many packets are in flight, and each that returns makes room for another.
    InFlight(u64),
}

/// End of a stage.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// So many packets have been sent.
    Packets(u64),
    /// So much time has passed.
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
    /// Packets that arrived, of this stage's time.
    pub tally: Tally,
    /// Packets that the inside device refused.
    pub refused: u64,
    /// Share of the time in which more packets waited for the generator than it takes at a time.
    pub generator_behind: f64,
}

impl Stage {
    /// Packets that were sent and have not returned.
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
    /// Room for a frame; its Ethernet header is written once.
    frame: Vec<u8>,
    /// Number of the next packet.
    next: u64,
    reflected: u64,
    /// Packets below this number do not count as in flight.
    given_up: u64,
}

impl<D: Devices> Generator<D> {
    /// A generator whose frames go from one MAC address to another.
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

    /// Its devices.
    pub fn devices(&self) -> &D {
        &self.devices
    }

    /// Its traffic.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Its judge.
    pub fn judge(&mut self) -> &mut Judge {
        &mut self.judge
    }

    /// Counts of what has returned so far.
    pub fn tally(&self) -> &Tally {
        self.judge.tally()
    }

    /// Packets sent so far, those left out that its device refused.
    pub fn tx(&self) -> u64 {
        self.next - self.devices.refused()
    }

    /// Nanoseconds since its beginning.
    pub fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    /// Sends probes until one returns; tells whether one did within `max`. Probes are in no count.
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

    /// Sends until the stage is over or `watch` returns false, then waits for packets in flight. `watch` is called each turn with
    /// the time and the share of the stage that is done.
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
        let mut behind = Behind::default();
        let mut last_arrival_ns = begin_ns;
        let end_ns = loop {
            // Reading the clock is a good part of a packet's cost here: one reading serves the whole turn.
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
            // At a steady rate there is always something to send.
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

    /// Packets in flight: those sent after the last one that returned, as all take one path, and none overtakes another.
    fn in_flight(&self) -> u64 {
        self.next.saturating_sub(self.judge.next_number().max(self.given_up))
    }

    /// Packets that have not returned.
    fn missing(&self) -> u64 {
        self.tally().lost(self.next)
    }

    /// Packets that will not return.
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

    /// Takes a burst of waiting frames at most, at both devices.
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
        // The clock is read once, with the first frame.
        let mut now_ns = None;
        devices.receive(turn_back, |frame| {
            let now_ns = *now_ns.get_or_insert_with(|| clock.elapsed().as_nanos() as u64);
            judge.packet(now_ns, frame.get(ETHERNET..).unwrap_or_default());
        })
    }

    /// Receives until all packets have returned, or none has for a while.
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

    /// Receives a burst, and sleeps for a moment where nothing arrives.
    pub fn settle(&mut self) {
        if self.receive().inside == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Sends nothing for a time, and receives.
    pub fn idle(&mut self, time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            self.settle();
        }
    }
}

/// Time during which more packets waited for the generator than it takes at a time, which makes it the limit. The time with any
/// packet at all would say less: one that polls often finds some packets in most turns.
#[derive(Default)]
struct Behind {
    total_ns: u64,
    /// Begin of the turn at hand.
    since_ns: u64,
    /// Whether this turn found a full burst.
    is: bool,
}

impl Behind {
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

    /// A cable that reflects in the middle, drops every so many frames, and is closed for the first ones.
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
    fn probes_open_the_way_and_are_in_no_count() {
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
