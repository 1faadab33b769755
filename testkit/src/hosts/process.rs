//! Programs that run beside the lab's own process.

use crate::Error;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a program that is asked to end may take.
const END_MAX: Duration = Duration::from_secs(5);

/// A running program; killed and waited for when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
}

impl Process {
    /// Starts a program, without input; its output goes where `command` says. Ctrl-C on the terminal does not
    /// reach it: it ends with the sandbox, and has nothing to say about it.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self, Error> {
        Process::spawn(command, Stdio::null())
    }

    /// The same with an input, which is told what to do.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn start_with_input(command: &mut Command) -> Result<(Self, ChildStdin), Error> {
        let mut process = Process::spawn(command, Stdio::piped())?;
        let input = process.child.stdin.take();
        let input = input.ok_or_else(|| Error(format!("{}: has no input", process.name)))?;
        Ok((process, input))
    }

    fn spawn(command: &mut Command, input: Stdio) -> Result<Self, Error> {
        let name = describe(command);
        let child =
            command.stdin(input).process_group(0).spawn().map_err(|e| Error(format!("{name}: {e}")))?;
        Ok(Process { child, name })
    }

    /// Its number in the lab's process namespace.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        let gone = || Error(format!("{}: has ended", self.name));
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
        kill_process(pid, signal).map_err(|_| gone())
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// Where it takes longer than `max`; it is killed then.
    pub fn wait(&mut self, max: Duration) -> Result<ExitStatus, Error> {
        let deadline = Instant::now() + max;
        loop {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return Err(Error(format!("{}: not at its end after {} s", self.name, max.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks it to end (SIGTERM) and waits for it.
    ///
    /// # Errors
    /// Where it does not.
    pub fn stop(mut self) -> Result<ExitStatus, Error> {
        self.signal(Signal::TERM)?;
        self.wait(END_MAX)
    }

    /// Waits for its end and returns what it wrote to standard output, where that is a pipe.
    ///
    /// # Errors
    /// Where it takes longer than `max`.
    pub fn output(mut self, max: Duration) -> Result<(ExitStatus, String), Error> {
        let pipe = self.child.stdout.take();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            if let Some(mut pipe) = pipe {
                // What is not UTF-8 ends the text; these programs write ASCII.
                let _ = pipe.read_to_string(&mut text);
            }
            text
        });
        let status = self.wait(max)?;
        Ok((status, reader.join().unwrap_or_default()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Command lines of processes that speak of `needle`, this one's left out.
///
/// # Errors
/// Where /proc cannot be read.
pub fn processes_about(needle: &str) -> Result<Vec<String>, Error> {
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").map_err(|e| Error(format!("/proc: {e}")))?.flatten();
    let pids = entries.map(|e| e.file_name().to_string_lossy().into_owned()).filter(|pid| *pid != own);
    let lines = pids.filter_map(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    Ok(lines.filter(|line| line.contains(needle)).collect())
}

/// Waits until something holds.
///
/// # Errors
/// Where it does not within `max`.
pub fn wait_until(what: &str, max: Duration, holds: impl Fn() -> bool) -> Result<(), Error> {
    let deadline = Instant::now() + max;
    while !holds() {
        if Instant::now() >= deadline {
            return Err(Error(format!("not within {} s: {what}", max.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// Where it cannot be started or fails; with its standard error.
pub fn run(command: &mut Command) -> Result<String, Error> {
    let name = describe(command);
    let output = command.stdin(Stdio::null()).output().map_err(|e| Error(format!("{name}: {e}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let error = if error.is_empty() { text.trim().to_owned() } else { error };
    Err(Error(format!("`{name}` failed: {error}")))
}

/// Runs a program for at most `max` and returns how it ended and its standard output.
///
/// # Errors
/// Where it cannot be started or takes longer.
pub fn run_for(command: &mut Command, max: Duration) -> Result<(ExitStatus, String), Error> {
    Process::start(command.stdout(Stdio::piped()).stderr(Stdio::null()))?.output(max)
}

/// The command line without the way into its namespace.
fn describe(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|w| w.to_string_lossy().into_owned())
        .collect();
    let from = words.iter().position(|w| w == "--").map_or(0, |i| i + 1);
    words[from..].join(" ")
}
