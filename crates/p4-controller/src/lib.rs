//! Controller of P4 switches: a target of the offload manager.
//!
//! ```text
//!   gatun_offload::Manager -> Switches (account: which switch has which flow) -> Link (connection)
//! ```
//! The account knows no network, no thread and no clock. It sends requests and gets answers, which can be
//! late or lost. A switch has no lease: it translates whether the controller lives or not. So nothing is
//! concluded from silence, and a switch is read in full after each connection.
//!
//! [`connection`] is the link over P4Runtime, [`program`] the form of entries in Gatun's P4 program, and
//! [`stateless`] has the entries of stateless instances.
#![forbid(unsafe_code)]

pub mod connection;
mod entry;
pub mod flow;
pub mod link;
pub mod program;
pub mod stateless;
mod switches;

pub use gatun_p4runtime::p4info_from_text;
pub use switches::{BATCH, FlowId, PENDING_MAX, Phase, SWITCHES_MAX, SwitchRules, SwitchStatus, Switches};
