//! Captures at both ends, and their analysis by tshark.

use super::network::Lab;
use super::report::Check;
use gatun_testkit::{Error, Namespace, Process, run_for};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Display filter for every fault that tshark finds in a packet, with one exception: the kernels at the ends
/// send 0xffff for a TCP checksum of zero. Receivers cannot tell the two apart (RFC 1624 3), but tshark
/// reports it.
const FAULTS: &str = "(_ws.malformed || _ws.expert.severity >= 8388608 || ip.checksum.status == 0 \
    || tcp.checksum.status == 0 || udp.checksum.status == 0 || icmp.checksum.status == 0 \
    || icmpv6.checksum.status == 0) && !tcp.checksum.ffff";

const SIDES: [&str; 2] = ["client", "server"];

/// Running captures, or a check with the reason why there are none.
pub(super) struct Captures {
    running: Result<Vec<(PathBuf, Process)>, Check>,
}

fn name_of(side: &str) -> String {
    format!("tshark: no fault in {side}.pcap")
}

impl Captures {
    pub(super) fn start(lab: &Lab, output: &Path) -> Self {
        if !gatun_testkit::has_program("tcpdump") {
            return Captures { running: Err(Check::not_run("captures", "tcpdump is missing")) };
        }
        let hosts = SIDES.into_iter().zip([&lab.net.client, &lab.net.server]);
        let started = hosts.map(|(side, host)| {
            let file = output.join(format!("{side}.pcap"));
            Ok((file.clone(), start(host, &file)?))
        });
        let running = started.collect::<Result<_, Error>>();
        Captures { running: running.map_err(|e| Check::from_result("captures", Err(e))) }
    }

    /// Ends the captures and lets tshark look for faults.
    pub(super) fn finish(self) -> Vec<Check> {
        // The last packets are not in the files yet.
        std::thread::sleep(Duration::from_millis(300));
        let running = match self.running {
            Ok(running) => running,
            Err(check) => return vec![check],
        };
        let examined = SIDES.into_iter().zip(running).flat_map(|(side, (file, process))| {
            let name = name_of(side);
            match process.stop() {
                Err(e) => vec![Check::from_result(&name, Err(e))],
                Ok(_) if !gatun_testkit::has_program("tshark") => {
                    vec![Check::not_run(&name, "tshark is missing")]
                }
                Ok(_) => examine(&name, &file),
            }
        });
        examined.collect()
    }
}

fn start(host: &Namespace, file: &Path) -> Result<Process, Error> {
    // -Z root: the user who runs the demo owns the file. 262144 bytes: whole packets.
    let mut command = host.command("tcpdump");
    command.args(["-i", "eth0", "-U", "-s", "262144", "-Z", "root", "-B", "65536", "-w"]).arg(file);
    let process = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let deadline = Instant::now() + Duration::from_secs(5);
    while !file.metadata().is_ok_and(|m| m.len() >= 24) {
        if Instant::now() > deadline {
            return Err(Error(format!("tcpdump did not create {}", file.display())));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(process)
}

fn examine(name: &str, file: &Path) -> Vec<Check> {
    // Without ethtool, hosts leave checksums to offloads that do not exist.
    let has_sums = gatun_testkit::has_program("ethtool");
    let mut checks = vec![Check::from_result(name, faults(file, has_sums))];
    if !has_sums {
        checks.push(Check::not_run(&format!("{name}: transport checksums"), "ethtool is missing"));
    }
    checks
}

fn faults(file: &Path, has_sums: bool) -> Result<String, Error> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-o", "ip.check_checksum:TRUE"]);
    // Datagrams have random payloads, and tshark takes one in seventy for a damaged packet of RTCP.
    command.args(["-d", "udp.port==1-65535,data"]);
    if has_sums {
        command.args(["-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    }
    command.args(["-Y", FAULTS]);
    let (status, text) = run_for(&mut command, Duration::from_secs(60))?;
    match (status.success(), text.lines().next()) {
        (true, None) if has_sums => Ok("headers and every checksum".into()),
        (true, None) => Ok("headers".into()),
        (true, Some(first)) => Err(Error(format!("{} packets, the first: {first}", text.lines().count()))),
        (false, _) => Err(Error(format!("tshark failed ({status})"))),
    }
}

#[cfg(test)]
mod tests {
    use super::faults;
    use gatun_io::pcap::{CommentedWriter, Frame, Link};
    use gatun_testkit::packet::text::udp4;
    use std::fs::File;
    use std::time::Duration;

    #[test]
    fn a_payload_that_looks_like_a_damaged_message_is_no_fault_and_a_wrong_checksum_is_one() {
        if let Some(why) = gatun_testkit::missing(&[("tshark", "tshark")]) {
            return gatun_testkit::skip(&why);
        }
        // The first two bytes are those of a "goodbye" of RTCP with five sources.
        let good =
            udp4("192.0.2.1", 40_000, "198.51.100.2", 7000, &[&[0x85, 203], &[0xff; 200][..]].concat());
        let mut damaged = good.clone();
        *damaged.last_mut().unwrap() ^= 1;
        let found = [good, damaged].map(|bytes| {
            let file = std::env::temp_dir().join(format!("gatun-faults-{}.pcapng", std::process::id()));
            let mut writer =
                CommentedWriter::new(File::create(&file).unwrap(), Link::Raw, &["eth0"]).unwrap();
            let len = bytes.len() as u32;
            writer.write(0, &Frame { time: Duration::ZERO, bytes, cut: false }, len, "").unwrap();
            writer.finish().unwrap();
            let found = faults(&file, true);
            std::fs::remove_file(file).unwrap();
            found
        });
        assert!(found[0].is_ok(), "{found:?}");
        assert!(found[1].as_ref().is_err_and(|e| e.0.starts_with("1 packets")), "{found:?}");
    }
}
