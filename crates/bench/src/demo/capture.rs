//! Captures at both ends, and what tshark says about them.

use super::network::Lab;
use super::report::Check;
use gatun_lab::{Error, Namespace, Process, run_for};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Whatever a parser may find wrong with a packet. But for one thing: the kernels at the ends send the
/// other zero, 0xffff, where a TCP checksum comes out as zero. Receivers can't tell them apart (RFC 1624 3);
/// tshark minds.
const FAULTS: &str = "(_ws.malformed || _ws.expert.severity >= 8388608 || ip.checksum.status == 0 \
    || tcp.checksum.status == 0 || udp.checksum.status == 0 || icmp.checksum.status == 0 \
    || icmpv6.checksum.status == 0) && !tcp.checksum.ffff";

/// Running captures; none where tcpdump is missing.
pub(super) struct Captures {
    running: Vec<(&'static str, PathBuf, Process)>,
}

impl Captures {
    pub(super) fn start(lab: &Lab, output: &Path) -> Result<Self, Error> {
        let mut running = Vec::new();
        if gatun_lab::has_program("tcpdump") {
            for (side, host) in [("client", &lab.net.client), ("server", &lab.net.server)] {
                let file = output.join(format!("{side}.pcap"));
                running.push((side, file.clone(), start(host, &file)?));
            }
        }
        Ok(Captures { running })
    }

    /// Ends them and lets tshark look for faults.
    pub(super) fn finish(self) -> Vec<Check> {
        // What was sent last is still on its way to the file.
        std::thread::sleep(Duration::from_millis(300));
        self.running
            .into_iter()
            .map(|(side, file, process)| {
                let name = format!("tshark: no fault in {side}.pcap");
                Check::from_result(&name, process.stop().and_then(|_| examine(&file)))
            })
            .collect()
    }
}

fn start(host: &Namespace, file: &Path) -> Result<Process, Error> {
    // -Z root: the file belongs to whoever runs the demo. 262144 bytes: whole packets.
    let mut command = host.command("tcpdump");
    command.args(["-i", "eth0", "-U", "-s", "262144", "-Z", "root", "-B", "65536", "-w"]).arg(file);
    let process = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let deadline = Instant::now() + Duration::from_secs(5);
    while !file.metadata().is_ok_and(|m| m.len() >= 24) {
        if Instant::now() > deadline {
            return Err(Error(format!("tcpdump does not write {}", file.display())));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(process)
}

fn examine(file: &Path) -> Result<String, Error> {
    if !gatun_lab::has_program("tshark") {
        return Ok("not examined: tshark is missing".into());
    }
    let checked = gatun_lab::has_program("ethtool");
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-o", "ip.check_checksum:TRUE"]);
    if checked {
        command.args(["-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    }
    command.args(["-Y", FAULTS]);
    let (status, text) = run_for(&mut command, Duration::from_secs(60))?;
    match (status.success(), text.lines().next()) {
        (true, None) if checked => Ok("headers and every checksum".into()),
        (true, None) => Ok("headers; transport checksums not without ethtool".into()),
        (true, Some(first)) => Err(Error(format!("{} packets, the first: {first}", text.lines().count()))),
        (false, _) => Err(Error(format!("tshark failed ({status})"))),
    }
}
