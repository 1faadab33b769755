//! Distance between the two processors of a run. The host of a virtual machine moves them: within one core
//! complex, a cache line takes about 50 ns to the other processor and back; between two complexes, six times
//! that. Rates and delays follow.

use crate::processors::{last_processor, processors};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Round trips of the line for one sample.
const TURNS: u32 = 1_000;
/// Samples, whose median is the result.
const SAMPLES: usize = 15;
/// Time limit of the measurement: while another program runs on one of the processors, the line waits for
/// the scheduler.
const LONGEST: Duration = Duration::from_millis(300);

/// Median time of a cache line from the first processor to the last and back; `None` if there is only one,
/// or another program occupies it.
pub(crate) fn line_round_trip() -> Option<Duration> {
    let first = *processors().first()?;
    (first != last_processor()).then(|| between(first, last_processor()))?
}

fn between(here: usize, there: usize) -> Option<Duration> {
    let (line, deadline) = (AtomicU32::new(0), Instant::now() + LONGEST);
    std::thread::scope(|scope| {
        scope.spawn(|| play(&line, there, 1, deadline));
        let at_home = scope.spawn(|| play(&line, here, 0, deadline));
        at_home.join().ok().flatten()
    })
}

/// Increments the line's number whenever it has this parity; returns the median of its samples.
fn play(line: &AtomicU32, processor: usize, parity: u32, deadline: Instant) -> Option<Duration> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    rustix::thread::sched_setaffinity(None, &set).ok()?;
    let mut samples = Vec::with_capacity(SAMPLES);
    let mut next = parity;
    for _ in 0..SAMPLES {
        let begin = Instant::now();
        for _ in 0..TURNS {
            let mut looks = 0u32;
            while line.load(Ordering::Acquire) != next {
                looks += 1;
                // Checked seldom, because reading the clock takes as long as the measured step.
                if looks.is_multiple_of(4096) && Instant::now() > deadline {
                    return None;
                }
            }
            line.store(next + 1, Ordering::Release);
            next += 2;
        }
        samples.push(begin.elapsed() / TURNS);
    }
    samples.sort_unstable();
    samples.get(SAMPLES / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_some_time_between_two_processors() {
        match line_round_trip() {
            Some(time) => assert!((Duration::from_nanos(5)..LONGEST).contains(&time), "{time:?}"),
            None => println!("NOT RUN HERE: one processor, or another program had it"),
        }
    }
}
