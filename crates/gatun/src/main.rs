//! Gatun.
fn main() {}
