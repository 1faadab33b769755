//! Whether a log is as it was written: every byte, the chain of hashes, and the receipts.

use crate::disk::Disk;
use crate::error::{LogError, Result};
use crate::hash::Hash;
use crate::mark::Mark;
use crate::reader::{Reader, Source, damage_of};
use crate::receipt::{self, Files, RECEIPTS};
use crate::segment::{FileKind, Segment, VERSION};
use crate::store::retired;

/// The result of [`Reader::verify`].
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
    /// Everything that is not as it was written, or was not so once.
    pub faults: Vec<String>,
    /// What can be a change or the work of a killed process. Only a log without faults and without these is unchanged.
    pub unknown: Vec<String>,
    /// What the log itself says is missing, and of what has become of files.
    pub notes: Vec<String>,
    /// Whether the hash that was asked for is one of the chain's.
    pub anchor_found: Option<bool>,
}

impl Reader {
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
                    v.records += whole_records(&*self.disk, segment, &mut v.faults)?;
                    chain.take(*kind, segment, &mut v.faults);
                    hashes.push(segment.tail.hash);
                    (v.segments, v.head) =
                        (v.segments + u64::from(*kind == FileKind::Segment), segment.tail.hash);
                    v.last_sealed = Some(segment.tail.hash).filter(|_| *kind == FileKind::Segment);
                }
                Source::Journal(name, scan) => {
                    // Of a journal without a head, the receipts tell.
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
        self.judge_end(&mut v);
        self.judge_names(&mut v);
        v.anchor_found = anchor.map(|anchor| hashes.contains(&anchor));
        if v.anchor_found == Some(false) {
            v.faults.push(
                "the hash that was given is none of this chain: what it stood for was changed or taken away"
                    .to_owned(),
            );
        }
        Ok(v)
    }

    /// Compares the journal with its receipts.
    fn judge_end(&self, v: &mut Verification) {
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
        let judgement = receipt::judge(before.as_ref(), after.as_ref(), &files);
        let line = |(file, what): (String, String)| format!("{file}: {what}");
        v.faults.extend(judgement.faults.into_iter().map(line));
        v.unknown.extend(judgement.unknown.into_iter().map(line));
    }

    /// Says what files there are beside those of the log.
    fn judge_names(&self, v: &mut Verification) {
        let first = self.parts.iter().rev().find_map(|part| retired(&part.marks));
        let carried = self.names.carried.iter().filter(|(number, _)| Some(*number) != first);
        for (_, name) in carried {
            v.unknown.push(format!("{name}: no mark names it: it was just written, or somebody added it"));
        }
        for name in &self.old {
            v.unknown.push(format!(
                "{name}: a mark says that it was taken away: it is about to be, or somebody added it"
            ));
        }
        for name in &self.names.unfinished {
            v.unknown.push(format!(
                "{name}: it is being written, or a killed process left it, or somebody added it"
            ));
        }
        for name in &self.names.strays {
            v.unknown.push(format!("{name}: this is no file of the log"));
        }
        for name in &self.names.damaged_receipts {
            v.faults.push(format!("{name}: {RECEIPTS} was found damaged as the daemon began"));
        }
    }
}

/// The records of a segment that are whole; what is not goes to `faults`.
fn whole_records(disk: &dyn Disk, segment: &Segment, faults: &mut Vec<String>) -> Result<u64> {
    match segment.verify(disk) {
        Ok(()) => Ok(segment.tail.records),
        Err(LogError::Damaged { file, what }) => {
            let whole = crate::segment::salvage(disk, &file, segment.tail.number)?.records.len() as u64;
            faults.push(format!("{file}: {what}; {whole} of its {} records are whole", segment.tail.records));
            Ok(whole)
        }
        Err(error) => Err(error),
    }
}

/// The chain of hashes, followed from file to file.
#[derive(Default)]
struct Chain {
    carried: Option<Hash>,
    /// The first file: its number and the hash before it. Without it, that was salvaged or is missing.
    first: Option<Option<(u64, Hash)>>,
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
        self.follow(&segment.name, tail.number, tail.previous, faults);
        self.last = Some((tail.number, tail.hash));
    }

    fn follow(&mut self, name: &str, number: u64, previous: Hash, faults: &mut Vec<String>) {
        self.first = self.first.or(Some(Some((number, previous))));
        // What is missing between two numbers is told for itself.
        if self.last.is_some_and(|(last, hash)| number != last + 1 || previous != hash) {
            faults.push(format!("{name}: it was written after another file than the one that is there"));
        }
    }

    /// A file that nothing can be said to follow.
    fn broken(&mut self) {
        self.first = self.first.or(Some(None));
        self.last = None;
    }

    /// What is the oldest there is has to be the first there ever was, or what a mark says is the first that is kept.
    fn check_beginning(&self, retired: Option<Mark>, faults: &mut Vec<String>) {
        if let (Some(carried), Some(Mark::Retired { carried_hash, .. })) = (self.carried, &retired)
            && carried != *carried_hash
        {
            faults.push("what was carried over is not what was written then".to_owned());
        }
        match (self.first.flatten(), retired) {
            (Some((number, previous)), Some(Mark::Retired { last_hash, .. })) if previous != last_hash => {
                faults.push(format!("file {number} does not follow the one that was taken away"));
            }
            (Some((_, previous)), None) if previous != Hash::default() => {
                faults.push("the first file was written after another one".to_owned());
            }
            _ => {}
        }
    }
}

/// The fault of a mark: damage stays one.
fn damage(mark: &Mark) -> Option<String> {
    let Mark::Damaged { at_ms, file, what } = mark else { return None };
    let what = if what.is_empty() { "it was changed" } else { what };
    Some(format!("damage found on {}: {file}: {what}", crate::time::rfc3339(*at_ms)))
}

fn note(file: &str, mark: &Mark) -> Option<String> {
    let time = crate::time::rfc3339(mark.at_ms());
    let what = match mark {
        Mark::Lost { events, .. } => format!("{events} events were lost before they could be written"),
        Mark::ClockSet { by_ms, .. } => format!("the system's clock was set by {by_ms} ms"),
        Mark::Cut { bytes, .. } => {
            format!("{bytes} bytes of a write that was not finished were cut; they were never acknowledged")
        }
        Mark::NoReceipt { .. } => {
            "the last write had no receipt as the daemon began: the process before was killed between the two, or somebody added it".to_owned()
        }
        Mark::Retired { first, .. } => {
            format!("segments before number {first} were taken away by the retention setting")
        }
        _ => return None,
    };
    Some(format!("{file}: {time}: {what}"))
}
