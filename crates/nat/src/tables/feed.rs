//! State feed: an ordered stream of an engine's records for one consumer, such as a fast path's manager.
//!
//! ```text
//!   engine --(ring: sessions, bindings, blocks, each with a number)--> FeedReader
//!   engine <--(Nat::offload: Command)--------------------------------- consumer
//! ```
//! A consumer creates a feed with [`channel`] and attaches its [`Feed`] to the engine
//! ([`Nat::attach_feed`](crate::Nat::attach_feed)). The engine creates only the records that the
//! [`FeedPolicy`] selects, and those of marked sessions. A packet never waits: if the ring is full, the
//! record is lost, and [`Record::Lost`] reports the number of lost records as soon as there is room. The
//! consumer then reads all state again with [`Nat::read_feed`](crate::Nat::read_feed), which returns the same
//! kind of records while the stream continues.
//!
//! **Marks.** A session has a mark ([`Offload`]) as long as a fast path may have an entry for its flow. The
//! consumer sets the mark before it installs the entry, and sends [`Action::Released`] after it has removed
//! the entry. A marked session does not end when its lifetime expires: the engine asks
//! ([`SessionChange::Asked`]) until the consumer answers with [`Action::Seen`] or [`Action::Released`]. If
//! such a session ends for another reason (clear, reload, a closed connection), its public port stays
//! reserved until [`Action::Released`]. No other flow gets a port of an existing entry.
//!
//! **Offered sessions.** [`SessionChange::Established`] is never sent for flows that share a port
//! ([`Pool4::overload`](crate::plan::Pool4::overload)), nor for hairpins: only the engine translates these.
//! It is sent for ICMP sessions, too.
//!
//! Units: times are milliseconds relative to the moment at which a record or command is handled, never
//! readings of a clock. A super-packet counts as one packet. Bytes are those of the packet as received, from
//! the IP header on. IPv4 addresses of inside hosts are written as ::ffff:a.b.c.d.

mod entry;

use crate::base::counters::Traffic;
use crate::base::plan::Transport;
use crate::base::tcp_fsm::TcpState;
use crate::base::time::Instant;
use crate::base::verdict::BURST;
use crate::tables::event::Sequence;
use crate::tables::pool4::PortBlock;
use crate::tables::reader_wait::{self, ReaderWait};
use crate::tables::session::{RecordId, Session};
use crate::tables::subscriber::SubscriberKey;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::net::{Ipv4Addr, Ipv6Addr};
use entry::Entry;
use gatun_mem::OutOfMemory;
use gatun_mem::prefetch_read;
use rtrb::{Consumer, Producer, RingBuffer};

pub use crate::tables::session::{Offload, Ownership};

/// Sessions that a consumer selects. Marked sessions are always included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionScope {
    /// No other sessions.
    #[default]
    None,
    /// Sessions that become established; no record of their end.
    Established,
    /// All sessions, from their first packet to their end.
    All,
}

/// Records that a consumer selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedPolicy {
    /// Selected sessions.
    pub sessions: SessionScope,
    /// True for records of bindings, including static ones.
    pub bindings: bool,
    /// True for records of port blocks.
    pub blocks: bool,
    /// True for records of path MTUs.
    pub paths: bool,
    /// Number of packets, both directions together, after which a UDP or ICMP session counts as established;
    /// at most [`FeedPolicy::PACKETS_MAX`]. 0 and 1 mean the first packet. It applies to sessions that begin
    /// while the feed is attached; earlier ones count as established.
    pub packets: u8,
    /// The same for TCP connections: number of packets that follow the second SYN, the one that establishes
    /// the connection; 0 means this SYN. So short connections are not reported.
    pub tcp_packets: u8,
}

impl FeedPolicy {
    /// Largest value of [`FeedPolicy::packets`], [`FeedPolicy::tcp_packets`] and [`Action::Count`].
    pub const PACKETS_MAX: u8 = 128;
}

