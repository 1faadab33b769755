//! The scenarios.

pub(crate) mod backends;
pub(crate) mod carrier;
#[cfg(feature = "dpdk")]
mod carrier_switch;
pub(crate) mod cluster;
pub(crate) mod fastpath;
mod goals;
pub(crate) mod iperf;
pub(crate) mod ladder;
mod lag;
mod log_disk;
mod moves;
pub(crate) mod pair;
mod probe;
pub(crate) mod rfc8219;
pub(crate) mod thesis;
mod upgrade;

use crate::bed::Bed;
use crate::middle::Programs;
use crate::report::Report;
use gatun_testkit::traffic::{Family, Protocols, Sizes, Spec, Traffic};
use std::time::Duration;

/// Type of the cables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Over {
    /// veth, through AF_XDP.
    Veth,
    /// memif, through DPDK.
    Memif,
}

/// Settings of the command line; each scenario has its own defaults.
#[derive(Clone, Debug)]
pub(crate) struct RunOptions {
    pub(crate) programs: Programs,
    /// Length of the main stage.
    pub(crate) seconds: Option<f64>,
    pub(crate) subscribers: Option<u32>,
    pub(crate) flows: Option<u32>,
    pub(crate) sizes: Option<Sizes>,
    pub(crate) family: Family,
    /// Packets a second; without it, a window of packets in flight.
    pub(crate) rate: Option<f64>,
    /// Sessions ended a second.
    pub(crate) kills: Option<f64>,
    /// Runs as little as possible.
    pub(crate) brief: bool,
    /// Parallel streams of iperf3.
    pub(crate) streams: Option<Vec<u32>>,
    /// Measurements by iperf3.
    pub(crate) parts: Option<Vec<iperf::Part>>,
    /// Runs whose medians are reported.
    pub(crate) runs: Option<u32>,
    /// Texts in the names of the wanted rows; all rows if empty.
    pub(crate) rows: Vec<String>,
    /// Samples the functions that the processors execute.
    pub(crate) profile: bool,
    /// Names and commands of further translators.
    pub(crate) beside: Vec<(String, std::path::PathBuf)>,
    /// File of measurements that outlive the run.
    pub(crate) keep: Option<std::path::PathBuf>,
    /// Time after which no further measurement begins.
    pub(crate) time_max: Option<Duration>,
    /// Nodes of a cluster.
    pub(crate) nodes: Option<u8>,
    /// The boxes of a pair have the kernel fast path.
    pub(crate) fastpath: bool,
    pub(crate) over: Over,
    /// A P4 switch is in the middle.
    #[cfg(feature = "dpdk")]
    pub(crate) switch: bool,
    #[cfg(feature = "dpdk")]
    pub(crate) reflector: crate::memif::Reflector,
}

impl RunOptions {
    /// Length of the main stage.
    fn length(&self, default_s: f64) -> Duration {
        let default_s = if self.brief { 1.0 } else { default_s };
        Duration::from_secs_f64(self.seconds.unwrap_or(default_s).max(0.2))
    }

    /// Runs whose medians are reported, of a scenario with faults.
    fn runs(&self) -> u32 {
        self.runs.unwrap_or(if self.brief { 1 } else { 5 }).max(1)
    }

    /// Returns whether a row of this name is wanted.
    fn wants_row(&self, name: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|text| name.contains(text.as_str()))
    }

    /// Makes a bed for this traffic.
    fn bed(&self, traffic: &Traffic) -> anyhow::Result<Bed> {
        match self.over {
            Over::Veth => Ok(Bed::new(mtu_for(traffic)?)?),
            #[cfg(feature = "dpdk")]
            Over::Memif => Bed::of_memifs(
                traffic.packet_len_max() + 20 + gatun_testkit::traffic::LAYER_2,
                self.reflector,
            ),
            #[cfg(not(feature = "dpdk"))]
            Over::Memif => anyhow::bail!(
                "this program was built without DPDK: install libdpdk-dev, and build it with `--features dpdk`"
            ),
        }
    }

    fn traffic(&self, subscribers: u32, flows: u32, sizes: Sizes) -> Traffic {
        let subscribers = if self.brief { subscribers.min(128) } else { subscribers };
        Traffic::new(Spec {
            family: self.family,
            subscribers: self.subscribers.unwrap_or(subscribers),
            flows_per_subscriber: self.flows.unwrap_or(flows),
            protocols: Protocols::Mixed,
            sizes: self.sizes.unwrap_or(sizes),
            seed: 0x6174_756e,
        })
    }
}

/// Measurements in an order in which neighbours in time share the column: each run measures each column
/// through all rows, and every second run has the rows in reverse. So a machine that becomes slower or faster
/// favours no row.
fn turns<'a, C: Copy, R>(
    runs: u32,
    columns: &'a [C],
    rows: &'a [R],
) -> impl Iterator<Item = (u32, C, &'a R)> {
    let last = rows.len().wrapping_sub(1);
    (1..=runs).flat_map(move |run| {
        columns.iter().flat_map(move |column| {
            let nth = move |at: usize| if run % 2 == 0 { last - at } else { at };
            (0..rows.len()).map(move |at| (run, *column, &rows[nth(at)]))
        })
    })
}

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Its line in the help.
    summary: &'static str,
    pub(crate) run: fn(&RunOptions) -> anyhow::Result<Report>,
}

