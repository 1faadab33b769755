//! Verdicts on packets.

use gatun_wire::DropReason;

/// Maximum number of packets per call of [`Nat::process`](crate::Nat::process).
pub const BURST: usize = 64;

/// Verdict on a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The packet was translated in place: send it.
    Forward,
    /// The packet is not for the translator. The caller may pass it on untranslated, or count it.
    Pass,
    /// The packet is on its way to another node of the cluster: send it.
    Redirect,
    /// The buffer now holds an answer to the packet's sender: send it.
    Reply(Reply),
    /// The packet was dropped for this reason.
    Drop(DropReason),
    /// The engine keeps a copy: a fragment that waits for its first one, or an unsolicited SYN. Its final
    /// verdict comes later: forwarded, replied or dropped.
    Held,
}

/// Kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// An ICMP error; the packet itself was dropped for this reason.
    Error(DropReason),
    /// An echo reply from the translator's own address.
    Echo,
}