/// Identity of a flow: the addresses and ports on both sides of the translator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// Inside address and port (ICMP: identifier).
    pub inside: (Ipv6Addr, u16),
    /// Public address and port (ICMP: identifier).
    pub outside: (Ipv4Addr, u16),
    /// Remote address and port (ICMP: 0).
    pub remote: (Ipv4Addr, u16),
    /// Protocol.
    pub transport: Transport,
    /// Number of the instance: NAT64's first, then NAT44's.
    pub instance: u8,
}

/// Identity of a session in records and commands: its record and its flow. A record can get another session
/// later, so a command names both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// Number of its record in this engine, from 1 on. A session keeps its record until a restart.
    pub record: u32,
    /// Its flow.
    pub flow: Flow,
}

/// Change of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SessionChange {
    /// It began. Sent only with [`SessionScope::All`].
    Opened,
    /// It is established: TCP has seen SYNs from both sides, and each protocol enough packets. A fast path
    /// may translate it. A session can become established more than once, see [`Action::Count`].
    Established,
    /// A FIN or RST was seen, or the session is no longer offered: a fast path should release it. Sent for
    /// marked sessions only. A member of a pair gets it for told sessions with FINs from both sides, or a
    /// RST.
    Closing,
    /// Its lifetime has expired according to the packets that the engine has seen. Sent for marked sessions
    /// only, and repeated every few seconds until [`Action::Seen`] or [`Action::Released`].
    Asked,
    /// It has ended. If it is marked, its public port stays reserved until [`Action::Released`].
    Ended,
}

/// Record of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// The session.
    pub id: SessionId,
    /// Change that the record reports.
    pub change: SessionChange,
    /// State of a TCP session.
    pub tcp: Option<TcpState>,
    /// Number of the prefix that the inside host uses, an index of
    /// [`Nat::prefixes`](crate::Nat::prefixes); 0 for NAT44.
    pub pool6: u8,
    /// True if its binding is a static one of the configuration.
    pub of_static: bool,
    /// Epoch and mark of the session.
    pub ownership: Ownership,
    /// Number of its subscriber.
    pub subscriber: u32,
    /// Remaining lifetime without another packet, ms.
    pub expires_ms: u32,
}

/// Record of a binding, or of a public port that flows share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindingRecord {
    /// True if it begins, false if it ends.
    pub begins: bool,
    /// True for a static binding of the configuration.
    pub is_static: bool,
    /// True for a port that flows of one subscriber share; `inside` is that of one of them.
    pub is_shared: bool,
    /// Number of the instance.
    pub instance: u8,
    /// Protocol.
    pub transport: Transport,
    /// Inside address and port.
    pub inside: (Ipv6Addr, u16),
    /// Public address and port.
    pub outside: (Ipv4Addr, u16),
}

/// Record of a port block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRecord {
    /// True if it begins, false if it ends.
    pub begins: bool,
    /// Number of the instance.
    pub instance: u8,
    /// First inside address of its subscriber.
    pub subscriber: Ipv6Addr,
    /// Public address.
    pub outside: Ipv4Addr,
    /// First and last port.
    pub ports: (u16, u16),
    /// Protocols, in the order of [`Transport`].
    pub transports: [bool; 3],
}

/// Record of a path MTU that the engine has learnt, or learnt again. A lost record is not repeated: the next
/// message about the path brings another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRecord {
    /// IPv4 host at the end of the path.
    pub remote: Ipv4Addr,
    /// Largest packet that passes, bytes: below 1260. The engine fragments larger packets that leave without
    /// DF.
    pub mtu: u16,
    /// Time for which the engine remembers it, ms.
    pub expires_ms: u32,
}

/// Record of the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Change of a session.
    Session(SessionRecord),
    /// Change of a binding.
    Binding(BindingRecord),
    /// Change of a port block.
    Block(BlockRecord),
    /// A path MTU.
    Path(PathRecord),
    /// Another plan is in force: prefixes, MTUs, pools and the offered sessions may have changed. Read all
    /// state again.
    PlanChanged,
    /// Number of records lost before this one because the ring was full. Read all state again.
    Lost(u64),
}

