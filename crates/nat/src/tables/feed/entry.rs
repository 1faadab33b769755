//! Entries of the ring: a record as the tables have it, in one cache line. The reader converts it, so that a
//! new session costs the engine little more than a copy.
//!
//! Three fields of the copy have another meaning: `next` is the number of the record, `check` the kind of the
//! entry, and `prev` with `address_ix` the time of the entry. Records of blocks and losses use the same
//! fields.

use super::{BindingRecord, BlockRecord, PathRecord, Record, SessionChange, SessionId, SessionRecord};
use crate::base::plan::Transport;
use crate::base::time::Instant;
use crate::tables::pool4::PortBlock;
use crate::tables::session::{Inside, Kind, RecordId, Session};
use crate::tables::subscriber::SubscriberKey;
use core::net::Ipv4Addr;

/// Kinds of entries that are not a change of a session, whose kinds are the numbers of [`SessionChange`].
const BINDING_BEGINS: u32 = 8;
const BINDING_ENDS: u32 = 9;
const BLOCK_BEGINS: u32 = 10;
const BLOCK_ENDS: u32 = 11;
const PLAN_CHANGED: u32 = 12;
const LOST: u32 = 13;
const PATH: u32 = 14;

/// Entry of the ring.
#[derive(Clone, Copy)]
pub(super) struct Entry(Session);

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    /// Creates an entry from a record of the tables, with a number of 64 bits.
    #[inline(always)]
    fn of(record: &Session, kind: u32, id: RecordId, number: u64) -> Entry {
        let mut copy = *record;
        (copy.next, copy.check) = (id, kind);
        (copy.prev, copy.address_ix) = (number as u32, (number >> 32) as u32);
        Entry(copy)
    }

    /// Creates the entry of a session's change.
    #[inline(always)]
    pub(super) fn session(id: RecordId, session: &Session, change: SessionChange, now: Instant) -> Entry {
        Entry::of(session, change as u32, id, now.0)
    }

    /// Creates the entry of a binding, from the record of one of its sessions.
    #[inline]
    pub(super) fn binding(record: &Session, begins: bool) -> Entry {
        Entry::of(record, if begins { BINDING_BEGINS } else { BINDING_ENDS }, 0, 0)
    }

    /// Creates the entry of a port block.
    pub(super) fn block(begins: bool, owner: SubscriberKey, outside: Ipv4Addr, block: &PortBlock) -> Entry {
        let inside = Inside {
            addr: owner.prefix.into(),
            port: block.first,
            transport: Transport::Tcp,
            instance: owner.instance,
        };
        let nobody = (Ipv4Addr::UNSPECIFIED, 0);
        let mut record = Session::new(Kind::Free, &inside, (outside, block.last), 0, nobody, 0);
        record.pool6 = (0..).zip(block.transports).map(|(bit, has)| u8::from(has) << bit).sum();
        Entry::of(&record, if begins { BLOCK_BEGINS } else { BLOCK_ENDS }, 0, 0)
    }

    /// Creates the entry of a path MTU. `subscriber` has the time.
    pub(super) fn path(path: &PathRecord) -> Entry {
        let mut record = Session::EMPTY;
        record.subscriber = path.expires_ms;
        Entry::of(&record, PATH, 0, u64::from(u32::from(path.remote)) << 16 | u64::from(path.mtu))
    }

    /// Creates the entry of another plan.
    pub(super) fn plan_changed() -> Entry {
        Entry::of(&Session::EMPTY, PLAN_CHANGED, 0, 0)
    }

    /// Creates the entry of a number of lost records.
    pub(super) fn lost(records: u64) -> Entry {
        Entry::of(&Session::EMPTY, LOST, 0, records)
    }

    /// Converts the entry to the record that it stands for.
    pub(super) fn record(&self) -> Record {
        let Entry(session) = self;
        let number = u64::from(session.address_ix) << 32 | u64::from(session.prev);
        let change = match session.check {
            BINDING_BEGINS | BINDING_ENDS => return self.binding_record(),
            BLOCK_BEGINS | BLOCK_ENDS => return self.block_record(),
            PLAN_CHANGED => return Record::PlanChanged,
            LOST => return Record::Lost(number),
            PATH => {
                let (remote, mtu) = (Ipv4Addr::from((number >> 16) as u32), number as u16);
                return Record::Path(PathRecord { remote, mtu, expires_ms: session.subscriber });
            }
            change => SessionChange::of_number(change),
        };
        Record::Session(SessionRecord::of(session.next, session, change, Instant(number)))
    }

    fn binding_record(&self) -> Record {
        let Entry(record) = self;
        Record::Binding(BindingRecord {
            begins: record.check == BINDING_BEGINS,
            is_static: record.is_of_static(),
            is_shared: record.is_overloaded(),
            instance: record.instance,
            transport: record.transport(),
            inside: (record.inside_addr(), record.inside_port()),
            outside: record.outside(),
        })
    }

    fn block_record(&self) -> Record {
        let Entry(record) = self;
        let (outside, last) = record.outside();
        Record::Block(BlockRecord {
            begins: record.check == BLOCK_BEGINS,
            instance: record.instance,
            subscriber: record.inside_addr(),
            outside,
            ports: (record.inside_port(), last),
            transports: core::array::from_fn(|bit| record.pool6 >> bit & 1 != 0),
        })
    }
}

impl SessionChange {
    fn of_number(number: u32) -> SessionChange {
        use SessionChange::{Asked, Closing, Ended, Established, Opened};
        let all = [Opened, Established, Closing, Asked, Ended];
        all.into_iter().find(|&change| change as u32 == number).unwrap_or(Ended)
    }
}

impl SessionRecord {
    /// Creates the record of a session's change at `now`.
    pub(crate) fn of(id: RecordId, session: &Session, change: SessionChange, now: Instant) -> SessionRecord {
        let is_tcp = session.transport() == Transport::Tcp;
        SessionRecord {
            id: SessionId { record: id, flow: session.identity() },
            change,
            tcp: is_tcp.then(|| session.tcp_state()),
            pool6: session.pool6,
            of_static: session.is_of_static(),
            ownership: session.ownership(),
            subscriber: session.subscriber,
            expires_ms: session.expires().left_ms(now),
        }
    }
}
