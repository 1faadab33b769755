//! Verification of a log: every byte, the chain of hashes, and the receipts.

use crate::disk::Disk;
use crate::error::{LogError, Result};
use crate::hash::Hash;
use crate::mark::Mark;
use crate::names::RECEIPTS;
use crate::reader::{Reader, Source, damage_of};
use crate::receipt::{self, Files};
use crate::segment::{FileKind, Segment, VERSION};
use crate::store::retired;
use gatun_wire::text::{counted, group};

/// Result of [`Reader::verify`].
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Verification {
    /// Sealed files.
    pub segments: u64,
    /// Records.
    pub records: u64,
    /// Times of the first and last entry, milliseconds since 1970.
    pub times_ms: Option<(u64, u64)>,
    /// Head of the chain. A copy of this hash proves later that nothing before it was changed.
    pub head: Hash,
    /// Hash of the last sealed file.
    pub last_sealed: Option<Hash>,
    /// Changes and damage, present and past.
    pub faults: Vec<String>,
    /// Doubts: caused by a change or by a killed process. A log is unchanged only without faults and doubts.
    pub unknown: Vec<String>,
    /// Losses and removed files, as recorded in the log.
    pub notes: Vec<String>,
    /// True if the anchor is part of the chain.
    pub anchor_found: Option<bool>,
}

impl Reader {
    /// Verifies every byte, and that `anchor`, a hash noted earlier, is part of the chain.
    ///
    /// # Errors
    /// Returns an error if files cannot be read.
    pub fn verify(&self, anchor: Option<Hash>) -> Result<Verification> {
        let mut v = Verification { faults: self.faults.clone(), ..Verification::default() };
        let mut chain = Chain::default();
        let mut hashes = Vec::new();
        for part in &self.parts {
            match &part.source {
                Source::Sealed(kind, segment) => {
                    v.records += whole_records(&*self.disk, segment, &mut v.faults)?;
                    chain.take(*kind, segment, &mut v.faults);
                    hashes.push(segment.tail.hash);
                    (v.segments, v.head) =
                        (v.segments + u64::from(*kind == FileKind::Segment), segment.tail.hash);
                    v.last_sealed = Some(segment.tail.hash).filter(|_| *kind == FileKind::Segment);
                }
                Source::Journal(name, scan) => {
                    // The receipts check a journal without a head.
                    if scan.is_begun() {
                        chain.follow(name, scan.number, scan.previous, &mut v.faults);
                    }
                    hashes.extend(&scan.digests);
                    v.records += scan.records.len() as u64;
                    v.head = scan.digest();
                }
                Source::Salvaged(_, _, records) => {
                    v.faults.push(damage_of(part));
                    v.records += records.len() as u64;
                    chain.broken();
                }
                Source::Missing(_) => {
                    v.faults.push(damage_of(part));
                    chain.broken();
                }
            }
            for mark in &part.marks {
                v.faults.extend(damage(mark));
                v.notes.extend(note(&part.name(), mark));
            }
            let times = part.times_ms().into_iter().flat_map(|(first, last)| [first, last]);
            for ms in times.filter(|ms| *ms > 0) {
                let (first, last) = v.times_ms.unwrap_or((ms, ms));
                v.times_ms = Some((first.min(ms), last.max(ms)));
            }
        }
        let retired = self.parts.iter().rev().find_map(|part| {
            part.marks.iter().rev().find(|mark| matches!(mark, Mark::Retired { .. })).cloned()
        });
        chain.check_beginning(retired, &mut v.faults);
        self.check_end(&mut v);
        self.check_names(&mut v);
        v.anchor_found = anchor.map(|anchor| hashes.contains(&anchor));
        if v.anchor_found == Some(false) {
            v.faults
                .push("the given hash is not part of the chain: the log was changed or replaced".to_owned());
        }
        Ok(v)
    }

    /// Compares the journal with its receipts.
    fn check_end(&self, v: &mut Verification) {
        let mut files = Files { sealed: Vec::new(), journals: Vec::new(), has_receipts: false };
        for part in &self.parts {
            match &part.source {
                Source::Sealed(_, segment) => {
                    files.sealed.push((segment.tail.number, segment.tail.journal));
                    files.has_receipts |= segment.version >= VERSION;
                }
                Source::Journal(_, scan) => {
                    files.has_receipts |= scan.version >= VERSION;
                    files.journals.push(scan);
                }
                Source::Salvaged(..) | Source::Missing(_) => {}
            }
        }
        let [before, after] = &self.receipts;
        let check = receipt::check(before.as_ref(), after.as_ref(), &files);
        let line = |(file, what): (String, String)| format!("{file}: {what}");
        v.faults.extend(check.faults.into_iter().map(line));
        v.unknown.extend(check.unknown.into_iter().map(line));
    }

