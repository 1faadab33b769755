//! Programs between the two cables: Gatun, or a forwarder in its place.

use crate::bed::{Bed, MIDDLE};
use crate::counters::Counters;
use crate::forwarder;
use crate::processors::{all_processors, last_processor};
use gatun_testkit::{Error, Namespace, Process, own_files_view};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for a program to be ready; it allocates tables of millions of sessions at start.
const READY_MAX: Duration = Duration::from_secs(60);

/// Programs of a run.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) gatun: PathBuf,
    /// Earlier build, which the boxes of a rolling upgrade run at first.
    pub(crate) former: Option<PathBuf>,
    /// Folder for logs and configurations.
    pub(crate) output: PathBuf,
}

impl Programs {
    /// Programs with the earlier build in place of the other one.
    pub(crate) fn former(&self) -> Option<Programs> {
        Some(Programs { gatun: self.former.clone()?, ..self.clone() })
    }
}

/// A running Gatun.
pub(crate) struct Gatun {
    process: Process,
    program: PathBuf,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// Processors that a program may use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// The last processor: another one than the generator's, if there is more than one.
    LastProcessor,
    /// Any; the kernel chooses.
    Anywhere,
}

/// Socket of Gatun's API; /run belongs to the sandbox.
pub(crate) const SOCKET: &str = "/run/gatun-lab.sock";

/// Each run starts without sessions.
pub(crate) const NO_STATE: &str = "directory = \"off\"";

/// Gatun's configuration on the bed, with the scenario's instances.
pub(crate) fn on_the_bed(bed: &Bed, instances: &str) -> String {
    format!("[api]\nlisten = \"unix:{SOCKET}\"\n\n[state]\n{NO_STATE}\n\n{}\n{instances}", bed.ports())
}

/// Work of Gatun's workers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Time with packets, ns.
    pub(crate) busy_ns: u64,
    /// Packets received.
    pub(crate) packets: u64,
    /// Packets handed over to another worker.
    pub(crate) handed: u64,
}

impl Gatun {
    /// Work of its workers so far.
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

    /// Starts Gatun in a namespace, with files of this name, and waits until it translates.
    pub(crate) fn start(
        host: &Namespace,
        place: Place,
        programs: &Programs,
        name: &str,
        config: &str,
    ) -> Result<Gatun, Error> {
        let command = match place {
            Place::LastProcessor => on_last_processor(host),
            Place::Anywhere => on_all_processors(host),
        };
        Gatun::start_by(command, programs, (name, &[]), config)
    }

    /// Starts Gatun as [`Gatun::start`] does, on all processors, with flags.
    pub(crate) fn start_with_flags(
        host: &Namespace,
        programs: &Programs,
        named: (&str, &[&str]),
        config: &str,
    ) -> Result<Gatun, Error> {
        Gatun::start_by(on_all_processors(host), programs, named, config)
    }

    /// Starts Gatun as [`Gatun::start`] does, on all processors, with flags, and with its own files as
    /// [`own_files_view`] shows them.
    pub(crate) fn start_with_own_files(
        host: &Namespace,
        own: &str,
        programs: &Programs,
        (name, flags): (&str, &[&str]),
        config: &str,
    ) -> Result<Gatun, Error> {
        let mut command = on_all_processors(host);
        command.args(own_files_view(own));
        Gatun::start_by(command, programs, (name, flags), config)
    }

    fn start_by(
        mut command: Command,
        programs: &Programs,
        (name, flags): (&str, &[&str]),
        config: &str,
    ) -> Result<Gatun, Error> {
        let file = |ending: &str| programs.output.join(format!("{name}.{ending}"));
        let wrote = |e: std::io::Error| Error(format!("{}: {e}", programs.output.display()));
        fs::write(file("toml"), config).map_err(wrote)?;
        let (stdout, stderr) = (file("out"), file("log"));
        command.arg(&programs.gatun).arg("run").arg(file("toml")).args(flags);
        command.stdout(File::create(&stdout).map_err(wrote)?).stderr(File::create(&stderr).map_err(wrote)?);
        let mut process = Process::start(&mut command)?;
        wait_for(&mut process, &stderr, "translating with", 1, READY_MAX)?;
        Ok(Gatun { process, program: programs.gatun.clone(), stdout, stderr })
    }

