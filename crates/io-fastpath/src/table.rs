//! Sessions that the kernel translates: installed, read, removed.
//!
//! The sessions are memory that the program shares, so that reading and clearing counters, and ending a
//! session, take no system call. The program finds a session by two hash maps, which are changed in batches.

use crate::control::{Control, KernelTime};
use crate::counters::Counters;
use crate::error::{FastPathError, step};
use crate::flow::{Flow, OutboundKey};
use crate::layout::{
    IDENTITY_WORDS, INSTANCES_MAX, Identity, InstanceSettings, Key4, Key6, REASONS, STATE_CLOSING, Session,
};
use crate::maps::Maps;
use crate::sys::{self, Mapping};
use gatun_wire::Settings;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// An installed session: a slot, and which of its occupants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId {
    /// Number of the slot, below the table's capacity.
    pub index: u32,
    generation: u32,
}

/// One direction of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionUse {
    /// Packets translated since they were last taken; a super-packet is one.
    pub packets: u64,
    /// Their bytes as received, from the IP header on.
    pub bytes: u64,
    /// Time of the last one, exact to a tick of the kernel (10 ms at most); at first the time of the
    /// installation.
    pub seen: KernelTime,
    /// True while packets still go to the engine, because earlier packets of the session may be queued there.
    pub is_pending: bool,
}

/// Use of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowUse {
    /// From inside.
    pub outbound: DirectionUse,
    /// To the inside.
    pub inbound: DirectionUse,
    /// True after a FIN or RST: it and all later packets go to the engine.
    pub is_closing: bool,
}

/// Reason why a session was not installed.
#[derive(Debug)]
pub enum Refusal {
    /// No slot is free.
    Full,
    /// The kernel refused.
    Kernel(io::Error),
}

/// Settings of an instance that the program needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance(InstanceSettings);

impl Instance {
    /// Of a NAT64 instance.
    pub fn nat64(settings: &Settings) -> Instance {
        let constant = |value: Option<u8>| value.map_or(-1, i16::from);
        Instance(InstanceSettings {
            mtu4: settings.mtu4,
            mtu6: settings.mtu6,
            mtu6_without_df: settings.lowest_ipv6_mtu.min(settings.mtu6).max(1280),
            tos: constant(settings.tos_6to4),
            traffic_class: constant(settings.traffic_class_4to6),
        })
    }

    /// Of a NAT44 instance with this MTU.
    pub fn nat44(mtu: u32) -> Instance {
        Instance(InstanceSettings { mtu4: mtu, mtu6: 0, mtu6_without_df: 0, tos: -1, traffic_class: -1 })
    }
}

/// Table of the sessions that the kernel translates. No method needs a capability.
pub struct Table {
    maps: Maps,
    memory: Mapping,
    control: Arc<Control>,
    /// Slots to be used again, and the first of those behind it that never were used.
    free: Vec<u32>,
    fresh: u32,
    capacity: u32,
    processors: usize,
}

impl Table {
    pub(crate) fn new(maps: Maps, control: Control, processors: usize) -> Result<Table, FastPathError> {
        let capacity = maps.capacity()?;
        let memory = Mapping::new(&maps.sessions, capacity as usize * size_of::<Session>());
        let memory = memory.map_err(step("mapping the sessions"))?;
        let control = Arc::new(control);
        Ok(Table { maps, memory, control, free: Vec::new(), fresh: 0, capacity, processors })
    }

