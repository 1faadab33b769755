//! `gatun-bench connections`: the measurements of RFC 9693 for stateful translators, with the engine in RAM:
//! maximum connection establishment and tear-down rates, capacity of the connection tracking table, and
//! throughput with N connections. One engine, one core, UDP, 4-tuples in pseudorandom order.
//!
//! RFC 9693 searches for the highest rate without loss on a wire. In RAM no packet is lost for lack of time:
//! the engine takes the next burst when it has finished one, so its rate is the highest one.

use super::driver::{Kind, Prepared, Setup};
use super::measure::{StartingLine, available_bytes, cpu_model, median, progress, resident_bytes, round};
use super::packets::Flows;
use super::plans::{Logged, Ports};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Table};
use gatun_nat::memory::TableBytes;
use gatun_testkit::plot::{Axes, Chart, Panel, Series, count};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Memory that is left for other programs.
const SPARE_BYTES: u64 = 3 << 30;
/// Packets of a round.
const BUFFERS: u64 = 16_384;
/// Connections per subscriber.
const EACH: u64 = 16;

const EXAMPLES: &str = "\
Examples:
  gatun-bench connections --svg connections.svg          some minutes
  gatun-bench connections --kind nat44 --sessions 1000,1000000 --json
  gatun-bench connections --quick                        seconds
";

/// `gatun-bench connections`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Kinds of translation, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nat64,nat44")]
    kind: Vec<Kind>,
    /// Numbers of connections, separated by commas; those that do not fit the memory are left out [default:
    /// 1000 to 65536000 by factors of 16, quick: 1000,4000]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(32..))]
    sessions: Vec<u32>,
    /// Bytes of the frame on the wire, as in `gatun-bench engine`
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(66..=1518))]
    frame: u64,
    /// Rounds of packets in each direction; the throughput is their median
    #[arg(long, default_value_t = 41, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Log every connection, mapping and block to the event ring, and read it
    #[arg(long)]
    events: bool,
    /// Few connections and packets: takes seconds, shows that the command works; its figures are rough
    #[arg(long)]
    quick: bool,
    /// Also draw the figures
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

impl Args {
    fn sizes(&self) -> Vec<u64> {
        const ALL: [u64; 5] = [1_000, 16_000, 256_000, 4_096_000, 65_536_000];
        match (self.sessions.is_empty(), self.quick) {
            (false, _) => self.sessions.iter().map(|&n| n.into()).collect(),
            (true, true) => vec![1_000, 4_000],
            (true, false) => ALL.to_vec(),
        }
    }

    fn setup(&self, kind: Kind, sessions: u64) -> Setup {
        Setup {
            kind,
            flows: Flows { count: sessions, subscribers: (sessions / EACH).max(1) },
            ports: Ports::default(),
            frame: self.frame as usize,
            buffers: BUFFERS,
            events: if self.events { Logged::All } else { Logged::None },
            feed: None,
            seed: 1,
        }
    }

    fn rounds(&self) -> u64 {
        if self.quick { self.rounds.min(5) } else { self.rounds }
    }
}

/// Results for one number of connections. Rates are millions per second.
#[derive(Clone, Debug, Serialize)]
struct Point {
    kind: Kind,
    connections: u64,
    /// Open connections before the first one was refused. Each was then validated by a packet from outside.
    capacity: u64,
    /// Maximum connection establishment rate of RFC 9693: every packet opens a connection.
    establishments: f64,
    /// The same for the slowest tenth: shows a table that stalls when it is nearly full.
    establishments_at_worst: f64,
    /// The same for the first time, when the kernel has to allocate each page of the tables.
    establishments_on_fresh_memory: f64,
    /// Packets of existing connections from inside.
    outbound: f64,
    /// Packets of existing connections from outside.
    inbound: f64,
    /// Connection tear-down rate: ended on request, in shuffled order.
    tear_downs: f64,
    /// Expired connections that the sweep ends.
    expiries: f64,
    bytes_per_connection: f64,
}

/// Selects a figure of a point.
type Figure = fn(&Point) -> f64;

/// All results.
#[derive(Debug, Serialize)]
struct Report {
    cpu: String,
    frame_bytes: u64,
    events: bool,
    points: Vec<Point>,
    left_out: Vec<String>,
}

