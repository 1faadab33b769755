//! JSON schema of the configuration file, for editors and programs.

use crate::keys::{FILE_KEYS, Key, Kind};
use serde_json::{Map, Value, json};

/// The schema (JSON Schema 2020-12), ending with a newline.
pub fn json_schema() -> String {
    let mut schema = object(FILE_KEYS);
    schema.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".into(), json!("Configuration of Gatun"));
    let mut text = format!("{:#}", Value::Object(schema));
    text.push('\n');
    text
}

/// A table that allows only these keys.
fn object(keys: &[Key]) -> Map<String, Value> {
    let properties: Map<_, _> = keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let required: Vec<_> = keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    let mut object = Map::new();
    object.insert("type".into(), json!("object"));
    object.insert("properties".into(), Value::Object(properties));
    object.insert("additionalProperties".into(), json!(false));
    if !required.is_empty() {
        object.insert("required".into(), json!(required));
    }
    object
}

fn property(key: &Key) -> Value {
    let mut value = kind(&key.kind);
    if let Value::Object(map) = &mut value {
        let default = match key.default {
            "" => String::new(),
            default => format!(" Default: {default}."),
        };
        map.insert("description".into(), json!(format!("{}{default}", key.doc)));
    }
    value
}

fn kind(kind_of: &Kind) -> Value {
    let list = |item: &Kind| json!({ "type": "array", "items": kind(item) });
    match kind_of {
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Text { form, pattern } => json!({ "type": "string", "title": form, "pattern": pattern }),
        Kind::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Bytes { .. } => {
            json!({ "anyOf": [integer(kind_of), { "type": "string", "pattern": "^[0-9]+ *(B|KiB|MiB|GiB)?$" }] })
        }
        Kind::Duration => json!({ "type": "string", "pattern": "^( *[0-9]+(ms|s|m|min|h|d))+ *$" }),
        Kind::Words(words) => json!({ "enum": words() }),
        Kind::CopyOr { .. } => json!({ "anyOf": [{ "const": "copy" }, integer(kind_of)] }),
        Kind::List(item) => json!({ "anyOf": [kind(item), list(item)] }),
        Kind::AutoOr(item) => json!({ "anyOf": [{ "const": "auto" }, { "const": false }, list(item)] }),
        Kind::Ports => json!({ "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": 65_535 },
            { "type": "string", "pattern": "^ *[0-9]+ *(- *[0-9]+ *)?$" },
        ] }),
        Kind::RemotePort => json!({ "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": 65_535 },
            { "type": "string", "pattern": "^(tcp|udp)/[0-9]+$" },
        ] }),
        Kind::Table(keys) => Value::Object(object(keys)),
        Kind::Tables(keys) => json!({ "type": "array", "items": Value::Object(object(keys)) }),
        Kind::WordOrTable(keys) => {
            let word = keys.iter().find(|key| key.name == "kind").map(|key| kind(&key.kind));
            json!({ "anyOf": [word, Value::Object(object(keys))] })
        }
    }
}

fn integer(kind: &Kind) -> Value {
    match kind {
        Kind::Integer { min, max } | Kind::Bytes { min, max } | Kind::CopyOr { min, max } => {
            json!({ "type": "integer", "minimum": min, "maximum": max })
        }
        _ => json!({ "type": "integer" }),
    }
}
