//! Results of an instance for a packet.

use gatun_wire::{DropReason, Whole};

/// What an instance did with a packet. An `Err(DropReason)` beside it means: dropped, and the packet's
/// bytes are still those received, so that an ICMP error can quote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Translated in place.
    Forward {
        /// Whether it has to be cut first. Which family it is cut in says its first nibble: a hairpinned
        /// packet leaves as it came, as IPv6.
        whole: Whole,
        /// Turned round inside: from an inside host to an inside host.
        hairpinned: bool,
    },
    /// A copy is kept; the packet itself is no longer needed.
    Held,
    /// Not for the translator: it is as it was.
    Pass,
    /// An echo request to the translator itself became its reply.
    Echo,
    /// Dropped after its bytes were changed: nothing may be answered. Only what cannot be known before
    /// the second half of a hairpin ends so.
    Lost(DropReason),
}

impl Step {
    /// Translated, and not turned round.
    #[inline]
    pub fn forward(whole: Whole) -> Step {
        Step::Forward { whole, hairpinned: false }
    }
}
