//! Stage 2: the API's sockets are open; the process keeps only the privileges that devices need.

use super::Start;
use super::prepared::Prepared;
use crate::control::Sockets;
use crate::privileges;

/// Process with open API sockets and the privileges that devices need.
pub(super) struct Listening {
    pub(super) prepared: Prepared,
    pub(super) sockets: Sockets,
}

impl Listening {
    /// Opens the API's sockets and drops all privileges except those that devices need.
    ///
    /// # Errors
    /// Returns an error if a socket cannot be opened, or privileges cannot be dropped.
    pub(super) fn new(prepared: Prepared) -> anyhow::Result<Listening> {
        let Start { settings, user, .. } = &prepared.start;
        let sockets = Sockets::open(&settings.control)?;
        privileges::keep_for_start(user.is_some(), settings.ports.rights(), settings.fastpath.kernel)?;
        Ok(Listening { prepared, sockets })
    }
}
