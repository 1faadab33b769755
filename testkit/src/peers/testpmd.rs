//! Debian's `dpdk-testpmd`: an independent forwarder and reflector, over any devices of DPDK.

use crate::{Error, Process, wait_until};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command};
use std::time::{Duration, Instant};

/// The program; Debian has it in `dpdk-dev`.
pub const PROGRAM: &str = "dpdk-testpmd";

/// Settings of a testpmd.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// Forwarding mode: `macswap`, `5tswap`, ...
    pub mode: &'a str,
    /// Devices, each a driver's name with its arguments. With one device, packets return to it; with two,
    /// each forwards to the other.
    pub devices: &'a [String],
    /// The processor that forwards, and the one for everything else.
    pub cores: [usize; 2],
    /// Bytes of the largest frame.
    pub frame_max: usize,
    /// Entries of its rings.
    pub ring: u32,
    /// Allocates its memory on huge pages.
    pub huge_pages: bool,
    /// The socket of a memif that it serves. The socket has another name until testpmd forwards, because
    /// earlier clients are refused and retry only seconds later.
    pub serves: Option<&'a Path>,
    /// File of its output.
    pub log: &'a Path,
}

/// A running testpmd.
#[derive(Debug)]
pub struct Testpmd {
    process: Process,
    /// Its standard input, for commands.
    input: ChildStdin,
    log: PathBuf,
}

/// Counters of testpmd, summed over all its devices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forwarded {
    /// Packets received.
    pub rx: u64,
    /// Packets sent.
    pub tx: u64,
    /// Packets that a device could not receive.
    pub rx_dropped: u64,
    /// Packets that a device did not take because its ring was full.
    pub tx_dropped: u64,
    /// Time of the bursts that had packets, for each packet, ns.
    pub busy_ns_each: Option<f64>,
}

/// Prompt of a testpmd that forwards and waits for a command.
const READY: &str = "testpmd> ";
const READY_MAX: Duration = Duration::from_secs(30);
const END_MAX: Duration = Duration::from_secs(10);

