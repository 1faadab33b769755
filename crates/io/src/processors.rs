//! A processor for each worker, and the rest for whatever else the process does.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fmt;
use std::io;

/// A worker's processor, by the system's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor(usize);

impl Processor {
    /// Keeps the calling thread on this one.
    ///
    /// # Errors
    /// Where the system refuses; the thread goes on where it was.
    pub fn stay(&self) -> io::Result<()> {
        let mut set = CpuSet::new();
        set.set(self.0);
        Ok(sched_setaffinity(None, &set)?)
    }
}

/// The processors that are no worker's; all of them where workers have all.
#[derive(Clone, Copy, Debug)]
pub struct Others(CpuSet);

impl Others {
    /// Keeps the calling thread, and those that it starts, off the workers' processors.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn stay(&self) -> io::Result<()> {
        Ok(sched_setaffinity(None, &self.0)?)
    }

    /// Their numbers.
    pub fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        numbers(&self.0)
    }
}

/// Processors: of the workers, and for everything else.
#[derive(Clone, Debug)]
pub struct Processors {
    /// One for each worker, in order.
    pub workers: Vec<Processor>,
    /// Those for everything else.
    pub others: Others,
}

impl Processors {
    /// Divides those that the process may use. `named`: the workers', one for each; none: the last ones, as the first one
    /// has most of what the system does for itself.
    ///
    /// # Errors
    /// Where these are too few or too many, or not there.
    pub fn divide(named: &[u16], workers: usize) -> Result<Processors, Undividable> {
        let allowed = sched_getaffinity(None).map_err(|error| Undividable::System(error.into()))?;
        if !named.is_empty() && named.len() != workers {
            return Err(Undividable::Number { named: named.len(), workers });
        }
        let there = |number: usize| number < CpuSet::MAX_CPU && allowed.is_set(number);
        if let Some(missing) = named.iter().find(|number| !there((**number).into())) {
            return Err(Undividable::Missing(*missing));
        }
        let mut last = numbers(&allowed).collect::<Vec<_>>().into_iter().rev().cycle();
        let chosen: Vec<usize> = match named.is_empty() {
            true => last.by_ref().take(workers).collect(),
            false => named.iter().map(|number| usize::from(*number)).collect(),
        };
        let mut others = allowed;
        chosen.iter().for_each(|number| others.unset(*number));
        let others = if others.count() == 0 { allowed } else { others };
        Ok(Processors { workers: chosen.into_iter().map(Processor).collect(), others: Others(others) })
    }
}

fn numbers(set: &CpuSet) -> impl Iterator<Item = usize> + '_ {
    (0..CpuSet::MAX_CPU).filter(|number| set.is_set(*number))
}

/// Why processors cannot be divided as asked for.
#[derive(Debug)]
pub enum Undividable {
    /// The process may not use this one, or there is none.
    Missing(u16),
    /// Not one for each worker.
    Number {
        /// As many are named.
        named: usize,
        /// As many there have to be.
        workers: usize,
    },
    /// The system does not tell which there are.
    System(io::Error),
}

impl fmt::Display for Undividable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Undividable::Missing(number) => write!(
                f,
                "there is no processor {number} for a worker: write others in `cores` of [workers] (`taskset -p $$` shows which there are)"
            ),
            Undividable::Number { named, workers } => write!(
                f,
                "`cores` of [workers] names {named}, and there are {workers} workers: write one processor for each, or queues = {named} in [[port]]"
            ),
            Undividable::System(error) => write!(f, "which processors there are is not known: {error}"),
        }
    }
}

impl std::error::Error for Undividable {}

#[cfg(test)]
mod tests {
    use super::*;

    fn mine() -> Vec<usize> {
        numbers(&sched_getaffinity(None).unwrap()).collect()
    }

    #[test]
    fn workers_get_the_last_processors_and_share_where_there_are_too_few() {
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
    fn named_processors_are_kept_to() {
        let first = mine()[0] as u16;
        std::thread::spawn(move || {
            let named = Processors::divide(&[first], 1).unwrap();
            named.workers[0].stay().unwrap();
            assert_eq!(mine(), [usize::from(first)]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn processors_that_are_not_there_and_another_number_than_workers_are_refused() {
        assert!(matches!(Processors::divide(&[1023], 1), Err(Undividable::Missing(1023))));
        let error = Processors::divide(&[0, 1, 2], 2).unwrap_err();
        assert!(error.to_string().contains("names 3, and there are 2 workers"), "{error}");
    }
}
