//! Measurement of a structure: it is filled in random order and queried in random order; every answer is
//! checked.

use super::table::{BURST, Key, Outside, Table};
use crate::measure::{Clock, StartingLine, each, median};
use crate::packets::{below, mix};
use gatun_mem::hash::Hasher64;

/// Packets between two readings of the clock.
const SLICE: usize = 4096;
/// Number of parts of a filling whose medians are averaged: a packet delayed by another program affects one
/// of them.
const PARTS: usize = 16;
/// First inside address: 100.64.0.0/10. Each uses sixteen ports.
const INSIDE_FIRST: u32 = 0x6440_0000;
const PORTS_EACH: u32 = 16;

/// Amount of work of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Number of slices of look-ups; the figure is their median.
    pub(super) slices: usize,
    /// Number of creations up to which small tables are filled repeatedly.
    pub(super) creations_min: u32,
}

/// Measurement of a structure at one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'a> {
    pub(super) entries: u32,
    /// Numbers of all translations, shuffled.
    pub(super) order: &'a [u32],
    /// True if packets come in bursts, whose memory a structure may prefetch.
    pub(super) bursts: bool,
    pub(super) effort: Effort,
    pub(super) clock: Clock,
}

/// Cycles for one packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// First packet of a translation, while the table is filled.
    pub(super) create: f64,
    /// Further packet of any translation, with a full table.
    pub(super) look_up: f64,
}

/// Inside key of translation `i`.
fn key(i: u32) -> Key {
    Key::new(INSIDE_FIRST + i / PORTS_EACH, 1024 + (i % PORTS_EACH) as u16, 17)
}

/// Outside endpoint of translation `i`, computed without a table to check answers.
fn outside(i: u32) -> Outside {
    let random = mix(u64::from(i));
    Outside { address: 0xc612_0000 | (random as u32 & 0xffff), port: 1024 | (random >> 48) as u16 }
}

/// Numbers below `n`, shuffled (Fisher and Yates).
pub(super) fn shuffled(n: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, below(i as u64 + 1, mix(i as u64 ^ 0x5eed_0000_0000)) as usize);
    }
    order
}

/// Measures a structure.
///
/// # Errors
/// Returns an error if memory is short, or an answer is wrong.
pub(super) fn measure<T: Table>(job: &Job<'_>) -> anyhow::Result<Sample> {
    let repeats = (job.effort.creations_min / job.entries).clamp(1, 64);
    let mut times = vec![Vec::new(); job.order.len().div_ceil(SLICE)];
    let mut table = None;
    for repeat in 0..repeats {
        // Only one table is in memory at a time.
        drop(table.take());
        table = Some(fill::<T>(job, repeat.into(), &mut times)?);
    }
    let mut table = table.ok_or_else(|| anyhow::anyhow!("nothing was created"))?;
    let together = times.len().div_ceil(PARTS);
    let parts = times.chunks(together).map(|part| median(part.concat()));
    let create = parts.clone().sum::<f64>() / parts.len() as f64;
    let mut random = 0;
    let slices: anyhow::Result<Vec<f64>> =
        (0..job.effort.slices).map(|_| look_up_slice(&mut table, job, &mut random, || ())).collect();
    Ok(Sample { create, look_up: median(slices?) })
}

/// Creates a table with all translations, in the order of the job. Adds the cycles of each slice to `times`.
fn fill<T: Table>(job: &Job<'_>, repeat: u64, times: &mut [Vec<f64>]) -> anyhow::Result<T> {
    let mut table = T::new(job.entries, Hasher64::new([repeat, 1, 2, 3]))?;
    for (slice, times) in job.order.chunks(SLICE).zip(times) {
        let new: Vec<(Key, Outside)> = slice.iter().map(|&i| (key(i), outside(i))).collect();
        let mut entered = Ok(0);
        let cycles = job.clock.time(|| entered = create_slice(&mut table, &new, job.bursts))?;
        let full = |_| anyhow::anyhow!("full before it had {} translations", job.entries);
        let entered = entered.map_err(full)?;
        anyhow::ensure!(entered == new.len(), "{entered} of {} translations were new", new.len());
        times.push(cycles / new.len() as f64);
    }
    Ok(table)
}

#[inline(never)]
fn create_slice<T: Table>(
    table: &mut T,
    new: &[(Key, Outside)],
    bursts: bool,
) -> Result<usize, super::table::Full> {
    let mut entered = 0;
    if bursts {
        for burst in new.chunks(BURST) {
            entered += table.create_burst(burst, 1)?;
        }
    } else {
        for &(key, to) in new {
            entered += usize::from(table.create(key, to, 1)?);
        }
    }
    Ok(entered)
}