/// Report or request of the consumer about one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sets the mark and the epoch. [`Offload::Pending`] and [`Offload::Fast`] need an offered session:
    /// established, not a hairpin, without a shared port. [`Offload::Draining`] needs a marked session.
    /// [`Offload::Engine`] is refused; send [`Action::Released`] instead.
    Mark(Ownership),
    /// The fast path has seen packets these numbers of milliseconds ago, by direction: from inside, to the
    /// inside. The lifetime is extended as if the engine had seen them, so packets to the inside count only
    /// if the instance has `inbound_refresh`. A lifetime is never shortened.
    Seen([Option<u32>; 2]),
    /// The fast path has translated these packets since the last credit. They count as received and
    /// forwarded, for the instance, the pool, the public address and the subscriber. Accepted for an ended
    /// session until it is released.
    Credit(Traffic),
    /// Offers the session again after this number of further packets, from 1 to [`FeedPolicy::PACKETS_MAX`]:
    /// the consumer has no room for it now, or has released it. [`SessionChange::Established`] then reports
    /// it. Refused for a session that is marked or not offered.
    Count(u8),
    /// The fast path has no entry for the flow, and will not install one. The mark is removed. A session
    /// whose lifetime has expired ends, and the port of an ended session is freed.
    Released,
}

/// Result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    /// The command was executed.
    Done,
    /// The session has ended, and does not wait for a release.
    Gone,
    /// The session has no mark, or cannot get this one now.
    Refused,
}

/// Command of a consumer for one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The session.
    pub id: SessionId,
    /// Action to take.
    pub action: Action,
    /// Result, written by the engine.
    pub outcome: CommandOutcome,
}

impl Command {
    /// Creates a command without a result yet.
    pub fn new(id: SessionId, action: Action) -> Command {
        Command { id, action, outcome: CommandOutcome::Gone }
    }
}

/// Change of a session by a packet, as far as it matters to the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    None,
    /// A TCP connection is established by a SYN.
    Established,
    /// The session is established by its number of packets.
    Counted,
    /// A TCP connection is not established any more: it has the first FIN, or a RST.
    Closing,
    /// It has FINs from both sides, or a RST after a FIN.
    Closed,
}

/// Sessions that packets of a burst have established by their number, for a report after the burst.
#[derive(Default)]
pub(crate) struct CountedSessions(ArrayVec<RecordId, BURST>);

impl CountedSessions {
    /// Adds a session. There is room for one of each packet.
    #[inline(always)]
    pub(crate) fn add(&mut self, id: RecordId) {
        let _ = self.0.try_push(id);
    }

