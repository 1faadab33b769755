//! Processor assignment: one per worker, the rest for other threads.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fmt;
use std::io;

/// Processor of a worker, by the system's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor(usize);

impl Processor {
    /// Pins the calling thread to this processor.
    ///
    /// # Errors
    /// Returns an error if the system refuses; the affinity of the thread stays unchanged.
    pub fn pin_thread(&self) -> io::Result<()> {
        let mut set = CpuSet::new();
        set.set(self.0);
        Ok(sched_setaffinity(None, &set)?)
    }
}

/// Processors that no worker uses. All processors, if workers use all of them.
#[derive(Clone, Copy, Debug)]
pub struct OtherProcessors(CpuSet);

impl OtherProcessors {
    /// Keeps the calling thread, and threads that it starts, off the workers' processors.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn pin_thread(&self) -> io::Result<()> {
        Ok(sched_setaffinity(None, &self.0)?)
    }

    /// Numbers of the processors.
    pub fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        numbers(&self.0)
    }
}

/// Division of the processors between workers and other threads.
#[derive(Clone, Debug)]
pub struct Processors {
    /// Processor of each worker, in order.
    pub workers: Vec<Processor>,
    /// Processors for all other threads.
    pub others: OtherProcessors,
}

impl Processors {
    /// Divides the processors that the process may use. `named` are the workers' processors, one each. If it
    /// is empty, workers get the last ones, because the first one handles most of the system's own work.
    ///
    /// # Errors
    /// Returns an error if `named` has the wrong length or contains an unavailable processor.
    pub fn divide(named: &[u16], workers: usize) -> Result<Processors, ProcessorError> {
        let allowed = sched_getaffinity(None).map_err(|error| ProcessorError::System(error.into()))?;
        if !named.is_empty() && named.len() != workers {
            return Err(ProcessorError::Number { named: named.len(), workers });
        }
        let there = |number: usize| number < CpuSet::MAX_CPU && allowed.is_set(number);
        if let Some(missing) = named.iter().find(|number| !there((**number).into())) {
            return Err(ProcessorError::Missing(*missing));
        }
        let mut last = numbers(&allowed).collect::<Vec<_>>().into_iter().rev().cycle();
        let chosen: Vec<usize> = match named.is_empty() {
            true => last.by_ref().take(workers).collect(),
            false => named.iter().map(|number| usize::from(*number)).collect(),
        };
        let mut others = allowed;
        chosen.iter().for_each(|number| others.unset(*number));
        let others = if others.count() == 0 { allowed } else { others };
        Ok(Processors {
            workers: chosen.into_iter().map(Processor).collect(),
            others: OtherProcessors(others),
        })
    }
}

fn numbers(set: &CpuSet) -> impl Iterator<Item = usize> + '_ {
    (0..CpuSet::MAX_CPU).filter(|number| set.is_set(*number))
}

/// Error of the division of processors.
#[derive(Debug)]
pub enum ProcessorError {
    /// The processor does not exist, or the process may not use it.
    Missing(u16),
    /// The number of named processors differs from the number of workers.
    Number {
        /// Named processors.
        named: usize,
        /// Workers.
        workers: usize,
    },
    /// The system call failed.
    System(io::Error),
}

impl fmt::Display for ProcessorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessorError::Missing(number) => write!(
                f,
                "processor {number} is not available: change `cores` in [workers] (`taskset -p $$` shows the available ones)"
            ),
            ProcessorError::Number { named, workers } => write!(
                f,
                "`cores` in [workers] lists {named} processors for {workers} workers: list one per worker, or set queues = {named} in [[port]]"
            ),
            ProcessorError::System(error) => write!(f, "cannot list the processors: {error}"),
        }
    }
}

impl std::error::Error for ProcessorError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn mine() -> Vec<usize> {
        numbers(&sched_getaffinity(None).unwrap()).collect()
    }

    #[test]
    fn workers_get_the_last_processors_and_share_them_if_there_are_too_few() {
        let all = mine();
        let one = Processors::divide(&[], 1).unwrap();
        assert_eq!(one.workers, [Processor(*all.last().unwrap())]);
        let left: Vec<usize> = one.others.numbers().collect();
        assert_eq!(left, if all.len() == 1 { &all[..] } else { &all[..all.len() - 1] });

        let many = Processors::divide(&[], all.len() + 1).unwrap();
        assert_eq!(many.workers.last(), many.workers.first());
        assert!(many.others.numbers().eq(all));
    }

    #[test]
    fn workers_use_the_named_processors() {
        let first = mine()[0] as u16;
        std::thread::spawn(move || {
            let named = Processors::divide(&[first], 1).unwrap();
            named.workers[0].pin_thread().unwrap();
            assert_eq!(mine(), [usize::from(first)]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn missing_processors_and_a_wrong_number_of_them_are_refused() {
        assert!(matches!(Processors::divide(&[1023], 1), Err(ProcessorError::Missing(1023))));
        let error = Processors::divide(&[0, 1, 2], 2).unwrap_err();
        assert!(error.to_string().contains("lists 3 processors for 2 workers"), "{error}");
    }
}
