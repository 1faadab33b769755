//! Processors of this process: the generator has the first, the translator the last.

use std::sync::OnceLock;

/// All processors that this process could use at its start, in `taskset` form.
pub(crate) fn all_processors() -> String {
    processors().iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// The processors that this process could use at its start, lowest first.
pub(crate) fn processors() -> &'static [usize] {
    static PROCESSORS: OnceLock<Vec<usize>> = OnceLock::new();
    PROCESSORS.get_or_init(allowed_processors)
}

fn allowed_processors() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None);
    set.map(|set| (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
        .unwrap_or_default()
}

#[cfg(feature = "dpdk")]
pub(crate) fn first_processor() -> usize {
    processors().first().copied().unwrap_or(0)
}

/// A processor that is neither the first nor the last, if there are three.
#[cfg(feature = "dpdk")]
pub(crate) fn third_processor() -> Option<usize> {
    processors().get(1).copied().filter(|_| processors_count() > 2)
}

pub(crate) fn last_processor() -> usize {
    processors().last().copied().unwrap_or(0)
}

/// Number of processors that this process may use.
pub(crate) fn processors_count() -> usize {
    processors().len()
}

/// Pins this thread to the first processor.
pub(crate) fn stay_on_first_processor() {
    if let Some(first) = processors().first() {
        let mut set = rustix::thread::CpuSet::new();
        set.set(*first);
        // Without the pin, the results are worse but still true.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

/// Allows this thread all processors again: a thread starts with the pin of the one that made it.
pub(crate) fn leave_first_processor() {
    let mut set = rustix::thread::CpuSet::new();
    processors().iter().for_each(|processor| set.set(*processor));
    // With the pin, the results are worse but still true.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Time in which the machine's processors were busy since its start, seconds; `None` if /proc/stat cannot be
/// read. Includes all programs and the kernel, and excludes time that the host took.
pub(crate) fn busy_s() -> Option<f64> {
    busy_ticks(&std::fs::read_to_string("/proc/stat").ok()?)
        .map(|ticks| ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Number of the machine's processors, which [`busy_s`] counts.
pub(crate) fn machine_processors() -> usize {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let is_processor = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    stat.lines().filter(is_processor).count().max(1)
}

/// Sum of the columns user, nice, system, irq and softirq (proc(5)).
fn busy_ticks(stat: &str) -> Option<u64> {
    let columns = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = columns.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    [0, 1, 2, 5, 6].iter().map(|column| ticks.get(*column).copied()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_stolen_time_is_not_busy() {
        let stat = "cpu  1 20 300 4000 50000 600000 7000000 80000000 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(busy_ticks(stat), Some(7_600_321));
        assert_eq!(busy_ticks("intr 1\n"), None);
    }
}