    /// Words that the program reads for each packet.
    pub fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control)
    }

    /// Number of sessions that there is room for.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Number of sessions installed.
    pub fn len(&self) -> u32 {
        self.fresh - self.free.len() as u32
    }

    /// Returns true if no session is installed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Files of the maps, for a process that loads the program again.
    pub fn files(&self) -> [&OwnedFd; 7] {
        self.maps.files()
    }

    fn sessions(&self) -> &[Session] {
        // SAFETY: `Session` consists of atomic integers.
        unsafe { self.memory.slice() }
    }

    fn session(&self, id: SlotId) -> Option<&Session> {
        let session = self.sessions().get(id.index as usize)?;
        (session.generation.load(Acquire) == id.generation).then_some(session)
    }

    /// Sets the settings of an instance. Sessions that are installed follow at once.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn set_instance(&self, number: u8, instance: Instance) -> Result<(), FastPathError> {
        let set = sys::update(&self.maps.instances, &u32::from(number), &instance.0);
        set.map_err(step("setting an instance"))
    }

    /// Installs sessions, and adds a result for each to `placed`. They are pending at first. A session whose
    /// addresses, ports and protocol are those of an installed one takes its packets over: remove that one
    /// before.
    pub fn install(&mut self, flows: &[Flow], placed: &mut Vec<Result<SlotId, Refusal>>) {
        let now = KernelTime::now();
        let begin = placed.len();
        let mut keys = Keys::default();
        for (position, flow) in flows.iter().enumerate() {
            let Some(index) = self.take_slot() else {
                placed.push(Err(Refusal::Full));
                continue;
            };
            let identity = flow.identity();
            let generation = write(&self.sessions()[index as usize], &identity, flow.record, now);
            keys.add(&identity, index, begin + position);
            placed.push(Ok(SlotId { index, generation }));
        }
        // Keys last: a session without one is never found.
        for (position, error) in keys.insert(&self.maps) {
            if let Ok(id) = std::mem::replace(&mut placed[position], Err(Refusal::Kernel(error))) {
                self.remove(&[id], &mut Vec::new());
            }
        }
    }

    fn take_slot(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            (self.fresh < self.capacity).then(|| {
                self.fresh += 1;
                self.fresh - 1
            })
        })
    }

    /// Removes sessions, and adds what they were used for since it was last taken to `used`, in order: `None`
    /// for one that was removed before. When this returns, no packet that arrives is translated by them any
    /// more.
    pub fn remove(&mut self, ids: &[SlotId], used: &mut Vec<Option<FlowUse>>) {
        let mut keys = Keys::default();
        let begin = used.len();
        for (position, id) in ids.iter().enumerate() {
            let Some(session) = self.session(*id) else {
                used.push(None);
                continue;
            };
            session.generation.store(id.generation.wrapping_add(1), Release);
            keys.add(&identity(session), id.index, begin + position);
            used.push(Some(FlowUse::default()));
        }
        keys.delete(&self.maps);
        // A program that read the generation before may still be counting: what it adds after this is lost.
        for (id, used) in ids.iter().zip(&mut used[begin..]).filter(|(_, used)| used.is_some()) {
            *used = Some(taken(&self.sessions()[id.index as usize]));
            self.free.push(id.index);
        }
    }

    /// Use of a session, which is left as it is. `None` if it was removed.
    pub fn peek(&self, id: SlotId) -> Option<FlowUse> {
        self.session(id).map(|session| read(session, |counter| counter.load(Relaxed)))
    }

    /// Use of a session; packets and bytes begin anew. `None` if it was removed.
    pub fn take(&self, id: SlotId) -> Option<FlowUse> {
        self.session(id).map(taken)
    }

    /// Sets the largest IPv4 packet to the remote host of a session, in bytes.
    pub fn set_path_mtu(&self, id: SlotId, mtu: Option<u16>) {
        if let Some(session) = self.session(id) {
            let mut new = identity(session);
            new.path_mtu = mtu.unwrap_or(0);
            let word = std::mem::offset_of!(Identity, path_mtu) / 4;
            session.identity[word].store(words(&new)[word], Relaxed);
        }
    }

    /// Every installed session, in order of slots.
    pub fn iter(&self) -> impl Iterator<Item = (SlotId, Flow)> {
        let sessions = self.sessions().iter().take(self.fresh as usize);
        (0u32..).zip(sessions).filter_map(|(index, session)| {
            let generation = session.generation.load(Acquire);
            let flow = Flow::of(&identity(session), session.directions[0].record.load(Relaxed));
            flow.filter(|_| generation & 1 == 1).map(|flow| (SlotId { index, generation }, flow))
        })
    }

    /// Counters of an instance; `None` means packets of no known instance.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn counters(&self, instance: Option<u8>) -> Result<Counters, FastPathError> {
        let row = instance.map_or(INSTANCES_MAX, u32::from);
        let mut processors = vec![0; self.processors * REASONS];
        sys::look_up(&self.maps.reasons, &row, &mut processors).map_err(step("reading counters"))?;
        Ok(Counters::sum(&processors))
    }

    /// Takes over what is in the maps of a former process: every session that both its keys lead to stays,
    /// and everything else is removed. Returns the number of sessions that stay.
    pub(crate) fn adopt(&mut self) -> Result<u32, FastPathError> {
        self.fresh = self.capacity;
        let mut found = vec![0u8; self.capacity as usize];
        let mut wrong6 = Vec::new();
        let mut wrong4 = Vec::new();
        let of = |slot: u32| {
            let session = self.sessions().get(slot as usize)?;
            (session.generation.load(Acquire) & 1 == 1).then(|| identity(session))
        };
        let walked = sys::walk(&self.maps.flows6, |key: Key6, slot| match of(slot) {
            Some(identity) if identity.outbound_key() == OutboundKey::Six(key) => found[slot as usize] |= 1,
            _ => wrong6.push(key),
        });
        walked.map_err(step("reading the IPv6 flows"))?;
        let walked = sys::walk(&self.maps.flows4, |key: Key4, slot| match of(slot) {
            Some(identity) if identity.inbound_key() == key => found[slot as usize] |= 2,
            Some(identity) if identity.outbound_key() == OutboundKey::Four(key) => found[slot as usize] |= 1,
            _ => wrong4.push(key),
        });
        walked.map_err(step("reading the IPv4 flows"))?;
        delete(&self.maps.flows6, &wrong6);
        delete(&self.maps.flows4, &wrong4);
        let mut incomplete = Vec::new();
        for (index, found) in found.iter().enumerate().rev() {
            let generation = self.sessions()[index].generation.load(Acquire);
            let id = SlotId { index: index as u32, generation };
            match (generation & 1 == 1, *found) {
                (true, 3) => {}
                (true, _) => incomplete.push(id),
                (false, _) => self.free.push(id.index),
            }
        }
        self.remove(&incomplete, &mut Vec::new());
        Ok(self.len())
    }
}

