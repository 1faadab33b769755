//! `gatun-bench study`: comparison of data structures for translations. It repeats "Analysis of high
//! performance software NAT design approaches" (Plotnikov, 2015) on this machine. The candidates are those of
//! 2015, from linear search to buckets of a cache line, and Gatun's own table.
//!
//! The cost of a packet here is the cost of its table: find the translation, note the time, and get the
//! outside address; or find that there is none, and insert it. Headers and checksums cost the same for every
//! table and are left out. Keys are inside IPv4 addresses and ports, records have 20 bytes, as in 2015.
//! Memory is touched before the measurement.

mod binary_tree;
mod chained;
mod gatun_index;
mod linear;
mod lines;
mod ordered_map;
mod red_black;
mod report;
mod run;
mod table;
mod tree;

use super::measure::{Clock, available_bytes, cpu_model, progress};
use report::{ParallelPoint, Point, Report};
use run::{Effort, Job, Sample, shuffled};
use std::collections::BTreeSet;
use std::path::PathBuf;
use table::Table;

/// Memory that is left for other programs.
const SPARE_BYTES: u64 = 2 << 30;

const EXAMPLES: &str = "\
Examples:
  gatun-bench study --svg study.svg --csv study.csv      some minutes
  gatun-bench study --quick                              seconds
  gatun-bench study --largest 1048576 --threads 4

Cycles are those of the time stamp counter. Figures are medians. Run nothing else meanwhile.
";

/// `gatun-bench study`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Translations of the smallest table; each following one has four times as many
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    smallest: u32,
    /// Translations of the largest table [default: 16777216, quick: 4096]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 26))]
    largest: Option<u32>,
    /// Largest number of threads, each with its own table [default: number of cores]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: Option<u64>,
    /// Translations of each thread's table in the comparison of threads [default: 1048576, quick: 4096]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 26))]
    entries_per_thread: Option<u32>,
    /// Small tables and few packets: takes seconds, shows that the command works; its figures are rough
    #[arg(long)]
    quick: bool,
    /// Also write all figures to a CSV file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also draw the figures
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
}

impl Args {
    fn sizes(&self) -> Vec<u32> {
        let largest = self.largest.unwrap_or(if self.quick { 4096 } else { 1 << 24 });
        std::iter::successors(Some(self.smallest), |n| n.checked_mul(4))
            .take_while(|&n| n <= largest)
            .collect()
    }

    fn effort(&self) -> Effort {
        match self.quick {
            true => Effort { slices: 9, creations_min: 16_384 },
            false => Effort { slices: 101, creations_min: 1 << 18 },
        }
    }

    /// Numbers of threads: 1, 2, 4 and so on, and the largest one.
    fn thread_counts(&self) -> Vec<u64> {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let most = self.threads.unwrap_or(cores);
        let doubled = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|&n| n < most);
        doubled.chain([most]).collect()
    }
}

