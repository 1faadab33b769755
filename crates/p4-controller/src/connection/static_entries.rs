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

/// Changes that turn one set of entries into another: removals last, so that packets always find a way. The
/// entries of the highest priority are written first and removed last: they except packets from others.
pub(super) fn difference(has: &Entries, wants: &Entries) -> Vec<Update> {
    let mut changes: Vec<(Type, &TableEntry)> = Vec::new();
    changes.extend(wants.iter().filter_map(|(place, entry)| match has.get(place) {
        None => Some((Type::Insert, entry)),
        Some(old) if old != entry => Some((Type::Modify, entry)),
        Some(_) => None,
    }));
    let is_left = |(place, _): &(&Place, &TableEntry)| !wants.contains_key(*place);
    changes.extend(has.iter().filter(is_left).map(|(_, entry)| (Type::Delete, entry)));
    changes.sort_by_key(|(kind, entry)| match kind {
        Type::Delete => (1, entry.priority),
        _ => (0, -entry.priority),
    });
    let update = |(kind, entry): (Type, &TableEntry)| Update {
        r#type: kind.into(),
        entity: Some(Entity { entity: Some(entity::Entity::TableEntry(entry.clone())) }),
    };
    changes.into_iter().map(update).collect()
}
