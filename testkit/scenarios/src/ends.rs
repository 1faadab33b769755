//! The two ends of a bed: the testkit's generator on the scenario's devices, with a sample of the counts
//! every half second.

use crate::bed::Bed;
use crate::wire::Wire;
use gatun_io::Stats;
use gatun_testkit::traffic::{Generator, Tally, Traffic, latencies};
pub(crate) use gatun_testkit::traffic::{Load, Until};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// Time limit for the first packet to return.
const OPEN_MAX: Duration = Duration::from_secs(20);

/// An interval of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// End of the interval, seconds since the start of the run.
    pub(crate) at_s: f64,
    pub(crate) stage: &'static str,
    /// Packets a second.
    pub(crate) tx_pps: f64,
    pub(crate) rx_pps: f64,
    /// Lost packets a second, found in this interval.
    pub(crate) lost_pps: f64,
    pub(crate) latency_us: Option<Latency>,
    /// Sessions of the translator at that time, if it could be asked.
    pub(crate) sessions: Option<u64>,
    /// Sessions ended on request, a second.
    pub(crate) kills_per_s: f64,
}

/// Round-trip times from the generator through the translator to the reflector and back, percentiles in
/// microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

impl Latency {
    /// Percentiles of a histogram; `None` if no packet returned.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Option<Latency> {
        let us = |share| quantile_us(histogram, share);
        Some(Latency { p50: us(0.5)?, p99: us(0.99)?, p999: us(0.999)?, max: us(1.0)? })
    }
}

/// The time in microseconds that this share of the packets does not exceed.
pub(crate) fn quantile_us(histogram: &Histogram<u64>, share: f64) -> Option<f64> {
    (!histogram.is_empty()).then(|| histogram.value_at_quantile(share) as f64 / 1e3)
}

/// Processor time of the middle for packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessorTime {
    /// Processor time for each packet, ns; both directions count.
    pub(crate) ns_each: f64,
    /// Share of the processor's time.
    pub(crate) share: f64,
}

/// Result of a stage.
#[derive(Clone, Debug)]
pub(crate) struct StageResult {
    pub(crate) seconds: f64,
    /// Packets sent and returned in this stage.
    pub(crate) tx: u64,
    pub(crate) rx: u64,
    pub(crate) latency: Histogram<u64>,
    /// Processor time of the middle, if it is known.
    pub(crate) middle: Option<ProcessorTime>,
    /// Share of the time in which more packets waited for the generator than one burst.
    pub(crate) generator_behind: f64,
}

impl StageResult {
    /// Processor time of the middle for each packet, ns; both directions count.
    pub(crate) fn ns_per_packet(&self) -> Option<f64> {
        self.middle.map(|middle| middle.ns_each)
    }

    /// Packets a second through the middle, both directions together.
    pub(crate) fn pps(&self) -> f64 {
        2.0 * self.rx as f64 / self.seconds
    }

    pub(crate) fn lost(&self) -> u64 {
        self.tx.saturating_sub(self.rx)
    }
}

/// Both ends of the bed.
pub(crate) struct Ends {
    generator: Generator<Wire>,
    samples: Vec<Sample>,
}

impl Ends {
    /// Opens both ends of a bed.
    pub(crate) fn new(bed: &Bed, traffic: Traffic) -> anyhow::Result<Ends> {
        Ends::open(bed, traffic, None)
    }

    /// Like [`new`](Self::new), with a generator that sleeps for `pause` when it has nothing to do, so that
    /// its polling takes little processor time.
    pub(crate) fn with_pause(bed: &Bed, traffic: Traffic, pause: Duration) -> anyhow::Result<Ends> {
        Ends::open(bed, traffic, Some(pause))
    }

    fn open(bed: &Bed, traffic: Traffic, pause: Option<Duration>) -> anyhow::Result<Ends> {
        let (wire, mac) = Wire::open(bed, traffic.spec().family, pause)?;
        Ok(Ends { generator: Generator::new(wire, traffic, mac, bed.middle_macs[0]), samples: Vec::new() })
    }

    /// Sends probes, which no counter includes, until one returns; returns true if one did.
    pub(crate) fn wait_until_open(&mut self) -> bool {
        self.generator.wait_until_open(OPEN_MAX)
    }

    /// Packets sent so far, without those that the device refused.
    pub(crate) fn tx(&self) -> u64 {
        self.generator.tx()
    }

    /// Packets that the reflector sent back so far, with those that its device refused.
    #[cfg(feature = "dpdk")]
    pub(crate) fn reflected(&self) -> u64 {
        self.generator.reflected()
    }

