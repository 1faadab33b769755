//! Entries of tables other than those of flows, by name, and their difference to what a switch has.

use crate::entry::{COUNTER, KeyField, StaticEntry};
use crate::program::{Program, ProgramError};
use gatun_p4runtime::p4::v1::update::Type;
use gatun_p4runtime::p4::v1::{
    Action, Entity, FieldMatch, TableAction, TableEntry, Update, action, entity, field_match, table_action,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map};

/// Tables with such entries.
const TABLES: [&str; 6] = ["interfaces", "own4", "own6", "next_hops", "routes4", "routes6"];
/// Tables of stateless instances, which a program may lack.
const STATELESS_TABLES: [&str; 4] = ["mapped_dst6", "mapped_src6", "mapped_dst4", "mapped_src4"];
/// Maximum number of changes in a request: a message of at most about 2 MB.
pub(super) const CHANGES_MAX: usize = 8192;

/// Table and key in the form of P4Runtime.
type Place = (u32, Vec<u8>);

/// Entries by their place.
pub(super) type Entries = BTreeMap<Place, TableEntry>;

/// Numbers of the tables with such entries.
pub(super) fn tables(program: &Program) -> Result<Vec<u32>, ProgramError> {
    let all: Result<Vec<u32>, ProgramError> = TABLES.iter().map(|name| program.table_id(name)).collect();
    Ok(all?.into_iter().chain(stateless_tables(program)).collect())
}

/// Numbers of the tables of stateless instances.
pub(super) fn stateless_tables(program: &Program) -> Vec<u32> {
    let all: Result<Vec<u32>, ProgramError> =
        STATELESS_TABLES.iter().map(|name| program.table_id(name)).collect();
    // A program with some of them has none.
    all.unwrap_or_default()
}

/// Returns whether an entry is one of a stateless instance.
pub(super) fn is_stateless(entry: &StaticEntry) -> bool {
    STATELESS_TABLES.contains(&entry.table)
}

/// Counters of stateless instances that entries name, from the first one.
pub(super) fn counters(entries: &[StaticEntry]) -> BTreeSet<u32> {
    let of_table = entries.iter().filter(|entry| is_stateless(entry));
    let arguments = of_table.flat_map(|entry| &entry.arguments).filter(|(name, _)| *name == COUNTER);
    arguments.filter_map(|(_, value)| u32::try_from(*value).ok()).collect()
}

fn place(entry: &TableEntry) -> Place {
    let mut key = Vec::new();
    for field in &entry.r#match {
        key.extend(field.field_id.to_be_bytes());
        match &field.field_match_type {
            Some(field_match::FieldMatchType::Exact(exact)) => push(&mut key, &exact.value),
            Some(field_match::FieldMatchType::Ternary(ternary)) => {
                push(&mut key, &ternary.value);
                push(&mut key, &ternary.mask);
            }
            _ => {}
        }
    }
    key.extend(entry.priority.to_be_bytes());
    (entry.table_id, key)
}

fn push(key: &mut Vec<u8>, value: &[u8]) {
    key.push(value.len() as u8);
    key.extend(value);
}

