//! Fourth: the sandbox.

use super::fast_paths::FastPaths;
use super::listening::Listening;
use super::opened::Opened;
use super::prepared::Prepared;
use crate::boxes::Boxes;
use crate::fastpath::OpenedFastPath;
use crate::peer::SharedFence;
use crate::sandbox::Enforced;
use crate::{connector, signals};
use gatun_export::Connect;

/// Process in the sandbox, which applies to all threads that start later.
pub(super) struct Sandboxed {
    pub(super) opened: Opened,
    pub(super) connect: Connect,
    pub(super) signals: signals::Watched,
    pub(super) in_force: Enforced,
    pub(super) fast_paths: FastPaths,
    pub(super) boxes: Boxes,
}

impl Sandboxed {
    /// Restricts this thread by Landlock and seccomp, and with it all threads that start later.
    ///
    /// # Errors
    /// Returns an error if the thread that connects to collectors cannot start, or signals cannot be watched.
    pub(super) fn new(mut opened: Opened) -> anyhow::Result<Sandboxed> {
        let Prepared { start, fastpath: (_, fits), .. } = &mut opened.listening.prepared;
        let connect = connector::start(&start.sandbox)?;
        let fastpath = std::mem::replace(&mut opened.fastpath, OpenedFastPath::Off);
        let fence = SharedFence::new(start.clock);
        let fast_paths = FastPaths::start(start, (fastpath, &opened.ports), (*fits, &fence))?;
        let Listening { prepared: Prepared { start, boxes: prepared, .. }, boxes, .. } =
            &mut opened.listening;
        let (prepared, sockets) = (std::mem::take(prepared), std::mem::take(boxes));
        let boxes = Boxes::start(
            prepared,
            sockets,
            &start.settings,
            (&opened.health.control(), start.clock),
            &fence,
            (&start.sandbox, &start.sender),
        )?;
        let signals = signals::Watched::new()?;
        let in_force = start.sandbox.enter(start.settings.ports.calls());
        start.notes.push(in_force.to_string());
        Ok(Sandboxed { opened, connect, signals, in_force, fast_paths, boxes })
    }
}
