//! Start-up in stages. Each stage consumes the previous one, so no step can be omitted or come too early.
//!
//! ```text
//!   Prepared    memory, engines, and the sessions of the previous process
//!   Listening   the API's sockets; only the privileges that devices need
//!   Opened      devices and the threads that watch them; only these threads have privileges
//!   Sandboxed   Landlock and seccomp are active
//!   Running     event sinks, one thread per worker, the API, reload
//! ```

mod fast_paths;
mod listening;
mod opened;
mod prepared;
mod running;
mod sandboxed;

use crate::notify::Notifier;
use crate::sandbox::Sandbox;
use crate::{Event, HostCheck, Reader, Settings, Setup, User};
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

/// Runs all stages. The last one ends by a signal or the loss of a device.
///
/// # Errors
/// Returns an error if the daemon cannot start.
pub(crate) fn run(setup: Setup) -> anyhow::Result<ExitCode> {
    let prepared = Prepared::new(setup)?;
    let listening = Listening::new(prepared)?;
    let opened = Opened::new(listening)?;
    let sandboxed = Sandboxed::new(opened)?;
    let running = Running::new(sandboxed)?;
    Ok(running.supervise())
}

/// Values used by several stages.
struct Start {
    settings: Settings,
    file: PathBuf,
    read: Reader,
    user: Option<User>,
    sandbox: Sandbox,
    look: Option<HostCheck>,
    started: Instant,
    clock: Clock,
    notifier: Notifier,
    /// Lines for the log, which starts after the devices are open.
    notes: Vec<String>,
    sender: Sender<Event>,
    events: Receiver<Event>,
}

impl Start {
    /// Values from `setup`. The second result is true to start without the previous process's sessions.
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
