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
    use crate::types::{Page, Session, SessionKeys, StaticMap, Status};
    use serde_json::{Value, json};

    const MAP: &str =
        r#"{"instance":null,"protocol":"tcp","inside":"[2001:db8::1]:80","outside":"192.0.2.1:80"}"#;

    /// Adds a field of a future version to every object.
    fn of_a_newer_version(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.values_mut().for_each(of_a_newer_version);
                fields.insert("of_version_9".to_owned(), json!({ "a": [1, 2] }));
            }
            Value::Array(items) => items.iter_mut().for_each(of_a_newer_version),
            _ => {}
        }
    }

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

    #[test]
    fn an_answer_of_a_newer_daemon_is_read_without_new_fields() {
        let count = json!({ "packets": 1, "bytes": 2 });
        let mut status = json!({
            "version": "9.0.0", "pid": 7, "uptime_seconds": 1, "config_file": "f", "workers": 1, "workers_silent": 0,
            "sandbox": { "state": "on", "missing": [] },
            "pages": { "set_aside_bytes": 0, "transparent_bytes": 0, "small_bytes": 0 },
            "sessions": 0, "sessions_waiting": 0, "sessions_max": 0, "bindings": 0, "subscribers": 0,
            "received": count, "forwarded": count, "echo_replies": count, "passed": count, "dropped": count,
            "rejected": count, "dropped_silently": count, "held": 0, "adds_up": true,
            "troubles": [{ "urgency": "bad", "part": "log", "what": "x" }],
        });
        of_a_newer_version(&mut status);
        let status: Status = serde_json::from_value(status).unwrap();
        assert_eq!((status.pid, status.received.bytes), (7, 2));
        let mut page = json!({ "items": [{
            "instance": "n", "protocol": "udp", "inside": "2001:db8::1", "inside_port": 1, "outside": "192.0.2.1",
            "outside_port": 2, "remote": "192.0.2.7", "remote_port": 3, "state": "open", "expires_ms": 4,
            "configured": false, "shared": false,
        }], "next": null });
        of_a_newer_version(&mut page);
        let page: Page<Session> = serde_json::from_value(page).unwrap();
        assert_eq!(page.items[0].expires_ms, 4);
    }
}
