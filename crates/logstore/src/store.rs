//! Writer of the log: appends to a journal, seals it into segments, and removes old segments.
//!
//! ```text
//!   append, mark -> commit: one frame, acknowledged: on disk when it returns
//!   maintain: journal -> segment (sorted, compressed) -> ... -> removed, with open holdings carried over
//! ```
//! [`Store::open`] continues from the files of any step at which the process was killed. A segment is valid
//! once it has its name, and replaces its journal; a carried-over file is valid once a mark names it. See
//! decision 0071.

use crate::disk::{Disk, read};
use crate::error::{LogError, Result};
use crate::hash::Hash;
use crate::journal::{self, Scan, State};
use crate::mark::Mark;
use crate::names::{DAMAGED, Names, RECEIPTS, carried_name, journal_name, segment_name, tmp_name};
use crate::receipt::{self, Files, Receipt, Slots};
use crate::record::Record;
use crate::segment::{FileKind, Segment, VERSION, Writer};
use crate::{chunk, retire};
use gatun_wire::text::counted;

/// Settings of a store.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Records per segment.
    pub segment_records: u64,
    /// Maximum age of a journal, milliseconds.
    pub segment_ms: u64,
    /// Retention of records, milliseconds; `None` is unlimited.
    pub retention_ms: Option<u64>,
    /// Maximum size of all segments, bytes; the oldest are removed first. `None` is unlimited.
    pub size_max: Option<u64>,
}

impl Default for Options {
    /// A million records or a day; unlimited retention.
    fn default() -> Self {
        Options { segment_records: 1 << 20, segment_ms: 86_400_000, retention_ms: None, size_max: None }
    }
}

/// Size at which a journal is sealed, in bytes.
const JOURNAL_LEN_MAX: u64 = 64 << 20;

/// Maximum number of segments removed at a time, as records wait meanwhile.
const RETIRED_MAX: usize = 4;

/// Contents of the store on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Segments.
    pub segments: u64,
    /// Records, including those of the journal.
    pub records: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Head of the chain: hash of the last frame, or of the last segment.
    pub head: Hash,
}

/// Log open for writing.
pub struct Store {
    disk: Box<dyn Disk>,
    options: Options,
    /// Segments, the oldest first.
    segments: Vec<Segment>,
    /// Holdings open at the end of the removed segments.
    carried: Option<Segment>,
    journal: Journal,
    /// Last receipt; `None` without a complete file of receipts.
    receipt: Option<Receipt>,
    /// Files to remove.
    superfluous: Vec<String>,
    /// Records and marks not yet in the journal.
    waiting: Vec<Record>,
    waiting_marks: Vec<Mark>,
    /// Messages for the operator.
    messages: Vec<String>,
}

struct Journal {
    number: u64,
    /// Hash of the previous segment.
    previous: Hash,
    name: String,
    /// True if the file has a head.
    is_begun: bool,
    /// Acknowledged bytes.
    len: u64,
    /// True if a failed write may have left more bytes.
    is_dirty: bool,
    /// True if a receipt covers all of it.
    has_receipt: bool,
    digest: Hash,
    records: u64,
    /// True if it has a mark that justifies a segment.
    has_news: bool,
    began_ms: Option<u64>,
}

impl Store {
    /// Opens or creates a store and cleans up after a killed process. Marks about the cleanup get the time
    /// `now_ms`.
    ///
    /// # Errors
    /// Returns an error if files cannot be read or written. Changed files are no error: they get a mark and a
    /// message.
    pub fn open(disk: Box<dyn Disk>, options: Options, now_ms: u64) -> Result<Store> {
        let mut store = Store {
            disk,
            options,
            segments: Vec::new(),
            carried: None,
            journal: Journal::new(0, Hash::default()),
            receipt: None,
            superfluous: Vec::new(),
            waiting: Vec::new(),
            waiting_marks: Vec::new(),
            messages: Vec::new(),
        };
        let names = Names::of(&*store.disk)?;
        for name in &names.unfinished {
            store.remove(name)?;
        }
        for (number, name) in &names.segments {
            match store.open_segment(*number, name) {
                Ok(segment) => store.segments.push(segment),
                Err(LogError::Damaged { what, .. }) => store.quarantine(name, &what, now_ms)?,
                Err(error) => return Err(error),
            }
        }
        store.open_carried(&names, now_ms)?;
        store.open_journals(&names, now_ms)?;
        // A detected fault must stay on record, even if this process is killed.
        store.commit()?;
        Ok(store)
    }

