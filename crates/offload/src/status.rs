//! Status of the manager, for operators and metrics.

use hdrhistogram::Histogram;

/// Upper bounds of [`Latency::below`], in microseconds.
pub const LATENCY_BOUNDS: [u64; 8] = [1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000];

/// Times from a record that offers a session to its entry, in microseconds. The time that a record waited in
/// the feed is included as its upper bound: the time since the feed was last empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Number of entries.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
    /// Sum.
    pub sum: u64,
    /// Numbers of entries within each of [`LATENCY_BOUNDS`].
    pub below: [u64; LATENCY_BOUNDS.len()],
}

impl Latency {
    pub(crate) fn of(histogram: &Histogram<u64>, sum: u64) -> Latency {
        Latency {
            count: histogram.len(),
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            max: histogram.max(),
            sum,
            below: LATENCY_BOUNDS.map(|bound| histogram.count_between(0, bound)),
        }
    }
}

/// Numbers of the manager. Those without another note only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Gauge: entries in the target.
    pub entries: u32,
    /// Gauge: maximum number of entries.
    pub capacity: u32,
    /// Entries installed.
    pub installed: u64,
    /// Entries of an earlier process that were taken over.
    pub adopted: u64,
    /// Entries of an earlier process that were removed because they had no session, or another one.
    pub adopted_removed: u64,
    /// Entries removed.
    pub removed: u64,
    /// Entries removed for other flows, because the table was full: idle ones, and much slower ones.
    pub evicted: u64,
    /// Flows not installed: the table was full, and had neither an idle entry nor a much slower one.
    pub refused_full: u64,
    /// Flows not installed: the table had no place for them.
    pub refused_crowded: u64,
    /// Flows not installed: another entry had the same packets.
    pub refused_exists: u64,
    /// Flows not installed: the target did not take any.
    pub refused_unready: u64,
    /// Flows not installed for another reason of the target.
    pub refused_other: u64,
    /// Last other reason of the target.
    pub last_refusal: String,
    /// Sessions that were not marked because they had ended, or were not offered any more.
    pub refused_by_engine: u64,
    /// Offered sessions that the settings exclude: other protocols, instances without offload.
    pub not_wanted: u64,
    /// Questions of the engines.
    pub asked: u64,
    /// Questions answered with a later end.
    pub seen: u64,
    /// Sessions released.
    pub released: u64,
    /// Credits sent, and the packets in them.
    pub credits: u64,
    /// Packets credited.
    pub credited_packets: u64,
    /// Packets that could not be credited, because the session or the worker was gone.
    pub uncredited_packets: u64,
    /// Walks over the sessions of an engine.
    pub walks: u64,
    /// Records that the feeds have lost.
    pub lost_records: u64,
    /// Entries that the target has lost.
    pub vanished: u64,
    /// Times when a worker's queue was full.
    pub busy: u64,
    /// Gauge: workers that have ended.
    pub ended_workers: u32,
    /// Gauge: time that the oldest commands have waited for an engine, ms.
    pub slowest_worker_ms: u64,
    /// Gauge: records that wait in the feeds.
    pub waiting_records: usize,
    /// Gauge: sessions whose mark is not confirmed.
    pub marking: usize,
    /// Gauge: flows that wait for their installation.
    pub waiting_installs: usize,
    /// Gauge: entries that wait for their removal, or for its confirmation by the target.
    pub waiting_removals: usize,
    /// Gauge: entries whose installation the target has not confirmed.
    pub unconfirmed: usize,
    /// Gauge: orders that wait for the engines, including those at hand.
    pub waiting_orders: usize,
    /// Gauge: duration of the last round of credits over all entries, ms.
    pub round_ms: u64,
    /// Gauge: true if entries are in the table that have not been compared with the sessions yet.
    pub reconciling: bool,
    /// Gauge: true if the settings allow entries.
    pub enabled: bool,
    /// Times from offer to entry.
    pub latency: Latency,
}

/// Histogram of times in microseconds up to a minute, with two significant digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 2).expect("the bounds are valid")
}
