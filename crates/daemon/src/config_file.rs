//! Atomic replacement of the configuration file or a file of mappings, and the history of previous texts.
//!
//! ```text
//!   gatun.toml            read at a start and on SIGHUP
//!   .gatun.toml.new       next text; a leftover of a killed process is removed
//!   gatun.toml.history/   previous texts: NUMBER.SECONDS.REVISION.WHO
//! ```
//! The new text is written next to the file and synced, renamed, and the directory is synced. Whenever the
//! process is killed, either the old or the new text is in place. A text enters the history before it is
//! replaced.

use crate::replace::{fill, sync_directory_of, take_place};
use gatun_config::MappingFile;
use rustix::fs::{Gid, Mode, OFlags, Uid, fchmod, fchown};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Largest number of texts in the history, and their largest total size in bytes.
const HISTORY_MAX: usize = 50;
const HISTORY_BYTES_MAX: u64 = 256 << 20;
/// Length of a revision in hexadecimal digits.
const REVISION_LEN: usize = 64;

/// Configuration file or file of mappings.
#[derive(Clone)]
pub(super) struct ConfigFile {
    path: PathBuf,
    directory: PathBuf,
    new: PathBuf,
    history: PathBuf,
    #[cfg(test)]
    killed_at: Option<Step>,
}

/// Completed step of a replacement. Tests kill the process after each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    NewMade,
    NewSynced,
    Remembered,
    Replaced,
    Synced,
}

/// Text that is written next to the file, on disk.
#[derive(Debug)]
pub(super) struct Staged {
    text: String,
}

impl Staged {
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// Completed replacement that can be undone.
#[derive(Debug)]
pub(super) struct Replaced {
    /// Previous text.
    before: Option<Vec<u8>>,
}

/// Reason why the file was not replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReplaceError {
    /// Somebody else has changed the file.
    Changed,
    /// Description of the failure.
    Failed(String),
}

/// Knowledge about a text that was active.
#[derive(Clone, Copy)]
pub(super) enum KnownText<'t> {
    /// The whole text.
    Text(&'t str),
    /// The hash of a file of mappings.
    Hash(&'t MappingFile),
    /// Nothing: it was too long to be stored.
    Nothing,
}

impl<'t> KnownText<'t> {
    /// Knowledge about a configuration: its text is empty if it was too long to be stored.
    pub(super) fn of_config(text: &'t str) -> KnownText<'t> {
        if text.is_empty() { KnownText::Nothing } else { KnownText::Text(text) }
    }

    fn may_be(self, text: &[u8]) -> bool {
        match self {
            KnownText::Text(known) => known.as_bytes() == text,
            KnownText::Hash(file) => file.is(text),
            KnownText::Nothing => true,
        }
    }
}

/// Text that was active.
pub(super) struct ActiveText<'t> {
    pub(super) text: KnownText<'t>,
    pub(super) revision: &'t str,
    /// User who replaced it.
    pub(super) who: &'t str,
}

/// Text in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HistoryEntry {
    number: u64,
    /// Time of the replacement, seconds since 1970.
    pub(super) at_s: u64,
    pub(super) revision: String,
    pub(super) who: String,
    pub(super) bytes: u64,
    path: PathBuf,
}

impl HistoryEntry {
    /// Reads the text.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub(super) fn text(&self) -> Result<String, String> {
        fs::read_to_string(&self.path).map_err(|e| format!("{} cannot be read: {e}", self.path.display()))
    }

    fn of(entry: &fs::DirEntry) -> Option<HistoryEntry> {
        let name = entry.file_name().into_string().ok()?;
        let mut fields = name.splitn(4, '.');
        let (number, at_s) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let (revision, who) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        let is_revision = revision.len() == REVISION_LEN && revision.bytes().all(|b| b.is_ascii_hexdigit());
        let bytes = entry.metadata().ok()?.len();
        is_revision.then(|| HistoryEntry { number, at_s, revision, who, bytes, path: entry.path() })
    }
}

impl ConfigFile {
    /// File that is read at `path`, after following links.
    pub(super) fn new(path: &Path) -> ConfigFile {
        let path = fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or(path.to_owned());
        let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        ConfigFile {
            new: directory.join(format!(".{name}.new")),
            history: directory.join(format!("{name}.history")),
            path,
            directory,
            #[cfg(test)]
            killed_at: None,
        }
    }

