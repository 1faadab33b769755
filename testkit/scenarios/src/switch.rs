//! `gatun p4 switch` between the memifs, with Gatun as its controller.
//!
//! ```text
//!   generator ===memif=== port 1 [ switch ] port 2 ===memif=== reflector
//!                                  port 0
//!                                    |  memif
//!                                  Gatun
//! ```

use crate::bed::Bed;
use crate::memif::Memif;
use crate::middle::{Programs, SOCKET, wait_for};
use crate::processors::all_processors;
use gatun_api::client::Client;
use gatun_api::types;
use gatun_testkit::{Error, Process};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time limit for the switch to be ready: it compiles its program.
const READY_MAX: Duration = Duration::from_secs(120);
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../p4/gatun.spec");
const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/dpdk-headers");

/// A running switch.
pub(crate) struct Switch {
    process: Process,
    stdout: PathBuf,
}

/// The section for a switch on this bed. Sessions move into the switch early.
pub(crate) const CONTROLLER: &str = "[[offload]]\nkind = \"p4runtime\"\nswitches = [\"lab at 127.0.0.1:9559\"]\n\
                                     udp_packets = 2\ntcp_packets = 2\n";

impl Switch {
    /// Starts a switch with room for this many sessions, and waits for its server.
    pub(crate) fn start(
        bed: &Bed,
        memif: &Memif,
        programs: &Programs,
        sessions: u64,
    ) -> Result<Switch, Error> {
        let stdout = programs.output.join("switch.out");
        let file = |path: &PathBuf| File::create(path).map_err(|e| Error(format!("{}: {e}", path.display())));
        let [controller, inside, outside] = memif.switch_devices();
        let room = (2 * sessions).next_power_of_two().max(1024);
        let memory = 256 + room / 1024;
        let mut command = bed.middle.command("taskset");
        command.args(["--cpu-list", &all_processors()]).arg(&programs.gatun).args(["p4", "switch", PROGRAM]);
        command.args(["--headers", HEADERS, "--memory", &memory.to_string()]);
        command.args(["--controller-port", &controller, "--port", &inside, "--port", &outside]);
        for (table, size) in [("flows6", room), ("flows4", 2 * room)] {
            command.args(["--size", &format!("gatun_lookup_{table}={size}")]);
        }
        command.stdout(file(&stdout)?).stderr(file(&programs.output.join("switch.log"))?);
        let mut process = Process::start(&mut command)?;
        wait_for(&mut process, &stdout, "P4Runtime on", 1, READY_MAX)?;
        Ok(Switch { process, stdout })
    }

    /// Ends the switch. Returns the packets that it dropped at its ports.
    pub(crate) fn stop(mut self) -> Result<BTreeMap<String, u64>, Error> {
        self.process.signal(Signal::TERM)?;
        self.process.wait(READY_MAX)?;
        let said = fs::read_to_string(&self.stdout).map_err(|e| Error(e.to_string()))?;
        if !said.contains("\nport 0: ") {
            return Err(Error(format!("no counters at the switch's end:\n{said}")));
        }
        Ok(port_drops(&said))
    }
}

/// Packets that ended at the ports, from the report at the switch's end.
fn port_drops(said: &str) -> BTreeMap<String, u64> {
    let mut drops = BTreeMap::new();
    let lines = said.lines().filter_map(|line| line.strip_prefix("port ")?.split_once(": "));
    for (port, counters) in lines {
        for (ending, what) in [
            (" runts", "runts"),
            (" lost on the way in", "lost on the way in"),
            (" on the way out", "lost on the way out"),
        ] {
            let count = counters.split(", ").find_map(|part| part.strip_suffix(ending)?.parse().ok());
            *drops.entry(format!("port {port}: {what}")).or_default() += count.unwrap_or(0);
        }
    }
    drops
}

/// State of the switch, as Gatun knows it.
pub(crate) fn state() -> Result<types::Offload, Error> {
    Client::new(SOCKET).get("/v1/offload").map_err(|e| Error(e.to_string()))
}

/// Waits until Gatun uses the switch.
pub(crate) fn wait_until_used() -> Result<(), Error> {
    let deadline = Instant::now() + READY_MAX;
    loop {
        let offload = state()?;
        if offload.state == types::FastPathState::On {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Error(format!("the switch is not in use: {:?}", offload.why)));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Packets that the program of the switch dropped, by reason.
pub(crate) fn program_drops() -> Result<BTreeMap<String, u64>, Error> {
    let mut drops = BTreeMap::new();
    for switch in state()?.switches {
        for (what, counters) in [("over_limit", &switch.over_limit), ("dropped", &switch.dropped)] {
            for counter in counters {
                *drops.entry(format!("{what} {}", counter.name)).or_default() += counter.value;
            }
        }
    }
    Ok(drops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_at_the_ports_are_read_from_the_report() {
        let said = "gatun: p4/gatun.spec on 2 ports\n\
                    port 0: 9 received, 8 sent, 1 truncated, 0 runts, 0 lost on the way in, 7 on the way out\n\
                    port 1: 5 received, 5 sent, 0 truncated, 2 runts, 3 lost on the way in, 0 on the way out\n";
        let drops = port_drops(said);
        let found: Vec<_> =
            drops.iter().filter(|(_, n)| **n > 0).map(|(name, n)| (name.as_str(), *n)).collect();
        let wanted =
            [("port 0: lost on the way out", 7), ("port 1: lost on the way in", 3), ("port 1: runts", 2)];
        assert_eq!(found, wanted);
    }
}
