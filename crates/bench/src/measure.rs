//! Common parts of measurements: time, memory, and medians.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Median; zero for an empty list.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Rounds to two decimal places.
pub(super) fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Memory of this process in RAM, including reserved huge pages, which the kernel does not count as resident.
pub(super) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    kilobytes(&status, "VmRSS:") + kilobytes(&status, "HugetlbPages:")
}

/// Memory that this machine has available, including reserved huge pages.
pub(super) fn available_bytes() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free_pages = info.lines().find_map(|line| line.strip_prefix("HugePages_Free:")?.trim().parse().ok());
    kilobytes(&info, "MemAvailable:") + free_pages.unwrap_or(0u64) * kilobytes(&info, "Hugepagesize:")
}

/// Value in bytes of a line in kB of a /proc file; zero if the line is missing.
fn kilobytes(text: &str, name: &str) -> u64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(name));
    let value = rest.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    value.unwrap_or_default() * 1024
}

/// Model name of the processor.
pub(super) fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("unknown".into(), |(_, name)| name.to_owned())
}

/// Runs `work` for each item, in one thread each, and waits for all. A single item is processed in the
/// calling thread, so that nothing else runs and allocates meanwhile.
///
/// # Errors
/// The first error in the order of the items.
pub(super) fn each<T: Send, U: Send>(
    things: Vec<T>,
    work: impl Fn(T) -> anyhow::Result<U> + Sync,
) -> anyhow::Result<Vec<U>> {
    let work = &work;
    if things.len() == 1 {
        return things.into_iter().map(work).collect();
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = things.into_iter().map(|thing| scope.spawn(move || work(thing))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a worker panicked")))
        };
        // All threads are joined before the first error is returned.
        let results: Vec<anyhow::Result<U>> = threads.into_iter().map(join).collect();
        results.into_iter().collect()
    })
}

/// Barrier before a measurement, so that workers measure at the same time. A failed worker delays the others
/// only briefly.
#[derive(Debug)]
pub(super) struct StartingLine {
    workers: u64,
    arrived: AtomicU64,
}

impl StartingLine {
    const PATIENCE: Duration = Duration::from_millis(100);

    pub(super) fn new(workers: u64) -> Self {
        StartingLine { workers: workers.max(1), arrived: AtomicU64::new(0) }
    }

    pub(super) fn wait(&self) {
        let mine = self.arrived.fetch_add(1, Ordering::AcqRel);
        let all = (mine / self.workers + 1) * self.workers;
        let start = Instant::now();
        while self.arrived.load(Ordering::Acquire) < all && start.elapsed() < Self::PATIENCE {
            std::hint::spin_loop();
            std::thread::yield_now();
        }
    }
}

/// Cycle counter of the processor and its frequency.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    ghz: f64,
    /// Ticks of two readings.
    overhead: f64,
}

impl Clock {
    /// # Errors
    /// Returns an error if the machine has no such counter.
    pub(super) fn new() -> anyhow::Result<Clock> {
        const LONG: Duration = Duration::from_millis(50);
        let (start, first) = (Instant::now(), ticks()?);
        while start.elapsed() < LONG {
            std::hint::spin_loop();
        }
        let passed = ticks()?.wrapping_sub(first) as f64;
        let clock = Clock { ghz: passed / start.elapsed().as_nanos() as f64, overhead: 0.0 };
        let empty: anyhow::Result<Vec<f64>> = (0..1001).map(|_| clock.time(|| ())).collect();
        Ok(Clock { overhead: median(empty?), ..clock })
    }

    /// Ticks per nanosecond.
    pub(super) fn ghz(&self) -> f64 {
        self.ghz
    }

    /// Measures the ticks of `work`.
    ///
    /// # Errors
    /// Returns an error if the machine has no such counter.
    #[inline(always)]
    pub(super) fn time(&self, work: impl FnOnce()) -> anyhow::Result<f64> {
        let start = ticks()?;
        work();
        let passed = ticks()?.wrapping_sub(start) as f64;
        // At least one tick, because the overhead is a median too.
        Ok((passed - self.overhead).max(1.0))
    }
}

#[inline(always)]
fn ticks() -> anyhow::Result<u64> {
    gatun_mem::cycles()
        .ok_or_else(|| anyhow::anyhow!("this machine has no cycle counter that programs may read"))
}

/// Progress bar on the terminal, if there is one. It disappears at the end.
pub(super) fn progress(steps: u64, what: &'static str) -> indicatif::ProgressBar {
    let bar = indicatif::ProgressBar::new(steps).with_prefix(what);
    if let Ok(style) =
        indicatif::ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} {wide_msg} {elapsed}")
    {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_does_not_depend_on_the_order() {
        assert_eq!(median(vec![9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(vec![]), 0.0);
    }

    #[test]
    fn touched_memory_becomes_resident() {
        const BYTES: usize = 128 << 20;
        let before = resident_bytes();
        let memory = vec![1u8; BYTES];
        let grown = resident_bytes().saturating_sub(before);
        assert!(memory[BYTES - 1] == 1 && grown > BYTES as u64 / 2, "{grown}");
        assert!(available_bytes() > 0);
    }

    #[test]
    fn a_failing_worker_fails_the_run_without_blocking_others() {
        let line = StartingLine::new(2);
        let result = each(vec![1, 2], |n| {
            anyhow::ensure!(n == 1, "two");
            line.wait();
            Ok(n)
        });
        assert_eq!(result.unwrap_err().to_string(), "two");
        assert_eq!(each(vec![1, 2], |n| Ok(n * 2)).unwrap(), [2, 4]);
    }

    #[test]
    fn workers_leave_the_starting_line_together() {
        let (line, turns) = (StartingLine::new(3), AtomicU64::new(0));
        each(vec![(), (), ()], |()| {
            for turn in 0..20 {
                turns.fetch_add(1, Ordering::AcqRel);
                line.wait();
                anyhow::ensure!(turns.load(Ordering::Acquire) >= 3 * (turn + 1));
            }
            Ok(())
        })
        .unwrap();
    }
}
