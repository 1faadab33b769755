//! Replay of inputs found by fuzzing. Each file is named after the problem that it caused. A few handmade
//! inputs check the harness itself.

#[path = "support/any_sessions.rs"]
mod any_sessions;
#[path = "support/hostile.rs"]
mod hostile;

use hostile::Way;
use std::path::Path;

fn replay(folder: &str, run: impl Fn(&[u8])) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions").join(folder);
    let entries = std::fs::read_dir(&path).expect("the folder is part of the repository");
    let mut replayed = 0;
    for entry in entries {
        let file = entry.expect("the folder can be read").path();
        println!("{}", file.display());
        run(&std::fs::read(&file).expect("the file can be read"));
        replayed += 1;
    }
    replayed
}

#[test]
fn inputs_found_by_fuzzing_from_ipv6_do_no_harm() {
    assert!(
        replay("packet_6to4", |input| {
            hostile::run(Way::SixToFour, input);
        }) > 0
    );
}

#[test]
fn inputs_found_by_fuzzing_from_ipv4_do_no_harm() {
    assert!(
        replay("packet_4to6", |input| {
            hostile::run(Way::FourToSix, input);
        }) > 0
    );
}

/// Tries every truncation of a packet, and every length field off by one, in each direction.
#[test]
fn truncated_packets_and_wrong_lengths_do_no_harm() {
    for (way, name) in [(Way::SixToFour, "packet_6to4"), (Way::FourToSix, "packet_4to6")] {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions").join(name).join("all_kinds");
        let input = std::fs::read(path).expect("the file is part of the repository");
        let forwarded = hostile::run(way, &input);
        assert!(forwarded > 8, "{way:?}: the input gets nowhere, {forwarded} packets came through");
        for end in 0..input.len() {
            hostile::run(way, &input[..end]);
        }
        for at in 0..input.len() {
            let mut other = input.clone();
            other[at] = other[at].wrapping_add(1);
            hostile::run(way, &other);
        }
    }
}

#[test]
fn session_files_found_by_fuzzing_do_no_harm() {
    assert!(
        replay("session_file", |input| {
            any_sessions::run(input);
        }) > 0
    );
}

/// Cuts a file with sessions of every kind at many places, and damages each of the first bytes, in engines of
/// every kind.
#[test]
fn truncated_or_damaged_session_files_do_no_harm() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/regressions/session_file/all_kinds");
    let input = std::fs::read(path).expect("the file is part of the repository");
    for kind in (0..32u8).step_by(4) {
        let with = |bytes: &[u8]| any_sessions::run(&[&[kind | 1], bytes].concat());
        assert!(with(&input[1..]) > 4, "the input has no effect");
        for end in (1..input.len()).step_by(7) {
            with(&input[1..end]);
        }
        // Damages every byte of the header and of the first records.
        for place in (u16::from(kind / 4)..256).step_by(8) {
            let [high, low] = place.to_be_bytes();
            with(&[&input[1..], &[0xff; 20], &[high, low, 0x41]].concat());
        }
    }
}
