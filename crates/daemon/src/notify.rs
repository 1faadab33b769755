//! Notifications to systemd (sd_notify(3)): packets are translated, the configuration changes, the daemon
//! stops, and, while every worker answers, a watchdog signal. If the signal is missing, systemd restarts the
//! daemon, and the next process continues its sessions.

use std::env;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

/// Connection to systemd, if it has asked for notifications.
#[derive(Clone, Default)]
pub(super) struct Notifier {
    socket: Option<Arc<UnixDatagram>>,
    /// Longest interval between watchdog signals.
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Connects as the environment says. Must be called while the process may still reach the socket.
    pub(super) fn from_environment() -> Notifier {
        let socket = env::var("NOTIFY_SOCKET").ok().and_then(|name| connect(&name));
        let for_us = env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        let every = env::var("WATCHDOG_USEC").ok().filter(|_| for_us && socket.is_some());
        let watchdog = every.and_then(|us| us.parse().ok()).filter(|us| *us > 0).map(Duration::from_micros);
        Notifier { socket: socket.map(Arc::new), watchdog }
    }

    /// Interval of watchdog signals: half of the longest one.
    pub(super) fn alive_every(&self) -> Option<Duration> {
        self.watchdog.map(|every| every / 2)
    }

    /// Reports that packets are translated.
    pub(super) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// Reports that a reload has begun; [`ready`](Self::ready) reports its end.
    pub(super) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let us = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={us}\nSTATUS=reloading the configuration"));
    }

    /// Reports that the daemon stops.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping");
    }

    /// Sends the watchdog signal.
    pub(super) fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    fn tell(&self, what: &str) {
        if let Some(socket) = &self.socket {
            // If systemd no longer listens, nothing is lost.
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
    // A reader that hangs must not block the daemon.
    socket.set_nonblocking(true).ok()?;
    socket.connect_addr(&address.ok()?).ok()?;
    Some(socket)
}
