//! Persisted sessions: the table of records is in a file in memory, which the next process reads.
//!
//! ```text
//!   file    header (a page) .. records from 2 MB on, as the engine has them
//! ```
//! Only the records are persisted. [`Nat::restore`](crate::Nat::restore) rebuilds everything else (indexes,
//! ports in use, blocks, subscribers) from them. So Gatun does not trust incomplete work of a killed process:
//! the check of each record tells if it was written completely. A restart loses only harmless state: ports
//! held down, blocks without a session, learnt path MTUs, held SYNs and fragments.
//!
//! An engine that inherits sessions ([`Nat::inherit`](crate::Nat::inherit)) translates at once. Gatun
//! restores a session when the first packet asks for it (`path/restore`), and the others between bursts.

use crate::base::plan::{Plan, Transport};
use crate::base::tcp_fsm::TcpState;
use crate::base::time::Instant;
use crate::base::time::Tick;
use crate::tables::session::{ESTABLISHED, Inside, Kind, NONE, Session};
use crate::tables::sizes::record_room;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_mem::{BorrowedFd, HugeVec, NotMapped, SharedRecords, bytes_written};
use gatun_wire::checksum::Delta;

pub use crate::tables::session::{Offload, Ownership, Replica};

/// Layout of the header and of a record. Any change of a record raises it. The previous layout can still be
/// read.
pub const LAYOUT: u32 = 2;
/// Oldest layout that can be read. Its flags are bytes of their own (decision 0037).
pub const LAYOUT_READ_MIN: u32 = 1;

const MAGIC: u64 = u64::from_be_bytes(*b"gatunses");
/// Offset of the records in a file, bytes: the start of a huge page.
pub const RECORDS_AT: u64 = 2 << 20;

#[derive(Clone, Copy, zerocopy::FromBytes)]
#[repr(C)]
struct Header {
    magic: u64,
    layout: u32,
    record_bytes: u32,
    records: u64,
    /// Engine's time zero on a clock that continues across processes, ms.
    zero_ms: u64,
}

/// File for an engine's sessions.
pub struct SessionFile {
    pub(crate) records: HugeVec<Session>,
}

impl SessionFile {
    /// Required length of the file for this plan's engine, bytes.
    pub fn bytes(plan: &Plan) -> u64 {
        RECORDS_AT + record_room(plan) as u64 * size_of::<Session>() as u64
    }

    /// Number of sessions of such an engine that fit into a file of this many bytes.
    pub fn sessions_in(plan: &Plan, bytes: u64) -> u32 {
        let records = bytes.saturating_sub(RECORDS_AT) / size_of::<Session>() as u64;
        let beside = (record_room(plan) as u64).saturating_sub(plan.limits.sessions_max.into());
        // `record_room` reserves at most a quarter of the sessions for static bindings, and `beside` is no
        // less than that.
        u32::try_from(records.saturating_sub(beside)).unwrap_or(u32::MAX)
    }

    /// Makes `file` the place of an engine's sessions, and locks it. The file must be [`SessionFile::bytes`]
    /// long and all zeroes. `zero_ms` is the engine's time zero on a clock that continues after the process
    /// has ended.
    ///
    /// # Errors
    /// Returns an error if the file is too short, if another engine uses it, or if there is no address space.
    pub fn new(file: BorrowedFd<'_>, plan: &Plan, zero_ms: u64) -> Result<SessionFile, NotMapped> {
        let len = record_room(plan);
        Header::new(len, zero_ms).write(file)?;
        Ok(SessionFile { records: HugeVec::in_file(file, RECORDS_AT, len)? })
    }
}

/// Required length of a file for this many sessions without an engine, bytes.
pub fn bytes_of(sessions: usize) -> u64 {
    RECORDS_AT + (sessions as u64 + 1) * size_of::<Session>() as u64
}

/// Writes sessions to `file`, as an engine killed at `clock_ms` would leave them. The file must be
/// [`bytes_of`] them long and all zeroes.
///
/// # Errors
/// Same as [`SessionFile::new`].
pub fn write(file: BorrowedFd<'_>, sessions: &[SavedSession], clock_ms: u64) -> Result<(), NotMapped> {
    let len = sessions.len() + 1;
    Header::new(len, clock_ms).write(file)?;
    let mut records = HugeVec::<Session>::in_file(file, RECORDS_AT, len)?;
    for (record, saved) in records.iter_mut().skip(1).zip(sessions) {
        *record = saved.record();
    }
    Ok(())
}

impl Header {
    fn new(records: usize, zero_ms: u64) -> Header {
        let record_bytes = size_of::<Session>() as u32;
        Header { magic: MAGIC, layout: LAYOUT, record_bytes, records: records as u64, zero_ms }
    }

