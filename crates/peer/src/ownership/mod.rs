//! Rules of ownership, as functions of plain values.
//!
//! | question | answer |
//! |---|---|
//! | which ports a member may assign | [`Standing::may_assign`] |
//! | when a freed port may be assigned again | [`Port::acknowledged`] |
//! | what a record of the other member changes | [`Port::begun`], [`Port::ended`], [`Port::walked`] |
//! | what a member without a right ends | [`Standing::must_revoke`] |
//! | when ownership changes | [`Standing::release`], [`Standing::seize`], [`Standing::learn`] |
//! | how long a right lasts | [`Timing`] |
//! | when a static mapping begins | [`Revision::may_begin`] |
//! | which records are sent again | [`Outbound`] |
//!
//! Decision 0100 has the reasons. Units: ms of the member's own clock, as durations, never as readings.

mod port;
mod rules;
mod standing;
mod stream;
mod timing;

pub use port::{Knowledge, Port};
pub use rules::Rules;
pub use standing::{Authority, Epoch, Member, Range, Revision, Standing};
pub use stream::{Arrival, Entry, Inbound, Outbound, Resumption};
pub use timing::Timing;
