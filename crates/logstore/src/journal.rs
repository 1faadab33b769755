//! Journal, the file being written: a frame per write, in the order of events.
//!
//! ```text
//!   head   "GATUNLOG" 'J' version 0 0 0 0 0 0, number, SHA-256 of the segment before, SHA-256 of these
//!   frame  "FRAM", bytes of the payload, SHA-256 of the head or frame before, payload, SHA-256 of all this
//!   payload  bytes of the marks, marks, chunk
//! ```
//! A killed writer leaves complete frames and at most one incomplete one at the end, which was never
//! acknowledged. If frames follow an incomplete one, the file was changed. An incomplete last frame was
//! changed if a receipt (`receipt.rs`) covers it.

use crate::chunk;
use crate::hash::Hash;
use crate::mark::{self, Mark};
use crate::record::Record;
use crate::segment::{HEAD_LEN, VERSION, head, version_of};
use crate::varint::Bytes;

const FRAME: &[u8; 4] = b"FRAM";
/// Maximum number of false frame beginnings; each may cost a hash of everything after it.
const TRIES_MAX: usize = 1000;
/// Length of a journal's head in bytes.
pub(crate) const JOURNAL_HEAD_LEN: usize = HEAD_LEN + 8 + 32 + 32;
/// Length of a frame without its payload in bytes.
const FRAME_LEN: usize = 4 + 4 + 32 + 32;

/// Encodes the head of a journal; returns it with its digest.
pub(crate) fn head_of(number: u64, previous: Hash) -> (Vec<u8>, Hash) {
    let fields = [&head(b'J', VERSION)[..], &number.to_le_bytes(), &previous.0].concat();
    let digest = Hash::of(&[&fields]);
    ([&fields[..], &digest.0].concat(), digest)
}

/// Encodes a frame after the one with digest `after`; returns it with its digest.
pub(crate) fn frame(after: Hash, marks: &[Mark], records: &[Record]) -> (Vec<u8>, Hash) {
    let (marks, chunk) = (mark::encode(marks), chunk::encode(records));
    let len = (4 + marks.len() + chunk.len()) as u32;
    let marks_len = (marks.len() as u32).to_le_bytes();
    let body = [&FRAME[..], &len.to_le_bytes(), &after.0, &marks_len, &marks, &chunk].concat();
    let digest = Hash::of(&[&body]);
    ([&body[..], &digest.0].concat(), digest)
}

/// State of a journal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Complete: every byte is part of a frame.
    Whole,
    /// Incomplete frame of so many bytes at the end.
    Torn(u64),
    /// Changed at this byte.
    Damaged(u64),
}

/// Contents of a journal.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) number: u64,
    pub(crate) previous: Hash,
    /// Version of the format; 0 without a head.
    pub(crate) version: u8,
    pub(crate) records: Vec<Record>,
    pub(crate) marks: Vec<Mark>,
    /// Digests of the frames, in order.
    pub(crate) digests: Vec<Hash>,
    /// End of each frame that follows its predecessor.
    pub(crate) ends: Vec<u64>,
    head_digest: Hash,
    /// Length up to the last frame that follows its predecessor; 0 without a head.
    pub(crate) good_len: u64,
    /// Records and marks before the first changed byte.
    pub(crate) broken_after: (usize, usize),
    pub(crate) state: State,
}

impl Scan {
    /// Digest of the last frame, or of the head.
    pub(crate) fn digest(&self) -> Hash {
        self.digests.last().copied().unwrap_or(self.head_digest)
    }

    /// Returns true if the journal had this digest at this length.
    pub(crate) fn has(&self, len: u64, digest: Hash) -> bool {
        match self.ends.binary_search(&len) {
            Ok(at) => self.digests.get(at) == Some(&digest),
            Err(_) => self.version > 0 && len == JOURNAL_HEAD_LEN as u64 && self.head_digest == digest,
        }
    }

    /// Returns true if the journal has a head.
    pub(crate) fn is_begun(&self) -> bool {
        self.version > 0
    }
}

/// Reads a journal; `number` is the one in its name. From a changed journal, all complete frames are read.
pub(crate) fn scan(bytes: &[u8], number: Option<u64>) -> Scan {
    let head = read_head(bytes);
    let mut scan = Scan {
        number: number.or(head.map(|head| head.number)).unwrap_or(0),
        previous: head.map_or(Hash::default(), |head| head.previous),
        version: head.map_or(0, |head| head.version),
        records: Vec::new(),
        marks: Vec::new(),
        digests: Vec::new(),
        ends: Vec::new(),
        head_digest: head.map_or(Hash::default(), |head| head.digest),
        good_len: 0,
        broken_after: (0, 0),
        state: State::Whole,
    };
    let Some(head) = head else {
        // Frames follow once the head is on disk: a file without frames may stem from a writer killed in its
        // first write.
        salvage(bytes, 0, &mut scan);
        if bytes.len() > JOURNAL_HEAD_LEN {
            scan.state = State::Damaged(0);
        }
        return scan;
    };
    if head.number != scan.number {
        // Another file under this name; its records do not belong here.
        scan.state = State::Damaged(HEAD_LEN as u64);
        return scan;
    }
    let (mut at, mut after) = (JOURNAL_HEAD_LEN, head.digest);
    scan.good_len = at as u64;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        match read_frame(rest) {
            Some(frame) if frame.after == after => {
                after = frame.digest;
                at += frame.len;
                scan.take(frame);
                scan.good_len = at as u64;
                scan.ends.push(at as u64);
            }
            _ => {
                salvage(bytes, at, &mut scan);
                break;
            }
        }
    }
    scan
}

