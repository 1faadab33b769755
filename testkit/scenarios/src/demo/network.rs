//! The demo's hosts, and the programs that run on them.

use gatun_testkit::{Error, Process, Topology, tayga};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Gatun's configuration in the demo; a copy for the reader is beside the report.
const CONFIG: &str = r#"# The configuration of `lab/run demo`.
[[port]]
device = "nat64"
routes = ["2001:db8:64::/96", "192.0.2.0/28", "2001:db8:ffff::1/128"]

[translator]
own4 = "192.0.2.14"          # answers pings, and sends Gatun's own ICMP errors
own6 = "2001:db8:ffff::1"

[[pool]]
prefixes = "192.0.2.1"

[[nat64]]
pool6 = "2001:db8:64::/96"
static = [                   # the client is a server too
  { protocol = "tcp", inside = "[2001:db8:1::2]:8081", outside = "192.0.2.1:8081" },
  { protocol = "udp", inside = "[2001:db8:1::2]:7001", outside = "192.0.2.1:7001" },
]
"#;

/// Bytes of the file that both ends serve.
const FILE_LEN: u64 = 8_000_000;

/// Hosts, their programs, and files in the /run of the sandbox.
pub(super) struct Lab {
    pub(super) net: Topology,
    pub(super) gatun: Process,
    pub(super) has_tayga: bool,
    pub(super) file_hash: String,
    _programs: Vec<Process>,
}

impl Lab {
    pub(super) fn new(gatun: &Path, output: &Path) -> Result<Self, Error> {
        let net = Topology::new()?;
        // Without offloads at both ends, the captures show packets as on a wire.
        net.set_offloads(false)?;
        let gatun = start_gatun(&net, gatun, output)?;
        let mut programs = start_peers(&net)?;
        let has_tayga = gatun_testkit::has_program("tayga");
        if has_tayga {
            programs.push(tayga::start(&net)?);
        }
        let mut urandom = gatun_testkit::run(std::process::Command::new("sh").args([
            "-c",
            &format!("head -c {FILE_LEN} /dev/urandom > /run/files/file && sha256sum /run/files/file"),
        ]))?;
        urandom.truncate(64);
        Ok(Lab { net, gatun, has_tayga, file_hash: urandom, _programs: programs })
    }
}

fn start_gatun(net: &Topology, program: &Path, output: &Path) -> Result<Process, Error> {
    let written = |e: std::io::Error| Error(format!("{}: {e}", output.display()));
    let config = output.join("gatun.toml");
    fs::write(&config, CONFIG).map_err(written)?;
    let log = output.join("gatun.log");
    let stderr = File::create(&log).map_err(written)?;
    let stdout = stderr.try_clone().map_err(written)?;
    let mut command = net.translator.command(program);
    let mut process = Process::start(command.arg("run").arg(&config).stdout(stdout).stderr(stderr))?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while !fs::read_to_string(&log).map_err(written)?.contains("translating with") {
        if process.ended().is_some() || Instant::now() > deadline {
            return Err(Error(format!(
                "gatun did not start:\n{}",
                fs::read_to_string(&log).unwrap_or_default()
            )));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(process)
}

fn start_peers(net: &Topology) -> Result<Vec<Process>, Error> {
    let script = PathBuf::from("/run/peers.py");
    fs::create_dir_all("/run/files").map_err(|e| Error(e.to_string()))?;
    fs::write(&script, include_str!("peers.py")).map_err(|e| Error(e.to_string()))?;
    let mut programs = Vec::new();
    for (host, line) in [
        (&net.server, "http_files 8080 /run/files"),
        (&net.server, "tcp_hash 5000"),
        (&net.server, "udp_echo 7000"),
        (&net.client, "http_files 8081 /run/files"),
        (&net.client, "udp_echo 7001"),
    ] {
        programs.push(host.start(&format!("python3 /run/peers.py {line}"))?);
    }
    for (host, port) in [(&net.server, 8080), (&net.server, 5000), (&net.client, 8081)] {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !host.run("ss -Hltn")?.contains(&format!(":{port} ")) {
            if Instant::now() > deadline {
                return Err(Error(format!("no server on port {port}: is python3 installed?")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(programs)
}
