//! Gatun as the controller of a P4 switch in software, between the client and the server:
//!
//! ```text
//!   client - inside | switch | outside - server
//!                     cpu1
//!                      |
//!                     cpu0
//!                   gatun run
//! ```
//! The translator's kernel has no addresses there, so it neither forwards nor answers.

use crate::middle::{Gatun, Place, Programs, SOCKET, wait_for};
use gatun_testkit::{Error, Process, Topology, has_program};
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Ports of Gatun: those of the switch.
const PORTS: &str = r#"[[port]]
name = "inside"
backend = "dpdk"
device = "net_af_packet0,iface=cpu0"
switch_port = 1
addresses = ["2001:db8:1::64/64"]
[[port]]
name = "outside"
backend = "dpdk"
device = "net_af_packet0,iface=cpu0"
switch_port = 2
addresses = ["198.51.100.64/24"]
[dpdk]
huge_pages = "never"
"#;

/// Time limit for the switch to compile its program and to start.
const STARTED_MAX: Duration = Duration::from_secs(120);
/// Time limit for the controller to load the program of BMv2 and to fill the tables.
const READY_MAX: Duration = Duration::from_secs(60);
/// Folder of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Folder of DPDK's headers in it.
const HEADERS: &str = "target/tools/dpdk-headers";

/// Program of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scenario) enum SwitchProgram {
    /// `gatun p4 switch`.
    Dpdk,
    /// `simple_switch_grpc`.
    Bmv2,
}

impl SwitchProgram {
    pub(in crate::scenario) const ALL: [SwitchProgram; 2] = [SwitchProgram::Dpdk, SwitchProgram::Bmv2];

    /// Name in a table.
    pub(in crate::scenario) fn name(self) -> &'static str {
        match self {
            SwitchProgram::Dpdk => "P4-DPDK",
            SwitchProgram::Bmv2 => "BMv2",
        }
    }

    /// Returns true if this is the name of a row with a switch.
    pub(in crate::scenario) fn is_in(row: &str) -> bool {
        SwitchProgram::ALL.iter().any(|program| row.contains(program.name()))
    }

    /// Reason why it cannot run with these instances here, if there is one.
    pub(in crate::scenario) fn missing(self, programs: &Programs, instances: &str) -> Option<String> {
        let name = self.name();
        let check = programs.output.join("probe-p4.toml");
        let written = std::fs::write(&check, self.config(instances));
        let checked = written.map_err(|e| e.to_string()).and_then(|()| {
            let mut command = Command::new(&programs.gatun);
            gatun_testkit::run(command.arg("check").arg(&check)).map_err(|Error(why)| why)
        });
        if let Err(why) = checked {
            return Some(format!("{name}: {why}"));
        }
        match self {
            _ if !has_program("ethtool") => {
                Some(format!("{name}: ethtool is not installed (Debian: ethtool)"))
            }
            SwitchProgram::Dpdk if !Path::new(ROOT).join(HEADERS).is_dir() => {
                Some(format!("{name}: {HEADERS} is missing: run scripts/dpdk-headers"))
            }
            SwitchProgram::Bmv2 if !has_program("simple_switch_grpc") => {
                Some(format!("{name}: simple_switch_grpc is not on PATH"))
            }
            _ => None,
        }
    }

    /// Configuration of its controller.
    fn config(self, instances: &str) -> String {
        let program = if self == SwitchProgram::Dpdk { "dpdk" } else { "bmv2" };
        let offload = "[[offload]]\nkind = \"p4runtime\"\nswitches = [\"edge at 127.0.0.1:9559\"]\n";
        format!("{PORTS}{instances}{offload}program = \"{program}\"\n[api]\nlisten = \"unix:{SOCKET}\"\n")
    }

    fn command(self, net: &Topology, programs: &Programs) -> Command {
        let mut command = match self {
            SwitchProgram::Dpdk => net.translator.command(&programs.gatun),
            SwitchProgram::Bmv2 => net.translator.command("simple_switch_grpc"),
        };
        command.current_dir(ROOT);
        let words = match self {
            SwitchProgram::Dpdk => concat!(
                "p4 switch p4/gatun.spec --memory 512 --headers target/tools/dpdk-headers --controller-port ",
                "net_af_packet2,iface=cpu1 --port net_af_packet0,iface=inside --port net_af_packet1,iface=outside ",
                "--size gatun_lookup_flows6=4096 --size gatun_lookup_flows4=8192"
            ),
            // The number of the port for the controller: p4/v1model.p4.
            SwitchProgram::Bmv2 => concat!(
                "--no-p4 --device-id 1 -i 1@inside -i 2@outside -i 510@cpu1 --log-level warn ",
                "-- --grpc-server-addr 127.0.0.1:9559"
            ),
        };
        command.args(words.split_whitespace());
        command
    }
}

