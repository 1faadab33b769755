//! A reader at a shell: one bash for a whole tutorial, so that variables, the folder and what runs behind go on.

use gatun_testkit::Error;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// What a command may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Begins the line that ends a step's output; no text does.
const MARK: char = '\u{1}';
/// Each step is written here first, so that nothing in it has to be quoted.
const STEP: &str = "/run/step";

/// A shell of root's in a sandbox, in a home of its own, in which `gatun` is the program that is tested.
pub(crate) struct Shell {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

/// What a step did.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    /// What came on the screen.
    pub(crate) text: String,
    /// The commands that failed.
    pub(crate) failed: String,
}

impl Shell {
    /// # Errors
    /// Where the sandbox cannot be furnished.
    pub(crate) fn new() -> Result<Shell, Error> {
        // What a reader writes into /etc and /var stays inside: /etc is a copy, of what may be read.
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
        // A command whose failure nothing looks at is one too many.
        shell.step("exec 2>&1; failed=; trap 'failed+=\"$BASH_COMMAND; \"' ERR")?;
        Ok(shell)
    }

    /// Gives commands to the shell and waits until they are done.
    ///
    /// # Errors
    /// Where that takes too long, or the shell has ended.
    pub(crate) fn step(&mut self, commands: &str) -> Result<Shown, Error> {
        let broken = |what: &dyn std::fmt::Display| Error(format!("{commands}: {what}"));
        fs::write(STEP, commands).map_err(|error| broken(&error))?;
        let line = format!("failed=; . {STEP} </dev/null; printf '\\n\\001%s\\n' \"$failed\"\n");
        self.input.write_all(line.as_bytes()).map_err(|error| broken(&error))?;
        let mut text = String::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE).map_err(|why| broken(&format!("{why}, {text}")))?;
            if let Some(failed) = line.strip_prefix(MARK) {
                // The mark begins a line of its own.
                let text = text.strip_suffix('\n').unwrap_or(&text).to_owned();
                return Ok(Shown { text, failed: failed.to_owned() });
            }
            text.push_str(&line);
            text.push('\n');
        }
    }

    /// Writes a file as a reader does with an editor; a path that does not begin with `/` is in the shell's folder.
    ///
    /// # Errors
    /// Where it cannot be written.
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
