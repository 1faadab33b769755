//! Reload: changes to another configuration while packets are translated. SIGHUP reads the file again, and
//! the API sends other configurations (`orders.rs`). A change is applied completely or not at all.
//!
//! ```text
//!   review   compares the new configuration with the active one
//!   swap     prepares a change for every worker and applies it between two bursts
//!   forecast counts the sessions that a change would end
//!   statics  checks static bindings that other boxes have, too
//!   orders   requests of the API: plan, apply, confirm, roll back
//!   maps     mappings of an instance: replaced, added, removed, listed
//! ```
//! A separate thread processes one request after another: it reads, compares and creates new state, perhaps a
//! million mappings. It asks each worker twice, between two bursts: for its present state, and to change.

mod forecast;
pub(crate) mod maps;
mod orders;
mod review;
mod statics;
mod swap;

use super::boxes::BoxOrders;
use super::cluster::ConfigAccess;
use super::config_file::{ActiveText, ConfigFile, KnownText};
use super::control::TlsFiles;
use super::event_sinks::SinkUpdater;
use super::health::HealthControl;
use super::live_ports::LivePorts;
use super::net_helper::Routes;
use super::notify::Notifier;
use super::offload_orders::OffloadOrders;
use super::output::Output;
use super::takeover::SessionStore;
use super::{ANSWER_MAX, Reader, Settings, Source};
use crate::tables::counted;
use anyhow::Context as _;
use gatun_api::types::{self, ConfigProblem, TablePages};
use gatun_control::configure::{ConfigOrders, Order, Reply};
use gatun_control::{Facts, SharedFacts};
use gatun_nat::reconfigure::Settled;
use gatun_worker::Handle;
use gatun_worker::offload::ReleaseAll;
use orders::Unconfirmed;
use review::Review;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Instant;

pub(super) use swap::SharedPlans;

/// Largest number of logged lines of one kind; the rest is counted.
const LINES_MAX: usize = 40;

/// Request to the reload thread.
pub(super) enum Request {
    /// Read the file again.
    Signal,
    /// Request of the API, with the channel for the reply.
    Order(Order, Reply),
    /// Forget the previous process's files: all of its sessions are restored.
    AllRestored,
}

/// Channel for the API's requests.
pub(super) fn config_orders(requests: &Sender<Request>) -> ConfigOrders {
    let requests = requests.clone();
    Box::new(move |order, reply| requests.send(Request::Order(order, reply)).is_ok())
}

/// State that a reload reads and changes.
pub(super) struct Reload {
    /// Active configuration.
    pub(super) settings: Settings,
    /// Plans and steering of the workers, if several share a stateful translator.
    pub(super) shared_plans: Option<SharedPlans>,
    pub(super) read: Reader,
    pub(super) file: ConfigFile,
    /// Unconfirmed configuration, which is rolled back automatically.
    pub(super) unconfirmed: Option<Unconfirmed>,
    pub(super) workers: Vec<Handle>,
    /// Pages of the tables.
    pub(super) pages: TablePages,
    /// Configuration as the API shows it.
    pub(super) facts: SharedFacts,
    /// Certificate, key and tokens of the API on TCP, if it listens there.
    pub(super) tls: Option<TlsFiles>,
    /// Changes of Ethernet ports.
    pub(super) ports: LivePorts,
    /// Names of the TUN devices in the kernel.
    pub(super) devices: Vec<String>,
    /// Changes of TUN devices' routes. `None` for other ports.
    pub(super) orders: Option<Routes>,
    /// Event sinks.
    pub(super) sink_updater: SinkUpdater,
    /// Session state for the next process.
    pub(super) session_store: Option<SessionStore>,
    /// Orders to the manager of the kernel's sessions, if the kernel has a table.
    pub(super) offload: OffloadOrders,
    /// Networks to announce.
    pub(super) health: HealthControl,
    /// Orders to the threads of other boxes.
    pub(super) boxes: BoxOrders,
    /// Notifications to systemd.
    pub(super) notifier: Notifier,
    pub(super) output: Output,
}

