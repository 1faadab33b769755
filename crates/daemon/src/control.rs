//! Listeners of the API and of metrics, opened before the daemon drops its privileges.

use super::Settings;
use super::event_sinks::EventSinks;
use super::health::HealthControl;
use super::killed::once_released;
use super::net_helper::HelperState;
use super::offload_orders::OffloadOrders;
use super::output::Output;
use anyhow::{Context as _, anyhow};
use gatun_api::types::{
    AnnounceState, FastPath, FastPathState, Health, Offload, OffloadSwitch, Part, Sandbox, SwitchPhase,
    Trouble, Urgency,
};
use gatun_config::{Api, ApiSocket, ApiTls};
use gatun_control::configure::ConfigOrders;
use gatun_control::listen::{self, SocketFile};
use gatun_control::secure::{Files, Secure};
use gatun_control::{
    ClientTimeouts, ClusterControl, Facts, Listeners, PeerControl, RemoteAccess, Setup, SharedFacts,
};
use gatun_wire::text::counted;
use gatun_worker::Handle;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::chown;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Longest time that a killed process may take to release a socket.
const LET_GO_MAX: Duration = Duration::from_millis(1_000);

/// Requested configuration.
#[derive(Clone)]
pub struct ControlSettings {
    /// Sockets of the API.
    pub api: Api,
    /// TCP address for metrics.
    pub metrics: Option<SocketAddr>,
    /// Facts about the configuration, for the API.
    pub facts: Facts,
}

/// The running process, as shown by the API.
pub(super) struct Process {
    pub(super) workers: Vec<Handle>,
    pub(super) sandbox: Sandbox,
    pub(super) helper: HelperState,
    pub(super) fast_paths: FastPathStates,
    pub(super) health: HealthControl,
    pub(super) boxes: (PeerControl, ClusterControl),
}

/// States of fast paths, and orders to the one that is on.
pub(super) struct FastPathStates {
    pub(super) kernel: FastPathStatus,
    pub(super) p4: OffloadStatus,
    pub(super) orders: OffloadOrders,
}

/// State of the kernel fast path, for each request.
type FastPathStatus = Arc<dyn Fn() -> FastPath + Send + Sync>;

/// State of the P4 switches, for each request.
type OffloadStatus = Arc<dyn Fn() -> Offload + Send + Sync>;

fn network(what: &str) -> Trouble {
    Trouble { urgency: Urgency::Bad, part: Part::Network, what: what.to_owned() }
}

/// Troubles of the network helper, of the kernel fast path, of P4 switches and of announced routes.
fn troubles(
    helper: HelperState,
    (fastpath, p4): (FastPathStatus, OffloadStatus),
    health: HealthControl,
) -> impl Fn() -> Vec<Trouble> + Send + Sync {
    move || {
        let outside = fastpath_trouble(fastpath()).into_iter().chain(switch_troubles(p4()));
        let routes = announce_trouble(&health.state());
        helper.trouble().map(network).into_iter().chain(outside).chain(routes).collect()
    }
}

/// Trouble of announced routes.
fn announce_trouble(health: &Health) -> Option<Trouble> {
    let trouble = |urgency, what| Some(Trouble { urgency, part: Part::Announce, what });
    match (health.announce, &health.error, health.reasons.iter().find(|reason| reason.withdraws)) {
        (AnnounceState::Withdrawn, _, Some(reason)) => {
            trouble(Urgency::Bad, format!("the announced routes are withdrawn: {}", reason.what))
        }
        (AnnounceState::Withdrawn, ..) => {
            trouble(Urgency::Warning, "the announced routes are withdrawn, and will come back".to_owned())
        }
        (AnnounceState::Announced, Some(error), _) => {
            trouble(Urgency::Bad, format!("not all routes are announced: {error}"))
        }
        _ => None,
    }
}

