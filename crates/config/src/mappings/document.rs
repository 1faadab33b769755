//! Lists of mappings in the text of a configuration.

use super::{BatchCheck, EditError, Key, Mapping, not};
use std::mem;
use toml_edit::{Array, DocumentMut, InlineTable, Item, RawString, Table, TableLike, Value, value};

/// Kinds of instances, with the key of their mappings.
const KINDS: [(&str, &str); 3] = [("nat64", "static"), ("nat44", "static"), ("siit", "eam")];
/// Indent of an entry if the list has no entry to copy it from.
const INDENT: &str = "\n    ";

/// A configuration that keeps its formatting.
pub(super) struct Document(DocumentMut);

/// An instance with mappings.
pub(super) struct Instance {
    pub(super) name: String,
    pub(super) kind: &'static str,
    /// Key of its list.
    list: &'static str,
    /// Position among the instances of its kind.
    at: usize,
    /// Files that `eam_file` names.
    pub(super) files: Vec<String>,
    /// True if its list in the configuration has entries.
    pub(super) has_list: bool,
}

impl Document {
    pub(super) fn parse(text: &str) -> Result<Document, EditError> {
        let parsed = text.parse::<DocumentMut>();
        parsed.map(Document).map_err(|error| not(format!("invalid configuration: {}", error.message()), ""))
    }

    /// Finds the instance with this name, or the only one that can have such mappings: address mappings,
    /// bindings, or either.
    pub(super) fn find(&self, name: Option<&str>, is_eam: Option<bool>) -> Result<Instance, EditError> {
        let mut found: Vec<Instance> =
            KINDS.into_iter().flat_map(|(kind, list)| self.of_kind(kind, list)).collect();
        let names = |found: &[Instance]| found.iter().map(|i| &i.name[..]).collect::<Vec<_>>().join(", ");
        if let Some(name) = name {
            let known = names(&found);
            let hint = if known.is_empty() { known } else { format!("instances: {known}") };
            let one = found.into_iter().find(|instance| instance.name == name);
            return one.ok_or_else(|| not(format!("unknown instance `{name}`"), hint));
        }
        found.retain(|instance| is_eam.is_none_or(|is_eam| is_eam == (instance.kind == "siit")));
        let kinds = match is_eam {
            Some(true) => "siit ",
            Some(false) => "nat64 or nat44 ",
            None => "",
        };
        match found.len() {
            1 => Ok(found.swap_remove(0)),
            0 => Err(not(format!("there is no {kinds}instance"), "add one to the configuration first")),
            _ => Err(not(
                "several instances can have these mappings",
                format!("name one of {}", names(&found)),
            )),
        }
    }

    fn of_kind(&self, kind: &'static str, list: &'static str) -> Vec<Instance> {
        let instance = |at: usize, table: &dyn TableLike| {
            let name = table.get("name").and_then(Item::as_str).map(str::to_owned);
            let name = name.unwrap_or_else(|| format!("{kind}-{}", at + 1));
            let has_list = table.get(list).is_some_and(|list| match list {
                Item::Value(Value::Array(entries)) => !entries.is_empty(),
                Item::ArrayOfTables(entries) => !entries.is_empty(),
                _ => false,
            });
            let files = table.get("eam_file").map(strings).unwrap_or_default();
            Instance { name, kind, list, at, files, has_list }
        };
        match self.0.get(kind) {
            Some(Item::ArrayOfTables(tables)) => {
                tables.iter().enumerate().map(|(at, table)| instance(at, table)).collect()
            }
            Some(Item::Value(Value::Array(tables))) => {
                let tables = tables.iter().enumerate();
                tables.filter_map(|(at, table)| Some(instance(at, table.as_inline_table()?))).collect()
            }
            _ => Vec::new(),
        }
    }

    fn table(&mut self, instance: &Instance) -> Option<&mut dyn TableLike> {
        match self.0.get_mut(instance.kind)? {
            Item::ArrayOfTables(tables) => Some(tables.get_mut(instance.at)?),
            Item::Value(Value::Array(tables)) => Some(tables.get_mut(instance.at)?.as_inline_table_mut()?),
            _ => None,
        }
    }

    /// Returns the text with the instance's list replaced by these mappings.
    pub(super) fn replaced(mut self, instance: &Instance, keys: &[Key]) -> Result<String, EditError> {
        let table = self.table(instance).ok_or_else(|| not_a_list(instance))?;
        let mut list = Array::new();
        keys.iter().for_each(|key| list.push_formatted(entry(key, INDENT)));
        if !keys.is_empty() {
            list.set_trailing("\n");
            list.set_trailing_comma(true);
        }
        table.insert(instance.list, value(list));
        Ok(self.0.to_string())
    }

    /// Returns the text without some mappings of the instance's list, and with others at its end.
    pub(super) fn edited(
        mut self,
        instance: &Instance,
        add: &[Key],
        remove: &[Key],
    ) -> Result<String, EditError> {
        let place = format!("`{}` of {}", instance.list, instance.name);
        let mut check = BatchCheck::new(add, remove, &place);
        let table = self.table(instance).ok_or_else(|| not_a_list(instance))?;
        match table.entry(instance.list).or_insert_with(|| value(new_list())) {
            Item::Value(Value::Array(list)) => {
                take_out(list, |entry| {
                    entry.as_inline_table().is_some_and(|entry| is_gone(entry, &mut check))
                });
                add.iter().for_each(|key| push(list, key));
            }
            Item::ArrayOfTables(tables) => {
                tables.retain(|entry| !is_gone(entry, &mut check));
                add.iter().for_each(|key| tables.push(table_of(key)));
            }
            _ => return Err(not_a_list(instance)),
        }
        check.finish()?;
        Ok(self.0.to_string())
    }
}

