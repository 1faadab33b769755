//! Frames and their bytes.

use super::bytes::{Reader, put_text};
use super::error::WireError;
use super::keys::{ConfigKey, KEYS_MAX};
use super::record::{PeerRecord, ShardSeats, member, put_seats, read_seats};
use super::{FRAME_LEN_MAX, LAYOUTS, LENGTH_LEN};
use crate::ownership::Member;

const MAGIC: [u8; 4] = *b"GTPR";
const HELLO: u8 = 0;
const RECORDS: u8 = 1;
const ACKNOWLEDGED: u8 = 2;
const ALIVE: u8 = 3;
const REFUSED: u8 = 4;
const KEYS: u8 = 5;
const ASKED: u8 = 6;
const PROMISED: u8 = 7;
const TIME_ASKED: u8 = 8;
const TIME_TOLD: u8 = 9;

/// Shards that a request for promises, or their answer, has at most.
const PROMISES_MAX: usize = 256;

/// Greeting of a member: the first frame of each side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Lowest and highest layout that it knows.
    pub layouts: (u16, u16),
    /// Member that it is.
    pub member: Member,
    /// Name of the box, for messages.
    pub name: String,
    /// Random number of its process: another one has another stream.
    pub process: u64,
    /// Process whose stream it has handled, and the number that it expects next; `None` if it has none.
    pub resume: Option<(u64, u64)>,
    /// True if it has its state, or none ever existed.
    pub is_settled: bool,
    /// True if its operator has declared the receiver gone.
    pub declares_gone: bool,
    /// Keys that both members must have in common, sorted by name.
    pub keys: Vec<ConfigKey>,
}

/// Group of records with one number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records {
    /// Number in the stream of the sender.
    pub number: u64,
    /// Number of the last frame of the other stream that the sender had accepted.
    pub seen: u64,
    /// Records, in their order.
    pub records: Vec<PeerRecord>,
}

/// Frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Greeting.
    Hello(Hello),
    /// Records.
    Records(Records),
    /// Everything up to `handled` is handled, and answered by frames up to `after`.
    Acknowledged {
        /// Number in the stream of the receiver.
        handled: u64,
        /// Number in the stream of the sender.
        after: u64,
    },
    /// Sign of life. All records up to this number have arrived.
    Alive(u64),
    /// The sender closes the connection, for this reason.
    Refused(String),
    /// The sender's configuration has other keys now, sorted by name.
    Keys(Vec<ConfigKey>),
    /// A node of a cluster asks for promises about shards that both hold. `asked_ms` is its own clock.
    Asked {
        /// Time of the request, ms of the sender's clock.
        asked_ms: u64,
        /// Shards, at most 256, with their holders as the sender knows them.
        shards: Vec<(u8, ShardSeats)>,
    },
    /// Promises about the shards of a request.
    Promised {
        /// Time of the request, ms of the receiver's clock.
        asked_ms: u64,
        /// Promises, at most 256.
        promises: Vec<ShardPromise>,
    },
    /// The sender asks for the wall clock, at this time in ms of its own monotonic clock.
    TimeAsked(u64),
    /// Wall clock of the sender.
    TimeTold {
        /// Time of the request, ms of the receiver's clock.
        asked_ms: u64,
        /// Wall clock, ms since 1970.
        wall_ms: u64,
    },
}

/// Promise about a shard (decision 0107).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardPromise {
    /// Number of the shard.
    pub shard: u8,
    /// Its holders, as both know them.
    pub seats: ShardSeats,
    /// The giver knows the receiver as the owner, and does not claim.
    pub is_to_owner: bool,
}