/// Reason why the running daemon cannot change to a configuration.
struct ReloadRefusal {
    /// Changes that need a restart.
    restarts: Vec<String>,
    /// Summary.
    why: String,
}

impl ReloadRefusal {
    fn restart(restarts: Vec<String>) -> ReloadRefusal {
        ReloadRefusal { restarts, why: "the new configuration needs a restart".to_owned() }
    }

    fn why(why: String) -> ReloadRefusal {
        ReloadRefusal { restarts: Vec::new(), why }
    }
}

/// Failed reload by SIGHUP.
struct ReloadError {
    /// Errors in the configuration, or changes that need a restart.
    details: Vec<String>,
    /// Summary.
    why: String,
}

impl From<String> for ReloadError {
    fn from(why: String) -> ReloadError {
        ReloadError { details: Vec::new(), why }
    }
}

impl ReloadError {
    /// Lines for the log, at any log level.
    fn lines(&self) -> Vec<String> {
        let mut lines = shortened("", &self.details);
        lines.push(format!("reload: {}; nothing has changed", self.why));
        lines
    }
}

/// Lines of one kind, shortened to [`LINES_MAX`].
fn shortened(what: &str, lines: &[String]) -> Vec<String> {
    let mut told: Vec<String> =
        lines.iter().take(LINES_MAX).map(|line| format!("reload: {what}{line}")).collect();
    if lines.len() > LINES_MAX {
        told.push(format!("reload: {what}... and {} more", lines.len() - LINES_MAX));
    }
    told
}

impl Reload {
    /// Starts the thread, which processes one request after another. A cluster sends `requests`, too.
    ///
    /// # Errors
    /// Returns an error if the thread cannot start.
    pub(super) fn start(self, sender: &Sender<Request>, requests: Receiver<Request>) -> anyhow::Result<()> {
        if let Some(cluster) = &self.boxes.cluster {
            let (orders, facts) = (config_orders(sender), self.facts.clone());
            cluster.give_access(ConfigAccess { orders, facts });
        }
        // Removes a file of a process that was killed before a confirmation.
        self.file.discard();
        self.settings.mapping_files.iter().for_each(|file| ConfigFile::new(&file.path).discard());
        let body = move || self.serve(&requests);
        std::thread::Builder::new()
            .name("reload".into())
            .spawn(body)
            .context("cannot start the reload thread")?;
        Ok(())
    }