/// Troubles of P4 switches.
fn switch_troubles(offload: Offload) -> Vec<Trouble> {
    let is_off = offload.state == FastPathState::Off;
    let is_down =
        |switch: &OffloadSwitch| !is_off && matches!(switch.phase, SwitchPhase::Down | SwitchPhase::Standby);
    let trouble = |switch: OffloadSwitch| {
        let why = switch.why.map_or_else(String::new, |why| format!(": {why}"));
        let waits = match switch.unknown {
            0 => String::new(),
            n => format!("; it may still translate {}, whose ports stay reserved", counted(n, "session")),
        };
        let what = format!("switch {} is not in use{why}{waits}", switch.name);
        Trouble { urgency: Urgency::Warning, part: Part::Offload, what }
    };
    offload.switches.into_iter().filter(is_down).map(trouble).collect()
}

/// Trouble of the kernel fast path. Packets are translated in any case.
fn fastpath_trouble(state: FastPath) -> Option<Trouble> {
    let what = match (state.state, state.why, state.error) {
        (FastPathState::Unavailable, why, _) => format!(
            "the kernel does not translate sessions, and Gatun translates all packets itself: {}",
            why.unwrap_or_default()
        ),
        (FastPathState::On, _, Some(error)) => {
            format!("a part of the kernel fast path does not work: {error}")
        }
        _ => return None,
    };
    Some(Trouble { urgency: Urgency::Warning, part: Part::FastPath, what })
}

/// Open sockets.
#[derive(Default)]
pub(super) struct Sockets {
    listeners: Listeners,
    /// File of the API's socket.
    file: Option<SocketFile>,
    tls: Option<TlsFiles>,
    said: Vec<String>,
}

/// Access over TCP, with the files for authentication.
#[derive(Clone)]
pub(super) struct TlsFiles {
    remote_access: Arc<RemoteAccess>,
    files: ApiTls,
}

impl TlsFiles {
    fn load(files: &ApiTls) -> Result<Secure, String> {
        let ApiTls { listen: _, certificate, key, tokens } = files;
        Secure::load(&Files { certificate, key, tokens })
    }

