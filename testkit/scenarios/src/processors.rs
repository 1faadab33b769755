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
