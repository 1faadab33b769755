//! Programs between the two cables: Gatun, or a forwarder in its place.

use crate::bed::{Bed, MIDDLE};
use crate::counters::Counters;
use crate::forwarder;
use crate::processors::{all_processors, last_processor};
use gatun_testkit::{Error, Namespace, Process};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take to be ready; tables of millions of sessions are made at start.
const READY_MAX: Duration = Duration::from_secs(60);

/// Programs of a run.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) gatun: PathBuf,
    /// Where logs and configurations go.
    pub(crate) output: PathBuf,
}

/// A running Gatun.
pub(crate) struct Gatun {
    process: Process,
    stdout: PathBuf,
    #[cfg_attr(not(feature = "dpdk"), expect(dead_code, reason = "read for links of memifs"))]
    stderr: PathBuf,
}

/// Where a program may run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Where the generator does not, where there is more than one processor.
    LastProcessor,
    /// Where the kernel likes.
    Anywhere,
}

/// Where Gatun answers; /run is the sandbox's own.
pub(crate) const SOCKET: &str = "/run/gatun-lab.sock";

/// Gatun's configuration on the bed, of which the scenario gives the instances.
pub(crate) fn on_the_bed(bed: &Bed, instances: &str) -> String {
    // A run begins without the sessions of the one before.
    let state = "[state]\ndirectory = \"off\"";
    format!("[api]\nlisten = \"unix:{SOCKET}\"\n\n{state}\n\n{}\n{instances}", bed.ports())
}

/// What Gatun's workers say of themselves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Time in which they had packets, ns.
    pub(crate) busy_ns: u64,
    /// Packets that they received.
    pub(crate) packets: u64,
    /// Packets that they handed to one another.
    pub(crate) handed: u64,
}

impl Gatun {
    /// What its workers have done so far.
    pub(crate) fn work(&self) -> Result<Work, Error> {
        let workers: Vec<gatun_api::types::Worker> =
            gatun_api::client::Client::new(SOCKET).get("/v1/workers").map_err(|e| Error(e.to_string()))?;
        let mut all = Work::default();
        for worker in &workers {
            all.busy_ns += worker.busy_ns;
            all.packets += worker.received.packets;
            all.handed += worker.handed_before + worker.handed_after;
        }
        Ok(all)
    }

    /// Starts it in a namespace and waits until it translates; its files have this name.
    pub(crate) fn start(
        host: &Namespace,
        place: Place,
        programs: &Programs,
        name: &str,
        config: &str,
    ) -> Result<Gatun, Error> {
        let file = |ending: &str| programs.output.join(format!("{name}.{ending}"));
        let wrote = |e: std::io::Error| Error(format!("{}: {e}", programs.output.display()));
        fs::write(file("toml"), config).map_err(wrote)?;
        let (stdout, stderr) = (file("out"), file("log"));
        let mut command = match place {
            Place::LastProcessor => on_last_processor(host),
            Place::Anywhere => on_all_processors(host),
        };
        command.arg(&programs.gatun).arg("run").arg(file("toml"));
        command.stdout(File::create(&stdout).map_err(wrote)?).stderr(File::create(&stderr).map_err(wrote)?);
        let mut process = Process::start(&mut command)?;
        wait_for(&mut process, &stderr, "translating with", 1)?;
        Ok(Gatun { process, stdout, stderr })
    }