    /// Reads the files again. If they cannot be used, nothing changes.
    pub(super) fn reread(&self, output: &Output) {
        match TlsFiles::load(&self.files) {
            Ok(secure) => {
                secure.warnings.iter().for_each(|line| output.log(&format!("[api]: {line}")));
                self.remote_access.set(secure);
            }
            Err(why) => {
                output.error(&format!("reload: [api] {why}; certificate, key and tokens are unchanged"));
            }
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
    once_released(LET_GO_MAX, is_taken, || TcpListener::bind(address))
}

impl Sockets {
    /// Opens the sockets.
    ///
    /// # Errors
    /// Returns an error if a configured socket cannot be opened. If only the default socket cannot be opened,
    /// a line is logged.
    pub(super) fn open(settings: &ControlSettings) -> anyhow::Result<Sockets> {
        let mut sockets = Sockets::default();
        let (path, is_usual) = match &settings.api.socket {
            ApiSocket::Off => (None, false),
            ApiSocket::Usual => (Some(Path::new(gatun_api::SOCKET)), true),
            ApiSocket::Path(path) => (Some(path.as_path()), false),
        };
        let group = settings.api.group.as_deref().map(find_group).transpose().context("[api] group")?;
        if let Some(path) = path {
            let give = |path: &Path| group.map_or(Ok(()), |group| chown(path, None, Some(group)));
            let is_taken = |error: &listen::Error| matches!(error, listen::Error::Taken(_));
            match once_released(LET_GO_MAX, is_taken, || listen::unix(path, give)) {
                Ok((listener, file)) => {
                    sockets.said.push(format!("API: {}", path.display()));
                    sockets.listeners.api = Some(listener);
                    sockets.file = Some(file);
                }
                Err(error) if is_usual => {
                    sockets.said.push(format!("no API, so `gatun show` does not work: {error}"));
                }
                Err(error) => return Err(anyhow!(error).context("[api] listen")),
            }
        }
        if let Some(tls) = &settings.api.tls {
            sockets.open_tls(tls)?;
        }
        if let Some(address) = settings.metrics {
            let listener =
                bind(address).with_context(|| format!("[metrics] listen: cannot listen on {address}"))?;
            sockets.said.push(format!("metrics: http://{address}/metrics"));
            sockets.listeners.metrics = Some(listener);
        }
        Ok(sockets)
    }

    fn open_tls(&mut self, files: &ApiTls) -> anyhow::Result<()> {
        let secure = TlsFiles::load(files).map_err(|why| anyhow!("[api] {why}"))?;
        for address in &files.listen {
            let listener =
                bind(*address).with_context(|| format!("[api] listen_tls: cannot listen on {address}"))?;
            let fingerprint = &secure.fingerprint;
            self.said.push(format!("API: https://{address}, certificate SHA-256 {fingerprint}"));
            self.listeners.tls.push(listener);
        }
        self.said.extend(secure.warnings.iter().map(|line| format!("[api]: {line}")));
        self.tls =
            Some(TlsFiles { remote_access: Arc::new(RemoteAccess::new(secure)), files: files.clone() });
        Ok(())
    }

    /// TLS files, which a reload reads again.
    pub(super) fn tls(&self) -> Option<TlsFiles> {
        self.tls.clone()
    }

    /// Starts serving. The socket's file exists as long as the returned guard.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub(super) fn serve(
        self,
        settings: &Settings,
        Process { workers, sandbox, helper, fast_paths, health, boxes: (peer, cluster) }: Process,
        event_sinks: &EventSinks,
        configure: ConfigOrders,
        output: &Output,
    ) -> anyhow::Result<(SharedFacts, Option<SocketFile>)> {
        self.said.iter().for_each(|line| output.log(line));
        let facts = SharedFacts::new(settings.control.facts.clone());
        let log = output.clone();
        let FastPathStates { kernel: fastpath, p4, orders } = fast_paths;
        let (gone, translators) = (orders.clone(), orders.clone());
        let setup = Setup {
            version: env!("CARGO_PKG_VERSION"),
            facts: facts.clone(),
            workers,
            sandbox,
            events: Some(event_sinks.tap()),
            auditor: event_sinks.auditor(),
            configure: Some(configure),
            patience: ClientTimeouts::default(),
            history_every: gatun_control::history::EVERY,
            remote_access: self.tls.map(|tls| tls.remote_access),
            figures: event_sinks.figures(),
            troubles: Box::new(troubles(helper, (Arc::clone(&fastpath), Arc::clone(&p4)), health.clone())),
            fastpath: Box::new(move || fastpath()),
            offload: Box::new(move || p4()),
            health: Box::new(move || health.state()),
            peer,
            cluster,
            translator_of: Box::new(move |session| translators.translator_of(session)),
            switch_gone: Box::new(move |name| gone.set_gone(name)),
            traced_sessions: Box::new(move |filter| orders.exclude(filter)),
            level: output.level.clone(),
            log: Box::new(move |line| log.log(line)),
        };
        gatun_control::start(self.listeners, setup).context("no API")?;
        Ok((facts, self.file))
    }
}

/// Finds the number of a group by its name in /etc/group, or by the number itself.
fn find_group(name: &str) -> anyhow::Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string("/etc/group").context("cannot read /etc/group")?;
    group_in(&groups, name).ok_or_else(|| {
        anyhow!("unknown group '{name}': create it (groupadd --system {name}), or give its number")
    })
}

fn group_in(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        fields.nth(1)?.parse().ok()
    })
}

/// Lists differences that need a restart.
pub(super) fn differ(old: &ControlSettings, new: &ControlSettings) -> Vec<String> {
    let mut restarts = Vec::new();
    if old.api != new.api {
        restarts.push("[api]: its sockets or permissions".to_owned());
    }
    if old.metrics != new.metrics {
        restarts.push("[metrics]: its address".to_owned());
    }
    restarts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_name_and_by_number() {
        let groups = "root:x:0:\nnetops-x:x:1:\nnetops:x:42:root,bin\n";
        assert_eq!(group_in(groups, "netops"), Some(42));
        assert_eq!(group_in(groups, "net"), None);
        assert_eq!(find_group("17").unwrap(), 17);
    }
}