    fn serve(mut self, requests: &Receiver<Request>) {
        let mut next = None;
        loop {
            self.undo_unconfirmed();
            let request = match next.take() {
                Some(request) => Ok(request),
                None => self.wait(requests),
            };
            match request {
                Ok(Request::Signal) => {
                    // Several requests for the same file are handled once.
                    while let Ok(request) = requests.try_recv() {
                        if !matches!(request, Request::Signal) {
                            next = Some(request);
                            break;
                        }
                    }
                    self.notifier.reloading();
                    if let Some(tls) = &self.tls {
                        tls.reread(&self.output);
                    }
                    self.boxes.reread();
                    let changed = self.reload();
                    self.notifier.ready(&super::translating(self.workers.len()));
                    if let Err(rejected) = changed {
                        self.output.error_lines(&rejected.lines());
                    }
                }
                Ok(Request::Order(order, reply)) => reply(self.carry_out(order)),
                Ok(Request::AllRestored) => {
                    self.release_without_fastpath();
                    if let Some(Err(why)) = self.session_store.as_mut().map(SessionStore::all_restored) {
                        self.output.error(&format!("{why:#}"));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Releases restored sessions that the kernel had, if it has no table any more.
    fn release_without_fastpath(&self) {
        if self.offload.has_any() {
            return;
        }
        for worker in &self.workers {
            // Work that takes longer goes on in slices: the job is only asked for again.
            let mut job = Some(ReleaseAll::default());
            while let Some(at) = job.take() {
                job = worker.work(at, ANSWER_MAX).filter(|job| !job.at.is_done());
            }
        }
    }

    fn wait(&self, requests: &Receiver<Request>) -> Result<Request, RecvTimeoutError> {
        match &self.unconfirmed {
            None => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(waits) => requests.recv_timeout(waits.until.saturating_duration_since(Instant::now())),
        }
    }

    /// Compares settings with the active ones.
    fn review(&self, new: &Settings) -> Review {
        Review::of(&self.settings, new, &self.offload)
    }

    fn log(&self, what: &str, lines: &[String]) {
        shortened(what, lines).iter().for_each(|line| self.output.log(line));
    }

    /// Changes to the configuration in the file.
    ///
    /// # Errors
    /// Returns an error if the change fails; then nothing has changed.
    fn reload(&mut self) -> Result<(), ReloadError> {
        let read = (self.read)(Source::File);
        let lines: Vec<String> = read.problems.iter().flat_map(in_lines).collect();
        let Some(new) = read.settings else {
            return Err(ReloadError { details: lines, why: "the configuration has errors".to_owned() });
        };
        self.log("", &lines);
        let review = self.review(&new);
        if review.is_empty() && new.control.facts.config == self.settings.control.facts.config {
            self.keep_confirmed();
            self.output.log("reload: no changes");
            return Ok(());
        }
        let ready = self.prepare_engines(&new, &review).and_then(|ready| self.prepare_reload(ready, &new));
        let ready = ready.map_err(|ReloadRefusal { restarts, why }| {
            let details = restarts.iter().map(|what| format!("needs a restart: {what}")).collect();
            ReloadError { details, why }
        })?;
        self.log("", &review.changes(&new));
        self.log("ends: ", &review.difference.ends);
        let (before, ended) = self.apply_reload(new, &review, ready)?;
        self.remember(&before);
        self.keep_confirmed();
        match review.is_empty() {
            true => self.output.log("reload: no changes except in the text of the file"),
            false => self.log_ended(&ended),
        }
        Ok(())
    }

    /// Saves the previous text after a SIGHUP, if it is known.
    fn remember(&self, before: &Settings) {
        let config = &before.control.facts.config;
        // An unconfirmed text was never in the file.
        if self.unconfirmed.is_some() || config.revision == self.settings.control.facts.config.revision {
            return;
        }
        if config.text.is_empty() {
            return;
        }
        let ran =
            ActiveText { text: KnownText::Text(&config.text), revision: &config.revision, who: "SIGHUP" };
        if let Err(error) = self.file.remember(config.text.as_bytes(), &ran) {
            self.output
                .log(&format!("reload: cannot save the previous configuration in the history: {error}"));
        }
    }

    /// Ends an unconfirmed change, because the active configuration is in the file.
    fn keep_confirmed(&mut self) {
        if let Some(waits) = self.unconfirmed.take() {
            waits.file.discard();
        }
        self.sink_updater.keep(&self.settings);
        self.publish();
    }

    /// Publishes the active configuration for the API.
    fn publish(&self) {
        let unconfirmed = self.unconfirmed.as_ref().map(|waits| (waits.until, waits.before_revision()));
        let pages = self.pages.clone();
        self.facts.set(Facts { unconfirmed, pages, ..self.settings.control.facts.clone() });
    }

    fn log_ended(&self, ended: &Settled) {
        self.output.log(&format!(
            "reload: done; ended: {}, {}, {}",
            counted(ended.sessions, "session"),
            counted(ended.bindings, "binding"),
            counted(ended.blocks, "port block")
        ));
        notes(ended).iter().for_each(|note| self.output.log(&format!("reload: {note}")));
    }
}

/// Parts of a change that failed.
fn notes(ended: &Settled) -> Vec<String> {
    match ended.static_bindings_refused {
        0 => Vec::new(),
        n => vec![format!("{} not created: the table is full", counted(n, "static binding"))],
    }
}

/// Formats a problem like `gatun check`.
fn in_lines(problem: &ConfigProblem) -> Vec<String> {
    let ConfigProblem { severity, file, line, column, message, help } = problem;
    let kind = match severity {
        types::Severity::Warning => "warning",
        types::Severity::Error | types::Severity::Other => "error",
    };
    let help = help.as_ref().map(|help| format!("    help: {help}"));
    std::iter::once(format!("{file}:{line}:{column}: {kind}: {message}")).chain(help).collect()
}