/// Runs `gatun-bench connections`.
///
/// # Errors
/// Returns an error if an engine cannot be built, a translated packet is wrong, or a file cannot be written.
pub(super) fn execute(args: &Args) -> anyhow::Result<()> {
    anyhow::ensure!(!args.kind.contains(&Kind::Siit), "siit tracks no connections");
    let sizes = args.sizes();
    let bar = progress((args.kind.len() * sizes.len()) as u64, "connections");
    let (mut points, mut left_out) = (Vec::new(), Vec::new());
    for &kind in &args.kind {
        for &connections in &sizes {
            bar.set_message(format!("{kind:?}, {connections}"));
            let setup = args.setup(kind, connections);
            match short_of_memory(&setup)? {
                Some(why) => left_out.push(why),
                None => points.push(measure(setup, args.rounds())?),
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let (frame_bytes, events) = (args.frame, args.events);
    let report = Report { cpu: cpu_model(), frame_bytes, events, points, left_out };
    if let Some(file) = &args.svg {
        std::fs::write(file, report.chart().svg())?;
    }
    match args.json {
        true => println!("{}", serde_json::to_string(&report)?),
        false => report.print(),
    }
    Ok(())
}

/// Reason why a size is left out, if memory is short.
fn short_of_memory(setup: &Setup) -> anyhow::Result<Option<String>> {
    let tables = TableBytes::of(&setup.plan()?).map_err(|e| anyhow::anyhow!("{e}"))?;
    // Pool arrays of the other protocols are never touched; the bench's notes take 8 bytes per connection.
    let needed = tables.total() - tables.pools.iter().sum::<u64>() * 2 / 3 + setup.flows.count * 8;
    let short = needed.saturating_add(SPARE_BYTES) > available_bytes();
    let why =
        || format!("{:?} with {} connections: needs {} MB", setup.kind, setup.flows.count, needed >> 20);
    Ok(short.then(why))
}

/// Establishes connections, validates them, sends packets, tears connections down, and establishes them once
/// more.
fn measure(setup: Setup, rounds: u64) -> anyhow::Result<Point> {
    let connections = setup.flows.count;
    let prepared = Prepared::new(setup)?;
    let before = resident_bytes();
    let mut driver = prepared.start(Arc::new(StartingLine::new(1)))?;
    let fresh = driver.open()?;
    let resident = resident_bytes().saturating_sub(before);
    let capacity = driver.nat.occupancy().sessions as u64;
    driver.refuse_one_more()?;
    driver.validate_all()?;
    let rate = |packets: u64, time: Duration| packets as f64 * 1e3 / time.as_nanos().max(1) as f64;
    let (mut outbound, mut inbound) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        driver.now = driver.now.plus_ms(1);
        let chosen = driver.choose();
        outbound.push(rate(chosen.len() as u64, driver.outbound(&chosen, &[])?));
        let chosen = driver.choose();
        inbound.push(rate(chosen.len() as u64, driver.inbound(&chosen, &[])?));
    }
    // One half is ended on request, the other half expires.
    let half = connections / 2;
    let mut ending = Duration::ZERO;
    let shuffle = driver.flows().shuffle();
    let mut first = 0;
    while first < half {
        let n = BUFFERS.min(half - first);
        let flows: Vec<u64> = (first..first + n).map(|k| shuffle.at(k)).collect();
        ending += driver.end(&flows)?;
        first += n;
    }
    let expiring = driver.expire_all()?;
    let opened = driver.open()?;
    driver.finish()?;
    let all = |opened: &[(Duration, u64)]| rate(connections, opened.iter().map(|one| one.0).sum());
    let tenths = opened.chunks(opened.len().div_ceil(10)).map(|some| {
        let (time, n) = some.iter().fold((Duration::ZERO, 0), |(t, n), one| (t + one.0, n + one.1));
        rate(n, time)
    });
    Ok(Point {
        kind: setup.kind,
        connections,
        capacity,
        establishments: round(all(&opened)),
        establishments_at_worst: round(tenths.fold(f64::INFINITY, f64::min)),
        establishments_on_fresh_memory: round(all(&fresh)),
        outbound: round(median(outbound)),
        inbound: round(median(inbound)),
        tear_downs: round(rate(half, ending)),
        expiries: round(rate(connections - half, expiring)),
        bytes_per_connection: round(resident as f64 / connections as f64),
    })
}

impl Report {
    fn print(&self) {
        println!("{}, one core, frames of {} bytes in RAM; millions per second", self.cpu, self.frame_bytes);
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header([
            "kind",
            "connections",
            "capacity",
            "established",
            "at worst",
            "first time",
            "packets out",
            "packets in",
            "torn down",
            "expired",
            "bytes each",
        ]);
        for p in &self.points {
            let figure = |value: f64| Cell::new(format!("{value:.2}")).set_alignment(CellAlignment::Right);
            let number = |value: u64| Cell::new(value).set_alignment(CellAlignment::Right);
            table.add_row([
                Cell::new(format!("{:?}", p.kind).to_lowercase()),
                number(p.connections),
                number(p.capacity),
                figure(p.establishments),
                figure(p.establishments_at_worst),
                figure(p.establishments_on_fresh_memory),
                figure(p.outbound),
                figure(p.inbound),
                figure(p.tear_downs),
                figure(p.expiries),
                figure(p.bytes_per_connection),
            ]);
        }
        println!("{table}");
        self.left_out.iter().for_each(|why| println!("left out: {why}"));
    }

    fn chart(&self) -> Chart {
        let panel = |title: &str, lines: &[(&str, Figure)]| Panel {
            title: title.into(),
            axes: Axes::Logarithmic,
            x: "connections in the table".into(),
            y: "millions per second".into(),
            series: lines.iter().flat_map(|&(name, of)| self.lines(name, of)).collect(),
            mark: None,
            stages: Vec::new(),
        };
        let most = self.points.iter().map(|p| p.capacity).max().unwrap_or_default();
        Chart {
            title: "Connections and throughput (RFC 9693), the engine on one core".into(),
            notes: vec![
                format!("{}, frames of {} bytes in RAM, every packet checked.", self.cpu, self.frame_bytes),
                format!("Up to {} connections. gatun-bench connections", count(most as f64)),
            ],
            panels: vec![
                panel("packets of existing connections", &[("out", |p| p.outbound), ("in", |p| p.inbound)]),
                panel(
                    "establishment and tear-down of connections",
                    &[("established", |p| p.establishments), ("torn down", |p| p.tear_downs)],
                ),
            ],
        }
    }

    /// Lines of a figure, one for each kind.
    fn lines(&self, name: &str, of: Figure) -> Vec<Series> {
        let line = |kind: Kind| {
            let mine = self.points.iter().filter(|p| p.kind == kind);
            let points: Vec<(f64, f64)> = mine.map(|p| (p.connections as f64, of(p))).collect();
            let label = format!("{kind:?} {name}").to_uppercase();
            let label = label.replace(&name.to_uppercase(), name);
            let series = Series::new(&label, points.clone()).like(name).dashed(kind == Kind::Nat44);
            (!points.is_empty()).then_some(series)
        };
        [Kind::Nat64, Kind::Nat44].into_iter().filter_map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(kind: Kind) -> Setup {
        Setup {
            kind,
            flows: Flows { count: 3_000, subscribers: 100 },
            ports: Ports::default(),
            frame: 128,
            buffers: 1_024,
            events: Logged::All,
            feed: None,
            seed: 1,
        }
    }

    #[test]
    fn the_table_holds_exactly_its_configured_number() {
        for kind in [Kind::Nat64, Kind::Nat44] {
            let point = measure(setup(kind), 2).unwrap();
            assert_eq!((point.connections, point.capacity), (3_000, 3_000));
            let rates =
                [point.establishments, point.outbound, point.inbound, point.tear_downs, point.expiries];
            assert!(rates.iter().all(|&rate| rate > 0.0), "{point:?}");
            assert!(point.establishments_at_worst <= point.establishments, "{point:?}");
        }
    }

    #[test]
    fn sizes_that_do_not_fit_the_memory_are_left_out() {
        assert_eq!(short_of_memory(&setup(Kind::Nat64)).unwrap(), None);
        let flows = Flows { count: u32::MAX.into(), subscribers: 1 << 27 };
        // More public addresses than a pool may have are another error.
        assert!(short_of_memory(&Setup { flows, ..setup(Kind::Nat64) }).is_err());
    }

    #[test]
    fn a_line_is_drawn_for_each_kind_and_figure() {
        let points = vec![measure(setup(Kind::Nat64), 1).unwrap(), measure(setup(Kind::Nat44), 1).unwrap()];
        let report = Report { cpu: "x".into(), frame_bytes: 128, events: true, points, left_out: vec![] };
        let svg = report.chart().svg();
        for name in ["NAT64 out", "NAT44 out", "NAT64 in", "NAT64 established", "NAT44 torn down"] {
            assert!(svg.contains(&format!(">{name}</text>")), "{name}");
        }
    }
}
