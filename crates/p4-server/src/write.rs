//! Writes: batches of updates, each with its own result.

use crate::device::Device;
use crate::pipeline::Table;
use crate::refusal::{self, Refusal};
use crate::store::{self, Key, Stored};
use crate::target::{Change, Rates, TargetError};
use gatun_p4runtime::p4::v1::entity::Entity as Kind;
use gatun_p4runtime::p4::v1::update::Type;
use gatun_p4runtime::p4::v1::write_request::Atomicity;
use gatun_p4runtime::p4::v1::{
    CounterEntry, Index, MeterConfig, MeterEntry, TableEntry, Update, WriteRequest,
};
use std::collections::{BTreeMap, HashSet};
use tonic::{Code, Status};

/// Results of the updates, in their order.
type Results = Vec<Result<(), Refusal>>;

/// Change of an entry that the switch has not executed yet.
struct Pending {
    /// Place of its update.
    update: usize,
    table: usize,
    key: Key,
    /// Entry before the change.
    before: Option<Stored>,
}

/// A batch on its way.
#[derive(Default)]
struct Batch {
    results: Results,
    /// Changes of exact tables, and what they are of.
    changes: Vec<Change>,
    pending: Vec<Pending>,
    touched: HashSet<(usize, Key)>,
    /// Changes of tables with masks, by table.
    masked: BTreeMap<usize, Vec<Pending>>,
}

impl Device {
    /// Executes a batch. Each update is executed or refused on its own.
    ///
    /// # Errors
    /// There is no pipeline, or an update was refused: then the details have an error for each update.
    pub fn write(&mut self, request: &WriteRequest) -> Result<(), Status> {
        if request.atomicity() != Atomicity::ContinueOnError {
            return Err(
                Refusal::unimplemented("updates are executed one by one: use CONTINUE_ON_ERROR").into()
            );
        }
        self.check_pipeline()?;
        let mut batch = Batch { results: vec![Ok(()); request.updates.len()], ..Batch::default() };
        for (number, update) in request.updates.iter().enumerate() {
            let result = self.update(number, update, &mut batch);
            batch.results[number] = result;
        }
        self.flush(&mut batch);
        for (table, pending) in std::mem::take(&mut batch.masked) {
            self.fill(table, pending, &mut batch.results);
        }
        refusal::batch(&batch.results)
    }

    fn update(&mut self, number: usize, update: &Update, batch: &mut Batch) -> Result<(), Refusal> {
        let kind = update.r#type();
        match update.entity.as_ref().and_then(|entity| entity.entity.as_ref()) {
            _ if kind == Type::Unspecified => Err(Refusal::invalid("the type of the update is missing")),
            Some(Kind::TableEntry(entry)) => self.update_entry(number, kind, entry, batch),
            Some(Kind::CounterEntry(entry)) => self.update_counter(kind, entry),
            Some(Kind::MeterEntry(entry)) => self.update_meter(kind, entry),
            Some(_) => Err(Refusal::unimplemented("this switch has no entities of this kind")),
            None => Err(Refusal::invalid("the entity is missing")),
        }
    }

    fn update_entry(
        &mut self,
        number: usize,
        kind: Type,
        entry: &TableEntry,
        batch: &mut Batch,
    ) -> Result<(), Refusal> {
        let place = self.pipeline.table(entry.table_id);
        let place =
            place.ok_or_else(|| Refusal::invalid(format!("no table has number {}", entry.table_id)))?;
        let table = &self.pipeline.tables[place];
        if kind == Type::Modify && entry.is_default_action && entry.action.is_none() {
            // The program's own default action, which is never another here.
            return Ok(());
        }
        check_entry(table, entry)?;
        let key = store::pack_key(table, entry)?;
        let stored = match kind {
            Type::Delete => None,
            _ => Some(store::pack_action(table, entry)?),
        };
        if table.is_exact && !batch.touched.insert((place, Key::clone(&key))) {
            self.flush(batch);
        }
        let table = &self.pipeline.tables[place];
        let entries = &mut self.stores[place];
        let before = entries.get(&key).cloned();
        match (kind, &before) {
            (Type::Insert, Some(_)) => {
                return Err(Refusal::new(Code::AlreadyExists, format!("table {} has the entry", table.name)));
            }
            (Type::Insert, None) if entries.len() >= table.size => {
                return Err(Refusal::new(Code::ResourceExhausted, format!("table {} is full", table.name)));
            }
            (Type::Modify | Type::Delete, None) => {
                return Err(Refusal::not_found(format!("table {} has no such entry", table.name)));
            }
            _ => {}
        }
        let acts_alike = |a: &Stored, b: &Stored| (a.action, &a.data) == (b.action, &b.data);
        let is_same = before.as_ref().zip(stored.as_ref()).is_some_and(|(a, b)| acts_alike(a, b));
        let call = stored.as_ref().map(|stored| store::call(table, stored));
        let values = if table.is_exact { store::exact_key(table, &key) } else { Vec::new() };
        match stored {
            Some(stored) => entries.insert(Key::clone(&key), stored),
            None => entries.remove(&key),
        };
        if is_same {
            return Ok(());
        }
        let pending = Pending { update: number, table: place, key, before };
        if !table.is_exact {
            batch.masked.entry(place).or_default().push(pending);
            return Ok(());
        }
        batch.changes.push(match (call, &pending.before) {
            (None, _) => Change::Remove { table: table.place, key: values },
            (Some(call), None) => Change::Insert { table: table.place, key: values, call },
            (Some(call), Some(before)) => {
                let before = table.actions[usize::from(before.action)].place;
                Change::Modify { table: table.place, key: values, before, call }
            }
        });
        batch.pending.push(pending);
        Ok(())
    }

