//! The project's own chores. `cargo xtask rfc` prints the requirements matrix.
fn main() {}
