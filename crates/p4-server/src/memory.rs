//! Switch in memory without packets: for tests of controllers and of the server.

use crate::target::{
    Call, Change, MaskedEntry, Program, ProgramAction, ProgramTable, Rates, Target, TargetError,
};
use gatun_p4runtime::p4::config::v1::counter_spec::Unit;
use gatun_p4runtime::p4::config::v1::match_field::{Match, MatchType};
use gatun_p4runtime::p4::config::v1::{self as info, P4Info};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Contents of a [`MemoryTarget`], which tests share.
#[derive(Debug, Default)]
pub struct Memory {
    /// Entries of exact tables.
    pub exact: HashMap<(usize, Vec<u64>), Call>,
    /// Entries of tables with masks.
    pub masked: HashMap<usize, Vec<MaskedEntry>>,
    /// Cells of arrays.
    pub arrays: HashMap<String, Vec<u64>>,
    /// Cells of meters that have a limit.
    pub meters: HashMap<(String, u32), Rates>,
    /// Frames from the controller.
    pub sent: Vec<Vec<u8>>,
    /// Number of changes that [`Target::change`] executed.
    pub changes: u64,
    /// Keys of exact tables that are refused as if the table were full.
    pub refused: Vec<Vec<u64>>,
}

/// A switch that keeps entries and counters, and forwards nothing.
#[derive(Debug)]
pub struct MemoryTarget {
    name: Vec<u8>,
    program: Program,
    memory: Arc<Mutex<Memory>>,
}

impl MemoryTarget {
    /// Switch that knows one program: `name` is its text.
    pub fn new(name: &[u8], program: Program) -> MemoryTarget {
        let mut target = MemoryTarget { name: name.to_vec(), program, memory: Arc::default() };
        target.clear();
        target
    }

    /// Contents, for tests to look at.
    pub fn memory(&self) -> Arc<Mutex<Memory>> {
        Arc::clone(&self.memory)
    }

    fn lock(&mut self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn clear(&mut self) {
        let arrays = self.program.arrays.iter().map(|(name, size)| (name.clone(), vec![0; *size as usize]));
        let arrays = arrays.collect();
        *self.lock() = Memory { arrays, ..Memory::default() };
    }
}

impl Target for MemoryTarget {
    fn check(&mut self, program: &[u8]) -> Result<Program, TargetError> {
        match program.is_empty() || program == self.name {
            true => Ok(self.program.clone()),
            false => Err(TargetError::Invalid("the switch does not know this program".to_owned())),
        }
    }

    fn load(&mut self) -> Result<(), TargetError> {
        self.clear();
        Ok(())
    }

    fn change(&mut self, changes: Vec<Change>) -> Vec<Result<(), TargetError>> {
        let mut memory = self.lock();
        let mut change = |change| {
            memory.changes += 1;
            match change {
                Change::Insert { key, .. } | Change::Modify { key, .. } if memory.refused.contains(&key) => {
                    return Err(TargetError::Full("no place".to_owned()));
                }
                Change::Insert { table, key, call } | Change::Modify { table, key, call, .. } => {
                    memory.exact.insert((table, key), call);
                }
                Change::Remove { table, key } => {
                    memory.exact.remove(&(table, key));
                }
                Change::Fill { table, entries } => {
                    memory.masked.insert(table, entries);
                }
            }
            Ok(())
        };
        changes.into_iter().map(&mut change).collect()
    }

    fn cells(&mut self, array: &str, indexes: &[u32]) -> Result<Vec<u64>, TargetError> {
        let memory = self.lock();
        let cell = |index: &u32| memory.arrays.get(array)?.get(*index as usize).copied();
        let cells = indexes.iter().map(cell).collect::<Option<_>>();
        cells.ok_or_else(|| TargetError::Invalid(format!("{array}: no such cell")))
    }

    fn set_cell(&mut self, array: &str, index: u32, value: u64) -> Result<(), TargetError> {
        let mut memory = self.lock();
        let cell = memory.arrays.get_mut(array).and_then(|cells| cells.get_mut(index as usize));
        let missing = || TargetError::Invalid(format!("{array}: no such cell"));
        cell.map(|cell| *cell = value).ok_or_else(missing)
    }

    fn set_meter(&mut self, meter: &str, index: u32, rates: Option<Rates>) -> Result<(), TargetError> {
        let key = (meter.to_owned(), index);
        let mut memory = self.lock();
        match rates {
            Some(rates) => memory.meters.insert(key, rates),
            None => memory.meters.remove(&key),
        };
        Ok(())
    }

    fn send(&mut self, frame: Vec<u8>) -> Result<(), TargetError> {
        self.lock().sent.push(frame);
        Ok(())
    }
}

impl Program {
    /// Program that has exactly the objects of a p4info, for a [`MemoryTarget`].
    pub fn of(p4info: &P4Info) -> Program {
        let mut arrays = Vec::new();
        for counter in &p4info.counters {
            let unit = counter.spec.as_ref().map_or(Unit::Unspecified, info::CounterSpec::unit);
            let suffixes = match unit {
                Unit::Packets | Unit::Bytes => &[""][..],
                Unit::Both | Unit::Unspecified => &["_packets", "_bytes"],
            };
            let size = u32::try_from(counter.size).unwrap_or(0);
            arrays.extend(
                suffixes.iter().map(|suffix| (format!("{}{suffix}", alias(&counter.preamble)), size)),
            );
        }
        let meters = p4info.meters.iter().map(|m| (alias(&m.preamble), u32::try_from(m.size).unwrap_or(0)));
        let tables = p4info.tables.iter().map(|table| program_table(table, p4info));
        Program { tables: tables.collect(), arrays, meters: meters.collect() }
    }
}

fn alias(preamble: &Option<info::Preamble>) -> String {
    preamble.as_ref().map_or_else(String::new, |preamble| preamble.alias.clone())
}

fn program_table(table: &info::Table, p4info: &P4Info) -> ProgramTable {
    let action = |reference: &info::ActionRef| {
        let of = |action: &&info::Action| action.preamble.as_ref().is_some_and(|p| p.id == reference.id);
        let action = p4info.actions.iter().find(of)?;
        let arguments =
            action.params.iter().map(|p| (p.name.clone(), u32::try_from(p.bitwidth).unwrap_or(0)));
        Some(ProgramAction { name: alias(&action.preamble), arguments: arguments.collect() })
    };
    let is_exact =
        |field: &info::MatchField| field.r#match == Some(Match::MatchType(MatchType::Exact.into()));
    ProgramTable {
        name: alias(&table.preamble),
        size: u32::try_from(table.size).unwrap_or(u32::MAX),
        is_exact: table.match_fields.iter().all(is_exact),
        fields: table.match_fields.iter().map(|f| u32::try_from(f.bitwidth).unwrap_or(0)).collect(),
        actions: table.action_refs.iter().filter_map(action).collect(),
    }
}
