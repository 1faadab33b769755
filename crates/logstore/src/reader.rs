//! Reader of a store, with or without a writing daemon: files in chronological order, and their damage.

use crate::disk::{Disk, read};
use crate::error::{LogError, Result};
use crate::journal::{self, Scan, State};
use crate::mark::Mark;
use crate::names::{Names, segment_name};
use crate::plan::PlanInForce;
use crate::receipt::Slots;
use crate::record::{Key, Record};
use crate::segment::{self, FileKind, Segment};
use crate::store::retired;
use gatun_wire::text::group;

/// Attempts to list the files, because a writer may seal or remove some meanwhile.
const TRIES: usize = 5;

/// Snapshot of a store.
pub struct Reader {
    pub(crate) disk: Box<dyn Disk>,
    pub(crate) parts: Vec<Part>,
    /// Faults of files that could not be read.
    pub(crate) faults: Vec<String>,
    pub(crate) names: Names,
    /// Files present although a mark records their removal.
    pub(crate) old: Vec<String>,
    /// Receipts before and after the files were read.
    pub(crate) receipts: [Option<Slots>; 2],
}

/// File with its marks, in chronological order.
pub(crate) struct Part {
    pub(crate) number: u64,
    pub(crate) source: Source,
    pub(crate) marks: Vec<Mark>,
}

pub(crate) enum Source {
    Sealed(FileKind, Box<Segment>),
    Journal(String, Box<Scan>),
    /// Intact records of a changed file, with its name and damage.
    Salvaged(String, String, Vec<Record>),
    /// Missing files up to this number.
    Missing(u64),
}

impl Part {
    /// Times of the first and last entry.
    pub(crate) fn times_ms(&self) -> Option<(u64, u64)> {
        let of_all = |records: &[Record], marks: &[Mark]| {
            let times = || records.iter().map(|r| r.at_ms).chain(marks.iter().map(Mark::at_ms));
            times().min().zip(times().max())
        };
        match &self.source {
            Source::Sealed(_, segment) => Some(segment.tail.times_ms).filter(|times| *times != (0, 0)),
            Source::Journal(_, scan) => of_all(&scan.records, &scan.marks),
            Source::Salvaged(_, _, records) => of_all(records, &self.marks),
            Source::Missing(_) => None,
        }
    }

    /// Time of the last entry.
    pub(crate) fn last_ms(&self) -> u64 {
        self.times_ms().map_or(0, |times| times.1)
    }

    pub(crate) fn name(&self) -> String {
        match &self.source {
            Source::Sealed(_, segment) => segment.name.clone(),
            Source::Journal(name, _) | Source::Salvaged(name, ..) => name.clone(),
            Source::Missing(last) if *last == self.number => segment_name(*last),
            Source::Missing(last) => format!("{} to {}", segment_name(self.number), segment_name(*last)),
        }
    }
}

/// Records found, and the reason for possibly missing ones.
pub(crate) struct FoundRecords {
    pub(crate) records: Vec<Record>,
    pub(crate) damage: Option<String>,
}

impl Reader {
    /// Opens a store.
    ///
    /// # Errors
    /// Returns an error if files cannot be read. Damage is no error: intact parts are read, and answers
    /// report the damage.
    pub fn open(disk: Box<dyn Disk>) -> Result<Reader> {
        let (parts, faults, names) = (Vec::new(), Vec::new(), Names::default());
        let mut reader = Reader { disk, parts, faults, names, old: Vec::new(), receipts: [None, None] };
        for _ in 1..TRIES {
            match reader.load() {
                Err(error) if error.is_missing() => {}
                result => return result.map(|()| reader),
            }
        }
        reader.load().map(|()| reader)
    }

    fn load(&mut self) -> Result<()> {
        (self.parts, self.faults, self.old) = Default::default();
        let receipts = |disk: &dyn Disk| Slots::read(disk).map_err(LogError::io("receipts"));
        let before = receipts(&*self.disk)?;
        self.names = Names::of(&*self.disk)?;
        for (number, name) in self.names.segments.clone() {
            self.load_sealed(number, &name, FileKind::Segment)?;
        }
        for (number, name) in self.names.journals.clone() {
            self.load_journal(number, name)?;
        }
        self.load_damaged()?;
        self.receipts = [before, receipts(&*self.disk)?];
        self.parts.sort_by_key(|part| part.number);
        self.load_carried()?;
        self.find_missing();
        Ok(())
    }

