//! Outcome of a packet's translation, before it is counted.

use super::attribution::Attribution;
use super::step::Step;
use gatun_wire::DropReason;

/// A packet that is dropped with its bytes as received, so that an ICMP error can quote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: DropReason,
    /// MTU in the ICMP error, if it differs from that of the packet's own instance.
    pub(crate) mtu: Option<u32>,
}

impl Refusal {
    /// Refuses a packet that is too big for a link of `mtu` bytes.
    pub(crate) fn too_big(reason: DropReason, mtu: u32) -> Refusal {
        Refusal { reason, mtu: Some(mtu) }
    }
}

impl From<DropReason> for Refusal {
    fn from(reason: DropReason) -> Refusal {
        Refusal { reason, mtu: None }
    }
}

/// Result of a packet, and the instance that counts it.
#[must_use]
pub(crate) struct Outcome {
    pub(crate) attribution: Attribution,
    pub(crate) result: Result<Step, Refusal>,
}

impl Outcome {
    pub(crate) fn new<E: Into<Refusal>>(attribution: Attribution, result: Result<Step, E>) -> Outcome {
        Outcome { attribution, result: result.map_err(Into::into) }
    }
}