/// Cycles per look-up, over a slice of random ones, whose answers are checked. Calls `ready` first.
fn look_up_slice<T: Table>(
    table: &mut T,
    job: &Job<'_>,
    random: &mut u64,
    ready: impl Fn(),
) -> anyhow::Result<f64> {
    let mut any = || {
        *random += 1;
        job.order[below(u64::from(job.entries), mix(*random)) as usize]
    };
    let chosen: Vec<u32> = (0..SLICE).map(|_| any()).collect();
    let keys: Vec<Key> = chosen.iter().map(|&i| key(i)).collect();
    let mut found = vec![None; SLICE];
    ready();
    let cycles = job.clock.time(|| ask_slice(table, &keys, &mut found, job.bursts))?;
    for (&i, found) in chosen.iter().zip(&found) {
        anyhow::ensure!(*found == Some(outside(i)), "translation {i} was found as {found:?}");
    }
    // Another translation is not found.
    anyhow::ensure!(
        table.look_up(key(job.entries), 3).is_none(),
        "a translation that was never made was found"
    );
    Ok(cycles / SLICE as f64)
}

#[inline(never)]
fn ask_slice<T: Table>(table: &mut T, keys: &[Key], found: &mut [Option<Outside>], bursts: bool) {
    if bursts {
        for (keys, found) in keys.chunks(BURST).zip(found.chunks_mut(BURST)) {
            table.look_up_burst(keys, 2, found);
        }
    } else {
        for (&key, found) in keys.iter().zip(found) {
            *found = table.look_up(key, 2);
        }
    }
}

/// Millions of look-ups per second by this many threads, each with its own table.
///
/// # Errors
/// Like [`measure`].
pub(super) fn threads<T: Table>(job: &Job<'_>, count: u64) -> anyhow::Result<f64> {
    let tables = each((0..count).collect(), |i| fill::<T>(job, i, &mut vec![Vec::new(); job.order.len()]))?;
    let line = StartingLine::new(count);
    let seeded: Vec<(u64, T)> = (0..).zip(tables).collect();
    let cycles = each(seeded, |(i, mut table)| {
        let mut random = i << 40;
        let slices: anyhow::Result<Vec<f64>> = (0..job.effort.slices)
            .map(|_| look_up_slice(&mut table, job, &mut random, || line.wait()))
            .collect();
        Ok(median(slices?))
    })?;
    Ok(cycles.iter().map(|cycles| job.clock.ghz() * 1e3 / cycles).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::ENTRANTS;
    use std::collections::BTreeSet;

    const EFFORT: Effort = Effort { slices: 2, creations_min: 1 };

    #[test]
    fn translations_differ_and_the_shuffle_contains_each_once() {
        let keys: BTreeSet<Key> = (0..100_000).map(key).collect();
        assert_eq!(keys.len(), 100_000);
        let order = shuffled(10_000);
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 10_000);
        let fixed = order.iter().zip(0..).filter(|&(&a, b)| a == b).count();
        assert!(fixed < 20, "{fixed} kept their position");
    }

    #[test]
    fn every_structure_finds_only_inserted_translations() {
        let clock = Clock::new().unwrap();
        // Also odd sizes that are no multiple of a burst or a line; `measure` checks each answer.
        for entries in [1, 2, 3, 63, 65, 1000, 5003] {
            let order = shuffled(entries);
            for entrant in ENTRANTS {
                let job = Job { entries, order: &order, bursts: entrant.bursts, effort: EFFORT, clock };
                let sample = (entrant.measure)(&job).unwrap_or_else(|e| panic!("{}: {e}", entrant.name));
                assert!(sample.create > 0.0 && sample.look_up > 0.0, "{}: {sample:?}", entrant.name);
                assert!((entrant.bytes)(entries) >= u64::from(entries) * 20);
            }
        }
    }

    /// Checks that a new key is inserted and an existing one is not.
    fn twice<T: Table>() {
        let mut table = T::new(100, Hasher64::new([5; 4])).unwrap_or_else(|e| panic!("{e}"));
        let new: Vec<(Key, Outside)> = (0..50).map(|i| (key(i), outside(i))).collect();
        assert_eq!(table.create_burst(&new, 1), Ok(50));
        assert_eq!(table.create_burst(&new, 1), Ok(0));
        assert_eq!(table.create(key(7), outside(8), 1), Ok(false));
        assert_eq!(table.look_up(key(7), 2), Some(outside(7)));
        assert_eq!((table.create(key(50), outside(50), 1), table.look_up(key(51), 2)), (Ok(true), None));
    }

    #[test]
    fn a_translation_is_created_once() {
        use crate::study::*;
        twice::<linear::LinearProbing>();
        twice::<binary_tree::BinaryTree>();
        twice::<red_black::RedBlackTree>();
        twice::<ordered_map::OrderedMap>();
        twice::<chained::ChainedTable>();
        twice::<lines::Lines<2>>();
        twice::<lines::Lines<3>>();
        twice::<gatun_index::GatunIndex>();
    }
}
