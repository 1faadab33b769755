//! Results of an instance for a packet.

use gatun_wire::{DropReason, Whole};

/// Result of an instance for a packet. An `Err(DropReason)` beside it means that the packet is dropped. Its
/// bytes are then still those received, so that an ICMP error can quote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Translated in place.
    Forward {
        /// Tells if the packet has to be fragmented first. Its first nibble gives the family: a hairpinned
        /// packet leaves as it came, as IPv6.
        whole: Whole,
        /// True for a hairpinned packet, from an inside host to an inside host.
        hairpinned: bool,
    },
    /// Gatun keeps a copy; the packet itself is no longer needed.
    Held,
    /// The packet is not for the translator and is unchanged.
    Pass,
    /// The packet was an echo request to the translator itself; its reply is now in the buffer.
    Echo,
    /// Dropped after its bytes were changed, so no ICMP error may answer it. Only conditions that are unknown
    /// before the second half of a hairpin end this way.
    Lost(DropReason),
}

impl Step {
    /// Translated, and not hairpinned.
    #[inline]
    pub fn forward(whole: Whole) -> Step {
        Step::Forward { whole, hairpinned: false }
    }
}