impl Frame {
    /// Appends the frame and its length.
    pub fn put(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend([0; LENGTH_LEN]);
        match self {
            Frame::Hello(hello) => hello.put(out, begin),
            Frame::Records(records) => {
                put_numbers(out, records.number, records.seen);
                records.records.iter().for_each(|record| record.put(out));
            }
            Frame::Acknowledged { handled, after } => {
                out.push(ACKNOWLEDGED);
                out.extend(handled.to_be_bytes());
                out.extend(after.to_be_bytes());
            }
            Frame::Alive(arrived) => {
                out.push(ALIVE);
                out.extend(arrived.to_be_bytes());
            }
            Frame::Refused(reason) => {
                out.push(REFUSED);
                put_text(out, reason);
            }
            Frame::Keys(keys) => {
                out.push(KEYS);
                put_keys(out, begin, keys);
            }
            Frame::Asked { asked_ms, shards } => {
                out.push(ASKED);
                out.extend(asked_ms.to_be_bytes());
                for (shard, seats) in shards.iter().take(PROMISES_MAX) {
                    out.push(*shard);
                    put_seats(out, *seats);
                }
            }
            Frame::Promised { asked_ms, promises } => {
                out.push(PROMISED);
                out.extend(asked_ms.to_be_bytes());
                for promise in promises.iter().take(PROMISES_MAX) {
                    out.extend_from_slice(&[promise.shard, u8::from(promise.is_to_owner)]);
                    put_seats(out, promise.seats);
                }
            }
            Frame::TimeAsked(asked_ms) => {
                out.push(TIME_ASKED);
                out.extend(asked_ms.to_be_bytes());
            }
            Frame::TimeTold { asked_ms, wall_ms } => {
                out.push(TIME_TOLD);
                out.extend(asked_ms.to_be_bytes());
                out.extend(wall_ms.to_be_bytes());
            }
        }
        put_length(out, begin);
    }
}

/// Bytes of a record, for the memory that is taken at once: those of a session and its end are 35 and 14.
const RECORD_LEN: usize = 24;

/// Appends a frame of records that are bytes already.
pub(super) fn put_records(out: &mut Vec<u8>, number: u64, seen: u64, records: &[u8]) {
    let begin = out.len();
    out.extend([0; LENGTH_LEN]);
    put_numbers(out, number, seen);
    out.extend_from_slice(records);
    put_length(out, begin);
}

fn put_numbers(out: &mut Vec<u8>, number: u64, seen: u64) {
    out.push(RECORDS);
    out.extend(number.to_be_bytes());
    out.extend(seen.to_be_bytes());
}

fn put_length(out: &mut [u8], begin: usize) {
    let len = (out.len() - begin - LENGTH_LEN) as u32;
    out[begin..begin + LENGTH_LEN].copy_from_slice(&len.to_be_bytes());
}

impl Hello {
    /// Returns the greeting of a settled member with this build's layouts.
    pub fn new(member: Member, name: &str, process: u64) -> Hello {
        Hello {
            layouts: (*LAYOUTS.start(), *LAYOUTS.end()),
            member,
            name: name.to_owned(),
            process,
            resume: None,
            is_settled: true,
            declares_gone: false,
            keys: Vec::new(),
        }
    }

    fn put(&self, out: &mut Vec<u8>, begin: usize) {
        out.push(HELLO);
        out.extend(MAGIC);
        out.extend(self.layouts.0.to_be_bytes());
        out.extend(self.layouts.1.to_be_bytes());
        out.extend([self.member as u8, u8::from(self.is_settled)]);
        put_text(out, &self.name);
        let (process, next) = self.resume.unwrap_or((0, 0));
        for number in [self.process, process, next] {
            out.extend(number.to_be_bytes());
        }
        put_keys(out, begin, &self.keys);
        out.push(u8::from(self.declares_gone));
    }

    fn read(bytes: &mut Reader<'_>) -> Result<Hello, WireError> {
        if bytes.take(MAGIC.len()).map_err(|_| WireError::NotGatun)? != MAGIC {
            return Err(WireError::NotGatun);
        }
        let layouts = (bytes.u16()?, bytes.u16()?);
        let (member, is_settled) = (member(bytes.u8()?)?, bytes.u8()? != 0);
        let name = bytes.shown_text()?;
        let (process, of, next) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        let keys = read_keys(bytes)?;
        // Layout 1 has no such field, and later ones may add others.
        let declares_gone = bytes.0.first() == Some(&1);
        bytes.0 = &[];
        let resume = (of != 0 && next != 0).then_some((of, next));
        Ok(Hello { layouts, member, name, process, resume, is_settled, declares_gone, keys })
    }
}