    pub(crate) fn traffic(&self) -> &Traffic {
        self.generator.traffic()
    }

    pub(crate) fn tally(&self) -> &Tally {
        self.generator.tally()
    }

    /// Counters of the generator's and of the reflector's device.
    pub(crate) fn device_stats(&self) -> [Stats; 2] {
        self.generator.devices().stats()
    }

    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Receives a burst, and sleeps for a moment if nothing arrives.
    pub(crate) fn settle(&mut self) {
        self.generator.settle();
    }

    /// Sends until the stage is over, then waits for packets in flight. Calls `tell` about every tenth of a
    /// second with the completed share. It returns the number of sessions, if known, and the number of
    /// sessions ended on request.
    pub(crate) fn stage(
        &mut self,
        name: &'static str,
        load: Load,
        until: Until,
        mut tell: impl FnMut(f64) -> (Option<u64>, u64),
    ) -> StageResult {
        self.run(name, load, until, |share| (tell(share), false))
    }

    /// Sends until `is_over` returns true, then waits for packets in flight.
    pub(crate) fn stage_until(
        &mut self,
        name: &'static str,
        load: Load,
        is_over: impl Fn() -> bool,
    ) -> StageResult {
        self.run(name, load, Until::Packets(u64::MAX), |_| ((None, 0), is_over()))
    }

    /// Runs a stage. `tell` also returns true to end it.
    fn run(
        &mut self,
        name: &'static str,
        load: Load,
        until: Until,
        mut tell: impl FnMut(f64) -> ((Option<u64>, u64), bool),
    ) -> StageResult {
        let Ends { generator, samples } = self;
        let mut sampler = Sampler::new(generator, samples, name);
        let stage = generator.stage(load, until, |generator, now_ns, share| {
            let mut is_over = false;
            sampler.sample(generator, now_ns, || {
                let (told, over) = tell(share);
                is_over = over;
                told
            });
            !is_over
        });
        let latency = sampler.finish(generator, tell(1.0).0);
        StageResult {
            seconds: stage.seconds,
            tx: stage.tx,
            rx: stage.tally.received,
            latency,
            middle: None,
            generator_behind: stage.generator_behind,
        }
    }
}

/// Makes a sample for each interval of a stage.
struct Sampler<'s> {
    samples: &'s mut Vec<Sample>,
    stage: &'static str,
    last_ns: u64,
    told_ns: u64,
    tx: u64,
    rx: u64,
    lost: u64,
    kills: u64,
    /// Delays of the whole stage.
    latency: Histogram<u64>,
}

const INTERVAL_NS: u64 = 500_000_000;
const TELL_EVERY_NS: u64 = 100_000_000;

impl<'s> Sampler<'s> {
    fn new(ends: &Generator<Wire>, samples: &'s mut Vec<Sample>, stage: &'static str) -> Self {
        let now_ns = ends.now_ns();
        Sampler {
            samples,
            stage,
            last_ns: now_ns,
            told_ns: now_ns,
            tx: ends.tx(),
            rx: ends.tally().received,
            lost: ends.lost(),
            kills: 0,
            latency: latencies(),
        }
    }

    /// Makes a sample if an interval is over.
    fn sample(&mut self, ends: &mut Generator<Wire>, now_ns: u64, tell: impl FnOnce() -> (Option<u64>, u64)) {
        if now_ns - self.told_ns < TELL_EVERY_NS {
            return;
        }
        self.told_ns = now_ns;
        let told = tell();
        if now_ns - self.last_ns >= INTERVAL_NS {
            self.interval(ends, now_ns, told, 0);
        }
    }

    /// Makes a sample of the rest of a stage, unless the rest is only the wait for the last packets. Returns
    /// the delays of the whole stage.
    fn finish(mut self, ends: &mut Generator<Wire>, told: (Option<u64>, u64)) -> Histogram<u64> {
        let now_ns = ends.now_ns();
        self.interval(ends, now_ns, told, INTERVAL_NS / 2);
        self.latency
    }

    /// Makes a sample of the counts since the last interval, if that was more than `min_ns` ago.
    fn interval(
        &mut self,
        ends: &mut Generator<Wire>,
        now_ns: u64,
        (sessions, kills): (Option<u64>, u64),
        min_ns: u64,
    ) {
        let seconds = (now_ns - self.last_ns) as f64 / 1e9;
        let latency = ends.judge().take_latency();
        self.latency += &latency;
        let (tx, rx, lost) = (ends.tx(), ends.tally().received, ends.lost());
        if now_ns - self.last_ns > min_ns && (min_ns == 0 || tx > self.tx) {
            self.samples.push(Sample {
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
