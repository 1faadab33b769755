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
use std::process::Command;
use std::time::{Duration, Instant};

/// Time limit for the switch to be ready: it compiles its program.
const READY_MAX: Duration = Duration::from_secs(120);
/// Time limit for the counters of its ports.
const COUNTERS_MAX: Duration = Duration::from_secs(10);
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

/// A switch that can be started by another thread.
pub(crate) struct SwitchCommand {
    command: Command,
    stdout: PathBuf,
}

/// Packets that a switch received and did not send, from the report of its ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SwitchDrops {
    /// Dropped at the ports, by reason.
    pub(crate) at_ports: BTreeMap<String, u64>,
    /// Dropped by the program.
    pub(crate) by_program: u64,
}

/// Name of [`SwitchDrops::by_program`] in a run's accounts.
const BY_PROGRAM: &str = "dropped by its program";

impl SwitchDrops {
    /// All drops, by name.
    pub(crate) fn all(self) -> BTreeMap<String, u64> {
        let mut all = self.at_ports;
        all.insert(BY_PROGRAM.into(), self.by_program);
        all
    }
}

/// Names the reasons of the program's drops, as far as Gatun has read its counters.
pub(crate) fn with_reasons(
    mut drops: BTreeMap<String, u64>,
    reasons: &BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    let Some(name) = drops.keys().find(|name| name.ends_with(BY_PROGRAM)).cloned() else { return drops };
    let mut left = drops.remove(&name).unwrap_or(0);
    let prefix = name.trim_end_matches(BY_PROGRAM).to_owned();
    for (reason, count) in reasons {
        let count = left.min(*count);
        left -= count;
        drops.insert(format!("{prefix}{reason}"), count);
    }
    drops.insert(name, left);
    drops
}

impl SwitchCommand {
    /// A switch with room for this many sessions.
    pub(crate) fn new(
        bed: &Bed,
        memif: &Memif,
        programs: &Programs,
        sessions: u64,
    ) -> Result<SwitchCommand, Error> {
        let stdout = programs.output.join("switch.out");
        let file = |path: &PathBuf| File::create(path).map_err(|e| Error(format!("{}: {e}", path.display())));
        let [controller, inside, outside] = memif.switch_devices();
        let room = (2 * sessions).next_power_of_two().max(1024);
        let memory = 256 + room / 1024;
        let mut command = bed.middle.command("taskset");
        let processors = memif.switch.clone().unwrap_or_else(all_processors);
        command.args(["--cpu-list", &processors]).arg(&programs.gatun).args(["p4", "switch", PROGRAM]);
        command.args(["--headers", HEADERS, "--memory", &memory.to_string()]);
        command.args(["--controller-port", &controller, "--port", &inside, "--port", &outside]);
        for (table, size) in [("flows6", room), ("flows4", 2 * room)] {
            command.args(["--size", &format!("gatun_lookup_{table}={size}")]);
        }
        command.stdout(file(&stdout)?).stderr(file(&programs.output.join("switch.log"))?);
        Ok(SwitchCommand { command, stdout })
    }

    /// Starts the switch, and waits for its server.
    pub(crate) fn start(mut self) -> Result<Switch, Error> {
        let mut process = Process::start(&mut self.command)?;
        wait_for(&mut process, &self.stdout, "P4Runtime on", 1, READY_MAX)?;
        Ok(Switch { process, stdout: self.stdout })
    }
}

impl Switch {
    /// Ends the switch. Returns the packets that it dropped.
    pub(crate) fn stop(mut self) -> Result<SwitchDrops, Error> {
        let before = self.said()?.len();
        self.process.signal(Signal::TERM)?;
        self.process.wait(READY_MAX)?;
        let said = self.said()?;
        let new = said.get(before..).unwrap_or_default();
        drops(new)?.ok_or_else(|| Error(format!("no counters at the switch's end:\n{said}")))
    }