    /// Returns the session at a place, in the order of their packets.
    pub(crate) fn get(&self, place: usize) -> Option<RecordId> {
        self.0.get(place).copied()
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Engine's end of a feed.
pub struct Feed {
    ring: Producer<Entry>,
    policy: FeedPolicy,
    first_state: u8,
    reports_first: bool,
    generation: u64,
    /// Number of the next record.
    next: u64,
    /// Records lost since the last [`Record::Lost`].
    unreported: u64,
    lost: u64,
    wait: ReaderWait,
}

/// Consumer's end of a feed, on any thread.
pub struct FeedReader {
    ring: Consumer<Entry>,
    /// Entries that have been taken out of the ring, the latest one first.
    taken: Vec<Entry>,
    /// Number of entries in the ring whose lines were requested.
    requested: usize,
    generation: u64,
    /// Number of the next record.
    next: u64,
}

/// Entries that a reader takes at a time.
const TAKEN_MAX: usize = 16;
/// Entries behind them whose cache lines the reader requests: each is in the cache of the engine's processor.
const AHEAD: usize = 64;
/// Smallest length of a ring.
const LEN_MIN: usize = 4;
/// Maximum number of records at the end of one session: those of session, binding and block.
const RECORDS_OF_AN_END: usize = 3;

/// Bytes of memory of a feed with room for `len` records.
pub fn memory_bytes(len: usize) -> u64 {
    (len.max(LEN_MIN) * size_of::<Entry>()) as u64
}

/// Creates a feed with room for `len` records of 64 bytes. `generation` distinguishes it from other feeds of
/// the same or another engine. Records are numbered from 0 on.
pub fn channel(policy: FeedPolicy, len: usize, generation: u64) -> (Feed, FeedReader) {
    let (mut ring, reader) = RingBuffer::new(len.max(LEN_MIN));
    if let Ok(mut places) = ring.write_chunk_uninit(ring.slots()) {
        // An empty ring is in one piece, and stays empty without a commit. If the kernel has no memory, that
        // shows when records are written.
        let _: Result<(), OutOfMemory> = gatun_mem::take_room(places.as_mut_slices().0);
    }
    let max = FeedPolicy::PACKETS_MAX;
    let (packets, tcp_packets) = (policy.packets.min(max), policy.tcp_packets.min(max));
    let policy = FeedPolicy { packets, tcp_packets, ..policy };
    let counts = policy.sessions > SessionScope::None;
    let first_state = Session::established_after(if counts { policy.packets.saturating_sub(1) } else { 0 });
    let feed = Feed {
        ring,
        policy,
        first_state,
        reports_first: policy.sessions == SessionScope::All || counts && policy.packets <= 1,
        generation,
        next: 0,
        unreported: 0,
        lost: 0,
        wait: ReaderWait::default(),
    };
    (
        feed,
        FeedReader { ring: reader, taken: Vec::with_capacity(TAKEN_MAX), requested: 0, generation, next: 0 },
    )
}

impl FeedReader {
    /// Returns the next record and its place. A gap in the numbers is a lost record. [`Record::Lost`] has the
    /// number of the record that follows it.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<(Sequence, Record)> {
        if self.taken.is_empty() {
            self.take();
        }
        let record = self.taken.pop()?.record();
        // Lost records have used up their numbers.
        self.next += if let Record::Lost(records) = record { records } else { 0 };
        let at = Sequence { generation: self.generation, number: self.next };
        self.next += u64::from(!matches!(record, Record::Lost(_)));
        Some((at, record))
    }

    /// Takes the next records. Their lines were requested when the records before them were taken, as far as
    /// they were there.
    fn take(&mut self) {
        let window = self.ring.slots().min(TAKEN_MAX + AHEAD);
        let Ok(chunk) = self.ring.read_chunk(window) else { return };
        let (first, second) = chunk.as_slices();
        for index in self.requested..window {
            match index.checked_sub(first.len()) {
                None => prefetch_read(first, index),
                Some(index) => prefetch_read(second, index),
            }
        }
        let taken = window.min(TAKEN_MAX);
        let (of_first, _) = first.split_at_checked(taken).unwrap_or((first, &[]));
        let (of_second, _) = second.split_at_checked(taken - of_first.len()).unwrap_or((second, &[]));
        self.taken.extend(of_second.iter().rev().chain(of_first.iter().rev()));
        self.requested = window - taken;
        chunk.commit(taken);
    }

    /// Returns the number of waiting records.
    pub fn waiting(&self) -> usize {
        self.ring.slots() + self.taken.len()
    }

    /// Returns whether the engine has ended or has another feed, so that no further records will come.
    pub fn is_abandoned(&self) -> bool {
        self.ring.is_abandoned()
    }
}

impl Feed {
    /// Returns the number of records lost so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    pub(crate) fn policy(&self) -> &FeedPolicy {
        &self.policy
    }

    /// Returns the place of the next record.
    pub(crate) fn sequence(&self) -> Sequence {
        Sequence { generation: self.generation, number: self.next }
    }

    /// Returns whether a record fits now.
    pub(crate) fn has_room(&self) -> bool {
        match self.unreported {
            // It reads the line of the reader's place only if the ring may be full.
            0 => !self.ring.is_full(),
            _ => self.ring.slots() > 1,
        }
    }

    /// State of a new UDP or ICMP session.
    #[inline]
    pub(crate) fn first_state(&self) -> u8 {
        self.first_state
    }

    /// Returns whether the first packet of a session may cause a record.
    #[inline]
    pub(crate) fn reports_first(&self) -> bool {
        self.reports_first
    }

    /// Reports a change of a session.
    #[inline]
    pub(crate) fn push_session(
        &mut self,
        id: RecordId,
        session: &Session,
        change: SessionChange,
        now: Instant,
    ) {
        self.push(Entry::session(id, session, change, now));
    }

