//! The reference page of the configuration file, in Markdown.

use crate::keys::{self, FILE_KEYS, Key, Kind};
use std::fmt::Write as _;

const HEAD: &str = "\
# The configuration file

Gatun reads one configuration file in TOML. This page and the JSON schema
[config.schema.json](config.schema.json), with which editors complete and check the file, are generated
from the list of keys in the program.

`gatun check FILE` reports all errors in a file at once: the place of each, and what to write instead.
A key that is not on this page is an error, so that no misspelt key is ignored.

The smallest useful file:

```toml
[[pool]]
prefixes = [\"192.0.2.0/28\"]

[[nat64]]
pool6 = \"64:ff9b::/96\"
```

Forms of values:

- a **time span** is a string such as `\"5m\"`, `\"2h4m\"`, `\"6s\"` or `\"1500ms\"`;
- **ports** are a string such as `\"1024-65535\"` or `\"80\"`, or a number;
- a **list** of one value may be written as the value;
- an address without a length, in place of a **prefix**, is a prefix of one address.
";

/// The page, ending with a newline.
pub fn reference_page() -> String {
    let mut page = HEAD.to_owned();
    for section in FILE_KEYS {
        write_section(&mut page, section);
    }
    page
}

fn write_section(page: &mut String, section: &Key) {
    let (header, table_keys) = match &section.kind {
        Kind::Tables(keys) => (format!("[[{}]]", section.name), *keys),
        Kind::Table(keys) => (format!("[{}]", section.name), *keys),
        _ => return,
    };
    // Writing to a String does not fail.
    let _ = write!(page, "\n## `{header}`\n\n{}\n\n", section.doc);
    write_keys(page, table_keys);
    for key in table_keys {
        match &key.kind {
            Kind::Tables(inner) | Kind::Table(inner) | Kind::WordOrTable(inner)
                if !std::ptr::eq(*inner, keys::TIMEOUTS) =>
            {
                let _ = write!(page, "\n### `{}` in `{header}`\n\n", key.name);
                write_keys(page, inner);
            }
            _ => {}
        }
    }
}

fn write_keys(page: &mut String, keys: &[Key]) {
    page.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
    for key in keys {
        let default = match (key.required, key.default) {
            (true, _) => "**required**".to_owned(),
            (false, "") => String::new(),
            (false, default) if default.starts_with(['"', '[']) || !default.contains(' ') => {
                format!("`{default}`").replace("``", "`")
            }
            (false, default) => default.to_owned(),
        };
        let value = value(&key.kind).replace('|', "\\|");
        let example = key.example.replace('|', "\\|");
        let _ = writeln!(page, "| `{}` | {value}, e.g. `{example}` | {default} | {} |", key.name, key.doc);
    }
}

/// Describes the values of a key.
pub(crate) fn value(kind: &Kind) -> String {
    match kind {
        Kind::Flag => "`true` or `false`".to_owned(),
        Kind::Text { form, .. } => (*form).to_owned(),
        Kind::Integer { min, max } => format!("{min} to {max}"),
        Kind::Bytes { .. } => "bytes".to_owned(),
        Kind::Duration => "time span".to_owned(),
        Kind::Words(words) => match words() {
            words if words.len() > 12 => "one of the names of reasons".to_owned(),
            words => words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(" or "),
        },
        Kind::CopyOr { min, max } => format!("`\"copy\"` or {min} to {max}"),
        Kind::List(item) => format!("list of: {}", value(item)),
        Kind::AutoOr(item) => format!("`\"auto\"`, `false`, or list of: {}", value(item)),
        Kind::Ports => "ports".to_owned(),
        Kind::RemotePort => "port or `\"protocol/port\"`".to_owned(),
        Kind::Table(_) => "table".to_owned(),
        Kind::Tables(_) => "list of tables".to_owned(),
        Kind::WordOrTable(_) => "word or table".to_owned(),
    }
}