/// Reads complete frames after a break of the chain. Without any, the last frame is incomplete.
fn salvage(bytes: &[u8], broken: usize, scan: &mut Scan) {
    scan.state = State::Torn((bytes.len() - broken) as u64);
    scan.broken_after = (scan.records.len(), scan.marks.len());
    let (mut at, mut tries) = (broken, 0);
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.windows(4).position(|four| four == FRAME)) {
        at += found;
        match bytes.get(at..).and_then(read_frame) {
            Some(frame) => {
                scan.state = State::Damaged(broken as u64);
                at += frame.len;
                scan.take(frame);
            }
            None if tries < TRIES_MAX => (at, tries) = (at + 1, tries + 1),
            None => return,
        }
    }
}

impl Scan {
    fn take(&mut self, frame: Frame) {
        self.records.extend(frame.records);
        self.marks.extend(frame.marks);
        self.digests.push(frame.digest);
    }
}

#[derive(Clone, Copy)]
struct Head {
    version: u8,
    number: u64,
    previous: Hash,
    digest: Hash,
}

fn read_head(bytes: &[u8]) -> Option<Head> {
    let (fields, _) = bytes.get(..JOURNAL_HEAD_LEN)?.split_at_checked(JOURNAL_HEAD_LEN - 32)?;
    let mut rest = Bytes(bytes);
    let version = version_of(rest.take(HEAD_LEN)?, b'J')?;
    let (number, previous) = (u64::from_le_bytes(rest.array()?), Hash(rest.array()?));
    let digest = Hash(rest.array()?);
    (Hash::of(&[fields]) == digest).then_some(Head { version, number, previous, digest })
}

struct Frame {
    after: Hash,
    digest: Hash,
    len: usize,
    records: Vec<Record>,
    marks: Vec<Mark>,
}

/// Reads the frame at the front, if complete.
fn read_frame(bytes: &[u8]) -> Option<Frame> {
    let mut rest = Bytes(bytes);
    if rest.take(4)? != FRAME {
        return None;
    }
    let payload_len = u32::from_le_bytes(rest.array()?) as usize;
    let after = Hash(rest.array()?);
    let mut payload = Bytes(rest.take(payload_len)?);
    let digest = Hash(rest.array()?);
    let len = payload_len + FRAME_LEN;
    if Hash::of(&[bytes.get(..len - 32)?]) != digest {
        return None;
    }
    let marks_len = u32::from_le_bytes(payload.array()?) as usize;
    let marks = mark::decode(payload.take(marks_len)?)?;
    Some(Frame { after, digest, len, marks, records: chunk::decode(payload.0)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RecordKind;
    use crate::record::tests::record;

    /// A journal of some frames, and the end of each.
    fn journal(frames: u64) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut digest) = head_of(7, Hash([3; 32]));
        let mut ends = vec![bytes.len()];
        for n in 0..frames {
            let r = record(n, RecordKind::BlockAssigned, "192.0.2.1", (256 * n as u16, 256 * n as u16 + 255));
            let (frame, next) = frame(digest, &[Mark::Alive { at_ms: n }], &[r]);
            bytes.extend(frame);
            digest = next;
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    #[test]
    fn a_truncated_journal_keeps_all_complete_frames() {
        let (bytes, ends) = journal(4);
        for len in 0..=bytes.len() {
            let scan = scan(&bytes[..len], Some(7));
            if len < JOURNAL_HEAD_LEN {
                assert_eq!((scan.is_begun(), scan.state), (false, State::Torn(len as u64)));
                continue;
            }
            let whole = ends.iter().filter(|end| **end <= len).count() - 1;
            assert_eq!((scan.number, scan.records.len(), scan.marks.len()), (7, whole, whole));
            assert_eq!(scan.good_len as usize, ends[whole]);
            let torn = len - ends[whole];
            assert_eq!(scan.state, if torn == 0 { State::Whole } else { State::Torn(torn as u64) });
        }
    }

    #[test]
    fn a_changed_byte_before_the_last_frame_loses_at_most_one_frame() {
        let (bytes, ends) = journal(4);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            let scan = scan(&changed, Some(7));
            if at < JOURNAL_HEAD_LEN {
                assert_eq!((scan.records.len(), &scan.state), (4, &State::Damaged(0)), "byte {at}");
                continue;
            }
            let frame = ends.iter().filter(|end| **end <= at).count() - 1;
            assert_eq!(scan.records.len(), 3, "byte {at}");
            let broken = ends[frame] as u64;
            let torn = bytes.len() as u64 - broken;
            let expected = if frame == 3 { State::Torn(torn) } else { State::Damaged(broken) };
            assert_eq!((scan.state, scan.good_len), (expected, broken));
        }
    }

    #[test]
    fn a_removed_frame_is_detected() {
        let (bytes, ends) = journal(4);
        let without = [&bytes[..ends[1]], &bytes[ends[2]..]].concat();
        let scan = scan(&without, None);
        assert_eq!((scan.state, scan.records.len()), (State::Damaged(ends[1] as u64), 3));
    }
}
