//! Edits of an instance's mappings in the text of the configuration, or of the file that `eam_file` names.
//! The rest of the text keeps its comments, order and blanks. [`crate::load_str_with`] checks if the result
//! is a valid configuration.

mod document;
mod file;
#[cfg(test)]
mod tests;

use crate::value::{self, Invalid, PortRange};
use document::{Document, Instance};
use gatun_nat::plan::{Eam, Transport};
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use toml::de::DeValue;

/// A mapping as in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Protocol of a binding (`static`); none of an explicit address mapping (`eam`).
    pub protocol: Option<String>,
    /// Inside address and port, or IPv6 prefix.
    pub inside: String,
    /// Public address and port, or IPv4 prefix.
    pub outside: String,
}

/// Change of an instance's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MappingChange {
    /// Replaces all mappings of the instance.
    Replace(Vec<Mapping>),
    /// Removes some mappings and adds others.
    Edit {
        /// Mappings to add.
        add: Vec<Mapping>,
        /// Mappings to remove; each must exist.
        remove: Vec<Mapping>,
    },
}

/// New text of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// The file of mappings; `None` for the configuration itself.
    pub file: Option<PathBuf>,
    /// Its new text.
    pub text: String,
}

/// Reason why a table cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditError {
    /// Problem with the change.
    pub what: String,
    /// Suggested correction.
    pub instead: String,
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.instead.is_empty() {
            true => f.write_str(&self.what),
            false => write!(f, "{}: {}", self.what, self.instead),
        }
    }
}

impl std::error::Error for EditError {}

fn not(what: impl Into<String>, instead: impl Into<String>) -> EditError {
    EditError { what: what.into(), instead: instead.into() }
}

/// Changes the table of the named instance, or of the only instance that can have such mappings.
///
/// `text` is the configuration, and `eam_file` is relative to the directory of `file_name`.
///
/// # Errors
/// Returns an error if a mapping is malformed, exists already or does not exist, if there is no such
/// instance, or if the table is in several places.
pub fn edit_mappings(
    text: &str,
    file_name: &str,
    instance: Option<&str>,
    change: &MappingChange,
) -> Result<Edited, EditError> {
    let change = KeyChange::read(change)?;
    let document = Document::parse(text)?;
    let instance = document.find(instance, change.is_eam()?)?;
    change.check_kind(&instance)?;
    let directory = Path::new(file_name).parent().unwrap_or(Path::new(""));
    let files: Vec<PathBuf> = instance.files.iter().map(|name| directory.join(name)).collect();
    match &change {
        KeyChange::Replace(keys) => replace(document, &instance, &files, keys),
        KeyChange::Edit { add, remove } => edit(document, &instance, &files, (add, remove)),
    }
}

fn replace(
    document: Document,
    instance: &Instance,
    files: &[PathBuf],
    keys: &[Key],
) -> Result<Edited, EditError> {
    match (files, instance.has_list) {
        ([], _) => Ok(Edited { file: None, text: document.replaced(instance, keys)? }),
        ([file], false) => Ok(Edited { file: Some(file.clone()), text: file::written(keys) }),
        _ => Err(not(
            format!(
                "the mappings of {} are in several places: `eam` and `eam_file`, or several files",
                instance.name
            ),
            "keep them in one `eam_file`, or add and remove single mappings",
        )),
    }
}

/// Changes the first place that has all mappings to remove; files come before the list in the configuration.
fn edit(
    document: Document,
    instance: &Instance,
    files: &[PathBuf],
    (add, remove): (&[Key], &[Key]),
) -> Result<Edited, EditError> {
    let mut refused = None;
    for file in files {
        match file::edited(file, add, remove) {
            Ok(text) => return Ok(Edited { file: Some(file.clone()), text }),
            Err(why) => drop(refused.get_or_insert(why)),
        }
    }
    match (refused, instance.has_list) {
        (Some(refused), false) => Err(refused),
        (refused, _) => match document.edited(instance, add, remove) {
            Ok(text) => Ok(Edited { file: None, text }),
            Err(why) => Err(refused.unwrap_or(why)),
        },
    }
}

