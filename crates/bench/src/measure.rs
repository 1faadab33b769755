//! What every measurement needs: time, memory, and the middle of many values.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The middle one; zero of none.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// To two digits behind the point.
pub(super) fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Memory of this process that is in RAM. Huge pages that were set aside are no part of what the kernel calls
/// resident; they are counted here.
pub(super) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    kilobytes(&status, "VmRSS:") + kilobytes(&status, "HugetlbPages:")
}

/// Memory that this machine could still give, huge pages set aside included.
pub(super) fn available_bytes() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free_pages = info.lines().find_map(|line| line.strip_prefix("HugePages_Free:")?.trim().parse().ok());
    kilobytes(&info, "MemAvailable:") + free_pages.unwrap_or(0u64) * kilobytes(&info, "Hugepagesize:")
}

/// The value of a line of /proc that counts in kB, in bytes; zero where there is no such line.
fn kilobytes(text: &str, name: &str) -> u64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(name));
    let value = rest.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    value.unwrap_or_default() * 1024
}

/// The processor's name.
pub(super) fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("unknown".into(), |(_, name)| name.to_owned())
}

/// Does the same with each of several things, one thread each, and waits for all. A single one is done right here, so
/// that nothing else runs, and allocates, beside it.
///
/// # Errors
/// The first error of any of them.
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
        // All are waited for, then the first error counts.
        let results: Vec<anyhow::Result<U>> = threads.into_iter().map(join).collect();
        results.into_iter().collect()
    })
}

/// Where workers wait for each other before what is measured, so that they do it at the same time. One that has
/// failed keeps nobody for long.
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

/// The processor's clock, and how quickly it ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    ghz: f64,
    /// What reading it twice takes.
    overhead: f64,
}

impl Clock {
    /// # Errors
    /// Where the machine has no such clock.
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

    /// Ticks a nanosecond.
    pub(super) fn ghz(&self) -> f64 {
        self.ghz
    }

    /// Ticks that something takes.
    ///
    /// # Errors
    /// Where the machine has no such clock.
    #[inline(always)]
    pub(super) fn time(&self, work: impl FnOnce()) -> anyhow::Result<f64> {
        let start = ticks()?;
        work();
        let passed = ticks()?.wrapping_sub(start) as f64;
        // A tick at least: the overhead is a median, too.
        Ok((passed - self.overhead).max(1.0))
    }
}

#[inline(always)]
fn ticks() -> anyhow::Result<u64> {
    gatun_mem::cycles()
        .ok_or_else(|| anyhow::anyhow!("this machine has no cycle counter that programs may read"))
}

/// A bar on the terminal, where there is one; it goes away at the end.
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
    fn the_median_is_the_middle_one_whatever_the_order() {
        assert_eq!(median(vec![9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(vec![]), 0.0);
    }

    #[test]
    fn memory_that_is_touched_becomes_resident() {
        const BYTES: usize = 128 << 20;
        let before = resident_bytes();
        let memory = vec![1u8; BYTES];
        let grown = resident_bytes().saturating_sub(before);
        assert!(memory[BYTES - 1] == 1 && grown > BYTES as u64 / 2, "{grown}");
        assert!(available_bytes() > 0);
    }

    #[test]
    fn a_worker_that_fails_fails_all_and_keeps_nobody_waiting() {
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
    fn workers_leave_the_line_together_time_and_again() {
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
