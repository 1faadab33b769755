//! Verdicts on packets.

use gatun_wire::DropReason;

/// Packets that [`Nat::process`](crate::Nat::process) takes at a time.
pub const BURST: usize = 64;

/// The one fate of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Translated, in place: send it.
    Forward,
    /// Not for the translator: whoever received it may pass it on untranslated, or count it.
    Pass,
    /// The buffer now holds an answer to the packet's sender: send it.
    Reply(Reply),
    /// Gone, and why.
    Drop(DropReason),
    /// Kept by the engine (a copy): a fragment that waits for its first one, or an unsolicited SYN.
    /// It gets its last fate later: forwarded, replied or dropped.
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
