//! Changes of the program's tables.
//!
//! An exact table changes in place: an entry costs the same in a table of ten and of ten million. DPDK's
//! own control library keeps all entries in a list, walks it for each, and so never ends. A table with
//! masks is built anew, because its classifier cannot change; DPDK does the same.

use crate::error::SwitchError;
use crate::layout::{Layout, check};
use crate::switch::Switch;
use crate::sys::{self, RawEntry, Shape};
use std::ptr::null_mut;

/// Instructions after which no packet holds the address of an entry that it found before: more than all of
/// the pipeline's threads need for one packet each.
const SETTLE: u32 = 1 << 15;

/// Different priorities in a table.
const PRIORITIES_MAX: usize = 1 << 16;

/// Number of a table in its switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Table(pub(crate) usize);

/// New entry of an exact table.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Values of the key's fields, in the program's order.
    pub key: &'a [u64],
    /// Name of the action.
    pub action: &'a str,
    /// Values of the action's arguments, in the program's order.
    pub data: &'a [u64],
}

/// Entry of a table with masks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Value and mask of each field of the key.
    pub key: Vec<(u64, u64)>,
    /// The highest one wins.
    pub priority: u32,
    /// Name of the action.
    pub action: String,
    /// Values of the action's arguments.
    pub data: Vec<u64>,
}

/// Key of an entry that is removed.
pub type Removal<'a> = &'a [u64];

impl Switch {
    /// Finds a table by its name in the program.
    ///
    /// # Errors
    /// The program has no such table.
    pub fn table(&self, name: &str) -> Result<Table, SwitchError> {
        let found = self.program.objects.tables.iter().position(|layout| layout.name == name);
        found.map(Table).ok_or_else(|| SwitchError::Missing { kind: "table", name: name.to_owned() })
    }

    /// Names of the tables, and how many entries each can hold.
    pub fn tables(&self) -> impl Iterator<Item = (&str, u32)> {
        self.program.objects.tables.iter().map(|layout| (layout.name.as_str(), layout.size))
    }

    /// The table at this place among the descriptions ([`Switch::describe`]).
    pub fn table_at(&self, place: usize) -> Option<Table> {
        (place < self.program.objects.tables.len()).then_some(Table(place))
    }

    /// Name of the action at this place among a table's actions.
    pub fn action_at(&self, table: Table, place: usize) -> Option<&str> {
        self.program.objects.tables[table.0].actions.get(place).map(|action| action.name.as_str())
    }

    /// Names of an action's arguments in a table, in the order of an entry's data.
    ///
    /// # Errors
    /// The table has no such action.
    pub fn arguments(&self, table: Table, action: &str) -> Result<Vec<&str>, SwitchError> {
        let mut actions = self.program.objects.tables[table.0].actions.iter();
        let found =
            actions.find(|a| a.name == action).map(|a| a.arguments.iter().map(|x| x.name.as_str()).collect());
        found.ok_or_else(|| SwitchError::Missing { kind: "action of the table", name: action.to_owned() })
    }

    /// Adds an entry to an exact table, or replaces the action of its key.
    ///
    /// # Errors
    /// The entry does not fit the table, or the table is full.
    pub fn insert(&mut self, table: Table, entry: &Entry<'_>) -> Result<(), SwitchError> {
        let action = self.exact(table)?.place(entry.action)?;
        self.insert_call(table, entry.key, action, entry.data)
    }

    /// Adds an entry like [`Switch::insert`], with the place of its action among the table's.
    ///
    /// # Errors
    /// As of [`Switch::insert`].
    pub fn insert_call(
        &mut self,
        table: Table,
        key: &[u64],
        action: usize,
        data: &[u64],
    ) -> Result<(), SwitchError> {
        self.settle();
        let layout = self.exact(table)?;
        let mut key = layout.key(key)?;
        let (action, mut data) = layout.data(action, data)?;
        let raw = RawEntry {
            key: key.as_mut_ptr(),
            mask: null_mut(),
            data: data.as_mut_ptr(),
            action,
            priority: 0,
        };
        // SAFETY: the pipeline is alive, and the entry has the table's lengths.
        match unsafe { sys::add(self.program.pipeline, layout.number, &raw) } {
            status if status == -libc::ENOSPC => Err(SwitchError::Full(layout.name.clone())),
            status => check(&layout.name, "adding an entry", status),
        }
    }

