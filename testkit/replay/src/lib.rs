//! Takes the place of libFuzzer: a fuzz target of `fuzz/` becomes a function, so that the workspace's tests
//! compile and link it like any other code, with the stable toolchain.
#![forbid(unsafe_code)]

/// Makes a function `fuzz` of a target's body.
#[macro_export]
macro_rules! fuzz_target {
    (|$input:ident: &[u8]| $body:block) => {
        /// Runs the target.
        pub fn fuzz($input: &[u8]) $body
    };
    // Like libFuzzer's crate, which gives the target only what its type accepts.
    (|$text:ident: &str| $body:block) => {
        /// Runs the target.
        pub fn fuzz(input: &[u8]) {
            let Ok($text) = core::str::from_utf8(input) else { return };
            $body
        }
    };
}
