//! Reads, in parts of bounded size.

use crate::device::Device;
use crate::pipeline::Counter;
use crate::refusal::Refusal;
use crate::store::{self, Key};
use crate::write::cells;
use gatun_p4runtime::p4::v1::entity::Entity as Kind;
use gatun_p4runtime::p4::v1::{
    CounterData, CounterEntry, Entity, Index, MeterEntry, ReadRequest, TableEntry,
};
use std::collections::VecDeque;
use std::ops::Range;
use tonic::Code;

/// Entities of a part.
pub const PART_MAX: usize = 1000;

/// Rest of a read.
#[derive(Debug)]
pub struct Reading {
    generation: u64,
    parts: VecDeque<Selection>,
}

/// Entities of one kind.
#[derive(Debug)]
enum Selection {
    /// Entries that a table had when the read began.
    Entries { table: usize, keys: std::vec::IntoIter<Key> },
    /// Cells of a counter.
    Counter { id: u32, cells: VecDeque<Range<u32>> },
    /// Cells of a meter.
    Meter { id: u32, cells: Range<u32> },
}

impl Device {
    /// Begins a read.
    ///
    /// # Errors
    /// There is no pipeline, or no such object.
    pub fn begin_read(&self, request: &ReadRequest) -> Result<Reading, Refusal> {
        self.check_pipeline()?;
        let mut parts = VecDeque::new();
        for entity in &request.entities {
            self.select(entity, &mut parts)?;
        }
        Ok(Reading { generation: self.generation, parts })
    }

    /// Reads the next part. `None`: nothing is left.
    ///
    /// # Errors
    /// The pipeline has been replaced, or the switch does not answer.
    pub fn read(&mut self, reading: &mut Reading) -> Result<Option<Vec<Entity>>, Refusal> {
        if reading.generation != self.generation {
            return Err(Refusal::new(Code::Aborted, "the pipeline has been replaced meanwhile"));
        }
        let mut found = Vec::new();
        while let Some(selection) = reading.parts.front_mut() {
            if found.len() >= PART_MAX {
                break;
            }
            if !self.read_some(selection, &mut found)? {
                reading.parts.pop_front();
            }
        }
        Ok((!found.is_empty()).then_some(found))
    }

    fn select(&self, entity: &Entity, parts: &mut VecDeque<Selection>) -> Result<(), Refusal> {
        match &entity.entity {
            Some(Kind::TableEntry(entry)) => self.select_entries(entry, parts),
            Some(Kind::CounterEntry(entry)) => {
                let counters =
                    self.pipeline.counters.iter().filter(|c| [0, c.id].contains(&entry.counter_id));
                let found = counters.map(|c| Ok((c.id, cells(entry.index, c.size)?)));
                let found = found.collect::<Result<Vec<_>, Refusal>>()?;
                known(entry.counter_id, found.is_empty(), "counter")?;
                found.into_iter().for_each(|(id, cells)| add_counter(parts, id, cells));
                Ok(())
            }
            Some(Kind::MeterEntry(entry)) => {
                let meters = self.pipeline.meters.iter().filter(|m| [0, m.id].contains(&entry.meter_id));
                let found =
                    meters.map(|m| Ok(Selection::Meter { id: m.id, cells: cells(entry.index, m.size)? }));
                let found = found.collect::<Result<Vec<_>, Refusal>>()?;
                known(entry.meter_id, found.is_empty(), "meter")?;
                parts.extend(found);
                Ok(())
            }
            Some(Kind::RegisterEntry(_) | Kind::ExternEntry(_)) => {
                Err(Refusal::unimplemented("this switch does not read registers and externs"))
            }
            // It has none, which a controller may ask for when it deletes everything.
            Some(_) => Ok(()),
            None => Err(Refusal::invalid("the entity is missing")),
        }
    }

