//! Every requirement has a test that proves it, or a reason; the published matrix is what the code says.

use std::process::Command;

#[test]
fn the_matrix_has_no_hole_and_is_published_as_it_is() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(["rfc", "--check"]).output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    println!("{out}");
    assert!(output.status.success(), "{err}");
}
