//! Sandbox of the process after its devices are open, even if it executes an intruder's code: Landlock
//! restricts files and ports (`files`), seccomp restricts system calls (`calls`). Decision 0075 gives the
//! reasons for what is allowed.
//!
//! Both apply to threads and are inherited by new threads: the main thread enters the sandbox before it
//! starts the others, and earlier threads enter it themselves. The network helper is a process with its own,
//! shorter list.

mod calls;
mod files;

use super::{Settings, privileges};
use gatun_api::types::{self, SandboxExtent};
use gatun_config::{ApiSocket, EventSink, LOG_DIRECTORY, StateDir};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) use calls::Calls;

/// Files of a directory of certificates that are looked at for links.
const LINKS_MAX: usize = 1024;

/// Restrictions of the process. `None` without a sandbox.
#[derive(Clone, Debug, Default)]
pub(super) struct Sandbox(Option<Arc<Allowed>>);

/// Accessible files.
#[derive(Debug, Default)]
struct Allowed {
    /// Directories with readable files.
    read: Vec<PathBuf>,
    /// Directories in which files can be created, written, renamed and removed. They are created if they are
    /// missing.
    write: Vec<PathBuf>,
    /// The same for directories that are not created.
    usual: Vec<PathBuf>,
}

impl Sandbox {
    /// No sandbox.
    pub(super) fn none() -> Sandbox {
        Sandbox(None)
    }

    /// Sandbox of a process that opens no file.
    pub(super) fn without_files() -> Sandbox {
        Sandbox(Some(Arc::default()))
    }

    /// Sandbox of a process that creates and removes files in a directory, if there is one.
    pub(super) fn with_directory(directory: Option<PathBuf>) -> Sandbox {
        let usual = directory.into_iter().collect();
        Sandbox(Some(Arc::new(Allowed { usual, ..Allowed::default() })))
    }

    /// Sandbox of the thread of a pair or a cluster: its certificates, and the directory of the state.
    pub(super) fn of_peer(&self, settings: &Settings) -> Sandbox {
        let allowed = |_: &Arc<Allowed>| Allowed {
            read: (settings.peer.iter().map(|peer| &peer.directory))
                .chain(settings.cluster.iter().map(|node| &node.cluster.directory))
                .flat_map(|directory| with_links(directory))
                .collect(),
            usual: state_directory(&settings.state).into_iter().collect(),
            ..Allowed::default()
        };
        Sandbox(self.0.as_ref().map(allowed).map(Arc::new))
    }

    /// Sandbox of the thread that is connected to P4 switches: it reads its certificates.
    #[cfg_attr(not(feature = "dpdk"), allow(dead_code))]
    pub(super) fn of_controller(&self, offload: &gatun_config::Offload) -> Sandbox {
        let read = offload.tls.iter().flat_map(|tls| with_links(&tls.directory)).collect();
        Sandbox(self.0.as_ref().map(|_| Arc::new(Allowed { read, ..Allowed::default() })))
    }

    /// Sandbox for a configuration.
    pub(super) fn of(settings: &Settings) -> Sandbox {
        let mut allowed = Allowed::default();
        let facts = &settings.control.facts;
        // The API replaces the configuration file, after following links.
        let file = Path::new(&facts.config.file);
        allowed.write.extend(std::fs::canonicalize(file).ok().as_deref().and_then(directory));
        allowed.read.extend(directory(file));
        // The API also replaces files of mappings.
        allowed.write.extend(
            settings
                .mapping_files
                .iter()
                .filter_map(|file| std::fs::canonicalize(&file.path).ok().as_deref().and_then(directory)),
        );
        allowed.read.extend(settings.mapping_files.iter().filter_map(|file| directory(&file.path)));
        if let Some(tls) = &settings.control.api.tls {
            let files = [&tls.certificate, &tls.key, &tls.tokens];
            let directories = files.into_iter().filter_map(|file| directory(file));
            allowed.read.extend(directories.flat_map(|directory| with_links(&directory)));
        }
        if let Some(EventSink::File(file)) = &settings.events {
            allowed.write.extend(directory(file));
        }
        if let Some(log) = &settings.log {
            allowed.write.push(log.directory.clone());
        }
        let spools = settings.exports.iter().filter_map(|export| export.spool.as_ref());
        allowed.write.extend(spools.map(|(spool, _)| spool.clone()));
        // Gatun's own directory: a later configuration can use it without a restart.
        allowed.usual.extend(directory(Path::new(LOG_DIRECTORY)));
        allowed.write.extend(state_directory(&settings.state));
        // The pins are removed at the end.
        allowed.usual.extend(settings.fastpath.kernel.then(|| settings.fastpath.directory.clone()));
        // The API's socket is removed at the end.
        allowed.write.extend(match &settings.control.api.socket {
            ApiSocket::Usual => directory(Path::new(gatun_api::SOCKET)),
            ApiSocket::Path(path) => directory(path),
            ApiSocket::Off => None,
        });
        Sandbox(Some(Arc::new(allowed)))
    }

