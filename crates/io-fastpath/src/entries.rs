//! The hash table that the program shares: one entry for each direction of a session.
//!
//! ```text
//!   home = hash of the packet's key        entries[home].near = distances of the entries with this home
//!   +------+------+------+------+------+
//!   | home |      |   A  |      |   B  |   near = [1 + 2, 1 + 4]
//!   +------+------+------+------+------+
//! ```
//! An entry is at its home, or at the first free place behind it, mostly on the same page. Nothing moves. A
//! look-up reads `near` and the entries that it names.
//! The process is the only writer of `near` and of the translations. It writes an entry, then its generation,
//! then `near`. It ends an entry by its generation.

use crate::control::KernelTime;
use crate::flow::Flow;
use crate::layout::{Entry, HASH_WORDS, NEAR_MAX, REACH, TRANSLATION_WORDS, Translation};
use crate::sys::Mapping;
use gatun_mem::prefetch_write;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, fence};
use zerocopy::IntoBytes as _;

/// Homes for each session, which has two entries.
const HOMES_PER_SESSION: u32 = 3;

/// Number of homes in a table for `capacity` sessions.
pub(crate) fn homes_of(capacity: u32) -> u32 {
    capacity.saturating_mul(HOMES_PER_SESSION).min(u32::MAX - REACH)
}

/// Number of entries of a table for `capacity` sessions.
pub(crate) fn entries_of(capacity: u32) -> u32 {
    homes_of(capacity) + REACH
}

/// The entries, and which of them are in use.
pub(crate) struct Entries {
    memory: Mapping,
    secret: [u64; HASH_WORDS],
    homes: u32,
    /// A bit for each entry.
    used: Vec<u64>,
}

/// Position of an entry, and its generation.
pub(crate) type Place = (u32, u32);

impl Entries {
    pub(crate) fn new(memory: Mapping, (secret, homes): ([u64; HASH_WORDS], u32)) -> Entries {
        let used = vec![0; (homes + REACH).div_ceil(64) as usize];
        Entries { memory, secret, homes, used }
    }

    pub(crate) fn all(&self) -> &[Entry] {
        // SAFETY: `Entry` consists of atomic integers.
        unsafe { self.memory.slice() }
    }

    pub(crate) fn at(&self, index: u32) -> &Entry {
        &self.all()[index as usize]
    }

    /// Entry at a position, if its generation is still the same.
    pub(crate) fn get(&self, (index, generation): Place) -> Option<&Entry> {
        let entry = self.all().get(index as usize)?;
        (generation & 1 == 1 && entry.generation.load(Acquire) == generation).then_some(entry)
    }

    fn home(&self, translation: &Translation) -> u32 {
        let (key, len) = translation.key();
        let [first, rest @ ..] = &self.secret;
        let words = key[..len].iter().zip(rest);
        let sum =
            words.fold(*first, |sum, (word, secret)| sum.wrapping_add(secret.wrapping_mul(u64::from(*word))));
        (((sum >> 32) * u64::from(self.homes)) >> 32) as u32
    }

    /// Requests the memory of the home of a translation, which is mostly where its entry is, too.
    pub(crate) fn prefetch(&self, translation: &Translation) {
        self.prefetch_at(self.home(translation));
    }

    /// Requests the memory of an entry, which has three cache lines.
    pub(crate) fn prefetch_at(&self, index: u32) {
        prefetch_write(self.all(), index as usize);
        prefetch_write(self.all(), index as usize + 1);
    }

    fn near(&self, home: u32) -> impl Iterator<Item = u32> {
        let near = self.at(home).near.load(Relaxed).to_le_bytes();
        near.into_iter().take_while(|byte| *byte > 0).map(move |byte| home + u32::from(byte) - 1)
    }

    /// The entry that packets of a translation find, in use.
    pub(crate) fn find(&self, translation: &Translation) -> Option<u32> {
        self.near(self.home(translation)).find(|index| {
            let entry = self.at(*index);
            entry.generation.load(Acquire) & 1 == 1 && entry.translation().has_key_of(translation)
        })
    }

    /// Free positions for both directions of a session. `None` if there is none near one of their homes.
    pub(crate) fn places(&mut self, both: [&Translation; 2]) -> Option<[u32; 2]> {
        let [a, b] = both.map(|translation| self.home(translation));
        let room = |home: u32, count: usize| self.near(home).count() + count <= NEAR_MAX as usize;
        if !(room(a, if a == b { 2 } else { 1 }) && room(b, 1)) {
            return None;
        }
        let first = self.take_free(a)?;
        let second = self.take_free(b);
        if second.is_none() {
            self.give_back(first);
        }
        Some([first, second?])
    }

    /// Takes the first free entry behind a home.
    fn take_free(&mut self, home: u32) -> Option<u32> {
        let end = home + REACH;
        let mut index = home;
        while index < end {
            let word = !self.used[index as usize / 64] >> (index % 64);
            if word != 0 {
                index += word.trailing_zeros();
                break;
            }
            index = (index / 64 + 1) * 64;
        }
        (index < end).then(|| {
            self.used[index as usize / 64] |= 1 << (index % 64);
            index
        })
    }