const fn scenario(
    name: &'static str,
    summary: &'static str,
    run: fn(&RunOptions) -> anyhow::Result<Report>,
) -> Scenario {
    Scenario { name, summary, run }
}

/// The carrier, by Gatun alone or with a P4 switch.
fn carrier(options: &RunOptions) -> anyhow::Result<Report> {
    #[cfg(feature = "dpdk")]
    if options.switch {
        return carrier_switch::run(options);
    }
    carrier::run(options)
}

/// All scenarios.
pub(crate) const ALL: [Scenario; 9] = [
    scenario("iperf", "iperf3 through Gatun and through other translators", iperf::run),
    scenario("carrier", "millions of sessions, every packet accounted for", carrier),
    scenario("ladder", "cost of a packet at each step", ladder::run),
    scenario("rfc8219", "throughput without loss, latency, frame loss, connection rate", rfc8219::run),
    scenario("fastpath", "the kernel fast path: cost of new connections, faults under load", fastpath::run),
    scenario("backends", "small packets, delays and memory of TUN, the fast path and AF_XDP", backends::run),
    scenario("pair", "two boxes with BIRD, and faults of one of them", pair::run),
    scenario("cluster", "nodes of a cluster with BIRD and etcd, and faults of all of them", cluster::run),
    scenario("thesis", "the benchmark of \"High speed NAT64 with P4\", in its tables' form", thesis::run),
];

/// List of the scenarios for the help.
pub(crate) fn list() -> String {
    let lines = ALL.iter().map(|scenario| format!("  {:8}  {}\n", scenario.name, scenario.summary));
    format!("Scenarios:\n{}  demo      see `lab/run demo --help`\n", lines.collect::<String>())
}

/// Share of the time from which on a translator with packets is the limit; even then it polls between
/// packets.
const BUSY: f64 = 0.9;
/// Share of the time from which on a generator that is behind is the limit.
const BEHIND: f64 = 0.5;

impl RunOptions {
    /// Notes which of the two processors limits the rate, from the share of the time in which the translator
    /// had packets, and the share in which the generator was behind. One thread is generator and judge,
    /// perhaps reflector too, and so can be the limit.
    fn tell_limits(&self, report: &mut Report, translator: f64, generator: f64) {
        (report.core_share, report.generator_behind) = (Some(translator), Some(generator));
        let limit = if generator >= BEHIND && translator >= BUSY {
            "Both processors are full: the packets a second are the translator's maximum, or slightly less."
        } else if generator >= BEHIND {
            "The generator's processor is the limit: the packets a second are the generator's maximum. The processor time per packet shows \
             the translator's capacity."
        } else if translator >= BUSY {
            "The translator's processor is the limit: the packets a second are its maximum."
        } else {
            "Neither processor alone is the limit: each waited for the other, for the reflector, or for other programs on \
             its processor. The processor time per packet shows the translator's capacity."
        };
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let (of_translator, of_generator) = (percent(translator), percent(generator));
        report.notes.push(format!(
            "{limit} The translator had packets in {of_translator} of the time, and the generator was behind (more than one burst \
             waited) in {of_generator}. {}",
            self.reflector()
        ));
    }

    #[cfg(feature = "dpdk")]
    fn reflector(&self) -> String {
        self.reflector.to_string()
    }

    #[cfg(not(feature = "dpdk"))]
    fn reflector(&self) -> String {
        String::new()
    }
}

/// MTU of the cables for this traffic: a packet that leaves as IPv4 may return as IPv6, 20 bytes longer.
fn mtu_for(traffic: &Traffic) -> anyhow::Result<usize> {
    let needed = traffic.packet_len_max() + 20;
    let mtu = needed.max(1500);
    anyhow::ensure!(
        mtu <= gatun_io_xdp::MTU_MAX as usize,
        "frames of {} bytes do not fit AF_XDP's buffers: at most {} bytes here",
        needed + gatun_testkit::traffic::LAYER_2 - 20,
        gatun_io_xdp::MTU_MAX as usize + gatun_testkit::traffic::LAYER_2 - 20,
    );
    Ok(mtu)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_second_run_has_the_rows_in_reverse() {
        let turns: Vec<_> = super::turns(2, &['x', 'y'], &["a", "b", "c"]).collect();
        let shown: Vec<String> =
            turns.iter().map(|(run, column, row)| format!("{run}{column}{row}")).collect();
        let expected = "1xa 1xb 1xc 1ya 1yb 1yc 2xc 2xb 2xa 2yc 2yb 2ya";
        assert_eq!(shown.join(" "), expected);
    }
}