    /// Returns true if there is a sandbox.
    pub(super) fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Returns true if the sandbox allows writing files in a directory.
    pub(super) fn knows(&self, directory: &Path) -> bool {
        let Some(allowed) = &self.0 else { return true };
        allowed.write.iter().chain(&allowed.usual).any(|known| directory.starts_with(known))
    }

    /// Restricts the calling thread, and threads that it starts, to these files and `calls`. Returns the
    /// result for the log.
    pub(super) fn enter(&self, calls: Calls) -> Enforced {
        let Some(allowed) = &self.0 else {
            return Enforced(None);
        };
        let nothing = Allowed::default();
        let allowed = if calls.needs_files() { allowed } else { &nothing };
        for path in &allowed.write {
            // Landlock cannot name a missing directory. If it cannot be created, its user reports that.
            let _ = DirBuilder::new().recursive(true).mode(0o750).create(path);
        }
        let files =
            files::restrict(allowed, (calls.may_connect(), calls.reads_system())).map(|()| "landlock");
        let calls = calls
            .restrict(std::process::id())
            .map(|()| "seccomp")
            .map_err(|why| format!("no seccomp ({why})"));
        Enforced(Some([files, calls]))
    }
}

/// Restricts a process that serves the web page of a daemon at `socket`. Root becomes the owner of the
/// socket, if it exists, and keeps no capability.
///
/// # Errors
/// Returns an error if privileges cannot be dropped.
pub fn serve_page_only(socket: &Path) -> anyhow::Result<()> {
    let owner = std::fs::metadata(socket).ok().filter(|_| rustix::process::geteuid().is_root());
    let user = owner.map(|owner| privileges::User::new(owner.uid(), owner.gid()));
    privileges::drop_all(user.as_ref())?;
    // The page is shown even if the kernel lacks a part of the sandbox.
    let _ = Sandbox::without_files().enter(Calls::Page);
    Ok(())
}

/// Result of entering the sandbox: for files and calls each, what is active or missing. `None` without a
/// sandbox.
pub(super) struct Enforced(Option<[Result<&'static str, String>; 2]>);

impl fmt::Display for Enforced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(halves) = &self.0 else { return f.write_str("sandbox: off (--no-sandbox)") };
        let [files, calls] =
            halves.each_ref().map(|half| half.as_ref().map_or_else(|less| &**less, |whole| *whole));
        write!(f, "sandbox: {files}, {calls}")
    }
}

impl Enforced {
    /// Missing parts.
    pub(super) fn missing(&self) -> Vec<String> {
        self.0.iter().flatten().filter_map(|half| half.clone().err()).collect()
    }

    /// Result for the API. `helper` are the missing parts of the network helper's sandbox.
    pub(super) fn told_with(&self, helper: &[String]) -> types::Sandbox {
        if self.0.is_none() {
            return types::Sandbox { state: SandboxExtent::Not, missing: vec!["--no-sandbox".to_owned()] };
        }
        let mut missing = self.missing();
        let state = match missing.iter().filter(|less| less.starts_with("no ")).count() {
            2 => SandboxExtent::Not,
            0 if missing.is_empty() && helper.is_empty() => SandboxExtent::Whole,
            _ => SandboxExtent::Partly,
        };
        // A part that the kernel lacks is missing in both; it is listed once.
        let only_helper = helper.iter().filter(|part| !missing.contains(part));
        let only_helper: Vec<String> = only_helper.map(|part| format!("network helper: {part}")).collect();
        missing.extend(only_helper);
        types::Sandbox { state, missing }
    }
}

fn state_directory(state: &StateDir) -> Option<PathBuf> {
    match state {
        StateDir::Usual => Some(super::state::USUAL.into()),
        StateDir::Path(path) => Some(path.clone()),
        StateDir::Off => None,
    }
}

/// A directory of certificates, and those of the files that its links lead to: the programs that renew
/// certificates replace links. Landlock cannot name a directory that does not exist yet: its parent is
/// allowed, except the root.
fn with_links(directory: &Path) -> Vec<PathBuf> {
    let is_there = directory.exists();
    let parent = directory.parent().filter(|parent| !is_there && parent.parent().is_some());
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten().take(LINKS_MAX);
    let links = files.filter(|file| file.file_type().is_ok_and(|kind| kind.is_symlink()));
    let targets =
        links.filter_map(|link| Some(std::fs::canonicalize(link.path()).ok()?.parent()?.to_owned()));
    let all: BTreeSet<PathBuf> = targets.chain([parent.unwrap_or(directory).to_owned()]).collect();
    all.into_iter().collect()
}

/// Directory that contains a file.
fn directory(file: &Path) -> Option<PathBuf> {
    let directory = file.parent()?;
    Some(if directory.as_os_str().is_empty() { ".".into() } else { directory.to_owned() })
}

#[cfg(test)]
mod tests;
