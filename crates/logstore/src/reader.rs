//! Reading a store, whether a daemon writes to it or not: who had a port, everything, and whether it is what was written.

use crate::disk::{Disk, read};
use crate::error::{LogError, Result};
use crate::hash::Hash;
use crate::journal::{self, Scan, State};
use crate::mark::Mark;
use crate::names::Names;
use crate::record::{Key, Record};
use crate::segment::{FileKind, Segment};
use crate::store::retired;

/// A writer may seal or take away files while they are listed: so often it is tried.
const TRIES: usize = 5;

/// A store as it was when it was opened.
pub struct Reader {
    disk: Box<dyn Disk>,
    pub(crate) parts: Vec<Part>,
    /// What cannot be read.
    pub(crate) faults: Vec<String>,
}

/// A file and its marks, in the order of time.
pub(crate) struct Part {
    pub(crate) source: Source,
    pub(crate) marks: Vec<Mark>,
}

pub(crate) enum Source {
    Sealed(FileKind, Box<Segment>),
    Journal(String, Box<Scan>),
}

impl Part {
    /// The last time that a record or mark in it tells of.
    pub(crate) fn last_ms(&self) -> u64 {
        match &self.source {
            Source::Sealed(_, segment) => segment.tail.times_ms.1,
            Source::Journal(_, scan) => {
                let records = scan.records.iter().map(|r| r.at_ms);
                records.chain(scan.marks.iter().map(Mark::at_ms)).max().unwrap_or(0)
            }
        }
    }

    fn name(&self) -> &str {
        match &self.source {
            Source::Sealed(_, segment) => &segment.name,
            Source::Journal(name, _) => name,
        }
    }
}

/// What [`Reader::verify`] has found.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Verification {
    /// Sealed files that are there.
    pub segments: u64,
    /// Records in all.
    pub records: u64,
    /// The first and last time, milliseconds since 1970.
    pub times_ms: Option<(u64, u64)>,
    /// The hash that all of it hangs on: whoever has kept it can tell later that nothing before was changed.
    pub head: Hash,
    /// The hash of the last sealed file.
    pub last_sealed: Option<Hash>,
    /// What is not as it was written. Nothing here is what an unchanged store has.
    pub faults: Vec<String>,
    /// What the log itself says is missing, and of what has become of files.
    pub notes: Vec<String>,
    /// Whether the hash that was asked for is one of the chain's.
    pub anchor_found: Option<bool>,
}

impl Reader {
    /// Opens a store.
    ///
    /// # Errors
    /// Where files cannot be read. Damaged ones are left out, and told with every answer.
    pub fn open(disk: Box<dyn Disk>) -> Result<Reader> {
        let mut reader = Reader { disk, parts: Vec::new(), faults: Vec::new() };
        for _ in 1..TRIES {
            match reader.load() {
                Err(error) if error.is_missing() => {}
                result => return result.map(|()| reader),
            }
        }
        reader.load().map(|()| reader)
    }

    fn load(&mut self) -> Result<()> {
        (self.parts, self.faults) = (Vec::new(), Vec::new());
        let names = Names::of(&*self.disk)?;
        let mut sealed = 0;
        for (number, name) in &names.segments {
            sealed = *number;
            self.load_sealed(name, FileKind::Segment)?;
        }
        for (number, name) in names.journals.iter().filter(|(number, _)| *number > sealed) {
            let len = self.disk.len(name).map_err(LogError::io(name))? as usize;
            let bytes = read(&*self.disk, name, 0, len).map_err(LogError::io(name))?;
            // Without a head it has just been begun.
            if let Some(scan) = journal::scan(&bytes).filter(|scan| scan.number == *number) {
                let marks = scan.marks.clone();
                self.parts.push(Part { source: Source::Journal(name.clone(), Box::new(scan)), marks });
            }
        }
        let Some(first) = self.parts.iter().rev().find_map(|part| retired(&part.marks)) else {
            return Ok(());
        };
        // They are about to go.
        let is_kept = |part: &Part| !matches!(&part.source, Source::Sealed(_, s) if s.tail.number < first);
        self.parts.retain(is_kept);
        match names.carried.iter().find(|(number, _)| *number == first) {
            Some((_, name)) => {
                self.load_sealed(name, FileKind::Carried)?;
                self.parts.rotate_right(1);
            }
            None => self.faults.push(format!(
                "what was open when the segments before {first} were taken away is missing: its file is not there"
            )),
        }
        Ok(())
    }