    /// Removes entries of an exact table. Keys without an entry are ignored.
    ///
    /// # Errors
    /// A key does not fit the table.
    pub fn remove(&mut self, table: Table, keys: &[Removal<'_>]) -> Result<(), SwitchError> {
        let layout = self.exact(table)?;
        for values in keys {
            let mut key = layout.key(values)?;
            let raw = RawEntry {
                key: key.as_mut_ptr(),
                mask: null_mut(),
                data: null_mut(),
                action: 0,
                priority: 0,
            };
            // SAFETY: the pipeline is alive, and the key has the table's length.
            let status = unsafe { sys::remove(self.program.pipeline, layout.number, &raw) };
            check(&layout.name, "removing an entry", status)?;
        }
        self.unsettled |= !keys.is_empty() && self.program.own_code.run.is_none();
        Ok(())
    }

    /// Replaces all entries of a table with masks.
    ///
    /// # Errors
    /// An entry does not fit the table, or there are more than the table holds.
    pub fn fill(&mut self, table: Table, entries: &[Match]) -> Result<(), SwitchError> {
        let layout = &self.program.objects.tables[table.0];
        if layout.is_exact {
            return Err(layout.fault("entries with masks do not fit an exact table"));
        }
        if entries.len() > layout.size as usize {
            return Err(SwitchError::Full(layout.name.clone()));
        }
        let ranks = ranks(entries).ok_or_else(|| layout.fault("there are more than 65536 priorities"))?;
        let encode = |entry| encode(layout, entry, &ranks);
        let mut bytes = entries.iter().map(encode).collect::<Result<Vec<_>, _>>()?;
        let raw: Vec<RawEntry> = bytes.iter_mut().map(Encoded::raw).collect();
        self.renew(table.0, &raw)
    }

    /// Removes all entries of a table.
    pub(crate) fn empty(&mut self, place: usize) -> Result<(), SwitchError> {
        // A table without a key has no entries.
        if self.program.objects.tables[place].width() == 0 { Ok(()) } else { self.renew(place, &[]) }
    }

    /// Makes a table of these entries in place of the present one.
    fn renew(&mut self, place: usize, entries: &[RawEntry]) -> Result<(), SwitchError> {
        let layout = &self.program.objects.tables[place];
        let mut key_mask = layout.key_mask();
        let shape = Shape {
            is_exact: layout.is_exact.into(),
            key_len: layout.key_len as u32,
            key_offset: layout.key_offset as u32,
            data_len: layout.data_len as u32,
            size: layout.size,
            key_mask: key_mask.as_mut_ptr(),
        };
        let (number, count) = (layout.number, entries.len() as u32);
        let mut old = null_mut();
        // SAFETY: the pipeline is alive, and all entries have the table's lengths.
        let status =
            unsafe { sys::fill(self.program.pipeline, number, &shape, entries.as_ptr(), count, &mut old) };
        check(&layout.name, "building it", status)?;
        self.unsettled = self.program.own_code.run.is_none();
        self.settle();
        // SAFETY: no packet uses the old table any more.
        unsafe { sys::discard(self.program.pipeline, number, old) };
        Ok(())
    }

    /// Buckets at which insertions into an exact table have looked since it was made: the cost of entries in
    /// any machine. `None`: the table is DPDK's.
    pub fn insertion_steps(&self, table: Table) -> Option<u64> {
        let layout = self.exact(table).ok().filter(|layout| layout.width() > 0)?;
        // SAFETY: the pipeline is alive, and the code made each of its exact tables with a key.
        self.program.own_code.steps.map(|steps| unsafe { steps(self.program.pipeline, layout.number) })
    }

    fn exact(&self, table: Table) -> Result<&Layout, SwitchError> {
        let layout = &self.program.objects.tables[table.0];
        match layout.is_exact {
            true => Ok(layout),
            false => Err(layout.fault("single entries do not fit a table with masks")),
        }
    }

    /// After a removal, lets packets that found the entry be finished, before its place is used again.
    /// Changes of tables do this themselves. The host's own code leaves no packet unfinished.
    pub fn settle(&mut self) {
        if std::mem::take(&mut self.unsettled) {
            self.run(SETTLE);
        }
    }
}

struct Encoded {
    key: Vec<u8>,
    mask: Vec<u8>,
    data: Vec<u8>,
    action: u64,
    priority: u32,
}

impl Encoded {
    fn raw(&mut self) -> RawEntry {
        RawEntry {
            key: self.key.as_mut_ptr(),
            mask: self.mask.as_mut_ptr(),
            data: self.data.as_mut_ptr(),
            action: self.action,
            priority: self.priority,
        }
    }
}

/// Different priorities, the highest first, which DPDK numbers from zero.
fn ranks(entries: &[Match]) -> Option<Vec<u32>> {
    let mut all: Vec<u32> = entries.iter().map(|entry| entry.priority).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    all.dedup();
    (all.len() <= PRIORITIES_MAX).then_some(all)
}

fn encode(layout: &Layout, entry: &Match, ranks: &[u32]) -> Result<Encoded, SwitchError> {
    let (values, masks): (Vec<u64>, Vec<u64>) = entry.key.iter().copied().unzip();
    let (action, data) = layout.data(layout.place(&entry.action)?, &entry.data)?;
    let priority = ranks.partition_point(|higher| *higher > entry.priority) as u32;
    Ok(Encoded { key: layout.key(&values)?, mask: layout.key(&masks)?, data, action, priority })
}
