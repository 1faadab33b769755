//! Bodies of requests. They are parsed strictly: an unknown field is an error, because a misspelt field would
//! silently have no effect. Answers are parsed tolerantly, so that a client accepts those of a newer daemon.

use serde::de::DeserializeOwned;

/// Parses the body of a request.
///
/// # Errors
/// Returns an error if the text is not JSON of this type, or has a field that the type does not have, at any
/// depth.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let mut unknown = None;
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_ignored::deserialize(&mut json, |path| {
        unknown.get_or_insert_with(|| path.to_string());
    });
    let value = value.and_then(|value| json.end().map(|()| value)).map_err(|error| error.to_string())?;
    match unknown {
        Some(path) => Err(format!("unknown field `{path}`")),
        None => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::ENDPOINTS;
    use crate::types::{Part, Protocol, SessionKeys, StaticMap};
    use serde_json::{Map, Value, json};

    const MAP: &str =
        r#"{"instance":null,"protocol":"tcp","inside":"[2001:db8::1]:80","outside":"192.0.2.1:80"}"#;

    #[test]
    fn a_request_with_an_unknown_field_is_refused_with_its_name() {
        assert_eq!(read::<StaticMap>(MAP.as_bytes()).unwrap().outside, "192.0.2.1:80");
        let misspelt = MAP.replace("}", ",\"confirm\":true}");
        assert_eq!(read::<StaticMap>(misspelt.as_bytes()), Err("unknown field `confirm`".to_owned()));
        let key = r#"{"instance":"n","protocol":"tcp","inside":"2001:db8::1","inside_port":1,"remote":"192.0.2.1","remote_port":2}"#;
        let keys = format!("{{\"sessions\":[{key},{key}]}}");
        assert_eq!(read::<SessionKeys>(keys.as_bytes()).unwrap().sessions.len(), 2);
        let deep =
            keys.replacen("]}", ",{\"x\":1}]}", 1).replace("{\"x\":1}", &key.replace('}', ",\"x\":1}"));
        assert_eq!(read::<SessionKeys>(deep.as_bytes()), Err("unknown field `sessions.2.x`".to_owned()));
    }

    #[test]
    fn a_request_of_another_type_is_refused() {
        for wrong in [
            "",
            "{",
            "[]",
            "{\"inside\":1}",
            &format!("{MAP} x"),
            &MAP.replacen('{', "{\"outside\":\"x\",", 1),
        ] {
            assert!(read::<StaticMap>(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    /// A value of a schema by a daemon of a future version: objects have another field, and words are new.
    fn of_a_newer_version(schema: &Value, definitions: &Map<String, Value>) -> Value {
        let made = |schema| of_a_newer_version(schema, definitions);
        if let Some(name) = schema["$ref"].as_str() {
            return made(&definitions[name.rsplit('/').next().unwrap()]);
        }
        if let Some(first) = schema["anyOf"].get(0) {
            return made(first);
        }
        let kind = schema["type"].as_str().or(schema["type"][0].as_str());
        match kind.unwrap_or_else(|| panic!("no type: {schema}")) {
            "object" => {
                let fields = schema["properties"].as_object().unwrap().iter();
                let mut fields: Map<_, _> = fields.map(|(name, of)| (name.clone(), made(of))).collect();
                fields.insert("of_version_9".to_owned(), json!({ "a": [1, 2] }));
                fields.into()
            }
            "array" => json!([made(&schema["items"])]),
            "string" if schema["enum"].is_array() => json!("word_of_version_9"),
            "string" if schema["format"] == "ipv4" => json!("192.0.2.1"),
            "string" => json!("text"),
            "boolean" => json!(true),
            "integer" | "number" => json!(7),
            other => panic!("unknown type {other}"),
        }
    }

    #[test]
    fn every_answer_of_a_newer_daemon_is_read_without_what_is_new_in_it() {
        let mut read = 0;
        for endpoint in ENDPOINTS {
            let Some(answer) = endpoint.answer else { continue };
            let mut definitions = Map::new();
            (answer.define)(&mut definitions);
            let newer = of_a_newer_version(&(answer.reference)(), &definitions);
            (answer.read)(newer.clone())
                .unwrap_or_else(|error| panic!("{}: {error}: {newer}", endpoint.path));
            read += 1;
        }
        assert!(read > 30, "{read} answers");
    }

    #[test]
    fn an_unknown_word_of_an_answer_is_other_and_no_word_that_can_be_asked_for() {
        assert_eq!(serde_json::from_str::<Part>("\"turbine\"").unwrap(), Part::Other);
        assert_eq!(serde_json::from_str::<Part>("\"log\"").unwrap(), Part::Log);
        assert!("other".parse::<Protocol>().is_err() && !Protocol::ALL.contains(&Protocol::Other));
    }
}
