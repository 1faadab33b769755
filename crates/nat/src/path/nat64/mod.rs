//! Packets of IPv6 hosts inside, and ICMP errors to them (RFC 6146).
//!
//! - [`outbound`]: queries (TCP, UDP, echo) from inside, in the RFC's three steps: filter and update, compute
//!   the outgoing tuple, translate.
//! - [`icmp`]: ICMP errors, which find a binding by the packet that they quote and change no state.

pub(crate) mod icmp;
pub(crate) mod outbound;