/// Structure in the comparison.
#[derive(Clone, Copy)]
struct Entrant {
    name: &'static str,
    bursts: bool,
    /// Largest number of translations; larger tables would take hours.
    largest: u32,
    measure: fn(&Job<'_>) -> anyhow::Result<Sample>,
    threads: fn(&Job<'_>, u64) -> anyhow::Result<f64>,
    bytes: fn(u32) -> u64,
}

impl Entrant {
    const fn new<T: Table>(name: &'static str, bursts: bool) -> Entrant {
        let (measure, threads, bytes) = (run::measure::<T>, run::threads::<T>, T::bytes);
        Entrant { name, bursts, largest: u32::MAX, measure, threads, bytes }
    }

    const fn up_to(self, largest: u32) -> Entrant {
        Entrant { largest, ..self }
    }
}

/// Structures in the order of the report.
const ENTRANTS: [Entrant; 12] = [
    Entrant::new::<linear::LinearProbing>("linear search", false).up_to(1 << 16),
    Entrant::new::<binary_tree::BinaryTree>("binary tree", false),
    Entrant::new::<red_black::RedBlackTree>("red-black tree", false),
    Entrant::new::<ordered_map::OrderedMap>("BTreeMap", false),
    Entrant::new::<chained::ChainedTable>("chained hash", false),
    Entrant::new::<chained::ChainedTable>("chained hash, bursts", true),
    Entrant::new::<lines::Lines<2>>("lines of 2", false),
    Entrant::new::<lines::Lines<2>>("lines of 2, bursts", true),
    Entrant::new::<lines::Lines<3>>("lines of 3", false),
    Entrant::new::<lines::Lines<3>>("lines of 3, bursts", true),
    Entrant::new::<gatun_index::GatunIndex>("Gatun", false),
    Entrant::new::<gatun_index::GatunIndex>("Gatun, bursts", true),
];

/// Runs `gatun-bench study`.
///
/// # Errors
/// Returns an error if a structure gives a wrong answer, or a file cannot be written.
pub(super) fn execute(args: &Args) -> anyhow::Result<()> {
    anyhow::ensure!(!args.sizes().is_empty(), "--smallest is larger than --largest");
    let report = measure(args)?;
    if let Some(file) = &args.csv {
        std::fs::write(file, report.csv())?;
    }
    if let Some(file) = &args.svg {
        std::fs::write(file, report.svg())?;
    }
    match args.json {
        true => println!("{}", serde_json::to_string(&report)?),
        false => report.print(),
    }
    Ok(())
}

fn measure(args: &Args) -> anyhow::Result<Report> {
    let clock = Clock::new()?;
    let sizes = args.sizes();
    let steps = (sizes.len() + args.thread_counts().len()) * ENTRANTS.len();
    let bar = progress(steps as u64, "study");
    let (mut points, mut left_out) = (Vec::new(), BTreeSet::new());
    for &entries in &sizes {
        let order = shuffled(entries);
        for entrant in ENTRANTS {
            bar.set_message(format!("{}, {entries} translations", entrant.name));
            bar.inc(1);
            if let Some(why) = why_not(&entrant, entries, 1) {
                left_out.insert(why);
                continue;
            }
            let job = Job { entries, order: &order, bursts: entrant.bursts, effort: args.effort(), clock };
            let sample = (entrant.measure)(&job).map_err(|e| e.context(entrant.name))?;
            let bytes_per_entry = (entrant.bytes)(entries) as f64 / f64::from(entries);
            points.push(Point::new(entrant.name, entries, sample, bytes_per_entry, clock));
        }
    }
    let together = compare_threads(args, clock, &bar, &mut left_out)?;
    bar.finish_and_clear();
    Ok(Report { cpu: cpu_model(), ghz: clock.ghz(), points, together, left_out })
}

/// Measures each structure with increasing numbers of threads.
fn compare_threads(
    args: &Args,
    clock: Clock,
    bar: &indicatif::ProgressBar,
    left_out: &mut BTreeSet<String>,
) -> anyhow::Result<Vec<ParallelPoint>> {
    let entries = args.entries_per_thread.unwrap_or(if args.quick { 4096 } else { 1 << 20 });
    let order = shuffled(entries);
    let mut together = Vec::new();
    for entrant in ENTRANTS {
        for threads in args.thread_counts() {
            bar.set_message(format!("{}, {threads} threads", entrant.name));
            bar.inc(1);
            if let Some(why) = why_not(&entrant, entries, threads) {
                left_out.insert(why);
                continue;
            }
            let job = Job { entries, order: &order, bursts: entrant.bursts, effort: args.effort(), clock };
            let millions = (entrant.threads)(&job, threads).map_err(|e| e.context(entrant.name))?;
            together.push(ParallelPoint::new(entrant.name, threads, entries, millions));
        }
    }
    Ok(together)
}

/// Reason why a structure is not measured at a size, if there is one.
fn why_not(entrant: &Entrant, entries: u32, threads: u64) -> Option<String> {
    let needed = (entrant.bytes)(entries).saturating_mul(threads);
    let (name, largest) = (entrant.name, entrant.largest);
    if entries > largest {
        return Some(format!("{name} with more than {largest} translations: would take hours"));
    }
    (needed.saturating_add(SPARE_BYTES) > available_bytes()).then(|| {
        format!("{name} with {entries} translations, {threads} threads: needs {} MB of memory", needed >> 20)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &[&str]) -> Args {
        Line::parse_from(std::iter::once(&"study").chain(line)).args
    }

    #[test]
    fn sizes_grow_by_four_and_threads_by_two() {
        let args = args(&["--largest", "5000", "--threads", "6"]);
        assert_eq!(args.sizes(), [16, 64, 256, 1024, 4096]);
        assert_eq!(args.thread_counts(), [1, 2, 4, 6]);
        assert_eq!(self::args(&["--threads", "1"]).thread_counts(), [1]);
        assert_eq!(self::args(&["--threads", "2"]).thread_counts(), [1, 2]);
    }

    #[test]
    fn tables_that_take_hours_or_too_much_memory_are_left_out() {
        assert_eq!(why_not(&ENTRANTS[0], 1 << 16, 1), None);
        assert!(why_not(&ENTRANTS[0], 1 << 17, 1).unwrap().contains("hours"));
        assert!(why_not(&ENTRANTS[1], 1 << 26, 1 << 20).unwrap().contains("of memory"));
    }
}
