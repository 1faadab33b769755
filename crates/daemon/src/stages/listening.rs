//! Stage 2: the sockets of the API, of the pair and of the cluster are open; the process keeps only the
//! privileges that devices need.

use super::Start;
use super::prepared::Prepared;
use crate::boxes::OpenedBoxes;
use crate::control::Sockets;
use crate::privileges;

/// Process with open sockets and the privileges that devices need.
pub(super) struct Listening {
    pub(super) prepared: Prepared,
    pub(super) sockets: Sockets,
    pub(super) boxes: OpenedBoxes,
}

impl Listening {
    /// Opens the sockets of the API and for other boxes, and drops all privileges except those that devices
    /// need.
    ///
    /// # Errors
    /// Returns an error if a socket cannot be opened, or privileges cannot be dropped.
    pub(super) fn new(prepared: Prepared) -> anyhow::Result<Listening> {
        let Start { settings, user, .. } = &prepared.start;
        let sockets = Sockets::open(&settings.control)?;
        let boxes = OpenedBoxes::new(settings)?;
        privileges::keep_for_start(user.is_some(), settings.ports.rights(), settings.fastpath.kernel)?;
        Ok(Listening { prepared, sockets, boxes })
    }
}
