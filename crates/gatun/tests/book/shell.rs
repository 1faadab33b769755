//! Shell of a reader: one bash for a whole tutorial, so that variables, the folder and background processes
//! persist.

use gatun_testkit::Error;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Time limit of a command.
const PATIENCE: Duration = Duration::from_secs(20);
/// Start of the line that ends a step's output. No other line begins like this.
const MARK: char = '\u{1}';
/// File for the commands of each step, so that nothing has to be quoted.
const STEP: &str = "/run/step";

/// Root's shell in a sandbox with its own home. `gatun` is the program under test.
pub(crate) struct Shell {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

/// Result of a step.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    /// Output.
    pub(crate) text: String,
    /// Commands that failed.
    pub(crate) failed: String,
}

impl Shell {
    /// # Errors
    /// Returns an error if the sandbox cannot be set up.
    pub(crate) fn new() -> Result<Shell, Error> {
        // Changes to /etc and /var stay inside the sandbox: /etc is a copy of the readable files.
        let furnish = "mkdir -p /run/home /run/bin /run/etc /run/var && { cp -a /etc/. /run/etc 2>/dev/null; true; } && \
            mount --bind /run/etc /etc && mount --bind /run/var /var/lib";
        gatun_testkit::run(Command::new("sh").args(["-c", furnish]))?;
        let io = |error: std::io::Error| Error(format!("a shell: {error}"));
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_gatun"), "/run/bin/gatun").map_err(io)?;
        let path = std::env::var("PATH").unwrap_or_default();
        let mut child = Command::new("bash")
            .args(["--noprofile", "--norc"])
            .current_dir("/run/home")
            .envs([("HOME", "/run/home"), ("TERM", "dumb"), ("LC_ALL", "C.UTF-8")])
            .env("PATH", format!("/run/bin:{path}:/usr/sbin:/sbin"))
            .env("GATUN_REPOSITORY", crate::root())
            .env_remove("GATUN_LAB")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(io)?;
        let input = child.stdin.take().ok_or_else(|| Error("no input".into()))?;
        let output = child.stdout.take().ok_or_else(|| Error("no output".into()))?;
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let mut shell = Shell { child, input, lines };
        // Reports every failed command whose status is not checked.
        shell.step("exec 2>&1; failed=; trap 'failed+=\"$BASH_COMMAND; \"' ERR")?;
        Ok(shell)
    }

    /// Runs commands in the shell and waits for them.
    ///
    /// # Errors
    /// Returns an error if they take too long, or if the shell has ended.
    pub(crate) fn step(&mut self, commands: &str) -> Result<Shown, Error> {
        let broken = |what: &dyn std::fmt::Display| Error(format!("{commands}: {what}"));
        fs::write(STEP, commands).map_err(|error| broken(&error))?;
        let line = format!("failed=; . {STEP} </dev/null; printf '\\n\\001%s\\n' \"$failed\"\n");
        self.input.write_all(line.as_bytes()).map_err(|error| broken(&error))?;
        let mut text = String::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE).map_err(|why| broken(&format!("{why}, {text}")))?;
            if let Some(failed) = line.strip_prefix(MARK) {
                // The mark is on its own line.
                let text = text.strip_suffix('\n').unwrap_or(&text).to_owned();
                if commands.contains("gatun ") {
                    // Ping's own summary is not.
                    let ours: Vec<&str> =
                        text.lines().filter(|line| !line.contains(" packets transmitted")).collect();
                    if let Some(fault) = gatun_testkit::unreadable(&ours.join("\n")) {
                        return Err(broken(&fault));
                    }
                }
                return Ok(Shown { text, failed: failed.to_owned() });
            }
            text.push_str(&line);
            text.push('\n');
        }
    }

    /// Writes a file, as a reader does with an editor. A relative path is in the shell's folder.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(crate) fn save(&mut self, file: &str, text: &str) -> Result<(), Error> {
        let folder = self.step("pwd")?.text;
        let path = Path::new(folder.trim()).join(file);
        fs::write(&path, text).map_err(|error| Error(format!("{}: {error}", path.display())))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