/// Writes a session into a slot, and returns the slot's new generation.
fn write(session: &Session, identity: &Identity, record: u32, now: KernelTime) -> u32 {
    let generation = session.generation.load(Relaxed) | 1;
    // A free slot has an even generation. Whoever sees a word of the new session sees that one, too, or a
    // later one.
    fence(Release);
    for (to, from) in session.identity.iter().zip(words(identity)) {
        to.store(from, Relaxed);
    }
    for direction in &session.directions {
        direction.seen.store(now.0, Relaxed);
        direction.sent_up.store(now.0, Relaxed);
        direction.installed.store(now.0, Relaxed);
        direction.packets.store(0, Relaxed);
        direction.bytes.store(0, Relaxed);
        direction.record.store(record, Relaxed);
    }
    session.generation.store(generation, Release);
    generation
}

fn words(identity: &Identity) -> [u32; IDENTITY_WORDS] {
    let (words, _) = identity.as_bytes().as_chunks::<4>();
    std::array::from_fn(|i| words.get(i).map_or(0, |word| u32::from_ne_bytes(*word)))
}

fn identity(session: &Session) -> Identity {
    let words: [u32; IDENTITY_WORDS] = session.identity.each_ref().map(|word: &AtomicU32| word.load(Relaxed));
    zerocopy::transmute!(words)
}

fn taken(session: &Session) -> FlowUse {
    read(session, |counter| counter.swap(0, Relaxed))
}

fn read(session: &Session, value: impl Fn(&AtomicU64) -> u64) -> FlowUse {
    let [outbound, inbound] = session.directions.each_ref().map(|direction| DirectionUse {
        packets: value(&direction.packets),
        bytes: value(&direction.bytes),
        seen: KernelTime(direction.seen.load(Relaxed)),
        is_pending: direction.sent_up.load(Relaxed) != 0,
    });
    FlowUse { outbound, inbound, is_closing: identity(session).state == STATE_CLOSING }
}

/// Keys of sessions, for both maps.
#[derive(Default)]
struct Keys {
    six: KeyList<Key6>,
    four: KeyList<Key4>,
}

struct KeyList<K> {
    keys: Vec<K>,
    slots: Vec<u32>,
    /// Positions in the caller's list.
    positions: Vec<usize>,
}

impl<K> Default for KeyList<K> {
    fn default() -> Self {
        KeyList { keys: Vec::new(), slots: Vec::new(), positions: Vec::new() }
    }
}

impl<K: IntoBytes + Immutable + FromBytes> KeyList<K> {
    fn push(&mut self, key: K, slot: u32, position: usize) {
        self.keys.push(key);
        self.slots.push(slot);
        self.positions.push(position);
    }

    /// Inserts all keys. Returns the positions of those that the kernel refused.
    fn insert(&self, map: &OwnedFd) -> Vec<(usize, io::Error)> {
        let (mut refused, mut at) = (Vec::new(), 0);
        while at < self.keys.len() {
            let (done, result) = sys::update_batch(map, &self.keys[at..], &self.slots[at..]);
            at += done;
            if let Err(error) = result {
                refused.push((self.positions[at], error));
                at += 1;
            }
        }
        refused
    }
}

impl Keys {
    fn add(&mut self, identity: &Identity, slot: u32, position: usize) {
        match identity.outbound_key() {
            OutboundKey::Six(key) => self.six.push(key, slot, position),
            OutboundKey::Four(key) => self.four.push(key, slot, position),
        }
        self.four.push(identity.inbound_key(), slot, position);
    }

    fn insert(&self, maps: &Maps) -> Vec<(usize, io::Error)> {
        let mut refused = self.six.insert(&maps.flows6);
        refused.extend(self.four.insert(&maps.flows4));
        refused
    }

    fn delete(&self, maps: &Maps) {
        delete(&maps.flows6, &self.six.keys);
        delete(&maps.flows4, &self.four.keys);
    }
}

/// Deletes keys. One that is not there, or that the kernel does not delete, does no harm: it leads to a slot
/// that has another session or none, and its packets go to the engine.
fn delete<K: IntoBytes + Immutable>(map: &OwnedFd, keys: &[K]) {
    let mut at = 0;
    while at < keys.len() {
        let (done, result) = sys::delete_batch(map, &keys[at..]);
        at += done + usize::from(result.is_err());
    }
}