/// Error for a mapping that is not in the table.
fn is_missing(number: usize, key: &Key, place: &str) -> EditError {
    not(
        format!("mapping {} of `remove`: {place} has no mapping {key}", number + 1),
        "`gatun map list` shows the mappings; change one of several ports in a row with an editor",
    )
}

/// Error for a mapping that is in the table already.
fn is_there(number: usize, key: &Key, place: &str) -> EditError {
    not(format!("mapping {} of `add`: {place} has the mapping {key} already", number + 1), "leave it out")
}

/// Checks that each mapping to remove exists, and that none to add does.
struct BatchCheck<'k> {
    /// Positions in the lists of the request.
    add: HashMap<Key, usize>,
    remove: HashMap<Key, (usize, bool)>,
    there: Option<(usize, Key)>,
    place: &'k str,
}

impl<'k> BatchCheck<'k> {
    fn new(add: &[Key], remove: &[Key], place: &'k str) -> Self {
        BatchCheck {
            add: add.iter().enumerate().map(|(n, key)| (*key, n)).collect(),
            remove: remove.iter().enumerate().map(|(n, key)| (*key, (n, false))).collect(),
            there: None,
            place,
        }
    }

    /// Records a mapping of the table; returns true if it is to be removed.
    fn removes(&mut self, key: &Key) -> bool {
        if let Some((_, found)) = self.remove.get_mut(key) {
            *found = true;
            return true;
        }
        if let Some(n) = self.add.get(key) {
            self.there.get_or_insert((*n, *key));
        }
        false
    }

    fn finish(self) -> Result<(), EditError> {
        let missing = self.remove.iter().filter(|(_, (_, found))| !found).min_by_key(|(_, (n, _))| *n);
        match (missing, self.there) {
            (Some((key, (n, _))), _) => Err(is_missing(*n, key, self.place)),
            (None, Some((n, key))) => Err(is_there(n, &key, self.place)),
            (None, None) => Ok(()),
        }
    }
}

/// Value of a mapping, independent of its notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Eam(Eam),
    Binding(Transport, (IpAddr, PortRange), (Ipv4Addr, PortRange)),
}

/// Formats the mapping for messages: inside, then outside.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol() {
            None => write!(f, "{} {}", self.inside(), self.outside()),
            Some(protocol) => write!(f, "{protocol} {} {}", self.inside(), self.outside()),
        }
    }
}

impl Key {
    fn read(mapping: &Mapping) -> Result<Key, Invalid> {
        let Mapping { protocol, inside, outside } = mapping;
        let Some(protocol) = protocol else {
            let v6 = value::parse_net6(inside).map_err(|wrong| of_field("inside", wrong, EAM))?;
            let v4 = value::parse_net4(outside).map_err(|wrong| of_field("outside", wrong, EAM))?;
            return Ok(Key::Eam(Eam { v4, v6 }));
        };
        let transport = Transport::named(protocol).ok_or_else(|| {
            let what = format!("unknown protocol \"{}\"", value::shorten(protocol));
            of_field("protocol", Invalid::new(what), "write `tcp`, `udp` or `icmp`")
        })?;
        let string = |text: &str| DeValue::String(text.to_owned().into());
        let inside = match inside.starts_with('[') {
            true => value::endpoint6(&string(inside)).map(|(address, ports)| (address.into(), ports)),
            false => value::endpoint4(&string(inside)).map(|(address, ports)| (address.into(), ports)),
        };
        let inside = inside.map_err(|wrong| of_field("inside", wrong, BINDING))?;
        let outside =
            value::endpoint4(&string(outside)).map_err(|wrong| of_field("outside", wrong, BINDING))?;
        Ok(Key::Binding(transport, inside, outside))
    }

    fn protocol(&self) -> Option<&'static str> {
        match self {
            Key::Eam(_) => None,
            Key::Binding(transport, ..) => Some(transport.name()),
        }
    }

    fn inside(&self) -> String {
        match self {
            Key::Eam(eam) => prefix(eam.v6.addr, eam.v6.len, 128),
            Key::Binding(_, (IpAddr::V6(address), ports), _) => format!("[{address}]:{}", range(*ports)),
            Key::Binding(_, (IpAddr::V4(address), ports), _) => format!("{address}:{}", range(*ports)),
        }
    }

    fn outside(&self) -> String {
        match self {
            Key::Eam(eam) => prefix(eam.v4.addr, eam.v4.len, 32),
            Key::Binding(_, _, (address, ports)) => format!("{address}:{}", range(*ports)),
        }
    }
}

