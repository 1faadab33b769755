//! Carry-over of open holdings when old segments are removed: a block held for longer than the log's
//! retention keeps its holder.

use crate::disk::Disk;
use crate::error::Result;
use crate::mark::Mark;
use crate::record::{Key, Record};
use crate::segment::{FileKind, Records, Segment, Tail, Writer};
use std::iter::Peekable;

/// Maximum number of carried-over loss marks.
const LOSSES_MAX: usize = 100;

/// Writes holdings open at the end of `segment` to `name`: from `old`, carried over earlier, and from
/// `segment`.
pub(crate) fn carry(
    disk: &mut dyn Disk,
    old: Option<&Segment>,
    segment: &Segment,
    name: &str,
) -> Result<Tail> {
    let of_segment = segment.marks(disk)?;
    // A daemon continues only the earlier holdings that it records as restored; a segment belongs to one
    // daemon.
    let begins = of_segment.iter().any(|mark| matches!(mark, Mark::Start { .. }));
    let mut marks = old.map_or(Ok(Vec::new()), |old| old.marks(disk))?;
    marks.extend(of_segment);
    let open = open_at_end(disk, old, segment, begins)?;
    let marks = still_needed(marks, &open);
    let mut writer = Writer::new(disk, name, FileKind::Carried)?;
    open.iter().try_for_each(|record| writer.push(record))?;
    writer.finish(segment.tail.number + 1, segment.tail.hash, segment.tail.journal, &marks)
}

type Source<'a> = Peekable<Box<dyn Iterator<Item = Result<Record>> + 'a>>;

/// Merges the sorted records and keeps holdings without an end. If a daemon `begins` with the segment, older
/// holdings need a record of their restoration.
fn open_at_end(
    disk: &dyn Disk,
    old: Option<&Segment>,
    segment: &Segment,
    begins: bool,
) -> Result<Vec<Record>> {
    let source = |segment| -> Result<Source<'_>> {
        let records: Box<dyn Iterator<Item = _>> = match segment {
            Some(segment) => Box::new(Records::of(disk, segment)?),
            None => Box::new(std::iter::empty()),
        };
        Ok(records.peekable())
    };
    let mut sources = [source(old)?, source(Some(segment))?];
    let mut open = Vec::new();
    while let Some(key) = least_key(&mut sources) {
        let [of_old, of_segment] = &mut sources;
        let (mut before, mut now) = (Vec::new(), Vec::new());
        take(of_old, key, |record| now.push(record))?;
        if begins {
            before.append(&mut now);
        }
        take(of_segment, key, |record| {
            now.retain(|other: &Record| !other.has_same_ports(&record));
            let same = |old: &Record| old.has_same_ports(&record) && old.is_same_holder(&record);
            let known = before.iter().position(same).filter(|_| record.kind.goes_on());
            if record.kind.begins() {
                now.push(known.map_or(record, |at| before.remove(at)));
            }
        })?;
        open.append(&mut now);
    }
    Ok(open)
}

/// Takes the next records, all of one key.
fn take(source: &mut Source<'_>, key: Key, mut each: impl FnMut(Record)) -> Result<()> {
    while let Some(record) = source.next_if(|next| next.as_ref().map_or(true, |r| r.key() == key)) {
        each(record?);
    }
    Ok(())
}

/// Lowest next key; errors come first.
fn least_key(sources: &mut [Source<'_>; 2]) -> Option<Key> {
    let keys = sources.iter_mut().filter_map(|source| source.peek());
    keys.map(|next| next.as_ref().map_or(Key::default(), Record::key)).min()
}

/// Marks needed for answers about open holdings or later times.
fn still_needed(marks: Vec<Mark>, open: &[Record]) -> Vec<Mark> {
    let last = |is: &dyn Fn(&Mark) -> bool| marks.iter().rposition(is);
    let start = last(&|m| matches!(m, Mark::Start { .. }));
    let stop = last(&|m| matches!(m, Mark::Stop { .. })).filter(|stop| Some(*stop) > start);
    let alive = last(&|m| matches!(m, Mark::Alive { .. }));
    let mut configs: Vec<(usize, u64)> = Vec::new();
    for (at, mark) in marks.iter().enumerate() {
        if let Mark::Config { at_ms, .. } = mark {
            configs.push((at, *at_ms));
        }
    }
    let mut wanted: Vec<usize> =
        [start, stop, alive, configs.last().map(|c| c.0)].into_iter().flatten().collect();
    // Records have the instance and pool numbers of their configuration.
    for record in open {
        let before = configs.iter().rposition(|(_, at_ms)| *at_ms <= record.at_ms).unwrap_or(0);
        wanted.extend(configs.get(before).map(|c| c.0));
    }
    let losses = marks.iter().enumerate().rev().filter(|(_, m)| matches!(m, Mark::Lost { .. }));
    wanted.extend(losses.map(|(at, _)| at).take(LOSSES_MAX));
    // Damage stays on record.
    let is_damage = |mark: &Mark| matches!(mark, Mark::Damaged { .. });
    wanted.extend(marks.iter().enumerate().filter(|(_, mark)| is_damage(mark)).map(|(at, _)| at));
    wanted.sort_unstable();
    wanted.dedup();
    let mut marks: Vec<Option<Mark>> = marks.into_iter().map(Some).collect();
    wanted.into_iter().filter_map(|at| marks.get_mut(at).and_then(Option::take)).collect()
}