    /// Opens a segment and checks everything but its records.
    fn open_segment(&self, number: u64, name: &str) -> Result<Segment> {
        let segment = Segment::open(&*self.disk, name, FileKind::Segment)?;
        if segment.tail.number != number {
            return Err(LogError::damaged(name, "it contains another segment number: the file was replaced"));
        }
        segment.marks(&*self.disk)?;
        segment.index(&*self.disk)?;
        Ok(segment)
    }

    /// Opens the carried-over file of the last mark, and removes older ones.
    fn open_carried(&mut self, names: &Names, now_ms: u64) -> Result<()> {
        let mut first = None;
        for segment in &self.segments {
            let marks = segment.marks(&*self.disk).unwrap_or_default();
            first = retired(&marks).or(first);
        }
        for (_, name) in &names.journals {
            first = retired(&self.scan(name)?.marks).or(first);
        }
        for (number, name) in &names.carried {
            if first != Some(*number) {
                self.remove(name)?;
                continue;
            }
            match Segment::open(&*self.disk, name, FileKind::Carried) {
                Err(LogError::Damaged { what, .. }) => self.quarantine(name, &what, now_ms)?,
                opened => self.carried = Some(opened?),
            }
        }
        let old = self.segments.iter().take_while(|s| s.tail.number < first.unwrap_or(0)).count();
        for segment in self.segments.drain(..old).collect::<Vec<_>>() {
            self.remove(&segment.name)?;
        }
        Ok(())
    }

    /// Continues after the last journal.
    fn open_journals(&mut self, names: &Names, now_ms: u64) -> Result<()> {
        let mut left: Vec<(&str, Scan)> = Vec::new();
        let mut made_segments = Vec::new();
        for (number, name) in &names.journals {
            let scan = self.scan(name)?;
            match self.segments.iter().find(|segment| segment.tail.number == *number) {
                // The journal was sealed into that segment.
                Some(segment) if segment.tail.journal == scan.digest() => made_segments.push(name),
                Some(_) => self.quarantine(name, "it is not the journal of its segment", now_ms)?,
                None => left.push((name, scan)),
            }
        }
        let slots = Slots::read(&*self.disk).map_err(LogError::io(RECEIPTS))?;
        let faults = self.check_receipts(slots.as_ref(), &left, now_ms)?;
        // Receipts cover only the latest journal.
        self.superfluous.extend(made_segments.into_iter().cloned());
        let highest = left.iter().map(|(_, scan)| scan.number).fold(names.highest(), u64::max);
        let last = left.pop();
        for (older, _) in left {
            self.quarantine(older, "a newer journal follows it", now_ms)?;
        }
        self.journal = Journal::new(names.highest() + 1, self.last_hash());
        match last {
            Some((name, scan)) if !scan.is_begun() && !faults.iter().any(|file| file == name) => {
                // The process ended while writing its head; frames follow only a complete head.
                self.journal = Journal::new(scan.number, self.last_hash());
                self.remove(name)?;
            }
            Some((name, scan)) if faults.iter().any(|file| file == name) => {
                let file = damaged_name(name, now_ms);
                self.disk.rename(name, &file).map_err(LogError::io(name))?;
                self.disk.sync_names().map_err(LogError::io(name))?;
                self.journal = Journal::new(highest.max(scan.number) + 1, self.last_hash());
            }
            Some((name, scan)) => return self.resume(name, scan, now_ms),
            None => {
                // The number of a missing journal is never reused.
                let missing = slots.as_ref().and_then(Slots::last).map(|last| last.number);
                let missing = missing.filter(|number| faults.contains(&journal_name(*number)));
                self.journal.skip_to(missing.map_or(0, |number| number + 1));
            }
        }
        self.clean()
    }

    /// Compares the journals with the receipts and marks each fault; returns the faulty files.
    fn check_receipts(
        &mut self,
        slots: Option<&Slots>,
        left: &[(&str, Scan)],
        now_ms: u64,
    ) -> Result<Vec<String>> {
        let journals: Vec<&Scan> = left.iter().map(|(_, scan)| scan).collect();
        let is_new = |version: u8| version >= VERSION;
        let has_receipts = self.segments.iter().any(|s| is_new(s.version))
            || journals.iter().any(|scan| is_new(scan.version));
        let sealed = self.segments.iter().map(|s| (s.tail.number, s.tail.journal)).collect();
        let check = receipt::check(slots, slots, &Files { sealed, journals, has_receipts });
        let mut files = Vec::new();
        for (file, what) in check.faults {
            let is_there = self.disk.len(&file).is_ok();
            let kept = if is_there { damaged_name(&file, now_ms) } else { file.clone() };
            self.messages.push(format!("{file}: {what}"));
            self.waiting_marks.push(Mark::Damaged { at_ms: now_ms, file: kept.clone(), what });
            if file == RECEIPTS && is_there {
                self.disk.rename(&file, &kept).map_err(LogError::io(&file))?;
            }
            files.push(file);
        }
        for (file, what) in check.unknown.iter().filter(|(file, _)| file == RECEIPTS && has_receipts) {
            self.messages.push(format!("{file}: {what}"));
            self.waiting_marks.push(Mark::NoReceipt { at_ms: now_ms });
        }
        let is_usable = |slots: &&Slots| slots.is_whole && !files.iter().any(|file| file == RECEIPTS);
        self.receipt = slots.filter(is_usable).and_then(Slots::last);
        Ok(files)
    }