fn not_a_list(instance: &Instance) -> EditError {
    let what = format!("`{}` of {} is not a list", instance.list, instance.name);
    not(what, "change it with an editor and `gatun config apply`")
}

fn strings(item: &Item) -> Vec<String> {
    match item.as_array() {
        Some(list) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        None => item.as_str().map(str::to_owned).into_iter().collect(),
    }
}

fn is_gone(entry: &dyn TableLike, check: &mut BatchCheck<'_>) -> bool {
    let get = |key: &str| entry.get(key).and_then(Item::as_str).map(str::to_owned);
    let read = || {
        let mapping = match get("protocol") {
            None => Mapping { protocol: None, inside: get("v6")?, outside: get("v4")? },
            protocol => Mapping { protocol, inside: get("inside")?, outside: get("outside")? },
        };
        Key::read(&mapping).ok()
    };
    read().is_some_and(|key| check.removes(&key))
}

/// Keys and values of an entry.
fn fields(key: &Key) -> Vec<(&'static str, String)> {
    match key.protocol() {
        None => vec![("v4", key.outside()), ("v6", key.inside())],
        Some(protocol) => {
            vec![("protocol", protocol.to_owned()), ("inside", key.inside()), ("outside", key.outside())]
        }
    }
}

fn entry(key: &Key, prefix: &str) -> Value {
    let mut table = InlineTable::new();
    fields(key).into_iter().for_each(|(name, text)| drop(table.insert(name, text.into())));
    Value::from(table).decorated(prefix, "")
}

fn table_of(key: &Key) -> Table {
    let mut table = Table::new();
    fields(key).into_iter().for_each(|(name, text)| drop(table.insert(name, value(text))));
    table
}

fn new_list() -> Array {
    let mut list = Array::new();
    list.set_trailing("\n");
    list
}

fn text_of(raw: Option<&RawString>) -> String {
    raw.and_then(RawString::as_str).unwrap_or_default().to_owned()
}

/// Appends an entry to a list, on a line of its own if the closing bracket has one.
fn push(list: &mut Array, key: &Key) {
    let mut trailing = text_of(Some(list.trailing()));
    let mut indent = INDENT.to_owned();
    let is_first = list.is_empty();
    if let Some(last) = list.iter_mut().last() {
        // Blanks and comments after the last entry.
        trailing.insert_str(0, &text_of(last.decor().suffix()));
        last.decor_mut().set_suffix("");
        let before = text_of(last.decor().prefix());
        if let Some(line) = before.rfind('\n') {
            indent = before[line..].to_owned();
        }
    }
    match trailing.rfind('\n') {
        Some(line) => {
            list.push_formatted(entry(key, &format!("{}{indent}", &trailing[..line])));
            list.set_trailing(&trailing[line..]);
            list.set_trailing_comma(true);
        }
        None if is_first => {
            list.push_formatted(entry(key, &trailing));
            list.set_trailing("");
        }
        None => {
            list.push_formatted(entry(key, " "));
            list.set_trailing(trailing);
        }
    }
}

/// Removes entries. An entry's line and the comment after the entry are removed if the line has nothing else
/// on it.
fn take_out(list: &mut Array, mut is_gone: impl FnMut(&Value) -> bool) {
    let (trailing, comma, decor) =
        (text_of(Some(list.trailing())), list.trailing_comma(), list.decor().clone());
    let mut kept = Array::new();
    let mut gap: Option<String> = None;
    let mut suffix = String::new();
    for mut entry in mem::take(list) {
        let own = text_of(entry.decor().prefix());
        let prefix = match gap.take() {
            Some(gap) => joined(&gap, &own, kept.is_empty()),
            None => own,
        };
        suffix = text_of(entry.decor().suffix());
        if is_gone(&entry) {
            gap = Some(prefix);
        } else {
            entry.decor_mut().set_prefix(prefix);
            kept.push_formatted(entry);
        }
    }
    let trailing = match gap {
        Some(gap) => joined(&gap, &format!("{suffix}{trailing}"), kept.is_empty()),
        None => trailing,
    };
    kept.set_trailing(trailing);
    kept.set_trailing_comma(comma && !kept.is_empty());
    *kept.decor_mut() = decor;
    *list = kept;
}

/// Joins the blanks and comments `before` and `behind` a removed entry.
fn joined(before: &str, behind: &str, is_first: bool) -> String {
    match (before.find('\n'), before.rfind('\n'), behind.find('\n')) {
        (Some(own_line), Some(indent), Some(next_line)) => {
            // The comment of the line above, comments above the entry, and the text after its line.
            format!("{}{}{}", &before[..own_line], &before[own_line..indent], &behind[next_line..])
        }
        (Some(_), ..) => before.to_owned(),
        (None, ..) if is_first => before.to_owned(),
        (None, ..) => behind.to_owned(),
    }
}
