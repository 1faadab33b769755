//! What the process cannot do any more once its devices are open, whoever makes it run what code: files and ports by Landlock
//! (`files`), system calls by seccomp (`calls`). Decision 0075 says why what is allowed.
//!
//! Both belong to threads, and threads that begin later have them from their beginning: the main thread enters before it
//! starts the others, and each of those that were there before enters by itself. The network helper is a process with a
//! tighter list of its own.

mod calls;
mod files;

use super::{Settings, privileges};
use gatun_api::types::{self, Bound};
use gatun_config::{ApiSocket, EventSink, LOG_DIRECTORY, StateDir};
use std::fmt;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) use calls::Calls;

/// What is left to the process.
#[derive(Clone, Debug, Default)]
pub(super) struct Sandbox(Option<Arc<Allowed>>);

/// Files.
#[derive(Debug, Default)]
struct Allowed {
    /// Directories whose files it may read.
    read: Vec<PathBuf>,
    /// Directories in which it may make, write, rename and remove files: made where they are not there.
    write: Vec<PathBuf>,
    /// The same, where they are there.
    usual: Vec<PathBuf>,
}

impl Sandbox {
    /// None: all that its rights allow.
    pub(super) fn none() -> Sandbox {
        Sandbox(None)
    }

    /// For a process that opens no file.
    pub(super) fn without_files() -> Sandbox {
        Sandbox(Some(Arc::default()))
    }

    /// For what a configuration asks for.
    pub(super) fn of(settings: &Settings) -> Sandbox {
        let mut allowed = Allowed::default();
        let facts = &settings.control.facts;
        // It is replaced by order of the API, wherever links lead.
        let file = Path::new(&facts.config.file);
        allowed.write.extend(std::fs::canonicalize(file).ok().as_deref().and_then(directory));
        allowed.read.extend(directory(file));
        // Files of mappings are replaced by order of the API too.
        allowed.write.extend(
            settings
                .mapping_files
                .iter()
                .filter_map(|file| std::fs::canonicalize(&file.path).ok().as_deref().and_then(directory)),
        );
        allowed.read.extend(settings.mapping_files.iter().filter_map(|file| directory(&file.path)));
        if let Some(tls) = &settings.control.api.tls {
            let files = [&tls.certificate, &tls.key, &tls.tokens];
            allowed.read.extend(files.into_iter().filter_map(|file| directory(file)));
        }
        if let Some(EventSink::File(file)) = &settings.events {
            allowed.write.extend(directory(file));
        }
        if let Some(log) = &settings.log {
            allowed.write.push(log.directory.clone());
        }
        let spools = settings.exports.iter().filter_map(|export| export.spool.as_ref());
        allowed.write.extend(spools.map(|(spool, _)| spool.clone()));
        // Its own: what a later configuration names there can be had without a restart.
        allowed.usual.extend(directory(Path::new(LOG_DIRECTORY)));
        allowed.write.extend(match &settings.state {
            StateDir::Usual => Some(super::state::USUAL.into()),
            StateDir::Path(path) => Some(path.clone()),
            StateDir::Off => None,
        });
        // The API's socket is taken away at the end.
        allowed.write.extend(match &settings.control.api.socket {
            ApiSocket::Usual => directory(Path::new(gatun_api::SOCKET)),
            ApiSocket::Path(path) => directory(path),
            ApiSocket::Off => None,
        });
        Sandbox(Some(Arc::new(allowed)))
    }

    /// Whether there is one.
    pub(super) fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Whether files in a directory can be written as far as it is concerned.
    pub(super) fn knows(&self, directory: &Path) -> bool {
        let Some(allowed) = &self.0 else { return true };
        allowed.write.iter().chain(&allowed.usual).any(|known| directory.starts_with(known))
    }

    /// Leaves the calling thread, and those that it starts, no more than this and `calls`. Gives what is in force, for
    /// the log.
    pub(super) fn enter(&self, calls: Calls) -> Enforced {
        let Some(allowed) = &self.0 else {
            return Enforced(None);
        };
        let nothing = Allowed::default();
        let allowed = if calls.needs_files() { allowed } else { &nothing };
        for path in &allowed.write {
            // What is not there yet cannot be named. Where it cannot be made, whoever needs it says so.
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

/// Leaves a process that serves the web page of a daemon at `socket` no more than it needs: root becomes the owner of the socket,
/// where there is one already, and keeps no capability in any case.
///
/// # Errors
/// If privileges cannot be dropped.
pub fn serve_page_only(socket: &Path) -> anyhow::Result<()> {
    let owner = std::fs::metadata(socket).ok().filter(|_| rustix::process::geteuid().is_root());
    let user = owner.map(|owner| privileges::User::new(owner.uid(), owner.gid()));
    privileges::drop_all(user.as_ref())?;
    // A kernel that lacks a part of it is no reason not to show the page.
    let _ = Sandbox::without_files().enter(Calls::Page);
    Ok(())
}

/// What of the sandbox is in force: files and calls, each with what is missing; or none was wanted.
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
    /// The parts that are not in force.
    pub(super) fn missing(&self) -> Vec<String> {
        self.0.iter().flatten().filter_map(|half| half.clone().err()).collect()
    }

    /// For the API; `helper`: what the sandbox of the network helper lacks.
    pub(super) fn told_with(&self, helper: &[String]) -> types::Sandbox {
        if self.0.is_none() {
            return types::Sandbox { state: Bound::Not, missing: vec!["--no-sandbox".to_owned()] };
        }
        let mut missing = self.missing();
        let state = match missing.iter().filter(|less| less.starts_with("no ")).count() {
            2 => Bound::Not,
            0 if missing.is_empty() && helper.is_empty() => Bound::Whole,
            _ => Bound::Partly,
        };
        // A kernel that lacks a part lacks it for both.
        let only_helper = helper.iter().filter(|part| !missing.contains(part));
        let only_helper: Vec<String> = only_helper.map(|part| format!("network helper: {part}")).collect();
        missing.extend(only_helper);
        types::Sandbox { state, missing }
    }
}

/// The directory that a file is in.
fn directory(file: &Path) -> Option<PathBuf> {
    let directory = file.parent()?;
    Some(if directory.as_os_str().is_empty() { ".".into() } else { directory.to_owned() })
}

#[cfg(test)]
mod tests;