    /// Reports a binding.
    #[inline(never)]
    pub(crate) fn push_binding(&mut self, record: &Session, begins: bool) {
        self.push(Entry::binding(record, begins));
    }

    /// Reports a port block at a public address.
    #[inline(never)]
    pub(crate) fn push_block(
        &mut self,
        begins: bool,
        owner: SubscriberKey,
        outside: Ipv4Addr,
        block: &PortBlock,
    ) {
        self.push(Entry::block(begins, owner, outside, block));
    }

    /// Reports a path MTU.
    pub(crate) fn push_path(&mut self, path: &PathRecord) {
        self.push(Entry::path(path));
    }

    /// Reports another plan.
    pub(crate) fn push_plan_changed(&mut self) {
        self.push(Entry::plan_changed());
    }

    #[inline]
    fn push(&mut self, entry: Entry) {
        if self.unreported > 0 {
            self.report_loss();
        }
        // A lost record uses up its number, so the gap shows the loss.
        self.next += 1;
        if self.unreported > 0 || self.ring.push(entry).is_err() {
            self.unreported += 1;
            self.lost += 1;
        }
    }

    /// Reports lost records, if there are any and if there is room.
    #[cold]
    pub(crate) fn report_loss(&mut self) {
        if self.unreported > 0 && self.ring.push(Entry::lost(self.unreported)).is_ok() {
            self.unreported = 0;
        }
    }

    /// Returns the part of a budget of ending sessions that loses no record. It is zero if the reader is
    /// behind by half the ring. After a second without progress of the reader it is the whole budget.
    pub(crate) fn budget(&mut self, now: Instant, ends: usize) -> usize {
        let is_read = !self.ring.is_abandoned();
        self.wait.budget(now, ends, (reader_wait::spare(&self.ring), RECORDS_OF_AN_END), is_read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_records_are_counted_and_reported_once_there_is_room() {
        let (mut feed, mut reader) = channel(FeedPolicy::default(), 4, 9);
        (0..10).for_each(|_| feed.push_plan_changed());
        assert_eq!((feed.lost(), feed.has_room(), reader.waiting()), (6, false, 4));
        let mut next = || reader.next().map(|(at, record)| (at.generation, at.number, record));
        (0..3).for_each(|n| assert_eq!(next(), Some((9, n, Record::PlanChanged))));
        feed.report_loss();
        feed.push_plan_changed();
        assert_eq!(next(), Some((9, 3, Record::PlanChanged)));
        assert_eq!(next(), Some((9, 10, Record::Lost(6))), "with the number of the one behind it");
        assert_eq!((next(), next()), (Some((9, 10, Record::PlanChanged)), None));
        assert_eq!(feed.sequence(), Sequence { generation: 9, number: 11 });
        drop(feed);
        assert!(reader.is_abandoned());
    }

    #[test]
    fn a_path_is_the_same_on_both_sides() {
        let (mut feed, mut reader) = channel(FeedPolicy::default(), 4, 0);
        let path = PathRecord { remote: Ipv4Addr::new(203, 0, 113, 255), mtu: 1259, expires_ms: 600_000 };
        feed.push_path(&path);
        assert_eq!(reader.next().map(|(_, record)| record), Some(Record::Path(path)));
    }

    #[test]
    fn ends_stop_at_half_a_ring_but_not_for_a_reader_that_hangs_or_is_gone() {
        let (mut feed, mut reader) = channel(FeedPolicy::default(), 60, 0);
        assert_eq!(feed.budget(Instant(0), 1_000), 10);
        (0..30).for_each(|_| feed.push_plan_changed());
        assert_eq!(feed.budget(Instant(10), 100), 0);
        assert_eq!(feed.budget(Instant(900), 100), 0);
        (0..TAKEN_MAX).for_each(|_| assert!(reader.next().is_some()));
        assert_eq!(feed.budget(Instant(1_100), 100), 5, "it has read 16, and an end has up to three records");
        assert_eq!(feed.budget(Instant(2_100), 100), 100, "it has hung for a second");
        drop(reader);
        assert_eq!(feed.budget(Instant(2_101), 100), 100);
    }
}
