//! Packets of IPv4 hosts inside, and ICMP errors to them (RFC 3022, RFC 4787, 5382, 5508).
//!
//! - [`outbound`]: queries from inside.
//! - [`icmp`]: ICMP errors.

pub(crate) mod icmp;
pub(crate) mod outbound;
