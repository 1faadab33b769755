//! iperf3 between two namespaces, each measurement with a server of its own.
//!
//! A server that has just served a client may still be busy with that client's end, and one that saw a client die may
//! never be free again: on a loaded machine the next client was refused often enough to end whole runs.

use crate::{Error, Namespace, Process, run_for};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How often a measurement is tried that met a busy server or none.
const ATTEMPTS: u32 = 4;
/// Pause before the next attempt, times the attempts so far.
const PAUSE: Duration = Duration::from_millis(500);
const LISTEN_MAX: Duration = Duration::from_secs(10);
const PORT: &str = ":5201 ";

/// What iperf3 says where another attempt may succeed.
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
    /// The program: `iperf3` but in tests.
    pub program: &'a str,
    /// Host that serves.
    pub server: &'a Namespace,
    /// Host that asks.
    pub client: &'a Namespace,
    /// Arguments of the client, with the target; `-J` is added.
    pub arguments: &'a str,
    /// How long an attempt may take.
    pub max: Duration,
}

impl Iperf<'_> {
    /// Measures, and returns iperf3's JSON.
    ///
    /// # Errors
    /// Where iperf3 fails, hangs, or is still busy after several attempts; with its words.
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
        // With -J the client says in the JSON what went wrong.
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
    quoted.or(text.trim().lines().last()).map_or("it said nothing", |line| line.trim().trim_matches('"'))
}