    fn write(self, file: BorrowedFd<'_>) -> Result<(), NotMapped> {
        let mut header = HugeVec::<Header>::in_file(file, 0, 1)?;
        header.iter_mut().for_each(|header| *header = self);
        Ok(())
    }
}

/// Reason why a file's sessions cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionFileError {
    /// The file is not Gatun's, or the process was killed before it began the file.
    NotOurs,
    /// The file has the format of another version.
    Layout {
        /// Format version of the file.
        has: u32,
    },
    /// The file is shorter than its header says.
    Short,
    /// An engine uses the file.
    InUse,
}

impl fmt::Display for SessionFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionFileError::NotOurs => write!(f, "the file has no session records"),
            SessionFileError::Layout { has } => {
                write!(
                    f,
                    "unsupported layout {has} (this version reads layouts {LAYOUT_READ_MIN} to {LAYOUT})"
                )
            }
            SessionFileError::Short => write!(f, "the file is truncated"),
            SessionFileError::InUse => write!(f, "another process uses the file"),
        }
    }
}

/// Records of another process, or a part of them. Clones share the records: if one of them clears a session,
/// the others lose it too.
#[derive(Clone)]
pub struct SavedSessions {
    records: Arc<SharedRecords<Session>>,
    /// Number of the part's first record.
    first: usize,
    /// Number of records that were ever written. Records are used from the first one on.
    used: usize,
    /// Layout of the records.
    layout: u32,
    /// Current time on the clock of the other engine.
    now: Instant,
}

/// Mapping of another engine's instance and prefix numbers to this one's.
#[derive(Clone, Debug, Default)]
pub struct Renumbering {
    /// Indexed by the old instance number: the current number, and those of its prefixes (none for NAT44).
    /// `None` for an instance or prefix that no longer exists.
    pub instances: Vec<Option<(u8, Vec<Option<u8>>)>>,
}

impl Renumbering {
    pub(crate) fn instance(&self, number: u8) -> Option<u8> {
        self.instances.get(usize::from(number))?.as_ref().map(|(number, _)| *number)
    }

    /// Converts a session to current numbers; `None` if its instance or prefix no longer exists.
    pub fn translate(&self, saved: SavedSession) -> Option<SavedSession> {
        let (instance, prefixes) = self.instances.get(usize::from(saved.instance))?.as_ref()?;
        let pool6 = match prefixes.is_empty() {
            true => 0,
            false => (*prefixes.get(usize::from(saved.pool6))?)?,
        };
        Some(SavedSession { instance: *instance, pool6, ..saved })
    }
}

/// Session with all data that an engine needs to restore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedSession {
    /// Number of the instance.
    pub instance: u8,
    /// Number of the prefix that its inside host uses; 0 for NAT44.
    pub pool6: u8,
    /// Protocol.
    pub transport: Transport,
    /// Inside address and port (ICMP: identifier); IPv4 ones as ::ffff:a.b.c.d.
    pub inside: (Ipv6Addr, u16),
    /// Public address and port.
    pub outside: (Ipv4Addr, u16),
    /// Remote address and port.
    pub remote: (Ipv4Addr, u16),
    /// State of a TCP session.
    pub tcp: TcpState,
    /// Remaining lifetime without another packet, ms.
    pub expires_ms: u32,
    /// True if it shares its public port with flows of other inside ends.
    pub shares_port: bool,
    /// Its owner among engines and fast paths.
    pub ownership: Ownership,
    /// Its relation to the other member of a pair.
    pub replica: Replica,
    /// True if it has ended, and keeps its public port until a fast path or the other member has released it.
    pub quarantined: bool,
}

impl SavedSessions {
    /// Reads a file without writing to it. `clock_ms` is the reading of the clock that its [`SessionFile`]
    /// was made with.
    ///
    /// # Errors
    /// Returns the reason if the file cannot be read.
    pub fn read(file: BorrowedFd<'_>, clock_ms: u64) -> Result<SavedSessions, SessionFileError> {
        Self::opened(file, clock_ms, |len| Ok(HugeVec::copy_of(file, RECORDS_AT, len)?.into()))
    }

    /// Reads a file in the process that takes over its sessions, in up to `parts` parts. Sessions that this
    /// process has restored are no longer in the file.
    ///
    /// # Errors
    ///
    /// Returns the reason if the file cannot be read.
    pub fn take_over(
        file: BorrowedFd<'_>,
        clock_ms: u64,
        parts: usize,
    ) -> Result<Vec<SavedSessions>, SessionFileError> {
        let all = Self::opened(file, clock_ms, |len| SharedRecords::in_file(file, RECORDS_AT, len))?;
        let each = all.used.div_ceil(parts.max(1)).max(1);
        let firsts = (0..all.used).step_by(each);
        Ok(firsts
            .map(|first| SavedSessions { first, used: each.min(all.used - first), ..all.clone() })
            .collect())
    }

