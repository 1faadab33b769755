//! The generator, the reflector and the judge: one thread that sends from the inside end, sends everything back at the
//! outside end, and judges what returns.

use crate::bed::Bed;
use crate::wire::{Came, Wire};
use gatun_io::Stats;
use gatun_testkit::traffic::{Family, Histogram, Judge, Pace, Tally, Traffic, View, reflect};
use serde::Serialize;
use std::time::{Duration, Instant};

const ETHERNET: usize = 14;
/// Packets at a time.
const BURST: usize = 32;
/// Where nothing came for so long, nothing is on its way.
const GIVEN_UP_AFTER_NS: u64 = 200_000_000;
/// How long nothing may come before a stage is at its end, where packets are on their way: whatever is in the middle may not have
/// been given a processor for so long.
const SILENCE: Duration = Duration::from_secs(2);
/// The same, where the last packet has come, and others have not.
const SHORT_SILENCE: Duration = Duration::from_millis(50);

/// How much is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// Packets a second.
    Rate(f64),
    /// As many as come back, with so many on their way at a time at most: the most that goes without loss.
    InFlight(u64),
}

/// When a stage is over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    Packets(u64),
    Elapsed(Duration),
}

/// An interval of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// End of the interval, seconds since the run's begin.
    pub(crate) at_s: f64,
    pub(crate) stage: &'static str,
    /// Packets a second.
    pub(crate) tx_pps: f64,
    pub(crate) rx_pps: f64,
    /// Packets that were found lost in it, a second.
    pub(crate) lost_pps: f64,
    pub(crate) latency_us: Option<Latency>,
    /// In the translator at that time, where it could be asked.
    pub(crate) sessions: Option<u64>,
    /// Ended on request, a second.
    pub(crate) kills_per_s: f64,
}

/// Percentiles of the time from the generator through the translator, the reflector and the translator back, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

impl Latency {
    pub(crate) fn of(histogram: &Histogram) -> Option<Latency> {
        let us = |share| histogram.quantile_ns(share).map(|ns| ns as f64 / 1e3);
        let max = histogram.max_ns() as f64 / 1e3;
        Some(Latency { p50: us(0.5)?, p99: us(0.99)?, p999: us(0.999)?, max })
    }
}

/// What packets cost in the middle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    /// Processor time for each packet, both directions alike, ns.
    pub(crate) ns_each: f64,
    /// The share of its processor's time that this was.
    pub(crate) share: f64,
}

/// What came out of a stage.
#[derive(Clone, Debug)]
pub(crate) struct StageResult {
    pub(crate) seconds: f64,
    /// Packets sent in it, and returned.
    pub(crate) tx: u64,
    pub(crate) rx: u64,
    pub(crate) latency: Histogram,
    /// What the program in the middle took for it, where it tells.
    pub(crate) middle: Option<Spent>,
    /// The share of the time in which more packets waited for the generator than it takes at a time.
    pub(crate) generator_behind: f64,
}

impl StageResult {
    /// Processor time in the middle for each packet, both directions alike, ns.
    pub(crate) fn ns_per_packet(&self) -> Option<f64> {
        self.middle.map(|middle| middle.ns_each)
    }

    /// Packets that the middle carried a second, both directions together.
    pub(crate) fn pps(&self) -> f64 {
        2.0 * self.rx as f64 / self.seconds
    }

    pub(crate) fn lost(&self) -> u64 {
        self.tx.saturating_sub(self.rx)
    }
}

/// Both ends of the bed.
pub(crate) struct Ends {
    wire: Wire,
    traffic: Traffic,
    judge: Judge,
    clock: Instant,
    /// Room for a frame, with its Ethernet header.
    frame: Vec<u8>,
    /// Number of the next packet.
    next: u64,
    reflected: u64,
    /// Packets below this number are not counted as on their way any more.
    given_up: u64,
    samples: Vec<Sample>,
}

impl Ends {
    /// Opens them on a bed.
    pub(crate) fn new(bed: &Bed, traffic: Traffic) -> anyhow::Result<Ends> {
        let (wire, mac) = Wire::open(bed, traffic.spec().family)?;
        let mut frame = vec![0; ETHERNET + traffic.packet_len_max()];
        frame[..6].copy_from_slice(&bed.middle_macs[0]);
        frame[6..12].copy_from_slice(&mac);
        let ethertype: u16 = if traffic.spec().family == Family::V6 { 0x86dd } else { 0x0800 };
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        Ok(Ends {
            wire,
            judge: Judge::new(&traffic, View::Returned),
            traffic,
            clock: Instant::now(),
            frame,
            next: 0,
            reflected: 0,
            given_up: 0,
            samples: Vec::new(),
        })
    }

