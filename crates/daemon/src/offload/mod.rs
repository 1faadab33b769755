//! Common parts of all kinds of fast paths: the thread of their manager, and their state for the API.
//!
//! ```text
//!   credits       packets of stateless instances for the engines' counters
//!   driver        thread with the offload manager: turns, reloads, stop
//!   shared_state  state for the API
//!   traced        what translated the packets of a trace before it
//! ```

mod credits;
mod driver;
mod shared_state;
mod traced;

#[cfg(feature = "dpdk")]
pub(crate) use driver::Order;
pub(crate) use driver::{
    Driver, EndOfPanic, FastPathKind, Guard, InstallRate, ManagerOf, Orders, PUBLISH_EVERY, feed_bytes,
    manager_settings, number_prefixes,
};

pub(crate) use credits::InstanceCredits;
pub(crate) use shared_state::SharedState;
#[cfg(feature = "dpdk")]
pub(crate) use traced::key_of;
pub(crate) use traced::{SessionKey, StatelessNames};
