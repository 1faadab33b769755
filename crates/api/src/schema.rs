//! Self-describing types: one definition gives a struct, its serialization and its JSON schema.

use serde_json::{Map, Value, json};
use std::net::{IpAddr, Ipv4Addr};

/// A type with a JSON schema.
pub trait Schema {
    /// Reference to the schema.
    fn reference() -> Value;

    /// Adds the definitions that the schema refers to, by name.
    fn define(definitions: &mut Map<String, Value>);

    /// Adds the paths of its values in a flat table; `path` leads to it. A list is one value.
    fn columns(path: &[&'static str], columns: &mut Vec<Vec<&'static str>>) {
        columns.push(path.to_vec());
    }
}

macro_rules! plain {
    ($($type:ty => $schema:tt;)*) => {
        $(impl Schema for $type {
            fn reference() -> Value {
                json!($schema)
            }

            fn define(_: &mut Map<String, Value>) {}
        })*
    };
}

plain! {
    bool => { "type": "boolean" };
    u8 => { "type": "integer", "minimum": 0, "maximum": 255 };
    u16 => { "type": "integer", "minimum": 0, "maximum": 65535 };
    u32 => { "type": "integer", "minimum": 0, "maximum": 4294967295u32 };
    u64 => { "type": "integer", "minimum": 0 };
    i64 => { "type": "integer" };
    f64 => { "type": "number" };
    String => { "type": "string" };
    Ipv4Addr => { "type": "string", "format": "ipv4" };
    IpAddr => { "anyOf": [{ "type": "string", "format": "ipv4" }, { "type": "string", "format": "ipv6" }] };
}

impl<T: Schema> Schema for Vec<T> {
    fn reference() -> Value {
        json!({ "type": "array", "items": T::reference() })
    }

    fn define(definitions: &mut Map<String, Value>) {
        T::define(definitions);
    }
}

impl<T: Schema> Schema for Option<T> {
    fn reference() -> Value {
        json!({ "anyOf": [T::reference(), { "type": "null" }] })
    }

    fn define(definitions: &mut Map<String, Value>) {
        T::define(definitions);
    }

    fn columns(path: &[&'static str], columns: &mut Vec<Vec<&'static str>>) {
        T::columns(path, columns);
    }
}

/// A `$ref` to a named definition.
pub(crate) fn named(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Joins lines of documentation, without the blanks around each.
pub(crate) fn joined(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Structs of the API: public fields with a comment each. Parsers ignore unknown fields; `request::read`
/// refuses them in requests.
macro_rules! structs {
    ($(
        $(#[doc = $doc:literal])*
        $(#[derive($more:ident)])?
        pub struct $name:ident {
            $($(#[doc = $field_doc:literal])* pub $field:ident: $type:ty,)*
        }
    )*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
            $(#[derive($more)])?
            pub struct $name {
                $($(#[doc = $field_doc])* pub $field: $type,)*
            }

            impl $crate::schema::Schema for $name {
                fn reference() -> serde_json::Value {
                    $crate::schema::named(stringify!($name))
                }

                fn define(definitions: &mut serde_json::Map<String, serde_json::Value>) {
                    if definitions.contains_key(stringify!($name)) {
                        return;
                    }
                    let mut properties = serde_json::Map::new();
                    $({
                        let doc = $crate::schema::joined(&[$($field_doc),*]);
                        let mut property = <$type as $crate::schema::Schema>::reference();
                        if let Some(property) = property.as_object_mut() {
                            property.insert("description".into(), doc.into());
                        }
                        properties.insert(stringify!($field).into(), property);
                    })*
                    let required: &[&str] = &[$(stringify!($field)),*];
                    definitions.insert(stringify!($name).into(), serde_json::json!({
                        "type": "object",
                        "description": $crate::schema::joined(&[$($doc),*]),
                        "properties": properties,
                        "required": required,
                    }));
                    $(<$type as $crate::schema::Schema>::define(definitions);)*
                }

                fn columns(path: &[&'static str], columns: &mut Vec<Vec<&'static str>>) {
                    $({
                        let path = [path, [stringify!($field)].as_slice()].concat();
                        <$type as $crate::schema::Schema>::columns(&path, columns);
                    })*
                }
            }
        )*
    };
}

/// Enums of the API whose variants are serialized as one word each. A client reads an unknown word of a newer
/// daemon as `Other`, which is not in `ALL`. The daemon refuses an unknown word in a request.
macro_rules! words {
    ($(
        $(#[doc = $doc:literal])*
        pub enum $name:ident {
            $($(#[doc = $variant_doc:literal])* $variant:ident = $word:literal,)*
        }
    )*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
            #[derive(serde::Serialize, serde::Deserialize)]
            pub enum $name {
                $($(#[doc = $variant_doc])* #[serde(rename = $word)] $variant,)*
                /// A word that this version does not know.
                #[serde(rename = "other", other)]
                Other,
            }

            impl $name {
                /// All known words.
                pub const ALL: &'static [$name] = &[$($name::$variant),*];

                /// Returns the serialized word.
                pub const fn word(self) -> &'static str {
                    match self {
                        $($name::$variant => $word,)*
                        $name::Other => "other",
                    }
                }
            }

            impl std::fmt::Display for $name {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.pad(self.word())
                }
            }

            impl std::str::FromStr for $name {
                type Err = String;

                fn from_str(word: &str) -> Result<Self, String> {
                    let words = || Self::ALL.iter().map(|one| one.word()).collect::<Vec<_>>().join(", ");
                    let found = Self::ALL.iter().find(|one| one.word().eq_ignore_ascii_case(word));
                    found.copied().ok_or_else(|| format!("'{word}' is not one of {}", words()))
                }
            }

            impl $crate::schema::Schema for $name {
                fn reference() -> serde_json::Value {
                    $crate::schema::named(stringify!($name))
                }

                fn define(definitions: &mut serde_json::Map<String, serde_json::Value>) {
                    let words: &[&str] = &[$($word),*];
                    let doc = $crate::schema::joined(&[$($doc),*]);
                    definitions.insert(
                        stringify!($name).into(),
                        serde_json::json!({ "type": "string", "enum": words, "description": doc }),
                    );
                }
            }
        )*
    };
}

pub(crate) use {structs, words};