const EAM: &str = "write an IPv6 and an IPv4 prefix, for example `2001:db8::5` and `203.0.113.5`";
const BINDING: &str = "write an inside and a public address with a port each, for example `[2001:db8::5]:443` and `203.0.113.5:443`";

fn of_field(field: &str, wrong: Invalid, wanted: &str) -> Invalid {
    Invalid::with(format!("`{field}`: {}", wrong.what), wrong.instead.unwrap_or_else(|| wanted.to_owned()))
}

/// Formats a prefix, without the length if it is one address.
fn prefix(address: impl fmt::Display, len: u8, all: u8) -> String {
    if len == all { address.to_string() } else { format!("{address}/{len}") }
}

fn range((first, last): PortRange) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

/// A parsed change.
enum KeyChange {
    Replace(Vec<Key>),
    Edit { add: Vec<Key>, remove: Vec<Key> },
}

impl KeyChange {
    fn read(change: &MappingChange) -> Result<KeyChange, EditError> {
        Ok(match change {
            MappingChange::Replace(maps) => KeyChange::Replace(read_list("maps", maps)?),
            MappingChange::Edit { add, remove } => {
                KeyChange::Edit { add: read_list("add", add)?, remove: read_list("remove", remove)? }
            }
        })
    }

    /// The lists with their names in a request.
    fn lists(&self) -> [(&'static str, &[Key]); 2] {
        match self {
            KeyChange::Replace(maps) => [("maps", maps), ("remove", &[])],
            KeyChange::Edit { add, remove } => [("add", add), ("remove", remove)],
        }
    }

    /// Returns true if the change is about address mappings; `None` if it has no mapping.
    fn is_eam(&self) -> Result<Option<bool>, EditError> {
        let mut all =
            self.lists().into_iter().flat_map(|(name, keys)| keys.iter().enumerate().map(move |k| (name, k)));
        let Some((_, (_, first))) = all.next() else { return Ok(None) };
        let is_eam = |key: &Key| matches!(key, Key::Eam(_));
        match all.find(|(_, (_, key))| is_eam(key) != is_eam(first)) {
            None => Ok(Some(is_eam(first))),
            Some((name, (n, key))) => Err(not(
                format!(
                    "mapping {} of `{name}`: {key} is of another kind than the mappings before it",
                    n + 1
                ),
                "change bindings, which have a protocol, and address mappings one after the other",
            )),
        }
    }

    fn check_kind(&self, instance: &Instance) -> Result<(), EditError> {
        let is_siit = instance.kind == "siit";
        if self.is_eam()?.is_none_or(|is_eam| is_eam == is_siit) {
            return Ok(());
        }
        let (has, key) = if is_siit {
            ("address mappings, without a protocol", "siit")
        } else {
            ("bindings, with a protocol and ports", instance.kind)
        };
        Err(not(format!("{} is a {key} instance", instance.name), format!("it has {has}")))
    }
}

/// Parses the mappings of a request; the error names the first malformed one.
fn read_list(list: &str, mappings: &[Mapping]) -> Result<Vec<Key>, EditError> {
    let read = |(n, mapping)| {
        Key::read(mapping).map_err(|wrong| {
            let what = format!("mapping {} of `{list}`: {}", n + 1, wrong.what);
            not(what, wrong.instead.unwrap_or_default())
        })
    };
    mappings.iter().enumerate().map(read).collect()
}

/// Checks that a mapping is well-formed.
///
/// # Errors
/// Returns an error if an address, port or protocol is malformed.
pub fn check_mapping(mapping: &Mapping) -> Result<(), EditError> {
    Key::read(mapping).map(drop).map_err(|wrong| not(wrong.what, wrong.instead.unwrap_or_default()))
}