    fn load_sealed(&mut self, number: u64, name: &str, kind: FileKind) -> Result<()> {
        let opened = Segment::open(&*self.disk, name, kind).and_then(|segment| {
            let marks = segment.marks(&*self.disk)?;
            match segment.tail.number == number {
                true => Ok((segment, marks)),
                false => {
                    Err(LogError::damaged(name, "it contains another segment number: the file was replaced"))
                }
            }
        });
        let part = match opened {
            Ok((segment, marks)) => Part { number, source: Source::Sealed(kind, Box::new(segment)), marks },
            Err(LogError::Damaged { what, .. }) => self.salvaged(number, name, what)?,
            Err(error) => return Err(error),
        };
        self.parts.push(part);
        Ok(())
    }

    /// Salvages intact parts of a changed segment; reads nothing from a segment of another store or number.
    fn salvaged(&self, number: u64, name: &str, what: String) -> Result<Part> {
        let salvage = segment::salvage(&*self.disk, name, number)?;
        let source = Source::Salvaged(name.to_owned(), what, salvage.records);
        Ok(Part { number, source, marks: salvage.marks })
    }

    fn load_journal(&mut self, number: u64, name: String) -> Result<()> {
        let len = self.disk.len(&name).map_err(LogError::io(&name))? as usize;
        let bytes = read(&*self.disk, &name, 0, len).map_err(LogError::io(&name))?;
        let mut scan = journal::scan(&bytes, Some(number));
        let sealed = self.parts.iter().position(|part| part.number == number);
        match sealed.and_then(|at| self.parts.get(at)).map(|part| &part.source) {
            // The journal was sealed into that segment and is about to be removed.
            Some(Source::Sealed(_, segment)) if segment.tail.journal == scan.digest() => return Ok(()),
            Some(Source::Sealed(..)) => {
                self.faults.push(format!("{name}: it is not the journal of its segment"));
                return Ok(());
            }
            // The journal is more complete than the rest of the segment.
            Some(_) => {
                self.faults.extend(sealed.map(|at| self.parts.remove(at)).map(|part| damage_of(&part)));
            }
            None => {}
        }
        let marks = std::mem::take(&mut scan.marks);
        scan.marks.clone_from(&marks);
        self.parts.push(Part { number, source: Source::Journal(name, Box::new(scan)), marks });
        Ok(())
    }

    /// Loads files found damaged earlier. A segment of the same number contains the records of a journal.
    fn load_damaged(&mut self) -> Result<()> {
        for (number, name) in self.names.damaged.clone() {
            let what = "found damaged at start of the daemon".to_owned();
            let is_there = self.parts.iter().any(|part| part.number == number);
            let part = match name.contains(".journal.") {
                _ if is_there || name.contains(".carried.") => {
                    self.faults.push(format!("{name}: {what}"));
                    continue;
                }
                true => {
                    let len = self.disk.len(&name).map_err(LogError::io(&name))? as usize;
                    let bytes = read(&*self.disk, &name, 0, len).map_err(LogError::io(&name))?;
                    let scan = journal::scan(&bytes, Some(number));
                    let source = Source::Salvaged(name, what, scan.records);
                    Part { number, source, marks: scan.marks }
                }
                false => self.salvaged(number, &name, what)?,
            };
            self.parts.push(part);
        }
        Ok(())
    }

    /// Loads holdings that were open when older files were removed; older files still present are about to be
    /// removed.
    fn load_carried(&mut self) -> Result<()> {
        let Some(first) = self.parts.iter().rev().find_map(|part| retired(&part.marks)) else {
            return Ok(());
        };
        let old = self.parts.iter().take_while(|part| part.number < first).count();
        self.old = self.parts.drain(..old).map(|part| part.name()).collect();
        match self.names.carried.iter().find(|(number, _)| *number == first).cloned() {
            Some((number, name)) => {
                self.load_sealed(number, &name, FileKind::Carried)?;
                self.parts.rotate_right(1);
            }
            None => self
                .faults
                .push(format!("the file with the holdings that were open before segment {first} is missing")),
        }
        Ok(())
    }

    /// Adds a part for each range of missing files.
    fn find_missing(&mut self) {
        let mut next = self.parts.iter().rev().find_map(|part| retired(&part.marks)).unwrap_or(1);
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in self.parts.drain(..) {
            if part.number > next {
                parts.push(Part {
                    number: next,
                    source: Source::Missing(part.number - 1),
                    marks: Vec::new(),
                });
            }
            if !matches!(part.source, Source::Sealed(FileKind::Carried, _)) {
                next = part.number + 1;
            }
            parts.push(part);
        }
        self.parts = parts;
    }