    /// Writes a text next to the file, so that only a name has to change later.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub(super) fn stage(&self, text: &str) -> Result<Staged, String> {
        match self.write_new(&self.new, text.as_bytes()) {
            Ok(()) => Ok(Staged { text: text.to_owned() }),
            Err(error) => {
                self.discard();
                Err(format!("{} cannot be written: {error}", self.new.display()))
            }
        }
    }

    /// Removes the staged text.
    pub(super) fn discard(&self) {
        // The next staged text overwrites a file that cannot be removed.
        let _ = fs::remove_file(&self.new);
    }

    /// Replaces the file by the staged text, if the file still has the active text.
    ///
    /// # Errors
    /// Returns an error if the file has another text or cannot be replaced. Then it is unchanged.
    pub(super) fn replace(&self, staged: &Staged, ran: &ActiveText<'_>) -> Result<Replaced, ReplaceError> {
        let failed = |what: &Path, error: io::Error| {
            self.discard();
            ReplaceError::Failed(format!("{}: {error}", what.display()))
        };
        let before = match fs::read(&self.path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(&self.path, error)),
        };
        let is_known = |text: &Vec<u8>| ran.text.may_be(text) || text == staged.text.as_bytes();
        if before.as_ref().is_some_and(|text| !is_known(text)) {
            self.discard();
            return Err(ReplaceError::Changed);
        }
        let kept = match (ran.text, &before) {
            (KnownText::Text(text), _) => self.remember(text.as_bytes(), ran),
            (KnownText::Hash(file), Some(text)) if file.is(text) => self.remember(text, ran),
            _ => Ok(()),
        };
        kept.map_err(|error| failed(&self.history, error))?;
        self.done(Step::Remembered);
        fs::rename(&self.new, &self.path).map_err(|error| failed(&self.path, error))?;
        self.done(Step::Replaced);
        let replaced = Replaced { before };
        if let Err(error) = sync_directory_of(&self.path) {
            self.take_back(&replaced);
            return Err(failed(&self.directory, error));
        }
        self.done(Step::Synced);
        Ok(replaced)
    }

    /// Returns whether somebody else has changed the file: it has neither the active text nor the next one.
    pub(super) fn is_changed(&self, active: KnownText<'_>, next: &str) -> bool {
        fs::read(&self.path).is_ok_and(|text| !active.may_be(&text) && text != next.as_bytes())
    }

    /// Restores the previous text, as far as possible.
    pub(super) fn take_back(&self, replaced: &Replaced) {
        if let Some(text) = &replaced.before {
            let _ = self.write_new(&self.new, text).and_then(|()| take_place(&self.new, &self.path));
        }
    }

    /// Adds a text to the history.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub(super) fn remember(&self, text: &[u8], ran: &ActiveText<'_>) -> io::Result<()> {
        if !self.history.is_dir() {
            fs::DirBuilder::new().mode(0o700).create(&self.history)?;
            sync_directory_of(&self.history)?;
        }
        let number = self.history().first().map_or(1, |last| last.number + 1);
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let who: String = ran.who.chars().filter(char::is_ascii_alphanumeric).collect();
        let name = format!("{number:06}.{at}.{}.{who}", ran.revision);
        let new = self.history.join(".new");
        let written = self.write_new(&new, text);
        let kept = written.and_then(|()| take_place(&new, &self.history.join(name)));
        kept.inspect_err(|_| drop(fs::remove_file(&new)))?;
        self.prune();
        Ok(())
    }

    /// Texts in the history, the latest first.
    pub(super) fn history(&self) -> Vec<HistoryEntry> {
        let entries = fs::read_dir(&self.history).into_iter().flatten().flatten();
        let mut all: Vec<HistoryEntry> = entries.filter_map(|entry| HistoryEntry::of(&entry)).collect();
        all.sort_unstable_by_key(|past| std::cmp::Reverse(past.number));
        all
    }

    /// Deletes old texts.
    fn prune(&self) {
        let mut bytes = 0;
        for (n, past) in self.history().into_iter().enumerate() {
            bytes += past.bytes;
            if n >= HISTORY_MAX || (n > 0 && bytes > HISTORY_BYTES_MAX) {
                // A file that cannot be removed is tried again next time.
                let _ = fs::remove_file(past.path);
            }
        }
    }

    /// Writes a file that will replace another one, with the permissions of the configuration.
    fn write_new(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
        if let Ok(old) = fs::metadata(&self.path) {
            // Readers of the old file can read the new one. Without the right to set owner and group, the
            // group loses access.
            let (uid, gid) = (Uid::from_raw(old.uid()), Gid::from_raw(old.gid()));
            let kept = if fchown(&file, Some(uid), Some(gid)).is_ok() { 0o777 } else { 0o604 };
            fchmod(&file, Mode::from_raw_mode(old.mode() & kept))?;
        }
        self.done(Step::NewMade);
        fill(&file, text)?;
        self.done(Step::NewSynced);
        Ok(())
    }

    #[cfg(not(test))]
    fn done(&self, _: Step) {}

    #[cfg(test)]
    fn done(&self, step: Step) {
        assert!(self.killed_at != Some(step), "killed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn ran<'t>(text: &'t str, revision: &'t str) -> ActiveText<'t> {
        ActiveText { text: KnownText::Text(text), revision, who: "uid 0" }
    }

    fn place(name: &str, text: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("gatun-file-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("gatun.toml"), text).unwrap();
        directory.join("gatun.toml")
    }

    fn revision(digit: char) -> String {
        String::from(digit).repeat(REVISION_LEN)
    }

    #[test]
    fn after_a_kill_at_any_step_the_file_is_complete_and_the_next_process_continues() {
        for step in [Step::NewMade, Step::NewSynced, Step::Remembered, Step::Replaced, Step::Synced] {
            let path = place("killed", "old");
            let mut file = ConfigFile::new(&path);
            file.killed_at = Some(step);
            let replacing =
                || file.stage("new").map(|staged| file.replace(&staged, &ran("old", &revision('a'))));
            // A panic works like kill -9: no clean-up is done.
            assert!(catch_unwind(AssertUnwindSafe(replacing)).is_err(), "{step:?}");
            let is_new = matches!(step, Step::Replaced | Step::Synced);
            assert_eq!(fs::read_to_string(&path).unwrap(), if is_new { "new" } else { "old" }, "{step:?}");
            let next = ConfigFile::new(&path);
            let there = fs::read_to_string(&path).unwrap();
            let staged = next.stage("newer").unwrap();
            next.replace(&staged, &ran(&there, &revision('b'))).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "newer");
            let kept: Vec<String> = next.history().iter().map(|past| past.text().unwrap()).collect();
            assert_eq!(kept.first(), Some(&there));
            assert!(kept.contains(&"old".to_owned()), "{step:?}: {kept:?}");
        }
    }

    #[test]
    fn changes_by_others_are_not_overwritten_and_permissions_stay() {
        let path = place("changed", "old");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let file = ConfigFile::new(&path);
        let staged = file.stage("new").unwrap();
        fs::write(&path, "an editor's").unwrap();
        let refused = file.replace(&staged, &ran("old", &revision('a')));
        assert_eq!(refused.unwrap_err(), ReplaceError::Changed);
        assert_eq!(fs::read_to_string(&path).unwrap(), "an editor's");
        assert!(file.history().is_empty() && !file.new.exists());
        // Applying the text of a file that an operator has edited works.
        fs::write(&path, "new").unwrap();
        let replaced = file.replace(&file.stage("new").unwrap(), &ran("old", &revision('a'))).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        file.take_back(&replaced);
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_symbolic_link_stays_and_the_history_is_limited_and_ordered() {
        let path = place("link", "0");
        let link = path.with_file_name("link.toml");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let file = ConfigFile::new(&link);
        for n in 0..HISTORY_MAX + 5 {
            let (before, after) = (n.to_string(), (n + 1).to_string());
            let staged = file.stage(&after).unwrap();
            file.replace(&staged, &ran(&before, &revision('c'))).unwrap();
        }
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let kept: Vec<String> = file.history().iter().map(|past| past.text().unwrap()).collect();
        let last = HISTORY_MAX + 4;
        assert_eq!((kept.len(), &kept[0]), (HISTORY_MAX, &last.to_string()));
        assert!(kept.is_sorted_by_key(|text| std::cmp::Reverse(text.parse::<usize>().unwrap())));
        // Replacements by an editor and SIGHUP count too.
        file.remember(b"edited", &ran("edited", &revision('c'))).unwrap();
        assert_eq!(file.history().len(), HISTORY_MAX);
    }

    #[test]
    fn an_unwritable_directory_is_reported_and_nothing_changes() {
        let path = place("gone", "old");
        let file = ConfigFile::new(&path);
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        let why = file.stage("new").unwrap_err();
        assert!(why.contains(".gatun.toml.new cannot be written: No such file"), "{why}");
    }
}