    /// Continues with a journal of the last run, or seals it if it is not empty.
    fn resume(&mut self, name: &str, scan: Scan, now_ms: u64) -> Result<()> {
        let digest = scan.digest();
        let mut marks = scan.marks;
        if self.segments.last().is_some_and(|s| s.tail.number + 1 == scan.number)
            && scan.previous != self.last_hash()
        {
            let file = self.segments.last().map_or_else(|| "segments".to_owned(), |s| s.name.clone());
            let what = format!("not the predecessor of {name}");
            self.messages.push(format!("{file}: {what}"));
            marks.push(Mark::Damaged { at_ms: now_ms, file, what });
        }
        let old = Journal::new(scan.number, scan.previous);
        self.journal = Journal { is_begun: true, len: scan.good_len, digest, ..old };
        if let State::Torn(bytes) = scan.state {
            self.journal.is_dirty = true;
            self.messages.push(format!("{name}: removed {} of an unfinished write", counted(bytes, "byte")));
            marks.push(Mark::Cut { at_ms: now_ms, bytes });
        }
        // The previous process may not have synced the bytes that get a receipt now.
        self.disk.sync(name).map_err(LogError::io(name))?;
        self.clean()?;
        if scan.records.is_empty() && marks.is_empty() {
            return Ok(());
        }
        self.seal_records(scan.records, &marks)
    }

    /// Hash of the last segment.
    fn last_hash(&self) -> Hash {
        let last = self.segments.last().map(|s| s.tail.hash);
        last.or(self.carried.as_ref().map(|c| c.tail.previous)).unwrap_or_default()
    }

    fn scan(&self, name: &str) -> Result<Scan> {
        let len = self.disk.len(name).map_err(LogError::io(name))? as usize;
        let number = name.split('.').next().and_then(|digits| digits.parse().ok());
        Ok(journal::scan(&read(&*self.disk, name, 0, len).map_err(LogError::io(name))?, number))
    }

    /// Renames a damaged file, with a mark and a message.
    fn quarantine(&mut self, name: &str, what: &str, now_ms: u64) -> Result<()> {
        let file = damaged_name(name, now_ms);
        self.messages.push(format!("{name}: {what}; kept as {file}"));
        self.disk.rename(name, &file).map_err(LogError::io(name))?;
        self.disk.sync_names().map_err(LogError::io(name))?;
        self.waiting_marks.push(Mark::Damaged { at_ms: now_ms, file, what: what.to_owned() });
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        self.disk.remove(name).map_err(LogError::io(name))?;
        self.disk.sync_names().map_err(LogError::io(name))
    }

    /// Sets the retention; [`Store::maintain`] removes old segments.
    pub fn set_retention(&mut self, retention_ms: Option<u64>, size_max: Option<u64>) {
        (self.options.retention_ms, self.options.size_max) = (retention_ms, size_max);
    }

    /// Appends records, in chronological order. They are safe once [`Store::commit`] has returned.
    pub fn append(&mut self, records: &[Record]) {
        self.waiting.extend_from_slice(records);
    }

    /// Appends a mark, like [`Store::append`].
    pub fn mark(&mut self, mark: Mark) {
        self.waiting_marks.push(mark);
    }

    /// Number of unacknowledged records.
    pub fn pending(&self) -> usize {
        self.waiting.len()
    }

    /// Discards unacknowledged records, if too many of them cannot be written.
    pub fn discard_pending(&mut self) -> u64 {
        std::mem::take(&mut self.waiting).len() as u64
    }