    fn select_entries(&self, entry: &TableEntry, parts: &mut VecDeque<Selection>) -> Result<(), Refusal> {
        if entry.is_default_action {
            return Ok(());
        }
        let all = |place: usize| Selection::Entries {
            table: place,
            keys: self.stores[place].keys().cloned().collect::<Vec<_>>().into_iter(),
        };
        if entry.table_id == 0 {
            parts.extend((0..self.stores.len()).map(all));
            return Ok(());
        }
        let place = self.pipeline.table(entry.table_id);
        let place =
            place.ok_or_else(|| Refusal::invalid(format!("no table has number {}", entry.table_id)))?;
        parts.push_back(match entry.r#match.is_empty() && entry.priority == 0 {
            true => all(place),
            false => {
                let key = store::pack_key(&self.pipeline.tables[place], entry)?;
                Selection::Entries { table: place, keys: vec![key].into_iter() }
            }
        });
        Ok(())
    }

    /// Reads some of a selection. False: nothing is left of it.
    fn read_some(&mut self, selection: &mut Selection, found: &mut Vec<Entity>) -> Result<bool, Refusal> {
        let room = PART_MAX.saturating_sub(found.len());
        match selection {
            Selection::Entries { table, keys } => {
                let (own, entries) = (&self.pipeline.tables[*table], &self.stores[*table]);
                // An entry may have been removed since the read began.
                let read = keys.by_ref().filter_map(|key| Some(store::unpack(own, &key, entries.get(&key)?)));
                found.extend(read.take(room).map(|entry| entity(Kind::TableEntry(entry))));
                Ok(keys.len() > 0)
            }
            Selection::Counter { id, cells } => {
                let now = next_of_all(cells, room);
                let Some(counter) = self.pipeline.counter(*id).cloned() else { return Ok(false) };
                found
                    .extend(self.read_counter(&counter, now)?.map(|entry| entity(Kind::CounterEntry(entry))));
                Ok(!cells.is_empty())
            }
            Selection::Meter { id, cells } => {
                let entry = |index| MeterEntry {
                    meter_id: *id,
                    index: Some(Index { index: i64::from(index) }),
                    config: self.meter_configs.get(&(*id, index)).copied(),
                    counter_data: None,
                };
                found.extend(next(cells, room).map(entry).map(|entry| entity(Kind::MeterEntry(entry))));
                Ok(cells.start < cells.end)
            }
        }
    }

    fn read_counter(
        &mut self,
        counter: &Counter,
        indexes: Vec<u32>,
    ) -> Result<impl Iterator<Item = CounterEntry> + use<>, Refusal> {
        let mut values = |array: &Option<String>| match array {
            Some(array) => self.target.cells(array, &indexes),
            None => Ok(vec![0; indexes.len()]),
        };
        let (packets, bytes) = (values(&counter.packets)?, values(&counter.bytes)?);
        let counter_id = counter.id;
        Ok(indexes.into_iter().zip(packets.into_iter().zip(bytes)).map(move |(index, (packets, bytes))| {
            CounterEntry {
                counter_id,
                index: Some(Index { index: i64::from(index) }),
                data: Some(CounterData { byte_count: bytes as i64, packet_count: packets as i64 }),
            }
        }))
    }
}

/// Adds cells of a counter, to the last selection if that is of the same counter.
fn add_counter(parts: &mut VecDeque<Selection>, id: u32, cells: Range<u32>) {
    match parts.back_mut() {
        Some(Selection::Counter { id: last, cells: before }) if *last == id => before.push_back(cells),
        _ => parts.push_back(Selection::Counter { id, cells: VecDeque::from([cells]) }),
    }
}

fn entity(kind: Kind) -> Entity {
    Entity { entity: Some(kind) }
}

/// Takes the first cells of a range.
fn next(cells: &mut Range<u32>, room: usize) -> Range<u32> {
    let end = cells.end.min(cells.start.saturating_add(room as u32));
    let now = cells.start..end;
    cells.start = end;
    now
}

/// Takes the first cells of several ranges.
fn next_of_all(all: &mut VecDeque<Range<u32>>, room: usize) -> Vec<u32> {
    let mut found = Vec::new();
    while let Some(first) = all.front_mut() {
        found.extend(next(first, room - found.len()));
        if first.start < first.end {
            break;
        }
        all.pop_front();
    }
    found
}

fn known(id: u32, is_missing: bool, kind: &str) -> Result<(), Refusal> {
    match is_missing && id != 0 {
        true => Err(Refusal::invalid(format!("no {kind} has number {id}"))),
        false => Ok(()),
    }
}