    /// Waits until `count` of its devices have logged that their link is up.
    #[cfg(feature = "dpdk")]
    pub(crate) fn wait_for_links(&mut self, count: usize) -> Result<(), Error> {
        wait_for(&mut self.process, &self.stderr, ": link is up", count, READY_MAX)
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Program that it runs.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Its resident memory, MiB.
    pub(crate) fn memory_mib(&self) -> Option<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse::<f64>().ok().map(|kib| kib / 1024.0)
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        self.process.signal(signal)
    }

    /// Kills Gatun by SIGKILL, and waits for its end.
    pub(crate) fn kill(mut self) -> Result<(), Error> {
        self.process.signal(Signal::KILL)?;
        self.process.wait(READY_MAX).map(drop)
    }

    /// Replaces the configuration of the same name, reloads it, and waits until it is in use.
    pub(crate) fn reload(&self, programs: &Programs, name: &str, config: &str) -> Result<(), Error> {
        let failed = |e: std::io::Error| Error(format!("{}: {e}", self.stderr.display()));
        let logged = || fs::read_to_string(&self.stderr).map_err(failed);
        let before = logged()?.len();
        fs::write(programs.output.join(format!("{name}.toml")), config).map_err(failed)?;
        self.process.signal(Signal::HUP)?;
        let deadline = Instant::now() + READY_MAX;
        loop {
            let log = logged()?;
            let new = log.get(before..).unwrap_or_default();
            if new.contains("reload: done") || new.contains("reload: no changes") {
                return Ok(());
            }
            if new.contains("nothing has changed") || Instant::now() > deadline {
                return Err(Error(format!("Gatun did not reload:\n{new}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Requests its counters, and waits for them.
    pub(crate) fn counters(&self) -> Result<Counters, Error> {
        let before = self.said_len()?;
        self.process.signal(Signal::USR1)?;
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(counters) = Counters::read(&self.said_since(before)?) {
                return Ok(counters);
            }
            if Instant::now() > deadline {
                return Err(Error("Gatun did not print its counters".into()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends Gatun, and returns its last counters.
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

    /// Bytes of its output so far.
    fn said_len(&self) -> Result<u64, Error> {
        fs::metadata(&self.stdout).map(|file| file.len()).map_err(|e| Error(e.to_string()))
    }

    /// Output since `before`: the whole output grows to megabytes in a long run, and reading it takes the
    /// generator's processor time.
    fn said_since(&self, before: u64) -> Result<String, Error> {
        let read = || {
            let mut file = File::open(&self.stdout)?;
            file.seek(SeekFrom::Start(before))?;
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            // The output may end in the middle of a character.
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
    /// Starts this program's own plain forwarder: it copies frames over AF_XDP and parses no packet.
    pub(crate) fn start(bed: &Bed, programs: &Programs) -> Result<Forwarder, Error> {
        Forwarder::run(on_last_processor(&bed.middle), programs, &["forward", MIDDLE[0], MIDDLE[1]])
    }

    /// Starts the plain forwarder on two DPDK devices: Gatun's backend, without an engine.
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
        wait_for(&mut process, &log, forwarder::READY, 1, READY_MAX)?;
        Ok(Forwarder { process, log })
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Ends the forwarder, and returns its output.
    pub(crate) fn stop(self) -> Result<forwarder::ForwarderOutput, Error> {
        self.process.stop()?;
        let said = fs::read_to_string(&self.log).map_err(|e| Error(e.to_string()))?;
        Ok(forwarder::ForwarderOutput::read(&said))
    }
}

/// A command on a host, kept off the generator's processor if there is another.
fn on_last_processor(host: &Namespace) -> Command {
    let mut command = host.command("taskset");
    command.args(["--cpu-list", &last_processor().to_string()]);
    command
}

/// A command on a host, allowed on all processors: this thread may be pinned to one.
fn on_all_processors(host: &Namespace) -> Command {
    let mut command = host.command("taskset");
    command.args(["--cpu-list", &all_processors()]);
    command
}

/// Waits until a log contains a text `times` times, at most `max`.
pub(crate) fn wait_for(
    process: &mut Process,
    log: &Path,
    text: &str,
    times: usize,
    max: Duration,
) -> Result<(), Error> {
    let deadline = Instant::now() + max;
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