    /// Reports files that do not belong to the log.
    fn check_names(&self, v: &mut Verification) {
        let first = self.parts.iter().rev().find_map(|part| retired(&part.marks));
        let carried = self.names.carried.iter().filter(|(number, _)| Some(*number) != first);
        for (_, name) in carried {
            v.unknown.push(format!("{name}: not named by a mark: just written, or added by somebody"));
        }
        for name in &self.old {
            v.unknown.push(format!(
                "{name}: removed according to a mark: about to be removed, or added by somebody"
            ));
        }
        for name in &self.names.unfinished {
            v.unknown.push(format!(
                "{name}: temporary file: being written, left by a killed process, or added by somebody"
            ));
        }
        for name in &self.names.strays {
            v.unknown.push(format!("{name}: not a file of the log"));
        }
        for name in &self.names.damaged_receipts {
            v.faults.push(format!("{name}: {RECEIPTS} was damaged at start of the daemon"));
        }
    }
}

/// Counts the intact records of a segment; damage goes to `faults`.
fn whole_records(disk: &dyn Disk, segment: &Segment, faults: &mut Vec<String>) -> Result<u64> {
    match segment.verify(disk) {
        Ok(()) => Ok(segment.tail.records),
        Err(LogError::Damaged { file, what }) => {
            let whole = crate::segment::salvage(disk, &file, segment.tail.number)?.records.len() as u64;
            faults.push(format!(
                "{file}: {what}; {} of its {} are intact",
                group(whole),
                counted(segment.tail.records, "record")
            ));
            Ok(whole)
        }
        Err(error) => Err(error),
    }
}

/// Chain of hashes across files.
#[derive(Default)]
struct Chain {
    carried: Option<Hash>,
    /// First file: its number and the hash before it; `None` if it was salvaged or is missing.
    first: Option<Option<(u64, Hash)>>,
    /// Last file: its number and hash.
    last: Option<(u64, Hash)>,
}

impl Chain {
    fn take(&mut self, kind: FileKind, segment: &Segment, faults: &mut Vec<String>) {
        let tail = &segment.tail;
        if kind == FileKind::Carried {
            self.carried = Some(tail.hash);
            return;
        }
        self.follow(&segment.name, tail.number, tail.previous, faults);
        self.last = Some((tail.number, tail.hash));
    }

    fn follow(&mut self, name: &str, number: u64, previous: Hash, faults: &mut Vec<String>) {
        self.first = self.first.or(Some(Some((number, previous))));
        // Missing files are reported separately.
        if self.last.is_some_and(|(last, hash)| number != last + 1 || previous != hash) {
            faults.push(format!("{name}: written after another file than the present one"));
        }
    }

    /// Breaks the chain.
    fn broken(&mut self) {
        self.first = self.first.or(Some(None));
        self.last = None;
    }

    /// Checks that the oldest file is the first one ever written, or the first one kept according to a mark.
    fn check_beginning(&self, retired: Option<Mark>, faults: &mut Vec<String>) {
        if let (Some(carried), Some(Mark::Retired { carried_hash, .. })) = (self.carried, &retired)
            && carried != *carried_hash
        {
            faults.push("the carried-over file was changed".to_owned());
        }
        match (self.first.flatten(), retired) {
            (Some((number, previous)), Some(Mark::Retired { last_hash, .. })) if previous != last_hash => {
                faults.push(format!("file {number} does not follow the removed one"));
            }
            (Some((_, previous)), None) if previous != Hash::default() => {
                faults.push("a file before the first one is missing".to_owned());
            }
            _ => {}
        }
    }
}

/// Fault recorded by a mark.
fn damage(mark: &Mark) -> Option<String> {
    let Mark::Damaged { at_ms, file, what } = mark else { return None };
    let what = if what.is_empty() { "it was changed" } else { what };
    Some(format!("damage found on {}: {file}: {what}", crate::time::rfc3339(*at_ms)))
}

fn note(file: &str, mark: &Mark) -> Option<String> {
    let time = crate::time::rfc3339(mark.at_ms());
    let what = match mark {
        Mark::Lost { events, .. } => format!("{} lost before they could be written", counted(*events, "event")),
        Mark::ClockSet { by_ms, .. } => {
            let way = if *by_ms < 0 { "back" } else { "forward" };
            format!("the system clock was set {way} by {} ms", group(by_ms.unsigned_abs()))
        },
        Mark::Cut { bytes, .. } => {
            format!("{} of an unfinished, unacknowledged write removed", counted(*bytes, "byte"))
        }
        Mark::NoReceipt { .. } => {
            "the last write had no receipt at start: the previous process was killed between them, or the write was added".to_owned()
        }
        Mark::Retired { first, .. } => {
            format!("segments before number {first} were removed by the retention setting")
        }
        _ => return None,
    };
    Some(format!("{file}: {time}: {what}"))
}