    /// Reads the header, and gets the records from `records`, which is called with their number.
    fn opened(
        file: BorrowedFd<'_>,
        clock_ms: u64,
        records: impl FnOnce(usize) -> Result<SharedRecords<Session>, NotMapped>,
    ) -> Result<SavedSessions, SessionFileError> {
        let header = HugeVec::<Header>::copy_of(file, 0, 1);
        let header = header.ok().and_then(|header| header.first().copied());
        let header = header.filter(|header| header.magic == MAGIC).ok_or(SessionFileError::NotOurs)?;
        let is_known = (LAYOUT_READ_MIN..=LAYOUT).contains(&header.layout);
        if !is_known || header.record_bytes as usize != size_of::<Session>() {
            return Err(SessionFileError::Layout { has: header.layout });
        }
        let len = usize::try_from(header.records).map_err(|_| SessionFileError::Short)?;
        let records = records(len).map_err(|why| match why {
            NotMapped::InUse => SessionFileError::InUse,
            NotMapped::Memory(_) | NotMapped::Refused(_) => SessionFileError::Short,
        })?;
        let written = bytes_written(file).map_or(u64::MAX, |bytes| bytes.saturating_sub(RECORDS_AT));
        let used = written.div_ceil(size_of::<Session>() as u64);
        let used = usize::try_from(used).unwrap_or(usize::MAX).min(len);
        let now = Instant(clock_ms.saturating_sub(header.zero_ms));
        Ok(SavedSessions { records: Arc::new(records), first: 0, used, layout: header.layout, now })
    }

    /// Number of records that can contain sessions.
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// Returns the session in the record of that number, from 0 to [`len`](Self::len).
    #[inline]
    pub(crate) fn session(&self, number: usize) -> Option<Session> {
        let number = Some(number).filter(|&number| number < self.used)?;
        let record = self.records.get(self.first + number).filter(Session::is_kept)?;
        Some(if self.layout == 1 { record.of_layout_1() } else { record })
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Clears a record. Returns whether it was a session until then.
    pub(crate) fn clear(&self, number: usize) -> bool {
        let is_session = self.session(number).is_some();
        is_session
            && self.records.clear_word(self.first + number, Session::KIND_WORD).is_some_and(|word| word != 0)
    }

    /// Sessions and quarantined ports, with the instance and prefix numbers of the other engine.
    pub fn sessions(&self) -> impl Iterator<Item = SavedSession> + '_ {
        let sessions = (0..self.used).filter_map(|number| self.session(number));
        sessions.filter(Session::is_whole).map(|record| SavedSession::of(&record, self.now))
    }
}

impl SavedSession {
    /// Makes the record for an engine whose time begins at zero.
    fn record(&self) -> Session {
        let mut record = self.record_of(self.instance, Instant(0));
        record.set_pool6(self.pool6, Delta::default());
        record.sealed(NONE)
    }

    /// Makes the record without the part that depends on its prefix.
    pub(crate) fn record_of(&self, instance: u8, now: Instant) -> Session {
        let (addr, port) = self.inside;
        let inside = Inside { addr, port, transport: self.transport, instance };
        let mut record = Session::new(Kind::Session, &inside, self.outside, 0, self.remote, 0);
        record.set_overloaded(self.shares_port);
        // The engine never marks a flow that shares a port.
        let offload = if self.shares_port { Offload::Engine } else { self.ownership.offload };
        record.set_ownership(Ownership { offload, ..self.ownership });
        record.set_replica(if self.shares_port { Replica::None } else { self.replica });
        record.state = if self.transport == Transport::Tcp { self.tcp as u8 } else { ESTABLISHED };
        record.live_until(Tick::after(now, self.expires_ms));
        if self.quarantined {
            record.quarantine();
        }
        record
    }

    pub(crate) fn of(record: &Session, now: Instant) -> SavedSession {
        let inside = record.inside();
        let has_state = inside.transport == Transport::Tcp && record.is_session();
        SavedSession {
            instance: record.instance,
            pool6: record.pool6,
            transport: inside.transport,
            inside: (inside.addr, inside.port),
            outside: record.outside(),
            remote: record.remote(),
            tcp: if has_state { record.tcp_state() } else { TcpState::Established },
            expires_ms: record.expires().left_ms(now),
            shares_port: record.is_overloaded(),
            ownership: record.ownership(),
            replica: record.replica(),
            quarantined: record.is_quarantined(),
        }
    }
}
