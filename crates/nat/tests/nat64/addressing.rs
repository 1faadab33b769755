//! Addresses and prefixes of the tests.

/// The prefix of most tests.
pub(super) const POOL6: &str = "2001:db8:64::/96";
/// The server and another one, behind the prefix.
pub(super) const SERVER6: &str = "2001:db8:64::c633:6407";
pub(super) const OTHER: &str = "198.51.100.9";
pub(super) const OTHER6: &str = "2001:db8:64::c633:6409";
/// The pool's address.
pub(super) const T: &str = "192.0.2.1";
/// A prefix of each length. None contains 2001:beef::/32.
pub(super) const PREFIXES: [&str; 6] = [
    "2001:db8::/32",
    "2001:db8:100::/40",
    "2001:db8:122::/48",
    "2001:db8:122:300::/56",
    "2001:db8:122:344::/64",
    "2001:db8:122:344::/96",
];
