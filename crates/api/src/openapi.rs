//! The OpenAPI 3.1 document, generated from the list of paths and the types.

use crate::paths::{ENDPOINTS, Endpoint, Operation, Parameter, Permission};
use crate::schema::Schema as _;
use crate::types::Problem;
use serde_json::{Map, Value, json};

/// Returns the document.
pub fn document() -> Value {
    let mut schemas = Map::new();
    Problem::define(&mut schemas);
    let mut paths = Map::new();
    for endpoint in ENDPOINTS {
        for described in endpoint.body.iter().chain(&endpoint.answer) {
            (described.define)(&mut schemas);
        }
        let methods = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        if let Some(methods) = methods.as_object_mut() {
            methods.insert(endpoint.method.name().to_lowercase(), operation(endpoint));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Gatun",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "State, counters and configuration of a running Gatun. HTTP on a Unix socket and, if configured, on TCP under TLS.",
            "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
        },
        "servers": [
            { "url": "http://localhost", "description": "the daemon's Unix socket" },
            {
                "url": "https://{host}:{port}",
                "description": "[api] listen_tls, with a token",
                "variables": { "host": { "default": "localhost" }, "port": { "default": "8443" } },
            },
        ],
        // The Unix socket needs no token; TCP needs one.
        "security": [{}, { "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer", "description": "As `gatun token add` prints it." } },
        },
    })
}

fn operation(endpoint: &Endpoint) -> Value {
    let problem = |what: &str| json!({ "description": what, "content": { "application/json": { "schema": Problem::reference() } } });
    let mut operation = json!({
        "summary": endpoint.help,
        "operationId": format!("{:?}", endpoint.what).replace(['(', ')'], ""),
        "responses": {
            "200": answer(endpoint),
            "400": problem("Invalid request."),
            "401": problem("On TCP: missing or unknown token."),
            "429": problem("On TCP: too many wrong tokens from this address."),
            "503": problem("A worker does not answer in time or is overloaded."),
        },
    });
    let Some(fields) = operation.as_object_mut() else { return operation };
    let forbidden = match endpoint.needs() {
        Permission::Read => None,
        Permission::Write => Some("On TCP: the token's role allows no changes."),
        Permission::Audit => Some("On TCP: the token's role allows no questions to the log."),
    };
    if let Some(forbidden) = forbidden
        && let Some(responses) = fields.get_mut("responses").and_then(Value::as_object_mut)
    {
        responses.insert("403".into(), problem(forbidden));
    }
    let parameters: Vec<Value> = endpoint.all_parameters().map(parameter).collect();
    if !parameters.is_empty() {
        fields.insert("parameters".into(), parameters.into());
    }
    let changes = [
        Operation::ApplyConfig,
        Operation::ConfirmConfig,
        Operation::RollBackConfig,
        Operation::ReplaceMaps,
        Operation::EditMaps,
        Operation::PlanReplaceMaps,
        Operation::PlanEditMaps,
    ];
    if changes.contains(&endpoint.what) {
        let mut add = |status: &str, what: &str| {
            if let Some(responses) = fields.get_mut("responses").and_then(Value::as_object_mut) {
                responses.insert(status.to_owned(), problem(what));
            }
        };
        add("409", "Another configuration runs than the caller expects, or one waits for confirmation.");
        add("422", "The configuration is invalid or needs a restart.");
        add("500", "Writing to disk failed: nothing has changed.");
    }
    if let Some(body) = endpoint.body {
        let mut schema = (body.reference)();
        // Clients ignore unknown fields of answers; the daemon refuses unknown fields of requests.
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("unevaluatedProperties".into(), false.into());
        }
        let content = json!({ "application/json": { "schema": schema } });
        fields.insert("requestBody".into(), json!({ "required": true, "content": content }));
    }
    operation
}

fn answer(endpoint: &Endpoint) -> Value {
    let mut content = Map::new();
    match (endpoint.answer, endpoint.what) {
        (Some(answer), _) => {
            let schema = (answer.reference)();
            if let Some(items) = schema.pointer("/properties/items/items") {
                content.insert("application/x-ndjson".into(), json!({ "schema": items }));
            }
            content.insert("application/json".into(), json!({ "schema": schema }));
        }
        (None, Operation::OpenApi) => drop(content.insert("application/json".into(), json!({}))),
        (None, _) => drop(content.insert("text/plain".into(), json!({ "schema": { "type": "string" } }))),
    }
    json!({ "description": endpoint.help, "content": content })
}

