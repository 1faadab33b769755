//! Receipts of the journal's length on disk. They distinguish a truncated or changed end from an unfinished
//! write.
//!
//! ```text
//!   file   slot, slot: written in turn, in place; both lie in one sector
//!   slot   "GATUNACK", sequence, number of the journal, bytes, digest of its last frame or head, and the
//!          SHA-256 of these
//! ```
//! A frame is synced first, then its receipt; only then is the frame acknowledged. A journal is never shorter
//! than its receipt says, and at most one frame longer. See decision 0079.

use crate::disk::{Disk, read};
use crate::hash::Hash;
use crate::journal::{Scan, State};
use crate::names::{RECEIPTS, journal_name, tmp_name};
use crate::varint::Bytes;
use gatun_wire::text::{counted, group};
use std::io;

const MAGIC: &[u8; 8] = b"GATUNACK";
const SLOT_LEN: usize = 8 + 8 + 8 + 8 + 32 + 32;

/// Receipt: the acknowledged end of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) sequence: u64,
    /// Number of the journal.
    pub(crate) number: u64,
    /// Length of the journal; 0 if it need not exist yet.
    pub(crate) len: u64,
    /// Digest of its last frame, or of its head.
    pub(crate) digest: Hash,
}

impl Receipt {
    fn bytes(&self) -> Vec<u8> {
        let numbers = [self.sequence, self.number, self.len].map(u64::to_le_bytes).concat();
        let fields = [&MAGIC[..], &numbers, &self.digest.0].concat();
        let hash = Hash::of(&[&fields]);
        [fields, hash.0.to_vec()].concat()
    }

    fn read(slot: &[u8]) -> Option<Receipt> {
        let mut bytes = Bytes(slot);
        let is_slot = bytes.take(8)? == MAGIC;
        let mut next = || bytes.array().map(u64::from_le_bytes);
        let (sequence, number, len) = (next()?, next()?, next()?);
        let receipt = Receipt { sequence, number, len, digest: Hash(bytes.array()?) };
        (is_slot && receipt.bytes() == slot).then_some(receipt)
    }

    /// Writes the receipt into its slot.
    pub(crate) fn write(&self, disk: &mut dyn Disk) -> io::Result<()> {
        disk.write_at(RECEIPTS, self.sequence % 2 * SLOT_LEN as u64, &self.bytes())?;
        disk.sync(RECEIPTS)
    }

    /// Creates the file with this receipt in both slots.
    pub(crate) fn create(&self, disk: &mut dyn Disk) -> io::Result<()> {
        let tmp = tmp_name(RECEIPTS);
        if disk.len(&tmp).is_ok() {
            disk.remove(&tmp)?;
        }
        let mut slots = [*self, Receipt { sequence: self.sequence + 1, ..*self }];
        slots.sort_by_key(|slot| slot.sequence % 2);
        disk.append(&tmp, &slots.map(|slot| slot.bytes()).concat())?;
        disk.sync(&tmp)?;
        disk.rename(&tmp, RECEIPTS)?;
        disk.sync_names()
    }
}

/// Contents of the file.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    slots: [Option<Receipt>; 2],
    /// True if the file consists of both slots and nothing else.
    pub(crate) is_whole: bool,
}

impl Slots {
    /// Reads the file; `None` if it does not exist.
    pub(crate) fn read(disk: &dyn Disk) -> io::Result<Option<Slots>> {
        let len = match disk.len(RECEIPTS) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            len => len? as usize,
        };
        let bytes = read(disk, RECEIPTS, 0, len.min(2 * SLOT_LEN))?;
        let slot = |n: usize| {
            let slot = bytes.get(n * SLOT_LEN..(n + 1) * SLOT_LEN).and_then(Receipt::read);
            slot.filter(|receipt| receipt.sequence % 2 == n as u64)
        };
        let slots = [slot(0), slot(1)];
        let follow = |a: Receipt, b: Receipt| a.sequence.abs_diff(b.sequence) == 1;
        let is_whole = len == 2 * SLOT_LEN && matches!(slots, [Some(a), Some(b)] if follow(a, b));
        Ok(Some(Slots { slots, is_whole }))
    }

    /// Last receipt.
    pub(crate) fn last(&self) -> Option<Receipt> {
        self.slots.iter().flatten().copied().max_by_key(|receipt| receipt.sequence)
    }
}