    /// Packets that were sent: what the generator's own device did not take never was.
    pub(crate) fn tx(&self) -> u64 {
        self.next - self.wire.refused()
    }

    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    pub(crate) fn tally(&self) -> &Tally {
        self.judge.tally()
    }

    /// Counters of the generator's and of the reflector's device.
    pub(crate) fn device_stats(&self) -> [Stats; 2] {
        self.wire.stats()
    }

    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Sends until the stage is over, then waits until nothing comes any more. `tell` is called about every tenth of a second with
    /// the share that is done, and says how many sessions there are and how many were ended on request, where it knows.
    pub(crate) fn stage(
        &mut self,
        name: &'static str,
        load: Load,
        until: Until,
        mut tell: impl FnMut(f64) -> (Option<u64>, u64),
    ) -> StageResult {
        let begin_ns = self.now_ns();
        let (tx_before, rx_before) = (self.tx(), self.tally().received);
        let first = self.next;
        let rate = match load {
            Load::Rate(rate) => Some(rate),
            Load::InFlight(_) => None,
        };
        let mut pace = Pace::new(rate, begin_ns);
        let mut sampler = Sampler::new(self, name, begin_ns);
        let mut behind = Behind::default();
        let mut last_arrival_ns = begin_ns;
        let end_ns = loop {
            // Reading the clock is a good part of what a packet costs here: once for all that a turn does.
            let now_ns = self.now_ns();
            behind.turn(now_ns);
            let (done, all, left) = match until {
                Until::Packets(count) => (self.next - first, count, count.saturating_sub(self.next - first)),
                Until::Elapsed(length) => (now_ns - begin_ns, length.as_nanos() as u64, u64::MAX),
            };
            if done >= all {
                break now_ns;
            }
            let room = match load {
                Load::Rate(_) => pace.due(now_ns, BURST) as u64,
                Load::InFlight(max) => max.saturating_sub(self.in_flight()).min(BURST as u64),
            };
            let count = room.min(left) as usize;
            self.send(count, now_ns);
            pace.sent(count);
            let came = self.receive();
            behind.is = came.is_full;
            if came.inside > 0 {
                last_arrival_ns = now_ns;
            } else {
                if count == 0 && now_ns - last_arrival_ns > GIVEN_UP_AFTER_NS {
                    self.given_up = self.next;
                    last_arrival_ns = now_ns;
                }
                // At a steady rate there is always something to send.
                if count == 0 || self.wire.takes_turns() && rate.is_some() {
                    self.wire.give_way();
                }
            }
            sampler.sample(self, now_ns, || tell(done as f64 / all as f64));
        };
        let sending_ns = end_ns - begin_ns;
        self.drain();
        let latency = sampler.finish(self, tell(1.0));
        StageResult {
            seconds: sending_ns as f64 / 1e9,
            tx: self.tx() - tx_before,
            rx: self.tally().received - rx_before,
            latency,
            middle: None,
            generator_behind: behind.total_ns as f64 / sending_ns.max(1) as f64,
        }
    }

    fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    /// Packets that are on their way: those that were sent after the last one that came back, as there is one way, and
    /// nothing overtakes on it.
    fn in_flight(&self) -> u64 {
        self.next.saturating_sub(self.judge.next_number().max(self.given_up))
    }

    /// Packets that have not come back.
    fn missing(&self) -> u64 {
        self.tally().lost(self.next)
    }

    /// Packets that will not come back.
    fn lost(&self) -> u64 {
        self.missing().saturating_sub(self.in_flight())
    }

    fn send(&mut self, count: usize, now_ns: u64) {
        for _ in 0..count {
            let len = self.traffic.write(self.next, now_ns, &mut self.frame[ETHERNET..]);
            self.wire.send(&self.frame[..ETHERNET + len]);
            self.next += 1;
        }
    }