    /// Waits until so many of its devices have said that their link is up.
    #[cfg(feature = "dpdk")]
    pub(crate) fn wait_for_links(&mut self, count: usize) -> Result<(), Error> {
        wait_for(&mut self.process, &self.stderr, ": link is up", count)
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Asks for its counters, and waits for them.
    pub(crate) fn counters(&self) -> Result<Counters, Error> {
        let before = self.said_len()?;
        self.process.signal(Signal::USR1)?;
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(counters) = Counters::read(&self.said_since(before)?) {
                return Ok(counters);
            }
            if Instant::now() > deadline {
                return Err(Error("Gatun does not tell its counters".into()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it, and returns its last counters.
    pub(crate) fn stop(mut self) -> Result<Counters, Error> {
        let before = self.said_len()?;
        self.process.signal(Signal::TERM)?;
        let status = self.process.wait(READY_MAX)?;
        if !status.success() {
            return Err(Error(format!("Gatun ended with {status}")));
        }
        let new = self.said_since(before)?;
        Counters::read(&new).ok_or_else(|| Error(format!("no counters at Gatun's end:\n{new}")))
    }

    /// Bytes that it has said so far.
    fn said_len(&self) -> Result<u64, Error> {
        fs::metadata(&self.stdout).map(|file| file.len()).map_err(|e| Error(e.to_string()))
    }

    /// What it has said since: all of it grows to megabytes in a long run, and whoever asks has the generator's processor.
    fn said_since(&self, before: u64) -> Result<String, Error> {
        let read = || {
            let mut file = File::open(&self.stdout)?;
            file.seek(SeekFrom::Start(before))?;
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            // It may be in the middle of a character.
            Ok(String::from_utf8_lossy(&text).into_owned())
        };
        read().map_err(|e: std::io::Error| Error(e.to_string()))
    }
}

/// A program that forwards in Gatun's place.
pub(crate) struct Forwarder {
    process: Process,
    log: PathBuf,
}

impl Forwarder {
    /// Starts this program's own plain forwarder: it copies frames across by AF_XDP, and knows no packet.
    pub(crate) fn start(bed: &Bed, programs: &Programs) -> Result<Forwarder, Error> {
        Forwarder::run(on_last_processor(&bed.middle), programs, &["forward", MIDDLE[0], MIDDLE[1]])
    }

    /// The same on two devices of DPDK: Gatun's backend, without an engine.
    #[cfg(feature = "dpdk")]
    pub(crate) fn start_dpdk(
        bed: &Bed,
        programs: &Programs,
        [a, b]: &[String; 2],
        mtu: Option<usize>,
    ) -> Result<Forwarder, Error> {
        let mtu = mtu.map_or("any".into(), |mtu| mtu.to_string());
        let words = ["forward-dpdk", a, b, &mtu, &last_processor().to_string()];
        Forwarder::run(on_all_processors(&bed.middle), programs, &words)
    }

    fn run(mut command: Command, programs: &Programs, words: &[&str]) -> Result<Forwarder, Error> {
        let this = std::env::current_exe().map_err(|e| Error(e.to_string()))?;
        let log = programs.output.join("forwarder.log");
        let file = File::create(&log).map_err(|e| Error(format!("{}: {e}", log.display())))?;
        command.arg(this).args(words).stdout(Stdio::null()).stderr(file);
        let mut process = Process::start(&mut command)?;
        wait_for(&mut process, &log, forwarder::READY, 1)?;
        Ok(Forwarder { process, log })
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Ends it, and returns what it tells then.
    pub(crate) fn stop(self) -> Result<forwarder::Told, Error> {
        self.process.stop()?;
        let said = fs::read_to_string(&self.log).map_err(|e| Error(e.to_string()))?;
        Ok(forwarder::Told::read(&said))
    }
}

/// A command that runs on a host, on a processor that the generator does not use where there is another.
fn on_last_processor(host: &Namespace) -> Command {
    let mut command = host.command("taskset");
    command.args(["--cpu-list", &last_processor().to_string()]);
    command
}

/// A command that runs on a host, on any processor: this thread may be kept to one.
fn on_all_processors(host: &Namespace) -> Command {
    let mut command = host.command("taskset");
    command.args(["--cpu-list", &all_processors()]);
    command
}

/// Waits until a log has a text so many times.
fn wait_for(process: &mut Process, log: &Path, text: &str, times: usize) -> Result<(), Error> {
    let deadline = Instant::now() + READY_MAX;
    loop {
        let said = fs::read_to_string(log).unwrap_or_default();
        if said.matches(text).count() >= times {
            return Ok(());
        }
        if process.ended().is_some() || Instant::now() > deadline {
            return Err(Error(format!("no '{text}':\n{said}")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
