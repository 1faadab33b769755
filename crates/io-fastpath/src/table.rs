//! Sessions that the kernel translates: installed, read, removed.
//!
//! The sessions are memory that the program shares, so that none of this takes a system call.

use crate::control::{Control, KernelTime};
use crate::counters::Counters;
use crate::entries::Entries;
use crate::error::{FastPathError, step};
use crate::flow::Flow;
use crate::instance::Instance;
use crate::layout::{Entry, REASONS, ROW_NONE, ROWS, STATEFUL_MAX, Translation, WAY_4_OUTWARD, WAY_6_TO_4};
use crate::maps::{MAPS, Maps};
use crate::stateless::{StatelessPlan, StatelessSet};
use crate::stateless_maps;
use crate::sys::{self, Mapping};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Sessions whose memory is requested together: installing or removing one takes as long as the cache misses.
const GROUP: usize = 16;

/// Handle of an installed session: position and generation of its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId {
    /// Number of the entry of packets from inside. There are three times as many as sessions, and a few more.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The table has as many sessions as its capacity.
    Full,
    /// No entry is free near the session's home. Below the table's capacity, this happens to one of a million
    /// sessions. It may fit later.
    Crowded,
    /// An installed session has the same packets: its handle. It has to be removed before.
    Exists(SlotId),
}

/// Packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets; a super-packet is one.
    pub packets: u64,
    /// Their bytes as received, from the IP header on.
    pub bytes: u64,
}

/// Packets of a stateless instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatelessTraffic {
    /// IPv6 packets that became IPv4 packets.
    pub from_ipv6: Traffic,
    /// IPv4 packets that became IPv6 packets.
    pub from_ipv4: Traffic,
}

/// Table of the sessions that the kernel translates. No method needs a capability.
pub struct Table {
    maps: Maps,
    entries: Entries,
    control: Arc<Control>,
    len: u32,
    capacity: u32,
    processors: usize,
}

impl Table {
    /// `capacity` is the one that the maps were made for.
    pub(crate) fn new(
        maps: Maps,
        control: Control,
        capacity: u32,
        processors: usize,
    ) -> Result<Table, FastPathError> {
        let memory = Mapping::new(&maps.entries, maps.entries()? as usize * size_of::<Entry>());
        let memory = memory.map_err(step("mapping the entries"))?;
        let entries = Entries::new(memory, control.hash());
        Ok(Table { maps, entries, control: Arc::new(control), len: 0, capacity, processors })
    }