/// A switch and its controller.
pub(in crate::scenario) struct RunningSwitch {
    /// `None` after it was killed.
    gatun: Option<Gatun>,
    switch: Process,
}

impl RunningSwitch {
    /// Starts both, and waits until the switch has its program and its routes.
    pub(in crate::scenario) fn start(
        net: &Topology,
        programs: &Programs,
        program: SwitchProgram,
        instances: &str,
    ) -> Result<RunningSwitch, Error> {
        silence(net)?;
        RunningSwitch::start_silenced(net, programs, program, instances).inspect_err(|_| {
            // Other rows need the addresses.
            let _ = restore(net);
        })
    }

    fn start_silenced(
        net: &Topology,
        programs: &Programs,
        program: SwitchProgram,
        instances: &str,
    ) -> Result<RunningSwitch, Error> {
        let log = programs.output.join("switch.log");
        let file = File::create(&log).map_err(|e| Error(format!("{}: {e}", log.display())))?;
        let errors = file.try_clone().map_err(|e| Error(e.to_string()))?;
        let mut switch = Process::start(program.command(net, programs).stdout(file).stderr(errors))?;
        match program {
            SwitchProgram::Dpdk => wait_for(&mut switch, &log, "P4Runtime on", 1, STARTED_MAX)?,
            // It keeps its message that the server listens in a buffer. Gatun tries again until it answers.
            SwitchProgram::Bmv2 => wait_for(&mut switch, &log, "as port 510", 1, STARTED_MAX)?,
        }
        let config = program.config(instances);
        let gatun = Gatun::start(&net.translator, Place::Anywhere, programs, "gatun", &config)?;
        let running = RunningSwitch { gatun: Some(gatun), switch };
        let deadline = Instant::now() + READY_MAX;
        while offload()?["state"] != "on" {
            if Instant::now() > deadline {
                return Err(Error(format!("the switch is not in use: {}", offload()?)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(running)
    }

    /// Checks that the switch has translated packets. Gatun reads their counters every two seconds.
    pub(in crate::scenario) fn has_translated(&self) -> Result<(), Error> {
        let deadline = Instant::now() + READY_MAX;
        while offload()?["packets"].as_u64() == Some(0) {
            if Instant::now() > deadline {
                return Err(Error(format!("the switch translated nothing: {}", offload()?)));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// State of the switch, as Gatun knows it.
    pub(in crate::scenario) fn offload(&self) -> Result<serde_json::Value, Error> {
        offload()
    }

    /// Kills Gatun. The switch goes on.
    pub(in crate::scenario) fn kill_controller(&mut self) -> Result<(), Error> {
        self.gatun.take().map_or(Ok(()), Gatun::kill)
    }

    /// Ends both, and gives the addresses back to the kernel.
    pub(in crate::scenario) fn stop(self, net: &Topology) -> Result<(), Error> {
        self.gatun.map_or(Ok(()), |gatun| gatun.stop().map(drop))?;
        self.switch.stop()?;
        restore(net)
    }
}

fn offload() -> Result<serde_json::Value, Error> {
    gatun_api::client::Client::new(SOCKET).get("/v1/offload").map_err(|e| Error(e.to_string()))
}

/// Takes the addresses from the translator's kernel, and adds the link between switch and controller.
fn silence(net: &Topology) -> Result<(), Error> {
    // A switch changes checksums by their difference, so packets need complete ones.
    net.set_offloads(false)?;
    for device in ["inside", "outside"] {
        net.translator.ip(&format!("address flush dev {device}"))?;
        net.translator.sysctl(&format!("net.ipv6.conf.{device}.disable_ipv6"), "1")?;
        net.translator.run(&format!("ethtool -K {device} tso off gso off gro off"))?;
    }
    net.translator.sysctl("net.ipv4.ip_forward", "0")?;
    net.connect_switch()
}

/// Undoes [`silence`].
fn restore(net: &Topology) -> Result<(), Error> {
    net.translator.ip("link del cpu0")?;
    for device in ["inside", "outside"] {
        net.translator.sysctl(&format!("net.ipv6.conf.{device}.disable_ipv6"), "0")?;
        net.translator.run(&format!("ethtool -K {device} tso on gso on gro on"))?;
    }
    net.translator.forward()?;
    net.translator.address("inside", "2001:db8:1::1/64")?;
    net.translator.address("inside", "100.64.0.1/24")?;
    net.translator.address("outside", "198.51.100.1/24")?;
    net.set_offloads(true)
}
