//! Entries of tables other than those of flows, by name, and their difference to what a switch has.

use crate::program::{Program, ProgramError};
use gatun_p4runtime::p4::v1::update::Type;
use gatun_p4runtime::p4::v1::{
    Action, Entity, FieldMatch, TableAction, TableEntry, Update, action, entity, field_match, table_action,
};
use std::collections::BTreeMap;

/// KeyField of a key field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyField {
    /// The field is equal.
    Exact(u64),
    /// The bits of the mask are equal.
    Ternary {
        /// Bits.
        value: u64,
        /// Mask.
        mask: u64,
    },
}

/// Entry of a table, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticEntry {
    /// Name of the table.
    pub table: &'static str,
    /// Fields of the key.
    pub key: Vec<(&'static str, KeyField)>,
    /// Priority among entries with masks, the highest first.
    pub priority: i32,
    /// Name of the action.
    pub action: &'static str,
    /// Arguments of the action.
    pub arguments: Vec<(&'static str, u64)>,
}

/// Tables with such entries, in the order in which they are written.
const TABLES: [&str; 6] = ["interfaces", "own4", "own6", "next_hops", "routes4", "routes6"];

/// Table and key in the form of P4Runtime.
type Place = (u32, Vec<u8>);

/// Entries by their place.
pub(super) type Entries = BTreeMap<Place, TableEntry>;

/// Numbers of the tables with such entries.
pub(super) fn tables(program: &Program) -> Result<Vec<u32>, ProgramError> {
    TABLES.iter().map(|name| program.table_id(name)).collect()
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
    entries.iter().map(|entry| Ok(plain(encode_one(program, entry)?))).collect()
}

fn encode_one(program: &Program, entry: &StaticEntry) -> Result<TableEntry, ProgramError> {
    let matched = |(name, value): &(&'static str, KeyField)| {
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
        let field_id = program.field_id(entry.table, name)?;
        Ok(kind.map(|kind| FieldMatch { field_id, field_match_type: Some(kind) }))
    };
    let r#match: Vec<Option<FieldMatch>> =
        entry.key.iter().map(matched).collect::<Result<_, ProgramError>>()?;
    let argument = |(name, value): &(&'static str, u64)| {
        let param_id = program.param_id(entry.action, name)?;
        Ok(action::Param { param_id, value: crate::program::shortest(*value) })
    };
    let params = entry.arguments.iter().map(argument).collect::<Result<_, ProgramError>>()?;
    let action = Action { action_id: program.action_id(entry.action)?, params };
    Ok(TableEntry {
        table_id: program.table_id(entry.table)?,
        r#match: r#match.into_iter().flatten().collect(),
        action: Some(TableAction { r#type: Some(table_action::Type::Action(action)) }),
        priority: entry.priority,
        ..TableEntry::default()
    })
}

/// Changes that turn one set of entries into another: removals last, so that packets always find a way.
pub(super) fn difference(has: &Entries, wants: &Entries) -> Vec<Update> {
    let update = |kind: Type, entry: &TableEntry| Update {
        r#type: kind.into(),
        entity: Some(Entity { entity: Some(entity::Entity::TableEntry(entry.clone())) }),
    };
    let written = wants.iter().filter_map(|(place, entry)| match has.get(place) {
        None => Some(update(Type::Insert, entry)),
        Some(old) if old != entry => Some(update(Type::Modify, entry)),
        Some(_) => None,
    });
    let is_left = |(place, _): &(&Place, &TableEntry)| !wants.contains_key(*place);
    let removed = has.iter().filter(is_left).map(|(_, entry)| update(Type::Delete, entry));
    written.chain(removed).collect()
}
