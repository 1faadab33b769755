//! Typed access to the tables of a TOML file, key by key against [`crate::keys`]. Errors are recorded and
//! reading continues.

use crate::keys::{self, Key, Kind, find};
use crate::problem::Problems;
use crate::value::{self, Read, nearest, type_name};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and its place.
pub(crate) type Node<'a> = Spanned<DeValue<'a>>;

/// A table whose keys are all known.
#[derive(Clone)]
pub(crate) struct Table<'a> {
    keys: &'static [Key],
    table: &'a DeTable<'a>,
    /// Place of the table: its header, or the whole inline table.
    pub(crate) span: Range<usize>,
}

impl<'a> Table<'a> {
    /// Opens the table in `node`; keys that are not in `keys` are errors.
    pub(crate) fn open(
        node: &'a Node<'a>,
        label: &str,
        keys: &'static [Key],
        problems: &mut Problems,
    ) -> Option<Self> {
        match node.get_ref() {
            DeValue::Table(table) => Some(Self::of(table, node.span(), label, keys, problems)),
            other => {
                let what = format!("{label}: expected a table, found {}", type_name(other));
                problems.error(
                    node.span(),
                    what,
                    "write `{ key = value, ... }`, or a `[header]` above the keys",
                );
                None
            }
        }
    }

    /// Opens a parsed table.
    pub(crate) fn of(
        table: &'a DeTable<'a>,
        span: Range<usize>,
        label: &str,
        keys: &'static [Key],
        problems: &mut Problems,
    ) -> Self {
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if find(keys, name).is_none() {
                unknown_key(key.span(), name, label, keys, problems);
            }
        }
        Table { keys, table, span }
    }

    /// The value of a key.
    pub(crate) fn node(&self, name: &str) -> Option<&'a Node<'a>> {
        debug_assert!(find(self.keys, name).is_some(), "{name} is missing from keys");
        self.table.get(name)
    }

    /// Place of a key in the text: its value, or the header of the table.
    pub(crate) fn span_of(&self, name: &str) -> Range<usize> {
        self.node(name).map_or_else(|| self.span.clone(), Spanned::span)
    }

    /// The value of a key, read by `read`; `None` if it is missing or wrong.
    pub(crate) fn get<T>(
        &self,
        name: &'static str,
        problems: &mut Problems,
        read: impl Fn(&DeValue<'_>) -> Read<T>,
    ) -> Option<T> {
        self.node(name).and_then(|node| self.read_node(name, node, problems, read))
    }

    /// Like [`Table::get`], but a missing key is an error.
    pub(crate) fn require<T>(
        &self,
        name: &'static str,
        problems: &mut Problems,
        read: impl Fn(&DeValue<'_>) -> Read<T>,
    ) -> Option<T> {
        if self.node(name).is_none() {
            problems.error(self.span.clone(), format!("`{name}` is missing"), self.example(name));
        }
        self.get(name, problems, read)
    }

    /// The values of a key that holds a list; a single value counts as a list of one.
    pub(crate) fn list<T>(
        &self,
        name: &'static str,
        problems: &mut Problems,
        read: impl Fn(&DeValue<'_>) -> Read<T>,
    ) -> Vec<Spanned<T>> {
        let Some(node) = self.node(name) else { return Vec::new() };
        let mut read_one = |node: &Node<'_>| {
            self.read_node(name, node, problems, &read).map(|value| Spanned::new(node.span(), value))
        };
        match node.get_ref() {
            DeValue::Array(array) => array.iter().filter_map(read_one).collect(),
            _ => read_one(node).into_iter().collect(),
        }
    }

    /// The tables of a key that holds a list of tables, as `[[header]]` or inline.
    pub(crate) fn tables(&self, name: &'static str, label: &str, problems: &mut Problems) -> Vec<Table<'a>> {
        let Some(node) = self.node(name) else { return Vec::new() };
        let keys = self.inner_keys(name);
        match node.get_ref() {
            DeValue::Array(array) => {
                array.iter().filter_map(|node| Table::open(node, label, keys, problems)).collect()
            }
            other => {
                let what = format!("`{name}`: expected a list of tables, found {}", type_name(other));
                problems.error(node.span(), what, self.example(name));
                Vec::new()
            }
        }
    }

    /// The table of a key.
    pub(crate) fn table(&self, name: &'static str, problems: &mut Problems) -> Option<Table<'a>> {
        let node = self.node(name)?;
        Table::open(node, &format!("`{name}`"), self.inner_keys(name), problems)
    }

    /// A whole number within the bounds in [`crate::keys`].
    pub(crate) fn integer(&self, name: &'static str, problems: &mut Problems) -> Option<u32> {
        let (min, max) = self.bounds(name);
        self.get(name, problems, |value| value::integer(value, min, max))
    }

    /// A number of bytes within the bounds in [`crate::keys`].
    pub(crate) fn bytes(&self, name: &'static str, problems: &mut Problems) -> Option<u32> {
        let (min, max) = self.bounds(name);
        self.get(name, problems, |value| value::bytes(value, min, max))
    }

    /// true or false.
    pub(crate) fn flag(&self, name: &'static str, problems: &mut Problems) -> Option<bool> {
        self.get(name, problems, value::flag)
    }

    /// Example of a key.
    pub(crate) fn example(&self, name: &str) -> String {
        find(self.keys, name)
            .map_or_else(String::new, |key| format!("write, for example, `{}`", key.example_line()))
    }

    fn bounds(&self, name: &str) -> (u32, u32) {
        match find(self.keys, name).map(|key| &key.kind) {
            Some(Kind::Integer { min, max } | Kind::Bytes { min, max } | Kind::CopyOr { min, max }) => {
                (*min, *max)
            }
            _ => (0, u32::MAX),
        }
    }

    fn inner_keys(&self, name: &str) -> &'static [Key] {
        match find(self.keys, name).map(|key| &key.kind) {
            Some(Kind::Table(keys) | Kind::Tables(keys) | Kind::WordOrTable(keys)) => keys,
            _ => &[],
        }
    }

    fn read_node<T>(
        &self,
        name: &'static str,
        node: &Node<'_>,
        problems: &mut Problems,
        read: impl Fn(&DeValue<'_>) -> Read<T>,
    ) -> Option<T> {
        match read(node.get_ref()) {
            Ok(value) => Some(value),
            Err(wrong) => {
                let instead = wrong.instead.unwrap_or_else(|| self.example(name));
                problems.error(node.span(), format!("`{name}`: {}", wrong.what), instead);
                None
            }
        }
    }
}

fn unknown_key(span: Range<usize>, name: &str, label: &str, keys: &[Key], problems: &mut Problems) {
    let shown = value::shorten(name);
    if let Some(later) = keys::LATER.iter().find(|(path, _)| *path == name) {
        problems.error(span, format!("`{shown}` is not supported yet"), later.1);
        return;
    }
    let names = keys.iter().map(|key| key.name);
    let instead = match nearest(name, names.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("{label} has these keys: {}", names.collect::<Vec<_>>().join(", ")),
    };
    problems.error(span, format!("unknown key `{shown}` in {label}"), instead);
}