    /// Takes the messages for the operator.
    pub fn take_messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.messages)
    }

    /// Writes pending records and marks. After that, they survive a crash and a power failure.
    ///
    /// # Errors
    /// Returns an error if the write failed; the records and marks stay pending.
    pub fn commit(&mut self) -> Result<()> {
        if self.journal.is_begun {
            self.acknowledge()?;
        }
        while !(self.waiting.is_empty() && self.waiting_marks.is_empty()) {
            self.clean()?;
            let count = self.waiting.len().min(chunk::CHUNK_RECORDS_MAX);
            let records = self.waiting.get(..count).unwrap_or_default();
            let (frame, digest) = journal::frame(self.journal.digest, &self.waiting_marks, records);
            let journal = &mut self.journal;
            journal.is_dirty = true;
            self.disk.append(&journal.name, &frame).map_err(LogError::io(&journal.name))?;
            self.disk.sync(&journal.name).map_err(LogError::io(&journal.name))?;
            journal.is_dirty = false;
            journal.digest = digest;
            journal.len += frame.len() as u64;
            journal.records += count as u64;
            let first = records.first().map(|r| r.at_ms).or(self.waiting_marks.first().map(Mark::at_ms));
            journal.began_ms = journal.began_ms.or(first);
            journal.has_news |= self.waiting_marks.iter().any(|m| !matches!(m, Mark::Alive { .. }));
            journal.has_receipt = false;
            self.waiting.drain(..count);
            self.waiting_marks.clear();
            self.acknowledge()?;
        }
        Ok(())
    }

    /// Writes a receipt for the journal, if it has none.
    fn acknowledge(&mut self) -> Result<()> {
        let Journal { number, len, digest, is_begun, has_receipt, .. } = &mut self.journal;
        if *has_receipt {
            return Ok(());
        }
        let (len, digest) = if *is_begun { (*len, *digest) } else { (0, Hash::default()) };
        let sequence = self.receipt.map_or(0, |last| last.sequence + 1);
        let mut receipt = Receipt { sequence, number: *number, len, digest };
        match self.receipt {
            Some(_) => receipt.write(&mut *self.disk).map_err(LogError::io(RECEIPTS))?,
            None => {
                receipt.create(&mut *self.disk).map_err(LogError::io(RECEIPTS))?;
                receipt.sequence += 1;
            }
        }
        (*has_receipt, self.receipt) = (*is_begun, Some(receipt));
        Ok(())
    }

    /// Prepares the journal for a frame: writes the head, or removes the rest of a failed write.
    fn clean(&mut self) -> Result<()> {
        // Receipts come first: a missing file of receipts must mean that it was removed.
        if self.receipt.is_none() {
            self.acknowledge()?;
        }
        let Journal { number, previous, name, is_begun, len, is_dirty, .. } = &mut self.journal;
        if !*is_begun {
            if self.disk.len(name).is_ok() {
                self.disk.truncate(name, 0).map_err(LogError::io(name))?;
            }
            self.disk.append(name, &journal::head_of(*number, *previous).0).map_err(LogError::io(name))?;
            self.disk.sync(name).map_err(LogError::io(name))?;
            self.disk.sync_names().map_err(LogError::io(name))?;
            *is_begun = true;
        }
        if *is_dirty {
            self.disk.truncate(name, *len).map_err(LogError::io(name))?;
            *is_dirty = false;
        }
        self.acknowledge()
    }

    /// Seals the journal if it is large or old enough, and removes old segments.
    ///
    /// # Errors
    /// Returns an error if files cannot be written; the next call tries again.
    pub fn maintain(&mut self, now_ms: u64) -> Result<()> {
        let journal = &self.journal;
        let age = now_ms.saturating_sub(journal.began_ms.unwrap_or(now_ms));
        let is_old = age >= self.options.segment_ms && (journal.records > 0 || journal.has_news);
        if is_old || journal.records >= self.options.segment_records || journal.len >= JOURNAL_LEN_MAX {
            self.seal()?;
        }
        for _ in 0..RETIRED_MAX {
            if self.is_too_much(now_ms) {
                self.retire(now_ms)?;
            }
        }
        while let Some(name) = self.superfluous.pop() {
            self.remove(&name)?;
        }
        Ok(())
    }

    /// Seals the journal into a segment. Pending records go into the next journal.
    ///
    /// # Errors
    /// Returns the errors of [`Store::maintain`].
    pub fn seal(&mut self) -> Result<()> {
        self.clean()?;
        let scan = self.scan(&self.journal.name)?;
        match scan.digest() == self.journal.digest && scan.state == State::Whole {
            true => self.seal_records(scan.records, &scan.marks),
            false => Err(LogError::damaged(&self.journal.name, "changed by another process")),
        }
    }

    fn seal_records(&mut self, mut records: Vec<Record>, marks: &[Mark]) -> Result<()> {
        let number = self.journal.number;
        let previous = self.last_hash();
        // A stable sort keeps the order of records with the same ports.
        records.sort_by_key(Record::key);
        let (tmp, name) = (tmp_name(&segment_name(number)), segment_name(number));
        if self.disk.len(&tmp).is_ok() {
            self.remove(&tmp)?;
        }
        let mut writer = Writer::new(&mut *self.disk, &tmp, FileKind::Segment)?;
        records.iter().try_for_each(|record| writer.push(record))?;
        let tail = writer.finish(number, previous, self.journal.digest, &without_signs_of_life(marks))?;
        self.disk.rename(&tmp, &name).map_err(LogError::io(&name))?;
        self.disk.sync_names().map_err(LogError::io(&name))?;
        self.messages.push(format!(
            "{name}: {} sealed, SHA-256 {}",
            counted(tail.records, "record"),
            tail.hash
        ));
        let len = self.disk.len(&name).map_err(LogError::io(&name))?;
        let (hash, old) = (tail.hash, self.journal.name.clone());
        self.segments.push(Segment { name, tail, len, version: VERSION });
        self.journal = Journal::new(number + 1, hash);
        self.superfluous.push(old);
        self.clean()
    }

    fn is_too_much(&self, now_ms: u64) -> bool {
        let Some(oldest) = self.segments.first() else { return false };
        let is_old = |ms| oldest.tail.times_ms.1.saturating_add(ms) < now_ms;
        let bytes: u64 = self.segments.iter().chain(&self.carried).map(|s| s.len).sum();
        self.options.retention_ms.is_some_and(is_old) || self.options.size_max.is_some_and(|max| bytes > max)
    }

    /// Removes the oldest segment and carries over its open holdings.
    fn retire(&mut self, now_ms: u64) -> Result<()> {
        let Some(oldest) = self.segments.first().cloned() else { return Ok(()) };
        let (first, old) = (oldest.tail.number + 1, self.carried.clone());
        let (tmp, name) = (tmp_name(&carried_name(first)), carried_name(first));
        if self.disk.len(&tmp).is_ok() {
            self.remove(&tmp)?;
        }
        let tail = retire::carry(&mut *self.disk, old.as_ref(), &oldest, &tmp)?;
        self.disk.rename(&tmp, &name).map_err(LogError::io(&name))?;
        self.disk.sync_names().map_err(LogError::io(&name))?;
        let len = self.disk.len(&name).map_err(LogError::io(&name))?;
        let (last_hash, carried_hash) = (oldest.tail.hash, tail.hash);
        self.mark(Mark::Retired { at_ms: now_ms, first, last_hash, carried_hash });
        self.commit()?;
        self.segments.remove(0);
        self.carried = Some(Segment { name, tail, len, version: VERSION });
        self.messages.push(format!("{}: removed by the retention setting", oldest.name));
        self.superfluous.push(oldest.name);
        self.superfluous.extend(old.map(|old| old.name));
        Ok(())
    }

    /// Returns the contents on disk.
    pub fn status(&self) -> Status {
        Status {
            segments: self.segments.len() as u64,
            records: self.segments.iter().map(|s| s.tail.records).sum::<u64>() + self.journal.records,
            bytes: self.segments.iter().chain(&self.carried).map(|s| s.len).sum::<u64>() + self.journal.len,
            head: self.journal.digest,
        }
    }
}