/// Files to compare with the receipts.
pub(crate) struct Files<'a> {
    /// Number of each segment, with the digest of its journal.
    pub(crate) sealed: Vec<(u64, Hash)>,
    pub(crate) journals: Vec<&'a Scan>,
    /// True if any file has a version with receipts.
    pub(crate) has_receipts: bool,
}

/// Result of comparing receipts and files.
#[derive(Debug, Default)]
pub(crate) struct ReceiptCheck {
    /// File and fault.
    pub(crate) faults: Vec<(String, String)>,
    /// File and doubt: either a killed process or a change of the end can be the cause.
    pub(crate) unknown: Vec<(String, String)>,
}

impl ReceiptCheck {
    fn fault(&mut self, file: &str, what: impl Into<String>) {
        self.faults.push((file.to_owned(), what.into()));
    }

    fn unknown(&mut self, file: &str, what: impl Into<String>) {
        self.unknown.push((file.to_owned(), what.into()));
    }
}

/// Compares the files with the receipts read `before` and `after` them.
pub(crate) fn check(before: Option<&Slots>, after: Option<&Slots>, files: &Files<'_>) -> ReceiptCheck {
    let mut check = ReceiptCheck::default();
    for scan in &files.journals {
        match scan.state {
            State::Damaged(at) => {
                check.fault(&journal_name(scan.number), format!("changed at or near byte {at}"));
            }
            State::Torn(bytes) => check.unknown(
                &journal_name(scan.number),
                format!("an unfinished write at the end ({}): the process was killed, or the bytes were changed; none of them was acknowledged", counted(bytes, "byte")),
            ),
            State::Whole => {}
        }
    }
    match before {
        Some(slots) => compare(slots, after.unwrap_or(slots), files, &mut check),
        None if files.has_receipts => {
            check.fault(RECEIPTS, "the file is missing: the end of the log may have been removed");
        }
        None if files.sealed.is_empty() && files.journals.is_empty() => {
            check.unknown(RECEIPTS, "the directory contains no log");
        }
        None => check.unknown(
            RECEIPTS,
            "written by a version without receipts: the end of the log may have been removed",
        ),
    }
    check
}

fn compare(slots: &Slots, after: &Slots, files: &Files<'_>, check: &mut ReceiptCheck) {
    let Some(last) = slots.last() else {
        check.fault(RECEIPTS, "both receipts were changed");
        return;
    };
    let name = journal_name(last.number);
    let journal = files.journals.iter().find(|scan| scan.number == last.number);
    match journal {
        _ if last.len == 0 => {}
        Some(scan) if scan.has(last.len, last.digest) => {}
        Some(scan) => check.fault(
            &name,
            format!(
                "{} acknowledged, {} intact",
                counted(last.len, "byte"),
                group(scan.good_len.min(last.len))
            ),
        ),
        None if files.sealed.contains(&(last.number, last.digest)) => {}
        None => {
            check.fault(&name, format!("{} acknowledged; the file is missing", counted(last.len, "byte")))
        }
    }
    let latest = after.last().filter(|after| after.sequence >= last.sequence).unwrap_or(last);
    let beyond = |scan: &&&Scan| match scan.number.cmp(&latest.number) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Equal => scan.ends.iter().filter(|end| **end > latest.len).count(),
        std::cmp::Ordering::Greater => scan.ends.len(),
    };
    let frames: usize = files.journals.iter().map(|scan| beyond(&scan)).sum();
    match frames {
        0 => {}
        1 => check.unknown(
            RECEIPTS,
            "the last write has no receipt: the process was killed between them, or the write was added",
        ),
        _ => check.fault(RECEIPTS, format!("older than the journal: {frames} writes have no receipt")),
    }
    if !slots.is_whole {
        let has_newer = files.journals.iter().any(|scan| scan.number > last.number || last.len == 0);
        match frames > 0 || has_newer {
            true => check.unknown(
                RECEIPTS,
                "one of the two receipts is incomplete: the process was killed while writing it, or it was changed",
            ),
            false => check.fault(RECEIPTS, "one of the two receipts was changed"),
        }
    }
}
