//! Keys and the types of their values.

/// A key of a table.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) required: bool,
    /// Default, in TOML or in words.
    pub(crate) default: &'static str,
    /// A valid value, in TOML.
    pub(crate) example: &'static str,
    /// Description, in Markdown.
    pub(crate) doc: &'static str,
}

/// Kind of value.
#[derive(Debug)]
pub(crate) enum Kind {
    /// true or false.
    Flag,
    /// A string in a form that the documentation and a regular expression describe.
    Text { form: &'static str, pattern: &'static str },
    /// A whole number.
    Integer { min: u32, max: u32 },
    /// A whole number of bytes, or a string with a unit.
    Bytes { min: u32, max: u32 },
    /// A time span.
    Duration,
    /// One word of a list.
    Words(fn() -> Vec<&'static str>),
    /// "copy", or a whole number.
    CopyOr { min: u32, max: u32 },
    /// A list of values of a kind, or one of them.
    List(&'static Kind),
    /// "auto", false, or a list of values of a kind.
    AutoOr(&'static Kind),
    /// A port, or a range of ports.
    Ports,
    /// A port of a remote host, optionally with a protocol.
    RemotePort,
    /// A table.
    Table(&'static [Key]),
    /// A list of tables.
    Tables(&'static [Key]),
    /// A word, or a table with that word as its `kind` and further keys.
    WordOrTable(&'static [Key]),
}

impl Key {
    /// Returns `key = example`, or a header if the key is a table.
    pub(crate) fn example_line(&self) -> String {
        format!("{} = {}", self.name, self.example)
    }
}

/// Returns the key with this name.
pub(crate) fn find<'k>(keys: &'k [Key], name: &str) -> Option<&'k Key> {
    keys.iter().find(|key| key.name == name)
}

/// Creates an optional key without a default.
pub(super) const fn key(name: &'static str, kind: Kind, example: &'static str, doc: &'static str) -> Key {
    Key { name, kind, required: false, default: "", example, doc }
}

impl Key {
    pub(super) const fn default(mut self, default: &'static str) -> Key {
        self.default = default;
        self
    }

    pub(super) const fn required(mut self) -> Key {
        self.required = true;
        self
    }
}