    /// Packets that it has dropped so far.
    pub(crate) fn drops(&self) -> Result<SwitchDrops, Error> {
        let before = self.said()?.len();
        self.process.signal(Signal::USR1)?;
        let deadline = Instant::now() + COUNTERS_MAX;
        loop {
            let said = self.said()?;
            if let Some(drops) = drops(said.get(before..).unwrap_or_default())? {
                return Ok(drops);
            }
            if Instant::now() > deadline {
                return Err(Error(format!("the switch did not print its counters:\n{said}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills the switch by SIGKILL.
    pub(crate) fn kill(&self) -> Result<(), Error> {
        self.process.signal(Signal::KILL)
    }

    /// Waits for the end of a killed switch.
    pub(crate) fn wait_for_end(mut self) -> Result<(), Error> {
        self.process.wait(READY_MAX).map(drop)
    }

    fn said(&self) -> Result<String, Error> {
        fs::read_to_string(&self.stdout).map_err(|e| Error(e.to_string()))
    }
}

/// Reads a report of the ports. `None`: its last line is not there. A switch takes no frame from its ports
/// before it has finished the others, so that each frame has one fate.
fn drops(said: &str) -> Result<Option<SwitchDrops>, Error> {
    if !said.contains("\npackets: ") {
        return Ok(None);
    }
    let incomplete = || Error(format!("the switch's report lacks a counter:\n{said}"));
    let count = |counters: &str, ending: &str| -> Result<u64, Error> {
        let found = counters.split(", ").find_map(|part| part.strip_suffix(ending)?.parse().ok());
        found.ok_or_else(incomplete)
    };
    let program = said.lines().find_map(|line| line.strip_prefix("program: ")).ok_or_else(incomplete)?;
    let (dropped, echoes) = (count(program, " dropped")?, count(program, " of them echoes of Gatun")?);
    // Echoes are no packets of the traffic.
    let by_program = dropped.checked_sub(echoes).ok_or_else(incomplete)?;
    let mut all = SwitchDrops { by_program, ..SwitchDrops::default() };
    let (mut received, mut ended) = (0, dropped);
    for (port, counters) in said.lines().filter_map(|line| line.strip_prefix("port ")?.split_once(": ")) {
        received += count(counters, " received")?;
        ended += count(counters, " sent")?;
        for (ending, what) in [
            (" runts", "runts"),
            (" lost on the way in", "lost on the way in"),
            (" on the way out", "lost on the way out"),
            (" behind the program", "lost behind the program"),
        ] {
            let lost = count(counters, ending)?;
            ended += lost;
            *all.at_ports.entry(format!("port {port}: {what}")).or_default() += lost;
        }
    }
    if received != ended {
        return Err(Error(format!("{received} frames received, {ended} sent or counted as lost:\n{said}")));
    }
    Ok(Some(all))
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

/// Packets that the program of the switch dropped, by reason. Echoes are none.
pub(crate) fn program_drops() -> Result<BTreeMap<String, u64>, Error> {
    let mut drops = BTreeMap::new();
    for switch in state()?.switches {
        for (what, counters) in [("over_limit", &switch.over_limit), ("dropped", &switch.dropped)] {
            for counter in counters.iter().filter(|counter| counter.name != "echo") {
                *drops.entry(format!("{what} {}", counter.name)).or_default() += counter.value;
            }
        }
    }
    Ok(drops)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "gatun: p4/gatun.spec on 2 ports\n\
        port 0: 9 received, 8 sent, 1 truncated, 0 runts, 0 lost on the way in, 7 on the way out, 0 behind the program\n\
        port 1: 25 received, 5 sent, 0 truncated, 2 runts, 3 lost on the way in, 0 on the way out, 4 behind the program\n\
        program: 5 dropped, 2 of them echoes of Gatun\n\
        controllers: 1 accepted, 0 refused, 7 updates\n\
        packets: 0 to controllers, 0 lost, 0 from controllers, 0 refused\n";

    #[test]
    fn drops_are_read_from_the_report() {
        let drops = drops(REPORT).unwrap().unwrap();
        let found: Vec<_> =
            drops.at_ports.iter().filter(|(_, n)| **n > 0).map(|(name, n)| (name.as_str(), *n)).collect();
        let wanted = [
            ("port 0: lost on the way out", 7),
            ("port 1: lost behind the program", 4),
            ("port 1: lost on the way in", 3),
            ("port 1: runts", 2),
        ];
        assert_eq!(found, wanted);
        assert_eq!(drops.by_program, 3);
    }

    #[test]
    fn a_frame_without_a_counter_is_an_error() {
        let error = drops(&REPORT.replace("25 received", "26 received")).unwrap_err().to_string();
        assert!(error.starts_with("35 frames received, 34 sent or counted as lost"), "{error}");
        assert!(drops(&REPORT.replace("program: 5 dropped", "program: 1 dropped")).is_err());
        let without = REPORT.replace("program: 5 dropped, 2 of them echoes of Gatun\n", "");
        assert!(drops(&without).is_err());
    }

    #[test]
    fn reasons_name_no_more_than_was_dropped() {
        let drops = BTreeMap::from([("middle: switch: dropped by its program".to_owned(), 10)]);
        let reasons =
            BTreeMap::from([("dropped foreign".to_owned(), 7), ("over_limit no_entry".to_owned(), 9)]);
        let named = with_reasons(drops, &reasons);
        assert_eq!(named["middle: switch: dropped foreign"], 7);
        assert_eq!(named["middle: switch: over_limit no_entry"], 3);
        assert_eq!(named["middle: switch: dropped by its program"], 0);
    }

    #[test]
    fn an_incomplete_report_is_rejected() {
        assert_eq!(drops(REPORT.split_once("packets").unwrap().0).unwrap(), None);
    }
}