/// An entry with its fields in the order of their numbers, and nothing that only a read entry has.
pub(super) fn plain(entry: TableEntry) -> (Place, TableEntry) {
    let TableEntry { table_id, mut r#match, mut action, priority, .. } = entry;
    r#match.sort_by_key(|field| field.field_id);
    if let Some(TableAction { r#type: Some(table_action::Type::Action(action)) }) = &mut action {
        action.params.sort_by_key(|param| param.param_id);
    }
    let entry = TableEntry { table_id, r#match, action, priority, ..TableEntry::default() };
    (place(&entry), entry)
}

/// Entries in the form of P4Runtime.
pub(super) fn encode(program: &Program, entries: &[StaticEntry]) -> Result<Entries, ProgramError> {
    let has_stateless = !stateless_tables(program).is_empty();
    let is_known = |entry: &&StaticEntry| has_stateless || !is_stateless(entry);
    let mut numbers = Numbers { program, fields: HashMap::new(), params: HashMap::new() };
    let mut encode = |entry| Ok(plain(encode_one(&mut numbers, entry)?));
    entries.iter().filter(is_known).map(&mut encode).collect()
}

type Names = (&'static str, &'static str);

/// Numbers of fields and arguments that were found already: the program lists them without order.
struct Numbers<'a> {
    program: &'a Program,
    fields: HashMap<Names, u32>,
    params: HashMap<Names, u32>,
}

impl Numbers<'_> {
    fn field(&mut self, names: Names) -> Result<u32, ProgramError> {
        Ok(match self.fields.entry(names) {
            hash_map::Entry::Occupied(known) => *known.get(),
            hash_map::Entry::Vacant(place) => *place.insert(self.program.field_id(names.0, names.1)?),
        })
    }

    fn param(&mut self, names: Names) -> Result<u32, ProgramError> {
        Ok(match self.params.entry(names) {
            hash_map::Entry::Occupied(known) => *known.get(),
            hash_map::Entry::Vacant(place) => *place.insert(self.program.param_id(names.0, names.1)?),
        })
    }
}

fn encode_one(numbers: &mut Numbers<'_>, entry: &StaticEntry) -> Result<TableEntry, ProgramError> {
    let program = numbers.program;
    let mut matched = |(name, value): &(&'static str, KeyField)| {
        let kind = match *value {
            KeyField::Exact(value) => {
                let value = crate::program::shortest(value);
                Some(field_match::FieldMatchType::Exact(field_match::Exact { value }))
            }
            // A field whose mask is empty is left out.
            KeyField::Ternary { mask: 0, .. } => None,
            KeyField::Ternary { value, mask } => {
                let (value, mask) = (crate::program::shortest(value & mask), crate::program::shortest(mask));
                Some(field_match::FieldMatchType::Ternary(field_match::Ternary { value, mask }))
            }
        };
        let field_id = numbers.field((entry.table, name))?;
        Ok(kind.map(|kind| FieldMatch { field_id, field_match_type: Some(kind) }))
    };
    let r#match: Vec<Option<FieldMatch>> =
        entry.key.iter().map(&mut matched).collect::<Result<_, ProgramError>>()?;
    let mut argument = |(name, value): &(&'static str, u64)| {
        let param_id = numbers.param((entry.action, name))?;
        let first = if *name == COUNTER { program.first_stateless_counter() } else { 0 };
        Ok(action::Param { param_id, value: crate::program::shortest(value + first) })
    };
    let params = entry.arguments.iter().map(&mut argument).collect::<Result<_, ProgramError>>()?;
    let action = Action { action_id: program.action_id(entry.action)?, params };
    Ok(TableEntry {
        table_id: program.table_id(entry.table)?,
        r#match: r#match.into_iter().flatten().collect(),
        action: Some(TableAction { r#type: Some(table_action::Type::Action(action)) }),
        priority: entry.priority,
        ..TableEntry::default()
    })
}

/// Sizes of the tables with such entries. A table without a size has no limit.
pub(super) fn sizes(program: &Program) -> BTreeMap<u32, usize> {
    let sizes = TABLES.iter().chain(&STATELESS_TABLES).filter_map(|name| program.table_size(name));
    sizes
        .filter_map(|(number, size)| Some((number, usize::try_from(size).ok().filter(|size| *size > 0)?)))
        .collect()
}

/// Changes that turn one set of entries into another, in parts of which each is to be written before the next
/// one: removals last, so that packets always find a way. If a table has too little room for both sets, as
/// many removals as necessary come first. The entries of the highest priority are written first and removed
/// last: they except packets from others.
pub(super) fn difference(has: &Entries, wants: &Entries, sizes: &BTreeMap<u32, usize>) -> [Vec<Update>; 3] {
    let mut writes: Vec<(Type, &TableEntry)> = Vec::new();
    writes.extend(wants.iter().filter_map(|(place, entry)| match has.get(place) {
        None => Some((Type::Insert, entry)),
        Some(old) if old != entry => Some((Type::Modify, entry)),
        Some(_) => None,
    }));
    writes.sort_by_key(|(_, entry)| -entry.priority);
    let mut removals: Vec<&TableEntry> =
        has.iter().filter(|(place, _)| !wants.contains_key(*place)).map(|(_, entry)| entry).collect();
    removals.sort_by_key(|entry| entry.priority);
    // Entries for which a table has no room until others are removed: all, less its size.
    let mut excess: BTreeMap<u32, usize> = BTreeMap::new();
    let inserted = writes.iter().filter(|(kind, _)| *kind == Type::Insert).map(|(_, entry)| entry.table_id);
    has.keys()
        .map(|(table, _)| *table)
        .chain(inserted)
        .for_each(|table| *excess.entry(table).or_default() += 1);
    for (table, entries) in &mut excess {
        *entries = sizes.get(table).map_or(0, |size| entries.saturating_sub(*size));
    }
    let is_first = |entry: &&TableEntry| {
        let left = excess.get_mut(&entry.table_id).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    };
    let (first, last): (Vec<_>, Vec<_>) = removals.into_iter().partition(is_first);
    let update = |kind: Type, entry: &TableEntry| Update {
        r#type: kind.into(),
        entity: Some(Entity { entity: Some(entity::Entity::TableEntry(entry.clone())) }),
    };
    let removed =
        |entries: Vec<&TableEntry>| entries.into_iter().map(|entry| update(Type::Delete, entry)).collect();
    [removed(first), writes.into_iter().map(|(kind, entry)| update(kind, entry)).collect(), removed(last)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries of a table, by the values of their key.
    fn entries(table_id: u32, values: &[u8]) -> Entries {
        let entry = |value: &u8| {
            let exact = field_match::FieldMatchType::Exact(field_match::Exact { value: vec![*value] });
            let r#match = vec![FieldMatch { field_id: 1, field_match_type: Some(exact) }];
            plain(TableEntry { table_id, r#match, priority: i32::from(*value), ..TableEntry::default() })
        };
        values.iter().map(entry).collect()
    }

    /// The changes of each part: kind and priority.
    fn parts(has: &Entries, wants: &Entries, size: usize) -> [Vec<(Type, i32)>; 3] {
        let change = |update: &Update| match update.entity.as_ref().and_then(|of| of.entity.as_ref()) {
            Some(entity::Entity::TableEntry(entry)) => (update.r#type(), entry.priority),
            other => panic!("{other:?}"),
        };
        difference(has, wants, &BTreeMap::from([(7, size)])).map(|part| part.iter().map(change).collect())
    }

    #[test]
    fn removals_come_first_as_far_as_a_table_has_no_room_for_both() {
        let (has, wants) = (entries(7, &[1, 2, 3, 4]), entries(7, &[3, 4, 5, 6]));
        let (inserts, removal) = (vec![(Type::Insert, 6), (Type::Insert, 5)], |n| (Type::Delete, n));
        assert_eq!(parts(&has, &wants, 6), [vec![], inserts.clone(), vec![removal(1), removal(2)]]);
        assert_eq!(parts(&has, &wants, 5), [vec![removal(1)], inserts.clone(), vec![removal(2)]]);
        assert_eq!(parts(&has, &wants, 4), [vec![removal(1), removal(2)], inserts, vec![]]);
    }

    #[test]
    fn a_full_table_does_not_delay_the_writes_of_another_one() {
        let both = |values: [&[u8]; 2]| {
            entries(7, values[0]).into_iter().chain(entries(8, values[1])).collect::<Entries>()
        };
        let [first, writes, last] = parts(&both([&[1, 2], &[3]]), &both([&[1, 4], &[5]]), 2);
        assert_eq!(first, [(Type::Delete, 2)]);
        assert_eq!(writes, [(Type::Insert, 5), (Type::Insert, 4)]);
        assert_eq!(last, [(Type::Delete, 3)]);
    }
}