    fn load_sealed(&mut self, name: &str, kind: FileKind) -> Result<()> {
        let opened = Segment::open(&*self.disk, name, kind)
            .and_then(|segment| segment.marks(&*self.disk).map(|marks| (segment, marks)));
        match opened {
            Ok((segment, marks)) => {
                self.parts.push(Part { source: Source::Sealed(kind, Box::new(segment)), marks })
            }
            Err(error @ LogError::Damaged { .. }) => self.faults.push(error.to_string()),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The records of a part under any of `keys` (ascending), in the order of events for each key.
    pub(crate) fn find(&self, part: &Part, keys: &[Key]) -> Result<Vec<Record>> {
        let mut found = Vec::new();
        match &part.source {
            Source::Sealed(_, segment) => drop(segment.find(&*self.disk, keys, &mut found)?),
            Source::Journal(_, scan) => {
                let wanted = |r: &&Record| keys.binary_search(&r.key()).is_ok();
                found.extend(scan.records.iter().filter(wanted));
            }
        }
        Ok(found)
    }

    /// Everything from `from_ms` up to `to_ms` (not included), in the order of time within each file; records first,
    /// then marks.
    ///
    /// # Errors
    /// What `each` says, or that a file cannot be read.
    pub fn show<E: From<LogError>>(
        &self,
        (from_ms, to_ms): (u64, u64),
        mut each: impl FnMut(Entry<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        for part in &self.parts {
            let mut records = match &part.source {
                Source::Sealed(_, s) if s.tail.times_ms.1 < from_ms || s.tail.times_ms.0 >= to_ms => continue,
                Source::Sealed(_, segment) => {
                    let mut records = Vec::new();
                    for entry in segment.index(&*self.disk)? {
                        records.extend(segment.chunk(&*self.disk, &entry)?);
                    }
                    records
                }
                Source::Journal(_, scan) => scan.records.clone(),
            };
            records.retain(|r| (from_ms..to_ms).contains(&r.at_ms));
            records.sort_by_key(|r| r.at_ms);
            for record in &records {
                each(Entry::Record(record))?;
            }
            for mark in part.marks.iter().filter(|mark| (from_ms..to_ms).contains(&mark.at_ms())) {
                each(Entry::Mark(mark))?;
            }
        }
        Ok(())
    }

    /// Reads every byte, and says whether it is what was written; and whether `anchor`, a hash noted before, is one of
    /// its chain.
    ///
    /// # Errors
    /// Where the system does not let a file be read.
    pub fn verify(&self, anchor: Option<Hash>) -> Result<Verification> {
        let mut v = Verification { faults: self.faults.clone(), ..Verification::default() };
        let mut chain = Chain::default();
        let mut hashes = Vec::new();
        for part in &self.parts {
            match &part.source {
                Source::Sealed(kind, segment) => {
                    match segment.verify(&*self.disk) {
                        Err(LogError::Damaged { file, what }) => v.faults.push(format!("{file}: {what}")),
                        other => other?,
                    }
                    chain.take(*kind, segment, &mut v.faults);
                    hashes.push(segment.tail.hash);
                    (v.segments, v.head) =
                        (v.segments + u64::from(*kind == FileKind::Segment), segment.tail.hash);
                    v.last_sealed = Some(segment.tail.hash).filter(|_| *kind == FileKind::Segment);
                    v.records += segment.tail.records;
                }
                Source::Journal(name, scan) => {
                    chain.end(name, scan, &mut v.faults, &mut v.notes);
                    hashes.extend(&scan.digests);
                    v.records += scan.records.len() as u64;
                    v.head = scan.digest();
                }
            }
            v.notes.extend(part.marks.iter().filter_map(|mark| note(part.name(), mark)));
            for ms in part.marks.iter().map(Mark::at_ms).chain([part.last_ms()]).filter(|ms| *ms > 0) {
                let (first, last) = v.times_ms.unwrap_or((ms, ms));
                v.times_ms = Some((first.min(ms), last.max(ms)));
            }
        }
        let retired = self.parts.iter().rev().find_map(|part| {
            part.marks.iter().rev().find(|mark| matches!(mark, Mark::Retired { .. })).cloned()
        });
        chain.check_beginning(retired, &mut v.faults);
        v.anchor_found = anchor.map(|anchor| hashes.contains(&anchor));
        if v.anchor_found == Some(false) {
            v.faults.push(
                "the hash that was given is none of this chain: what it stood for was changed or taken away"
                    .to_owned(),
            );
        }
        Ok(v)
    }
}

/// A line of the log.
pub enum Entry<'a> {
    /// A record.
    Record(&'a Record),
    /// A mark.
    Mark(&'a Mark),
}

/// The chain of hashes, followed from file to file.
#[derive(Default)]
struct Chain {
    carried: Option<Hash>,
    /// The first segment: its number and the hash before it.
    first: Option<(u64, Hash)>,
    /// The last file: its number and hash.
    last: Option<(u64, Hash)>,
}

impl Chain {
    fn take(&mut self, kind: FileKind, segment: &Segment, faults: &mut Vec<String>) {
        let tail = &segment.tail;
        if kind == FileKind::Carried {
            self.carried = Some(tail.hash);
            return;
        }
        self.first = self.first.or(Some((tail.number, tail.previous)));
        self.follow(&segment.name, tail.number, tail.previous, faults);
        self.last = Some((tail.number, tail.hash));
    }

    fn follow(&self, name: &str, number: u64, previous: Hash, faults: &mut Vec<String>) {
        let Some((last, hash)) = self.last else { return };
        if number != last + 1 {
            faults
                .push(format!("{name}: the {} files before it are missing", number.saturating_sub(last + 1)));
        } else if previous != hash {
            faults.push(format!("{name}: it was written after another file than the one that is there"));
        }
    }

    fn end(&mut self, name: &str, scan: &Scan, faults: &mut Vec<String>, notes: &mut Vec<String>) {
        self.first = self.first.or(Some((scan.number, scan.previous)));
        self.follow(name, scan.number, scan.previous, faults);
        match scan.state {
            State::Whole => {}
            State::Torn(bytes) => {
                notes.push(format!("{name}: {bytes} bytes at its end are being written, or are of a write that was not finished"));
            }
            State::Damaged(at) => faults.push(format!("{name}: it was changed at byte {at} or near it")),
        }
    }

    /// What is the oldest there is has to be the first there ever was, or what a mark says is the first that is kept.
    fn check_beginning(&self, retired: Option<Mark>, faults: &mut Vec<String>) {
        match (self.first, retired) {
            (Some((number, previous)), Some(Mark::Retired { first, last_hash, carried_hash, .. })) => {
                if number != first {
                    faults.push(format!(
                        "the oldest file has number {number}, though all from {first} on were kept"
                    ));
                } else if previous != last_hash {
                    faults.push(format!("file {number} does not follow the one that was taken away"));
                }
                if self.carried.is_some_and(|hash| hash != carried_hash) {
                    faults.push("what was carried over is not what was written then".to_owned());
                }
            }
            (Some((number, _)), _) if number > 1 => {
                faults.push(format!("the files before number {number} are missing, and nothing says that they were taken away by the retention setting"));
            }
            (Some((_, previous)), _) if previous != Hash::default() => {
                faults.push("the first file was written after another one".to_owned());
            }
            _ => {}
        }
    }
}

fn note(file: &str, mark: &Mark) -> Option<String> {
    let time = crate::time::rfc3339(mark.at_ms());
    let what = match mark {
        Mark::Lost { events, .. } => format!("{events} events were lost before they could be written"),
        Mark::ClockSet { by_ms, .. } => format!("the system's clock was set by {by_ms} ms"),
        Mark::Cut { bytes, .. } => format!("{bytes} bytes of a write that was not finished were cut"),
        Mark::Damaged { file, .. } => format!("{file}: damage was found then"),
        Mark::Retired { first, .. } => {
            format!("segments before number {first} were taken away by the retention setting")
        }
        _ => return None,
    };
    Some(format!("{file}: {time}: {what}"))
}
