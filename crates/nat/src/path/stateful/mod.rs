//! State machine of stateful packets (RFC 6146 3.5, RFC 4787, 5382, 5508), for IPv6 and IPv4 inside hosts.
//!
//! - [`outbound`]: queries from inside without a session.
//! - [`filter`], [`inbound`]: queries from outside, which find their instance by the binding.
//! - [`hairpin`]: from inside to inside, between instances of one kind or of both.
//! - [`unsolicited`]: SYNs that wait for their receiver to open the connection itself.
//! - [`icmp`]: the second half of errors that quote an inside host's packet.

pub(crate) mod filter;
pub(crate) mod hairpin;
pub(crate) mod icmp;
pub(crate) mod inbound;
pub(crate) mod outbound;
pub(crate) mod unsolicited;
