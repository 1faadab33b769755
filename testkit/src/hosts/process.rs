//! Programs that run beside the lab's own process.

use crate::Error;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// Time limit of a program to end after SIGTERM.
const END_MAX: Duration = Duration::from_secs(5);

/// A running program. Dropping it kills the program and waits for it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
}

impl Process {
    /// Starts a program without input; its output goes where `command` says. Ctrl-C on the terminal does not
    /// reach it: the program ends silently with the sandbox.
    ///
    /// # Errors
    /// Returns an error if the program cannot be started.
    pub fn start(command: &mut Command) -> Result<Self, Error> {
        Process::spawn(command, Stdio::null())
    }

    /// Starts a program that reads commands from its standard input, and returns that input too.
    ///
    /// # Errors
    /// Returns an error if the program cannot be started.
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

    /// Process id in the lab's process namespace.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// Returns an error if the process has ended.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        let gone = || Error(format!("{}: has ended", self.name));
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
        kill_process(pid, signal).map_err(|_| gone())
    }

    /// Exit status of the process, `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    /// Returns an error if it runs longer than `max`, and kills it.
    pub fn wait(&mut self, max: Duration) -> Result<ExitStatus, Error> {
        let deadline = Instant::now() + max;
        loop {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return Err(Error(format!("{}: still running after {} s", self.name, max.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends SIGTERM and waits for the end of the process.
    ///
    /// # Errors
    /// Returns an error if the process has ended before, or does not end in time.
    pub fn stop(mut self) -> Result<ExitStatus, Error> {
        self.signal(Signal::TERM)?;
        self.wait(END_MAX)
    }

    /// Waits for the end of the process, and returns its standard output if that is a pipe.
    ///
    /// # Errors
    /// Returns an error if it runs longer than `max`.
    pub fn output(mut self, max: Duration) -> Result<(ExitStatus, String), Error> {
        let pipe = self.child.stdout.take();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            if let Some(mut pipe) = pipe {
                // The text ends at the first byte that is not UTF-8; these programs write ASCII.
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

/// Command lines of all other processes that contain `needle`.
///
/// # Errors
/// Returns an error if /proc cannot be read.
pub fn processes_about(needle: &str) -> Result<Vec<String>, Error> {
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").map_err(|e| Error(format!("/proc: {e}")))?.flatten();
    let pids = entries.map(|e| e.file_name().to_string_lossy().into_owned()).filter(|pid| *pid != own);
    let lines = pids.filter_map(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    Ok(lines.filter(|line| line.contains(needle)).collect())
}

/// Waits until `holds` returns true.
///
/// # Errors
/// Returns an error if it does not within `max`.
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

/// Runs a program to its end. Outputs of `gatun` are checked by [`crate::unreadable`].
///
/// # Errors
/// Where it cannot be started.
///
/// # Panics
/// Where `gatun` prints what is not written for people.
pub fn output(command: &mut Command) -> std::io::Result<Output> {
    let output = command.output()?;
    let mut words = std::iter::once(command.get_program()).chain(command.get_args());
    let is_gatun = |word: &str| word.split(' ').any(|part| part.rsplit('/').next() == Some("gatun"));
    if words.any(|word| is_gatun(&word.to_string_lossy())) {
        for stream in [&output.stdout, &output.stderr] {
            let fault = crate::unreadable(&String::from_utf8_lossy(stream));
            assert!(fault.is_none(), "{}: {}", describe(command), fault.unwrap_or_default());
        }
    }
    Ok(output)
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// Returns an error with its standard error if the program cannot be started or fails.
pub fn run(command: &mut Command) -> Result<String, Error> {
    let name = describe(command);
    let output = output(command.stdin(Stdio::null())).map_err(|e| Error(format!("{name}: {e}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let error = if error.is_empty() { text.trim().to_owned() } else { error };
    Err(Error(format!("`{name}` failed: {error}")))
}

/// Runs a program for at most `max`, and returns its exit status and standard output.
///
/// # Errors
/// Returns an error if the program cannot be started or runs longer.
pub fn run_for(command: &mut Command, max: Duration) -> Result<(ExitStatus, String), Error> {
    Process::start(command.stdout(Stdio::piped()).stderr(Stdio::null()))?.output(max)
}

/// The command line without the part that enters its namespace.
fn describe(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|w| w.to_string_lossy().into_owned())
        .collect();
    let from = words.iter().position(|w| w == "--").map_or(0, |i| i + 1);
    words[from..].join(" ")
}