    fn give_back(&mut self, index: u32) {
        self.used[index as usize / 64] &= !(1 << (index % 64));
    }

    /// Lets packets find an entry.
    pub(crate) fn publish(&self, index: u32, translation: &Translation) {
        let home = self.home(translation);
        let near = &self.at(home).near;
        let mut bytes = near.load(Relaxed).to_le_bytes();
        if let Some(free) = bytes.iter_mut().find(|byte| **byte == 0) {
            *free = (index - home + 1) as u8;
        }
        near.store(u64::from_le_bytes(bytes), Release);
    }

    /// Frees an entry whose generation has ended.
    pub(crate) fn free(&mut self, index: u32) {
        self.withdraw(index);
        self.give_back(index);
    }

    /// Stops packets from finding an entry.
    pub(crate) fn withdraw(&self, index: u32) {
        let home = self.home(&self.at(index).translation());
        let near = &self.at(home).near;
        let byte = |of: u32| (of - home + 1) as u8;
        let mut left = [0; 8];
        let others = self.near(home).filter(|other| *other != index).map(byte);
        left.iter_mut().zip(others).for_each(|(to, from)| *to = from);
        near.store(u64::from_le_bytes(left), Release);
    }

    /// Places of entries in use, in order.
    pub(crate) fn used(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.used).flat_map(|(number, word)| {
            let mut word = *word;
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some(number * 64 + bit)
            })
        })
    }

    /// Takes over the entries of a former process. Ends entries without a whole session, and corrects `near`
    /// of each home. Returns the number of sessions.
    pub(crate) fn adopt(&mut self) -> u32 {
        let mut near = vec![0u64; self.homes as usize];
        let mut count = 0;
        for index in 0..self.all().len() as u32 {
            let entry = self.at(index);
            let generation = entry.generation.load(Acquire);
            if generation & 1 == 0 {
                continue;
            }
            if self.is_whole((index, generation)) {
                let home = self.home(&entry.translation());
                let near = &mut near[home as usize];
                *near = *near << 8 | u64::from(index - home + 1);
                self.used[index as usize / 64] |= 1 << (index % 64);
                count += 1;
            } else {
                entry.generation.store(generation.wrapping_add(1), Release);
            }
        }
        for (home, near) in (0u32..).zip(near) {
            let is = &self.at(home).near;
            let [is_sorted, sorted] = [is.load(Relaxed), near].map(|near| {
                let mut bytes = near.to_le_bytes();
                bytes.sort_unstable();
                bytes
            });
            if is_sorted != sorted {
                is.store(near, Release);
            }
        }
        count / 2
    }

    /// Returns true if packets find an entry, and its partner is the other direction of its session.
    fn is_whole(&self, place: Place) -> bool {
        let Some(entry) = self.get(place) else { return false };
        let partner_place = entry.partner();
        let Some(partner) = self.get(partner_place) else { return false };
        let translation = entry.translation();
        let is_flow = Flow::of(&translation).or_else(|| Flow::of(&translation.reverse())).is_some();
        is_flow
            && partner.partner() == place
            && partner.translation() == translation.reverse()
            && self.find(&translation) == Some(place.0)
            && self.find(&translation.reverse()) == Some(partner_place.0)
    }
}

impl Entry {
    pub(crate) fn translation(&self) -> Translation {
        let words: [u32; TRANSLATION_WORDS] =
            self.translation.each_ref().map(|word: &AtomicU32| word.load(Relaxed));
        zerocopy::transmute!(words)
    }

    /// Place of the other direction.
    pub(crate) fn partner(&self) -> Place {
        (self.partner.load(Relaxed), self.partner_generation.load(Relaxed))
    }

    /// Generation of the next session here.
    pub(crate) fn next_generation(&self) -> u32 {
        self.generation.load(Relaxed) | 1
    }

    /// Writes one direction of a session into a free entry.
    pub(crate) fn write(&self, translation: &Translation, flow: &Flow, partner: Place, now: KernelTime) {
        let generation = self.next_generation();
        // A free entry has an even generation. A reader that sees a word of the new session sees that
        // generation, too, or a later one.
        fence(Release);
        let (words, _) = translation.as_bytes().as_chunks::<4>();
        for (to, from) in self.translation.iter().zip(words) {
            to.store(u32::from_ne_bytes(*from), Relaxed);
        }
        for time in [&self.seen, &self.sent_up, &self.installed] {
            time.store(now.0, Relaxed);
        }
        self.packets.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
        self.closing.store(0, Relaxed);
        self.partner.store(partner.0, Relaxed);
        self.partner_generation.store(partner.1, Relaxed);
        self.record.store(flow.record, Relaxed);
        self.epoch.store(flow.epoch, Relaxed);
        self.path_mtu.store(0, Relaxed);
        self.ident.store(flow.ident % crate::layout::IDENTS as u16, Relaxed);
        self.instance.store(flow.instance, Relaxed);
        self.worker.store(flow.worker, Relaxed);
        self.generation.store(generation, Release);
    }

    /// Ends the entry: no packet that arrives later is translated by it.
    pub(crate) fn end(&self) {
        self.generation.store(self.generation.load(Relaxed).wrapping_add(1), Release);
    }
}
