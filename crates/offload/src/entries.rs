//! Sessions that the manager has marked or installed: records with an index by worker and record number.

use gatun_mem::{OutOfMemory, is_taken_at_once, take_room};
use gatun_nat::feed::SessionId;
use hashbrown::HashTable;

/// Number of an entry.
pub(crate) type Slot = u32;

/// State of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The place is free.
    Free,
    /// The mark was requested.
    Marking,
    /// The session is marked. The flow waits for its installation.
    Waiting,
    /// The target has an entry.
    Installed,
    /// The target has an entry, which waits for its removal.
    Removing,
}

/// A session that is marked or will be.
pub(crate) struct Entry<I> {
    pub(crate) id: SessionId,
    /// Place in the target, if it has one.
    pub(crate) place: Option<I>,
    /// Distinguishes the occupants of this number.
    pub(crate) life: u32,
    /// Time when it was offered: microseconds, modulo 2^32.
    pub(crate) offered_us: u32,
    pub(crate) epoch: u16,
    /// Path MTU of the target's entry, bytes; 0 if it has none.
    pub(crate) path_mtu: u16,
    pub(crate) worker: u8,
    pub(crate) pool6: u8,
    /// Last walk of the worker that has found the session, or that it need not find it.
    pub(crate) walk: u8,
    /// Rounds of credits without a packet.
    pub(crate) idle_rounds: u8,
    /// Rounds of credits since its installation, as far as they matter.
    pub(crate) rounds: u8,
    /// Packets of the last rounds, earlier ones with less weight: four times those of an average round.
    pub(crate) packets: f32,
    pub(crate) state: State,
    /// True if it is to be released as soon as its mark is confirmed.
    pub(crate) unwanted: bool,
    /// True if it is to be installed again after its removal; while its mark is not confirmed, if it had one
    /// before.
    pub(crate) renew: bool,
    /// True if another flow gets its place.
    pub(crate) is_evicted: bool,
    /// True if the session is known. An entry of an earlier process is not bound until it has been compared.
    pub(crate) bound: bool,
    /// True if a question waits.
    pub(crate) asked: bool,
    /// Directions with packets that the engine does not know of.
    pub(crate) active: [bool; 2],
}

/// Weight of earlier rounds in [`Entry::packets`].
pub(crate) const WEIGHT_OF_EARLIER: f32 = 0.75;

impl<I> Entry<I> {
    /// Takes note of packets. A round is over if the use of all entries has become known.
    pub(crate) fn pace(&mut self, packets: u64, is_over: bool) {
        if is_over {
            self.rounds = self.rounds.saturating_add(1);
            self.packets *= WEIGHT_OF_EARLIER;
            self.idle_rounds = self.idle_rounds.saturating_add(1);
        }
        if packets > 0 {
            self.idle_rounds = 0;
        }
        self.packets += packets as f32;
    }
}

/// An entry and its occupant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) slot: Slot,
    pub(crate) life: u32,
}

/// Further entries that memory is allocated for at a time: sessions whose mark was requested have one, too.
const MORE: usize = 4096;

/// All entries.
pub(crate) struct Entries<I> {
    list: Vec<Entry<I>>,
    free: Vec<Slot>,
    index: HashTable<Slot>,
}

fn hash(worker: u8, record: u32) -> u64 {
    // Records are numbered by the engine: nobody can choose them.
    let key = u64::from(record) << 8 | u64::from(worker);
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

impl<I: Copy> Entries<I> {
    /// Allocates memory for a number of entries, and some more. The kernel's refusal shows later.
    pub(crate) fn new(len: u32) -> Self {
        let len = len as usize + MORE;
        let mut list = Vec::new();
        let mut free: Vec<Slot> = Vec::new();
        list.reserve_exact(len);
        free.reserve_exact(len);
        let _: Result<(), OutOfMemory> =
            take_room(list.spare_capacity_mut()).and_then(|()| take_room(free.spare_capacity_mut()));
        let mut index = HashTable::with_capacity(len);
        if is_taken_at_once() {
            let slot_hash = |slot: &Slot| hash(0, *slot);
            (0..len as Slot).for_each(|slot| {
                index.insert_unique(slot_hash(&slot), slot, slot_hash);
            });
            index.clear();
        }
        Entries { list, free, index }
    }

    /// Bytes that [`Entries::new`] allocates.
    pub(crate) fn memory_bytes(len: u32) -> u64 {
        let len = len as usize + MORE;
        // A table is at most seven eighths full. Each place has a byte beside the number.
        let places = (len * 8 / 7).next_power_of_two();
        (len * (size_of::<Entry<I>>() + size_of::<Slot>()) + places * (size_of::<Slot>() + 1)) as u64
    }

    /// Number of entries in use.
    pub(crate) fn len(&self) -> usize {
        self.list.len() - self.free.len()
    }

    /// Upper bound of the numbers.
    pub(crate) fn high(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn get(&self, slot: Slot) -> &Entry<I> {
        &self.list[slot as usize]
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut Entry<I> {
        &mut self.list[slot as usize]
    }

    pub(crate) fn token(&self, slot: Slot) -> Token {
        Token { slot, life: self.get(slot).life }
    }

    /// The entry of a token, if it is still the same one.
    pub(crate) fn of(&mut self, token: Token) -> Option<&mut Entry<I>> {
        let entry = self.list.get_mut(token.slot as usize)?;
        (entry.state != State::Free && entry.life == token.life).then_some(entry)
    }

    /// Adds an entry. Only a bound one is found by its record.
    pub(crate) fn add(&mut self, mut entry: Entry<I>) -> Slot {
        let slot = match self.free.pop() {
            Some(slot) => {
                entry.life = self.get(slot).life.wrapping_add(1);
                *self.get_mut(slot) = entry;
                slot
            }
            None => {
                let slot = self.list.len() as Slot;
                if self.list.len() == self.list.capacity() {
                    self.list.reserve_exact(MORE);
                }
                self.list.push(entry);
                slot
            }
        };
        if self.get(slot).bound {
            self.enter(slot);
        }
        slot
    }

    /// Makes a bound entry the one of its record. An earlier one is not found any more.
    pub(crate) fn enter(&mut self, slot: Slot) {
        let Entry { worker, id, .. } = *self.get(slot);
        if let Some(old) = self.at_record(worker, id.record) {
            self.leave(old);
        }
        let list = &self.list;
        self.index.insert_unique(hash(worker, id.record), slot, |&slot| {
            let entry = &list[slot as usize];
            hash(entry.worker, entry.id.record)
        });
    }

    fn leave(&mut self, slot: Slot) {
        let Entry { worker, id, .. } = *self.get(slot);
        if let Ok(found) = self.index.find_entry(hash(worker, id.record), |&other| other == slot) {
            found.remove();
        }
    }

    /// Returns the entry of a record, whatever its flow.
    pub(crate) fn at_record(&self, worker: u8, record: u32) -> Option<Slot> {
        let is_it = |&slot: &Slot| {
            let entry = self.get(slot);
            (entry.worker, entry.id.record) == (worker, record)
        };
        self.index.find(hash(worker, record), is_it).copied()
    }

    /// Returns the entry of a session.
    pub(crate) fn find(&self, worker: u8, id: &SessionId) -> Option<Slot> {
        self.at_record(worker, id.record).filter(|&slot| self.get(slot).id.flow == id.flow)
    }

    /// Frees an entry.
    pub(crate) fn free(&mut self, slot: Slot) {
        self.leave(slot);
        let entry = self.get_mut(slot);
        (entry.state, entry.bound, entry.place) = (State::Free, false, None);
        self.free.push(slot);
    }
}