impl Journal {
    /// Skips to this number, if it is higher.
    fn skip_to(&mut self, number: u64) {
        if number > self.number {
            *self = Journal::new(number, self.previous);
        }
    }

    fn new(number: u64, previous: Hash) -> Journal {
        Journal {
            number,
            previous,
            name: journal_name(number),
            is_begun: false,
            len: journal::JOURNAL_HEAD_LEN as u64,
            is_dirty: false,
            has_receipt: false,
            digest: journal::head_of(number, previous).1,
            records: 0,
            has_news: false,
            began_ms: None,
        }
    }
}

fn damaged_name(name: &str, now_ms: u64) -> String {
    format!("{name}{DAMAGED}{now_ms}")
}

/// First segment kept, from the last retention mark.
pub(crate) fn retired(marks: &[Mark]) -> Option<u64> {
    marks.iter().rev().find_map(|mark| match mark {
        Mark::Retired { first, .. } => Some(*first),
        _ => None,
    })
}

/// Drops all signs of life but the last.
fn without_signs_of_life(marks: &[Mark]) -> Vec<Mark> {
    let is_sign = |mark: &Mark| matches!(mark, Mark::Alive { .. });
    let last = marks.iter().rposition(is_sign);
    let kept = marks.iter().enumerate().filter(|(at, mark)| !is_sign(mark) || Some(*at) == last);
    kept.map(|(_, mark)| mark.clone()).collect()
}