/// Appends keys to the frame that begins at a place. What does not fit is left out, and differs at the other
/// side.
fn put_keys(out: &mut Vec<u8>, begin: usize, keys: &[ConfigKey]) {
    let count_at = out.len();
    out.extend([0; 2]);
    let mut count = 0u16;
    for key in keys.iter().take(KEYS_MAX) {
        if out.len() - begin + key.name.len() > FRAME_LEN_MAX - 512 {
            break;
        }
        put_text(out, &key.name);
        out.extend(key.hash.to_be_bytes());
        count += 1;
    }
    out[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
}

fn read_keys(bytes: &mut Reader<'_>) -> Result<Vec<ConfigKey>, WireError> {
    let count = usize::from(bytes.u16()?);
    if count > KEYS_MAX {
        return Err(WireError::Malformed("too many keys"));
    }
    let mut keys = Vec::with_capacity(count);
    for _ in 0..count {
        keys.push(ConfigKey { name: bytes.shown_text()?, hash: bytes.u64()? });
    }
    match keys.is_sorted() {
        true => Ok(keys),
        false => Err(WireError::Malformed("keys are not sorted")),
    }
}

/// Reads the rest of a frame about shards.
fn read_some<T>(
    body: &mut Reader<'_>,
    read: impl Fn(&mut Reader<'_>) -> Result<T, WireError>,
) -> Result<Vec<T>, WireError> {
    let mut all = Vec::new();
    while !body.is_empty() {
        if all.len() >= PROMISES_MAX {
            return Err(WireError::Malformed("too many shards"));
        }
        all.push(read(body)?);
    }
    Ok(all)
}

/// Reads the first frame of `bytes`. Returns it with the number of its bytes, or `None` if it is not whole.
///
/// # Errors
/// The bytes are no frame. The connection cannot be used any longer.
pub fn decode(bytes: &[u8]) -> Result<Option<(Frame, usize)>, WireError> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_LEN>() else { return Ok(None) };
    let len = u32::from_be_bytes(*length) as usize;
    if len == 0 || len > FRAME_LEN_MAX {
        return Err(WireError::Length(len));
    }
    let Some(frame) = rest.get(..len) else { return Ok(None) };
    let mut body = Reader(frame);
    let frame = match body.u8()? {
        HELLO => Frame::Hello(Hello::read(&mut body)?),
        RECORDS => {
            let (number, seen) = (body.u64()?, body.u64()?);
            if number == 0 || number == u64::MAX {
                return Err(WireError::Malformed("impossible number"));
            }
            let mut records = Vec::with_capacity(body.0.len() / RECORD_LEN);
            while !body.is_empty() {
                records.push(PeerRecord::read(&mut body)?);
            }
            Frame::Records(Records { number, seen, records })
        }
        ACKNOWLEDGED => Frame::Acknowledged { handled: body.u64()?, after: body.u64()? },
        ALIVE => Frame::Alive(body.u64()?),
        REFUSED => Frame::Refused(body.shown_text()?),
        KEYS => Frame::Keys(read_keys(&mut body)?),
        ASKED => {
            let asked_ms = body.u64()?;
            let shards = read_some(&mut body, |body| Ok((body.u8()?, read_seats(body)?)))?;
            Frame::Asked { asked_ms, shards }
        }
        PROMISED => {
            let asked_ms = body.u64()?;
            let promises = read_some(&mut body, |body| {
                let (shard, is_to_owner) = (body.u8()?, body.u8()? != 0);
                Ok(ShardPromise { shard, seats: read_seats(body)?, is_to_owner })
            })?;
            Frame::Promised { asked_ms, promises }
        }
        TIME_ASKED => Frame::TimeAsked(body.u64()?),
        TIME_TOLD => Frame::TimeTold { asked_ms: body.u64()?, wall_ms: body.u64()? },
        kind => return Err(WireError::Kind(kind)),
    };
    match body.is_empty() {
        true => Ok(Some((frame, LENGTH_LEN + len))),
        false => Err(WireError::Malformed("bytes after its end")),
    }
}