    /// Words that the program reads for each packet.
    pub fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control)
    }

    /// Capacity in sessions.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Number of sessions installed.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns true if no session is installed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Files of the maps, for a process that loads the program again.
    pub fn files(&self) -> [&OwnedFd; MAPS] {
        self.maps.files()
    }

    /// Both directions of a session: from inside, and to the inside.
    fn session(&self, id: SlotId) -> Option<[&Entry; 2]> {
        let outbound = self.entries.get((id.index, id.generation))?;
        Some([outbound, self.entries.get(outbound.partner())?])
    }

    #[cfg(test)]
    pub(crate) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// Sets the settings of an instance. Sessions that are installed follow at once.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn set_instance(&self, number: u8, instance: Instance) -> Result<(), FastPathError> {
        let set = sys::update(&self.maps.instances, &u32::from(number), &instance.settings());
        set.map_err(step("setting an instance"))
    }

    /// Installs sessions, and adds a result for each to `placed`. They are pending at first.
    pub fn install(&mut self, flows: &[Flow], placed: &mut Vec<Result<SlotId, Refusal>>) {
        let now = KernelTime::now();
        for flows in flows.chunks(GROUP) {
            let outbound: Vec<Translation> = flows.iter().map(Flow::outbound).collect();
            for outbound in &outbound {
                self.entries.prefetch(outbound);
                self.entries.prefetch(&outbound.reverse());
            }
            placed.extend(flows.iter().zip(&outbound).map(|(flow, way)| self.install_one(way, flow, now)));
        }
    }

    pub(crate) fn install_one(
        &mut self,
        outbound: &Translation,
        flow: &Flow,
        now: KernelTime,
    ) -> Result<SlotId, Refusal> {
        let inbound = outbound.reverse();
        for translation in [outbound, &inbound] {
            if let Some(index) = self.entries.find(translation) {
                return Err(Refusal::Exists(self.id_of(index)));
            }
        }
        if self.len >= self.capacity {
            return Err(Refusal::Full);
        }
        let [out_index, in_index] = self.entries.places([outbound, &inbound]).ok_or(Refusal::Crowded)?;
        let (out_entry, in_entry) = (self.entries.at(out_index), self.entries.at(in_index));
        let (out_place, in_place) =
            ((out_index, out_entry.next_generation()), (in_index, in_entry.next_generation()));
        in_entry.write(&inbound, flow, out_place, now);
        out_entry.write(outbound, flow, in_place, now);
        out_entry.path_mtu.store(flow.path_mtu.unwrap_or(0), Relaxed);
        // Last, because packets find an entry only through `near`.
        self.entries.publish(in_index, &inbound);
        self.entries.publish(out_index, outbound);
        self.len += 1;
        Ok(SlotId { index: out_index, generation: out_place.1 })
    }

    /// Handle of the session that an entry in use belongs to.
    fn id_of(&self, index: u32) -> SlotId {
        let entry = self.entries.at(index);
        let (index, generation) = match entry.translation().way {
            WAY_6_TO_4 | WAY_4_OUTWARD => (index, entry.generation.load(Relaxed)),
            _ => entry.partner(),
        };
        SlotId { index, generation }
    }

    /// Removes sessions. Appends their use since it was last taken to `used`, in order; `None` for a session
    /// that was removed before. After the return, the program translates no arriving packet by them.
    pub fn remove(&mut self, ids: &[SlotId], used: &mut Vec<Option<FlowUse>>) {
        let begin = used.len();
        let mut ended = Vec::with_capacity(ids.len());
        for (n, id) in ids.iter().enumerate() {
            if n % GROUP == 0 {
                self.prefetch(&ids[n..ids.len().min(n + GROUP)]);
            }
            let session = self.session(*id);
            used.push(session.map(|_| FlowUse::default()));
            if let Some([outbound, inbound]) = session {
                ended.push([id.index, outbound.partner().0]);
                outbound.end();
                inbound.end();
            }
        }
        // A program that read a generation before may still be counting: what it adds after this is lost.
        for ([outbound, inbound], used) in ended.iter().zip(used[begin..].iter_mut().flatten()) {
            *used = taken([self.entries.at(*outbound), self.entries.at(*inbound)]);
            self.entries.free(*outbound);
            self.entries.free(*inbound);
        }
        self.len -= ended.len() as u32;
    }

    /// Requests the memory of both directions of sessions.
    fn prefetch(&self, ids: &[SlotId]) {
        ids.iter().for_each(|id| self.entries.prefetch_at(id.index));
        for outbound in ids.iter().filter_map(|id| self.entries.get((id.index, id.generation))) {
            self.entries.prefetch_at(outbound.partner().0);
        }
    }

    /// Time of a session's installation. `None` if it was removed.
    pub fn installed(&self, id: SlotId) -> Option<KernelTime> {
        self.session(id).map(|[outbound, _]| KernelTime(outbound.installed.load(Relaxed)))
    }

    /// Use of a session, which is left as it is. `None` if it was removed.
    pub fn peek(&self, id: SlotId) -> Option<FlowUse> {
        self.session(id).map(|session| flow_use(session, |counter| counter.load(Relaxed)))
    }

    /// Use of a session; packets and bytes begin anew. `None` if it was removed.
    pub fn take(&self, id: SlotId) -> Option<FlowUse> {
        self.session(id).map(taken)
    }

    /// Sets the largest IPv4 packet to the remote host of a session, in bytes.
    pub fn set_path_mtu(&self, id: SlotId, mtu: Option<u16>) {
        if let Some([outbound, _]) = self.session(id) {
            outbound.path_mtu.store(mtu.unwrap_or(0), Relaxed);
        }
    }

    /// Every installed session, in order of handles.
    pub fn iter(&self) -> impl Iterator<Item = (SlotId, Flow)> {
        self.entries.used().filter_map(|index| {
            let entry = self.entries.at(index);
            let flow = Flow::of(&entry.translation())?;
            let flow = Flow {
                instance: entry.instance.load(Relaxed),
                worker: entry.worker.load(Relaxed),
                epoch: entry.epoch.load(Relaxed),
                record: entry.record.load(Relaxed),
                path_mtu: Some(entry.path_mtu.load(Relaxed)).filter(|mtu| *mtu > 0),
                ident: entry.ident.load(Relaxed),
                ..flow
            };
            Some((SlotId { index, generation: entry.generation.load(Relaxed) }, flow))
        })
    }

    /// Counters of a stateful instance; `None` means packets of no known instance.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn counters(&self, instance: Option<u8>) -> Result<Counters, FastPathError> {
        self.row(instance.map_or(ROW_NONE, u32::from))
    }

    /// Counters of a stateless instance.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn stateless_counters(&self, instance: u8) -> Result<Counters, FastPathError> {
        self.row(STATEFUL_MAX + u32::from(instance))
    }

    /// Counters of a stateful instance at the network interfaces (XDP); `None` means packets of no known
    /// instance. Packets that this program passes to the network stack may arrive at the device's program.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn xdp_counters(&self, instance: Option<u8>) -> Result<Counters, FastPathError> {
        self.row(ROWS + instance.map_or(ROW_NONE, u32::from))
    }

    /// Counters of a stateless instance at the network interfaces (XDP).
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn xdp_stateless_counters(&self, instance: u8) -> Result<Counters, FastPathError> {
        self.row(ROWS + STATEFUL_MAX + u32::from(instance))
    }

    /// Packets that the program has translated for a stateless instance since the maps were made.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn stateless_traffic(&self, instance: u8) -> Result<StatelessTraffic, FastPathError> {
        let mut processors = vec![0; self.processors * 4];
        let read = sys::look_up(&self.maps.stateless, &u32::from(instance), &mut processors);
        read.map_err(step("reading the counters of a stateless instance"))?;
        let sum = |at: usize| processors.iter().skip(at).step_by(4).sum();
        let traffic = |direction: usize| Traffic { packets: sum(direction), bytes: sum(2 + direction) };
        Ok(StatelessTraffic { from_ipv6: traffic(0), from_ipv4: traffic(1) })
    }

    /// Replaces all stateless instances at once. No packet is translated by a part of the former ones and a
    /// part of the new ones. It takes a few microseconds for each mapping. A process that has taken over the
    /// maps of a former one has to call it before it renews the lease.
    ///
    /// # Errors
    /// Returns an error if there are too many instances or mappings, or if the kernel refuses. The engine has
    /// all stateless packets then.
    pub fn set_stateless(&mut self, plan: &StatelessPlan) -> Result<StatelessSet, FastPathError> {
        stateless_maps::replace(&self.maps, &self.control, plan)
    }

    fn row(&self, row: u32) -> Result<Counters, FastPathError> {
        let mut processors = vec![0; self.processors * REASONS];
        sys::look_up(&self.maps.reasons, &row, &mut processors).map_err(step("reading counters"))?;
        Ok(Counters::sum(&processors))
    }

    /// Takes over the maps of a former process: keeps every whole session, and removes everything else.
    /// Returns the number of kept sessions.
    pub(crate) fn adopt(&mut self) -> u32 {
        self.len = self.entries.adopt();
        self.len
    }
}

fn taken(session: [&Entry; 2]) -> FlowUse {
    flow_use(session, |counter| counter.swap(0, Relaxed))
}

fn flow_use([outbound, inbound]: [&Entry; 2], value: impl Fn(&AtomicU64) -> u64) -> FlowUse {
    let is_closing = |entry: &Entry| {
        // An ended entry has the next generation already.
        let generation = entry.generation.load(Relaxed);
        entry.closing.load(Relaxed) == generation.wrapping_sub(1 - generation % 2)
    };
    FlowUse {
        outbound: read(outbound, &value),
        inbound: read(inbound, &value),
        is_closing: is_closing(outbound) || is_closing(inbound),
    }
}

/// Use of a direction. `value` reads a counter.
fn read(entry: &Entry, value: impl Fn(&AtomicU64) -> u64) -> DirectionUse {
    DirectionUse {
        packets: value(&entry.packets),
        bytes: value(&entry.bytes),
        seen: KernelTime(entry.seen.load(Relaxed)),
        is_pending: entry.sent_up.load(Relaxed) != 0,
    }
}