    /// Lets the switch execute the changes of exact tables. A change that it refuses is undone here.
    fn flush(&mut self, batch: &mut Batch) {
        batch.touched.clear();
        if batch.changes.is_empty() {
            return;
        }
        let results = self.target.change(std::mem::take(&mut batch.changes));
        let missing =
            std::iter::repeat_with(|| Err(TargetError::Fault("the switch did not answer".to_owned())));
        for (pending, result) in batch.pending.drain(..).zip(results.into_iter().chain(missing)) {
            if let Err(error) = result {
                batch.results[pending.update] = Err(error.into());
                self.undo(pending);
            }
        }
    }

    /// Gives a table with masks all its entries.
    fn fill(&mut self, place: usize, pending: Vec<Pending>, results: &mut Results) {
        let table = &self.pipeline.tables[place];
        let entries = self.stores[place].iter().map(|(key, stored)| store::masked_entry(table, key, stored));
        let change = Change::Fill { table: table.place, entries: entries.collect() };
        let Some(Err(error)) = self.target.change(vec![change]).pop() else { return };
        // In reverse order: a key may have changed twice.
        for one in pending.into_iter().rev() {
            results[one.update] = Err(error.clone().into());
            self.undo(one);
        }
    }

    fn undo(&mut self, pending: Pending) {
        let entries = &mut self.stores[pending.table];
        match pending.before {
            Some(stored) => entries.insert(pending.key, stored),
            None => entries.remove(&pending.key),
        };
    }

    fn update_counter(&mut self, kind: Type, entry: &CounterEntry) -> Result<(), Refusal> {
        let counter = self.pipeline.counter(entry.counter_id);
        let counter =
            counter.ok_or_else(|| Refusal::invalid(format!("no counter has number {}", entry.counter_id)))?;
        check_modify(kind)?;
        let data = entry.data.ok_or_else(|| Refusal::invalid("the counter's data are missing"))?;
        for index in cells(entry.index, counter.size)? {
            for (array, value) in [(&counter.packets, data.packet_count), (&counter.bytes, data.byte_count)] {
                if let Some(array) = array {
                    self.target.set_cell(array, index, value as u64)?;
                }
            }
        }
        Ok(())
    }

    fn update_meter(&mut self, kind: Type, entry: &MeterEntry) -> Result<(), Refusal> {
        let meter = self.pipeline.meter(entry.meter_id);
        let meter =
            meter.ok_or_else(|| Refusal::invalid(format!("no meter has number {}", entry.meter_id)))?;
        check_modify(kind)?;
        let rates = entry.config.as_ref().map(rates).transpose()?;
        for index in cells(entry.index, meter.size)? {
            self.target.set_meter(&meter.array, index, rates)?;
            match entry.config {
                Some(config) => self.meter_configs.insert((meter.id, index), config),
                None => self.meter_configs.remove(&(meter.id, index)),
            };
        }
        Ok(())
    }
}

fn check_entry(table: &Table, entry: &TableEntry) -> Result<(), Refusal> {
    if table.is_const {
        return Err(Refusal::new(Code::PermissionDenied, format!("table {} is constant", table.name)));
    }
    if entry.is_default_action {
        return Err(Refusal::unimplemented(format!(
            "table {}: the default action cannot be changed",
            table.name
        )));
    }
    if entry.idle_timeout_ns != 0 {
        return Err(Refusal::unimplemented(format!("table {}: entries have no idle time-out", table.name)));
    }
    match entry.meter_config.is_some() || entry.counter_data.is_some() {
        true => {
            Err(Refusal::invalid(format!("table {} has no direct counter and no direct meter", table.name)))
        }
        false => Ok(()),
    }
}

fn check_modify(kind: Type) -> Result<(), Refusal> {
    match kind {
        Type::Modify => Ok(()),
        _ => Err(Refusal::invalid("counters and meters are only modified")),
    }
}

/// Indexes of an entry: one, or all.
pub(crate) fn cells(index: Option<Index>, size: u32) -> Result<std::ops::Range<u32>, Refusal> {
    let Some(Index { index }) = index else { return Ok(0..size) };
    let found = u32::try_from(index).ok().filter(|index| *index < size);
    let found =
        found.ok_or_else(|| Refusal::new(Code::OutOfRange, format!("index {index} of {size} cells")))?;
    Ok(found..found + 1)
}

fn rates(config: &MeterConfig) -> Result<Rates, Refusal> {
    let rate = |value: i64| u64::try_from(value).map_err(|_| Refusal::invalid("a rate is less than zero"));
    let [cir, cburst, pir, pburst] = [config.cir, config.cburst, config.pir, config.pburst].map(rate);
    Ok(Rates { cir: cir?, cburst: cburst?, pir: pir?, pburst: pburst? })
}