    /// Takes what waits at both ends, a burst at most.
    fn receive(&mut self) -> Came {
        let Ends { wire, judge, reflected, clock, .. } = self;
        let turn_back = |frame: &mut [u8]| {
            let Some((macs, packet)) = frame.split_at_mut_checked(ETHERNET) else { return false };
            let turns = reflect(packet);
            let (to, from) = macs.split_at_mut(6);
            to.swap_with_slice(&mut from[..6]);
            *reflected += u64::from(turns);
            turns
        };
        // The clock is read once, when the first one is there.
        let mut now_ns = None;
        wire.receive(turn_back, |frame| {
            let now_ns = *now_ns.get_or_insert_with(|| clock.elapsed().as_nanos() as u64);
            judge.packet(now_ns, frame.get(ETHERNET..).unwrap_or_default());
        })
    }

    /// Takes what comes until everything has come, or nothing has for a while.
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

    /// Takes what has come, without a hurry.
    pub(crate) fn settle(&mut self) {
        if self.receive().inside == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// How much of its time more waited for the generator than it takes at a time: then it is what is waited for. Whether there was
/// anything to do would say less, as one that looks often finds some packets in most turns.
#[derive(Default)]
struct Behind {
    total_ns: u64,
    /// When the turn at hand began, and whether it found as much as it takes.
    since_ns: u64,
    is: bool,
}

impl Behind {
    /// Another turn begins.
    fn turn(&mut self, now_ns: u64) {
        if std::mem::take(&mut self.is) {
            self.total_ns += now_ns - self.since_ns;
        }
        self.since_ns = now_ns;
    }
}

/// Makes an interval's sample of what was counted since the last one.
struct Sampler {
    stage: &'static str,
    last_ns: u64,
    told_ns: u64,
    tx: u64,
    rx: u64,
    lost: u64,
    kills: u64,
    /// Of the whole stage.
    latency: Histogram,
}

const INTERVAL_NS: u64 = 500_000_000;
const TELL_EVERY_NS: u64 = 100_000_000;

impl Sampler {
    fn new(ends: &mut Ends, stage: &'static str, now_ns: u64) -> Sampler {
        let (tx, rx) = (ends.next, ends.tally().received);
        let latency = Histogram::default();
        Sampler { stage, last_ns: now_ns, told_ns: now_ns, tx, rx, lost: ends.lost(), kills: 0, latency }
    }

    /// Looks whether an interval is over.
    fn sample(&mut self, ends: &mut Ends, now_ns: u64, tell: impl FnOnce() -> (Option<u64>, u64)) {
        if now_ns - self.told_ns < TELL_EVERY_NS {
            return;
        }
        self.told_ns = now_ns;
        let told = tell();
        if now_ns - self.last_ns >= INTERVAL_NS {
            self.interval(ends, now_ns, told, 0);
        }
    }

    /// What is left at a stage's end, of which waiting for stragglers is no interval of its own. Returns the delays of the whole
    /// stage.
    fn finish(mut self, ends: &mut Ends, told: (Option<u64>, u64)) -> Histogram {
        let now_ns = ends.now_ns();
        self.interval(ends, now_ns, told, INTERVAL_NS / 2);
        self.latency
    }

    /// Counts since the last one, which are a sample where that was longer ago than `min_ns`.
    fn interval(&mut self, ends: &mut Ends, now_ns: u64, (sessions, kills): (Option<u64>, u64), min_ns: u64) {
        let seconds = (now_ns - self.last_ns) as f64 / 1e9;
        let latency = ends.judge.take_latency();
        self.latency.merge(&latency);
        let (tx, rx, lost) = (ends.next, ends.tally().received, ends.lost());
        if now_ns - self.last_ns > min_ns && (min_ns == 0 || tx > self.tx) {
            ends.samples.push(Sample {
                at_s: now_ns as f64 / 1e9,
                stage: self.stage,
                tx_pps: (tx - self.tx) as f64 / seconds,
                rx_pps: (rx - self.rx) as f64 / seconds,
                lost_pps: lost.saturating_sub(self.lost) as f64 / seconds,
                latency_us: Latency::of(&latency),
                sessions,
                kills_per_s: kills.saturating_sub(self.kills) as f64 / seconds,
            });
        }
        (self.last_ns, self.tx, self.rx, self.lost, self.kills) = (now_ns, tx, rx, lost, kills);
    }
}
