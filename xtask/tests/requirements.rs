//! Every requirement has a test that proves it, or a reason; the published matrix is up to date.

use std::process::Command;

#[test]
fn the_matrix_is_complete_and_its_published_form_is_up_to_date() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(["rfc", "--check"]).output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    println!("{out}");
    assert!(output.status.success(), "{err}");
}
