//! Errors of a connection between members.

use super::FRAME_LEN_MAX;
use crate::ownership::Member;
use std::fmt;

/// Reason for which a connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireError {
    /// A frame is longer than allowed, or empty.
    Length(usize),
    /// A frame has an unknown kind.
    Kind(u8),
    /// A frame ends too early, or has bytes after its end, or has a field with an impossible value.
    Malformed(&'static str),
    /// The first frame is not a greeting of Gatun.
    NotGatun,
    /// A frame came before the greeting, or a second greeting came.
    OutOfTurn(&'static str),
    /// The other side knows none of this side's layouts.
    Layouts {
        /// Lowest layout that it knows.
        lowest: u16,
        /// Highest layout that it knows.
        highest: u16,
        /// Lowest and highest layout that this side uses.
        own: (u16, u16),
    },
    /// Both sides claim to be the same member.
    SameMember(Member),
    /// A record is missing in the other side's stream.
    Gap {
        /// Number of the expected record.
        expected: u64,
        /// Number of the received record.
        received: u64,
    },
    /// The other side has refused this one, for this reason.
    Refused(String),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Length(len) => write!(f, "frame of {len} bytes: expected 1 to {FRAME_LEN_MAX}"),
            WireError::Kind(kind) => write!(f, "unknown frame of kind {kind}"),
            WireError::Malformed(what) => write!(f, "malformed frame: {what}"),
            WireError::NotGatun => write!(f, "the other side does not speak this protocol"),
            WireError::OutOfTurn(what) => write!(f, "{what} at the wrong time"),
            WireError::Layouts { lowest, highest, own } => write!(
                f,
                "the peer uses layouts {lowest} to {highest}, and this build {} to {}: upgrade the older one",
                own.0, own.1
            ),
            WireError::SameMember(member) => {
                let name = member.name();
                write!(
                    f,
                    "the peer is member {name}, too: give the two boxes different values of [peer] member"
                )
            }
            WireError::Gap { expected, received } => {
                write!(f, "record {received} of the peer came instead of {expected}: connecting again")
            }
            WireError::Refused(reason) => write!(f, "refused by the peer: {reason}"),
        }
    }
}

impl std::error::Error for WireError {}
