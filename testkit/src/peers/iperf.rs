//! iperf3 between two namespaces, each measurement with a server of its own.
//!
//! After a client ends, a server stays busy for a moment, and after a client is killed perhaps forever. On a
//! loaded machine, a shared server refused the next client often enough to end whole runs.

use crate::{Error, Namespace, Process, run_for};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Attempts at a measurement whose server is busy or missing.
const ATTEMPTS: u32 = 4;
/// Pause before the next attempt, multiplied by the attempts so far.
const PAUSE: Duration = Duration::from_millis(500);
const LISTEN_MAX: Duration = Duration::from_secs(10);
const PORT: &str = ":5201 ";

/// iperf3's messages after which another attempt may succeed.
const PASSING: [&str; 6] = [
    "busy",
    "unable to connect",
    "unable to send control message",
    "unable to receive control message",
    "Address already in use",
    "does not listen",
];

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Iperf<'a> {
    /// The program: `iperf3`, except in tests.
    pub program: &'a str,
    /// Host of the server.
    pub server: &'a Namespace,
    /// Host of the client.
    pub client: &'a Namespace,
    /// Arguments of the client, with the target; `-J` is added.
    pub arguments: &'a str,
    /// Time limit of an attempt.
    pub max: Duration,
}

impl Iperf<'_> {
    /// Measures and returns iperf3's JSON.
    ///
    /// # Errors
    /// Returns iperf3's error if it fails, hangs, or is still busy after several attempts.
    pub fn measure(&self) -> Result<String, Error> {
        let mut attempt = 1;
        loop {
            match self.attempt() {
                Err(Error(why)) if attempt < ATTEMPTS && PASSING.iter().any(|words| why.contains(words)) => {
                    std::thread::sleep(PAUSE * attempt);
                    attempt += 1;
                }
                Err(Error(why)) if attempt > 1 => {
                    return Err(Error(format!("{why} ({attempt} attempts)")));
                }
                other => return other,
            }
        }
    }

    fn attempt(&self) -> Result<String, Error> {
        let _server = self.start_server()?;
        let mut command = self.client.command(self.program);
        command.args(self.arguments.split_whitespace()).arg("-J");
        let (status, text) = run_for(&mut command, self.max)?;
        // With -J the client writes errors into the JSON.
        match status.success() && !text.contains("\"error\":") {
            true => Ok(text),
            false => Err(Error(format!("iperf3 failed ({status}): {}", error_of(&text)))),
        }
    }

    fn start_server(&self) -> Result<Process, Error> {
        let mut command = self.server.command(self.program);
        command.args(["-s", "-1"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Process::start(&mut command)?;
        let deadline = Instant::now() + LISTEN_MAX;
        while !self.server.run("ss -Hltn")?.contains(PORT) {
            if server.ended().is_some() || Instant::now() > deadline {
                return Err(Error("iperf3 -s does not listen".into()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }
}

/// The error in iperf3's JSON, or the last line.
fn error_of(text: &str) -> &str {
    let quoted = text.lines().find_map(|line| line.trim().strip_prefix("\"error\":"));
    quoted.or(text.trim().lines().last()).map_or("no output", |line| line.trim().trim_matches('"'))
}
