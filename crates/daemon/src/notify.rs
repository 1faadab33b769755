//! What systemd is told (sd_notify(3)): that packets are translated, that the configuration changes, that the end has
//! begun, and, as long as every worker answers, that all is well. A daemon that it hears nothing of it starts again; the
//! next one goes on with the sessions.

use std::env;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

/// Where it is told; nowhere, where nobody has asked for it.
#[derive(Clone, Default)]
pub(super) struct Notifier {
    socket: Option<Arc<UnixDatagram>>,
    /// How often it wants to hear that all is well, at least.
    watchdog: Option<Duration>,
}

impl Notifier {
    /// As the environment says. Connected now, while the process may still go where the socket is.
    pub(super) fn from_environment() -> Notifier {
        let socket = env::var("NOTIFY_SOCKET").ok().and_then(|name| connect(&name));
        let for_us = env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        let every = env::var("WATCHDOG_USEC").ok().filter(|_| for_us && socket.is_some());
        let watchdog = every.and_then(|us| us.parse().ok()).filter(|us| *us > 0).map(Duration::from_micros);
        Notifier { socket: socket.map(Arc::new), watchdog }
    }

    /// How often to tell that all is well: twice as often as is wanted.
    pub(super) fn alive_every(&self) -> Option<Duration> {
        self.watchdog.map(|every| every / 2)
    }

    /// Packets are translated.
    pub(super) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// The configuration is read again; [`ready`](Self::ready) says when that is over.
    pub(super) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let us = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={us}\nSTATUS=changing to another configuration"));
    }

    /// The end has begun.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping");
    }

    /// Every worker answers.
    pub(super) fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    fn tell(&self, what: &str) {
        if let Some(socket) = &self.socket {
            // Whoever does not listen any more needs no answer.
            let _ = socket.send(what.as_bytes());
        }
    }
}

fn connect(name: &str) -> Option<UnixDatagram> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    };
    let socket = UnixDatagram::unbound().ok()?;
    // A reader that hangs is not waited for.
    socket.set_nonblocking(true).ok()?;
    socket.connect_addr(&address.ok()?).ok()?;
    Some(socket)
}
