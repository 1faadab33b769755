//! What fuzzing found, replayed: each file is an input that once did harm, named after it.
//! A few made by hand keep the harness itself honest.

#[path = "support/hostile.rs"]
mod hostile;

use hostile::Way;
use std::path::Path;

fn replay(folder: &str, way: Way) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions").join(folder);
    let entries = std::fs::read_dir(&path).expect("the folder is part of the repository");
    let mut replayed = 0;
    for entry in entries {
        let file = entry.expect("the folder can be read").path();
        println!("{}", file.display());
        hostile::run(way, &std::fs::read(&file).expect("the file can be read"));
        replayed += 1;
    }
    replayed
}

#[test]
fn what_fuzzing_found_from_ipv6_stays_mended() {
    assert!(replay("packet_6to4", Way::SixToFour) > 0);
}

#[test]
fn what_fuzzing_found_from_ipv4_stays_mended() {
    assert!(replay("packet_4to6", Way::FourToSix) > 0);
}

/// Every truncation of a packet, and every length field off by one, of each way.
#[test]
fn truncated_packets_and_lying_lengths_do_no_harm() {
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
