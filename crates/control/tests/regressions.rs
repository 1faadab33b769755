//! Replay of requests that fuzzing found; some made by hand check the harness itself.

#[path = "support/any_request.rs"]
mod any_request;

use gatun_api::paths::ENDPOINTS;

#[test]
fn fuzzing_findings_in_requests_stay_fixed() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/regressions/api_request");
    let entries = std::fs::read_dir(path).expect("the folder is part of the repository");
    let files: Vec<_> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    assert!(!files.is_empty());
    for file in files {
        println!("{}", file.display());
        any_request::run(&std::fs::read(&file).expect("the file can be read"));
    }
}

/// Requests every path with each parameter in turn, and with invalid bodies.
#[test]
fn every_path_answers_any_parameters_and_body() {
    for (number, endpoint) in ENDPOINTS.iter().enumerate() {
        let number = u8::try_from(number).expect("few paths");
        let count = u8::try_from(endpoint.all_parameters().count()).expect("few parameters");
        for (name, value) in (0..count).flat_map(|n| [(n, "0"), (n, "::/0"), (n, "\u{1}%&="), (n, "-1")]) {
            let parameter = [&[name][..], value.as_bytes(), &[0, 0xff]].concat();
            any_request::run(&[&[0, number][..], &parameter].concat());
        }
        for body in ["", "{", "[]", "{\"sessions\": [{}]}", "\u{0}"] {
            any_request::run(&[&[0, number, 0xff][..], body.as_bytes()].concat());
        }
    }
    assert_eq!(ENDPOINTS[0].path, "/v1/status");
    assert_eq!(any_request::run(&[0, 0, 0xff]), 200, "the harness sees no answers");
}
