//! What fuzzing found in requests, replayed; some made by hand keep the harness itself honest.

#[path = "support/any_request.rs"]
mod any_request;

use gatun_api::paths::ENDPOINTS;

#[test]
fn what_fuzzing_found_in_requests_stays_mended() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/regressions/api_request");
    let entries = std::fs::read_dir(path).expect("the folder is part of the repository");
    let files: Vec<_> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    assert!(!files.is_empty());
    for file in files {
        println!("{}", file.display());
        any_request::run(&std::fs::read(&file).expect("the file can be read"));
    }
}

/// Every path, with each of its parameters in turn, and bodies that are none.
#[test]
fn every_path_answers_whatever_its_parameters_and_body_say() {
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
