//! Subscribers: the unit of pairing and quotas. One record for each IPv6 prefix with state.

use crate::index::Index;
use gatun_mem::hash::Hasher64;
use gatun_mem::{HugeVec, OutOfMemory, prefetch_read};
use gatun_wire::DropReason;

/// No address, no record.
const NONE: u32 = u32::MAX;

/// Who a subscriber is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriberKey {
    /// The inside address, its host bits cleared.
    pub prefix: u128,
    /// Which instance.
    pub instance: u8,
}

/// What is kept of a subscriber: half a cache line.
#[derive(Clone, Copy, Debug, zerocopy::FromZeros)]
#[repr(C, align(32))]
pub struct Subscriber {
    prefix: [u64; 2],
    /// Sessions at this moment.
    pub sessions: u32,
    /// Ports at this moment, all protocols together.
    pub ports: u32,
    /// Number of the paired address; of a free record, the next free one.
    paired: u32,
    instance: u8,
    live: bool,
}

impl Subscriber {
    /// Who it is.
    pub fn key(&self) -> SubscriberKey {
        let prefix = u128::from(self.prefix[0]) << 64 | u128::from(self.prefix[1]);
        SubscriberKey { prefix, instance: self.instance }
    }

    /// The number of the outside address that it is paired with (RFC 4787 REQ-2), if it is already.
    pub fn paired(&self) -> Option<u32> {
        (self.paired != NONE).then_some(self.paired)
    }

    /// Pairs it with an outside address.
    pub fn pair(&mut self, address_ix: u32) {
        self.paired = address_ix;
    }
}

/// The table of them. A subscriber's number stays the same as long as it has sessions or ports.
pub struct Subscribers {
    records: HugeVec<Subscriber>,
    index: Index,
    hasher: Hasher64,
    /// Records below this have been used at some time.
    fresh: u32,
    /// Head of the list of free records below `fresh`.
    free: u32,
}

impl Subscribers {
    /// Room for `max` subscribers.
    ///
    /// # Errors
    /// Where memory is short.
    pub fn new(max: u32, hasher: Hasher64) -> Result<Self, OutOfMemory> {
        let records = HugeVec::new(max.min(NONE - 1) as usize)?;
        Ok(Subscribers { records, index: Index::with_capacity(max)?, hasher, fresh: 0, free: NONE })
    }

    /// Subscribers with a record.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The number of a subscriber, if it has a record.
    pub fn find(&self, key: SubscriberKey) -> Option<u32> {
        let same = |id: u32| self.records.get(id as usize).is_some_and(|r| r.live && r.key() == key);
        self.index.find(self.hash(key), same)
    }

    /// The number of a subscriber; a new one has no sessions, no ports, and no address yet.
    ///
    /// # Errors
    /// [`DropReason::SubscriberTableFull`].
    pub fn find_or_insert(&mut self, key: SubscriberKey) -> Result<u32, DropReason> {
        if let Some(id) = self.find(key) {
            return Ok(id);
        }
        let hash = self.hash(key);
        let recycled = self.records.get(self.free as usize).map(|r| r.paired);
        let id = if recycled.is_some() { self.free } else { self.fresh };
        let record = self.records.get_mut(id as usize).ok_or(DropReason::SubscriberTableFull)?;
        self.index.insert(hash, id).map_err(|_| DropReason::SubscriberTableFull)?;
        *record = Subscriber {
            prefix: [(key.prefix >> 64) as u64, key.prefix as u64],
            sessions: 0,
            ports: 0,
            paired: NONE,
            instance: key.instance,
            live: true,
        };
        match recycled {
            Some(next) => self.free = next,
            None => self.fresh += 1,
        }
        Ok(id)
    }

    /// A subscriber by its number.
    #[inline]
    pub fn get(&self, id: u32) -> Option<&Subscriber> {
        self.records.get(id as usize).filter(|r| r.live)
    }

    /// A subscriber by its number.
    #[inline]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut Subscriber> {
        self.records.get_mut(id as usize).filter(|r| r.live)
    }

    /// Asks for the line of a subscriber's record.
    #[inline]
    pub fn prefetch(&self, id: u32) {
        prefetch_read(&self.records, id as usize);
    }

    /// Frees the record of a subscriber without sessions and ports; says whether it did.
    pub fn release_if_idle(&mut self, id: u32) -> bool {
        let Some(record) = self.get(id) else { return false };
        if record.sessions > 0 || record.ports > 0 {
            return false;
        }
        let hash = self.hash(record.key());
        self.index.remove(hash, id);
        if let Some(record) = self.records.get_mut(id as usize) {
            record.live = false;
            record.paired = self.free;
            self.free = id;
        }
        true
    }

    fn hash(&self, key: SubscriberKey) -> u64 {
        self.hasher.hash4([(key.prefix >> 64) as u64, key.prefix as u64, u64::from(key.instance), 4 << 32])
    }
}