    /// Finds the records of a part under `keys` (ascending), in the order of events for each key.
    pub(crate) fn find(&self, part: &Part, keys: &[Key]) -> Result<FoundRecords> {
        let mut records = Vec::new();
        let wanted = |r: &&Record| keys.binary_search(&r.key()).is_ok();
        let mut damage = None;
        match &part.source {
            Source::Sealed(_, segment) => match segment.find(&*self.disk, keys, &mut records) {
                Err(LogError::Damaged { what, .. }) => {
                    records = segment::salvage(&*self.disk, &segment.name, part.number)?.records;
                    records.retain(|r| wanted(&r));
                    damage = Some(what);
                }
                found => drop(found?),
            },
            Source::Journal(_, scan) => records.extend(scan.records.iter().filter(wanted)),
            Source::Salvaged(_, what, all) => {
                records.extend(all.iter().filter(wanted));
                damage = Some(what.clone());
            }
            Source::Missing(_) => damage = Some("the file is missing".to_owned()),
        }
        Ok(FoundRecords { records, damage })
    }

    /// Visits all entries from `from_ms` up to `to_ms` (exclusive), for each file in chronological order. The
    /// start of a process comes before its records, and the stop behind them, also at the same millisecond.
    /// Returns the damage found.
    ///
    /// # Errors
    /// Errors of `each`, or files that cannot be read.
    pub fn show<E: From<LogError>>(
        &self,
        (from_ms, to_ms): (u64, u64),
        mut each: impl FnMut(Entry<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<Vec<String>, E> {
        let mut damage = self.faults.clone();
        let marks = self.parts.iter().flat_map(|part| &part.marks);
        let configs: Vec<(u64, &PlanInForce)> = marks
            .filter_map(|mark| match mark {
                Mark::Config { at_ms, plan, .. } => Some((*at_ms, &**plan)),
                _ => None,
            })
            .collect();
        let plan_at = |at_ms| configs.iter().rev().find(|(since, _)| *since <= at_ms).map(|(_, plan)| *plan);
        for part in &self.parts {
            let mut records = match &part.source {
                Source::Sealed(_, s) if s.tail.times_ms.1 < from_ms || s.tail.times_ms.0 >= to_ms => continue,
                Source::Sealed(_, segment) => match segment.records(&*self.disk) {
                    Err(error @ LogError::Damaged { .. }) => {
                        damage.push(error.to_string());
                        segment::salvage(&*self.disk, &segment.name, part.number)?.records
                    }
                    records => records?,
                },
                Source::Journal(name, scan) => {
                    if matches!(scan.state, State::Damaged(_)) {
                        damage.push(format!("{name}: it was changed"));
                    }
                    scan.records.clone()
                }
                Source::Salvaged(_, _, records) => {
                    damage.push(damage_of(part));
                    records.clone()
                }
                Source::Missing(_) => {
                    damage.push(damage_of(part));
                    continue;
                }
            };
            records.retain(|r| (from_ms..to_ms).contains(&r.at_ms));
            records.sort_by_key(|r| r.at_ms);
            let marks = part.marks.iter().filter(|mark| (from_ms..to_ms).contains(&mark.at_ms()));
            let mut marks: Vec<&Mark> = marks.collect();
            marks.sort_by_key(|mark| place_of(mark));
            let mut marks = marks.into_iter().peekable();
            for record in &records {
                while let Some(mark) = marks.next_if(|mark| place_of(mark) <= (1, record.at_ms)) {
                    each(Entry::Mark(mark))?;
                }
                each(Entry::Record(record, plan_at(record.at_ms)))?;
            }
            marks.try_for_each(|mark| each(Entry::Mark(mark)))?;
        }
        Ok(damage)
    }
}

/// Place of a mark among the records of its file: the file is that of one process. Clocks of events and of
/// marks may differ by a millisecond.
fn place_of(mark: &Mark) -> (u8, u64) {
    let place = match mark {
        Mark::Start { .. } => 0,
        Mark::Stop { .. } => 2,
        _ => 1,
    };
    (place, mark.at_ms())
}

/// Damage of a missing or salvaged file.
pub(crate) fn damage_of(part: &Part) -> String {
    match &part.source {
        Source::Salvaged(name, what, records) => {
            format!("{name}: {what}; intact records: {}", group(records.len() as u64))
        }
        _ => format!("{}: missing", part.name()),
    }
}

/// Entry of the log.
pub enum Entry<'a> {
    /// Record, with the configuration of its time where the log has it.
    Record(&'a Record, Option<&'a PlanInForce>),
    /// Mark.
    Mark(&'a Mark),
}
