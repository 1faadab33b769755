//! How far apart the two processors of a run are. The host of a virtual machine moves them about: within one core complex a
//! line of memory goes over and back in some 50 ns, between two in six times that, and rates and delays follow.

use crate::processors::{last_processor, processors};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Times that the line goes over and back, for one figure.
const TURNS: u32 = 1_000;
/// Figures that the median is of.
const SAMPLES: usize = 15;
/// How long all of it may take: where something else runs on one of them, the line waits for the scheduler.
const LONGEST: Duration = Duration::from_millis(300);

/// How long a line of memory takes from the first processor to the last and back, median; `None` where there is only one, or
/// another program has it.
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

/// Writes whenever the line's number is of its own parity; tells the median of its samples.
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
                // Seldom: it takes as long as what is measured.
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
