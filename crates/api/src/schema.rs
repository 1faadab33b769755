//! Self-describing types: one definition gives a struct, its serialization and its JSON schema.

use serde_json::{Map, Value, json};
use std::net::{IpAddr, Ipv4Addr};

/// A type with a JSON schema.
pub trait Schema {
    /// Reference to the schema.
    fn reference() -> Value;

    /// Adds the definitions that the schema refers to, by name.
    fn define(definitions: &mut Map<String, Value>);
}

/// A struct's fields: name and meaning.
pub trait Fields {
    /// Fields in the order of serialization.
    const FIELDS: &'static [(&'static str, &'static str)];
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
    f64 => { "type": "number" };
    String => { "type": "string" };
    Ipv4Addr => { "type": "string", "format": "ipv4" };
    IpAddr => { "type": "string", "description": "an IPv4 or IPv6 address" };
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
            }

            impl $crate::schema::Fields for $name {
                const FIELDS: &'static [(&'static str, &'static str)] =
                    &[$((stringify!($field), concat!($($field_doc),*))),*];
            }
        )*
    };
}

/// Enums of the API whose variants are serialized as one word each.
macro_rules! words {
    ($(
        $(#[doc = $doc:literal])*
        pub enum $name:ident {
            $($(#[doc = $variant_doc:literal])* $variant:ident = $word:literal,)*
        }
    )*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
            pub enum $name {
                $($(#[doc = $variant_doc])* #[serde(rename = $word)] $variant,)*
            }

            impl $name {
                /// All words.
                pub const ALL: &'static [$name] = &[$($name::$variant),*];

                /// Returns the serialized word.
                pub const fn word(self) -> &'static str {
                    match self {
                        $($name::$variant => $word,)*
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