impl Testpmd {
    /// Starts testpmd with `command`, which runs a program with its arguments, and waits until it forwards.
    ///
    /// # Errors
    /// Returns an error with its output if testpmd does not forward.
    pub fn start(mut command: Command, setup: &Setup<'_>) -> Result<Testpmd, Error> {
        let wrote = |e: std::io::Error| Error(format!("{}: {e}", setup.log.display()));
        let log = File::create(setup.log).map_err(wrote)?;
        let meanwhile = setup.serves.map(|socket| socket.with_extension("meanwhile"));
        if let Some((socket, meanwhile)) = setup.serves.zip(meanwhile.as_deref()) {
            // A killed testpmd leaves its sockets.
            for socket in [socket, meanwhile] {
                let _ = fs::remove_file(socket);
            }
        }
        command.args(setup.environment());
        for device in setup.devices {
            let device = match setup.serves.zip(meanwhile.as_deref()) {
                Some((socket, meanwhile)) => {
                    device.replace(&*socket.to_string_lossy(), &meanwhile.to_string_lossy())
                }
                None => device.clone(),
            };
            command.args(["--vdev", &device]);
        }
        command.arg("--").args(setup.forwarding());
        command.stdout(log.try_clone().map_err(wrote)?).stderr(log);
        let (process, input) = Process::start_with_input(&mut command)?;
        let testpmd = Testpmd { process, input, log: setup.log.to_owned() };
        wait_until("testpmd forwards", READY_MAX, || testpmd.said().contains(READY))
            .map_err(|Error(e)| Error(format!("{e}: {}", testpmd.said())))?;
        if let Some((socket, meanwhile)) = setup.serves.zip(meanwhile) {
            fs::rename(meanwhile, socket).map_err(wrote)?;
        }
        Ok(testpmd)
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Stops forwarding and returns the counters. The process stays until it is dropped, which kills it:
    /// when the other end of a memif goes, the driver (22.11) frees the rings while its threads use them,
    /// and the process crashes. So halt all processes that share memifs before any of them ends.
    ///
    /// # Errors
    /// Returns an error if the process has ended, or does not print its counters.
    pub fn halt(&mut self) -> Result<Forwarded, Error> {
        // If this fails, the process has ended; the error below says so.
        let _ = writeln!(self.input, "stop");
        let deadline = Instant::now() + END_MAX;
        loop {
            // Asked before its output is read: a process that has ended prints no more.
            let ended = self.process.ended();
            let said = self.said();
            if let Some(counted) = Forwarded::read(&said) {
                return Ok(counted);
            }
            if ended.is_some() || Instant::now() > deadline {
                let how = ended.map_or("still runs".into(), |status| format!("ended with {status}"));
                return Err(Error(format!("testpmd {how} and printed no counters: {said}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Setup<'_> {
    fn environment(&self) -> Vec<String> {
        let [forwards, rest] = self.cores;
        // `stdbuf -oL`: its output is read while it runs.
        let mut words: Vec<String> = ["-oL", PROGRAM].map(String::from).into();
        words.extend(["--lcores".into(), format!("0@{rest},1@{forwards}")]);
        words.extend(
            "--no-pci --no-telemetry --single-file-segments --iova-mode=va".split(' ').map(String::from),
        );
        let mbuf = self.frame_max.max(2048) + 512;
        let memory_mb = 64 + ((self.mbufs() as usize * mbuf) >> 20);
        match self.huge_pages {
            true => words.push("--in-memory".into()),
            false => {
                words.extend(["--no-huge".into(), "--no-shconf".into(), "-m".into(), memory_mb.to_string()])
            }
        }
        words
    }

    fn forwarding(&self) -> Vec<String> {
        let Setup { mode, ring, .. } = self;
        // Each frame lies in one buffer.
        let room = 128 + self.frame_max.max(2048).next_multiple_of(64);
        let topology = if self.devices.len() == 1 { "loop" } else { "paired" };
        let words = format!(
            "--interactive --forward-mode={mode} --port-topology={topology} --burst=64 --rxd={ring} --txd={ring} --mbuf-size={room} \
             --total-num-mbufs={} --no-lsc-interrupt --disable-link-check --auto-start \
             --record-core-cycles",
            self.mbufs()
        );
        words.split_whitespace().map(String::from).collect()
    }

    /// Buffers for full rings and packets in flight.
    fn mbufs(&self) -> u32 {
        (2 * self.devices.len() as u32 + 1) * self.ring + 2048
    }
}

impl Forwarded {
    /// Reads testpmd's output after `stop`; `None` while it is incomplete.
    fn read(said: &str) -> Option<Forwarded> {
        let (_, end) = said.rsplit_once("Accumulated forward statistics for all ports")?;
        let (end, _) = end.split_once("\nDone.")?;
        let number = |name: &str| {
            let (_, behind) = end.split_once(name)?;
            behind.split_whitespace().next()?.parse().ok()
        };
        let cycles = || {
            let (_, behind) = end.split_once("total cycles=")?;
            let cycles: f64 = behind.split(' ').next()?.parse().ok()?;
            let (_, behind) = end.rsplit_once(" at ")?;
            let mhz: f64 = behind.split(' ').next()?.parse().ok()?;
            Some(cycles * 1e3 / mhz)
        };
        let rx = number("RX-packets:")?;
        Some(Forwarded {
            rx,
            tx: number("TX-packets:")?,
            rx_dropped: number("RX-dropped:")?,
            tx_dropped: number("TX-dropped:")?,
            busy_ns_each: cycles().filter(|_| rx > 0).map(|ns| ns / rx as f64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "
  ---------------------- Forward statistics for port 0  ----------------------
  RX-packets: 1              RX-dropped: 0             RX-total: 1
  TX-packets: 1              TX-dropped: 0             TX-total: 1
  ----------------------------------------------------------------------------

  +++++++++++++++ Accumulated forward statistics for all ports+++++++++++++++
  RX-packets: 66551040       RX-dropped: 7             RX-total: 66551047
  TX-packets: 66551030       TX-dropped: 10            TX-total: 66551040
  ++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++

  CPU cycles/packet=109.64 (total cycles=7296981161 / total 5tswap packets=66551040) at 2450 MHz Clock

Done.
";

    #[test]
    fn the_accumulated_counters_of_all_ports_are_read() {
        let account = Forwarded::read(SAID).unwrap();
        let counts = (account.rx, account.tx, account.rx_dropped, account.tx_dropped);
        assert_eq!(counts, (66_551_040, 66_551_030, 7, 10));
        let ns = account.busy_ns_each.unwrap();
        assert!((ns - 109.64 / 2.45).abs() < 0.01, "{ns}");
        assert_eq!(Forwarded::read("testpmd: no memory"), None);
        let (half, _) = SAID.split_once("Done").unwrap();
        assert_eq!(Forwarded::read(half), None, "incomplete output");
    }
}
