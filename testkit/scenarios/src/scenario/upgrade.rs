//! Rolling upgrade: all boxes run a former program, and then get the new one, one after the other.

use crate::middle::Programs;
use crate::report::Report;
use anyhow::{Context as _, ensure};
use gatun_api::client::Client;
use gatun_api::types::Status;
use std::fmt;
use std::path::Path;
use std::process::Command;

/// Connections that are opened while the boxes run different programs.
pub(super) const BETWEEN: u32 = 200;

/// Build of Gatun. Two builds may have the same version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Build {
    version: String,
    /// SHA-256 of the program, in hexadecimal digits.
    sha256: String,
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SHA-256 {}...)", self.version, self.sha256.get(..12).unwrap_or(&self.sha256))
    }
}

impl Build {
    fn of_program(gatun: &Path) -> anyhow::Result<Build> {
        let said = gatun_testkit::run(Command::new(gatun).arg("--version"))?;
        let version = said.trim().strip_prefix("gatun ").with_context(|| said.clone())?;
        Ok(Build { version: version.to_owned(), sha256: sha256(gatun)? })
    }

    /// Build that a daemon reports, and whose program its process runs.
    fn of_daemon(socket: &str) -> anyhow::Result<Build> {
        let status = Client::new(socket).get::<Status>("/v1/status");
        let status = status.map_err(|error| anyhow::anyhow!("{socket}: {error}"))?;
        let program = format!("/proc/{}/exe", status.pid);
        Ok(Build { version: status.version, sha256: sha256(Path::new(&program))? })
    }
}

fn sha256(file: &Path) -> anyhow::Result<String> {
    let said = gatun_testkit::run(Command::new("sha256sum").arg(file))?;
    let digits = said.split_ascii_whitespace().next();
    Ok(digits.with_context(|| format!("sha256sum {}: {said}", file.display()))?.to_owned())
}

/// Builds of an upgrade.
#[derive(Clone, Debug)]
pub(super) struct Builds {
    former: Build,
    new: Build,
}

impl Builds {
    /// Builds of the programs of a run. Without a former one, the report says so if a row wants it.
    pub(super) fn of(
        programs: &Programs,
        report: &mut Report,
        is_wanted: bool,
    ) -> anyhow::Result<Option<Builds>> {
        let Some(former) = programs.former.as_ref().filter(|_| is_wanted) else {
            let why = "rolling upgrade: needs an earlier build of Gatun (`--former FILE`)".to_owned();
            report.not_run.extend(is_wanted.then_some(why));
            return Ok(None);
        };
        Builds::new(Build::of_program(former)?, Build::of_program(&programs.gatun)?).map(Some)
    }

    fn new(former: Build, new: Build) -> anyhow::Result<Builds> {
        ensure!(former != new, "the former program is the same as the new one: {new}");
        Ok(Builds { former, new })
    }

    /// Adds what the lab has checked in each run.
    pub(super) fn judge(&self, report: &mut Report) {
        report.check_once(
            true,
            "all boxes ran the former program before the upgrade, and the new one after it",
        );
        report.notes.push(format!("Rolling upgrade from {} to {}.", self.former, self.new));
    }

    /// Checks that all daemons run the former program.
    pub(super) fn all_former(&self, sockets: &[String]) -> anyhow::Result<()> {
        all_run(&self.former, sockets)
    }

    /// Checks that all daemons run the new program.
    pub(super) fn all_new(&self, sockets: &[String]) -> anyhow::Result<()> {
        all_run(&self.new, sockets)
    }
}

fn all_run(build: &Build, sockets: &[String]) -> anyhow::Result<()> {
    for socket in sockets {
        let found = Build::of_daemon(socket)?;
        ensure!(found == *build, "the daemon at {socket} runs {found}, expected {build}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn a_report_without_a_former_build_says_that_the_upgrade_was_not_run() {
        let gatun = PathBuf::from("/bin/true");
        let programs = Programs { gatun, former: None, output: PathBuf::new() };
        let mut report = Report::new("pair", "A test.");
        // The user wants other rows.
        assert!(Builds::of(&programs, &mut report, false).unwrap().is_none());
        assert_eq!(report.not_run.len(), 0);
        assert!(Builds::of(&programs, &mut report, true).unwrap().is_none());
        assert!(report.not_run[0].contains("--former"), "{:?}", report.not_run);
        assert!(report.is_good());
    }

    #[test]
    fn builds_of_one_version_differ_by_their_programs() {
        let build = |name: &str| {
            let program = std::env::temp_dir().join(format!("gatun-build-{}-{name}", std::process::id()));
            std::fs::write(&program, name).unwrap();
            let sha256 = sha256(&program);
            std::fs::remove_file(&program).unwrap();
            Build { version: "1.2.3".to_owned(), sha256: sha256.unwrap() }
        };
        let (former, new) = (build("a"), build("b"));
        let digits = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
        assert_eq!(
            (&*former.sha256, former.to_string()),
            (digits, "1.2.3 (SHA-256 ca978112ca1b...)".to_owned())
        );
        assert!(Builds::new(former.clone(), new).is_ok());
        let why = Builds::new(former.clone(), former).unwrap_err().to_string();
        assert!(why.contains("the same as the new one"), "{why}");
    }
}