fn parameter(parameter: &Parameter) -> Value {
    json!({
        "name": parameter.name,
        "in": "query",
        "description": parameter.help,
        "required": parameter.required,
        "schema": parameter.schema(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::*;

    fn check(value: &Value, schema: &Value, document: &Value) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{what}: {value} by {schema}"));
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let found = document.pointer(reference.trim_start_matches('#'));
            return found.map_or_else(|| wrong("undefined"), |found| check(value, found, document));
        }
        if let Some(any) = schema.get("anyOf").and_then(Value::as_array) {
            return match any.iter().any(|one| check(value, one, document).is_ok()) {
                true => Ok(()),
                false => wrong("none of these"),
            };
        }
        if let Some(words) = schema.get("enum").and_then(Value::as_array) {
            return if words.contains(value) { Ok(()) } else { wrong("not one of the words") };
        }
        match (schema.get("type").and_then(Value::as_str), value) {
            (Some("array"), Value::Array(items)) => {
                items.iter().try_for_each(|item| check(item, &schema["items"], document))
            }
            (Some("object"), Value::Object(fields)) => {
                let properties = schema["properties"].as_object().unwrap();
                let names: std::collections::BTreeSet<&String> = properties.keys().collect();
                if fields.keys().collect::<std::collections::BTreeSet<_>>() != names {
                    return wrong("other fields");
                }
                fields.iter().try_for_each(|(name, field)| check(field, &properties[name], document))
            }
            (Some("string"), Value::String(_))
            | (Some("boolean"), Value::Bool(_))
            | (Some("null"), Value::Null)
            | (Some("integer"), Value::Number(_)) => Ok(()),
            _ if schema["type"].is_array() && (value.is_string() || value.is_null()) => Ok(()),
            _ => wrong("another type"),
        }
    }

    fn session() -> Session {
        Session {
            instance: Name("home".into()),
            protocol: Protocol::Tcp,
            inside: "2001:db8::1".parse().unwrap(),
            inside_port: 5000,
            outside: "192.0.2.1".parse().unwrap(),
            outside_port: 40000,
            remote: "198.51.100.7".parse().unwrap(),
            remote_port: 443,
            state: State::Established,
            expires_ms: 7_200_000,
            configured: false,
            shared: false,
            offloaded: false,
        }
    }

    #[test]
    fn serialized_types_match_the_document() {
        let document = document();
        let page = Page { items: vec![session()], next: Some("0-7".into()) };
        let entry_count = || EntryCount { now: 1, created: 2 };
        let entries = || ProtocolEntries { sessions: entry_count(), bindings: entry_count() };
        let count = || Count { packets: 1, bytes: 2 };
        let instance = Instance {
            kind: Kind::Nat44,
            name: Name("cgn".into()),
            outbound: count(),
            inbound: count(),
            selectors: Selectors { sources: vec!["10.0.0.0/8".into()], ..Selectors::default() },
            matched: count(),
            hairpinned: count(),
            passed: count(),
            echoes: count(),
            dropped: count(),
            tcp: entries(),
            udp: entries(),
            icmp: entries(),
            subscribers: 3,
            drops: vec![Counter { name: "no_bib".into(), value: 4, help: "x".into() }],
        };
        for (path, method, value) in [
            ("/v1/sessions", "get", serde_json::to_value(&page).unwrap()),
            ("/v1/sessions", "delete", serde_json::to_value(Cleared { sessions: 1, bindings: 0 }).unwrap()),
            ("/v1/instances", "get", serde_json::to_value(vec![instance]).unwrap()),
            (
                "/v1/ports",
                "get",
                json!([{ "name": "a", "backend": "tun", "device": "gatun0", "queues": 1, "mtu": null, "addresses": ["192.0.2.1/24"] }]),
            ),
        ] {
            let schema =
                &document["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"];
            check(&value, schema, &document).unwrap();
        }
        let mut wrong = serde_json::to_value(session()).unwrap();
        wrong["state"] = "gone".into();
        check(&wrong, &json!({ "$ref": "#/components/schemas/Session" }), &document).unwrap_err();
    }

    #[test]
    fn requests_are_strict_and_answers_are_not() {
        let document = document();
        let answers = document["components"]["schemas"].as_object().unwrap();
        for (name, schema) in answers {
            assert!(schema.get("additionalProperties").is_none(), "{name}");
        }
        let bodies = ENDPOINTS.iter().filter(|endpoint| endpoint.has_body()).map(|endpoint| {
            let operation = &document["paths"][endpoint.path][endpoint.method.name().to_lowercase()];
            &operation["requestBody"]["content"]["application/json"]["schema"]
        });
        let strict: Vec<_> = bodies.map(|schema| schema["unevaluatedProperties"] == false).collect();
        assert!(strict.len() >= 5 && strict.iter().all(|strict| *strict), "{strict:?}");
    }

    #[test]
    fn every_reference_resolves_and_everything_has_a_description() {
        fn walk(value: &Value, document: &Value) {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(reference)) = fields.get("$ref") {
                        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
                    }
                    fields.values().for_each(|field| walk(field, document));
                }
                Value::Array(items) => items.iter().for_each(|item| walk(item, document)),
                _ => {}
            }
        }
        let document = document();
        walk(&document, &document);
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            assert!(!schema["description"].as_str().unwrap().is_empty(), "{name}");
            for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
                assert!(!schema["description"].as_str().unwrap().is_empty(), "{name}.{field}");
            }
        }
    }

    #[test]
    fn a_session_round_trips() {
        let text = serde_json::to_string(&session()).unwrap();
        assert_eq!(serde_json::from_str::<Session>(&text).unwrap(), session());
        assert!(text.contains(r#""protocol":"tcp""#) && text.contains(r#""state":"established""#), "{text}");
        assert_eq!("ICMP".parse(), Ok(Protocol::Icmp));
        assert!("sctp".parse::<Protocol>().unwrap_err().contains("tcp, udp, icmp"));
    }
}
