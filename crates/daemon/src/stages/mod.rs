//! Start-up as stages. Each consumes the one before, so no step can be left out or come too early.
//!
//! ```text
//!   Prepared    memory, engines, and the sessions of the process before
//!   Listening   the API's sockets; of privileges, those that devices need
//!   Opened      devices and the threads that watch them; no privileges but theirs
//!   Sandboxed   Landlock and seccomp are in force
//!   Running     event sinks, one thread a worker, the API, reload
//! ```

mod listening;
mod opened;
mod prepared;
mod running;
mod sandboxed;

use crate::notify::Notifier;
use crate::sandbox::Sandbox;
use crate::{Event, Look, Reader, Settings, Setup, User};
use gatun_worker::Clock;
use listening::Listening;
use opened::Opened;
use prepared::Prepared;
use running::Running;
use sandboxed::Sandboxed;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

/// Runs all stages, until a signal or the loss of a device ends the last.
///
/// # Errors
/// Reason why the daemon did not start.
pub(crate) fn run(setup: Setup) -> anyhow::Result<ExitCode> {
    let prepared = Prepared::new(setup)?;
    let listening = Listening::new(prepared)?;
    let opened = Opened::new(listening)?;
    let sandboxed = Sandboxed::new(opened)?;
    let running = Running::new(sandboxed)?;
    Ok(running.supervise())
}

/// Used by several stages.
struct Start {
    settings: Settings,
    file: PathBuf,
    read: Reader,
    user: Option<User>,
    sandbox: Sandbox,
    look: Option<Look>,
    started: Instant,
    clock: Clock,
    notifier: Notifier,
    /// Lines for the log, which begins when all is open.
    notes: Vec<String>,
    sender: Sender<Event>,
    events: Receiver<Event>,
}

impl Start {
    /// What `setup` asks for, and whether without the sessions of the process before.
    fn new(setup: Setup) -> (Start, bool) {
        let Setup { settings, file, read, user, forget, sandboxed, look, started } = setup;
        let look = Some(look);
        let sandbox = if sandboxed { Sandbox::of(&settings) } else { Sandbox::none() };
        let (clock, notifier, notes) = (Clock::new(), Notifier::from_environment(), Vec::new());
        let (sender, events) = channel();
        let start = Start {
            settings,
            file,
            read,
            user,
            sandbox,
            look,
            started,
            clock,
            notifier,
            notes,
            sender,
            events,
        };
        (start, forget)
    }
}
